import type { AnswerContext, Bounds, DataType } from '../config/index.ts';

/** What is wrong with a row; undefined if nothing is. */
export function insanityOf(row: object, sanity: DataType['sanity'], context: AnswerContext): string | undefined {
  if (sanity === undefined) return undefined;
  if (typeof sanity === 'function') return sanity(row, context) || undefined;
  for (const [column, bounds] of Object.entries(sanity)) {
    const problem = outOfBounds((row as Record<string, unknown>)[column], bounds);
    if (problem) return `${column} is ${problem}`;
  }
  return undefined;
}

/** What the check covered. A bound on a column that no row has checks nothing. */
export function sanityDetail(sanity: DataType['sanity'], rows: readonly object[]): string {
  if (sanity === undefined) return 'no bounds are set';
  if (typeof sanity === 'function') return 'as its function says';
  const has = (column: string): boolean => rows.some((row) => (row as Record<string, unknown>)[column] !== undefined);
  const [checked, unchecked] = [Object.keys(sanity).filter(has), Object.keys(sanity).filter((column) => !has(column))];
  const within = checked.length === 0 ? 'nothing was checked' : `${checked.join(', ')} within bounds`;
  return unchecked.length === 0 ? within : `${within}; no row has ${unchecked.join(', ')}`;
}

function outOfBounds(value: unknown, { min, max, above, below }: Bounds): string | undefined {
  if (value === null || value === undefined) return undefined;
  // Exact numbers often come as strings; times are compared in milliseconds.
  const number =
    value instanceof Date ? value.getTime() : typeof value === 'string' && value !== '' ? Number(value) : value;
  if (typeof number === 'bigint') return outOfBounds(Number(number), { min, max, above, below });
  if (typeof number !== 'number' || Number.isNaN(number)) return `${JSON.stringify(value)}, which is not a number`;
  if (min !== undefined && number < min) return `${number}, below ${min}`;
  if (max !== undefined && number > max) return `${number}, above ${max}`;
  if (above !== undefined && number <= above) return `${number}, not above ${above}`;
  if (below !== undefined && number >= below) return `${number}, not below ${below}`;
  return undefined;
}
