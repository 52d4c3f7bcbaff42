import pg from 'pg';
import { expect, it, onTestFinished } from 'vitest';
import { blocked } from '../harness/blocked.ts';
import { PlannerScene } from '../planner/scene.ts';
import { QueueScene } from '../queue/scene.ts';

it('contract 6: a quota is never overshot by claims at once, and never strands what still fits', async () => {
  const scene = await QueueScene.open({ poolSize: 16 });
  const { db, queue } = scene;
  await scene.source('paid', { quotaBytes: 1_000_000, window: '1 day' });
  await scene.type('small', 'paid', 100);
  await scene.type('large', 'paid', 50_000);
  const cap = 950_000;
  // 99 % of the buffered cap is used.
  await db.query(`insert into pgfresh.usage_corrections (source, bytes, reason) values ('paid', $1::bigint, 'test')`, [
    cap * 0.99,
  ]);
  await queue.enqueue(db, 'large', 'L', { priority: 500 });
  await queue.enqueueMany(
    db,
    'small',
    Array.from({ length: 500 }, (_, n) => `s${n}`),
    { priority: 1 },
  );

  const claims = await Promise.all(Array.from({ length: 16 }, () => scene.claim({ limit: 20 })));
  let jobs = claims.flat();
  for (let turn = 0; turn < 20; turn++) jobs = [...jobs, ...(await scene.claim({ limit: 20 }))];
  // 9,500 bytes are left: 95 small ones and not one more, however many asked at once; the large one waits.
  expect(jobs).toHaveLength(95);
  expect(new Set(jobs.map((job) => job.id)).size).toBe(95);
  expect(jobs.some((job) => job.key === 'L')).toBe(false);
  expect(await scene.value(`pgfresh.is_quota_exceeded('paid')`)).toBe(true);

  // What cost less than was feared makes room again.
  await scene.complete(jobs, 50);
  expect(await scene.value(`pgfresh.is_quota_exceeded('paid')`)).toBe(false);
  expect(await scene.claim({ limit: 500 })).not.toHaveLength(0);
});

it('contract 6: background work stops at nine tenths of the cap, and what people look at goes on', async () => {
  const scene = await QueueScene.open();
  await scene.source('paid', { quotaBytes: 1_000_000, window: '1 day' });
  await scene.type('small', 'paid', 100);
  await scene.queue.enqueue(scene.db, 'small', 'background', { priority: -1 });
  await scene.queue.enqueue(scene.db, 'small', 'viewed', { priority: 1 });
  const correct = (bytes: number) =>
    scene.db.query(
      `insert into pgfresh.usage_corrections (source, bytes, reason) values ('paid', $1::bigint, 'test')`,
      [bytes],
    );
  await correct(950_000 * 0.9);
  expect((await scene.claim()).map(({ key }) => key)).toEqual(['viewed']);
  await correct(-200);
  expect((await scene.claim()).map(({ key }) => key)).toEqual(['background']);
});

it('contract 6: of a source whose quota is used up nothing is planned, whoever plans, until there is room again', async () => {
  const scene = await PlannerScene.open();
  await scene.queue.source('paid', { quotaBytes: 1_000_000, window: '1 day' });
  await scene.db.query('create table symbols (symbol text primary key)');
  await scene.db.query(`insert into symbols values ('S1'), ('S2')`);
  const scheduled = {
    refresh_strategy: `'scheduled'`,
    refresh_schedule: `'0 3 * * *'`,
    key_table: `'symbols'`,
    key_table_column: `'symbol'`,
  };
  for (const source of ['paid', 'market']) {
    const sizes = { estimated_data_size_bytes: '100' };
    await scene.type(`${source}-viewed`, { source, columns: sizes });
    await scene.type(`${source}-scheduled`, { source, columns: { ...sizes, ...scheduled } });
    await scene.rows(`${source}-viewed`, ['STALE'], '1 day');
    await scene.look(`${source}-viewed`, ['STALE', 'MISSING']);
    await scene.db.query('select pgfresh_engine.open_refresh_cycle($1::text, pgfresh.clock())', [
      `${source}-scheduled`,
    ]);
  }
  await scene.db.query(`insert into pgfresh.usage_corrections (source, bytes, reason) values ('paid', 950000, 'test')`);
  expect(await scene.queue.value(`pgfresh.is_quota_exceeded('paid')`)).toBe(true);

  const plan = async (): Promise<string[]> => {
    await scene.tick();
    await scene.sweep();
    for (const source of ['paid', 'market']) {
      await scene.db.query(`select pgfresh.upsert_active_subscription('ann', 'NEW', $1::text)`, [`${source}-viewed`]);
      await scene.db.query(
        `select pgfresh.check_and_queue_stale_batch('BATCH', array[$1::text]) from set_config('pgfresh.user_id', 'ann', true)`,
        [`${source}-viewed`],
      );
    }
    await scene.db.query('select pgfresh.queue_scheduled_refreshes()');
    return (await scene.open()).map((job) => job.split(' ').slice(0, 2).join(' '));
  };
  const jobs = (source: string) => [
    ...['S1', 'S2'].map((key) => `${source}-scheduled ${key}`),
    ...['BATCH', 'MISSING', 'NEW', 'STALE'].map((key) => `${source}-viewed ${key}`),
  ];
  expect(await plan()).toEqual(jobs('market'));
  // A day later what was used has left the window.
  await scene.clock.advance('26 hours');
  expect(await plan()).toEqual([...jobs('market'), ...jobs('paid')]);
});

it('contract 16: maintenance gives up while a long reader holds the table, says so, and the queue goes on', async () => {
  const scene = await QueueScene.open();
  const { db, queue } = scene;
  const maintain = () =>
    scene.value<{ made: number; dropped: number; busy: number }>('pgfresh.maintain_queue_partitions(7, 30)');
  const old = 'history_succeeded_20200101';
  await db.query(
    `create table pgfresh_engine.${old} partition of pgfresh_engine.history_succeeded for values from ('2020-01-01') to ('2020-01-02')`,
  );
  const client = new pg.Client(scene.url);
  const said: (string | undefined)[] = [];
  client.on('notice', ({ message }) => said.push(message));
  onTestFinished(() => client.end());
  await client.connect();
  await db.transact('reader', async (reader) => {
    await reader.query(`select count(*) from pgfresh_engine.${old}`);
    expect(await maintain()).toMatchObject({ made: 0, dropped: 0, busy: 1 });
    await client.query('select pgfresh.maintain_queue_partitions(7, 30)');
    expect(said).toEqual([`partition ${old} is in use and stays until the next run`]);
    // Also while it waits for its lock.
    const maintaining = maintain();
    await Promise.race([blocked(db), maintaining]);
    await queue.enqueue(db, 'quote', 'A');
    const jobs = await scene.claim();
    const ends = jobs.map(({ id, attempt, request }) => ({ id, attempt, request, bytes: 0 }));
    const ended = await db.transact('end', (tx) => queue.complete(tx, ends), { attempts: 1, lockTimeoutMs: 1_000 });
    expect(ended).toHaveLength(1);
    expect(await maintaining).toMatchObject({ made: 0, dropped: 0, busy: 1 });
  });
  expect(await maintain()).toMatchObject({ made: 0, dropped: 1, busy: 0 });
  expect(await maintain()).toMatchObject({ made: 0, dropped: 0, busy: 0 });
});
