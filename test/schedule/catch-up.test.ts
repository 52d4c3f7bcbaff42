import { beforeAll, afterEach, expect, it } from 'vitest';
import { planSlots, type DueJob } from '../../src/schedule/slot-plan.ts';
import { ScheduleScene, until } from './scene.ts';

let scene: ScheduleScene;
beforeAll(async () => {
  scene = await ScheduleScene.open();
});
afterEach(async () => {
  expect(scene.problems).toEqual([]);
  await scene.db.query('delete from pgfresh.scheduled_jobs');
  await scene.clock.set('2026-01-05T12:00:00Z');
});

/** A job is registered, the scheduler goes, time passes, another scheduler comes. */
const afterDowntime = async (time: string, columns: Record<string, unknown>): Promise<string[]> => {
  await scene.job('down', columns);
  const before = await scene.scheduler();
  await scene.idle();
  await before.stop();
  await scene.advance(time);
  const after = await scene.scheduler();
  await scene.idle();
  await until(
    async () => (await scene.value(`(select count(*) from pgfresh.scheduled_job_runs where state = 'waiting')`)) === 0,
  );
  await after.stop();
  return scene.story('down');
};

it('after a downtime, runs the newest slot that was missed, once', async () => {
  expect(await afterDowntime('1 hour 3 minutes', { schedule: '*/10 * * * *' })).toEqual([
    '12:10-12:50 5 missed',
    '13:00 catchup succeeded',
  ]);
  expect(await scene.value('(select lateness_ms from pgfresh.scheduled_job_runs where success)')).toBe(180_000);
});

it('after a downtime, the slot that is due this minute is enough', async () => {
  expect(await afterDowntime('1 hour 20 seconds', { schedule: '*/10 * * * *' })).toEqual([
    '12:10-12:50 5 missed',
    '13:00 succeeded',
  ]);
  // Since its own slot, and not since the first that was missed.
  expect(await scene.value('(select lateness_ms from pgfresh.scheduled_job_runs where success)')).toBe(20_000);
});

it('skips what was missed, if the job says so', async () => {
  expect(await afterDowntime('1 hour 3 minutes', { schedule: '*/10 * * * *', catch_up: 'skip' })).toEqual([
    '12:10-13:00 6 missed',
  ]);
});

it.for([
  ['0 12 * * 1', '16 days', '12:00-12:00 1 missed', '12:00 catchup succeeded'],
  ['0 0 1 2 *', '400 days', '00:00-00:00 1 missed', '00:00 catchup succeeded'],
] as const)(
  'truth 14: %s runs its newest missed slot once, however late, unless a window was set',
  async ([schedule, time, missed, caught]) => {
    expect(await afterDowntime(time, { schedule })).toEqual([missed, caught]);
    await scene.db.query('delete from pgfresh.scheduled_jobs');
    await scene.clock.set('2026-01-05T12:00:00Z');
    const skipped = await afterDowntime(time, { schedule, catch_up_window: '1 day' });
    expect(skipped).toEqual([missed.replace(' 1 ', ' 2 ')]);
  },
);

it('truth 14: catching up all goes back a day where no window was set', async () => {
  const story = await afterDowntime('49 hours', { schedule: '0 */12 * * *', catch_up: 'all' });
  expect(story).toEqual(['00:00-12:00 2 missed', '00:00 catchup succeeded', '12:00 catchup succeeded']);
});

it('skips what was missed before the window of the job', async () => {
  expect(await afterDowntime('3 hours', { schedule: '30 12 * * *', catch_up_window: '1 hour' })).toEqual([
    '12:30-12:30 1 missed',
  ]);
});

it('runs all that was missed, in order, the newest ones if there are too many', async () => {
  expect(
    await afterDowntime('1 hour 3 minutes', { schedule: '*/10 * * * *', catch_up: 'all', catch_up_max: 3 }),
  ).toEqual(['12:10-12:30 3 missed', '12:40 catchup succeeded', '12:50 catchup succeeded', '13:00 catchup succeeded']);
});

it('runs a job without a schedule once after a downtime, and plans on from there', async () => {
  const story = await afterDowntime('3 hours', { every_min: '10 minutes', every_max: '15 minutes' });
  expect(story).toEqual([expect.stringMatching(/^12:1\d catchup succeeded$/)]);
  const minutes = '(select extract(epoch from slot - pgfresh.clock())::float8 / 60 from pgfresh_engine.job_cursor)';
  expect(await scene.value(minutes)).toBeGreaterThanOrEqual(10);
});

const changes = {
  disabled: ['update pgfresh.scheduled_jobs set enabled = false', 'update pgfresh.scheduled_jobs set enabled = true'],
  paused: [
    `update pgfresh.scheduled_jobs set paused_until = 'infinity'`,
    'update pgfresh.scheduled_jobs set paused_until = null',
  ],
} as const;

it.for(['disabled', 'paused'] as const)(
  'accounts for the slots of a job that was %s while nobody looked',
  async (reason) => {
    const [held, free] = changes[reason];
    await scene.job('toggled');
    const before = await scene.scheduler();
    await scene.idle();
    await before.stop();
    await scene.db.query(held);
    await scene.advance('5 minutes');
    await scene.db.query(free);
    const after = await scene.scheduler();
    await scene.idle();
    await after.stop();
    expect(await scene.story('toggled')).toEqual([`12:01-12:05 5 ${reason}`]);
  },
);

