import { beforeEach, expect, it } from 'vitest';
import { planSlots, type SlotPlan } from '../../src/schedule/slot-plan.ts';
import type { TakenRun } from '../../src/schedule/slot-store.ts';
import { PlayedScheduler, ScheduleScene } from './scene.ts';

let scene: ScheduleScene;
let store: PlayedScheduler;

beforeEach(async () => {
  scene = await ScheduleScene.open();
  store = await PlayedScheduler.register(scene.db, 'here');
});

/** Registers jobs, and settles to what is planned for them when their first slot has come. */
async function dueJobs(...names: string[]): Promise<SlotPlan[]> {
  for (const name of names) await scene.job(name);
  await store.settleSlots(store, await plans(), 0);
  await scene.advance('1 minute');
  return plans();
}

const plans = async (): Promise<SlotPlan[]> => (await store.dueSlots(10)).map(planSlots);
const none = { message: 'no' };

it('what there is no room for stays due', async () => {
  const both = await dueJobs('a', 'b');
  expect(await store.settleSlots(store, both, 1)).toMatchObject([{ name: 'a', attempt: 1 }]);
  expect([await scene.story('a'), await scene.story('b')]).toEqual([['12:01 running'], []]);
  expect(await plans()).toEqual(both.slice(1));
});

it('of two that have read the same slots, the second settles nothing', async () => {
  const read = await dueJobs('a');
  expect(await store.settleSlots(store, read, 1)).toHaveLength(1);
  expect(await store.settleSlots(await PlayedScheduler.register(scene.db, 'there'), read, 1)).toEqual([]);
  expect(await scene.story('a')).toEqual(['12:01 running']);
});

it('a plan for a job that was changed since settles nothing', async () => {
  const read = await dueJobs('a');
  await scene.db.query(`update pgfresh.scheduled_jobs set blackout_dates = '{2026-01-05}'`);
  expect(await store.settleSlots(store, read, 1)).toEqual([]);
  expect(await scene.story('a')).toEqual([]);
});

it('runs 6: a run that is lost again waits longer each time, and is given up after the fourth, as one failure', async () => {
  let [run] = (await store.settleSlots(store, await dueJobs('a'), 1)) as (TakenRun | undefined)[];
  const next = `(select extract(epoch from run_at - pgfresh.clock())::int from pgfresh.scheduled_job_runs where state = 'waiting')`;
  const waits: (number | null)[] = [];
  while (run) {
    expect(await store.end(run, store.scheduler, 'lost', none)).toBe(true);
    waits.push(await scene.value<number | null>(next));
    await scene.advance('30 seconds');
    [run] = await store.takeWaiting(store, 1);
  }
  expect(waits).toEqual([0, 5, 25, null]);
  expect((await scene.story('a')).at(-1)).toBe('12:01 failed attempt 4');
  expect(await scene.value('(select failures_in_a_row from pgfresh_engine.job_cursor)')).toBe(1);
});

it.for(['paused', 'disabled'] as const)(
  'the next attempt of a job that was %s before it is cancelled',
  async (reason) => {
    const read = await dueJobs('a');
    await scene.db.query(`update pgfresh.scheduled_jobs set retries = 1`);
    const [run] = (await store.settleSlots(store, read, 1)) as TakenRun[];
    await store.end(run!, store.scheduler, 'failed', none);
    const change = reason === 'paused' ? `paused_until = 'infinity'` : 'enabled = false';
    await scene.db.query(`update pgfresh.scheduled_jobs set ${change}`);
    await scene.advance('1 minute');
    expect(await store.takeWaiting(store, 1)).toEqual([]);
    expect((await scene.runs('a')).at(-1)).toMatchObject({
      state: 'cancelled',
      message: `the job was ${reason} before it came to this run`,
    });
  },
);

it('runs 6: the wait before the next attempt has an end, however often a job has failed', async () => {
  const read = await dueJobs('a');
  await scene.db.query(`update pgfresh.scheduled_jobs set retries = 100, retry_base = '1 hour'`);
  const [run] = (await store.settleSlots(store, read, 1)) as TakenRun[];
  await scene.db.query('update pgfresh.scheduled_job_runs set attempt = 80');
  await store.end(run!, store.scheduler, 'failed', none);
  const next = `(select run_at - pgfresh.clock() = interval '24 hours' from pgfresh.scheduled_job_runs where state = 'waiting')`;
  expect(await scene.value(next)).toBe(true);
});

it('failures in a row are counted until a success', async () => {
  await dueJobs('a');
  const counts: number[] = [];
  for (const verdict of ['failed', 'failed', 'succeeded', 'failed'] as const) {
    const [run] = (await store.settleSlots(store, await plans(), 1)) as TakenRun[];
    await store.end(run!, store.scheduler, verdict, none);
    counts.push(await scene.value<number>('(select failures_in_a_row from pgfresh_engine.job_cursor)'));
    await scene.advance('1 minute');
  }
  expect(counts).toEqual([1, 2, 0, 1]);
});

it('skips go into the row before them, and into none that is later', async () => {
  const job = await scene.job('a');
  const skip = (from: string, to: string) =>
    scene.value(`pgfresh_engine.skip_slots($1::int, 'missed', $2::timestamptz, $3::timestamptz, 2, 'scheduler')`, [
      job,
      `2026-01-05T${from}Z`,
      `2026-01-05T${to}Z`,
    ]);
  await skip('12:05', '12:06');
  await skip('12:01', '12:02');
  await skip('12:03', '12:04');
  expect(await scene.story('a')).toEqual(['12:05-12:06 2 missed', '12:01-12:04 4 missed']);
});
