import { setTimeout as wait } from 'node:timers/promises';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { resolveConfig } from '../../src/config/index.ts';
import type { Database } from '../../src/database/index.ts';
import { shiftClock } from '../harness/clock.ts';
import { openDatabase } from '../harness/database.ts';
import { createLogin } from '../harness/login.ts';
import { startOwnServer } from '../harness/own-server.ts';
import { Proxy } from '../harness/proxy.ts';
import { quoteType, RefreshScene } from '../refresh/scene.ts';
import { drained, startWorker, until } from './scene.ts';

const keysOf = (count: number, prefix = 'K') => Array.from({ length: count }, (_, n) => `${prefix}${n}`);
const endedOf = (scene: RefreshScene) => scene.seen.filter((event) => event.type === 'refresh.ended');
const outcomesOf = (scene: RefreshScene, dataType: string) =>
  Object.fromEntries(
    endedOf(scene)
      .filter((event) => event.dataType === dataType)
      .map(({ key, outcome }) => [key, outcome]),
  );

describe('a worker', () => {
  it('shares twenty jobs with another one, and each is fetched once', async () => {
    const scene = await RefreshScene.open();
    const keys = keysOf(20);
    for (const key of keys) scene.quote(key, 1);
    const workers = await Promise.all([startWorker(scene), startWorker(scene)]);
    await Promise.all(keys.map((key) => scene.enqueue('quote', [key])));
    await drained(scene);
    expect(scene.provider.asked.toSorted()).toEqual(keys.map((key) => `/quote/${key}`).toSorted());
    expect(
      await scene.value(`select count(*)::int from pgfresh_engine.history_succeeded where outcome = 'fresh'`),
    ).toBe(20);
    expect(await scene.value('select count(*)::int from quote')).toBe(20);
    await Promise.all(workers.map((worker) => worker.stop()));
    // Nobody but the scene's own is left, and nothing is claimed.
    expect(await scene.value(`select count(*)::int from pgfresh_engine.process where name <> 'test'`)).toBe(0);
  });

  it('goes on with a living source beside a dead one, which is left alone and comes back', async () => {
    const dead = quoteType({ name: 'dead', source: 'elsewhere', request: (key) => ({ url: `/dead/${key}` }) });
    const scene = await RefreshScene.open([quoteType(), dead], ['elsewhere']);
    const keys = keysOf(30);
    // More than a worker asks for while the first failures are on their way to the breaker.
    const deadKeys = keysOf(300);
    for (const key of keys) scene.quote(key, 1);
    for (const key of deadKeys) scene.provider.answers.set(`/dead/${key}`, (request) => void request.socket.destroy());
    const callsOfTheDead = () => scene.provider.asked.filter((path) => path.startsWith('/dead/')).length;
    const worker = await startWorker(scene, { concurrency: 8 });
    await scene.enqueue('dead', deadKeys);
    await scene.enqueue('quote', keys);
    await until(() => Object.keys(outcomesOf(scene, 'quote')).length === 30);
    expect(new Set(Object.values(outcomesOf(scene, 'quote')))).toEqual(new Set(['fresh']));
    expect(new Set(Object.values(outcomesOf(scene, 'dead')))).toEqual(new Set(['network']));
    // The breaker has opened, and the others wait unclaimed.
    await until(() =>
      scene.value(`select breaker_opened_at is not null from pgfresh.sources where name = 'elsewhere'`),
    );
    // What is still on its way would close what is opened below.
    await until(() => scene.value(`select not exists (select from pgfresh_engine.job where state = 'x')`));
    expect(callsOfTheDead()).toBeLessThan(deadKeys.length);
    expect(await scene.value(`select count(*)::int from pgfresh_engine.job`)).toBe(deadKeys.length);

    for (const key of deadKeys)
      scene.provider.json(`/dead/${key}`, { symbol: key, price: 2, at: '2026-01-05T13:00:00Z' });
    await scene.db.query(`update pgfresh_engine.job set run_at = pgfresh.clock() where state = 'w'`);
    await scene.db.query(`update pgfresh.sources set paused_until = pgfresh.clock() where name = 'elsewhere'`);
    await drained(scene);
    expect(new Set(Object.values(outcomesOf(scene, 'dead')))).toEqual(new Set(['fresh']));
    expect(await scene.value(`select breaker_opened_at is null from pgfresh.sources where name = 'elsewhere'`)).toBe(
      true,
    );
    await worker.stop();
  });

  it('fetches what it has claimed when its data type cannot be served any more at that moment', async () => {
    const scene = await RefreshScene.open();
    scene.quote('A', 1);
    const db = openDatabase(scene.url, { events: scene.events });
    const [claimed, goOn] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    const query: Database['query'] = async (statement, values) => {
      const rows = await db.query(statement, values);
      if (typeof statement === 'object' && statement.name === 'pgfresh.claim' && rows.length > 0) {
        claimed.resolve();
        await goOn.promise;
      }
      return rows as never;
    };
    const slow = { query, transact: db.transact.bind(db), host: db.host.bind(db) } as Database;
    const worker = await startWorker(scene, { db: slow });
    await scene.enqueue('quote', ['A']);
    await claimed.promise;
    await scene.db.query('alter table quote drop constraint quote_pkey cascade');
    await until(() => scene.seen.some((event) => event.type === 'warning' && event.code === 'type_unwritable'));
    await scene.db.query('alter table quote add primary key (symbol)');
    goOn.resolve();
    await drained(scene);
    expect(outcomesOf(scene, 'quote')).toEqual({ A: 'fresh' });
    await worker.stop();
  });

  it('truth 3: stops calling with a key that is refused, loses no job, and goes on when it is accepted', async () => {
    const scene = await RefreshScene.open();
    const keys = keysOf(400);
    for (const key of keys)
      scene.provider.answers.set(`/quote/${key}`, (_request, response) => response.writeHead(401).end());
    const worker = await startWorker(scene, { concurrency: 4 });
    await scene.enqueue('quote', keys);
    await until(() => scene.value(`select paused_by = 'credentials' from pgfresh.sources where name = 'market'`));
    await until(() => scene.value(`select not exists (select from pgfresh_engine.job where state = 'x')`));
    // No more than were under way at once.
    expect(scene.provider.asked.length).toBeLessThanOrEqual(4);
    expect(new Set(Object.values(outcomesOf(scene, 'quote')))).toEqual(new Set(['unauthorized']));
    expect(await scene.value(`select count(*)::int from pgfresh_engine.job where state = 'r'`)).toBe(400);
    expect(await scene.value(`select count(*)::int from pgfresh.failed_jobs`)).toBe(0);
    expect(await scene.value(`select code from pgfresh.warnings`)).toBe('key_refused');
    for (const key of keys) scene.quote(key, 1);
    await scene.db.query(`select pgfresh.resume_source('market')`);
    await drained(scene);
    expect(new Set(Object.values(outcomesOf(scene, 'quote')))).toEqual(new Set(['fresh']));
    await worker.stop();
  });

  it('truth 3: leaves a data type alone whose answers have another form, and keeps its rows', async () => {
    const name = quoteType({
      name: 'name',
      table: 'plain',
      request: (key) => ({ url: `/name/${key}` }),
      sourceTimestamp: undefined,
      rows: ({ symbol, price }: { symbol: string; price: number }) => ({ symbol, price }),
    });
    const scene = await RefreshScene.open([quoteType(), name]);
    const keys = keysOf(400);
    for (const key of keys) {
      await scene.db.query(
        `insert into quote (symbol, price, fetched_at) values ($1::text, 1, now() - interval '1 day')`,
        [key],
      );
      scene.provider.json(`/quote/${key}`, { symbol: key, cost: 2, at: '2026-01-05T13:00:00Z' });
      scene.provider.json(`/name/${key}`, { symbol: key, price: 2, at: '2026-01-05T13:00:00Z' });
    }
    const worker = await startWorker(scene, { concurrency: 4 });
    await scene.enqueue('quote', keys);
    await until(() => scene.value(`select exists (select from pgfresh_engine.breaker where opened_at is not null)`));
    await until(() => scene.value(`select not exists (select from pgfresh_engine.job where state = 'x')`));
    // Five in a row, and what was under way beside the fifth.
    expect(scene.provider.asked.length).toBeLessThanOrEqual(8);
    await scene.enqueue('name', keys);
    await until(() => Object.keys(outcomesOf(scene, 'name')).length === 400);
    expect(new Set(Object.values(outcomesOf(scene, 'name')))).toEqual(new Set(['fresh']));
    expect(await scene.value(`select count(*)::int from quote where price = 1`)).toBe(400);
    expect(await scene.value(`select count(*)::int from pgfresh_engine.job`)).toBeGreaterThan(0);
    await worker.stop();
  });

  it('survives functions that throw and rows of another key, and writes the rest of the batch', async () => {
    const type = quoteType({
      request: (key) => {
        if (key === 'THROWS') throw new Error('no such thing');
        return { url: `/quote/${key}` };
      },
      rows: (answer) => {
        const { symbol, price, at } = answer as { symbol: string; price: number; at: string };
        if (price === 666) throw new Error('rows cannot');
        return { symbol, price, quoted_at: at };
      },
    });
    const scene = await RefreshScene.open([type]);
    for (const key of ['GOOD', 'FINE']) scene.quote(key, 1);
    scene.quote('BAD', 13);
    scene.quote('EVIL', 666);
    scene.provider.json('/quote/OTHER', { symbol: 'GOOD', price: 9, at: '2026-02-01T00:00:00Z' });
    await scene.enqueue('quote', ['GOOD', 'THROWS', 'OTHER', 'BAD', 'EVIL', 'FINE']);
    const worker = await startWorker(scene);
    await until(() => endedOf(scene).length >= 6);
    expect(outcomesOf(scene, 'quote')).toEqual({
      GOOD: 'fresh',
      FINE: 'fresh',
      THROWS: 'config',
      EVIL: 'config',
      OTHER: 'wrong_key',
      BAD: 'write_conflict',
    });
    expect(await scene.rows()).toEqual([
      { symbol: 'FINE', price: 1 },
      { symbol: 'GOOD', price: 1 },
    ]);
    expect(await scene.value(`select error from pgfresh_engine.history_other where key = 'THROWS'`)).toBe(
      'request threw: no such thing',
    );
    await worker.stop();
  });

  it('fetches the next ones while a commit takes its time, as many at once as it may', async () => {
    const scene = await RefreshScene.open();
    const keys = keysOf(12);
    const open = { now: 0, most: 0 };
    for (const key of keys) {
      scene.quote(key, 1);
      const answer = scene.provider.answers.get(`/quote/${key}`)!;
      scene.provider.answers.set(`/quote/${key}`, (request, response) => {
        open.most = Math.max(open.most, ++open.now);
        setImmediate(() => {
          open.now--;
          answer(request, response);
        });
      });
    }
    await scene.enqueue('quote', keys);
    const worker = await scene.db.transact('hold', async (tx) => {
      await tx.query('lock table quote in share mode');
      const started = await startWorker(scene, { concurrency: 4 });
      await until(() => scene.provider.asked.length === keys.length);
      return started;
    });
    await drained(scene);
    expect(await scene.value('select count(*)::int from quote')).toBe(keys.length);
    expect(open.most).toBeLessThanOrEqual(4);
    await worker.stop();
  });

  it('is limited to types', async () => {
    const scene = await RefreshScene.open([quoteType(), quoteType({ name: 'other' })]);
    scene.quote('A', 1);
    const worker = await startWorker(scene, { types: ['other'] });
    await scene.enqueue('quote', ['A']);
    await scene.enqueue('other', ['A']);
    await until(() => endedOf(scene).length === 1);
    expect(outcomesOf(scene, 'other')).toEqual({ A: 'fresh' });
    expect(await scene.value(`select status from pgfresh_engine.open_jobs`)).toBe('pending');
    await worker.stop();
  });

  it('needs no more rights than those of the role pgfresh_worker and of its tables', async () => {
    const scene = await RefreshScene.open();
    scene.quote('A', 1);
    scene.quote('B', 13);
    const login = await createLogin(scene.url, 'pgfresh_worker');
    await scene.db.query(`grant select, insert, update on public.quote to ${login.name}`);
    const db = openDatabase(login.url);
    const worker = await startWorker(scene, { db, url: login.url });
    await scene.enqueue('quote', ['A', 'B']);
    await until(() => endedOf(scene).length === 2);
    expect(outcomesOf(scene, 'quote')).toEqual({ A: 'fresh', B: 'write_conflict' });
    expect(scene.seen.filter(({ type }) => type === 'worker.failed')).toEqual([]);
    await worker.stop();
    await db.close();
  });

  it('truth 5: tells the queue what it serves, and a fetcher that it lacks is explained', async () => {
    const scene = await RefreshScene.open([quoteType(), quoteType({ name: 'other' })]);
    await scene.db
      .query(`insert into pgfresh.data_type_registry (data_type, source, table_name, key_columns, timestamp_column, ttl, fetcher)
      values ('typo', 'market', 'quote', '{symbol}', 'fetched_at', '1 day', 'qoute')`);
    // That of the scene has not said what it serves.
    await scene.db.query(`update pgfresh_engine.process set lease_until = '-infinity'`);
    const worker = await startWorker(scene, { types: ['quote', 'typo'] });
    const why = (type: string) => scene.value<string>(`select pgfresh.explain_pair('${type}', 'A') ->> 'words'`);
    await scene.db.query(`select pgfresh.pause_source('market', pgfresh.clock() + interval '1 hour')`);
    for (const type of ['quote', 'typo', 'other'])
      await scene.db.query(`select pgfresh.queue_refresh_if_not_exists('A', $1::text)`, [type]);
    expect(await why('typo')).toBe('No worker that runs has the fetcher qoute; did you mean quote?');
    expect(await why('other')).toMatch(/^The workers that run are limited to other data types than other: start /);
    expect(await why('quote')).toMatch(/^The source market is paused for /);
    await worker.stop();
    expect(await why('quote')).toBe('No worker is running: start one with "pgfresh run --roles worker".');
  });

  it('truth 16: deletes the rows that nobody has viewed for as long as their type says', async () => {
    const scene = await RefreshScene.open([quoteType({ evictAfter: '1h' })]);
    scene.quote('OLD', 1);
    scene.quote('NEW', 1);
    await scene.refresh(['OLD', 'NEW']);
    await scene.db.query(`update pgfresh_engine.pairs set ok_at = ok_at - interval '2 hours' where key = 'OLD'`);
    const worker = await startWorker(scene);
    await until(() => scene.seen.some(({ type }) => type === 'worker.evicted'));
    expect(await scene.rows()).toEqual([{ symbol: 'NEW', price: 1 }]);
    await worker.stop();
  });

  it('truth 18: does not fetch what it may not write, names the grant, and goes on with the rest', async () => {
    const plain = quoteType({
      name: 'plain',
      table: 'plain',
      sourceTimestamp: undefined,
      rows: (answer) => ({ symbol: (answer as { symbol: string }).symbol, price: 1 }),
    });
    const scene = await RefreshScene.open([quoteType(), plain]);
    scene.quote('A', 1);
    const login = await createLogin(scene.url, 'pgfresh_worker');
    await scene.db.query(
      `grant select, insert on public.quote to ${login.name}; grant select, insert, update on public.plain to ${login.name}`,
    );
    const db = openDatabase(login.url);
    const worker = await startWorker(scene, { db, url: login.url });
    const warnings = scene.seen.filter((event) => event.type === 'warning');
    expect(warnings).toMatchObject([
      {
        code: 'type_unwritable',
        subject: 'quote',
        message: `quote: the login ${login.name} may not write public.quote`,
        next: `Run: grant update on public.quote to ${login.name};`,
      },
    ]);
    await scene.enqueue('quote', ['A']);
    await scene.enqueue('plain', ['A']);
    await until(() => endedOf(scene).length === 1);
    expect([outcomesOf(scene, 'plain'), scene.provider.asked]).toEqual([{ A: 'fresh' }, ['/quote/A']]);
    // The job waits for the right, and for nothing else.
    await scene.db.query(`grant update on public.quote to ${login.name}`);
    await until(() => endedOf(scene).length === 2);
    expect(outcomesOf(scene, 'quote')).toEqual({ A: 'fresh' });
    // A right that is taken away counts too.
    await scene.db.query(`revoke select on public.plain from ${login.name}`);
    await until(() => scene.seen.some((event) => event.type === 'warning' && event.subject === 'plain'));
    await scene.enqueue('plain', ['A']);
    await scene.enqueue('quote', ['A']);
    await until(() => endedOf(scene).length === 3);
    expect([outcomesOf(scene, 'quote'), scene.provider.asked.length]).toEqual([{ A: 'unchanged' }, 3]);
    await worker.stop();
    await db.close();
  });

  it('takes up a type that SQL adds while it runs', async () => {
    const scene = await RefreshScene.open();
    scene.quote('A', 1);
    const worker = await startWorker(scene);
    await scene.db.query(
      `insert into pgfresh.data_type_registry (data_type, source, fetcher, table_name, key_columns, timestamp_column, ttl, source_timestamp_field)
       values ('copy', 'market', 'quote', 'quote', '{symbol}', 'fetched_at', '1 minute', 'quoted_at')`,
    );
    await scene.enqueue('copy', ['A']);
    await until(() => endedOf(scene).length === 1);
    expect(outcomesOf(scene, 'copy')).toEqual({ A: 'fresh' });
    await worker.stop();
  });

  it('holds the whole source when the provider says wait, and comes back to it', async () => {
    const scene = await RefreshScene.open();
    scene.quote('B', 1);
    scene.provider.answers.set('/quote/A', (_request, response) => {
      scene.quote('A', 1);
      response.writeHead(429, { 'retry-after': '3' }).end();
    });
    const worker = await startWorker(scene);
    await scene.enqueue('quote', ['A']);
    await until(() => endedOf(scene).length === 1);
    expect(outcomesOf(scene, 'quote')).toEqual({ A: 'rate_limited' });
    expect(await scene.value(`select paused_until > pgfresh.clock() from pgfresh.sources`)).toBe(true);
    await scene.enqueue('quote', ['B']);
    await drained(scene);
    expect(outcomesOf(scene, 'quote')).toEqual({ A: 'fresh', B: 'fresh' });
    expect(await scene.value(`select retries from pgfresh_engine.history_succeeded where key = 'A'`)).toBe(0);
    await worker.stop();
  });
});

