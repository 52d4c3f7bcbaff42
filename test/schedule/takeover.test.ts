import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { beforeAll, expect, it } from 'vitest';
import { atEnd } from '../harness/database.ts';
import { planSlots } from '../../src/schedule/slot-plan.ts';
import { PlayedScheduler, ScheduleScene, until } from './scene.ts';

const child = fileURLToPath(new URL('./scheduler-process.ts', import.meta.url));

let scene: ScheduleScene;
beforeAll(async () => {
  scene = await ScheduleScene.open();
  await scene.db.query(`
    create function public.wait_for_gate() returns jsonb language plpgsql as $$
    begin
      insert into public.done (what) values ('gate');
      perform pg_advisory_xact_lock_shared(77);
      return jsonb_build_object('success', true, 'message', 'through');
    end $$`);
});

async function start(): Promise<ChildProcess> {
  const started = spawn(process.execPath, [child, scene.url], { stdio: ['ignore', 'pipe', 'inherit'] });
  const exit = once(started, 'exit');
  atEnd(async () => {
    started.kill('SIGKILL');
    await exit;
  });
  await once(started.stdout, 'data');
  return started;
}

/** Has schedulers send a heartbeat now, which they would do in a few seconds. */
const looked = async (): Promise<boolean> => {
  await scene.db.query(`select pg_notify('pgfresh_schedule', 'cancel')`);
  return true;
};
const open = () =>
  scene.value<number>(`(select count(*)::int from pgfresh.scheduled_job_runs where state = 'running')`);
const inside = () =>
  scene.value<number>(
    `(select count(*)::int from pg_stat_activity where datname = current_database() and wait_event = 'advisory')`,
  );

it('the next attempt of a slot starts elsewhere when its process was killed, and nothing is done twice', async () => {
  await scene.job('killed', { function_name: 'wait_for_gate' });
  const victim = await start();
  await scene.idle();
  // Held here, so that the function is inside when its process is killed.
  await scene.db.transact('gate', async (tx) => {
    await tx.query('select pg_advisory_xact_lock(77)');
    await scene.advance('1 minute');
    await until(async () => (await inside()) === 1);
    const exit = once(victim, 'exit');
    victim.kill('SIGKILL');
    await exit;
    await start();
    // The lease of the dead one runs out. Time goes on only after whoever lives has renewed: a heartbeat that is on its way
    // during a leap would come too late.
    await until(async () => {
      await looked();
      await scene.db.query(`
        update public.test_clock set now = now + interval '3 seconds'
        where now + interval '6 seconds' < (select lease_until from pgfresh_engine.process order by id desc limit 1)`);
      return scene.value<boolean>(`(select count(*) = 1 from pgfresh_engine.process where lease_until > '-infinity')`);
    });
  });
  await until(async () => (await looked()) && (await scene.story('killed')).includes('12:01 succeeded attempt 2'));
  expect(await scene.runs('killed')).toMatchObject([
    { state: 'failed', message: expect.stringMatching(/^scheduler \d+ \(.+\) is gone$/) },
    { state: 'succeeded', attempt: 2 },
  ]);
  expect(await scene.value(`(select count(*)::int from public.done where what = 'gate')`)).toBe(1);
  await scene.db.query('delete from pgfresh.scheduled_jobs');
});

it('a scheduler that stops waits for its runs, and hands over what takes too long', async () => {
  const calls: AbortSignal[] = [];
  const handlers = {
    hang: ({ signal }: { signal: AbortSignal }) => {
      calls.push(signal);
      return new Promise<never>(() => {});
    },
  };
  await scene.job('hanging', { kind: 'handler', function_name: 'hang' });
  const one = await scene.scheduler(handlers, { drainMs: 50 });
  await scene.idle();
  await scene.advance('1 minute');
  await until(() => calls.length === 1);
  await one.stop();
  expect(calls[0]!.aborted).toBe(true);
  expect(await open()).toBe(0);
  const story = await scene.runs('hanging');
  expect(story.map(({ state, attempt }) => `${state} ${attempt}`)).toEqual(['failed 1', 'waiting 2']);
  expect(await scene.value(`(select failures_in_a_row from pgfresh_engine.job_cursor)`)).toBe(0);
  await scene.db.query('delete from pgfresh.scheduled_jobs');
});

