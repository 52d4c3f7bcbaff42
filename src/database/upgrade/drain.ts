import { performance } from 'node:perf_hooks';
import { PgfreshError } from '../../errors/index.ts';
import { pause } from '../../lifecycle/index.ts';
import type { Database } from '../database.ts';

/** Tells our stop from an operator's. */
const reason = 'pgfresh is being upgraded';

/** How long processes stay stopped if the upgrade dies, beyond the time that it waits for them. */
const marginMs = 120_000;

/**
 * Lets the installed version's processes end before the work, because they would miss functions afterwards: a worker
 * could not end its jobs, and others would fetch them again.
 */
export async function drained<T>(database: Database, patienceMs: number, work: () => Promise<T>): Promise<T> {
  const [installed] = await database.query<{ knows: boolean }>(
    `select to_regprocedure('pgfresh_engine.least_protocol()') is not null as knows`,
  );
  return installed!.knows ? stopped(database, patienceMs, work) : unspent(database, patienceMs, work);
}

/** Tells all processes to stop through their heartbeats, and waits until none has a lease. */
async function stopped<T>(database: Database, patienceMs: number, work: () => Promise<T>): Promise<T> {
  const [marked] = await database.query<{ id: number }>(
    `update pgfresh_engine.installation
     set drain_until = greatest(drain_until, pgfresh.clock() + make_interval(secs => $1::float8 / 1000))
     where id = (select max(id) from pgfresh_engine.installation)
     returning id`,
    [patienceMs + marginMs],
  );
  try {
    await waitForProcesses(database, patienceMs);
    return await work();
  } finally {
    await database.query('update pgfresh_engine.installation set drain_until = null where id = $1::int', [marked?.id]);
  }
}

async function waitForProcesses(database: Database, patienceMs: number): Promise<void> {
  const deadline = performance.now() + patienceMs;
  for (;;) {
    const [running] = await database.query<{ names: string | null }>(
      `select string_agg(format('%s %s', kind, name), ', ' order by kind, name) as names
       from pgfresh_engine.process where lease_until > pgfresh.clock()`,
    );
    const { names } = running!;
    if (names === null) return;
    if (performance.now() > deadline)
      throw new PgfreshError('PGF_UPGRADE_PROCESSES', { names, seconds: patienceMs / 1000 });
    await pause(200);
  }
}

/** For 0.1.0, whose processes cannot be told: stops spending until no job runs, and resumes it after the work. */
async function unspent<T>(database: Database, patienceMs: number, work: () => Promise<T>): Promise<T> {
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
    // SQL-only clients call functions that stay; and a worker without its lease cannot end jobs anyway.
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

/** Where the installed version keeps its workers and their jobs. */
async function tablesOfWorkers(database: Database): Promise<{ job: string; worker: string } | undefined> {
  const [found] = await database.query<{ job: string; worker: string }>(
    `select job, worker
     from (values ('pgfresh.job', 'pgfresh.worker'), ('pgfresh_engine.job', 'pgfresh_engine.process')) as t(job, worker)
     where to_regclass(job) is not null and to_regclass(worker) is not null`,
  );
  return found;
}
