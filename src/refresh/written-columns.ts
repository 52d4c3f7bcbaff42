import type { AnswerContext } from '../config/index.ts';
import { didYouMean, jsonSchemaOf, sampleOf, type TableColumn } from '../registry/index.ts';
import { ignoreRejection } from './checks.ts';
import type { RefreshType } from './refresh-type.ts';

/**
 * The columns that `rows` fills in, found by running it on a sample answer made from the schema. Undefined if that
 * shows nothing.
 */
function writtenColumns({ fetcher, keyColumns, name }: RefreshType): readonly string[] | undefined {
  const read = jsonSchemaOf(fetcher.schema);
  if ('problem' in read) return undefined;
  const context: AnswerContext = {
    key: keyColumns.map(() => 'A').join('|'),
    keyParts: keyColumns.map(() => 'A'),
    metadata: {},
    dataType: name,
    now: new Date(),
    fetchedAt: new Date(),
    signal: new AbortController().signal,
    status: 200,
    headers: new Headers(),
  };
  try {
    const made = fetcher.rows(sampleOf(read.schema), context);
    const list: unknown[] = Array.isArray(made) ? made : [made];
    for (const one of list) if (one instanceof Promise) ignoreRejection(one);
    const [row] = list;
    if (typeof row !== 'object' || row === null || row instanceof Promise) return undefined;
    return Object.entries(row).flatMap(([column, value]) => (value === undefined ? [] : [column]));
  } catch {
    // A sample is not a real answer, so a failure here proves nothing.
    return undefined;
  }
}

/** Why no row of the data type could be written, although each fetch costs a call. */
export function* writeProblems(
  type: RefreshType,
): Generator<{ state: 'warning' | 'fatal'; problem: string; next: string }> {
  const written = writtenColumns(type);
  if (!written) return;
  const { table, timestamp } = type;
  const columns = [...table.columns.values()];
  const names = columns.map(({ name }) => name);
  for (const column of written) {
    if (names.includes(column) || column === timestamp) continue;
    yield {
      state: 'fatal',
      problem: `rows fills in ${column}, and ${table.name} has no such column${didYouMean(column, names)}`,
      next: `Add the column to ${table.name}, or correct rows of the data type.`,
    };
  }
  for (const { name } of columns.filter(isNeeded)) {
    if (written.includes(name) || name === timestamp || type.keyColumns.includes(name)) continue;
    yield {
      // A warning only: it may work with a real answer.
      state: 'warning',
      problem: `column ${name} of ${table.name} is not null and has no default, and rows does not fill it in`,
      next: 'Fill it in, or give the column a default.',
    };
  }
}

function isNeeded({ required, filled }: TableColumn): boolean {
  return required && !filled;
}
