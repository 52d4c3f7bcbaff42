import { beforeAll, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import type { Database, Queryable } from '../../src/database/index.ts';
import { openDatabase } from '../harness/database.ts';
import { createLogin } from '../harness/login.ts';
import { seededRandom } from '../harness/random.ts';
import { expectNoChange, expectRefusal } from '../harness/refusal.ts';
import { openSession } from '../harness/session.ts';
import { RegistryScene } from '../registry/scene.ts';

let scene: RegistryScene;
beforeAll(async () => {
  scene = await RegistryScene.open({ poolSize: 12 });
});

const noon = '2026-01-05T12:00:00Z';

beforeEach(async () => {
  await scene.db.query(`
    delete from pgfresh.data_type_registry; delete from pgfresh_engine.process where kind = 'gateway'; delete from pgfresh_engine.viewer_calls; delete from pgfresh.warnings;
    update pgfresh_engine.planner_state set demand_held_until = null; truncate mirror`);
  await scene.clock.set(noon);
  await scene.add('quote');
});

const keys = (count: number): string[] => Array.from({ length: count }, (_, n) => `K${n}`);
const subscriptions = () =>
  scene.db.query<{ user_id: string; key: string; subscribed_at: Date; last_seen_at: Date }>(
    'select user_id, key, subscribed_at, last_seen_at from pgfresh_engine.subscription order by user_id, key',
  );
const at = (seconds: number) => new Date(Date.parse(noon) + seconds * 1_000);

const asUser = (user: string, statement: string) =>
  scene.db.transact('as a user', async (tx) => {
    await tx.query(`select set_config('pgfresh.user_id', $1::text, true)`, [user]);
    return tx.query(statement);
  });

describe('a subscription', () => {
  it('begins once, is kept by its heartbeat, and ends by leaving', async () => {
    expect(await scene.subscribe('ann', 'A')).toMatchObject({ result: 'subscribed', data_type: 'quote', key: 'A' });
    await scene.clock.advance('80 seconds');
    expect(await scene.subscribe('ann', 'A')).toEqual({ result: 'seen', data_type: 'quote', key: 'A' });
    expect(await scene.subscribe('ben', 'A')).toMatchObject({ result: 'subscribed' });
    expect(await subscriptions()).toEqual([
      { user_id: 'ann', key: 'A', subscribed_at: at(0), last_seen_at: at(80) },
      { user_id: 'ben', key: 'A', subscribed_at: at(80), last_seen_at: at(80) },
    ]);
    await scene.tick();
    expect(await scene.pair('A')).toMatchObject({ viewers: 2, demanded: true });
    expect(await scene.leave('ann', 'A')).toBe(true);
    expect(await scene.leave('ann', 'A')).toBe(false);
    expect(await scene.leave('ann', 'B')).toBe(false);
    await scene.tick();
    expect(await scene.pair('A')).toMatchObject({ viewers: 1, demanded: true });
  });

  it('sound 14: does not wait for a locked table, and is planned by the next tick after that', async () => {
    await scene.db.query('create table other (like mirror including all)');
    await scene.add('other', { table_name: 'other' });
    const locker = await openSession(scene.url);
    onTestFinished(async () => void (await locker.query('rollback')));
    await locker.query('begin');
    await locker.query('lock table mirror in access exclusive mode');
    expect(await scene.subscribe('ann', 'A')).toMatchObject({ result: 'subscribed', planned: { queued: 0 } });
    const batch = `select pgfresh.check_and_queue_stale_batch('B', '{quote, other}') as answer`;
    expect(await asUser('ben', batch)).toEqual([
      {
        answer: {
          quote: expect.objectContaining({ queued: 0 }) as unknown,
          other: expect.objectContaining({ queued: 1 }) as unknown,
        },
      },
    ]);
    await locker.query('rollback');
    await scene.db.query('delete from pgfresh_engine.type_timeout');
    await scene.clock.advance('1 second');
    await scene.tick();
    expect(await scene.queued()).toEqual(['A']);
  });

  it('sound 14: does not wait for a locked table of keys, and neither do other types', async () => {
    await scene.db.query(`create table listing (key text primary key); insert into listing values ('A')`);
    await scene.add('listed', { key_table: 'listing', key_table_column: 'key' });
    const locker = await openSession(scene.url);
    onTestFinished(async () => void (await locker.query('rollback')));
    await locker.query('begin');
    await locker.query('lock table listing in access exclusive mode');
    // As an application connects: it has no lock_timeout.
    const viewer = await openSession(scene.url);
    await viewer.query(`set statement_timeout = '2s'; set pgfresh.user_id = 'ann'`);
    const batch = `select pgfresh.check_and_queue_stale_batch('A', '{listed, quote}') as answer`;
    expect(await viewer.query(batch)).toEqual([
      { answer: { listed: { skipped: 'locked' }, quote: expect.objectContaining({ queued: 1 }) as unknown } },
    ]);
    await expect(viewer.query(`select pgfresh.upsert_active_subscription(null, 'A', 'listed')`)).rejects.toThrow(
      'lock timeout',
    );
    await locker.query('rollback');
    expect(await viewer.query(batch)).toMatchObject([{ answer: { listed: { queued: 1 } } }]);
  });

  it('is written at every second of the heartbeats that come once a minute', async () => {
    const written: Date[] = [];
    for (const seconds of [0, 60, 120, 180, 240]) {
      await scene.clock.set(at(seconds));
      await scene.subscribe('ann', 'A');
      written.push((await subscriptions())[0]!.last_seen_at);
    }
    expect(written).toEqual([0, 0, 120, 120, 240].map(at));
  });

  it('ends after five silent minutes, whether or not its last heartbeat was written, and the cleanup touches no other', async () => {
    await scene.subscribe('ann', 'A');
    await scene.clock.set(at(74));
    await scene.subscribe('ann', 'A');
    await scene.subscribe('ben', 'A');
    await scene.tick();
    const rows = await subscriptions();
    await scene.clock.set(at(74 + 300));
    expect(await scene.cleanUp()).toEqual({ removed: 0, nodes: 0 });
    expect(await subscriptions()).toEqual(rows);
    await scene.clock.set(at(375.5));
    expect(await scene.cleanUp()).toEqual({ removed: 1, nodes: 0 });
    expect(await subscriptions()).toEqual([rows[1]]);
    await scene.clock.set(at(74 + 375.5));
    expect(await scene.cleanUp()).toEqual({ removed: 1, nodes: 0 });
    await scene.tick();
    expect(await scene.pair('A')).toMatchObject({ viewers: 0, demanded: true });
  });

  it('that is being cleaned up by another is left to him', async () => {
    await scene.subscribe('ann', 'A');
    await scene.clock.set(at(400));
    await scene.db.transact('cleanup', async (tx) => {
      await tx.query('select pgfresh.cleanup_stale_subscriptions()');
      expect(await scene.cleanUp()).toEqual({ skipped: 'locked' });
    });
    expect(await subscriptions()).toEqual([]);
  });

  it('whose heartbeat comes while it is cleaned up stays', async () => {
    await scene.subscribe('ann', 'A');
    await scene.clock.set(at(400));
    await scene.db.transact('heartbeat', async (tx) => {
      await scene.subscribe('ann', 'A', 'quote', tx);
      expect(await scene.cleanUp()).toMatchObject({ removed: 0 });
    });
    expect(await subscriptions()).toMatchObject([{ last_seen_at: at(400) }]);
  });
});

describe('a screen of pairs', () => {
  const look = (pairs: readonly (readonly [string, string])[], user: string | null = 'ann') =>
    scene.value<Record<string, unknown>[]>('pgfresh.upsert_active_subscriptions($1::jsonb, $2::text)', [
      JSON.stringify(pairs.map(([data_type, key]) => ({ data_type, key }))),
      user,
    ]);
  const calls = () => scene.value(`(select calls from pgfresh_engine.viewer_calls where user_id = 'ann')`);

  it('has an answer for each, and a refused one does not affect the others', async () => {
    await scene.add('news', { normalise: 'upper', key_pattern: '^[A-Z]+$' });
    await scene.subscribe('ann', 'B');
    await scene.clock.advance('80 seconds');
    expect(
      await look([
        ['quote', 'A'],
        ['news', 'a'],
        ['quote', 'B'],
        ['qoute', 'A'],
        ['news', '1'],
        ['quote', ''],
        ['quote', 'A'],
        ['news', 'A'],
      ]),
    ).toEqual([
      { result: 'subscribed', data_type: 'quote', key: 'A' },
      { result: 'subscribed', data_type: 'news', key: 'A' },
      { result: 'seen', data_type: 'quote', key: 'B' },
      {
        result: 'refused',
        data_type: 'qoute',
        key: 'A',
        code: 'PGF_TYPE_UNKNOWN',
        problem: `there is no data type 'qoute'`,
      },
      { result: 'refused', data_type: 'news', key: '1', code: 'PGF_KEY_UNKNOWN', problem: `'1' is not a key of news` },
      expect.objectContaining({ result: 'refused', key: '', code: 'PGF_KEY_INVALID' }),
      { result: 'subscribed', data_type: 'quote', key: 'A' },
      { result: 'subscribed', data_type: 'news', key: 'A' },
    ]);
    expect(await subscriptions()).toMatchObject([
      { key: 'A', last_seen_at: at(80) },
      { key: 'A', last_seen_at: at(80) },
      { key: 'B', subscribed_at: at(0), last_seen_at: at(80) },
    ]);
    // At once, as for a single one.
    expect([await scene.queued(), await scene.queued('news')]).toEqual([['A', 'B'], ['A']]);
  });

  it('is no call if its heartbeats take their time, one if they do not, and one for each that is new', async () => {
    const screen = keys(10).map((key) => ['quote', key] as const);
    await look(screen);
    expect(await calls()).toBe(10);
    await scene.clock.advance('31 seconds');
    expect((await look(screen)).every(({ result }) => result === 'seen')).toBe(true);
    expect(await calls()).toBe(10);
    await scene.clock.advance('50 seconds');
    await look(screen);
    await scene.clock.advance('10 seconds');
    await look(screen);
    expect(await calls()).toBe(1);
    expect(new Set((await subscriptions()).map(({ last_seen_at: seen }) => seen.getTime()))).toEqual(
      new Set([at(81).getTime()]),
    );
  });

  it('is refused where the user has 500 already', async () => {
    const many = keys(498).map((key) => ['quote', key] as const);
    await look(many);
    expect(
      (await look(['A', 'B', 'C'].map((key) => ['quote', key] as const))).map(({ result, code }) => code ?? result),
    ).toEqual(['subscribed', 'subscribed', 'PGF_TOO_MANY_SUBSCRIPTIONS']);
    expect(await subscriptions()).toHaveLength(500);
  });

  it('skips pairs whose table of keys is locked, after one wait', async () => {
    await scene.db.query('create table if not exists listed (key text primary key)');
    await scene.add('news', { key_table: 'listed', key_table_column: 'key' });
    const stranger = await openSession(scene.url);
    await stranger.query('begin; lock table listed in access exclusive mode');
    expect(
      await look([
        ['news', 'A'],
        ['quote', 'A'],
        ['news', 'B'],
      ]),
    ).toEqual([
      { result: 'skipped', data_type: 'news', key: 'A' },
      { result: 'subscribed', data_type: 'quote', key: 'A' },
      { result: 'skipped', data_type: 'news', key: 'B' },
    ]);
    await stranger.query('rollback');
  });
});

describe('the identity of', () => {
  let viewer: Database;
  let gateway: Database;
  let worker: Database;
  beforeAll(async () => {
    const open = async (role: string) => openDatabase((await createLogin(scene.url, role)).url, { poolSize: 1 });
    viewer = await open('pgfresh_viewer');
    gateway = await open('pgfresh_gateway');
    worker = await open('pgfresh_worker');
  });

  const within = (db: Database, settings: Record<string, string>, act: (tx: Queryable) => Promise<unknown>) =>
    db.transact('as a user', async (tx) => {
      for (const [name, value] of Object.entries(settings))
        await tx.query('select set_config($1::text, $2::text, true)', [name, value]);
      return act(tx);
    });
  const subscribeAs = (db: Database, settings: Record<string, string>, user: string | null = null) =>
    within(db, settings, (tx) => scene.subscribe(user, 'A', 'quote', tx));
  const users = async () => (await subscriptions()).map(({ user_id }) => user_id);

  it.each([
    ['claims', { 'request.jwt.claims': '{"sub": "ann", "role": "authenticated"}' }],
    ['a claim', { 'request.jwt.claim.sub': 'ann' }],
    ['a setting', { 'pgfresh.user_id': 'ann' }],
    [
      'claims before the rest',
      { 'request.jwt.claims': '{"sub": "ann"}', 'request.jwt.claim.sub': 'ben', 'pgfresh.user_id': 'cid' },
    ],
    [
      'a claim before a setting',
      { 'request.jwt.claims': '{}', 'request.jwt.claim.sub': 'ann', 'pgfresh.user_id': 'cid' },
    ],
  ])('a viewer is taken from %s', async (_, settings) => {
    expect(await subscribeAs(viewer, settings)).toMatchObject({ result: 'subscribed' });
    expect(await subscribeAs(viewer, settings, 'ann')).toMatchObject({ result: 'seen' });
    expect(await users()).toEqual(['ann']);
    for (const other of ['ben', 'ANN', 'ann '])
      await expectRefusal(subscribeAs(viewer, settings, other), 'PGF_VIEWER_OTHER');
    await expectRefusal(
      within(viewer, settings, (tx) => scene.leave('ben', 'A', 'quote', tx)),
      'PGF_VIEWER_OTHER',
    );
    expect(await within(viewer, settings, (tx) => scene.leave(null, 'A', 'quote', tx))).toBe(true);
    expect(await users()).toEqual([]);
  });

  it.each([
    ['nothing', {}, 'PGF_VIEWER_UNKNOWN'],
    [
      'empty settings',
      { 'request.jwt.claims': '', 'request.jwt.claim.sub': '', 'pgfresh.user_id': '' },
      'PGF_VIEWER_UNKNOWN',
    ],
    ['claims without a sub', { 'request.jwt.claims': '{"role": "anon"}' }, 'PGF_VIEWER_UNKNOWN'],
    ['claims with null', { 'request.jwt.claims': '{"sub": null}' }, 'PGF_VIEWER_UNKNOWN'],
    ['claims that are a list', { 'request.jwt.claims': '["sub"]' }, 'PGF_VIEWER_UNKNOWN'],
    [
      'claims that are not JSON',
      { 'request.jwt.claims': '{"sub": "ann"', 'pgfresh.user_id': 'ann' },
      'PGF_VIEWER_UNKNOWN',
    ],
    [
      'claims that PostgreSQL cannot hold',
      { 'request.jwt.claims': '{"sub": "\\u0000"}', 'pgfresh.user_id': 'ann' },
      'PGF_VIEWER_UNKNOWN',
    ],
    ['an empty sub', { 'request.jwt.claims': '{"sub": ""}', 'pgfresh.user_id': 'ann' }, 'PGF_ARGUMENT_INVALID'],
    ['a long sub', { 'request.jwt.claims': JSON.stringify({ sub: 'x'.repeat(201) }) }, 'PGF_ARGUMENT_INVALID'],
    ['a sub in two lines', { 'pgfresh.user_id': 'a\nb' }, 'PGF_ARGUMENT_INVALID'],
  ])('a viewer with %s is refused, whatever he says', async (_, settings, code) => {
    await expectNoChange(scene.db, async () => {
      await expectRefusal(subscribeAs(viewer, settings), code);
      await expectRefusal(
        within(viewer, settings, (tx) => scene.leave(null, 'A', 'quote', tx)),
        code,
      );
      await expectRefusal(
        within(viewer, settings, (tx) => tx.query(`select pgfresh.check_and_queue_stale_batch('A', '{quote}')`)),
        code,
      );
      if (code === 'PGF_VIEWER_UNKNOWN') await expectRefusal(subscribeAs(viewer, settings, 'ann'), code);
    });
  });

  it('everybody is what gateways, workers and the owner say it is', async () => {
    const owner = openDatabase((await createLogin(scene.url, await scene.value('current_user'))).url, { poolSize: 1 });
    for (const db of [gateway, worker, owner, scene.db]) {
      expect(await subscribeAs(db, {}, 'ben')).toMatchObject({ result: 'subscribed' });
      expect(await subscribeAs(db, { 'pgfresh.user_id': 'ann' }, 'ben')).toMatchObject({ result: 'seen' });
      expect(await subscribeAs(db, { 'pgfresh.user_id': 'ann' })).toMatchObject({ result: 'subscribed' });
      await expectRefusal(subscribeAs(db, {}), 'PGF_VIEWER_UNKNOWN');
      expect(await users()).toEqual(['ann', 'ben']);
      for (const user of ['ann', 'ben']) await within(db, {}, (tx) => scene.leave(user, 'A', 'quote', tx));
    }
  });

  it('a gateway that has taken the role of a viewer is that of a viewer', async () => {
    const both = openDatabase((await createLogin(scene.url, 'pgfresh_gateway', 'pgfresh_viewer')).url, { poolSize: 1 });
    const asViewer = { role: 'pgfresh_viewer', 'pgfresh.user_id': 'ann' };
    await expectRefusal(subscribeAs(both, asViewer, 'ben'), 'PGF_VIEWER_OTHER');
    expect(await subscribeAs(both, asViewer)).toMatchObject({ result: 'subscribed' });
  });
});

describe('a user', () => {
  it('has at most 500 subscriptions, also when two are asked for at once', async () => {
    await scene.db.query(`insert into pgfresh_engine.subscription (user_id, type_id, key, subscribed_at, last_seen_at)
      select 'ann', (select type_id from pgfresh.data_type_registry), 'K' || n, pgfresh.clock(), pgfresh.clock() from generate_series(1, 499) as n`);
    const results = await Promise.allSettled(['A', 'B', 'C'].map((key) => scene.subscribe('ann', key)));
    expect(results.map(({ status }) => status).toSorted()).toEqual(['fulfilled', 'rejected', 'rejected']);
    await expectRefusal(scene.subscribe('ann', 'D'), 'PGF_TOO_MANY_SUBSCRIPTIONS');
    expect(await scene.subscribe('ann', 'K7')).toMatchObject({ result: 'seen' });
    expect(await scene.subscribe('ben', 'D')).toMatchObject({ result: 'subscribed' });
    await scene.leave('ann', 'K7');
    expect(await scene.subscribe('ann', 'D')).toMatchObject({ result: 'subscribed' });
  });

  it('calls at most 1200 times a minute, and the next minute begins anew', async () => {
    await scene.clock.set('2026-01-05T12:00:30Z');
    await scene.db.query(
      `select pgfresh.upsert_active_subscription('ann', 'A', 'quote') from generate_series(1, 1198)`,
    );
    await scene.leave('ann', 'B');
    await asUser('ann', `select pgfresh.check_and_queue_stale_batch('A', '{quote}')`);
    await scene.clock.set('2026-01-05T12:00:59.999Z');
    await expectNoChange(scene.db, async () => {
      await expectRefusal(scene.subscribe('ann', 'A'), 'PGF_TOO_MANY_CALLS');
      await expectRefusal(scene.leave('ann', 'B'), 'PGF_TOO_MANY_CALLS');
      await expectRefusal(
        asUser('ann', `select pgfresh.check_and_queue_stale_batch('A', '{quote}')`),
        'PGF_TOO_MANY_CALLS',
      );
    });
    expect(await scene.leave('ann', 'A')).toBe(true);
    await scene.subscribe('ben', 'A');
    await scene.clock.set('2026-01-05T12:01:00Z');
    expect(await scene.subscribe('ann', 'B')).toMatchObject({ result: 'subscribed' });
    expect(await scene.value(`(select calls from pgfresh_engine.viewer_calls where user_id = 'ann')`)).toBe(1);
  });

  it('is not counted for a heartbeat that keeps its time, but for every one that does not', async () => {
    const calls = () => scene.value(`(select calls from pgfresh_engine.viewer_calls where user_id = 'ann')`);
    await scene.clock.set('2026-01-05T12:00:00Z');
    await scene.subscribe('ann', 'A');
    await scene.clock.set('2026-01-05T12:00:29.999Z');
    expect(await scene.subscribe('ann', 'A')).toMatchObject({ result: 'seen' });
    expect(await calls()).toBe(2);
    await scene.clock.set('2026-01-05T12:00:59.999Z');
    expect(await scene.subscribe('ann', 'A')).toMatchObject({ result: 'seen' });
    expect(await calls()).toBe(2);
  });
});

describe('the last viewer', () => {
  const look = async () => ({ ...(await scene.tick()), ...(await scene.pair('A')) });

  it('leaves the pair warm for 15 s', async () => {
    await scene.subscribe('ann', 'A');
    await scene.tick();
    await scene.leave('ann', 'A');
    expect(await look()).toMatchObject({ demanded: true, viewers: 0, warm_until: at(15) });
    await scene.clock.set(at(14.999));
    expect(await look()).toMatchObject({ demanded: true });
    await scene.clock.set(at(15));
    expect(await look()).toMatchObject({ demanded: false, warm_until: null });
  });

  it('who comes back within them finds the pair demanded, and nothing new is queued', async () => {
    await scene.db.query(`insert into mirror values ('A', pgfresh.clock())`);
    await scene.subscribe('ann', 'A');
    await scene.tick();
    for (let turn = 1; turn <= 5; turn++) {
      await scene.leave('ann', 'A');
      expect(await look()).toMatchObject({ demanded: true, viewers: 0 });
      await scene.clock.set(at(turn * 10));
      expect(await scene.subscribe('ann', 'A')).not.toHaveProperty('planned');
      expect(await look()).toMatchObject({ demanded: true, viewers: 1, warm_until: null });
    }
    await scene.clock.set(at(59));
    expect(await look()).toMatchObject({ demanded: true, viewers: 1 });
    expect(await scene.queued()).toEqual([]);
    // Its time of the next look has stayed what it was.
    await scene.clock.set(at(60));
    await scene.tick();
    expect(await scene.queued()).toEqual(['A']);
  });

  it('who left before anybody took note still leaves it warm', async () => {
    await scene.subscribe('ann', 'A');
    await scene.leave('ann', 'A');
    expect(await look()).toMatchObject({ demanded: true, viewers: 0 });
    await scene.clock.set(at(15));
    expect(await look()).toMatchObject({ demanded: false });
  });

  it('is forgotten: who comes back later is the first again', async () => {
    await scene.subscribe('ann', 'A');
    await scene.leave('ann', 'A');
    await scene.finish();
    await scene.clock.set(at(100));
    await scene.tick();
    expect(await scene.subscribe('ann', 'A')).toMatchObject({ planned: { queued: 1 } });
  });
});

describe('when all fall silent at once', () => {
  const silence = () => scene.clock.advance('376 seconds');
  const lost = async () => (await scene.warnings()).find(({ code }) => code === 'demand_lost')?.count ?? 0;
  const arrive = async (count: number, users = ['ann']) => {
    for (const user of users) for (const key of keys(count)) await scene.subscribe(user, key);
    await scene.tick();
  };
  const demanded = () => scene.value('(select count(*) from pgfresh_engine.pairs where demanded)');

  it('10 pairs are held for 120 s, once', async () => {
    await arrive(10);
    await silence();
    for (const wait of ['0', '60 seconds', '59.9 seconds']) {
      await scene.clock.advance(wait);
      expect(await scene.cleanUp()).toEqual({ skipped: 'held' });
      await scene.tick();
      expect(await demanded()).toBe(10);
    }
    await scene.clock.advance('0.1 seconds');
    expect(await scene.cleanUp()).toEqual({ removed: 10, nodes: 0 });
    expect(await lost()).toBe(1);
    await scene.tick();
    await scene.clock.advance('15 seconds');
    await scene.tick();
    expect(await demanded()).toBe(0);
  });

  it('fewer than 10 pairs are believed, however many users there were', async () => {
    await arrive(9, ['ann', 'ben', 'cid']);
    await silence();
    expect(await scene.cleanUp()).toEqual({ removed: 27, nodes: 0 });
    expect(await lost()).toBe(0);
  });

  it('but one, the others are believed', async () => {
    await arrive(12);
    await silence();
    await scene.subscribe('ben', 'K0');
    expect(await scene.cleanUp()).toEqual({ removed: 12, nodes: 0 });
    expect(await lost()).toBe(0);
  });

  it('those who leave are believed', async () => {
    await arrive(12);
    for (const key of keys(12)) await scene.leave('ann', key);
    await scene.tick();
    await scene.clock.advance('15 seconds');
    await scene.tick();
    expect(await demanded()).toBe(0);
    expect(await scene.cleanUp()).toEqual({ removed: 0, nodes: 0 });
  });

  it('a second time, after demand came back, they are held again', async () => {
    for (const turn of [1, 2, 3]) {
      await arrive(10);
      await silence();
      expect(await scene.cleanUp()).toEqual({ skipped: 'held' });
      expect(await lost()).toBe(turn);
      await scene.clock.advance('120 seconds');
      // All back before they were believed, or believed and then back.
      if (turn === 1) await arrive(10);
      expect(await scene.cleanUp()).toEqual({ removed: turn === 1 ? 0 : 10, nodes: 0 });
    }
  });

  it('and only some come back, the others are believed at once', async () => {
    await arrive(10);
    await silence();
    expect(await scene.cleanUp()).toEqual({ skipped: 'held' });
    await scene.subscribe('ann', 'K0');
    expect(await scene.cleanUp()).toEqual({ removed: 9, nodes: 0 });
  });
});

describe('the first who looks', () => {
  it('gets a job at once, before any tick; who comes next does not', async () => {
    expect(await scene.subscribe('ann', 'A')).toMatchObject({ planned: { checked: 1, missing: 1, queued: 1 } });
    expect(await scene.queued()).toEqual(['A']);
    expect(await scene.subscribe('ben', 'A')).not.toHaveProperty('planned');
    expect(await scene.queued()).toEqual(['A']);
  });

  it('gets none for what is fresh', async () => {
    await scene.db.query(`insert into mirror values ('A', pgfresh.clock())`);
    expect(await scene.subscribe('ann', 'A')).toMatchObject({ planned: { checked: 1, queued: 0 } });
    expect(await scene.queued()).toEqual([]);
  });

  it('is one of two at once: one job, and the second does not wait for the first', async () => {
    await scene.db.transact('first', async (tx) => {
      expect(await scene.subscribe('ann', 'A', 'quote', tx)).toMatchObject({ planned: { queued: 1 } });
      expect(await scene.subscribe('ben', 'A')).not.toHaveProperty('planned');
    });
    expect(await scene.queued()).toEqual(['A']);
  });

  it('is one of two at once at a pair that was known before: the second does not wait', async () => {
    await scene.subscribe('ann', 'A');
    await scene.leave('ann', 'A');
    await scene.finish();
    await scene.clock.set(at(100));
    await scene.tick();
    await scene.db.transact('first', async (tx) => {
      expect(await scene.subscribe('ann', 'A', 'quote', tx)).toMatchObject({ planned: { queued: 1 } });
      expect(await scene.subscribe('ben', 'A')).not.toHaveProperty('planned');
      await scene.value(
        `pgfresh_engine.set_node_demand(pgfresh_engine.register_process('gateway', 'test'), array[$1::int], '{A}', '{3}')`,
        [await scene.typeId()],
      );
      await asUser('cid', `select pgfresh.check_and_queue_stale_batch('A', '{quote}')`);
    });
    expect(await scene.queued()).toEqual(['A']);
    await scene.tick();
    expect(await scene.pair('A')).toMatchObject({ viewers: 5 });
  });

  it('who then fails leaves it to the second, and to the next tick', async () => {
    const failing = scene.db.transact('first', async (tx) => {
      await scene.subscribe('ann', 'A', 'quote', tx);
      expect(await scene.subscribe('ben', 'A')).toMatchObject({ result: 'subscribed' });
      throw new Error('of a test');
    });
    await expect(failing).rejects.toThrow('of a test');
    await scene.tick();
    expect(await scene.queued()).toEqual(['A']);
  });

  it('is one of 24 at once: one job', async () => {
    const answers = await Promise.all(Array.from({ length: 24 }, (_, n) => scene.subscribe(`user ${n}`, 'A')));
    expect(answers.filter(({ planned }) => planned)).toHaveLength(1);
    expect(await scene.queued()).toEqual(['A']);
    await scene.tick();
    expect(await scene.pair('A')).toMatchObject({ viewers: 24 });
  });
});

it('viewers are counted right while many sessions come and go at random', async () => {
  const random = seededRandom(7);
  const draw = (count: number) => Math.floor(random() * count);
  const session = async (): Promise<void> => {
    for (let act = 0; act < 40; act++) {
      const [user, key] = [`user ${draw(12)}`, `K${draw(6)}`];
      if (random() < 0.5) await scene.subscribe(user, key);
      else await scene.leave(user, key);
      if (random() < 0.15) await scene.tick();
    }
  };
  await Promise.all(Array.from({ length: 10 }, session));
  await scene.tick();
  const counted = await scene.db.query('select key, viewers from pgfresh_engine.pairs where viewers > 0 order by key');
  const live = await scene.db.query(
    'select key, count(*)::int as viewers from pgfresh_engine.subscription group by key order by key',
  );
  expect(counted).toEqual(live);
  expect(live.length).toBeGreaterThan(3);
  expect(await scene.value('(select count(*) from pgfresh_engine.demand_change)')).toBe(0);
});
