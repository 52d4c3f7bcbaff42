import { expect, test } from 'vitest';
import { explainPair, type DataState } from '../../src/planner/index.ts';
import { readOverview } from '../../src/watch/index.ts';
import { PlannerScene } from './scene.ts';

const day = 86_400;

/** A viewed pair (quote, A) whose row was fetched a moment ago. */
async function fetched(scene: PlannerScene, ttl: string, columns: Readonly<Record<string, string>> = {}) {
  await scene.type('quote', { ttl, columns });
  await scene.look('quote', ['A']);
  await scene.tick();
  await scene.rows('quote', ['A']);
  expect(await scene.finish('fresh')).toBe(1);
  await scene.tick();
}

test('truth 15: many viewed rows that the source denies within minutes are a warning, and a few are none', async () => {
  const scene = await PlannerScene.open();
  await scene.type('quote', { columns: { empty_ttl: `'1 day'` } });
  const keys = Array.from({ length: 40 }, (_, i) => `K${String(i).padStart(2, '0')}`);
  await scene.look('quote', keys);
  await scene.rows('quote', keys);
  await scene.tick();
  const deny = async (some: readonly string[]): Promise<void> => {
    await scene.rows('quote', some, '2 minutes');
    await scene.sweep();
    expect(await scene.finish('empty')).toBe(some.length);
    await scene.sweep();
  };
  await deny(keys.slice(0, 10));
  expect(await scene.warnings()).toEqual([]);
  await deny(keys.slice(10, 11));
  expect(await scene.warnings()).toEqual([{ code: 'many_empty', subject: 'quote', count: 1 }]);
  await scene.clock.advance('6 minutes');
  await scene.sweep();
  expect(await scene.warnings()).toMatchObject([{ code: 'many_empty', count: 1 }]);
});

/** When the pair is fetched while ticks and sweeps go on. Each fetch does `write`, and `harm` follows when it was seen. */
async function fetches(
  scene: PlannerScene,
  seconds: number,
  write: () => Promise<unknown>,
  harm?: string,
): Promise<number[]> {
  const at: number[] = [];
  for (let second = 1; second <= seconds; second++) {
    await scene.clock.advance('1 second');
    await scene.db.query('update pgfresh_engine.subscription set last_seen_at = pgfresh.clock()');
    await scene.tick();
    if (second % 5 === 0) await scene.sweep();
    if ((await scene.open()).length > 0) {
      at.push(second);
      await write();
      await scene.finish('fresh');
      await scene.tick();
      if (harm !== undefined) await scene.db.query(harm);
    }
  }
  return at;
}

/** The state of (quote, A) wherever it is shown. */
async function expectShown(scene: PlannerScene, state: DataState, isKept = false): Promise<void> {
  const overview = (await readOverview(scene.db))!;
  const counts = { fresh: 0, stale: 0, missing: 0, empty: 0, older_source: 0 };
  const [type] = overview.types;
  const isGood = state === 'fresh' || (state === 'empty' && !isKept);
  expect(type).toMatchObject({ ...counts, [state]: 1, share: isGood ? 1 : 0 });
  const read = `select state from pgfresh_engine.read_pairs((select type_id from pgfresh.data_type_registry), '{A}')`;
  expect(await scene.db.query(read)).toEqual([{ state }]);
  expect(await explainPair(scene.db, 'quote', 'A')).toMatchObject({ state });
}

test.for([
  ['delete', 'delete from quote', 'missing'],
  ['truncate', 'truncate quote', 'missing'],
  ['set back', `update quote set fetched_at = fetched_at - interval '2 days'`, 'stale'],
  ['leave without a time', 'update quote set fetched_at = null', 'stale'],
] as const)(
  'truth 1: a row that others %s is shown and fetched again at the next sweep, within its TTL',
  async ([, harm, state]) => {
    const scene = await PlannerScene.open();
    await fetched(scene, '1 day');
    await expectShown(scene, 'fresh');
    await scene.clock.advance('1 hour');
    await scene.db.query('update pgfresh_engine.subscription set last_seen_at = pgfresh.clock()');
    await scene.db.query(harm);
    expect(await scene.sweep()).toMatchObject({ queued: 1 });
    await expectShown(scene, state);
    expect(await scene.open()).toEqual(['quote A 1']);
    await scene.rows('quote', ['A']);
    await scene.finish('fresh');
    await scene.tick();
    await expectShown(scene, 'fresh');
    expect(await scene.warnings()).toEqual([]);
  },
);

