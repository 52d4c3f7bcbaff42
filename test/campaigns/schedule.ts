import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { rm } from 'node:fs/promises';
import { hostname } from 'node:os';
import { fileURLToPath } from 'node:url';
import { Database, EmbeddedServer, migrate, readSqlFiles } from '../../src/database/index.ts';
import { Events } from '../../src/events/index.ts';
import { shiftClock } from '../harness/clock.ts';
import { temporaryFolder } from '../harness/folder.ts';
import { seededRandom } from '../harness/random.ts';
import type { Campaign } from './campaign.ts';

const child = fileURLToPath(new URL('../schedule/scheduler-process.ts', import.meta.url));
const jobs = 200;
const handlerJobs = 10;
const processes = 3;

/**
 * Three scheduler processes and 200 jobs that are due every minute, on a clock that jumps from minute to minute. Processes
 * are killed and the database is restarted at random moments. Every slot ran, once if it is a function, or is recorded as
 * skipped, and never both.
 */
export const schedule: Campaign = {
  about: 'slots of 200 jobs, with schedulers that are killed and a database that is restarted',
  steps: 200_000,
  testSteps: 2_000,
  mustMeet: ['succeeded', 'killed', 'restarted', 'lost'],
  async run({ seed, steps, progress }) {
    const stage = await Stage.open(seededRandom(seed));
    try {
      const minutes = Math.ceil(steps / jobs);
      for (let minute = 1; minute <= minutes; minute++) {
        await stage.nextMinute(minute, minutes);
        if (minute % 25 === 0) progress(minute * jobs);
      }
      await stage.settled(60_000);
      return await stage.judge(minutes);
    } finally {
      await stage.close();
    }
  },
};

/** A server of its own, because it is restarted. */
class Stage {
  readonly #random: () => number;
  readonly #folder: string;
  readonly #server: EmbeddedServer;
  readonly #db: Database;
  readonly #living = new Set<ChildProcess>();
  #killed = 0;
  #restarted = 0;

  private constructor(random: () => number, folder: string, server: EmbeddedServer, db: Database) {
    this.#random = random;
    this.#folder = folder;
    this.#server = server;
    this.#db = db;
  }

