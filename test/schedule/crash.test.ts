import pg from 'pg';
import { afterEach, beforeAll, beforeEach, expect, it, vi } from 'vitest';
import type { JobHandler, JobResult } from '../../src/config/index.ts';
import type { Scheduler } from '../../src/schedule/index.ts';
import { planSlots } from '../../src/schedule/slot-plan.ts';
import type { TakenRun } from '../../src/schedule/slot-store.ts';
import { atEnd } from '../harness/database.ts';
import { startOwnServer } from '../harness/own-server.ts';
import { PlayedScheduler, ScheduleScene, until } from './scene.ts';

/** Jobs by the way in which they catch up. */
const jobs = ['all', 'once', 'skip'];

let scene: ScheduleScene;
let scheduler: Scheduler | undefined;
beforeAll(async () => {
  scene = await ScheduleScene.open(await startOwnServer());
  await scene.db.query(`
    create function public.pass(params jsonb) returns jsonb language plpgsql as $$
    begin
      insert into public.done (what) values (params ->> 'job');
      perform pg_advisory_xact_lock_shared(77);
      return jsonb_build_object('success', true, 'message', 'through');
    end $$`);
});

beforeEach(async () => {
  await scene.db.query('delete from pgfresh.scheduled_jobs');
  await scene.db.query('truncate public.done');
  // Numbers are written down 32 at a time. A crash leaves out those that are left of these, and may then repeat others.
  await scene.db.query(
    `select setval(s, nextval(s)), nextval(s) from pg_get_serial_sequence('pgfresh.scheduled_job_runs', 'id') as s`,
  );
  await scene.clock.set('2026-01-05T12:00:00Z');
});

// Its heartbeats wait for the disk too.
afterEach(async () => scheduler?.stop());

async function start(handlers: Readonly<Record<string, JobHandler>> = {}): Promise<void> {
  scheduler = await scene.scheduler(handlers);
  await scene.idle();
}

/** Registers jobs whose functions stop at a gate. */
async function register(names: readonly string[] = jobs): Promise<void> {
  for (const name of names)
    await scene.job(name, {
      function_name: 'pass',
      params: { job: name },
      catch_up: jobs.includes(name) ? name : 'once',
    });
}

/** A connection that may be lost. */
async function connect(): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: scene.url });
  client.on('error', () => {});
  await client.connect();
  atEnd(() => client.end().catch(() => {}));
  return client;
}

/** Has a minute come while the gate is closed; settles when so many functions stand before it. */
async function meetAtGate(count: number): Promise<pg.Client> {
  const gate = await connect();
  await gate.query('select pg_advisory_lock(77)');
  await scene.advance('1 minute');
  await waiting('advisory', count);
  return gate;
}

const waiting = (event: string, count: number): Promise<void> =>
  until(
    async () =>
      (await scene.value<number>(`(select count(*)::int from pg_stat_activity where wait_event = $1::text)`, [
        event,
      ])) === count,
  );

/** What PostgreSQL does when one of its processes dies: all others end, and what was not on disk never was. */
async function crash(): Promise<void> {
  const victim = await connect();
  const { rows } = await victim.query<{ pid: number }>('select pg_backend_pid() as pid');
  const other = await connect();
  const lost = new Promise((resolve) => other.once('end', resolve));
  process.kill(rows[0]!.pid, 'SIGKILL');
  await lost;
  // Whoever is let in now comes after the crash. Then as many as the pool has, so that it knows of all that are gone.
  await vi.waitFor(connect, { timeout: 20_000 });
  const all = () => Promise.all(Array.from({ length: 10 }, () => scene.db.query('select 1')));
  await vi.waitFor(all, { timeout: 20_000 });
}

/** How often each function has left something behind. */
async function effects(): Promise<Record<string, number>> {
  const rows = await scene.db.query<{ what: string; count: number }>(
    'select what, count(*)::int as count from public.done group by what',
  );
  return Object.fromEntries(rows.map(({ what, count }) => [what, count]));
}

/** Starts what is due, as a scheduler does before it runs anything. */
async function startDue(store: PlayedScheduler): Promise<TakenRun[]> {
  const plans = (await store.dueSlots(500)).map(planSlots);
  return (await store.settleSlots(store, plans, 500)).filter((run): run is TakenRun => run.run !== null);
}

const oneEach = Object.fromEntries(jobs.map((job) => [job, 1]));

it('a start that a crash has taken back is made again, and its function has its effect once', async () => {
  await register();
  await start();
  await meetAtGate(jobs.length);
  for (const job of jobs) expect(await scene.story(job)).toEqual(['12:01 running']);
  await crash();
  await scene.idle();
  // The first attempt, because there was none before.
  for (const job of jobs) expect(await scene.story(job)).toEqual(['12:01 succeeded']);
  expect(await effects()).toEqual(oneEach);
});

