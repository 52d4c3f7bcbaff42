import { beforeAll, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { lookUpPairs } from '../../src/gateway/index.ts';
import { openDatabase } from '../harness/database.ts';
import { Proxy } from '../harness/proxy.ts';
import { openSession } from '../harness/session.ts';
import { ChangesScene, sees } from './scene.ts';

let scene: ChangesScene;
beforeAll(async () => {
  scene = await ChangesScene.open();
});
beforeEach(async () => {
  await scene.db.query('truncate quote');
});

describe('a watcher of a pair', () => {
  it('receives the current state, and then the newest one after every kind of write', async () => {
    await scene.price('A', 1);
    const { gateway, look } = await scene.gateway();
    const viewer = await (await look('A')).until(sees(1));
    await scene.price('A', 2);
    await viewer.until(sees(2));
    await scene.db.query(`delete from quote where symbol = 'A'`);
    await viewer.until(sees(undefined));
    await scene.db.query(`insert into quote values ('A', 3, null)`);
    await viewer.until(sees(3));
    await scene.db.query(`truncate quote`);
    await viewer.until(sees(undefined));
    const versions = viewer.states.map(({ version }) => version);
    expect(versions).toEqual([...new Set(versions)].toSorted());
    expect(viewer.state).toMatchObject({
      rows: '[]',
      fetchedAt: null,
      staleAt: null,
      failing: false,
      state: 'missing',
      activity: 'idle',
      reason: null,
    });
    await gateway.stop();
  });

  it('receives no changes of other pairs, and no writes that change nothing', async () => {
    await scene.price('A', 1);
    const { look } = await scene.gateway();
    const [a, b] = [await look('A'), await look('B')];
    await a.until(sees(1));
    await b.until(sees(undefined));
    await scene.db.query(`update quote set price = price`);
    await scene.price('C', 1);
    await scene.price('B', 2);
    await b.until(sees(2));
    expect([a.states.length, b.states.length]).toEqual([1, 2]);
  });

  it('receives the state of its refresh, even if no row is written', async () => {
    const { look, gateway } = await scene.gateway();
    const viewer = await (await look('A')).until(sees(undefined));
    const end = async (call: string) => {
      const [job] = await scene.value<{ id: number; attempt: number }[]>('pgfresh.get_queue_batch(1)');
      await scene.db.query(`select ${call}`, [job!.id]);
    };
    await scene.db.query(`select pgfresh.queue_refresh_if_not_exists('A', 'quote')`);
    await end(`pgfresh.fail_queue_job($1::bigint, 'no', null, true)`);
    await viewer.until(({ state }) => state!.failing);
    expect(viewer.state).toMatchObject({ state: 'missing', activity: 'idle' });
    await scene.db.query(`select pgfresh.queue_refresh_if_not_exists('A', 'quote', p_force => true)`);
    await end(`pgfresh.complete_queue_job($1::bigint, 0, null, 'empty')`);
    await viewer.until(({ state }) => state!.state === 'empty');
    expect(viewer.state).toMatchObject({ failing: false, rows: '[]', staleAt: expect.any(Date) });
    await gateway.stop();
  });

  it('shares one read with all other watchers of the pair; many pairs are read together', async () => {
    const { gateway } = await scene.gateway();
    const keys = Array.from({ length: 200 }, (_, n) => `K${n}`);
    const viewers = await Promise.all(keys.flatMap((key) => [key, key, key]).map((key) => scene.look(gateway, key)));
    await Promise.all(viewers.map((viewer) => viewer.until(sees(undefined))));
    // A later watcher gets the state at once, without a read.
    await scene.db.query(`insert into quote select 'K' || n, n from generate_series(0, 199) as n`);
    await Promise.all(viewers.map((viewer) => viewer.until(({ rows }) => rows.length === 1)));
    expect((await scene.look(gateway, 'K7')).rows).toMatchObject([{ symbol: 'K7', price: 7 }]);
    await gateway.stop();
  });

  it('learns that the type is gone', async () => {
    await scene.type('fleeting');
    const { look, gateway } = await scene.gateway();
    const viewer = await (await look('A', 'fleeting')).until(sees(undefined));
    await scene.db.query(`delete from pgfresh.data_type_registry where data_type = 'fleeting'`);
    await viewer.until(({ isGone }) => isGone);
    await gateway.stop();
  });

  it('receives nothing after it unsubscribes; a pair without watchers costs nothing', async () => {
    let statements = 0;
    const counting = {
      query: <Row extends object>(...call: Parameters<typeof scene.db.query>) => (
        statements++,
        scene.db.query<Row>(...call)
      ),
    };
    const { look } = await scene.gateway({ db: counting });
    expect(statements).toBe(0);
    const [one, two] = [await look('A'), await look('A')];
    await one.until(sees(undefined));
    one.stop();
    await scene.price('A', 5);
    await two.until(sees(5));
    expect(one.states).toHaveLength(1);
    two.stop();
    const other = await scene.gateway();
    const viewer = await other.look('A');
    // The other process pumps only once the first has released the lease.
    await viewer.until(sees(5));
    while (
      (await scene.value<number>(`(select count(*) from pgfresh_engine.duty where name = 'pump')`)) > 0 &&
      !other.seen.some(({ type }) => type === 'changes.published')
    )
      await scene.price('A', 6);
    const before = statements;
    for (let price = 10; price < 25; price++) {
      await scene.price('A', price);
      await viewer.until(sees(price));
    }
    expect(statements).toBe(before);
  });

  it('is not held up by a row of another pair that cannot be read', async () => {
    await scene.db.query(`
      create table timed (symbol text primary key, minutes bigint, fetched_at timestamptz);
      insert into timed select 'K' || n, 1, now() from generate_series(1, 20) as n; insert into timed values ('bad', 9000000000, now()), ('far', 1, 'infinity')`);
    await scene.db.query(
      `insert into pgfresh.data_type_registry (data_type, source, table_name, key_columns, timestamp_column, ttl, ttl_column)
       values ('timed', 'market', 'timed', '{symbol}', 'fetched_at', '1 minute', 'minutes')`,
    );
    const { look, seen } = await scene.gateway();
    const bad = await look('bad', 'timed');
    const others = await Promise.all(
      ['far', ...Array.from({ length: 20 }, (_, n) => `K${n + 1}`)].map((key) => look(key, 'timed')),
    );
    await Promise.all(others.map((viewer) => viewer.until(({ rows }) => rows.length === 1)));
    expect(bad.states).toEqual([]);
    expect(seen).toContainEqual({
      type: 'gateway.failed',
      step: 'read',
      problem: expect.stringContaining('out of range'),
    });
    await scene.db.query(`update timed set minutes = 1 where symbol = 'bad'`);
    await bad.until(({ rows }) => rows.length === 1);
  });
});

describe('several gateways', () => {
  it('one pumps for all, and another takes over when it stops or dies', async () => {
    const [one, two] = [await scene.gateway(), await scene.gateway()];
    const viewers = [await one.look('A'), await two.look('A')];
    await Promise.all(viewers.map((viewer) => viewer.until(sees(undefined))));
    await scene.price('A', 1);
    await Promise.all(viewers.map((viewer) => viewer.until(sees(1))));
    expect(await scene.value(`(select count(*) from pgfresh_engine.duty where name = 'pump')`)).toBe(1);
    await one.gateway.stop();
    await scene.price('A', 2);
    await viewers[1]!.until(sees(2));
    // A process that died with the lease: polling the outbox still takes only a second.
    await scene.db.query(
      `update pgfresh_engine.duty set holder = gen_random_uuid(), lease_until = pgfresh.clock() + interval '3 seconds' where name = 'pump'`,
    );
    await scene.price('A', 3);
    await viewers[1]!.until(sees(3));
    await two.gateway.stop();
  });

  it('that cannot listen learn of changes by polling', async () => {
    const { look, gateway } = await scene.gateway({ listenUrl: undefined });
    const viewer = await (await look('A')).until(sees(undefined));
    await scene.price('A', 1);
    await viewer.until(sees(1));
    await gateway.stop();
  });
});

describe('nothing is missed', () => {
  it('when the connection that listens is lost', async () => {
    const { proxy, url } = await Proxy.before(scene.url);
    onTestFinished(() => proxy.close());
    const { look, gateway } = await scene.gateway({ listenUrl: url });
    const viewer = await (await look('A')).until(sees(undefined));
    for (const price of [1, 2, 3]) {
      proxy.cut();
      await scene.price('A', price);
      await viewer.until(sees(price));
    }
    // Or stays open and is silent.
    proxy.judge = () => 'hold';
    await scene.price('A', 4);
    await viewer.until(sees(4));
    proxy.judge = () => 'pass';
    await gateway.stop();
  });

  it('when the database does not answer for a while', async () => {
    const { proxy, url } = await Proxy.before(scene.url);
    const db = openDatabase(url);
    onTestFinished(() => proxy.close());
    const { look, gateway, seen } = await scene.gateway({ listenUrl: url, db });
    const viewer = await (await look('A')).until(sees(undefined));
    proxy.judge = () => 'cut';
    await scene.price('A', 1);
    const failed = () =>
      seen.some((event) => event.type === 'gateway.failed' || event.type === 'database.connection_lost');
    while (!failed()) await new Promise(setImmediate);
    proxy.judge = () => 'pass';
    await viewer.until(sees(1));
    await gateway.stop();
    await db.close();
  });

  it('of a transaction that wrote before the type was watched, and commits later', async () => {
    const session = await openSession(scene.url);
    await scene.type('early');
    await session.query(`begin; insert into early values ('A', 1, null)`);
    const { look, gateway } = await scene.gateway();
    const viewer = await (await look('A', 'early')).until(sees(undefined));
    const settled = () =>
      scene.value<boolean>(`coalesce((select bool_and(settled) from pgfresh_engine.watched_type), false)`);
    expect(await settled()).toBe(false);
    await session.query('commit');
    await viewer.until(sees(1));
    await expect.poll(settled, { timeout: 25_000 }).toBe(true);
    await gateway.stop();
  });

  it('when the unlogged tables were emptied by a crash', async () => {
    const { look, gateway } = await scene.gateway();
    const viewer = await (await look('A')).until(sees(undefined));
    await scene.db.query('truncate pgfresh_engine.change, pgfresh_engine.watched_type, pgfresh_engine.change_epoch');
    await scene.price('A', 1);
    await viewer.until(sees(1));
    const [before, after] = viewer.states;
    expect(after!.version > before!.version).toBe(true);
    // The epoch: the identity of the database, its timeline and the position in the log.
    expect(after!.version.split('.').slice(0, 3)).not.toEqual(before!.version.split('.').slice(0, 3));
    await gateway.stop();
  });
});

describe('the lookup of pairs', () => {
  it('returns how the registry spells a pair, or why it cannot exist', async () => {
    await scene.db.query(`
      create table spelled (id int, day date, note uuid, fetched_at timestamptz);
      insert into pgfresh.data_type_registry (data_type, source, table_name, key_columns, timestamp_column, ttl, normalise)
        values ('spelled', 'market', 'spelled', '{id,day,note}', 'fetched_at', '1 minute', 'lower')`);
    await scene.type('upper', { normalise: 'upper', key_pattern: '^[A-Z]+$', visibility: 'rls' });
    const id = '0B0C5C40-52FA-4B0B-8B7E-6A3F0C1D2E3F';
    const pairs = [
      ['upper', 'aapl'],
      ['upper', 'a1'],
      ['uper', 'A'],
      ['upper', ''],
      ['spelled', `007|2026-1-5|${id}`],
      ['spelled', 'x|2026-1-5|y'],
      ['spelled', '7'],
      ['quote', 'x'],
    ].map(([dataType, key]) => ({ dataType: dataType!, key: key! }));
    const answers = await lookUpPairs(scene.db, pairs);
    expect(
      answers.map((answer) =>
        'found' in answer ? `${answer.found.visibility} ${answer.found.key}` : answer.refused.code,
      ),
    ).toEqual([
      'rls AAPL',
      'PGF_KEY_UNKNOWN',
      'PGF_TYPE_UNKNOWN',
      'PGF_KEY_INVALID',
      `shared 7|2026-01-05|${id.toLowerCase()}`,
      'PGF_KEY_UNKNOWN',
      'PGF_KEY_UNKNOWN',
      'shared x',
    ]);
    const { look, gateway } = await scene.gateway();
    const viewer = await (await look(`007|2026-1-5|${id}`, 'spelled')).until(sees(undefined));
    await scene.db.query(`insert into spelled values (7, '2026-01-05', '${id}')`);
    await viewer.until(({ rows }) => rows.length === 1);
    await gateway.stop();
  });
});
