import { performance } from 'node:perf_hooks';
import { PgfreshError } from '../../errors/index.ts';
import { pause } from '../../lifecycle/index.ts';
import type { Database } from '../database.ts';

/** By which a stop of ours is told from one of an operator. */
const reason = 'pgfresh is being upgraded';

/**
 * Lets old workers finish: spends nothing and waits until no job runs, then does the work, and spends again whatever came
 * of it. Without this, a worker whose functions are gone could not end its jobs, and others would fetch them again.
 */
export async function drained<T>(database: Database, patienceMs: number, work: () => Promise<T>): Promise<T> {
  await database.query(
    'insert into pgfresh.spending_stop (stopped_at, reason) values (pgfresh.clock(), $1::text) on conflict do nothing',
    [reason],
  );
  try {
    await waitForJobs(database, patienceMs);
    return await work();
  } finally {
    await database.query('delete from pgfresh.spending_stop where reason = $1::text', [reason]);
  }
}

async function waitForJobs(database: Database, patienceMs: number): Promise<void> {
  const deadline = performance.now() + patienceMs;
  const tables = await tablesOfWorkers(database);
  if (!tables) return;
  for (;;) {
    // Clients that speak only SQL call functions that stay; and who has lost the lease cannot end jobs anyway.
    const [running] = await database.query<{ jobs: number; names: string | null }>(
      `select count(*) as jobs, string_agg(distinct q.locked_by, ', ') as names
       from ${tables.job} as j
       join ${tables.worker} as w on w.id = j.worker and w.lease_until > pgfresh.clock()
       join pgfresh.api_call_queue as q on q.id = j.id
       where j.state = 'x'`,
    );
    const { jobs, names } = running!;
    if (jobs === 0) return;
    if (performance.now() > deadline)
      throw new PgfreshError('PGF_UPGRADE_RUNNING', { jobs, names: names ?? 'unknown', seconds: patienceMs / 1000 });
    await pause(200);
  }
}

/** Where the version that is installed keeps its workers and their jobs. */
async function tablesOfWorkers(database: Database): Promise<{ job: string; worker: string } | undefined> {
  const [found] = await database.query<{ job: string; worker: string }>(
    `select job, worker
     from (values ('pgfresh.job', 'pgfresh.worker'), ('pgfresh_engine.job', 'pgfresh_engine.process')) as t(job, worker)
     where to_regclass(job) is not null and to_regclass(worker) is not null`,
  );
  return found;
}
