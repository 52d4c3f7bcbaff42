import { errorTable } from './table.ts';

export { errorTable, exitCodes, exitMeanings } from './table.ts';

export type ErrorCode = keyof typeof errorTable;

type Placeholders<Text extends string> = Text extends `${string}{${infer Name}}${infer Rest}`
  ? Name | Placeholders<Rest>
  : never;

type Texts<Code extends ErrorCode> = (typeof errorTable)[Code]['says' | 'next'];

/** The placeholders in an error's sentences. */
export type ErrorValues<Code extends ErrorCode> = Record<Placeholders<Texts<Code>>, string | number>;

/** An error of the coded table: what happened, what to do next, and the command's exit code. */
export class PgfreshError<Code extends ErrorCode = ErrorCode> extends Error {
  override readonly name = 'PgfreshError';
  readonly code: Code;
  readonly next: string;
  readonly exit: number;
  readonly values: Readonly<Record<string, string | number>>;

  /** `next` overrides the table's next step, for instance with the hint of one of our SQL functions. */
  constructor(code: Code, values: ErrorValues<Code>, options?: { cause?: unknown; next?: string | undefined }) {
    const entry = errorTable[code];
    super(fill(entry.says, values), options);
    this.code = code;
    this.next = options?.next ?? fill(entry.next, values);
    this.exit = entry.exit;
    this.values = values;
  }

  toJSON(): { code: Code; message: string; next: string } {
    return { code: this.code, message: this.message, next: this.next };
  }
}

/** Any thrown value as an error of the table. */
export function asPgfreshError(thrown: unknown): PgfreshError {
  if (thrown instanceof PgfreshError) return thrown as PgfreshError;
  return new PgfreshError('PGF_UNEXPECTED', { problem: problemOf(thrown) }, { cause: thrown });
}

/** A one-line message for any thrown value. */
export function problemOf(thrown: unknown): string {
  try {
    if (thrown instanceof AggregateError && thrown.errors.length > 0) return problemOf(thrown.errors[0]);
    const said: unknown = thrown instanceof Error ? thrown.message || thrown.name : thrown;
    return String(said).split('\n', 1)[0]!.trim() || 'no message';
  } catch {
    // Users' code may throw values without text, such as a proxy or an object without a prototype.
    return 'no message';
  }
}

function fill(template: string, values: Record<string, string | number>): string {
  return template.replace(/\{(\w+)\}/g, (whole, name: string) => String(values[name] ?? whole));
}