it('or is caught up with when nobody is up for a while, and is not there twice', async () => {
  await register();
  const gone = await PlayedScheduler.register(scene.db, 'gone');
  await startDue(gone);
  await scene.advance('1 minute');
  expect(await startDue(gone)).toHaveLength(jobs.length);
  await crash();
  await scene.advance('5 minutes');
  await start();
  expect(await scene.story('once')).toEqual(['12:01-12:05 5 missed', '12:06 succeeded']);
  expect(await scene.story('skip')).toEqual(['12:01-12:05 5 missed', '12:06 succeeded']);
  const caughtUp = [1, 2, 3, 4].map((minute) => `12:0${minute} catchup succeeded`);
  expect(await scene.story('all')).toEqual([...caughtUp, '12:05 succeeded', '12:06 succeeded']);
  expect(await effects()).toEqual({ once: 1, skip: 1, all: 6 });
});

it('a start that was on disk is tried again, and what its function did is gone without its success', async () => {
  await register();
  await start();
  const gate = await meetAtGate(jobs.length);
  // Held, so that functions end and their successes do not.
  const holder = await connect();
  await holder.query(`begin; select from pgfresh.scheduled_job_runs where state = 'running' for no key update`);
  await gate.query('select pg_advisory_unlock(77)');
  await waiting('transactionid', jobs.length);
  // This commit waits for the disk, and by that for all before it.
  await scene.clock.advance('0');
  await crash();
  await scene.idle();
  for (const job of jobs) expect(await scene.story(job)).toEqual(['12:01 failed', '12:01 succeeded attempt 2']);
  expect(await effects()).toEqual(oneEach);
});

it('the start of a run by hand waits for the disk, and its next attempt has its effect once', async () => {
  await scene.job('manual', { function_name: 'pass', params: { job: 'manual' }, schedule: '@yearly' });
  await start();
  const gate = await connect();
  await gate.query('select pg_advisory_lock(77)');
  await scene.value(`pgfresh.trigger_scheduled_job('manual')`);
  await waiting('advisory', 1);
  await crash();
  await scene.idle();
  expect(await scene.story('manual')).toEqual(['12:00 manual failed', '12:00 manual succeeded attempt 2']);
  expect(await effects()).toEqual({ manual: 1 });
});

it('a success that was told is there after the crash, with what was done', async () => {
  await register();
  await start();
  const told: string[] = [];
  const stop = scene.events.on('job.ended', ({ job }) => void told.push(job));
  await scene.advance('1 minute');
  await until(() => told.length === jobs.length);
  await crash();
  stop();
  await scene.idle();
  for (const job of jobs) expect(await scene.story(job)).toEqual(['12:01 succeeded']);
  expect(await effects()).toEqual(oneEach);
});

it.for([
  ['by its schedule', '12:01 succeeded'],
  ['by hand', '12:00 manual succeeded'],
])('the start of a handler %s waits for the disk, so the handler is called once', async ([by, story]) => {
  const calls: PromiseWithResolvers<JobResult>[] = [];
  const handle = (): Promise<JobResult> => {
    calls.push(Promise.withResolvers());
    return calls.at(-1)!.promise;
  };
  await scene.job('handled', { kind: 'handler', function_name: 'handle' });
  await start({ handle });
  if (by === 'by hand') await scene.value(`pgfresh.trigger_scheduled_job('handled')`);
  else await scene.advance('1 minute');
  await until(() => calls.length === 1);
  await crash();
  calls[0]!.resolve({ success: true, message: 'done' });
  await scene.idle();
  expect(await scene.story('handled')).toEqual([story]);
  expect(calls).toHaveLength(1);
});

it('the end of a run whose start was taken back ends no other run that has its number now', async () => {
  await register(Array.from({ length: 70 }, (_, index) => `job-${index}`));
  const here = await PlayedScheduler.register(scene.db, 'here');
  await startDue(here);
  await scene.advance('1 minute');
  const forgotten = await startDue(here);
  await crash();
  const kept = await startDue(here);
  const [now, before] = kept
    .flatMap((run) => forgotten.filter((other) => other.run === run.run).map((other) => [run, other]))
    .at(-1)!;
  expect(now!.job).not.toBe(before!.job);
  expect(await here.end(before!, here.scheduler, 'lost', { message: 'the connection was lost' })).toBe(false);
  expect(await here.end(now!, here.scheduler, 'succeeded', { message: 'done' })).toBe(true);
});
