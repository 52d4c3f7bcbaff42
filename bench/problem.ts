/** A problem that the caller can fix. The message says how; a stack trace would not help. */
export class Problem extends Error {
  override readonly name = 'Problem';
  /** 2 when the command was called wrongly, 1 otherwise. */
  readonly exit: number;

  constructor(message: string, exit: 1 | 2 = 1, options?: ErrorOptions) {
    super(message, options);
    this.exit = exit;
  }
}
