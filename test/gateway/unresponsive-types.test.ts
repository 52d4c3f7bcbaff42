import { beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { TypeStatements } from '../../src/gateway/pairs/type-statements.ts';
import { openDatabase } from '../harness/database.ts';
import { createLogin } from '../harness/login.ts';
import { HarmScene } from './harm-scene.ts';
import type { LiveClient, Said } from './live-client.ts';
import { LiveScene, type RunningGateway } from './live-scene.ts';

let scene: LiveScene;
let harm: HarmScene;

beforeAll(async () => {
  scene = await LiveScene.open();
  harm = await HarmScene.open(scene);
});
beforeEach(() => scene.db.query('delete from pgfresh_engine.type_timeout'));

/** Connects and requests pairs, without waiting for an answer. */
async function want(running: RunningGateway, user: string, pairs: readonly string[][]): Promise<LiveClient> {
  const client = await running.greet(user);
  client.say({ type: 'want', pairs });
  return client;
}

/**
 * The answer about a pair that need not wait, and the note that the other one does. On a busy machine both pairs may get
 * a note first, and the answer follows.
 */
async function nextBoth(client: LiveClient, prompt: readonly string[]): Promise<Said[]> {
  const isOfPrompt = ({ pair }: Said): boolean => JSON.stringify(pair) === JSON.stringify(prompt);
  const heard: Said[] = [];
  while (heard.length < 2) {
    const said = await client.next();
    if (said.type !== 'waiting' || !isOfPrompt(said)) heard.push(said);
  }
  return heard.toSorted((one, two) => (one.type < two.type ? -1 : 1));
}

const waitsFor = (pair: readonly string[]) => ({
  type: 'waiting',
  pair,
  activity: 'waiting',
  reason: 'quarantined',
  words: 'It cannot be refreshed at the moment.',
});

describe.each([
  ['a gate that hangs', 'gated', () => harm.hang('gate')],
  ['a staleness function that loops', 'looping', () => harm.hang('check')],
  ['a lock on a table', 'locked', () => harm.lock('locked')],
  ['a lock on a table of keys', 'listed', () => harm.lock('listing')],
])('sound 14: %s', (_, type, begin) => {
  it('holds up no viewer of another type, new or already connected', async () => {
    await scene.quote('OLD', 1);
    const running = await scene.gateway();
    const before = await want(running, 'before', [['quote', 'OLD']]);
    await before.nextAbout('quote', ['snapshot']);
    const release = await begin();
    const harmed = await want(running, 'harmed', [
      [type, 'A'],
      [type, 'B'],
    ]);
    const others = await Promise.all(
      Array.from({ length: 20 }, (_unused, n) => want(running, `user${n}`, [['quote', `K${'X'.repeat(n)}`]])),
    );
    for (const other of others)
      expect(await other.nextAbout('quote', ['snapshot'])).toMatchObject({ state: 'missing' });
    await scene.quote('OLD', 2);
    expect(await before.nextAbout('quote', ['change'])).toMatchObject({ rows: [{ price: 2 }] });
    await release();
    // Each pair is answered separately, in any order.
    const isA = ({ pair }: Said): boolean => (pair as readonly string[])[1] === 'A';
    expect(await harmed.nextAbout(type, ['snapshot'], isA)).toMatchObject({ rows: [{ price: 1 }] });
  });
});

describe('sound 14: a data type that does not answer', () => {
  it('does not delay other pairs of the same message', async () => {
    const running = await scene.gateway();
    const release = await harm.lock('listing');
    const first = await want(running, 'first', [['listed', 'A']]);
    expect(await first.next()).toEqual(waitsFor(['listed', 'A']));
    const page = await want(running, 'page', [
      ['listed', 'B'],
      ['quote', 'PAGE'],
    ]);
    const answer = { type: 'answer', pairs: [{ pair: ['quote', 'PAGE'], result: 'accepted' }] };
    expect(await nextBoth(page, ['quote', 'PAGE'])).toEqual([answer, waitsFor(['listed', 'B'])]);
    expect(await page.nextAbout('quote', ['snapshot'])).toMatchObject({ state: 'missing' });
    expect(await page.isQuiet()).toBe(true);
    await release();
    expect(await page.next('answer')).toMatchObject({ pairs: [{ pair: ['listed', 'B'], result: 'accepted' }] });
    expect(await page.nextAbout('listed', ['snapshot'])).toMatchObject({ state: 'missing' });
  });

  it('sends no answer for a pair that was dropped in the meantime', async () => {
    const running = await scene.gateway();
    const release = await harm.lock('listing');
    const client = await want(running, 'dropper', [['listed', 'A']]);
    await client.next('waiting');
    client.say({ type: 'drop', pairs: [['listed', 'A']] });
    expect(await client.isQuiet()).toBe(true);
    const other = await want(running, 'other', [['listed', 'A']]);
    await other.next('waiting');
    await release();
    await other.next('answer');
    expect(await client.isQuiet()).toBe(true);
    // Only the user who still views it counts.
    await expect.poll(() => scene.demand()).toEqual(['listed A 1']);
  });

  it('is shown as it was last read, with a reason, and never as fresh past its time', async () => {
    const running = await scene.gateway();
    await scene.db.query(`insert into locked values ('S', 1, now() - interval '54 seconds')`);
    const before = await want(running, 'before', [['locked', 'S']]);
    expect(await before.nextAbout('locked', ['snapshot'])).toMatchObject({ state: 'fresh', reason: null });
    const release = await harm.lock('locked');
    const after = await want(running, 'after', [['locked', 'B']]);
    expect(await after.nextAbout('locked', ['waiting', 'snapshot'])).toEqual(waitsFor(['locked', 'B']));
    const isStale = ({ state }: Said): boolean => state === 'stale';
    expect(await before.nextAbout('locked', ['change'], isStale)).toMatchObject({
      activity: 'waiting',
      reason: 'quarantined',
      words: 'It cannot be refreshed at the moment.',
    });
    await release();
    await harm.probe();
    expect(await after.nextAbout('locked', ['snapshot'])).toMatchObject({ state: 'missing' });
    const isReleased = ({ reason }: Said): boolean => reason !== 'quarantined';
    expect(await before.nextAbout('locked', ['change'], isReleased)).toMatchObject({ state: 'stale' });
  });

  it('makes a plain request end with "busy", while another type answers at once', async () => {
    const running = await scene.gateway({ anonymous: 'loopback' });
    const release = await harm.lock('listing');
    const get = (path: string) => fetch(`${running.http.url}/live/${path}`);
    const [held, other] = [get('listed/A'), await get('quote/PLAIN')];
    expect(other.status).toBe(200);
    expect((await held).status).toBe(503);
    await release();
    expect((await get('listed/A')).status).toBe(200);
  });

  it('is recorded, warned about and explained, until it answers again', async () => {
    const running = await scene.gateway();
    const release = await harm.lock('locked');
    // A key without an earlier job.
    const client = await want(running, 'one', [['locked', 'NOTED']]);
    await client.nextAbout('locked', ['waiting']);
    const quarantined = () => scene.value<string[]>('array(select data_type from pgfresh_engine.quarantined_types())');
    await vi.waitFor(async () => expect(await quarantined()).toEqual(['locked']), 10_000);
    const warned = `array(select subject from pgfresh.warnings where code = 'type_quarantined')`;
    expect(await scene.value(warned)).toContain('locked');
    expect(await scene.value(`pgfresh.explain_pair('locked', 'NOTED') ->> 'reason'`)).toBe('quarantined');
    await release();
    await client.nextAbout('locked', ['snapshot']);
    await harm.probe();
    expect(await quarantined()).toEqual([]);
  });
});

describe('sound 14: statements about data types', () => {
  const open = (statementTimeoutMs: number) => {
    const db = openDatabase(scene.url, { poolSize: 12, pipelined: true });
    const statements = new TypeStatements({
      db,
      limits: { lockTimeoutMs: 100, statementTimeoutMs },
      onTimeout: () => {},
    });
    const ended: string[] = [];
    const ask = async (type: string, statement: string): Promise<void> => {
      await statements.run(type, 'plan', (of) => of.query(statement)).catch(() => {});
      ended.push(type);
    };
    return { ask, ended };
  };

  it('of one type leave room for others, however many there are', async () => {
    const { ask, ended } = open(20_000);
    const release = await harm.hang('gate');
    const slow = Array.from({ length: 6 }, () => ask('slow', `select hanging_gate('', '')`));
    await ask('quick', 'select 1');
    expect(ended).toEqual(['quick']);
    await release();
    await Promise.all(slow);
  });

  it('that are probes leave room for others, however many types are probed', async () => {
    const { ask, ended } = open(50);
    const types = Array.from({ length: 8 }, (_, n) => `slow${n}`);
    const round = () => types.map((type) => ask(type, 'select pg_sleep(60)'));
    for (let time = 0; time < 2; time++) await Promise.all(round());
    ended.length = 0;
    await Promise.all([...round(), ask('quick', 'select 1')]);
    // Queued behind the probes, which run two at a time, it would be the last one.
    expect(ended.indexOf('quick')).toBeLessThan(types.length / 2);
  });
});

it('sound 14: an authorize that hangs for one data type does not delay pairs of another', async () => {
  const running = await scene.gateway({
    authorize: (_, { dataType }) => (dataType === 'locked' ? new Promise<boolean>(() => {}) : true),
  });
  const page = await want(running, 'page', [
    ['locked', 'A'],
    ['quote', 'SEEN'],
  ]);
  expect(await nextBoth(page, ['quote', 'SEEN'])).toMatchObject([
    { pairs: [{ pair: ['quote', 'SEEN'], result: 'accepted' }] },
    waitsFor(['locked', 'A']),
  ]);
  expect(await page.nextAbout('quote', ['snapshot'])).toMatchObject({ state: 'missing' });
  page.say({ type: 'add', pairs: [['quote', 'LATER']] });
  expect(await page.nextAbout('quote', ['snapshot'])).toMatchObject({ pair: ['quote', 'LATER'] });
  let said = await page.next();
  while (said.type !== 'answer') said = await page.next();
  expect(said).toMatchObject({ pairs: [{ pair: ['locked', 'A'], code: 'PGF_LIVE_UNDECIDED' }] });
});

it('sound 14: a locked table with row security does not delay readers of another table', async () => {
  const { name: member } = await createLogin(scene.url, 'pgfresh_viewer');
  for (const name of ['own', 'other']) {
    await scene.db.query(`
      create table ${name} (key text primary key, fetched_at timestamptz default clock_timestamp());
      alter table ${name} enable row level security;
      grant select on ${name} to ${member}, pgfresh_evaluator;
      create policy seen on ${name} for select to ${member}, pgfresh_evaluator using (true);
      insert into ${name} values ('A');
      insert into pgfresh.data_type_registry (data_type, source, table_name, timestamp_column, ttl, visibility)
        values ('${name}', 'market', '${name}', 'fetched_at', '1 hour', 'rls')`);
  }
  const running = await scene.gateway({ rls: { role: member } });
  const before = await want(running, 'before', [['other', 'A']]);
  await before.nextAbout('other', ['snapshot']);
  const release = await harm.lock('own');
  const held = await Promise.all(Array.from({ length: 12 }, (_, n) => want(running, `own${n}`, [['own', 'A']])));
  for (const client of held) expect(await client.nextAbout('own', ['waiting'])).toEqual(waitsFor(['own', 'A']));
  const others = await Promise.all(Array.from({ length: 12 }, (_, n) => want(running, `other${n}`, [['other', 'A']])));
  for (const client of others) expect(await client.nextAbout('other', ['snapshot'])).toMatchObject({ status: 'ready' });
  await scene.db.query(`update other set fetched_at = clock_timestamp()`);
  expect(await before.nextAbout('other', ['change'])).toMatchObject({ status: 'ready' });
  await release();
  for (const client of held) expect(await client.nextAbout('own', ['snapshot'])).toMatchObject({ status: 'ready' });
});

it('sound 14: a data type stays unresponsive after a lost connection', async () => {
  const limits = { lockTimeoutMs: 50, statementTimeoutMs: 50 };
  const statements = new TypeStatements({ db: openDatabase(scene.url), limits, onTimeout: () => {} });
  const ask = (statement: string) => statements.run('quote', 'keys', (db) => db.query(statement)).catch(() => {});
  await ask('select pg_sleep(60)');
  await ask('select pg_sleep(60)');
  expect(statements.isUnresponsive('quote', 'keys')).toBe(true);
  await ask('select pg_terminate_backend(pg_backend_pid())');
  expect(statements.isUnresponsive('quote', 'keys')).toBe(true);
  // An error is an answer.
  await ask('select 1 / 0');
  expect(statements.isUnresponsive('quote', 'keys')).toBe(false);
});
