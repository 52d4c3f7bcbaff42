/** Something that the caller can put right. The sentence says how; where in the code it came up tells them nothing. */
export class Problem extends Error {
  override readonly name = 'Problem';
  /** 2 when the command was called wrongly, 1 otherwise. */
  readonly exit: number;

  constructor(message: string, exit: 1 | 2 = 1, options?: ErrorOptions) {
    super(message, options);
    this.exit = exit;
  }
}
