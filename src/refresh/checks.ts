import { isPromiseLike, timeText, validated, type AnswerContext } from '../config/index.ts';
import { problemOf } from '../errors/index.ts';
import { canonicalKey } from '../registry/index.ts';
import type { HttpAnswer } from '../sources/index.ts';
import { Refusal } from './outcomes.ts';
import type { RefreshType } from './refresh-type.ts';
import { keyText, writableRow, type WritableRow } from './row-values.ts';
import { insanityOf, sanityDetail } from './sanity.ts';

/** The checks of an answer, in order. The call itself checks status and size. */
export const checkNames = [
  'request',
  'call',
  'content type',
  'JSON',
  'schema',
  'rows',
  'sanity',
  'key',
  'source timestamp',
  'table',
] as const;
export type CheckName = (typeof checkNames)[number];

/** Called for each check that passed; `detail` is computed only on request. */
export type OnPassed = (check: CheckName, detail: () => string) => void;

type Answer = Pick<HttpAnswer, 'status' | 'contentType' | 'body'>;

/** The rows to write; none if the source has nothing. Throws a Refusal at the first failed check. */
export async function checkAnswer(
  type: RefreshType,
  answer: Answer,
  context: AnswerContext,
  onPassed?: OnPassed,
): Promise<readonly WritableRow[]> {
  const { fetcher } = type;
  if (fetcher.empty.status.includes(answer.status)) return [];
  const contentType = requireJson(answer.contentType, fetcher.contentType);
  onPassed?.('content type', () => contentType);
  const value = parsed(answer.body);
  onPassed?.('JSON', () => `${answer.body.length} bytes`);
  const verdict = validated(fetcher.schema, value);
  const checked = isPromiseLike(verdict) ? await verdict : verdict;
  if ('problem' in checked) throw new Refusal('schema', checked.problem);
  onPassed?.('schema', () => 'as expected');
  const given = rowsOf(type, checked.value, context);
  const rows = fetcher.row ? await Promise.all(given.map((row) => checkedRow(fetcher.row!, row))) : given;
  onPassed?.('rows', () => `${rows.length}`);
  if (rows.length === 0) {
    requireNoOtherKey(type, checked.value, context);
    return [];
  }
  for (const row of rows) {
    const problem = sanityProblem(type, row, context);
    if (problem) throw new Refusal('sanity', problem);
  }
  onPassed?.('sanity', () => sanityDetail(fetcher.sanity, rows));
  for (const row of rows) requireKey(type, row, context);
  onPassed?.('key', () => context.key);
  const newest = requireSourceTime(type, rows, context.now);
  onPassed?.('source timestamp', () => (newest ? timeText(newest) : 'the data type has none'));
  const writable = distinct(
    type,
    rows.map((row) => prepared(type, row, context)),
  );
  onPassed?.('table', () => `${type.table.name} takes ${Object.keys(writable[0]!).join(', ')}`);
  return writable;
}

function requireJson(given: string | null, expected: string | undefined): string {
  const type = (given ?? '').split(';', 1)[0]!.trim().toLowerCase();
  const isJson = /[/+]json$/.test(type) || type === expected?.toLowerCase();
  if (isJson) return type;
  throw new Refusal('not_json', `the content type is ${type || 'missing'}, expected ${expected ?? 'application/json'}`);
}

const utf8 = new TextDecoder('utf-8', { fatal: true });

function parsed(body: Uint8Array): unknown {
  if (body.length === 0) throw new Refusal('not_json', 'the body is empty');
  try {
    return JSON.parse(utf8.decode(body)) as unknown;
  } catch (error) {
    throw new Refusal('not_json', problemOf(error), { cause: error });
  }
}

function rowsOf({ fetcher }: RefreshType, value: unknown, context: AnswerContext): object[] {
  const mapped = called('rows', () => fetcher.rows(value, context));
  const list: unknown[] = Array.isArray(mapped) ? mapped : mapped === null || mapped === undefined ? [] : [mapped];
  // Mark all promises before refusing the first row, because any of them may reject.
  for (const row of list) if (row instanceof Promise) ignoreRejection(row);
  for (const row of list) {
    requireNoPromise('rows', row);
    if (typeof row !== 'object' || row === null)
      throw new Refusal('config', `rows returned ${JSON.stringify(row)} among its rows`);
  }
  return list as object[];
}

async function checkedRow(schema: NonNullable<RefreshType['fetcher']['row']>, row: object): Promise<object> {
  const checked = await validated(schema, row);
  if ('problem' in checked) throw new Refusal('schema', `row: ${checked.problem}`);
  return checked.value as object;
}