it('gives a job whose times have changed no past', async () => {
  await scene.job('changed');
  const before = await scene.scheduler();
  await scene.idle();
  await before.stop();
  await scene.advance('5 minutes');
  await scene.db.query(`update pgfresh.scheduled_jobs set schedule = '*/2 * * * *'`);
  const after = await scene.scheduler();
  await scene.idle();
  expect(await scene.value(`(select to_char(slot at time zone 'UTC', 'HH24:MI') from pgfresh_engine.job_cursor)`)).toBe(
    '12:06',
  );
  await after.stop();
  expect(await scene.story('changed')).toEqual([]);
});

it('computes future slots again by newer time zone data, and leaves the past and older data alone', async () => {
  await scene.job('zoned', { schedule: '0 3 * * *', timezone: 'America/New_York' });
  await scene.job('due');
  const one = await scene.scheduler();
  await scene.idle();
  await one.stop();
  // What older data had said.
  await scene.db.query(
    `update pgfresh_engine.job_cursor set slot = '2026-01-06T09:00:00Z', due_at = '2026-01-06T09:00:00Z' where slot > '2026-01-06'`,
  );
  await scene.db.query(`update pgfresh_engine.schedule_state set zone_data = '2001a'`);
  await scene.advance('3 minutes');
  const two = await scene.scheduler();
  await scene.idle();
  await two.stop();
  const slot = `(select to_char(c.slot at time zone 'UTC', 'HH24:MI') from pgfresh_engine.job_cursor as c join pgfresh.scheduled_jobs as j on j.id = c.job_id where j.name = 'zoned')`;
  expect(await scene.value(slot)).toBe('08:00');
  expect(await scene.story('due')).toEqual(['12:01-12:02 2 missed', '12:03 succeeded']);
  await scene.db.query(`update pgfresh_engine.schedule_state set zone_data = '2999a'`);
  const revisions = () => scene.value('array(select revision from pgfresh_engine.job_cursor order by job_id)');
  const before = await revisions();
  await (await scene.scheduler()).stop();
  expect(await revisions()).toEqual(before);
});

const job: DueJob = {
  job: 7,
  revision: 0,
  slot: new Date('2026-01-05T12:00:00Z'),
  behind: null,
  schedule: '* * * * *',
  timezone: 'UTC',
  everyMin: null,
  everyMax: null,
  enabled: true,
  pausedAt: null,
  pausedUntil: null,
  blackoutDates: [],
  catchUp: 'once',
  catchUpWindow: 86_400_000,
  catchUpMax: 100,
  jitter: 0,
  now: new Date('2026-01-05T12:00:00Z'),
};

it('starts a slot later by its jitter, the same for a slot every time, and never past the next', () => {
  const dues = new Set<number>();
  for (let minute = 0; minute < 200; minute++) {
    const slot = new Date(job.slot!.getTime() + minute * 60_000);
    const plan = planSlots({ ...job, slot, jitter: 300_000, now: new Date(slot.getTime() - 1) });
    expect(planSlots({ ...job, slot, jitter: 300_000, now: new Date(slot.getTime() - 30_000) }).due).toEqual(plan.due);
    const offset = plan.due.getTime() - slot.getTime();
    expect(offset).toBeGreaterThanOrEqual(0);
    expect(offset).toBeLessThan(60_000);
    dues.add(offset);
    expect(planSlots({ ...job, slot, jitter: 300_000, now: plan.due }).runs).toEqual([{ slot, cause: 'scheduler' }]);
    if (offset > 0)
      expect(planSlots({ ...job, slot, jitter: 300_000, now: new Date(plan.due.getTime() - 1) }).runs).toEqual([]);
  }
  expect(dues.size).toBeGreaterThan(150);
});

it('accounts for a year of minutes without leaving one out, a part at a time', () => {
  for (const catchUp of ['once', 'all'] as const) {
    const now = new Date('2027-01-05T12:00:30Z');
    let slot = job.slot!;
    let counted = 0;
    let parts = 0;
    for (; slot <= now; parts++) {
      const plan = planSlots({ ...job, slot, catchUp, now });
      for (const skip of plan.skips) {
        expect(skip.from.getTime()).toBe(job.slot!.getTime() + counted * 60_000);
        counted += skip.count;
        expect(skip.to.getTime()).toBe(job.slot!.getTime() + (counted - 1) * 60_000);
      }
      for (const run of plan.runs) expect(run.slot.getTime()).toBe(job.slot!.getTime() + counted++ * 60_000);
      slot = plan.next!;
    }
    expect(counted).toBe(365 * 1440 + 1);
    expect(parts).toBeGreaterThan(20);
  }
});

it('says so when a schedule cannot be read or never comes', () => {
  for (const schedule of ['60 * * * *', '0 0 30 2 *', 'no'])
    expect(planSlots({ ...job, slot: null, schedule })).toMatchObject({
      next: null,
      problem: expect.stringMatching(/./),
      runs: [],
      skips: [],
    });
});
