import { beforeAll, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import type { Queryable } from '../../src/database/index.ts';
import { openSession } from '../harness/session.ts';
import { RegistryScene } from '../registry/scene.ts';

let scene: RegistryScene;
beforeAll(async () => {
  scene = await RegistryScene.open();
  await scene.db.query(`
    create table news (key text primary key, fetched_at timestamptz);
    create function raising_gate(text, text) returns boolean language plpgsql stable as $$ begin raise 'no gate'; end $$;
    create function closed_gate(text, text) returns boolean language sql stable as 'select false';
    create function raising_check(timestamptz, interval) returns boolean language plpgsql stable as $$ begin raise 'no check'; end $$`);
});

beforeEach(async () => {
  await scene.db.query(`
    delete from pgfresh.data_type_registry; delete from pgfresh_engine.viewer_calls; delete from pgfresh.warnings;
    update pgfresh_engine.planner_state set demand_held_until = null;
    drop table if exists doubtful; create table doubtful (key text primary key, fetched_at timestamptz);
    insert into doubtful select k, '2026-01-05T11:00:00Z' from unnest('{A,B,C}'::text[]) as k`);
  await scene.clock.set('2026-01-05T12:00:00Z');
  await scene.add('news', { table_name: 'news' });
});

/** A transaction of a viewer, open until the end of the test. */
async function openTransaction(): Promise<Queryable> {
  const session = await openSession(scene.url);
  onTestFinished(async () => void (await session.query('rollback')));
  await session.query('begin');
  return session;
}

/** A session that fails instead of waiting for long. */
async function impatient(): Promise<Queryable> {
  const session = await openSession(scene.url);
  await session.query(`set statement_timeout = '10s'`);
  return session;
}

const warned = async (code: string) => (await scene.warnings()).find((warning) => warning.code === code)?.count;

const troubles: [string, string, () => Promise<unknown>][] = [
  ['a gate that raises', 'gate_raised', () => scene.change('quote', { gate_function: 'raising_gate' })],
  ['a check that raises', 'check_raised', () => scene.change('quote', { staleness_function: 'raising_check' })],
  [
    'a type that does not resolve',
    'type_unresolved',
    () => scene.db.query('alter table doubtful rename column fetched_at to read_at'),
  ],
];

describe.each(['new', 'there already'])('sound 8: a warning that is %s, of an open transaction', (age) => {
  it.each(troubles)('stops neither other viewers nor the planner: %s', async (_, code, begin) => {
    await scene.add('quote', { table_name: 'doubtful' });
    await begin();
    if (age === 'there already')
      await scene.db.query(`select pgfresh_engine.warn($1::text, 'quote', 'before', 'Correct it.')`, [code]);
    const before = await warned(code);
    const ann = await openTransaction();
    await scene.subscribe('ann', 'A', 'quote', ann);
    expect(await ann.query('select code from pgfresh.warnings')).toEqual([{ code }]);
    const ben = await impatient();
    expect(await scene.subscribe('ben', 'B', 'quote', ben)).toMatchObject({ result: 'subscribed' });
    const [screen] = await ben.query(
      `select pgfresh.upsert_active_subscriptions('[{"data_type": "quote", "key": "C"}, {"data_type": "news", "key": "C"}]', 'ben') as answers`,
    );
    expect(screen).toMatchObject({ answers: [{ result: 'subscribed' }, { result: 'subscribed' }] });
    await ben.query('select pgfresh.check_and_queue_stale_data()');
    await ben.query('select pgfresh_engine.plan_due_pairs()');
    expect(await scene.db.query('select from pgfresh_engine.type_timeout')).toEqual([]);
    expect(await warned(code)).toBe(before);
    await ann.query('commit');
    expect(await warned(code)).toBe((before ?? 0) + 1);
  });
});

it('sound 8: a warning that an open transaction records is left to it by the cleanup of old ones', async () => {
  for (const subject of ['one', 'other'])
    await scene.db.query(`select pgfresh_engine.warn('gate_raised', $1::text, 'no gate', 'Correct it.')`, [subject]);
  await scene.clock.advance('31 days');
  const ann = await openTransaction();
  await ann.query(`select pgfresh_engine.warn('gate_raised', 'one', 'no gate', 'Correct it.')`);
  expect(await (await impatient()).query('select pgfresh_engine.clear_old_warnings() as count')).toEqual([
    { count: 1 },
  ]);
  await ann.query('commit');
  expect(await scene.warnings()).toMatchObject([{ subject: 'one', count: 2 }]);
});

describe('sound 8: the cleanup goes on for the others while an open transaction', () => {
  const cleaned = async () => (await impatient()).query('select pgfresh.cleanup_stale_subscriptions() as answer');
  const silent = async () => {
    for (const user of ['ann', 'ben', 'cid']) await scene.subscribe(user, 'A', 'news');
    await scene.clock.advance('11 minutes');
    await scene.subscribe('dan', 'A', 'news');
  };
  const kept = () => scene.value<string[]>('array(select user_id from pgfresh_engine.subscription order by 1)');
  const counted = () => scene.value<string[]>('array(select user_id from pgfresh_engine.viewer_calls order by 1)');

  it('has deleted a silent subscription', async () => {
    await silent();
    const ann = await openTransaction();
    await ann.query(`delete from pgfresh.active_subscriptions where user_id = 'ann'`);
    expect(await cleaned()).toEqual([{ answer: { removed: 2, nodes: 0 } }]);
    await ann.query('rollback');
    expect(await kept()).toEqual(['ann', 'dan']);
    expect(await cleaned()).toEqual([{ answer: { removed: 1, nodes: 0 } }]);
    expect(await kept()).toEqual(['dan']);
  });

  it('has counted a call', async () => {
    await silent();
    const ann = await openTransaction();
    await ann.query(`select pgfresh_engine.count_call('ann')`);
    expect(await cleaned()).toEqual([{ answer: { removed: 3, nodes: 0 } }]);
    await ann.query('commit');
    expect(await counted()).toEqual(['ann', 'dan']);
  });
});

describe.each(['new', 'there already'])('sound 8: a hold that is %s, of an open transaction', (age) => {
  const holds: [string, () => Promise<unknown>, () => Promise<unknown>][] = [
    [
      'a paused source',
      () => scene.db.query(`select pgfresh.pause_source('market')`),
      () => scene.db.query(`select pgfresh.resume_source('market')`),
    ],
    [
      'a closed gate',
      () => scene.change('quote', { gate_function: 'closed_gate' }),
      () => scene.change('quote', { gate_function: null }),
    ],
  ];

  it.each(holds)('stops neither other viewers nor the planner: %s', async (_, begin, end) => {
    onTestFinished(async () => void (await end()));
    await scene.add('quote', { table_name: 'doubtful' });
    await begin();
    if (age === 'there already') await scene.subscribe('cid', 'C');
    const ann = await openTransaction();
    await scene.subscribe('ann', 'A', 'quote', ann);
    const ben = await impatient();
    expect(await scene.subscribe('ben', 'B', 'quote', ben)).toMatchObject({ result: 'subscribed' });
    await scene.clock.advance('10 seconds');
    await ben.query('select pgfresh.check_and_queue_stale_data()');
    await ben.query('select pgfresh_engine.plan_due_pairs()');
    expect(await scene.queued()).toEqual([]);
    await ann.query('rollback');
    await end();
    for (let n = 0; n < 2; n++) {
      await scene.clock.advance('10 seconds');
      await scene.tick();
    }
    expect(await scene.queued()).toContain('B');
  });
});

it('sound 8: a timeout of a type that an open transaction notes is left to it', async () => {
  const id = await scene.add('quote', { table_name: 'doubtful' });
  const ann = await openTransaction();
  const note = `select pgfresh_engine.note_type_timeout($1::int, 'gate', 'locked') as quarantined`;
  await ann.query(note, [id]);
  expect(await (await impatient()).query(note, [id])).toEqual([{ quarantined: false }]);
});

it('sound 8: silent subscriptions that an open transaction has locked do not hold up the cleanup again', async () => {
  for (let n = 0; n < 12; n++) await scene.subscribe('ann', `K${n}`, 'news');
  for (let n = 0; n < 3; n++) await scene.subscribe('ben', `K${n}`, 'news');
  await scene.clock.advance('7 minutes');
  const ann = await openTransaction();
  await ann.query(`delete from pgfresh.active_subscriptions where user_id = 'ann'`);
  expect(await scene.cleanUp()).toEqual({ skipped: 'held' });
  await scene.clock.advance('121 seconds');
  expect(await scene.cleanUp()).toEqual({ removed: 3, nodes: 0 });
  expect(await scene.cleanUp()).toEqual({ removed: 0, nodes: 0 });
});
