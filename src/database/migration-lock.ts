import { performance } from 'node:perf_hooks';
import { PgfreshError } from '../errors/index.ts';
import { pause } from '../lifecycle/index.ts';
import type { Database } from './database.ts';
import { failureOf } from './failure.ts';
import type { Queryable } from './query.ts';

// The same for all versions of pgfresh: different ones must exclude each other too.
export const migrationLock = 7_467_337_004;

/**
 * Names without a schema can only mean PostgreSQL's own functions and operators. No JIT: compiling catalogue queries
 * takes 3 s and saves nothing (PostgreSQL 15).
 */
export const migrationSettings = 'set local search_path = pg_catalog, pg_temp; set local jit = off';

/**
 * How long a statement waits for a lock. Later statements queue behind it, so it gives up soon, and the whole
 * transaction is retried after a pause in which others go on.
 */
export const lockTimeoutMs = 2_000;
const pauseMs = 500;

/** Runs `work` in a transaction that changes the schema, one process at a time, without a time limit. */
export async function transactLocked<T extends object>(
  database: Database,
  label: string,
  work: (tx: Queryable) => Promise<T>,
  lockWaitMs = 60_000,
): Promise<T> {
  const deadline = performance.now() + lockWaitMs;
  const seconds = lockWaitMs / 1000;
  for (;;) {
    const attempt = (tx: Queryable): Promise<T | undefined> => workLocked(tx, work);
    try {
      const result = await database.transact(label, attempt, { lockTimeoutMs, unlimited: true });
      if (result !== undefined) return result;
      if (performance.now() > deadline) throw new PgfreshError('PGF_MIGRATION_LOCKED', { seconds });
      await pause(100);
    } catch (error) {
      if (failureOf(error) !== 'lock_timeout') throw error;
      if (performance.now() > deadline) throw new PgfreshError('PGF_MIGRATION_BUSY', { seconds }, { cause: error });
      await pause(pauseMs);
    }
  }
}

async function workLocked<T>(tx: Queryable, work: (tx: Queryable) => Promise<T>): Promise<T | undefined> {
  await tx.query(migrationSettings);
  const [lock] = await tx.query<{ held: boolean }>('select pg_try_advisory_xact_lock($1::bigint) as held', [
    migrationLock,
  ]);
  return lock?.held ? work(tx) : undefined;
}