function sanityProblem({ fetcher }: RefreshType, row: object, context: AnswerContext): string | undefined {
  return called('sanity', () => insanityOf(row, fetcher.sanity, context));
}

/** Calls a user's function. What it throws is an error of the definition, not of the answer. */
function called<T>(name: string, work: () => T): T {
  let result: T;
  try {
    result = work();
  } catch (error) {
    throw new Refusal('config', `${name} threw: ${problemOf(error)}`, { cause: error });
  }
  requireNoPromise(name, result);
  return result;
}

function requireNoPromise(name: string, value: unknown): void {
  if (!(value instanceof Promise)) return;
  ignoreRejection(value);
  throw new Refusal('config', `${name} returned a promise`);
}

/** An unhandled rejection in user code would end the process. */
export function ignoreRejection(promise: Promise<unknown>): void {
  promise.catch(() => {});
}

function requireKey(type: RefreshType, row: object, context: AnswerContext): void {
  for (const column of type.keyColumns) {
    if (keyText((row as Record<string, unknown>)[column]) === undefined) {
      throw new Refusal('schema', `a row has no ${column}, which is of the key`);
    }
  }
  requireNoOtherKey(type, row, context);
}

/** An answer without rows may name its key; that must be the requested one. */
function requireNoOtherKey({ keyColumns, normalise }: RefreshType, value: unknown, context: AnswerContext): void {
  if (typeof value !== 'object' || value === null) return;
  const { key, keyParts } = context;
  keyColumns.forEach((column, index) => {
    const text = keyText((value as Record<string, unknown>)[column]);
    if (text === undefined || canonicalKey(text, normalise) === keyParts[index]) return;
    throw new Refusal(
      'wrong_key',
      `${column} is ${JSON.stringify(text)}, expected ${JSON.stringify(keyParts[index])} for the key ${key}`,
    );
  });
}

// A time far in the future would make every later answer look older.
const aheadMs = 86_400_000;

/** The newest source time of the rows. */
function requireSourceTime(
  { sourceTimestamp: column }: RefreshType,
  rows: readonly object[],
  now: Date,
): Date | undefined {
  if (column === null) return undefined;
  let newest = -Infinity;
  for (const row of rows) {
    const value = (row as Record<string, unknown>)[column];
    const time = value instanceof Date ? value.getTime() : typeof value === 'string' ? Date.parse(value) : Number.NaN;
    if (Number.isNaN(time)) throw new Refusal('schema', `${column} is ${JSON.stringify(value)}, expected a time`);
    if (time > now.getTime() + aheadMs)
      throw new Refusal('sanity', `${column} is ${timeText(new Date(time))}, more than a day ahead`);
    newest = Math.max(newest, time);
  }
  return new Date(newest);
}

/** The row to write: with the key in canonical form, and without the timestamp that pgfresh writes itself. */
function prepared(
  { keyColumns, timestamp, table }: RefreshType,
  row: object,
  { keyParts }: AnswerContext,
): WritableRow {
  const own: Record<string, unknown> = {};
  keyColumns.forEach((column, index) => (own[column] = keyParts[index]));
  const writable = writableRow(row, table.columns, own, timestamp);
  const lacking = table.target.find((column) => writable[column] === undefined || writable[column] === null);
  if (lacking !== undefined) throw new Refusal('schema', `a row has no ${lacking}, by which it is recognised`);
  return writable;
}

/** Removes duplicates: keeps the newer, or else the later in the answer. All rows must have the same columns. */
function distinct(
  { table, sourceTimestamp: source }: RefreshType,
  rows: readonly WritableRow[],
): readonly WritableRow[] {
  if (rows.length === 1) return rows;
  const columns = columnsOf(rows[0]!).join();
  const other = rows.find((row) => columnsOf(row).join() !== columns);
  if (other) throw new Refusal('schema', `rows have different columns: ${columns} and ${columnsOf(other).join()}`);
  const timeOf = (row: WritableRow): number => (source === null ? 0 : Date.parse(String(row[source])));
  const byIdentity = new Map<string, WritableRow>();
  for (const row of rows) {
    const identity = JSON.stringify(table.target.map((column) => row[column]));
    const known = byIdentity.get(identity);
    if (!known || timeOf(known) <= timeOf(row)) byIdentity.set(identity, row);
  }
  return [...byIdentity.values()];
}

/** The columns of a row, in a fixed order. */
export function columnsOf(row: WritableRow): string[] {
  return Object.keys(row).toSorted();
}
