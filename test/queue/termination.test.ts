import { expect, it } from 'vitest';
import type { ClaimedJob } from '../../src/queue/index.ts';
import { freezeClock } from '../harness/clock.ts';
import { openDatabase } from '../harness/database.ts';
import { QueueScene } from './scene.ts';

/** A queue with a job in every state, on a clock that stands still. */
interface Stage {
  readonly scene: QueueScene;
  readonly worker: number;
  /** The claim that holds the running jobs. */
  readonly request: string;
  /** Running; a refresh of the first was forced meanwhile. */
  readonly quotes: readonly ClaimedJob[];
  /** Running, of a source with a quota. */
  readonly pages: readonly ClaimedJob[];
}

async function openStage(): Promise<Stage> {
  const scene = await QueueScene.open();
  const clock = await freezeClock(scene.db);
  const { queue, db } = scene;
  await scene.source('metered', { quotaBytes: 1_000_000 });
  await scene.type('page', 'metered', 100);
  const worker = await scene.register();
  await queue.enqueueMany(db, 'quote', ['failed', 'ended']);
  const [failed, ended] = await scene.claim();
  await queue.fail(db, [{ ...failed!, bytes: 1 }], { permanent: true, error: 'planted' });
  await scene.complete([ended!], 10);
  await queue.enqueueMany(db, 'quote', ['A', 'B']);
  await queue.enqueueMany(db, 'page', ['A', 'B']);
  const { request, jobs } = await queue.claim(db, { worker, limit: 10 });
  const [quotes, pages] = [false, true].map((limited) => jobs.filter((job) => (job.source === 1) !== limited));
  await queue.enqueue(db, 'quote', 'A', { force: true });
  await queue.enqueue(db, 'page', 'A', { force: true });
  await queue.enqueueMany(db, 'page', ['ready', 'later'], { runAt: new Date('2026-01-05T12:00:01Z') });
  await queue.enqueueMany(db, 'quote', ['ready']);
  // The jobs have been lost twice already, and have been silent for longer than they may.
  await db.query('update pgfresh_engine.job set lost = 2 where state = $1::"char"', ['x']);
  await clock.advance('301 seconds');
  await db.query(
    `update pgfresh_engine.process set lease_until = pgfresh.clock() + interval '10 seconds', idle = true`,
  );
  return { scene, worker, request, quotes: quotes!, pages: pages! };
}

type Call = readonly [text: string, values?: readonly unknown[]];
const ends = (jobs: readonly ClaimedJob[]) =>
  [jobs.map(({ id }) => id), jobs.map(({ attempt }) => attempt), jobs.map(() => 50)] as const;
const unfinished =
  (text: string, more: object = {}) =>
  ({ quotes, pages }: Stage): Call => [
    text,
    [JSON.stringify([...quotes, ...pages].map(({ id, attempt }) => ({ id, attempt, bytes: 50, ...more })))],
  ];

const calls: Record<string, (stage: Stage) => Call> = {
  queue_refreshes: () => [
    `pgfresh_engine.queue_refreshes('quote', array['new', 'ended', 'ready', 'B'], 9, p_force => true)`,
  ],
  queue_refresh_if_not_exists: () => [`pgfresh.queue_refresh_if_not_exists('new', 'page')`],
  claim_jobs: ({ worker }) => ['pgfresh_engine.claim_jobs($1::bigint, gen_random_uuid(), 10)', [worker]],
  get_queue_batch: () => ['pgfresh.get_queue_batch()'],
  claim_next_pending_job: () => ['pgfresh.claim_next_pending_job()'],
  complete_jobs: ({ pages }) => ['pgfresh_engine.complete_jobs($1::bigint[], $2::int[], $3::bigint[])', ends(pages)],
  complete_queue_job: ({ quotes }) => ['pgfresh.complete_queue_job($1::bigint, 50)', [quotes[0]!.id]],
  'fail_jobs: retry': unfinished('pgfresh_engine.fail_jobs($1::jsonb)'),
  'fail_jobs: permanent': unfinished('pgfresh_engine.fail_jobs($1::jsonb)', { permanent: true }),
  put_back_jobs: unfinished('pgfresh_engine.put_back_jobs($1::jsonb)'),
  'put_back_jobs: lost': unfinished('pgfresh_engine.put_back_jobs($1::jsonb, true)'),
  cancel_jobs: ({ quotes, pages }) => [
    'pgfresh_engine.cancel_jobs($1::bigint[])',
    [[...quotes, ...pages].map(({ id }) => id)],
  ],
  fail_queue_job: ({ pages }) => [`pgfresh.fail_queue_job($1::bigint, 'planted')`, [pages[0]!.id]],
  reset_job_immediate: ({ pages }) => ['pgfresh.reset_job_immediate($1::bigint)', [pages[0]!.id]],
  cancel_queue_jobs: () => [`pgfresh.cancel_queue_jobs(p_data_type => 'page')`],
  retry_failed_jobs: () => [`pgfresh.retry_failed_jobs(p_data_type => 'quote')`],
  register_process: () => [`pgfresh_engine.register_process('worker', 'another')`],
  heartbeat_process: ({ worker }) => [`pgfresh_engine.heartbeat_process($1::bigint, '{}')`, [worker]],
  heartbeat_jobs: ({ quotes }) => ['pgfresh.heartbeat_jobs($1::bigint[])', [quotes.map(({ id }) => id)]],
  retire_process: ({ worker }) => ['pgfresh_engine.retire_process($1::bigint)', [worker]],
  recover_stuck_jobs: () => ['pgfresh.recover_stuck_jobs()'],
  maintain_queue_partitions: () => ['pgfresh.maintain_queue_partitions()'],
};