  static async open(random: () => number): Promise<Stage> {
    const folder = await temporaryFolder('schedule');
    const events = new Events();
    const server = new EmbeddedServer({ dataDir: folder, events, fsync: false });
    await server.start();
    const db = new Database({ url: server.url, events, applicationName: 'pgfresh campaign', poolSize: 1 });
    const stage = new Stage(random, folder, server, db);
    try {
      await migrate(db, { files: await readSqlFiles(), events });
      await shiftClock(db);
      await db.query(`
        create table public.effect (job text not null);
        create function public.count_one(params jsonb) returns jsonb language plpgsql as $$
        begin
          insert into public.effect values (params ->> 'job');
          return jsonb_build_object('success', true, 'message', 'counted');
        end $$;
        -- In the middle of a minute, so that real seconds do not make another one.
        update public.test_clock set ahead = date_trunc('minute', clock_timestamp()) + interval '1 minute 1 second' - clock_timestamp()`);
      await db.query(
        `insert into pgfresh.scheduled_jobs (name, kind, function_name, schedule, params, retry_base, overlap, catch_up)
         select 'job-' || n, case when n <= $2::int then 'handler' else 'sql' end, case when n <= $2::int then 'count' else 'count_one' end, '* * * * *', jsonb_build_object('job', 'job-' || n), '1 s',
           case n % 2 when 0 then 'skip' else 'queue' end, (array['once', 'skip', 'all'])[1 + n % 3]
         from generate_series(1, $1::int) as n`,
        [jobs, handlerJobs],
      );
      await Promise.all(Array.from({ length: processes }, () => stage.#start()));
      await stage.settled(20_000);
      return stage;
    } catch (error) {
      await stage.close();
      throw error;
    }
  }

  async close(): Promise<void> {
    for (const process of this.#living) await kill(process);
    await this.#db.close();
    await this.#server.stop();
    await rm(this.#folder, { recursive: true, force: true });
  }

  /** A minute passes. Sometimes a process is killed in it, or it is too short to finish. */
  async nextMinute(minute: number, minutes: number): Promise<void> {
    const names = [...this.#living].map(({ pid }) => `${hostname()}:${pid}`);
    // Live processes have renewed their leases meanwhile. Flushed first, so that a restart does not set time back.
    await this.#query(
      `set synchronous_commit = on; with clock as (update public.test_clock set ahead = ahead + interval '1 minute')
       update pgfresh_engine.process set lease_until = lease_until + interval '1 minute' where name in (${names.map((name) => `'${name}'`).join(', ')});
       select pg_notify('pgfresh_schedule', '')`,
    );
    // Harm is certain in the shortest of campaigns too.
    const killing = minute === Math.ceil(minutes / 3) || this.#random() < 0.1;
    const restarting = minute === Math.ceil(minutes / 2) || this.#random() < 0.03;
    if (killing || restarting) await pause(this.#random() * 200);
    if (killing) await this.#killOne();
    if (restarting) await this.#restart();
    if (this.#random() < 0.9) await this.settled(2_000);
  }

  /** Settles when nothing is due or open any more, or the time is up. */
  async settled(ms: number): Promise<void> {
    const deadline = performance.now() + ms;
    const isSettled = `select not exists (select from pgfresh_engine.job_cursor where due_at <= pgfresh.clock())
      and not exists (select from pgfresh.scheduled_job_runs where state in ('waiting', 'running')) as settled`;
    while (performance.now() < deadline) {
      const [row] = await this.#query<{ settled: boolean }>(isSettled);
      if (row?.settled) return;
      await pause(20);
    }
  }

  /** Throws at the first slot that is not accounted for exactly once. */
  async judge(minutes: number): Promise<Record<string, number>> {
    const [wrong] = await this.#query<{ job: string; slot: Date; runs: number; skips: number }>(
      `with slots as (
         select j.id, j.name, s.slot from pgfresh.scheduled_jobs as j cross join lateral (
           select generate_series(min(r.scheduled_for), (select c.slot from pgfresh_engine.job_cursor as c where c.job_id = j.id) - interval '1 minute', interval '1 minute') as slot
           from pgfresh.scheduled_job_runs as r where r.job_id = j.id) as s
       )
       select s.name as job, s.slot, count(r.id) filter (where r.state = 'succeeded')::int as runs, count(r.id) filter (where r.state = 'skipped')::int as skips
       from slots as s left join (
         select r.id, r.job_id, r.state, r.attempt, generate_series(r.scheduled_for, coalesce(r.scheduled_to, r.scheduled_for), interval '1 minute') as slot from pgfresh.scheduled_job_runs as r
       ) as r on r.job_id = s.id and r.slot = s.slot
       group by s.id, s.name, s.slot
       having count(distinct r.state) filter (where r.state <> 'skipped' or r.state is null) = 0 and count(r.id) filter (where r.state = 'skipped') <> 1
         or count(r.id) filter (where r.state = 'succeeded') > 1
         or (count(r.id) filter (where r.state <> 'skipped') > 0 and count(r.id) filter (where r.state = 'skipped') > 0)
         or count(r.id) filter (where r.state <> 'skipped') <> coalesce(max(r.attempt) filter (where r.state <> 'skipped'), 0)
       order by s.slot limit 1`,
    );
    if (wrong) throw new Error(`a slot is not accounted for once: ${JSON.stringify(wrong)}`);
    // A long campaign takes minutes itself, and they have slots too.
    const [short] = await this.#query<{ job: string; counted: number; passed: number }>(
      `select j.name as job, n.counted, n.passed from pgfresh.scheduled_jobs as j join pgfresh_engine.job_cursor as c on c.job_id = j.id cross join lateral (
         select coalesce(sum(case when r.state = 'skipped' then r.occurrences when r.attempt = 1 then 1 else 0 end), 0)::int as counted,
           (extract(epoch from c.slot - min(r.scheduled_for)) / 60)::int as passed
         from pgfresh.scheduled_job_runs as r where r.job_id = j.id
       ) as n where n.counted is distinct from n.passed or n.counted < $1::int - 1 limit 1`,
      [minutes],
    );
    if (short) throw new Error(`expected a slot of each minute, ${minutes} or more: ${JSON.stringify(short)}`);
    const [twice] = await this.#query<{ job: string }>(
      `select j.name as job, count(r.*)::int as succeeded, (select count(*) from public.effect as e where e.job = j.name)::int as effects
       from pgfresh.scheduled_jobs as j left join pgfresh.scheduled_job_runs as r on r.job_id = j.id and r.state = 'succeeded' where j.kind = 'sql'
       group by j.id, j.name having count(r.*) <> (select count(*) from public.effect as e where e.job = j.name) limit 1`,
    );
    if (twice) throw new Error(`what was done is not what was recorded: ${JSON.stringify(twice)}`);
    const [tally] = await this.#query<Record<string, number>>(
      `select count(*) filter (where state = 'succeeded')::int as succeeded, count(*) filter (where state = 'failed')::int as lost,
         coalesce(sum(occurrences) filter (where reason = 'missed'), 0)::int as missed, coalesce(sum(occurrences) filter (where reason = 'overlap'), 0)::int as overlap
       from pgfresh.scheduled_job_runs`,
    );
    return { ...tally, killed: this.#killed, restarted: this.#restarted };
  }

  async #start(): Promise<void> {
    const started = spawn(process.execPath, [child, this.#server.url], {
      env: { ...process.env, NODE_OPTIONS: '' },
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    this.#living.add(started);
    started.once('exit', () => this.#living.delete(started));
    await Promise.race([once(started.stdout, 'data'), once(started, 'exit')]);
  }

  async #killOne(): Promise<void> {
    const living = [...this.#living];
    const victim = living[Math.floor(this.#random() * living.length)];
    if (victim) await kill(victim);
    this.#killed++;
    // A process that starts while the database restarts exits, as for an operator, and is started again.
    while (this.#living.size < processes) await this.#start();
  }

  /** At once, or as an operator would. */
  async #restart(): Promise<void> {
    process.kill(this.#server.pid, this.#random() < 0.5 ? 'SIGQUIT' : 'SIGINT');
    this.#restarted++;
  }

  /** Asks until there is an answer: the database may be away. */
  async #query<Row extends object>(text: string, values?: readonly unknown[]): Promise<Row[]> {
    for (let tries = 0; ; tries++) {
      try {
        return await this.#db.query<Row>(text, values);
      } catch (error) {
        if (tries > 600 || !String((error as { code?: unknown }).code).startsWith('PGF_')) throw error;
        await pause(50);
      }
    }
  }
}

async function kill(victim: ChildProcess): Promise<void> {
  if (victim.exitCode !== null || victim.signalCode !== null) return;
  const exit = once(victim, 'exit');
  victim.kill('SIGKILL');
  await exit;
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
