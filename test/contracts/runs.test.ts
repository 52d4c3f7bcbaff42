import { setTimeout as wait } from 'node:timers/promises';
import { expect, onTestFinished, test } from 'vitest';
import type { JobContext, JobResult } from '../../src/config/index.ts';
import { openDatabase } from '../harness/database.ts';
import { Proxy } from '../harness/proxy.ts';
import { ScheduleScene, until } from '../schedule/scene.ts';

const good: JobResult = { success: true, message: 'good' };
const hurry = `select pg_notify('pgfresh_schedule', 'cancel')`;

async function openScene(): Promise<{ scene: ScheduleScene; proxy: Proxy; url: string }> {
  const scene = await ScheduleScene.open();
  const { proxy, url } = await Proxy.before(scene.url);
  onTestFinished(() => proxy.close());
  return { scene, proxy, url };
}

/** Has the next slot of every job come. */
async function nextSlot(scene: ScheduleScene): Promise<void> {
  await until(
    async () => (await scene.value('(select count(*)::int from pgfresh_engine.job_cursor where slot is null)')) === 0,
  );
  await scene.advance('1 minute');
}

/** Whether it comes true within so many milliseconds. */
async function soon(ms: number, condition: () => Promise<boolean> | boolean): Promise<boolean> {
  const end = performance.now() + ms;
  for (; performance.now() < end; await wait(10)) if (await condition()) return true;
  return false;
}

test('contract 33: a slot whose answer was lost on its way runs once, by its next attempt', async () => {
  const { scene, proxy, url } = await openScene();
  await scene.job('unheard-of');
  await scene.scheduler({}, { db: openDatabase(url) });
  let isLost = false;
  proxy.judge = (chunk, way) => {
    if (isLost || way === 'to server' || !chunk.includes('unheard-of')) return 'pass';
    isLost = true;
    return 'cut';
  };
  await nextSlot(scene);
  await until(() => isLost);
  expect(await scene.story('unheard-of')).toEqual(['12:01 running']);
  await scene.advance('6 seconds');
  await scene.db.query(hurry);
  expect(await soon(10_000, async () => (await scene.story('unheard-of')).length === 2)).toBe(true);
  await scene.idle();
  expect(await scene.story('unheard-of')).toEqual(['12:01 failed', '12:01 succeeded attempt 2']);
  expect(await scene.value('(select count(*)::int from public.done)')).toBe(1);
});

test('contract 33: a process that is cut off stops its handlers before another one may start them', async () => {
  const { scene, proxy, url } = await openScene();
  const called = Promise.withResolvers<AbortSignal>();
  const hang = ({ signal }: JobContext): Promise<JobResult> => {
    called.resolve(signal);
    return new Promise(() => {});
  };
  await scene.job('hanging', { kind: 'handler', function_name: 'hang', timeout: '1 hour' });
  await scene.scheduler({ hang }, { db: openDatabase(url), url, listenUrl: url, drainMs: 0 });
  await nextSlot(scene);
  const signal = await called.promise;
  proxy.judge = () => 'hold';
  // The lease that the database knows of has 12 s, from its last renewal on.
  expect(await soon(12_000, () => signal.aborted)).toBe(true);
  expect(await scene.story('hanging')).toEqual(['12:01 running']);
  proxy.judge = () => 'pass';
  proxy.cut();
});

test('contract 33: a lease that is lost stops the handlers that were started under it', async () => {
  const { scene } = await openScene();
  const signals: AbortSignal[] = [];
  const hang = ({ signal }: JobContext): Promise<JobResult> => {
    signals.push(signal);
    return new Promise(() => {});
  };
  await scene.job('hanging', { kind: 'handler', function_name: 'hang', timeout: '1 hour' });
  await scene.scheduler({ hang }, { drainMs: 0 });
  await nextSlot(scene);
  await until(() => signals.length === 1);
  await scene.db.query(`update pgfresh_engine.process set lease_until = '-infinity'`);
  await scene.db.query(hurry);
  expect(await soon(8_000, () => signals[0]!.aborted)).toBe(true);
});

test('contract 33: a transaction that a handler leaves open is no one else’s', async () => {
  const { scene } = await openScene();
  const handlers = {
    poisons: async ({ db }: JobContext): Promise<JobResult> => {
      await db.query('begin');
      return good;
    },
    writes: async ({ db }: JobContext): Promise<JobResult> => {
      await db.query(`insert into public.done (what) values ('written')`);
      return good;
    },
  };
  // One connection for both.
  await scene.scheduler(handlers, { concurrency: 1 });
  await scene.job('poisons', { kind: 'handler', function_name: 'poisons' });
  await nextSlot(scene);
  await scene.idle();
  await scene.db.query(`update pgfresh.scheduled_jobs set enabled = false`);
  await scene.job('writes', { kind: 'handler', function_name: 'writes' });
  await nextSlot(scene);
  await until(async () => (await scene.story('writes')).some((run) => run.includes('succeeded')));
  expect(await scene.value(`(select count(*)::int from public.done where what = 'written')`)).toBe(1);
});

test('contract 33: slow statements of one handler keep no slot waiting', async () => {
  const { scene } = await openScene();
  const flood = async ({ db }: JobContext): Promise<JobResult> => {
    await Promise.all(Array.from({ length: 30 }, () => db.query('select pg_sleep(10)')));
    return good;
  };
  await scene.job('floods', { kind: 'handler', function_name: 'flood', timeout: '1 hour' });
  const scheduler = await scene.scheduler({ flood }, { concurrency: 3, drainMs: 0 });
  await nextSlot(scene);
  const sleeping = `(select count(*) > 2 from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep')`;
  await until(() => scene.value<boolean>(sleeping));
  await scene.job('quick');
  expect(
    await soon(9_000, async () => {
      await scene.advance('1 minute');
      return (await scene.story('quick')).some((run) => run.includes('succeeded'));
    }),
  ).toBe(true);
  await scheduler.stop();
  await scene.db.query(
    `select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'`,
  );
});

test('contract 33: a limit holds also when the connection of the function dies without a word', async () => {
  const { scene, proxy, url } = await openScene();
  await scene.db.query(`create function public.sleeps() returns jsonb language plpgsql as $$
    begin perform pg_sleep(40); return jsonb_build_object('success', true, 'message', 'late'); end $$`);
  await scene.job('sleeping', { function_name: 'sleeps', timeout: '1 second' });
  await scene.scheduler({}, { url, drainMs: 0 });
  let isDead = false;
  const ofJobs = (id: number): boolean => proxy.connections.some((one) => one.id === id && one.name === 'pgfresh jobs');
  proxy.judge = (_chunk, way, id) => (isDead && way === 'to client' && ofJobs(id) ? 'hold' : 'pass');
  await nextSlot(scene);
  const sleeping = `exists (select from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep')`;
  await until(() => scene.value<boolean>(sleeping));
  isDead = true;
  expect(await soon(15_000, async () => (await scene.story('sleeping'))[0] === '12:01 failed')).toBe(true);
});
