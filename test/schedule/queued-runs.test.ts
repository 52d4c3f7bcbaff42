import { beforeEach, describe, expect, it } from 'vitest';
import { planSlots } from '../../src/schedule/slot-plan.ts';
import { SlotStore, type TakenRun } from '../../src/schedule/slot-store.ts';
import { blocked } from '../harness/blocked.ts';
import { PlayedScheduler, ScheduleScene } from './scene.ts';

let scene: ScheduleScene;
let here: PlayedScheduler;

beforeEach(async () => {
  scene = await ScheduleScene.open();
  here = await PlayedScheduler.register(scene.db, 'here');
});

/** Settles what is due, as a scheduler does that has room for so many runs. */
async function settle(room: number): Promise<TakenRun[]> {
  const plans = (await here.dueSlots(10)).map(planSlots);
  return (await here.settleSlots(here, plans, room)).filter((one): one is TakenRun => one.run !== null);
}

async function dueJob(minutes: number, columns: Readonly<Record<string, unknown>> = {}): Promise<void> {
  await scene.job('a', columns);
  await settle(0);
  await scene.advance(`${minutes} minutes`);
}

/** Writes this expression to paused_until of all jobs. */
const pause = (until: string) => scene.db.query(`update pgfresh.scheduled_jobs set paused_until = ${until}`);

it('runs 6: a process whose time zone data lacks the zone leaves the slot to those that know it', async () => {
  await dueJob(1, { timezone: 'Europe/Berlin' });
  const [due] = await here.dueSlots(10);
  const plan = planSlots({ ...due!, timezone: 'Europe/Atlantis' });
  expect(plan.problem).toContain('Europe/Atlantis');
  expect(await here.settleSlots(here, [plan], 1)).toEqual([]);
  await scene.advance('10 seconds');
  expect(await settle(1)).toMatchObject([{ slot: new Date('2026-01-05T12:01:00Z') }]);
  expect(await scene.value('(select problem from pgfresh.scheduled_jobs)')).toBe(null);
});

it('runs 6: slots in time zones are left to the newest time zone data that lives', async () => {
  await dueJob(1, { timezone: 'Europe/Berlin' });
  await scene.job('utc');
  const newer = await scene.value<number>(
    `pgfresh_engine.serve_jobs(pgfresh_engine.register_process('scheduler', 'newer'), '{}', '2999z')`,
  );
  expect(await here.dueSlots(10)).toMatchObject([{ timezone: 'UTC' }]);
  await scene.db.query(`update pgfresh_engine.process set lease_until = pgfresh.clock() where id = $1::bigint`, [
    newer,
  ]);
  expect((await here.dueSlots(10)).map(({ timezone }) => timezone).toSorted()).toEqual(['Europe/Berlin', 'UTC']);
});

it('runs 6: newer time zone data of who does not run the job, or does not know its zone, leaves it to older data', async () => {
  const jobs = { handler: { kind: 'handler', function_name: 'mail' }, strange: {} };
  for (const [name, columns] of Object.entries(jobs)) await scene.job(name, { timezone: 'Europe/Berlin', ...columns });
  await scene.db.query(`update pgfresh.scheduled_jobs set problem = 'unknown there' where name = 'strange'`);
  const older = async (): Promise<unknown[]> =>
    (await scene.db.query(`select from pgfresh_engine.due_slots('{mail}', true, '2000a', 10)`)).map(() => 'due');
  await scene.value(`pgfresh_engine.serve_jobs(pgfresh_engine.register_process('scheduler', 'newer'), '{}', '2999z')`);
  expect(await older()).toEqual(['due', 'due']);
  await scene.value(
    `pgfresh_engine.serve_jobs(pgfresh_engine.register_process('scheduler', 'newer'), '{mail}', '2999z')`,
  );
  expect(await older()).toEqual(['due']);
});

const answer = (call: string) => scene.value<Record<string, unknown>>(call);
const none = { message: 'no' };

