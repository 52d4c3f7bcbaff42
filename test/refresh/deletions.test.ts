import { beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { defineDataType } from '../../src/index.ts';
import { acceptRefused, Commits, listRefused, readRefused, replayRefused, tryPair } from '../../src/refresh/index.ts';
import { keySuspects, LossRefusal, typeSuspects, type Loss } from '../../src/refresh/losses.ts';
import { blocked } from '../harness/blocked.ts';
import { freezeClock } from '../harness/clock.ts';
import { RefreshScene } from './scene.ts';

const price = defineDataType({
  name: 'price',
  source: 'market',
  table: 'plain',
  key: 'symbol',
  timestamp: 'fetched_at',
  ttl: '1m',
  schema: z.object({ symbol: z.string(), price: z.number() }),
  request: (key) => ({ url: `/price/${key}` }),
  rows: (answer) => answer,
  empty: { status: [204, 404], ttl: '1h', rows: 'delete' },
});
const keptPrice = defineDataType({ ...price, name: 'kept-price', empty: { status: [404] } });

/** All statements of a company at an exchange: a list that an answer replaces. */
const statement = defineDataType({
  name: 'statement',
  source: 'market',
  table: 'statement',
  key: ['symbol', 'exchange'],
  timestamp: 'fetched_at',
  ttl: '1d',
  write: 'replace',
  schema: z.array(z.object({ period: z.string(), revenue: z.number() })),
  request: (_key, { keyParts: [symbol, exchange] }) => ({ url: `/statement/${exchange}/${symbol}` }),
  rows: (statements, { keyParts: [symbol, exchange] }) => statements.map((one) => ({ symbol, exchange, ...one })),
});
const keptStatement = defineDataType({ ...statement, name: 'kept-statement', empty: { rows: 'keep' } });
const unguarded = defineDataType({ ...statement, name: 'unguarded', write: { mode: 'replace', maxDeletes: 1 } });
const types = [price, keptPrice, statement, keptStatement, unguarded];

/** What a scene's provider answers, and what its tables have. */
function words(scene: RefreshScene) {
  return {
    tellPrice: (symbol: string, value: number) => scene.provider.json(`/price/${symbol}`, { symbol, price: value }),
    tellNothing: (path: string, status = 404) =>
      scene.provider.answers.set(path, (_request, response) => response.writeHead(status).end()),
    tellStatements: (symbol: string, first: number, last: number) =>
      scene.provider.json(
        `/statement/X/${symbol}`,
        Array.from({ length: last - first + 1 }, (_, n) => ({
          period: new Date(Date.UTC(1970, 0, first + n)).toISOString().slice(0, 10),
          revenue: n,
        })),
      ),
    prices: (like = '%') => scene.value<number>(`select count(*)::int from plain where symbol like $1::text`, [like]),
    statements: (symbol: string) =>
      scene.value<number>(`select count(*)::int from statement where symbol = $1::text`, [symbol]),
    pair: async (type: string, key: string) =>
      (
        await scene.db.query(
          `select p.outcome, p.fails, p.ok_at is not null as ok from pgfresh_engine.pairs as p
           join pgfresh.data_type_registry using (type_id) where data_type = $1::text and key = $2::text`,
          [type, key],
        )
      )[0],
  };
}

describe('an answer that there is nothing', () => {
  let scene: RefreshScene;
  let say: ReturnType<typeof words>;
  beforeAll(async () => {
    scene = await RefreshScene.open(types);
    say = words(scene);
  });

  it.each([404, 204])(
    'truth 15: with status %i deletes the rows of its key with the end of its job',
    async (status) => {
      const key = `GONE${status}`;
      say.tellPrice(key, 1);
      say.tellPrice('STAYS', 1);
      await scene.refresh([key, 'STAYS'], 'price');
      say.tellNothing(`/price/${key}`, status);
      expect(await scene.outcome(key, 'price')).toBe('empty');
      expect([await say.prices(key), await say.prices('STAYS')]).toEqual([0, 1]);
      expect(await say.pair('price', key)).toEqual({ outcome: 'empty', fails: 0, ok: true });
    },
  );

  it('truth 15: reaches viewers as no rows, marked in the same transaction', async () => {
    say.tellPrice('SEEN', 1);
    await scene.refresh(['SEEN'], 'price');
    const [type] = await scene.db.query<{ id: number }>(
      `select type_id as id from pgfresh.data_type_registry where data_type = 'price'`,
    );
    await scene.db.query(`select pgfresh_engine.watch_changes(array[$1::int], null)`, [type!.id]);
    say.tellNothing('/price/SEEN');
    await scene.refresh(['SEEN'], 'price');
    const marks = `select keys from pgfresh_engine.change where type_id = $1::int and 'SEEN' = any (keys)`;
    expect(await scene.db.query(marks, [type!.id])).toEqual([{ keys: ['SEEN'] }]);
    const [read] = await scene.db.query<{ rows: string; state: string }>(
      `select rows, state from pgfresh_engine.read_pairs($1::int, '{SEEN}')`,
      [type!.id],
    );
    expect(read).toEqual({ rows: '[]', state: 'empty' });
  });

  it('truth 15: keeps the rows where nothing else is said', async () => {
    say.tellPrice('KEPT', 1);
    await scene.refresh(['KEPT'], 'kept-price');
    say.tellNothing('/price/KEPT');
    expect(await scene.outcome('KEPT', 'kept-price')).toBe('empty');
    expect(await say.prices('KEPT')).toBe(1);
  });

  it('truth 15: an empty list is the new list where answers replace what is there, unless it is said otherwise', async () => {
    for (const [type, symbol, left] of [
      ['statement', 'LIST', 0],
      ['kept-statement', 'HELD', 3],
    ] as const) {
      say.tellStatements(symbol, 1, 3);
      expect(await scene.outcome(`${symbol}|X`, type)).toBe('fresh');
      scene.provider.json(`/statement/X/${symbol}`, []);
      expect(await scene.outcome(`${symbol}|X`, type)).toBe('empty');
      expect(await say.statements(symbol)).toBe(left);
    }
  });

  it('truth 15: deletes nothing that was written after it was fetched', async () => {
    say.tellPrice('LATER', 1);
    await scene.refresh(['LATER'], 'price');
    say.tellNothing('/price/LATER');
    const type = await scene.type('price');
    await scene.enqueue('price', ['LATER']);
    const [job] = await scene.claim(type.id);
    const { signal } = new AbortController();
    const fetched = await scene.refresher().fetch(type, job!, signal);
    await scene.db.query(`update plain set price = 2, fetched_at = pgfresh.clock() where symbol = 'LATER'`);
    const {
      ended: [ended],
    } = await new Commits(scene.db, scene.queue).end(type, [{ job: job!, fetched }], signal);
    expect([ended!.outcome, await say.prices('LATER')]).toEqual(['older_source', 1]);
  });

  it('truth 15: in a commit with others, each has its own end', async () => {
    for (const key of ['MIX1', 'MIX2', 'MIX3']) say.tellPrice(key, 1);
    await scene.refresh(['MIX1', 'MIX2', 'MIX3'], 'price');
    say.tellNothing('/price/MIX2');
    const ended = await scene.refresh(['MIX1', 'MIX2', 'MIX3'], 'price');
    expect(ended.map(({ outcome }) => outcome)).toEqual(['fresh', 'empty', 'fresh']);
    expect(await say.prices('MIX%')).toBe(2);
  });

  it('truth 15: is shown by a trial, and nothing goes', async () => {
    say.tellPrice('TRIED', 1);
    await scene.refresh(['TRIED'], 'price');
    say.tellNothing('/price/TRIED');
    const trial = await tryPair({
      db: scene.db,
      client: scene.client('market'),
      type: await scene.type('price'),
      wanted: { key: 'TRIED', metadata: null },
      signal: new AbortController().signal,
    });
    expect(trial).toMatchObject({ outcome: 'empty', changes: [{ change: 'removed' }] });
    expect(await say.prices('TRIED')).toBe(1);
  });
});

describe('an answer that takes too much away', () => {
  it('truth 15: of one key is refused, kept, and written when an operator accepts it', async () => {
    const scene = await RefreshScene.open(types);
    const say = words(scene);
    say.tellStatements('ACME', 1, 50);
    expect(await scene.outcome('ACME|X', 'statement')).toBe('fresh');
    // The list has lost all but one.
    say.tellStatements('ACME', 50, 50);
    const [ended] = await scene.refresh(['ACME|X'], 'statement');
    expect(ended).toMatchObject({
      outcome: 'suspicious',
      error: '49 of the 50 rows of its key would go; at most 25 % may go at once',
    });
    expect(await say.statements('ACME')).toBe(50);
    expect(await say.pair('statement', 'ACME|X')).toEqual({ outcome: 'suspicious', fails: 1, ok: true });
    expect(
      await scene.db.query(`select subject, message from pgfresh.warnings where code = 'suspicious_answers'`),
    ).toEqual([{ subject: 'statement', message: expect.stringContaining('49 of the 50 rows') as string }]);
    // An empty list is the same lie.
    scene.provider.json('/statement/X/ACME', []);
    expect(await scene.outcome('ACME|X', 'statement')).toBe('suspicious');
    expect(await say.statements('ACME')).toBe(50);

    const [empty, most] = await listRefused(scene.db, 'statement');
    expect([empty!.outcome, most!.outcome]).toEqual(['suspicious', 'suspicious']);
    const type = await scene.type('statement');
    const refused = await readRefused(scene.db, most!.id);
    const { rows } = await replayRefused(type, refused, new Date());
    expect(rows).toHaveLength(1);
    expect(await acceptRefused(scene.db, type, refused, rows)).toBe('fresh');
    expect(await say.statements('ACME')).toBe(1);
    expect(await say.pair('statement', 'ACME|X')).toEqual({ outcome: 'fresh', fails: 0, ok: true });
    await expect(readRefused(scene.db, most!.id)).rejects.toMatchObject({ code: 'PGF_REFUSED_UNKNOWN' });
  });

  it('truth 15: is not accepted over what is newer', async () => {
    const scene = await RefreshScene.open(types);
    const say = words(scene);
    say.tellStatements('NEW', 1, 50);
    await scene.refresh(['NEW|X'], 'statement');
    scene.provider.json('/statement/X/NEW', []);
    await scene.refresh(['NEW|X'], 'statement');
    say.tellStatements('NEW', 1, 60);
    expect(await scene.outcome('NEW|X', 'statement')).toBe('fresh');
    const [entry] = await listRefused(scene.db);
    const type = await scene.type('statement');
    expect(await acceptRefused(scene.db, type, await readRefused(scene.db, entry!.id), [])).toBe('older_source');
    expect(await say.statements('NEW')).toBe(60);
  });

  it('truth 15: as a list whose rows are others every time is no loss, and where all may go nothing is refused', async () => {
    const scene = await RefreshScene.open(types);
    const say = words(scene);
    say.tellStatements('TOP', 1, 50);
    await scene.refresh(['TOP|X'], 'statement');
    say.tellStatements('TOP', 101, 150);
    expect(await scene.outcome('TOP|X', 'statement')).toBe('fresh');
    expect(await say.statements('TOP')).toBe(50);
    say.tellStatements('TOP', 1, 1);
    expect(await scene.outcome('TOP|X', 'unguarded')).toBe('fresh');
    expect(await say.statements('TOP')).toBe(1);
  });

  it('truth 15: of a thousand keys that all are empty within minutes stops at the share, and stays stopped', async () => {
    const scene = await RefreshScene.open(types);
    const say = words(scene);
    const clock = await freezeClock(scene.db);
    const keys = Array.from({ length: 1_000 }, (_, n) => `K${String(n).padStart(4, '0')}`);
    await scene.db.query(`insert into plain select k, 1, pgfresh.clock() from unnest($1::text[]) as k`, [keys]);
    await clock.advance('1 minute');
    await scene.db.query(`update pgfresh_engine.process set lease_until = 'infinity'`);
    for (const key of keys) say.tellNothing(`/price/${key}`);
    const outcomes = async (from: number, to: number) => {
      const counts: Record<string, number> = {};
      for (let first = from; first < to; first += 100) {
        for (const { outcome } of await scene.refresh(keys.slice(first, first + 100), 'price'))
          counts[outcome] = (counts[outcome] ?? 0) + 1;
      }
      return counts;
    };
    expect(await outcomes(0, 600)).toEqual({ empty: 250, suspicious: 350 });
    expect(await say.prices()).toBe(750);
    // The lie goes on the next day, and the day after: no more is believed.
    for (let day = 0; day < 3; day++) {
      await clock.advance('25 hours');
      expect(await outcomes(600 + day * 100, 700 + day * 100)).toEqual({ suspicious: 100 });
    }
    expect(await say.prices()).toBe(750);
    // When it has been over for long enough, keys may go again.
    await clock.advance('3 days');
    expect(await outcomes(900, 1_000)).toEqual({ empty: 100 });
    // An operator who accepts one has the count begin anew.
    const [entry] = await listRefused(scene.db, 'price');
    const type = await scene.type('price');
    expect(await acceptRefused(scene.db, type, await readRefused(scene.db, entry!.id), [])).toBe('empty');
    expect(await scene.value('select count(*)::int from pgfresh_engine.type_losses')).toBe(0);
  });

  it('truth 15: is refused to two commits at once as to one after the other', async () => {
    const scene = await RefreshScene.open(types);
    const say = words(scene);
    const keys = Array.from({ length: 40 }, (_, n) => `P${String(n).padStart(2, '0')}`);
    for (const key of keys) say.tellPrice(key, 1);
    await scene.refresh(keys, 'price');
    for (const key of keys) say.tellNothing(`/price/${key}`);
    const type = await scene.type('price');
    await scene.enqueue('price', keys);
    const { signal } = new AbortController();
    const refresher = scene.refresher();
    const jobs = await scene.claim(type.id);
    const ready = await Promise.all(
      jobs.map(async (job) => ({ job, fetched: await refresher.fetch(type, job, signal) })),
    );
    const commits = new Commits(scene.db, scene.queue);
    const ended = await Promise.all([0, 10, 20, 30].map((n) => commits.end(type, ready.slice(n, n + 10), signal)));
    const outcomes = ended.flatMap((ends) => ends.ended.map(({ outcome }) => outcome));
    expect(outcomes.filter((outcome) => outcome === 'empty')).toHaveLength(10);
    expect(outcomes.filter((outcome) => outcome === 'suspicious')).toHaveLength(30);
    expect(await say.prices()).toBe(30);
  });
});

it('what is refused waits for commits that count losses before it takes what they take next', async () => {
  const scene = await RefreshScene.open(types);
  const type = await scene.type('price');
  await scene.enqueue('price', ['L']);
  const [job] = await scene.claim(type.id);
  const refused = {
    refusal: new LossRefusal('type', 'too many'),
    cost: { bytes: 1, calls: 1, fetchMs: 1, validateMs: 1 },
  };
  let ended: Promise<unknown> | undefined;
  await scene.db.transact('a commit', async (tx) => {
    await tx.query('select pgfresh_engine.count_losses($1::int, 1)', [type.id]);
    ended = new Commits(scene.db, scene.queue).end(
      type,
      [{ job: job!, fetched: refused }],
      new AbortController().signal,
    );
    await blocked(scene.db);
    // As an end does that changes something about its source.
    await tx.query(`select from pgfresh.sources where name = 'market' for no key update nowait`);
  });
  expect(await ended).toMatchObject({ ended: [{ outcome: 'suspicious' }] });
});

describe('what may go at once', () => {
  const losses = (...all: [number, number][]) =>
    new Map<number, Loss>(all.map(([had, lost], job) => [job, { had, lost }]));

  it.each<[[number, number], number, boolean]>([
    [[50, 49], 0.25, true],
    [[50, 12], 0.25, false],
    [[50, 13], 0.25, true],
    // Of few rows every share is large.
    [[10, 10], 0.25, false],
    [[11, 11], 0.25, true],
    [[1, 1], 0, true],
    [[1_000, 1_000], 1, false],
  ])('of one key: %j with a share of %f', ([had, lost], share, isSuspect) => {
    expect(keySuspects(losses([had, lost]), share).size).toBe(isSuspect ? 1 : 0);
  });

  it('of a data type is given to those who come first, and what is too much for it is refused', () => {
    const suspects = typeSuspects(losses([1, 1], [9, 9], [5, 5], [1, 1]), { lostBefore: 240, rowsBefore: 1_000 }, 0.25);
    expect([...suspects.keys()]).toEqual([2, 3]);
    expect(new Set([...suspects.values()].map(({ message }) => message)).size).toBe(1);
    expect(typeSuspects(losses([1, 1]), { lostBefore: 0, rowsBefore: 1 }, 0).size).toBe(1);
  });
});