test.for(['breaker', 'open job', 'failure'] as const)(
  'truth 1: a row that others delete is shown as missing although nothing can be fetched: %s',
  async (obstacle) => {
    const scene = await PlannerScene.open();
    await fetched(scene, '1 minute');
    if (obstacle === 'breaker') await scene.db.query(`select pgfresh.pause_source('market', p_reason => 'a test')`);
    await scene.clock.advance('61 seconds');
    await scene.tick();
    if (obstacle === 'failure') await scene.finish('failed');
    await expectShown(scene, 'stale');
    await scene.db.query('delete from quote');
    await scene.sweep();
    await expectShown(scene, 'missing');
  },
);

test.for([
  ['breaker', `update pgfresh.sources set breaker_opened_at = pgfresh.clock(), paused_until = pgfresh.clock()`],
  [
    'paused',
    `insert into pgfresh_engine.breaker (type_id, kind, streak, opened_at, paused_until)
     select type_id, 'refused', '{}', pgfresh.clock(), pgfresh.clock() from pgfresh.data_type_registry`,
  ],
] as const)(
  'truth 13: a job that waits while one tries for all says %s, wherever it is asked',
  async ([reason, harm]) => {
    const scene = await PlannerScene.open();
    await fetched(scene, '1 minute');
    await scene.clock.advance('61 seconds');
    await scene.tick();
    await scene.db.query(harm);
    const shown = { state: 'stale', activity: 'waiting', reason };
    expect(await explainPair(scene.db, 'quote', 'A')).toMatchObject(shown);
    const read = `select * from pgfresh_engine.read_pairs((select type_id from pgfresh.data_type_registry), '{A}')`;
    expect(await scene.db.query(read)).toMatchObject([shown]);
  },
);

test('truth 1: a failure for good of a type with a TTL of 30 days is asked again after a day, and nothing looks fresh', async () => {
  const scene = await PlannerScene.open();
  await scene.type('quote', { ttl: '30 days' });
  await scene.look('quote', ['A']);
  await scene.tick();
  await scene.finish('failed');
  await expectShown(scene, 'missing');
  await scene.clock.advance('2 hours');
  const explanation = await explainPair(scene.db, 'quote', 'A');
  expect(explanation).toMatchObject({ state: 'missing', activity: 'waiting', reason: 'refused' });
  expect(Date.parse(explanation.until!) - Date.parse('2026-01-05T14:00:00Z')).toBe((day - 7_200) * 1_000);
  await scene.db.query('update pgfresh_engine.subscription set last_seen_at = pgfresh.clock()');
  expect(await scene.sweep()).toMatchObject({ queued: 0, skipped_held: 1 });
  await scene.clock.advance('22 hours');
  expect(await scene.tick()).toMatchObject({ queued: 1 });
});

test.for([false, true])(
  'truth 1: an empty_ttl that is shorter than the TTL counts, also where a row is left: %s',
  async (isKept) => {
    const scene = await PlannerScene.open();
    await fetched(scene, '1 hour', { empty_ttl: `'1 minute'` });
    if (!isKept) await scene.db.query('delete from quote');
    await scene.queue.value(`pgfresh.queue_refresh_if_not_exists('A', 'quote')`);
    await scene.finish('empty');
    await scene.sweep();
    await expectShown(scene, 'empty', isKept);
    expect(await explainPair(scene.db, 'quote', 'A')).toMatchObject({ activity: 'idle', reason: null });
    await scene.clock.advance('59 seconds');
    await scene.tick();
    expect(await scene.sweep()).toMatchObject({ queued: 0 });
    await expectShown(scene, 'empty', isKept);
    await scene.clock.advance('1 second');
    expect(await scene.tick()).toMatchObject({ queued: 1 });
    await expectShown(scene, isKept ? 'stale' : 'missing');
  },
);

