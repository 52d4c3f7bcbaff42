import { beforeEach, describe, expect, it } from 'vitest';
import { readSqlFiles, type Queryable } from '../../src/database/index.ts';
import { createLogin } from '../harness/login.ts';
import { openSession } from '../harness/session.ts';
import { RegistryScene } from '../registry/scene.ts';

const scene = await RegistryScene.open();
const login = async (role: string) => openSession((await createLogin(scene.url, role)).url);
const viewer = await login('pgfresh_viewer');
const monitor = await login('pgfresh_monitor');
const reader = await login('pg_read_all_data');

const as = (user: string) => viewer.query(`select set_config('request.jwt.claims', $1::text, false)`, [user]);
const claims = (sub: string) => JSON.stringify({ sub, role: 'authenticated' });
const seen = async (session: Queryable) =>
  (
    await session.query<{ row: string }>(
      `select concat_ws(' ', user_id, data_type, key) as row from pgfresh.active_subscriptions order by 1`,
    )
  ).map(({ row }) => row);

beforeEach(async () => {
  await scene.db.query(`
    delete from pgfresh.data_type_registry; delete from pgfresh_engine.subscription; delete from pgfresh_engine.demand_change;
    delete from pgfresh_engine.viewer_calls`);
  await viewer.query(`reset request.jwt.claims; reset pgfresh.user_id`);
  await scene.add('quote');
  for (const [user, key] of [
    ['ann', 'A'],
    ['ann', 'B'],
    ['ben', 'A'],
  ] as const)
    await scene.subscribe(user, key);
});

describe('active_subscriptions', () => {
  it('shows viewers their own rows, by claims or by the setting of a trusted session', async () => {
    expect(await seen(viewer)).toEqual([]);
    await as(claims('ann'));
    expect(await seen(viewer)).toEqual(['ann quote A', 'ann quote B']);
    await viewer.query(`reset request.jwt.claims; set pgfresh.user_id = 'ben'`);
    expect(await seen(viewer)).toEqual(['ben quote A']);
    await as('not JSON');
    await expect(seen(viewer)).rejects.toThrow('PGF_VIEWER_UNKNOWN');
  });

  it('shows all of them to roles that may read every table, and not silently none', async () => {
    const all = ['ann quote A', 'ann quote B', 'ben quote A'];
    expect(await seen(reader)).toEqual(all);
    expect(await reader.query('select count(*)::int from pgfresh_engine.subscription')).toEqual([{ count: 3 }]);
  });

  it('has the policies of this version, also where an earlier one has made others', async () => {
    const file = (await readSqlFiles()).functions.find(({ name }) => name === 'api/subscriptions')!;
    const policies = `select oid, polname as name from pg_policy where polrelid = 'pgfresh_engine.subscription'::regclass order by polname`;
    const before = await scene.db.query(policies);
    expect(before).toMatchObject([{ name: 'all' }, { name: 'own' }]);
    await scene.db.query(file.text);
    expect(await scene.db.query(policies)).toEqual(before);
    await scene.db.query(`
      alter policy "all" on pgfresh_engine.subscription to pgfresh_monitor using (false);
      comment on policy "all" on pgfresh_engine.subscription is null`);
    expect(await seen(monitor)).toEqual([]);
    await scene.db.query(file.text);
    expect(await seen(reader)).toEqual(await seen(monitor));
    expect(await seen(monitor)).toHaveLength(3);
  });

  it('shows monitors and the owner all of them, by the names that data types have now', async () => {
    await scene.change('quote', { data_type: 'price' });
    const all = ['ann price A', 'ann price B', 'ben price A'];
    expect([await seen(monitor), await seen(scene.db)]).toEqual([all, all]);
    const columns = await monitor.query(
      `select attname as name from pg_attribute where attrelid = 'pgfresh.active_subscriptions'::regclass and attnum > 0 order by attnum`,
    );
    expect(columns).toEqual(['user_id', 'key', 'data_type', 'subscribed_at', 'last_seen_at'].map((name) => ({ name })));
  });

  it('lets a viewer leave by deleting a row, and only their own', async () => {
    await as(claims('ann'));
    await scene.db.query('delete from pgfresh_engine.demand_change');
    expect(
      await viewer.query(
        `delete from pgfresh.active_subscriptions where key = 'A' and data_type = 'quote' returning user_id`,
      ),
    ).toEqual([{ user_id: 'ann' }]);
    expect(await seen(monitor)).toEqual(['ann quote B', 'ben quote A']);
    // The planner is told, as by remove_active_subscription.
    expect(await scene.db.query('select key, delta::int from pgfresh_engine.demand_change')).toEqual([
      { key: 'A', delta: -1 },
    ]);
    await viewer.query('delete from pgfresh.active_subscriptions');
    expect(await seen(monitor)).toEqual(['ben quote A']);
  });

  it('also of a data type that is gone or has another name', async () => {
    await as(claims('ann'));
    await scene.change('quote', { data_type: 'price' });
    await viewer.query(`delete from pgfresh.active_subscriptions where key = 'A'`);
    expect(await seen(viewer)).toEqual(['ann price B']);
  });

  it.each([
    ['viewer', `update pgfresh.active_subscriptions set last_seen_at = now()`],
    ['viewer', `insert into pgfresh.active_subscriptions (user_id, key) values ('ann', 'C')`],
    ['viewer', 'select from pgfresh_engine.subscription'],
    ['viewer', 'delete from pgfresh_engine.subscription'],
    ['viewer', 'select from pgfresh_engine.type_name'],
    ['monitor', 'delete from pgfresh.active_subscriptions'],
    ['monitor', 'delete from pgfresh_engine.subscription'],
  ])('is nothing else for a %s: %s', async (role, text) => {
    await as(claims('ann'));
    await expect((role === 'viewer' ? viewer : monitor).query(text)).rejects.toMatchObject({ code: '42501' });
  });
});