describe('a provider with a limit', () => {
  it('is left alone after the last good answer that it allows', async () => {
    const scene = await RefreshScene.open();
    const body = JSON.stringify({ symbol: 'A', price: 1, at: '2026-01-05T12:00:00Z' });
    scene.provider.answers.set('/quote/A', (_request, response) => {
      const headers = { 'x-ratelimit-remaining': '0', 'x-ratelimit-reset': '30', 'content-length': body.length };
      response.writeHead(200, { 'content-type': 'application/json', ...headers }).end(body);
    });
    const worker = await startWorker(scene);
    await scene.enqueue('quote', ['A']);
    await until(() => endedOf(scene).length === 1);
    expect(outcomesOf(scene, 'quote')).toEqual({ A: 'fresh' });
    const [source] = await scene.db.query(
      `select extract(epoch from paused_until - pgfresh.clock()) between 20 and 30 as paused, paused_by from pgfresh.sources`,
    );
    expect(source).toEqual({ paused: true, paused_by: 'provider' });
    await worker.stop();
  });

  it('that cannot be held is none of the job, which ends as it would have', async () => {
    const scene = await RefreshScene.open();
    await scene.db.query(
      `create or replace function pgfresh_engine.hold_source(p_source_id int, p_until timestamptz, p_reason text) returns timestamptz
       language plpgsql as $$ begin raise exception 'no hold'; end $$`,
    );
    const body = JSON.stringify({ symbol: 'A', price: 1, at: '2026-01-05T12:00:00Z' });
    const headers = { 'x-ratelimit-remaining': '0', 'x-ratelimit-reset': '30' };
    scene.provider.answers.set('/quote/A', (_request, response) => {
      response.writeHead(200, { 'content-type': 'application/json', ...headers }).end(body);
    });
    scene.provider.answers.set('/quote/B', (_request, response) => {
      response.writeHead(500, headers).end();
    });
    const worker = await startWorker(scene);
    await scene.enqueue('quote', ['A', 'B']);
    await until(() => endedOf(scene).length === 2);
    expect(outcomesOf(scene, 'quote')).toEqual({ A: 'fresh', B: 'http_5xx' });
    expect(await scene.rows()).toEqual([{ symbol: 'A', price: 1 }]);
    expect(await scene.value(`select outcome from pgfresh_engine.history_succeeded`)).toBe('fresh');
    expect(scene.seen.filter(({ type }) => type === 'worker.failed')).toContainEqual(
      expect.objectContaining({ step: 'hold', problem: expect.stringContaining('no hold') }),
    );
    await worker.stop();
  });

  it('sound 2: that says wait and not for how long is left alone for ten seconds', async () => {
    const scene = await RefreshScene.open();
    scene.provider.answers.set('/quote/A', (_request, response) => response.writeHead(429).end());
    const worker = await startWorker(scene);
    await scene.enqueue('quote', ['A']);
    await until(() => endedOf(scene).length === 1);
    const left = await scene.value<number>(
      `select extract(epoch from paused_until - pgfresh.clock())::float8 from pgfresh.sources`,
    );
    expect(left).toBeGreaterThan(5);
    expect(left).toBeLessThanOrEqual(10);
    await worker.stop();
  });

  it('is asked for one call more when it sends elsewhere', async () => {
    const scene = await RefreshScene.open();
    await scene.db.query(`update pgfresh.sources set rate_limit_per_minute = 10`);
    await scene.db.query('truncate pgfresh_engine.rate_slot');
    scene.quote('A', 1);
    const moved = quoteType({ request: (key) => ({ url: `/old/${key}` }) });
    scene.provider.answers.set('/old/A', (_request, response) =>
      response.writeHead(307, { location: '/quote/A' }).end(),
    );
    const { dataTypes = [] } = resolveConfig({ config: { sources: [{ name: 'market' }], dataTypes: [moved] } });
    const worker = await startWorker(scene, { dataTypes });
    await scene.enqueue('quote', ['A']);
    await until(() => endedOf(scene).length === 1);
    expect(endedOf(scene)).toMatchObject([{ outcome: 'fresh', calls: 2 }]);
    expect(
      await scene.value(
        `select sum(calls)::int from pgfresh_engine.rate_slot where free_at > (select pgfresh.clock())`,
      ),
    ).toBe(2);
    await worker.stop();
  });

  it('sound 7: gets no call with an API key that only a newer configuration has', async () => {
    const scene = await RefreshScene.open();
    // As a deploy that adds a key has it, while this worker knows of one.
    await scene.db.query(`update pgfresh.sources set rate_limit_per_minute = 100, api_keys = 2`);
    await scene.db.query('truncate pgfresh_engine.rate_slot');
    const keys = ['A', 'B', 'C', 'D'];
    for (const key of keys) scene.quote(key, 1);
    const [market] = scene.config.sources;
    vi.stubEnv('PGFRESH_TEST_API_KEY', 'secret');
    onTestFinished(() => void vi.unstubAllEnvs());
    const source = { ...market!, apiKeys: [{ env: 'PGFRESH_TEST_API_KEY' }] };
    const worker = await startWorker(scene, { sources: [source] });
    await scene.enqueue('quote', keys);
    await until(() => endedOf(scene).length === keys.length);
    expect(endedOf(scene).map(({ outcome }) => outcome)).toEqual(keys.map(() => 'fresh'));
    expect(await scene.value('select array_agg(distinct api_key) from pgfresh_engine.rate_slot')).toEqual([1]);
    await worker.stop();
  });

  it('that says wait for no time at all is not asked without end', async () => {
    const scene = await RefreshScene.open();
    const calls: number[] = [];
    scene.provider.answers.set('/quote/A', (_request, response) => {
      calls.push(performance.now());
      response.writeHead(429, { 'retry-after': '0' }).end();
    });
    const worker = await startWorker(scene);
    await scene.enqueue('quote', ['A']);
    await until(() => calls.length >= 2);
    expect(calls[1]! - calls[0]!).toBeGreaterThan(900);
    await worker.stop();
  });
});