it('a scheduler whose lease was taken begins anew', async () => {
  const lost: number[] = [];
  scene.events.on('scheduler.lease_lost', ({ scheduler }) => void lost.push(scheduler));
  await scene.job('stolen');
  await scene.scheduler();
  await scene.idle();
  // What a peer does to one that it takes for dead.
  const taken = await scene.value<number>('(select max(id) from pgfresh_engine.process)');
  await scene.db.query(`update pgfresh_engine.process set lease_until = '-infinity' where id = $1::bigint`, [taken]);
  await scene.advance('1 minute');
  const newest = () => scene.value<number>('(select max(id) from pgfresh_engine.process)');
  await until(async () => (await newest()) > taken);
  expect(lost).toEqual([taken]);
});

it('sound 6: a scheduler that finishes its runs keeps its lease, and begins no others', async () => {
  const { promise: result, resolve: finish } = Promise.withResolvers<{ success: true; message: string }>();
  let begun = 0;
  const slow = () => {
    begun++;
    return result;
  };
  const one = await scene.scheduler({ slow });
  await scene.job('draining', { kind: 'handler', function_name: 'slow' });
  await scene.job('later', { kind: 'handler', function_name: 'slow' });
  await scene.db.query(`select pgfresh.trigger_scheduled_job('draining')`);
  await until(() => begun === 1);
  const stopped = one.stop();
  const lease = `(select lease_until - pgfresh.clock() > interval '11 seconds' from pgfresh_engine.process order by id desc limit 1)`;
  await scene.db.query(`update pgfresh_engine.process set lease_until = pgfresh.clock() + interval '1 second'`);
  await scene.db.query(`select pgfresh.trigger_scheduled_job('later')`);
  await until(async () => (await looked()) && (await scene.value<boolean>(lease)));
  finish({ success: true, message: 'done' });
  await stopped;
  expect(begun).toBe(1);
  expect((await scene.runs('draining')).map(({ state }) => state)).toEqual(['succeeded']);
  await scene.db.query('delete from pgfresh.scheduled_jobs');
});

it('runs 3: a clock that is set back keeps no one from taking over, and has no one who lives taken for dead', async () => {
  const own = await ScheduleScene.open();
  await own.job('left');
  const dead = await PlayedScheduler.register(own.db, 'dead');
  const [living, other] = [
    await PlayedScheduler.register(own.db, 'living'),
    await PlayedScheduler.register(own.db, 'other'),
  ];
  const beat = async ({ scheduler }: PlayedScheduler): Promise<number> =>
    own.value<number>(`(pgfresh_engine.heartbeat_process($1::bigint, '{}') -> 'dead')::int`, [scheduler]);
  await own.advance('1 hour');
  await dead.settleSlots(dead, (await dead.dueSlots(10)).map(planSlots), 1);
  await own.advance('1 minute');
  await dead.settleSlots(dead, (await dead.dueSlots(10)).map(planSlots), 1);
  expect(await own.story('left')).toEqual(['13:01 running']);
  await own.clock.advance('-1 hour');
  expect([await beat(living), await beat(other)]).toEqual([0, 0]);
  expect(await living.recover(living.scheduler)).toBe(0);
  await own.clock.advance('11 seconds');
  expect([await beat(other), await beat(living)]).toEqual([0, 0]);
  await own.clock.advance('2 seconds');
  expect([await beat(living), await living.recover(living.scheduler)]).toEqual([1, 1]);
  expect(await own.value(`(select array_agg(name order by name) from pgfresh_engine.process)`)).toEqual([
    'living',
    'other',
  ]);
});