test('truth 1: a row that others write after an empty answer is fresh by its own time', async () => {
  const scene = await PlannerScene.open();
  await scene.type('quote', { ttl: '1 hour' });
  await scene.look('quote', ['A']);
  await scene.tick();
  await scene.finish('empty');
  await scene.clock.advance('10 seconds');
  await scene.rows('quote', ['A']);
  expect(await scene.sweep()).toMatchObject({ queued: 0 });
  await expectShown(scene, 'fresh');
  await scene.clock.advance('59 minutes 59 seconds');
  expect(await scene.tick()).not.toMatchObject({ queued: 1 });
  await scene.clock.advance('1 second');
  expect(await scene.tick()).toMatchObject({ queued: 1 });
});

test.for([
  ['a trigger that deletes what is written', 'delete from quote'],
  ['a trigger that sets back what is written', `update quote set fetched_at = fetched_at - interval '2 hours'`],
  ['a client that says fresh and writes nothing', 'delete from quote'],
] as const)('truth 1: %s backs off, with a warning', async ([who, harm]) => {
  const scene = await PlannerScene.open();
  await fetched(scene, '1 hour');
  await scene.db.query(harm);
  const isLazy = who.startsWith('a client');
  const write = async () => (isLazy ? undefined : scene.rows('quote', ['A']));
  const at = await fetches(scene, 600, write, isLazy ? undefined : harm);
  // At once, then after pauses of 15 s, 30 s, 60 s, and so on, each found by the next tick or sweep.
  expect(at).toHaveLength(6);
  const pauses = at.slice(1).map((second, place) => second - at[place]!);
  pauses.slice(1).forEach((pause, place) => expect(pause).toBeGreaterThan(1.5 * pauses[place]!));
  expect((await scene.warnings()).map(({ code }) => code)).toEqual(['row_lost']);
  expect(await explainPair(scene.db, 'quote', 'A')).toMatchObject({ activity: 'waiting', reason: 'retry' });
});

test.for([
  ['true', 'select true', 'stale_when_written'],
  ['null', 'select null::boolean', 'stale_when_written'],
  ['an error', 'select 1 / 0 > 0', 'check_raised'],
] as const)(
  'truth 1: a staleness function that answers %s is asked for once per TTL, with a warning',
  async ([, body, warning]) => {
    const scene = await PlannerScene.open();
    await scene.db.query(
      `create function public.odd(timestamptz, interval) returns boolean language sql stable as '${body}'`,
    );
    await fetched(scene, '1 hour', { staleness_function: `'odd'` });
    const write = () => scene.rows('quote', ['A']);
    expect(await fetches(scene, 120, write)).toEqual([]);
    expect((await scene.warnings()).map(({ code }) => code)).toEqual([warning]);
    await scene.clock.advance('57 minutes');
    expect(await fetches(scene, 120, write)).toHaveLength(1);
  },
);

test.for(['infinity', '2036-01-05T12:00:00Z'])(
  'truth 1: a row whose time is far ahead (%s) is not fresh until then, and is fetched once per TTL',
  async (ahead) => {
    const scene = await PlannerScene.open();
    await fetched(scene, '1 hour');
    const write = () => scene.db.query(`update quote set fetched_at = $1::timestamptz`, [ahead]);
    // By others, and then by a trigger at each write.
    await write();
    await scene.sweep();
    await expectShown(scene, 'stale');
    expect(await fetches(scene, 200, write)).toHaveLength(1);
    await expectShown(scene, 'stale');
    expect((await readOverview(scene.db))!.types[0]).toMatchObject({ age_p50: null });
    expect(await scene.warnings()).toMatchObject([{ code: 'stale_when_written' }]);
    await scene.rows('quote', ['A']);
    await scene.sweep();
    await expectShown(scene, 'fresh');
  },
);