describe('a worker that is asked to stop', () => {
  it('finishes what it has begun', async () => {
    const scene = await RefreshScene.open();
    const asked = Promise.withResolvers<() => void>();
    scene.provider.answers.set('/quote/SLOW', (_request, response) => {
      scene.quote('SLOW', 1);
      const answer = scene.provider.answers.get('/quote/SLOW')!;
      asked.resolve(() => answer(_request, response));
    });
    const worker = await startWorker(scene);
    await scene.enqueue('quote', ['SLOW']);
    const answer = await asked.promise;
    const stopped = worker.stop();
    answer();
    await stopped;
    expect(await scene.rows()).toEqual([{ symbol: 'SLOW', price: 1 }]);
    expect(scene.seen).toContainEqual(expect.objectContaining({ type: 'worker.drained', finished: 1, putBack: 0 }));
  });

  it('sound 6: does not make calls that it has claimed and not begun', async () => {
    const request = (key: string) => {
      worker.requestStop();
      return { url: `/quote/${key}` };
    };
    const scene = await RefreshScene.open([quoteType({ request })]);
    scene.quote('A', 1);
    const worker = await startWorker(scene);
    await scene.enqueue('quote', ['A']);
    await until(() => endedOf(scene).length === 1);
    await worker.stop();
    expect(scene.provider.asked).toEqual([]);
    const [job] = await scene.db.query(`select status, retry_count from pgfresh.api_call_queue`);
    expect(job).toEqual({ status: 'pending', retry_count: 0 });
  });

  it('puts back what does not end within the limit', async () => {
    const scene = await RefreshScene.open();
    const asked = Promise.withResolvers<void>();
    scene.provider.answers.set('/quote/NEVER', () => asked.resolve());
    const worker = await startWorker(scene, { drainMs: 50 });
    await scene.enqueue('quote', ['NEVER']);
    await asked.promise;
    await worker.stop();
    expect(scene.seen).toContainEqual(expect.objectContaining({ type: 'worker.drained', finished: 0, putBack: 1 }));
    const [job] = await scene.db.query(`select status, retry_count from pgfresh.api_call_queue`);
    expect(job).toEqual({ status: 'pending', retry_count: 0 });
  });
});

