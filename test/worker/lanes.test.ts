import { describe, expect, it } from 'vitest';
import { blocked } from '../harness/blocked.ts';
import { openDatabase } from '../harness/database.ts';
import { openSession } from '../harness/session.ts';
import { quoteType, RefreshScene } from '../refresh/scene.ts';
import { drained, startWorker, until } from './scene.ts';

const keysOf = (count: number, prefix = 'K') => Array.from({ length: count }, (_, n) => `${prefix}${n}`);
const plain = (name: string, table = name) =>
  quoteType({
    name,
    table,
    request: (key) => ({ url: `/quote/${key}` }),
    sourceTimestamp: undefined,
    rows: (answer) => ({ symbol: (answer as { symbol: string }).symbol, price: 1 }),
  });
const endedOf = (scene: RefreshScene, dataType: string) =>
  scene.seen.filter((event) => event.type === 'refresh.ended' && event.dataType === dataType);
const lockedOf = (scene: RefreshScene) =>
  scene.seen.flatMap((event) => (event.type === 'worker.locked' ? [`${event.dataType} ${event.locked}`] : []));

/** Locks a table as ALTER TABLE does, until the returned function is called. */
async function lockTable(scene: RefreshScene, table: string): Promise<() => Promise<unknown>> {
  const session = await openSession(scene.url);
  await session.query(`begin; lock table ${table} in access exclusive mode`);
  return () => session.query('rollback');
}

describe('sound 2: a worker whose table is locked', () => {
  it('keeps the answers, fetches nothing more of it, and commits them when it is free', async () => {
    const scene = await RefreshScene.open([quoteType(), plain('plain')]);
    const keys = keysOf(6);
    for (const key of keys) scene.quote(key, 1);
    const worker = await startWorker(scene);
    const unlock = await lockTable(scene, 'quote');
    await scene.enqueue('quote', keys.slice(0, 2));
    await until(() => lockedOf(scene).length === 1);
    // These are not called, though the worker claims others meanwhile.
    await scene.enqueue('quote', keys.slice(2));
    await scene.enqueue('plain', keys);
    await until(() => endedOf(scene, 'plain').length === keys.length);
    expect(scene.provider.asked).toHaveLength(2 + keys.length);
    await unlock();
    const since = performance.now();
    await drained(scene);
    expect(performance.now() - since).toBeLessThan(10_000);
    expect(lockedOf(scene)).toEqual(['quote true', 'quote false']);
    expect(scene.provider.asked).toHaveLength(2 * keys.length);
    expect(await scene.value(`select sum(calls)::int from pgfresh_engine.usage`)).toBe(2 * keys.length);
    expect(await scene.value(`select sum(retries)::int from pgfresh_engine.history_succeeded`)).toBe(0);
    await worker.stop();
  });

  it('goes on with its other keys where only a row is locked', async () => {
    const scene = await RefreshScene.open();
    const keys = keysOf(20);
    for (const key of keys) scene.quote(key, 1);
    await scene.db.query(`insert into quote values ('K7', 0)`);
    const session = await openSession(scene.url);
    await session.query(`begin; select from quote where symbol = 'K7' for update`);
    const worker = await startWorker(scene);
    await scene.enqueue('quote', keys);
    await until(() => endedOf(scene, 'quote').length === 19);
    // What comes behind it does not wait for it.
    scene.quote('NEXT', 1);
    await scene.enqueue('quote', ['NEXT']);
    await until(() => endedOf(scene, 'quote').length === 20);
    await session.query('rollback');
    await drained(scene);
    expect(scene.provider.asked).toHaveLength(21);
    expect(lockedOf(scene)).toEqual([]);
    expect(await scene.value(`select sum(retries)::int from pgfresh_engine.history_succeeded`)).toBe(0);
    await worker.stop();
  });

  it('does not wait for it when the data type has moved to another table', async () => {
    const scene = await RefreshScene.open();
    for (const key of ['A', 'B']) scene.quote(key, 1);
    await scene.db.query('create table public.newer (like public.quote including all)');
    const worker = await startWorker(scene);
    const unlock = await lockTable(scene, 'quote');
    await scene.enqueue('quote', ['A']);
    await until(() => lockedOf(scene).length === 1);
    await scene.db.query(`update pgfresh.data_type_registry set table_name = 'newer' where data_type = 'quote'`);
    await scene.enqueue('quote', ['B']);
    await until(async () => (await scene.rows('newer')).length > 0);
    expect(await scene.rows('newer')).toMatchObject([{ symbol: 'B' }]);
    await unlock();
    await drained(scene);
    expect(await scene.rows('quote')).toEqual([]);
    await worker.stop();
  });

  it('puts the answers back with their cost when it has to stop', async () => {
    const scene = await RefreshScene.open();
    for (const key of ['A', 'B']) scene.quote(key, 1);
    const worker = await startWorker(scene, { drainMs: 50 });
    const unlock = await lockTable(scene, 'quote');
    await scene.enqueue('quote', ['A', 'B']);
    await until(() => lockedOf(scene).length === 1);
    await worker.stop();
    await unlock();
    expect(await scene.db.query(`select status, retry_count from pgfresh.api_call_queue`)).toMatchObject([
      { status: 'pending', retry_count: 0 },
      { status: 'pending', retry_count: 0 },
    ]);
    expect(await scene.value(`select sum(calls)::int from pgfresh_engine.usage`)).toBe(2);
  });
});