test('truth 1: a staleness function that says stale later, for a good reason, is believed each time', async () => {
  const scene = await PlannerScene.open();
  await scene.db.query(
    `create table public.opened (at timestamptz); grant select on public.opened to pgfresh_evaluator;
     create function public.odd(timestamptz, interval) returns boolean language sql stable as 'select exists (select from public.opened where at > $1)'`,
  );
  await fetched(scene, '1 day', { staleness_function: `'odd'` });
  for (let turn = 0; turn < 4; turn++) {
    await scene.clock.advance('2 seconds');
    expect(await scene.sweep()).toMatchObject({ queued: 0 });
    await scene.db.query('insert into public.opened select pgfresh.clock()');
    expect(await scene.sweep()).toMatchObject({ queued: 1 });
    await expectShown(scene, 'stale');
    await scene.rows('quote', ['A']);
    await scene.finish('fresh');
    await scene.tick();
    await expectShown(scene, 'fresh');
  }
  expect(await scene.warnings()).toEqual([]);
});

test('truth 1: what the source confirms is fresh by that time, until its row is gone or older than it was', async () => {
  const scene = await PlannerScene.open();
  await fetched(scene, '1 minute');
  await scene.clock.advance('50 seconds');
  await scene.queue.value(`pgfresh.queue_refresh_if_not_exists('A', 'quote')`);
  await scene.finish('unchanged');
  await scene.clock.advance('30 seconds');
  await scene.tick();
  expect(await scene.sweep()).toMatchObject({ queued: 0 });
  await expectShown(scene, 'fresh');
  expect(await explainPair(scene.db, 'quote', 'A')).toMatchObject({
    age_seconds: 80,
    words: 'It is fresh for 30 s more.',
  });
  await scene.db.query(`update quote set fetched_at = fetched_at - interval '1 second'`);
  expect(await scene.sweep()).toMatchObject({ queued: 1 });
  await expectShown(scene, 'stale');
});

test('truth 2: an older answer confirms nothing: the pair goes stale at its TTL and is asked once per TTL', async () => {
  const scene = await PlannerScene.open();
  await fetched(scene, '20 seconds');
  let calls = 0;
  for (let second = 1; second <= 80; second++) {
    await scene.clock.advance('1 second');
    await scene.tick();
    if (second % 10 === 0) await scene.sweep();
    calls += await scene.finish('older_source');
    await expectShown(scene, second < 20 ? 'fresh' : 'older_source');
  }
  expect(calls).toBe(4);
  expect((await readOverview(scene.db))!.freshness).toMatchObject({ share: 0, age_p50: 80 });
  const explanation = await explainPair(scene.db, 'quote', 'A');
  expect(explanation).toMatchObject({ state: 'older_source', activity: 'waiting', reason: 'retry', age_seconds: 80 });
  expect(explanation.words).toMatch(/^The source answers with something older than what is here; it is asked again in/);
  // What is gone can be had again from an old answer too.
  await scene.db.query('delete from quote');
  expect(await scene.sweep()).toMatchObject({ queued: 1 });
});

test('truth 2: the age at the source is shown beside the age here, and counts only where a type declares a maximum', async () => {
  const scene = await PlannerScene.open();
  await fetched(scene, '1 hour');
  await scene.db.query(`update pgfresh_engine.pairs set source_at = pgfresh.clock() - interval '80 seconds'`);
  await expectShown(scene, 'fresh');
  expect(await explainPair(scene.db, 'quote', 'A')).toMatchObject({ age_seconds: 0, source_age_seconds: 80 });
  expect((await readOverview(scene.db))!.types).toMatchObject([{ age_p50: 0, source_age_p50: 80 }]);
  await scene.db.query(`update pgfresh.data_type_registry set max_source_age = '1 minute'`);
  await expectShown(scene, 'stale');
  expect((await explainPair(scene.db, 'quote', 'A')).words).toMatch(
    /^The source's own data is 80 s old, and may be 60 s;/,
  );
});