describe('the lease', () => {
  it('is renewed while the loop is busy', async () => {
    const scene = await RefreshScene.open();
    const worker = await startWorker(scene);
    const lease = () =>
      scene.value<number>(
        `select extract(epoch from lease_until)::float8 from pgfresh_engine.process where name <> 'test'`,
      );
    const before = await lease();
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 4_000);
    expect(await lease()).toBeGreaterThan(before);
    await worker.stop();
  });

  it('that is lost is followed by another', async () => {
    const scene = await RefreshScene.open();
    const worker = await startWorker(scene);
    await scene.db.query(`update pgfresh_engine.process set lease_until = '-infinity' where name <> 'test'`);
    // The first claim may have read its lease before, and would take the job.
    await until(() => scene.seen.some(({ type }) => type === 'worker.lease_lost'));
    scene.quote('A', 1);
    await scene.enqueue('quote', ['A']);
    await drained(scene);
    expect(scene.seen.filter(({ type }) => type === 'worker.lease_lost')).toHaveLength(1);
    await worker.stop();
  });
});

describe('a lease that a claim finds lost', () => {
  it('leaves what is under way to its end, with what it has cost', async () => {
    const scene = await RefreshScene.open();
    const asked = Promise.withResolvers<() => void>();
    scene.provider.answers.set('/quote/SLOW', (request, response) => {
      scene.quote('SLOW', 1);
      const answer = scene.provider.answers.get('/quote/SLOW')!;
      asked.resolve(() => answer(request, response));
    });
    const worker = await startWorker(scene);
    await scene.enqueue('quote', ['SLOW']);
    const answer = await asked.promise;
    // Nobody takes back what was held, so that only the worker itself could do it.
    await scene.db.query(
      `update pgfresh_engine.recovery set ran_at = pgfresh.clock(), trust_leases_from = 'infinity'; update pgfresh_engine.process set lease_until = '-infinity' where name <> 'test'`,
    );
    scene.quote('QUICK', 1);
    await scene.enqueue('quote', ['QUICK']);
    await until(() => endedOf(scene).length === 1);
    answer();
    await drained(scene);
    expect(scene.provider.asked.toSorted()).toEqual(['/quote/QUICK', '/quote/SLOW']);
    expect(await scene.value(`select sum(calls)::int from pgfresh_engine.usage`)).toBe(2);
    await worker.stop();
  });
});