describe('sound 14: commits that wait for locks', () => {
  it('delay no other type, also where there are more of them than connections', async () => {
    const names = keysOf(6, 'table');
    const scene = await RefreshScene.open(
      [...names.map((name) => plain(name)), plain('plain')],
      [],
      '10s',
      undefined,
      names.map(
        (name) => `create table public.${name} (symbol text primary key, price numeric, fetched_at timestamptz)`,
      ),
    );
    const keys = keysOf(30);
    for (const key of keys) scene.quote(key, 1);
    const db = openDatabase(scene.url, { events: scene.events, poolSize: 4 });
    const worker = await startWorker(scene, { db });
    /** How long each of these takes, one after the other. */
    const refresh = async (some: readonly string[]): Promise<number[]> => {
      const times: number[] = [];
      for (const key of some) {
        const [since, before] = [performance.now(), endedOf(scene, 'plain').length];
        await scene.enqueue('plain', [key]);
        await until(() => endedOf(scene, 'plain').length > before);
        times.push(performance.now() - since);
      }
      return times.toSorted((a, b) => a - b);
    };
    const undisturbed = await refresh(keys.slice(0, 10));
    const unlock = await lockTable(scene, names.join(', '));
    await scene.enqueue(names[0]!, ['K0']);
    await blocked(scene.db);
    // Its first commit still waits.
    scene.quote('FIRST', 1);
    await scene.enqueue('plain', ['FIRST']);
    await until(() => endedOf(scene, 'plain').length === 11);
    expect(lockedOf(scene)).toEqual([]);
    for (const name of names.slice(1)) await scene.enqueue(name, ['K0']);
    await until(() => lockedOf(scene).length === names.length);
    // The planner hears of it.
    const noted = `select count(*)::int from pgfresh_engine.type_timeout where last_where = 'commit'`;
    await until(async () => (await scene.value<number>(noted)) === names.length);
    const commits = await refresh(keys.slice(10));
    // Behind one that waits for a lock it would take seconds, and on a busy machine everything takes longer.
    expect(commits.at(-1)).toBeLessThan(Math.max(1_000, 4 * undisturbed.at(-1)!));
    expect(commits[10]).toBeLessThan(Math.max(250, 4 * undisturbed[5]!));
    await unlock();
    await drained(scene);
    expect(scene.provider.asked).toHaveLength(names.length + keys.length + 1);
    await worker.stop();
    await db.close();
  });
});

it('sound 6: a worker that stops while a commit waits for a lock books its calls before it has stopped', async () => {
  const scene = await RefreshScene.open();
  scene.quote('A', 1);
  await scene.refresh(['A']);
  const other = await openSession(scene.url);
  await other.query(`begin; update quote set name = 'held'`);
  const worker = await startWorker(scene, { drainMs: 0 });
  await scene.enqueue('quote', ['A']);
  await blocked(scene.db);
  await worker.stop();
  expect(await scene.value('select sum(calls)::int from pgfresh_engine.usage')).toBe(2);
  expect(scene.provider.asked).toHaveLength(2);
  await other.query('rollback');
});
