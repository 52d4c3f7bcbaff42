import { performance } from 'node:perf_hooks';
import pg from 'pg';
import type { Database, Queryable } from '../database/index.ts';
import { problemOf } from '../errors/index.ts';
import { countCalls, takeSingleCall, type SourceClient } from '../sources/index.ts';
import { checkNames, type CheckName } from './checks.ts';
import { afterFailure } from './commit-failure.ts';
import { outcomeOf, writeRows } from './rows.ts';
import { holdIfAsked } from './hold.ts';
import { requireFewLosses, TooManyLosses } from './losses.ts';
import { outcomes, Refusal, type OutcomeName } from './outcomes.ts';
import { keyPartsOf, type RefreshType } from './refresh-type.ts';
import { Refresher, type Cost, type Fetched, type Wanted } from './refresher.ts';
import type { WritableRow } from './row-values.ts';

/** A row as stored in the table. */
type TableRow = Readonly<Record<string, unknown>>;

/** What a refresh would do, without doing it. */
export interface Trial {
  readonly dataType: string;
  readonly key: string;
  readonly outcome: OutcomeName;
  readonly error?: string | undefined;
  readonly cost: Cost;
  readonly checks: readonly {
    readonly name: CheckName | 'write';
    readonly ok: boolean | null;
    readonly detail: string;
  }[];
  readonly rows: readonly WritableRow[];
  readonly changes: readonly RowChange[];
}

export interface RowChange {
  readonly change: 'added' | 'changed' | 'removed' | 'same';
  readonly row: TableRow;
  /** The current values of a changed row, by column. */
  readonly before?: TableRow | undefined;
}

interface TrialOptions {
  readonly db: Database;
  readonly client: SourceClient;
  readonly type: RefreshType;
  readonly wanted: Wanted;
  readonly signal: AbortSignal;
}

const sendWithinMs = 1_250;
const nothing: Cost = { bytes: 0, calls: 0, fetchMs: 0, validateMs: 0 };

/** Fetches once, runs every check, and writes in a transaction that is rolled back. */
export async function tryPair(options: TrialOptions): Promise<Trial> {
  const { db, type, wanted } = options;
  const passed = new Map<CheckName, string>();
  const sendBy = performance.now() + sendWithinMs;
  // The provider counts and bills it like any other call.
  const obstacle = await takeSingleCall(db, { id: type.sourceId, name: type.source });
  const fetched: Fetched =
    obstacle === undefined
      ? await fetchCounted({ ...options, wanted: { ...wanted, apiKey: 1, sendBy } }, passed)
      : { cost: nothing, refusal: new Refusal(obstacle.outcome, obstacle.problem) };
  const { cost } = fetched;
  const rows = 'rows' in fetched ? fetched.rows : [];
  const written =
    'refusal' in fetched
      ? { outcome: fetched.refusal.outcome, error: fetched.refusal.message, changes: [] }
      : await tryWrite(db, type, wanted.key, fetched);
  const { outcome, error, changes } = written;
  const stoppedAt = obstacle === undefined ? checkNames.find((name) => !passed.has(name)) : 'call';
  const failedAt = 'refusal' in fetched ? stoppedAt : undefined;
  const checks = checkNames.map((name) => {
    if (name === failedAt) return { name, ok: false, detail: error ?? '' };
    const detail = passed.get(name);
    return detail === undefined ? { name, ok: null, detail: 'not reached' } : { name, ok: true, detail };
  });
  const reached = 'rows' in fetched;
  const ok = outcomes[outcome].verdict === 'complete';
  const write = {
    name: 'write' as const,
    ok: reached ? ok : null,
    detail: reached ? (error ?? wouldSay(outcome)) : 'not reached',
  };
  return { dataType: type.name, key: wanted.key, outcome, error, cost, checks: [...checks, write], rows, changes };
}

/** The description of an outcome, worded for a trial. */
function wouldSay(outcome: Trial['outcome']): string {
  return outcome === 'fresh' ? 'New rows would be written.' : outcomes[outcome].says;
}

async function fetchCounted({ db, client, type, wanted, signal }: TrialOptions, passed: Map<CheckName, string>) {
  const [clock] = await db.query<{ now: Date }>('select pgfresh.clock() as now');
  const refresher = new Refresher({ clientOf: () => client, now: () => clock!.now });
  const fetched = await refresher.fetch(type, wanted, signal, (name, detail) => passed.set(name, detail()));
  await countCalls(db, type.sourceId, fetched.cost.calls, fetched.cost.bytes);
  await holdIfAsked(db, type, [fetched]);
  return fetched;
}

class RolledBack extends Error {}

async function tryWrite(
  db: Database,
  type: RefreshType,
  key: string,
  { rows, fetchedAt }: { rows: readonly WritableRow[]; fetchedAt: number },
): Promise<Pick<Trial, 'outcome' | 'error' | 'changes'>> {
  let result: Pick<Trial, 'outcome' | 'changes'> = { outcome: 'empty', changes: [] };
  const one = { job: { id: 0, key }, rows, fetchedAt };
  try {
    await db.transact(
      'try',
      async (tx) => {
        const [clock] = await tx.query<{ now: string }>('select pgfresh.clock()::text as now');
        const before = await rowsOfKey(tx, type, key);
        const verdicts = await writeRows(tx, type, [one], clock!.now);
        const changes = difference(type, before, await rowsOfKey(tx, type, key));
        result = { outcome: outcomeOf(one, verdicts.get(0)), changes };
        await requireFewLosses(tx, type, verdicts);
        throw new RolledBack();
      },
      { attempts: 1, immediateConstraints: true },
    );
  } catch (error) {
    if (error instanceof RolledBack) return result;
    if (error instanceof TooManyLosses)
      return { outcome: 'suspicious', error: error.refusals.get(0)!.message, changes: result.changes };
    const next = afterFailure(error, 1, Infinity);
    if (next.step !== 'refuse' && next.step !== 'later') throw error;
    return { outcome: next.step === 'later' ? 'busy' : next.outcome, error: problemOf(error), changes: [] };
  }
  return result;
}

async function rowsOfKey(tx: Queryable, type: RefreshType, key: string): Promise<TableRow[]> {
  const { table, keyColumns } = type;
  const parts = keyPartsOf(type, key);
  const condition = keyColumns
    .map((column, index) => `t.${pg.escapeIdentifier(column)} = $${index + 1}::${table.columns.get(column)!.type}`)
    .join(' and ');
  const rows = await tx.query<{ row: TableRow }>(
    `select to_jsonb(t) as row from ${table.name} as t where ${condition}`,
    parts,
  );
  return rows.map(({ row }) => row);
}

function difference(
  { table, timestamp }: RefreshType,
  before: readonly TableRow[],
  after: readonly TableRow[],
): RowChange[] {
  const identity = (row: TableRow): string => JSON.stringify(table.target.map((column) => row[column]));
  const had = new Map(before.map((row) => [identity(row), row]));
  const changes = after.map((row): RowChange => {
    const old = had.get(identity(row));
    had.delete(identity(row));
    if (!old) return { change: 'added', row };
    const changed = Object.keys(row).filter(
      (column) => column !== timestamp && JSON.stringify(row[column]) !== JSON.stringify(old[column]),
    );
    if (changed.length === 0) return { change: 'same', row };
    return { change: 'changed', row, before: Object.fromEntries(changed.map((column) => [column, old[column]])) };
  });
  return [...changes, ...[...had.values()].map((row): RowChange => ({ change: 'removed', row }))];
}
