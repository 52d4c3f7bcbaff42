import { randomUUID } from 'node:crypto';
import type { JobHandler } from '../../src/config/index.ts';
import type { Database } from '../../src/database/index.ts';
import { Events, type EventOf } from '../../src/events/index.ts';
import { Scheduler, type SchedulerOptions } from '../../src/schedule/index.ts';
import { schedulerRegistration } from '../../src/schedule/scheduler-lease.ts';
import { SlotStore } from '../../src/schedule/slot-store.ts';
import { freezeClock } from '../harness/clock.ts';
import { atEnd, createDatabase, openDatabase } from '../harness/database.ts';

export interface RunRow {
  readonly id: number;
  readonly state: string;
  readonly by: string;
  readonly slot: string;
  readonly to: string | null;
  readonly count: number;
  readonly attempt: number;
  readonly reason: string | null;
  readonly message: string | null;
  readonly details: unknown;
  readonly late: number | null;
}

/** A scheduler that a test plays itself, for jobs of SQL functions. */
export class PlayedScheduler extends SlotStore {
  readonly scheduler: number;
  readonly request = randomUUID();

  private constructor(db: Database, scheduler: number) {
    super(db, { handlers: [], functions: true });
    this.scheduler = scheduler;
  }

  static async register(db: Database, name: string): Promise<PlayedScheduler> {
    const { text, values } = schedulerRegistration(name, []);
    const [row] = await db.query<{ id: number }>(text, values);
    return new PlayedScheduler(db, row!.id);
  }
}

/** A database with a clock that stands still, a table that jobs write to, and short words for what tests do with jobs. */
export class ScheduleScene {
  readonly url: string;
  readonly db: Database;
  readonly clock: Awaited<ReturnType<typeof freezeClock>>;
  readonly events = new Events();
  readonly ended: EventOf<'job.ended'>[] = [];
  readonly problems: string[] = [];

  private constructor(url: string, db: Database, clock: ScheduleScene['clock']) {
    this.url = url;
    this.db = db;
    this.clock = clock;
    this.events.on('job.ended', (event) => void this.ended.push(event));
    this.events.on('scheduler.failed', ({ step, problem }) => void this.problems.push(`${step}: ${problem}`));
  }

  static async open(address?: string): Promise<ScheduleScene> {
    const url = address ?? (await createDatabase());
    const db = openDatabase(url);
    const clock = await freezeClock(db);
    // Views tell the time to whoever reads them.
    await db.query('grant select on public.test_clock to public');
    await db.query(`
      create table public.done (id bigint generated always as identity, what text, params jsonb);
      create function public.work(params jsonb) returns jsonb language plpgsql as $$
      begin
        insert into public.done (what, params) values ('work', params);
        return jsonb_build_object('success', true, 'message', 'worked');
      end $$;
      create function public.fail() returns jsonb language plpgsql as $$
      begin
        insert into public.done (what) values ('fail');
        raise exception 'no luck' using errcode = 'XX123';
      end $$`);
    return new ScheduleScene(url, db, clock);
  }

  /** Registers a job: every minute by `public.work`, unless it is said otherwise. */
  async job(name: string, columns: Readonly<Record<string, unknown>> = {}): Promise<number> {
    const all: Record<string, unknown> = { name, function_name: 'work', ...columns };
    if (all['schedule'] === undefined && all['every_min'] === undefined) all['schedule'] = '* * * * *';
    const names = Object.keys(all);
    const [row] = await this.db.query<{ id: number }>(
      `insert into pgfresh.scheduled_jobs (${names.join(', ')}) values (${names.map((_, index) => `$${index + 1}`).join(', ')}) returning id`,
      Object.values(all),
    );
    return row!.id;
  }

  /** Starts a scheduler, as a process of its own would have it: with a pool of its own. */
  async scheduler(
    handlers: Readonly<Record<string, JobHandler>> = {},
    options: Partial<SchedulerOptions> = {},
  ): Promise<Scheduler> {
    const scheduler = new Scheduler({
      db: openDatabase(this.url, { events: this.events }),
      url: this.url,
      listenUrl: this.url,
      events: this.events,
      handlers: new Map(Object.entries(handlers)),
      concurrency: 5,
      drainMs: 5_000,
      ...options,
    });
    atEnd(() => scheduler.stop());
    await scheduler.start();
    return scheduler;
  }

  /** Moves the clock; who lives has renewed his lease meanwhile. Schedulers are told to look. */
  async advance(interval: string): Promise<void> {
    await this.db.query(
      `with clock as (update public.test_clock set now = now + $1::interval)
       update pgfresh_engine.process set lease_until = lease_until + $1::interval, steady_since = steady_since + $1::interval`,
      [interval],
    );
    await this.db.query(`select pg_notify('pgfresh_schedule', '')`);
  }

  /** All that is recorded of a job, in order. */
  runs(name: string): Promise<RunRow[]> {
    return this.db.query<RunRow>(
      `select r.id, r.state, r.triggered_by as by, to_char(r.scheduled_for at time zone 'UTC', 'HH24:MI') as slot, to_char(r.scheduled_to at time zone 'UTC', 'HH24:MI') as "to",
         r.occurrences as count, r.attempt, r.reason, r.message, r.details, r.lateness_ms as late
       from pgfresh.scheduled_job_runs as r join pgfresh.scheduled_jobs as j on j.id = r.job_id where j.name = $1::text order by r.id`,
      [name],
    );
  }

  /** The same as one word a row: "12:01 succeeded", "12:02 scheduler failed", "12:03-12:07 5 missed". */
  async story(name: string): Promise<string[]> {
    return (await this.runs(name)).map(({ state, by, slot, to, count, attempt, reason }) =>
      state === 'skipped'
        ? `${slot}-${to} ${count} ${reason}`
        : [slot, by === 'scheduler' ? '' : by, state, attempt > 1 ? `attempt ${attempt}` : '']
            .filter(Boolean)
            .join(' '),
    );
  }

  async value<T>(expression: string, values: readonly unknown[] = []): Promise<T> {
    const [row] = await this.db.query<{ value: T }>(`select ${expression} as value`, values);
    return row!.value;
  }

  /** Settles when every job has its next slot, none is due, and no run is open whose time has come. */
  idle(): Promise<void> {
    return until(() =>
      this.value<boolean>(
        `not exists (select from pgfresh_engine.job_cursor where due_at <= pgfresh.clock())
         and not exists (select from pgfresh.scheduled_job_runs where state = 'running' or (state = 'waiting' and run_at <= pgfresh.clock()))`,
      ),
    );
  }
}

/** Settles when the condition holds; the test's own timeout ends a wait that is in vain. */
export async function until(condition: () => Promise<boolean> | boolean): Promise<void> {
  while (!(await condition())) await new Promise((resolve) => setTimeout(resolve, 5));
}
