import { expect, test } from 'vitest';
import { PlannerScene } from './scene.ts';

/** Types that are well when they are registered, and what is done to each afterwards. */
const faults: Record<string, { warning: string; queued?: number; plant: (scene: PlannerScene) => Promise<unknown> }> = {
  missing_table: { warning: 'type_unresolved', plant: (scene) => scene.db.query('drop table missing_table') },
  renamed_column: {
    warning: 'type_unresolved',
    plant: (scene) => scene.db.query('alter table renamed_column rename fetched_at to at'),
  },
  other_column_type: {
    warning: 'type_unresolved',
    plant: (scene) => scene.db.query('alter table other_column_type alter fetched_at type timestamp'),
  },
  raising_check: {
    warning: 'check_raised',
    queued: 2,
    plant: (scene) =>
      scene.db.query(
        `create function raising(timestamptz, interval) returns boolean language plpgsql as 'begin raise exception ''no idea''; end';
         insert into raising_check values ('A', pgfresh.clock()), ('B', pgfresh.clock());
         update pgfresh.data_type_registry set staleness_function = 'raising' where data_type = 'raising_check'`,
      ),
  },
  raising_gate: {
    warning: 'gate_raised',
    queued: 2,
    plant: (scene) =>
      scene.db.query(
        `create function raising_gate(text, text) returns boolean language plpgsql as 'begin raise exception ''no idea''; end';
         insert into raising_gate values ('A', '2020-01-01'), ('B', '2020-01-01');
         update pgfresh.data_type_registry set gate_function = 'raising_gate' where data_type = 'raising_gate'`,
      ),
  },
  hidden_rows: {
    warning: 'type_unresolved',
    plant: (scene) => scene.db.query('alter table hidden_rows enable row level security'),
  },
  revoked: {
    warning: 'type_unresolved',
    plant: (scene) => scene.db.query('revoke select on revoked from pgfresh_evaluator'),
  },
  replaced_function: {
    warning: 'type_unresolved',
    plant: (scene) =>
      scene.db.query(
        `create function mine(timestamptz, interval) returns boolean language sql as 'select true';
         update pgfresh.data_type_registry set staleness_function = 'mine' where data_type = 'replaced_function';
         create or replace function mine(timestamptz, interval) returns boolean language sql as 'select false'`,
      ),
  },
  // No row like these can be written, so the triggers that would refuse it are asleep.
  long_64: { warning: 'type_unresolved', plant: (scene) => unguarded(scene, 'long_64', 'x'.repeat(64)) },
  long_200: { warning: 'type_unresolved', plant: (scene) => unguarded(scene, 'long_200', 'x'.repeat(200)) },
  dotted: { warning: 'type_unresolved', plant: (scene) => unguarded(scene, 'dotted', 'a.public.dotted') },
  injected: {
    warning: 'type_unresolved',
    plant: (scene) => unguarded(scene, 'injected', 'quote; drop table quote; --'),
  },
  shadowed: { warning: 'type_unresolved', plant: (scene) => unguarded(scene, 'shadowed', 'pg_temp.shadowed') },
};

async function unguarded(scene: PlannerScene, type: string, table: string): Promise<void> {
  await scene.db.query('alter table pgfresh.data_type_registry disable trigger all');
  await scene.db.query('update pgfresh.data_type_registry set table_name = $2::text where data_type = $1::text', [
    type,
    table,
  ]);
  await scene.db.query('alter table pgfresh.data_type_registry enable trigger all');
}

test.for(['tick', 'sweep'] as const)(
  'whatever is broken, the %s plans everything else, and warns of each once',
  async (how) => {
    const scene = await PlannerScene.open();
    for (const name of Object.keys(faults)) await scene.type(name);
    // Between them, so that a fault before and a fault after each would show.
    await scene.type('quote');
    await scene.type('zebra');
    for (const { plant } of Object.values(faults)) await plant(scene);
    const types = await scene.db.query<{ name: string }>('select data_type as name from pgfresh.data_type_registry');
    for (const { name } of types) await scene.look(name, ['A', 'B']);

    await scene[how]();
    const open = await scene.open();
    const expected = Object.entries(faults).flatMap(([name, { queued }]) =>
      queued ? [`${name} A 1`, `${name} B 1`] : [],
    );
    expect(open).toEqual([...expected, 'quote A 1', 'quote B 1', 'zebra A 1', 'zebra B 1'].toSorted());
    expect((await scene.warnings()).map(({ code, subject }) => `${subject} ${code}`)).toEqual(
      Object.entries(faults)
        .map(([name, { warning }]) => ({ warning, line: `${name} ${warning}` }))
        .toSorted((a, b) => a.warning.localeCompare(b.warning) || (a.line < b.line ? -1 : 1))
        .map(({ line }) => line),
    );
  },
);

test('one bad row among five hundred costs only itself, and is queued at most once a TTL', async () => {
  const scene = await PlannerScene.open();
  await scene.db.query('create table item (id int primary key, fetched_at timestamptz)');
  await scene.type('item', { columns: { key_columns: `'{id}'` } });
  const keys = Array.from({ length: 500 }, (_, index) => (index === 321 ? 'not a number' : String(index)));
  await scene.db.query(`insert into item select n, pgfresh.clock() from generate_series(0, 499) as n`);
  await scene.look('item', keys);
  expect(await scene.tick()).toMatchObject({ checked: 500, failed: 1, queued: 1 });
  expect(await scene.open()).toEqual(['item not a number 1']);
  expect(await scene.warnings()).toEqual([{ code: 'check_raised', subject: 'item', count: 1 }]);

  await scene.finish('failed');
  await scene.db.query('update item set fetched_at = pgfresh.clock()');
  expect(await scene.sweep()).toMatchObject({ queued: 0 });
  await scene.clock.advance('61 seconds');
  await scene.db.query('update item set fetched_at = pgfresh.clock()');
  expect(await scene.sweep()).toMatchObject({ failed: 1, queued: 1 });
});

test('a type whose check raises for every pair does not keep the others from their turn', async () => {
  const scene = await PlannerScene.open();
  await scene.db.query('create table item (id int primary key, fetched_at timestamptz)');
  await scene.type('item', { columns: { key_columns: `'{id}'` } });
  await scene.type('quote');
  await scene.look(
    'item',
    Array.from({ length: 500 }, (_, index) => `bad ${index}`),
  );
  await scene.tick();
  await scene.look('quote', ['A']);
  await scene.clock.advance('1 second');
  expect(await scene.tick()).toMatchObject({ queued: 1 });
  expect((await scene.open()).filter((job) => job.startsWith('quote'))).toEqual(['quote A 1']);
});

test('a row that is written again after a look at the change is planned again', async () => {
  const scene = await PlannerScene.open();
  await scene.db.query(`create function mine(timestamptz, interval) returns boolean language sql as 'select false'`);
  await scene.type('quote', { columns: { staleness_function: `'mine'` } });
  await scene.rows('quote', ['A'], '1 hour');
  await scene.look('quote', ['A']);
  expect(await scene.tick()).toMatchObject({ stale: 0 });
  await scene.db.query(
    `create or replace function mine(timestamptz, interval) returns boolean language sql as 'select true'`,
  );
  expect(await scene.sweep()).toMatchObject({ skipped_unresolved: 1 });
  const [warning] = await scene.db.query<{ next: string }>('select next_step as next from pgfresh.warnings');
  await scene.db.query(warning!.next.slice(warning!.next.indexOf('update')));
  expect(await scene.sweep()).toMatchObject({ stale: 1, queued: 1 });
});