it.each(Object.entries(calls))(
  'a session ended anywhere within %s leaves no lock and no half state',
  async (_name, make) => {
    const stage = await openStage();
    const { scene } = stage;
    const [text, values = []] = make(stage);
    await plantStops(scene);
    const places = await placesIn(scene, text, values);
    expect(places.length).toBeGreaterThan(0);
    const before = await everything(scene);

    const holder = openDatabase(scene.url, { poolSize: 1 });
    await holder.query('select pg_advisory_lock(4711)');
    const victim = openDatabase(scene.url, { poolSize: 1 });
    for (const [index, place] of places.entries()) {
      await victim.query(`select set_config('test.count', '0', false), set_config('test.stop_at', $1::text, false)`, [
        index + 1,
      ]);
      const [row] = await victim.query<{ pid: number }>('select pg_backend_pid() as pid');
      const [ended] = await Promise.allSettled([
        victim.query(`select * from ${text}`, values),
        stopped(scene, row!.pid).then(() => scene.db.query('select pg_terminate_backend($1::int)', [row!.pid])),
      ]);
      await gone(scene, row!.pid);
      expect({
        place,
        ended,
        locks: await scene.value('(select count(*) from pg_locks where pid = $1::int)', [row!.pid]),
        left: await everything(scene),
      }).toMatchObject({
        place,
        ended: { status: 'rejected', reason: { code: 'PGF_COMMIT_UNKNOWN' } },
        locks: 0,
        left: before,
      });
    }
    await scene.db.transact('after', (tx) => tx.query(`select * from ${text}`, values), {
      lockTimeoutMs: 50,
      attempts: 1,
    });
    expect(await everything(scene)).not.toEqual(before);
    await Promise.all([holder.close(), victim.close()]);
  },
);

/** After every statement on any table a session stops, if that is the place where it was told to. */
async function plantStops({ db }: QueueScene): Promise<void> {
  await db.query(`
    create function public.stop_here() returns trigger language plpgsql set lock_timeout = 0 as $$
    begin
      perform set_config('test.count', (coalesce(nullif(current_setting('test.count', true), ''), '0')::int + 1)::text, false);
      perform set_config('test.trail', concat_ws(',', nullif(current_setting('test.trail', true), ''), tg_table_name || ' ' || tg_op), false);
      if current_setting('test.count') = current_setting('test.stop_at', true) then
        perform pg_advisory_lock(4711);
      end if;
      return null;
    end $$`);
  await db.query(`
    do $$ declare t regclass; begin
      for t in select oid from pg_class where relnamespace in ('pgfresh'::regnamespace, 'pgfresh_engine'::regnamespace) and relkind in ('r', 'p') loop
        execute format('create trigger zz_stop after insert or update or delete on %s for each statement execute function public.stop_here()', t);
      end loop;
    end $$`);
}

async function placesIn(scene: QueueScene, text: string, values: readonly unknown[]): Promise<string[]> {
  const undone = new Error('only to see where it goes');
  let trail = '';
  const trial = scene.db.transact('trial', async (tx) => {
    await tx.query(`select set_config('test.count', '0', false), set_config('test.trail', '', false)`);
    await tx.query(`select * from ${text}`, values);
    const [row] = await tx.query<{ trail: string }>(`select current_setting('test.trail') as trail`);
    trail = row!.trail;
    throw undone;
  });
  await expect(trial).rejects.toBe(undone);
  return trail.split(',').filter(Boolean);
}

async function gone(scene: QueueScene, pid: number): Promise<void> {
  while (await scene.value('exists (select from pg_stat_activity where pid = $1::int)', [pid]));
}

async function stopped(scene: QueueScene, pid: number): Promise<void> {
  const waits = `(select wait_event = 'advisory' from pg_stat_activity where pid = $1::int)`;
  while ((await scene.value(waits, [pid])) !== true);
}

/** Every row of every table. */
async function everything({ db }: QueueScene): Promise<object> {
  const tables = await db.query<{ name: string }>(
    `select oid::regclass::text as name from pg_class where relnamespace in ('pgfresh'::regnamespace, 'pgfresh_engine'::regnamespace) and relkind = 'r' order by 1`,
  );
  const rows = tables.map(
    ({ name }) => `('${name}', (select jsonb_agg(to_jsonb(t) order by to_jsonb(t)::text) from ${name} as t))`,
  );
  const [row] = await db.query<{ all: object }>(
    `select jsonb_object_agg(t.name, t.rows) as all from (values ${rows.join(', ')}) as t(name, rows)`,
  );
  return row!.all;
}
