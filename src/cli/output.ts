import { styleText } from 'node:util';
import { asPgfreshError } from '../errors/index.ts';

/** Where a command writes: data to stdout, as text or as JSON; hints and progress to stderr. */
export class Output {
  readonly json: boolean;
  readonly debug: boolean;

  constructor({ json = false, debug = false }: { json?: boolean; debug?: boolean }) {
    this.json = json;
    this.debug = debug;
  }

  /** The result of a command: the value itself for machines, a text for people. */
  result(value: unknown, text: () => string): void {
    process.stdout.write(this.json ? `${JSON.stringify(value, null, 2)}\n` : `${text()}\n`);
  }

  hint(text: string): void {
    process.stderr.write(`${text}\n`);
  }

  /** Prints an error and its next step; returns its exit code. */
  failure(thrown: unknown): number {
    const error = asPgfreshError(thrown);
    if (this.json) process.stdout.write(`${JSON.stringify({ error })}\n`);
    else
      process.stderr.write(
        `${styleText('red', error.code, { stream: process.stderr })} ${error.message}\n${styleText('bold', 'Next:', { stream: process.stderr })} ${error.next}\n`,
      );
    if (this.debug) process.stderr.write(`${traceOf(error)}\n`);
    return error.exit;
  }
}

/** Columns as wide as their content; only the last may be long. */
export function table(rows: readonly (readonly string[])[]): string {
  const widths = (rows[0] ?? []).map((_, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0)));
  return rows
    .map((row) =>
      row
        .map((cell, column) => (column === row.length - 1 ? cell : cell.padEnd(widths[column]!)))
        .join('  ')
        .trimEnd(),
    )
    .join('\n');
}

function traceOf(error: Error): string {
  const cause = error.cause instanceof Error ? `\ncaused by: ${traceOf(error.cause)}` : '';
  const detail = 'where' in error && typeof error.where === 'string' ? `\n${error.where}` : '';
  return `${error.stack ?? error.message}${detail}${cause}`;
}