it('runs 6: a queued run that is cancelled lets none go beside the one that runs', async () => {
  await dueJob(3, { catch_up: 'all' });
  const [running] = await settle(1);
  expect(await scene.story('a')).toEqual(['12:01 catchup running', '12:02 queued', '12:03 queued']);
  const [, queued] = await scene.runs('a');
  expect(await answer(`pgfresh.cancel_scheduled_run(${queued!.id})`)).toMatchObject({ state: 'cancelled' });
  expect(await here.takeWaiting(here, 5)).toEqual([]);
  expect(await scene.story('a')).toEqual(['12:01 catchup running', '12:02 cancelled', '12:03 queued']);
  await here.end(running!, here.scheduler, 'succeeded', none);
  expect(await here.takeWaiting(here, 5)).toMatchObject([{ slot: new Date('2026-01-05T12:03:00Z') }]);
});

it('runs 6: a slot that was tried before someone asked for it again is started again when it is lost', async () => {
  await dueJob(1, { retries: 3, retry_base: '1 second' });
  let [taken] = await settle(1);
  for (let attempt = 1; attempt <= 4; attempt++) {
    await here.end(taken!, here.scheduler, 'failed', none);
    await scene.advance('10 seconds');
    [taken] = await here.takeWaiting(here, 1);
  }
  expect(taken).toBeUndefined();
  await answer(`pgfresh.backfill_scheduled_job('a', array['2026-01-05T12:01:00Z']::timestamptz[])`);
  [taken] = await here.takeWaiting(here, 1);
  expect(taken).toMatchObject({ attempt: 5, triggeredBy: 'backfill' });
  await here.end(taken!, here.scheduler, 'lost', none);
  expect((await scene.story('a')).at(-1)).toBe('12:01 backfill waiting attempt 6');
  // Nor are the attempts of then failures of now.
  [taken] = await here.takeWaiting(here, 1);
  await here.end(taken!, here.scheduler, 'failed', none);
  expect((await scene.story('a')).at(-1)).toBe('12:01 backfill waiting attempt 7');
});

it('runs 6: what waits for the end of a backfill does not wait for its next attempt too', async () => {
  await dueJob(1, { retries: 3, retry_base: '1 hour' });
  await scene.db.query(`update pgfresh_engine.job_cursor set due_at = due_at + interval '1 minute'`);
  await answer(`pgfresh.backfill_scheduled_job('a', '{2026-01-05T11:00:00Z,2026-01-05T11:01:00Z}')`);
  const [taken] = await here.takeWaiting(here, 1);
  expect(await answer(`pgfresh.trigger_scheduled_job('a')`)).toMatchObject({ state: 'queued' });
  await here.end(taken!, here.scheduler, 'failed', none);
  const [manual] = await here.takeWaiting(here, 5);
  expect(manual).toMatchObject({ triggeredBy: 'manual' });
  // Of the backfill, the attempt is still the only one that has its turn.
  await here.end(manual!, here.scheduler, 'succeeded', none);
  expect(await scene.story('a')).toEqual([
    '11:00 backfill failed',
    '11:01 backfill queued',
    '12:01 manual succeeded',
    '11:00 backfill waiting attempt 2',
  ]);
});

it('runs 6: a slot whose run was forgotten is not run again by a backfill', async () => {
  await dueJob(1);
  for (let minute = 1; minute <= 3; minute++) {
    const [taken] = await settle(1);
    await here.end(taken!, here.scheduler, 'succeeded', none);
    await scene.advance('1 minute');
  }
  expect(await answer(`pgfresh_engine.prune_scheduled_runs('30 days', 1)`)).toMatchObject({ deleted: 2 });
  const slots = [1, 2, 3].map((minute) => `2026-01-05T12:0${minute}:00Z`).join(',');
  const backfill = `pgfresh.backfill_scheduled_job('a', '{${slots}}')`;
  expect(await answer(backfill)).toMatchObject({ queued: 0, skipped: 1, forgotten: 2 });
  expect(await scene.story('a')).toEqual(['12:03 succeeded']);
});

