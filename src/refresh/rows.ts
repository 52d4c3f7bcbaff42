import { performance } from 'node:perf_hooks';
import { storableJson, type Queryable } from '../database/index.ts';
import { failpoint } from '../lifecycle/index.ts';
import type { ClaimedJob } from '../queue/index.ts';
import { columnsOf } from './checks.ts';
import type { Loss } from './losses.ts';
import type { SuccessName } from './outcomes.ts';
import { keyPartsOf, type RefreshType } from './refresh-type.ts';
import type { WritableRow } from './row-values.ts';

/** The rows of an answer; empty if the source has nothing for its key. */
export interface Writable {
  readonly job: Pick<ClaimedJob, 'id' | 'key'>;
  readonly rows: readonly WritableRow[];
  /** By `performance.now()`. */
  readonly fetchedAt: number;
  /** Whether the source confirmed the stored rows instead of sending them again. */
  readonly isNotModified?: boolean | undefined;
}

/**
 * Returns per job how many rows were written, how many were not because they are older or contradict stored ones,
 * and how many were deleted without replacement.
 */
export async function writeRows(
  tx: Queryable,
  type: RefreshType,
  ours: readonly Writable[],
  now: string,
): Promise<Map<number, RowsWritten>> {
  const verdicts = new Map<number, RowsWritten>();
  const withRows = ours.filter(({ rows }) => rows.length > 0);
  const { lock, remove } = type.statements;
  const withoutRows = remove ? ours.filter(({ rows, isNotModified }) => rows.length === 0 && !isNotModified) : [];
  const touched = [...withRows, ...withoutRows];
  if (lock && touched.length > 0) await tx.query(lock, [touched.map(({ job }) => job.key)]);
  const groups = groupsOf(withRows);
  type.statements.learn(groups.map(({ columns }) => columns));
  for (const { columns, answers } of groups) {
    const { upsert, more, prune } = type.statements.for(columns);
    const rows = storableJson(answers.flatMap(({ job, fetchedAt, rows: list }) => markedRows(job.id, fetchedAt, list)));
    const found = await tx.query<Omit<RowsWritten, 'lost'> & { job: number }>(upsert, [rows, now, ...more]);
    for (const { job, written, other, had, rowAt, sourceAt } of found) {
      const lost = prune && written > 0 ? Math.max(0, had - written) : 0;
      verdicts.set(job, { written, other, had, lost, rowAt, sourceAt });
    }
    await failpoint('commit.before-prune');
    const replaced = found.filter(({ written }) => written > 0).map(({ job }) => job);
    if (prune && replaced.length > 0) await tx.query(prune, [rows, replaced]);
  }
  if (remove && withoutRows.length > 0) {
    const keys = withoutRows.flatMap(({ job, fetchedAt }) => markedRows(job.id, fetchedAt, [keyRow(type, job.key)]));
    const found = await tx.query<Loss & Pick<RowsWritten, 'rowAt'> & { job: number }>(remove, [
      storableJson(keys),
      now,
    ]);
    // Remaining rows were written after the answer was fetched, so the answer is older.
    for (const { job, had, lost, rowAt } of found)
      verdicts.set(job, { written: 0, other: had - lost, had, lost, rowAt, sourceAt: null });
  }
  return verdicts;
}

/** Answers whose rows have the same columns. */
interface Group {
  readonly columns: readonly string[];
  readonly answers: Writable[];
}

function groupsOf(withRows: readonly Writable[]): Group[] {
  const groups = new Map<string, Group>();
  // Most rows of a data type have the same columns in the same order, so sort each order once.
  const inOrder = new Map<string, Group>();
  for (const one of withRows) {
    const order = Object.keys(one.rows[0]!).join('\n');
    let group = inOrder.get(order);
    if (!group) {
      const columns = columnsOf(one.rows[0]!);
      const sorted = columns.join('\n');
      group = groups.get(sorted) ?? { columns, answers: [] };
      groups.set(sorted, group);
      inOrder.set(order, group);
    }
    group.answers.push(one);
  }
  return [...groups.values()];
}

/** An age instead of a time: this process's clock may be wrong, but measures durations well. */
export function ageOf({ fetchedAt }: Pick<Writable, 'fetchedAt'>): number {
  return (performance.now() - fetchedAt) / 1000;
}

function markedRows(job: number, fetchedAt: number, rows: readonly WritableRow[]): WritableRow[] {
  const age = ageOf({ fetchedAt });
  return rows.map((row) => ({ ...row, '~job': job, '~age': age }));
}

/** A key as the columns of a row. */
export function keyRow(type: RefreshType, key: string): WritableRow {
  const parts = keyPartsOf(type, key);
  return Object.fromEntries(type.keyColumns.map((column, index) => [column, parts[index]]));
}

interface RowsWritten extends Loss {
  readonly written: number;
  readonly other: number;
  /** The time of the newest row as it is now; text, because a Date loses microseconds. */
  readonly rowAt: string | null;
  /** The answer's time at the source, if it has one. */
  readonly sourceAt: string | null;
}

export function outcomeOf({ rows, isNotModified }: Writable, verdict: RowsWritten | undefined): SuccessName {
  if (isNotModified) return 'unchanged';
  if (rows.length === 0) return verdict && verdict.other > 0 ? 'older_source' : 'empty';
  if (!verdict || verdict.written > 0) return 'fresh';
  return verdict.other > 0 ? 'older_source' : 'unchanged';
}