test('truth 13: the obstacle that lasts longest is the answer, and the others follow', async () => {
  const scene = await PlannerScene.open();
  await scene.type('quote');
  await scene.look('quote', ['A']);
  await scene.tick();
  const { id } = await scene.queue.claimOne();
  await scene.db.query(`select pgfresh.fail_queue_job($1::bigint, 'status 503')`, [id]);
  await scene.db.query(`update pgfresh_engine.job set run_at = pgfresh.clock() + interval '4 seconds'`);
  await scene.db.query(
    `update pgfresh.sources set paused_until = pgfresh.clock() + interval '5 minutes', paused_by = 'breaker', breaker_opened_at = pgfresh.clock()`,
  );
  expect(await explainPair(scene.db, 'quote', 'A')).toMatchObject({
    reason: 'breaker',
    words: 'The source market failed too often and is left alone for 5 min more.',
    obstacles: [{ reason: 'retry', words: 'It failed and is tried again in 4 s: status 503' }],
  });
  await scene.db.query(`update pgfresh_engine.job set run_at = pgfresh.clock() + interval '10 minutes'`);
  expect(await explainPair(scene.db, 'quote', 'A')).toMatchObject({
    reason: 'retry',
    obstacles: [{ reason: 'breaker' }],
  });
  await scene.db.query(`insert into pgfresh.spending_stop (reason) values ('enough')`);
  expect(await explainPair(scene.db, 'quote', 'A')).toMatchObject({
    reason: 'stopped',
    obstacles: [{ reason: 'retry' }, { reason: 'breaker' }],
  });
});

test('truth 13: a pause that has ended is not shown', async () => {
  const scene = await PlannerScene.open();
  await scene.type('quote');
  await scene.db.query(
    `select pgfresh.pause_source('market', pgfresh.clock() + interval '1 minute', p_reason => 'holiday')`,
  );
  await scene.look('quote', ['A']);
  await scene.tick();
  expect(await explainPair(scene.db, 'quote', 'A')).toMatchObject({ reason: 'paused' });
  await scene.clock.advance('1 minute');
  await scene.tick();
  const explanation = await explainPair(scene.db, 'quote', 'A');
  expect(explanation).toMatchObject({ reason: 'queued', obstacles: [] });
  expect(JSON.stringify(explanation)).not.toContain('holiday');
  expect((await readOverview(scene.db))!.sources).toMatchObject([
    { state: 'ok', paused_until: null, pause_reason: null },
  ]);
});

test('truth 1: what a staleness function calls fresh beyond its TTL is shown as fresh, everywhere', async () => {
  const scene = await PlannerScene.open();
  await scene.db.query(`
    create function public.old_when_open(p_at timestamptz, p_ttl interval) returns boolean language sql stable
      as $$ select to_regclass('public.opened') is not null and pgfresh.is_data_stale(p_at, p_ttl) $$`);
  await fetched(scene, '1 minute', { staleness_function: `'old_when_open'` });
  const [type] = await scene.db.query<{ id: number }>('select type_id as id from pgfresh.data_type_registry');
  const states = async () => {
    const [read] = await scene.db.query<{ state: string }>(
      `select state from pgfresh_engine.read_pairs($1::int, '{A}')`,
      [type!.id],
    );
    const overview = await readOverview(scene.db);
    return [read!.state, overview!.types[0]!.fresh, (await explainPair(scene.db, 'quote', 'A')).state];
  };
  for (let second = 0; second < 200; second++) {
    await scene.clock.advance('1 second');
    await scene.db.query('update pgfresh_engine.subscription set last_seen_at = pgfresh.clock()');
    await scene.tick();
    if (second % 10 === 9) expect(await states()).toEqual(['fresh', 1, 'fresh']);
  }
  // And it is fetched within a minute when the function says so.
  await scene.db.query('create table public.opened ()');
  await scene.clock.advance('1 minute');
  await scene.tick();
  expect(await scene.open()).toEqual(['quote A 1']);
});

test('truth 25: a type that did not resolve when it was upgraded is checked by the new version when it does', async () => {
  const scene = await PlannerScene.open();
  await fetched(scene, '1 hour');
  const [type] = await scene.db.query<{ id: number }>('select type_id as id from pgfresh.data_type_registry');
  await scene.db.query(`
    alter table public.quote rename to quote_away;
    drop function pgfresh_engine.check_${type!.id}(text[], timestamptz[], timestamptz[], timestamptz[], interval, timestamptz);
    update pgfresh_engine.type_resolution set check_sql = 'as an earlier version asked'`);
  await scene.sweep();
  expect(await scene.warnings()).toMatchObject([{ code: 'type_unresolved' }]);
  await scene.db.query('alter table public.quote_away rename to quote');
  expect(await scene.sweep()).toMatchObject({ checked: 1, failed: 0, queued: 0 });
});

