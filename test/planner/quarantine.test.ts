import { expect, test } from 'vitest';
import { openSession } from '../harness/session.ts';
import { PlannerScene } from './scene.ts';

const quote = `(select type_id from pgfresh.data_type_registry where data_type = 'quote')`;
const note = (scene: PlannerScene, where = 'tick') =>
  scene.queue.value<boolean>(`pgfresh_engine.note_type_timeout(${quote}, $1::text, 'no answer')`, [where]);
const probe = (scene: PlannerScene) => scene.queue.value<boolean>(`pgfresh_engine.probe_type(${quote})`);
const quarantined = async (scene: PlannerScene) =>
  (await scene.db.query<{ data_type: string }>('select data_type from pgfresh_engine.quarantined_types()')).map(
    ({ data_type }) => data_type,
  );

test('sound 14: two timeouts within a minute put a type into quarantine, with one warning; a probe that answers ends it', async () => {
  const scene = await PlannerScene.open();
  await scene.type('quote');
  await scene.type('profile');
  await scene.look('quote', ['A', 'B']);
  await scene.look('profile', ['A']);
  expect(await note(scene)).toBe(false);
  await scene.clock.advance('2 minutes');
  expect(await note(scene)).toBe(false);
  expect(await note(scene)).toBe(true);
  expect(await note(scene, 'probe')).toBe(true);
  expect(await quarantined(scene)).toEqual(['quote']);
  expect(await scene.warnings()).toEqual([{ code: 'type_quarantined', subject: 'quote', count: 1 }]);
  // Its table is not even asked.
  const other = await openSession(scene.queue.url);
  await other.query('begin');
  await other.query('lock table quote in access exclusive mode');
  const counts = await scene.tick();
  await other.query('rollback');
  expect(counts).toMatchObject({ queued: 1, skipped: 2, skipped_quarantined: 2 });
  expect(await scene.open()).toEqual(['profile A 1']);
  const { problems } = await scene.queue.value<{ problems: object[] }>('pgfresh_engine.overview()');
  expect(problems).toMatchObject([{ data_type: 'quote', reason: 'quarantined' }]);

  // What it holds is not looked at again, neither by the tick nor by the sweep.
  expect(await scene.tick()).toMatchObject({ more: false, quarantined: [expect.any(Number)] });
  expect(await probe(scene)).toBe(true);
  expect(await quarantined(scene)).toEqual([]);
  expect(await scene.tick()).toMatchObject({ queued: 2 });
});

test('sound 14: a quarantine that no one probes ends after a minute', async () => {
  const scene = await PlannerScene.open();
  await scene.type('quote');
  await scene.look('quote', ['A']);
  await note(scene);
  await note(scene);
  await scene.tick();
  await scene.clock.advance('59 seconds');
  expect(await note(scene, 'probe')).toBe(true);
  await scene.clock.advance('59 seconds');
  expect(await quarantined(scene)).toEqual(['quote']);
  await scene.clock.advance('1 second');
  expect(await quarantined(scene)).toEqual([]);
  expect(await scene.tick()).toMatchObject({ queued: 1 });
});

test('sound 14: a table that nobody can write keeps its type in quarantine, also where it can be read', async () => {
  const scene = await PlannerScene.open();
  await scene.type('quote');
  await note(scene, 'commit');
  await note(scene, 'commit');
  const other = await openSession(scene.queue.url);
  await other.query('begin');
  await other.query('lock table quote in share mode');
  expect(await probe(scene)).toBe(false);
  expect(await quarantined(scene)).toEqual(['quote']);
  await other.query('commit');
  expect(await probe(scene)).toBe(true);
});

test('sound 14: a job of a type in quarantine waits for its end only while workers cannot write its table', async () => {
  const scene = await PlannerScene.open();
  await scene.type('quote');
  await scene.look('quote', ['A']);
  await scene.tick();
  const reason = () => scene.queue.value<string>(`pgfresh.explain_pair('quote', 'A') ->> 'reason'`);
  await note(scene);
  await note(scene);
  // As a gate that hangs: workers do not ask it, and claim what is queued.
  expect(await reason()).toBe('queued');
  const other = await openSession(scene.queue.url);
  for (const mode of ['share', 'access exclusive']) {
    await other.query('begin');
    await other.query(`lock table quote in ${mode} mode`);
    expect(await reason()).toBe('quarantined');
    await other.query('commit');
  }
  expect(await reason()).toBe('queued');
  await scene.queue.claimOne();
  expect(await reason()).toBe(null);
});

test('sound 14: an open transaction that deletes or renames a type stops no one who notes its timeouts or watches others', async () => {
  const scene = await PlannerScene.open();
  await scene.type('quote');
  await scene.type('profile');
  const other = await openSession(scene.queue.url);
  const hurried = await openSession(scene.queue.url);
  await hurried.query(`set statement_timeout = '2s'`);
  const types = `(select array_agg(type_id) from pgfresh.data_type_registry)`;
  const watched = async () =>
    (
      await scene.db.query<{ data_type: string }>(
        `select r.data_type from pgfresh_engine.watched_type as w join pgfresh.data_type_registry as r using (type_id)
         where w.watched_until > pgfresh.clock() order by 1`,
      )
    ).map(({ data_type }) => data_type);
  for (const change of [
    `delete from pgfresh.data_type_registry where data_type = 'quote'`,
    `update pgfresh.data_type_registry set data_type = 'renamed' where data_type = 'quote'`,
  ]) {
    await note(scene);
    await hurried.query(`select pgfresh_engine.watch_changes(${types})`);
    await scene.clock.advance('1 minute');
    await other.query('begin');
    await other.query(change);
    await hurried.query(`select pgfresh_engine.note_type_timeout(${quote}, 'gateway', 'no answer')`);
    await hurried.query(`select pgfresh_engine.watch_changes(${types})`);
    expect(await watched()).toEqual(['profile']);
    await hurried.query(
      `select pgfresh_engine.settle_changes(null, null, '{}', array_agg(type_id), array_agg(since)) from pgfresh_engine.watched_type`,
    );
    await other.query('rollback');
    await hurried.query(`select pgfresh_engine.watch_changes(${types})`);
    expect(await watched()).toEqual(['profile', 'quote']);
    await scene.clock.advance('1 minute');
  }
});