describe('a worker that is gone', () => {
  it('is followed by another, which does its jobs', async () => {
    const scene = await RefreshScene.open();
    // A server that has just started gives everybody time.
    await (await shiftClock(scene.db)).advance('1 minute');
    scene.quote('A', 1);
    await scene.enqueue('quote', ['A']);
    expect(await scene.claim()).toHaveLength(1);
    await scene.db.query(`update pgfresh_engine.process set lease_until = pgfresh.clock()`);
    const worker = await startWorker(scene);
    await drained(scene);
    expect(await scene.rows()).toEqual([{ symbol: 'A', price: 1 }]);
    expect(await scene.value(`select lost from pgfresh_engine.history_succeeded`)).toBe(1);
    await worker.stop();
  });
});

describe('without its database', () => {
  it('puts back at once what was claimed by an answer that never came', async () => {
    const scene = await RefreshScene.open();
    const { proxy, url } = await Proxy.before(scene.url);
    const db = openDatabase(url, { events: scene.events });
    const worker = await startWorker(scene, { db });
    scene.quote('LOST', 1);
    let cuts = 0;
    proxy.judge = (chunk, direction) => {
      if (cuts > 0 || direction === 'to server' || !chunk.includes('LOST')) return 'pass';
      cuts++;
      return 'cut';
    };
    await scene.enqueue('quote', ['LOST']);
    await drained(scene);
    expect(cuts).toBe(1);
    // By the heartbeat it would have come back after five seconds.
    expect(
      await scene.value(`select ended_at - created_at < interval '4 seconds' from pgfresh_engine.history_succeeded`),
    ).toBe(true);
    await worker.stop();
    await db.close();
    await proxy.close();
  });

  it('goes on after every connection was cut, and after it was refused for a while', async () => {
    const scene = await RefreshScene.open();
    const { proxy, url } = await Proxy.before(scene.url);
    const db = openDatabase(url, { events: scene.events });
    const worker = await startWorker(scene, { db, url });
    const keys = keysOf(50);
    for (const key of keys) scene.quote(key, 1);
    proxy.cut();
    await scene.enqueue('quote', keys.slice(0, 25));
    await drained(scene);
    // For a second nobody gets through.
    proxy.judge = () => 'cut';
    await scene.enqueue('quote', keys.slice(25));
    await wait(1_000);
    proxy.judge = () => 'pass';
    const since = performance.now();
    await until(() => scene.provider.asked.length > 25);
    expect(performance.now() - since).toBeLessThan(5_000);
    await drained(scene);
    expect(await scene.value('select count(*)::int from quote')).toBe(50);
    await worker.stop();
    await db.close();
    await proxy.close();
  });

  it('goes on after the server has crashed and come back, at full rate within five seconds', async () => {
    const scene = await RefreshScene.open([quoteType()], [], '10s', await startOwnServer());
    const worker = await startWorker(scene);
    const keys = keysOf(200);
    const crashed = Promise.withResolvers<void>();
    for (const key of keys) {
      scene.quote(key, 1);
      const answer = scene.provider.answers.get(`/quote/${key}`)!;
      scene.provider.answers.set(`/quote/${key}`, (...call) => void crashed.promise.then(() => answer(...call)));
    }
    // Fewer than it may fetch at once, so that it asks for more meanwhile.
    await scene.enqueue('quote', keys.slice(0, 50));
    await until(() => scene.provider.asked.length === 50);
    const failed = (step: string) => scene.seen.some((event) => event.type === 'worker.failed' && event.step === step);
    do {
      process.kill(await scene.value<number>('select pg_backend_pid()'), 'SIGKILL');
      crashed.resolve();
      await vi.waitFor(() => scene.db.query('select 1'), { timeout: 20_000 });
    } while (!failed('claim'));
    const since = performance.now();
    await scene.enqueue('quote', keys.slice(50));
    // As many at once as it may; how fast they are committed is up to the machine.
    await until(() => scene.provider.asked.length >= 150);
    expect(performance.now() - since).toBeLessThan(5_000);
    await drained(scene);
    expect(await scene.value('select count(*)::int from quote')).toBe(200);
    await worker.stop();
  });
});