test.each([
  ['empty', 'ttl'],
  ['empty', 'empty_ttl'],
  ['older_source', 'ttl'],
] as const)(
  'truth 1: what is left alone because of its outcome (%s) follows a %s that was shortened',
  async (outcome, column) => {
    const scene = await PlannerScene.open();
    await scene.type('quote', { ttl: '30 days' });
    if (outcome === 'older_source') await scene.rows('quote', ['A'], '40 days');
    await scene.look('quote', ['A']);
    await scene.tick();
    expect(await scene.finish(outcome)).toBe(1);
    await scene.sweep();
    const later = async (time: string) => {
      await scene.clock.advance(time);
      await scene.db.query('update pgfresh_engine.subscription set last_seen_at = pgfresh.clock()');
      await scene.sweep();
      return scene.open();
    };
    expect(await later('2 hours')).toEqual([]);
    await scene.db.query(`update pgfresh.data_type_registry set ${column} = '3 hours'`);
    expect(await later('50 minutes')).toEqual([]);
    expect(await later('11 minutes')).toEqual(['quote A 1']);
  },
);

test.for([
  ['delete', 'read_pairs', 'delete from quote'],
  ['set back', 'read_pairs', `update quote set fetched_at = fetched_at - interval '2 days'`],
  ['delete', 'explain_pair', 'delete from quote'],
  ['set back', 'explain_pair', `update quote set fetched_at = fetched_at - interval '2 days'`],
] as const)(
  'truth 1: a row that others %s is fetched by the next tick after somebody has looked, by %s',
  async ([, reader, harm]) => {
    const scene = await PlannerScene.open();
    await fetched(scene, '1 day');
    await scene.clock.advance('1 hour');
    await scene.db.query('update pgfresh_engine.subscription set last_seen_at = pgfresh.clock()');
    const read = `select pgfresh_engine.read_pairs((select type_id from pgfresh.data_type_registry), '{A}')`;
    const due = `select due_at::text from pgfresh_engine.pairs`;
    const before = await scene.queue.value(due);
    await scene.db.query(read);
    await explainPair(scene.db, 'quote', 'A');
    expect(await scene.queue.value(due)).toBe(before);
    await scene.db.query(harm);
    if (reader === 'read_pairs') await scene.db.query(read);
    else
      expect(await explainPair(scene.db, 'quote', 'A')).toMatchObject({
        reason: 'due',
        words: "It will be queued by the planner's next tick.",
      });
    expect(await scene.tick()).toMatchObject({ queued: 1 });
  },
);

test('truth 1: whoever reads a row that others have deleted waits for nobody, and may be unable to write', async () => {
  const scene = await PlannerScene.open({ poolSize: 3 });
  await fetched(scene, '1 day');
  const read = `select state, reason from pgfresh_engine.read_pairs((select type_id from pgfresh.data_type_registry), '{A}')`;
  // The first read of all begins the versions.
  await scene.db.query(read);
  await scene.db.query('delete from quote');
  const sweep = { reason: 'due', words: 'The planner looks at it again within 60 s.' };
  await scene.db.transact('read', async (tx) => {
    await tx.query('set transaction read only');
    expect(await tx.query(read)).toEqual([{ state: 'missing', reason: 'due' }]);
    // What explain_pair answers. It inserts into a view itself, which no read-only transaction may.
    const explain = `select pgfresh_engine.explanation_of('quote', 'A', false) as explained`;
    expect(await tx.query(explain)).toMatchObject([{ explained: sweep }]);
    await tx.query('savepoint before');
    await expect(explainPair(tx, 'quote', 'A')).rejects.toMatchObject({ code: '25006' });
    await tx.query('rollback to before');
  });
  await scene.db.transact('hold', async (tx) => {
    await tx.query('select from pgfresh_engine.pairs for update');
    expect(await scene.db.query(read)).toEqual([{ state: 'missing', reason: 'due' }]);
    expect(await explainPair(scene.db, 'quote', 'A')).toMatchObject(sweep);
  });
  expect(await scene.tick()).not.toMatchObject({ queued: 1 });
});
