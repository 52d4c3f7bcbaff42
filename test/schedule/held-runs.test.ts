import { expect, it, onTestFinished } from 'vitest';
import type { JobContext, JobResult } from '../../src/config/index.ts';
import type { Statement } from '../../src/database/index.ts';
import { PgfreshError } from '../../src/errors/index.ts';
import { openDatabase } from '../harness/database.ts';
import { Proxy } from '../harness/proxy.ts';
import { ScheduleScene, until } from './scene.ts';

const good: JobResult = { success: true, message: 'good' };

/** A scheduler that one answer of this function never reaches. */
async function losing(scene: ScheduleScene, statement: string, handlers = {}): Promise<{ isLost: () => boolean }> {
  const db = openDatabase(scene.url);
  const query = db.query.bind(db) as (text: Statement, values?: readonly unknown[]) => Promise<object[]>;
  let isLost = false;
  const losingQuery = async (text: Statement, values?: readonly unknown[]): Promise<object[]> => {
    const rows = await query(text, values);
    if (isLost || typeof text === 'string' || text.name !== statement || rows.length === 0) return rows;
    isLost = true;
    throw new PgfreshError('PGF_COMMIT_UNKNOWN', { problem: 'the answer was lost on its way' });
  };
  Object.assign(db, { query: losingQuery });
  await scene.scheduler(handlers, { db });
  return { isLost: () => isLost };
}

it.for(['pgfresh.settle_slots', 'pgfresh.take_waiting_runs'])(
  'runs 3: a lost answer of %s strands nothing: the next attempt runs',
  async (statement) => {
    const scene = await ScheduleScene.open();
    await scene.job('each-minute', { function_name: statement.endsWith('slots') ? 'work' : 'fail', retries: 1 });
    const { isLost } = await losing(scene, statement);
    await scene.idle();
    await scene.advance('1 minute');
    if (!statement.endsWith('slots')) {
      await until(async () => (await scene.story('each-minute')).length === 2);
      await scene.advance('1 minute');
    }
    await until(isLost);
    expect(await scene.story('each-minute')).toContainEqual(expect.stringContaining('running'));
    await scene.advance('6 seconds');
    await scene.db.query(`select pg_notify('pgfresh_schedule', 'cancel')`);
    await until(async () => !(await scene.story('each-minute')).some((run) => run.includes('running')));
    const runs = await scene.runs('each-minute');
    expect(runs.map(({ message }) => message)).toContain('its scheduler was never told that it has this run');
    expect(scene.problems).toEqual([expect.stringContaining('the answer was lost on its way')]);
  },
);

it('runs 4: a scheduler that the database does not hear aborts its handlers before others may start them', async () => {
  const scene = await ScheduleScene.open();
  const { proxy, url } = await Proxy.before(scene.url);
  onTestFinished(() => proxy.close());
  const { promise: called, resolve } = Promise.withResolvers<AbortSignal>();
  const handlers = {
    hang: ({ signal }: JobContext): Promise<JobResult> => {
      resolve(signal);
      return new Promise(() => {});
    },
  };
  await scene.job('hanging', { kind: 'handler', function_name: 'hang', timeout: '1 hour' });
  const db = openDatabase(url);
  await scene.scheduler(handlers, { db, url, listenUrl: url, drainMs: 0 });
  await scene.idle();
  await scene.advance('1 minute');
  const signal = await called;
  const [before] = await scene.db.query<{ until: Date }>(
    'select max(lease_until) as until from pgfresh_engine.process',
  );
  proxy.judge = () => 'hold';
  const since = performance.now();
  await new Promise((aborted) => signal.addEventListener('abort', aborted));
  expect(performance.now() - since).toBeLessThan(12_000);
  // As far as the database knows, it still had the run.
  expect(await scene.story('hanging')).toEqual(['12:01 running']);
  expect(before!.until).toBeInstanceOf(Date);
  proxy.judge = () => 'pass';
  proxy.cut();
});