it('runs 6: a slot that has come and is not settled yet is not run by a backfill too', async () => {
  await dueJob(2, { catch_up: 'all' });
  const slots = '{2026-01-05T11:59:00Z,2026-01-05T12:01:00Z,2026-01-05T12:02:00Z}';
  expect(await answer(`pgfresh.backfill_scheduled_job('a', '${slots}')`)).toMatchObject({ queued: 1, skipped: 2 });
  await settle(1);
  expect((await scene.runs('a')).map(({ slot, by }) => `${slot} ${by}`).toSorted()).toEqual([
    '11:59 backfill',
    '12:01 scheduler',
    '12:02 scheduler',
  ]);
});

it('runs 6: resuming a job whose pause is over leaves the slots since then missed, and not paused', async () => {
  await dueJob(0);
  await pause(`pgfresh.clock() + interval '2 minutes 30 seconds'`);
  await scene.advance('5 minutes');
  await pause('null');
  await settle(1);
  expect(await scene.story('a')).toEqual(['12:01-12:02 2 paused', '12:03-12:04 2 missed', '12:05 running']);
});

describe('no deadlock', () => {
  it('runs 6: of cancelling a queued run just as the running one ends', async () => {
    await dueJob(3, { catch_up: 'all' });
    const [running] = await settle(1);
    const [, queued] = await scene.runs('a');
    let ending: Promise<boolean>;
    let cancelling: Promise<unknown>;
    await scene.db.transact('hold both', async (tx) => {
      await tx.query('select from pgfresh_engine.job_cursor for update');
      ending = here.end(running!, here.scheduler, 'succeeded', none);
      await blocked(scene.db);
      cancelling = answer(`pgfresh.cancel_scheduled_run(${queued!.id})`);
      await blocked(scene.db, 2);
    });
    const ends = await Promise.all([ending!, cancelling!]);
    expect(ends).toMatchObject([true, { success: true, state: 'cancelled' }]);
    expect(await scene.story('a')).toEqual(['12:01 catchup succeeded', '12:02 cancelled', '12:03 waiting']);
  });

  it('runs 6: of cancelling a run that begins this moment, which is told to stop', async () => {
    await dueJob(0);
    const { run_id: run } = await answer(`pgfresh.trigger_scheduled_job('a')`);
    let cancelling: Promise<unknown>;
    await scene.db.transact('begin it', async (tx) => {
      const store = new SlotStore(tx, { handlers: [], functions: true });
      expect(await store.takeWaiting(here, 1)).toMatchObject([{ run }]);
      cancelling = answer(`pgfresh.cancel_scheduled_run(${String(run)})`);
      await blocked(scene.db);
      // As one that is not begun after all does.
      await tx.query('select from pgfresh_engine.job_cursor for update');
    });
    expect(await cancelling!).toMatchObject({ success: true, state: 'cancelling' });
  });

  it('runs 6: of forgetting runs and settling slots of the same job', async () => {
    const jobs = [await scene.job('a'), await scene.job('b')];
    await settle(0);
    await pause(`'infinity'`);
    await scene.advance('3 minutes');
    await settle(0);
    await scene.advance('5 minutes');
    await scene.db.query('update pgfresh_engine.schedule_state set pruned_job = $1::int', [jobs[0]]);
    let settling: Promise<unknown>;
    let forgetting: Promise<unknown>;
    await scene.db.transact('hold the first', async (tx) => {
      await tx.query('select from pgfresh.scheduled_job_runs where job_id = $1::int for update', [jobs[0]]);
      settling = settle(0);
      await blocked(scene.db);
      forgetting = answer(`pgfresh_engine.prune_scheduled_runs('1 minute')`);
      await Promise.race([blocked(scene.db, 2), forgetting]);
    });
    expect(await Promise.all([settling!, forgetting!])).toEqual([[], { jobs: 1, deleted: 0, done: true }]);
    // The row of the second goes on, and is not forgotten with what was added to it this moment.
    expect(await scene.runs('b')).toMatchObject([{ state: 'skipped', count: 8 }]);
  });
});
