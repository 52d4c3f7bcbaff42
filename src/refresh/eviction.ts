import { performance } from 'node:perf_hooks';
import { problemOf } from '../errors/index.ts';
import { storableJson, type Database } from '../database/index.ts';
import { BatchSize } from '../lifecycle/index.ts';
import { afterFailure } from './commit-failure.ts';
import type { RefreshType } from './refresh-type.ts';
import { keyRow } from './rows.ts';

interface EvictionOptions {
  readonly signal: AbortSignal;
  /** Time after which the rest is left to the next run. */
  readonly budgetMs?: number | undefined;
  /** Keys per transaction. */
  readonly batch?: number | undefined;
}

/** The result of evicting rows of a data type. */
export interface Evicted {
  readonly keys: number;
  /** Why some rows could not be deleted, if any. */
  readonly problem?: string | undefined;
}

interface Batch {
  readonly keys: readonly string[];
  readonly done: boolean;
}

/**
 * Deletes the rows of keys that have had no viewers for the data type's `evictAfter`, with this login's rights. Each
 * transaction locks the pairs first, so none of them gets a viewer meanwhile. A key whose rows cannot be deleted
 * because of foreign keys is skipped.
 */
export async function evictRows(
  db: Database,
  type: RefreshType,
  { signal, budgetMs = 5_000, batch = 500 }: EvictionOptions,
): Promise<Evicted> {
  const since = performance.now();
  let keys = 0;
  const most = new BatchSize(batch);
  let problem: string | undefined;
  while (!signal.aborted && performance.now() - since < budgetMs) {
    try {
      const evicted = await evictBatch(db, type, most.size);
      keys += evicted.keys.length;
      most.grow();
      if (evicted.done) break;
    } catch (error) {
      const next = afterFailure(error, most.size, Infinity);
      // Busy, disconnected, read-only or not permitted: the next run tries again.
      if (next.step === 'again' || next.step === 'later' || next.step === 'wait') throw error;
      if (next.step === 'refuse' && ['config', 'interrupted'].includes(next.outcome)) throw error;
      if (most.size > 1) {
        most.shrink(most.size);
        continue;
      }
      problem ??= problemOf(error);
      if ((await passOver(db, type)).done) break;
    }
  }
  return { keys, problem };
}

function evictBatch(db: Database, type: RefreshType, size: number): Promise<Batch> {
  return db.transact(
    'evict',
    async (tx) => {
      const [found] = await tx.query<Batch>(lockStatement, [type.id, size]);
      const { keys } = found!;
      if (keys.length > 0) {
        await tx.query(type.statements.evict, [storableJson(keys.map((key) => keyRow(type, key)))]);
        await tx.query('select pgfresh_engine.note_evicted($1::int, $2::text[])', [type.id, keys]);
      }
      return found!;
    },
    { attempts: 1, immediateConstraints: true, lockTimeoutMs: 500 },
  );
}

const lockStatement = 'select keys, done from pgfresh_engine.lock_evictable($1::int, $2::int)';

/** Skips a key until the next round. */
async function passOver(db: Database, type: RefreshType): Promise<Batch> {
  const [found] = await db.query<Batch>(lockStatement, [type.id, 1]);
  return found!;
}