it('runs 3: a renewal that was on its way for long ends no run whose answer still is', async () => {
  const scene = await ScheduleScene.open();
  const { proxy, url } = await Proxy.before(scene.url);
  onTestFinished(() => proxy.close());
  const db = openDatabase(scene.url);
  const query = db.query.bind(db) as (text: Statement, values?: readonly unknown[]) => Promise<object[]>;
  const taken = Promise.withResolvers<void>();
  const released = Promise.withResolvers<void>();
  Object.assign(db, {
    query: async (text: Statement, values?: readonly unknown[]): Promise<object[]> => {
      const rows = await query(text, values);
      if (typeof text === 'string' || text.name !== 'pgfresh.settle_slots' || rows.length === 0) return rows;
      taken.resolve();
      await released.promise;
      return rows;
    },
  });
  let calls = 0;
  const handlers = { count: (): JobResult => (calls++, good) };
  await scene.job('each-minute', { kind: 'handler', function_name: 'count' });
  await scene.scheduler(handlers, { db, url });
  await scene.idle();
  const hurry = `select pg_notify('pgfresh_schedule', 'cancel')`;
  let isHeld = false;
  proxy.judge = (chunk) => {
    isHeld ||= chunk.includes('heartbeat_process');
    return isHeld ? 'hold' : 'pass';
  };
  await scene.db.query(hurry);
  await until(() => isHeld);
  await scene.advance('1 minute');
  await taken.promise;
  await scene.advance('6 seconds');
  proxy.judge = () => 'pass';
  proxy.release();
  // By the second renewal, what the first one asked for was done.
  for (let renewals = 0; renewals < 2; renewals++) {
    await scene.db.query(`update pgfresh_engine.process set lease_until = pgfresh.clock() + interval '1 hour'`);
    await scene.db.query(hurry);
    await until(() =>
      scene.value(`(select bool_and(lease_until < pgfresh.clock() + interval '1 hour') from pgfresh_engine.process)`),
    );
  }
  released.resolve();
  await until(async () => !(await scene.story('each-minute')).some((run) => /running|waiting/.test(run)));
  expect(await scene.story('each-minute')).toEqual(['12:01 succeeded']);
  expect(calls).toBe(1);
});

/** Has the database take the lease of every scheduler, and tell them. */
async function takeLeases(scene: ScheduleScene): Promise<void> {
  await scene.db.query(`update pgfresh_engine.process set lease_until = '-infinity'`);
  await scene.db.query(`select pg_notify('pgfresh_schedule', 'cancel')`);
}

it('runs 4: who hears late that the old lease is lost does not lose the new one', async () => {
  const scene = await ScheduleScene.open();
  const told: string[] = [];
  scene.events.on('scheduler.started', () => void told.push('started'));
  scene.events.on('scheduler.lease_lost', () => void told.push('lost'));
  const db = openDatabase(scene.url);
  const query = db.query.bind(db) as (text: Statement, values?: readonly unknown[]) => Promise<object[]>;
  const asked = Promise.withResolvers<void>();
  const released = Promise.withResolvers<void>();
  const answered = Promise.withResolvers<void>();
  let isSlow = false;
  Object.assign(db, {
    query: async (text: Statement, values?: readonly unknown[]): Promise<object[]> => {
      // The question of the part that serves users' jobs.
      if (!isSlow || typeof text === 'string' || text.name !== 'pgfresh.take_waiting_runs' || values?.[3] !== true)
        return query(text, values);
      isSlow = false;
      asked.resolve();
      await released.promise;
      return query(text, values).finally(answered.resolve);
    },
  });
  await scene.scheduler({}, { db, ownJobs: { sweep: () => good } });
  isSlow = true;
  await scene.advance('1 second');
  await asked.promise;
  await takeLeases(scene);
  await until(() => told.length === 3);
  released.resolve();
  await answered.promise;
  await scene.job('each-minute');
  await scene.idle();
  expect(told).toEqual(['started', 'lost', 'started']);
});

it('runs 4: a scheduler that stops while it begins a new lease leaves none behind', async () => {
  const scene = await ScheduleScene.open();
  const { proxy, url } = await Proxy.before(scene.url);
  onTestFinished(() => proxy.close());
  const scheduler = await scene.scheduler({}, { url });
  let isRegistering = false;
  proxy.judge = (chunk) => {
    if (!chunk.includes('register_process')) return 'pass';
    isRegistering = true;
    return 'hold';
  };
  await takeLeases(scene);
  await until(() => isRegistering);
  await scheduler.stop();
  proxy.release();
  const living = `(select count(*)::int from pg_stat_activity where datname = current_database() and application_name = 'pgfresh lease')`;
  await until(async () => (await scene.value(living)) === 0);
  expect(await scene.value(`(select count(*)::int from pgfresh_engine.process where lease_until > '-infinity')`)).toBe(
    0,
  );
});

it('runs 7: long runs of users leave pgfresh the places for its own jobs', async () => {
  const scene = await ScheduleScene.open();
  const hang = (): Promise<JobResult> => new Promise(() => {});
  const ownJobs = { sweep: (): JobResult => good };
  await scene.scheduler({ hang }, { ownJobs, concurrency: 2, drainMs: 0 });
  const users = ['a', 'b', 'c'];
  for (const name of users) await scene.job(name, { kind: 'handler', function_name: 'hang', timeout: '1 hour' });
  const unplanned = `(select count(*)::int from pgfresh_engine.job_cursor where slot is null)`;
  await until(async () => (await scene.value(unplanned)) === 0);
  const runsOf = async (names: readonly string[]): Promise<string[]> =>
    (await Promise.all(names.map((name) => scene.story(name)))).flat();
  for (const slot of ['12:01', '12:02', '12:03']) {
    await scene.advance('1 minute');
    await until(async () => (await runsOf(['pgfresh.sweep'])).includes(`${slot} succeeded`));
    // The third of the users' jobs has no place.
    await until(async () => (await runsOf(users)).length === 2);
  }
  expect(await runsOf(users)).toEqual(['12:01 running', '12:01 running']);
});
