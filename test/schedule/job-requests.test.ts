import { beforeAll, expect, it } from 'vitest';
import type { Queryable } from '../../src/database/index.ts';
import {
  backfillJob,
  cancelJob,
  jobHistory,
  listJobs,
  nextJobSlots,
  pauseJob,
  resumeJob,
  showJob,
  triggerJob,
} from '../../src/schedule/index.ts';
import { openDatabase } from '../harness/database.ts';
import { createLogin } from '../harness/login.ts';
import { ScheduleScene } from './scene.ts';

let scene: ScheduleScene;
beforeAll(async () => {
  scene = await ScheduleScene.open();
  await scene.db.query('grant select on public.test_clock to public');
  await scene.job('theirs');
});

const slots = { from: new Date('2026-01-05T11:00Z'), until: new Date('2026-01-05T11:03Z') };
const reading: Record<string, (db: Queryable, name: string) => Promise<unknown>> = {
  show: showJob,
  next: (db, name) => nextJobSlots(db, name, 1),
  history: jobHistory,
  dry: (db, name) => backfillJob(db, name, { ...slots, dryRun: true }),
};
const deciding: Record<string, (db: Queryable, name: string) => Promise<unknown>> = {
  pause: pauseJob,
  resume: resumeJob,
  trigger: triggerJob,
  backfill: (db, name) => backfillJob(db, name, slots),
};

it('a login with pgfresh_scheduler decides about its own jobs, and reads the others', async () => {
  const login = await createLogin(scene.url, 'pgfresh_scheduler');
  const db = openDatabase(login.url);
  await scene.job('mine', { owner: login.name });
  await scene.db.query(`grant insert on public.done to ${login.name}`);
  expect((await listJobs(db)).map(({ name }) => name)).toEqual(['mine', 'theirs']);
  for (const read of Object.values(reading)) await Promise.all([read(db, 'mine'), read(db, 'theirs')]);
  for (const decide of Object.values(deciding))
    await expect(decide(db, 'theirs')).rejects.toMatchObject({ code: 'PGF_JOB_RIGHT' });
  expect(await pauseJob(db, 'mine', { reason: 'a test' })).toMatchObject({ state: 'paused', paused_by: login.name });
  expect(await resumeJob(db, 'mine')).toMatchObject({ state: 'ok' });
  const { run_id: run } = await triggerJob(db, 'mine');
  expect(await cancelJob(db, 'mine')).toMatchObject([{ success: true, run_id: run, state: 'cancelled' }]);
  expect(await backfillJob(db, 'mine', slots)).toMatchObject({ slots: 3, queued: 3, skipped: 0 });
  expect(await cancelJob(db, 'mine', { backfill: true })).toHaveLength(3);
  const { run_id: other } = await triggerJob(scene.db, 'theirs');
  await expect(cancelJob(db, 'theirs', { run: other })).rejects.toMatchObject({ code: 'PGF_JOB_RIGHT' });
  await expect(cancelJob(db, 'mine', { run: other })).rejects.toMatchObject({ code: 'PGF_RUN_UNKNOWN' });
  await cancelJob(scene.db, 'theirs');
});

it('a login that only works reads, and is told what it needs to decide', async () => {
  const db = openDatabase((await createLogin(scene.url, 'pgfresh_worker')).url);
  for (const read of Object.values(reading)) await read(db, 'theirs');
  for (const decide of Object.values(deciding))
    await expect(decide(db, 'theirs')).rejects.toMatchObject({ code: 'PGF_JOB_RIGHT' });
  await expect(pauseJob(db, 'theirs')).rejects.toThrow(
    /It needs the role pgfresh_operator, or pgfresh_scheduler for jobs of its own$/,
  );
});
