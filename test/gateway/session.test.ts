import { beforeAll, beforeEach, describe, expect, it } from 'vitest';
import type { Said } from './live-client.ts';
import { LiveScene, type RunningGateway } from './live-scene.ts';

let scene: LiveScene;
let running: RunningGateway;
beforeAll(async () => {
  scene = await LiveScene.open();
});
beforeEach(async () => {
  await scene.clear();
  running = await scene.gateway({ anonymous: 'loopback' });
});

describe('a client', () => {
  it('gets an existing row at once, and a cold pair once it is fetched', async () => {
    await scene.quote('AAPL', 1);
    const client = await running.greet('ada');
    expect(
      await client.want([
        ['quote', 'AAPL'],
        ['quote', 'COLD'],
      ]),
    ).toEqual(['accepted', 'accepted']);
    const both = [await client.next('snapshot'), await client.next('snapshot')];
    expect(both).toMatchObject([
      { pair: ['quote', 'AAPL'], state: 'fresh', rows: [{ price: 1 }] },
      { pair: ['quote', 'COLD'], status: 'loading', state: 'missing', activity: 'waiting', reason: 'queued', rows: [] },
    ]);
    expect(await scene.queued()).toEqual(['quote COLD']);
    await scene.quote('COLD', 2);
    expect(await client.next('change')).toMatchObject({ pair: ['quote', 'COLD'], rows: [{ price: 2 }] });
  });

  it('gets growing versions up to the newest, with and without other viewers', async () => {
    await scene.quote('AAPL', 0);
    const clients = [await running.greet('ada'), await running.greet('ben'), await running.greet(undefined)];
    for (const client of clients) await client.want([['quote', 'AAPL']]);
    for (let price = 1; price <= 5; price++) await scene.quote('AAPL', price);
    for (const client of clients) {
      let version = '';
      for (;;) {
        const said = await client.next();
        expect((said['version'] as string) > version).toBe(true);
        version = said['version'] as string;
        if ((said['rows'] as { price: number }[])[0]!.price === 5) break;
      }
    }
  });

  it('that requests a pair in two spellings gets it once', async () => {
    const client = await running.greet('ada');
    await client.want([
      ['quote', 'aapl'],
      ['quote', 'AAPL'],
    ]);
    await client.next('snapshot');
    expect(await client.isQuiet()).toBe(true);
    client.say({ type: 'drop', pairs: [['quote', 'aapl']] });
    await scene.quote('AAPL', 9);
    expect(await client.isQuiet()).toBe(true);
    // After a drop, a request starts over with a snapshot.
    expect(await client.want([['quote', 'AAPL']], 'add')).toEqual(['accepted']);
    for (let price = 0; price !== 9;)
      price = ((await client.next())['rows'] as { price: number }[] | undefined)?.[0]?.price ?? 0;
  });

  it('sound 4: may refresh and drop a pair by another spelling of its key', async () => {
    const client = await running.greet('ada');
    await client.want([['quote', 'AAPL']]);
    await client.next('snapshot');
    expect(await client.want([['quote', 'aapl']], 'add')).toEqual(['accepted']);
    client.say({ type: 'refresh', pair: ['quote', 'aapl'] });
    const { result } = await client.nextAbout('quote', ['refresh']);
    expect(['queued', 'merged']).toContain(result);
    await expect.poll(() => scene.demand()).toEqual(['quote AAPL 1']);
    client.say({ type: 'drop', pairs: [['quote', 'aapl']] });
    await expect.poll(() => scene.demand()).toEqual([]);
  });

  it('that requests another set keeps the pairs in both', async () => {
    await scene.quote('A', 1);
    await scene.quote('B', 1);
    await scene.quote('C', 1);
    const client = await running.greet('ada');
    await client.want([
      ['quote', 'A'],
      ['quote', 'B'],
    ]);
    await client.next('snapshot');
    await client.next('snapshot');
    await client.want([
      ['quote', 'B'],
      ['quote', 'C'],
    ]);
    expect(await client.next('snapshot')).toMatchObject({ pair: ['quote', 'C'] });
    await scene.quote('A', 2);
    await scene.quote('B', 2);
    expect(await client.next('change')).toMatchObject({ pair: ['quote', 'B'] });
    expect(await client.isQuiet()).toBe(true);
  });

  it('that reconnects gets what it missed and nothing else', async () => {
    await scene.quote('A', 1);
    await scene.quote('B', 1);
    const before = await running.greet('ada');
    await before.want([
      ['quote', 'A'],
      ['quote', 'B'],
    ]);
    const versions = [await before.next('snapshot'), await before.next('snapshot')].map(
      ({ version }) => version as string,
    );
    await before.close();
    await scene.quote('B', 2);
    const after = await running.greet('ada');
    await after.want([
      ['quote', 'A', versions[0]!],
      ['quote', 'B', versions[1]!],
    ]);
    const said = await after.next();
    expect(said).toMatchObject({ pair: ['quote', 'B'], rows: [{ price: 2 }] });
    expect(await after.isQuiet()).toBe(true);
  });

  it('that sends an unknown version gets a snapshot', async () => {
    await scene.quote('A', 1);
    const client = await running.greet('ada');
    await client.want([['quote', 'A', 'nonsense']]);
    expect(await client.next('snapshot')).toMatchObject({ rows: [{ price: 1 }] });
  });
});

describe('demand', () => {
  const said = async (expected: string[]) => {
    await expect.poll(() => scene.demand()).toEqual(expected);
  };

  it('is the number of distinct users of each pair', async () => {
    const clients = [await running.greet('ada'), await running.greet('ada'), await running.greet('ben')];
    for (const client of clients) {
      await client.want([['quote', 'A']]);
      await client.next('snapshot');
    }
    clients[2]!.say({ type: 'add', pairs: [['quote', 'B']] });
    await said(['quote A 2', 'quote B 1']);
    await clients[0]!.close();
    clients[2]!.webSocket.terminate();
    await said(['quote A 1']);
    clients[1]!.say({ type: 'drop', pairs: [['quote', 'A']] });
    await said([]);
  });

  it('counts each anonymous client as one user', async () => {
    for (let n = 0; n < 3; n++) await (await running.greet(undefined)).want([['quote', 'A']]);
    await said(['quote A 3']);
  });
});

describe('the viewer count', () => {
  it('is sent to the clients that want it, on all gateways', async () => {
    const other = await scene.gateway();
    const [ada, ben, cyd] = [await running.connect('ada'), await other.greet('ben'), await running.greet('cyd')];
    ada.say({ type: 'hello', protocol: 1, viewers: true });
    await ada.next('welcome');
    for (const client of [ada, ben, cyd]) {
      await client.want([['quote', 'A']]);
      await client.next('snapshot');
    }
    await expect.poll(() => scene.demand()).toEqual(['quote A 3']);
    await scene.value('pgfresh_engine.plan_due_pairs()');
    let told = await ada.next();
    while (told['viewers'] !== 3) told = await ada.next();
    expect(told).toEqual({ type: 'viewers', pair: ['quote', 'A'], viewers: 3 });
    expect([await ben.isQuiet(), await cyd.isQuiet()]).toEqual([true, true]);
  });
});

describe('a watched pair', () => {
  it('ends for its viewers when its type is removed, and pairs of other types continue', async () => {
    await scene.db.query(
      `insert into pgfresh.data_type_registry (data_type, source, table_name, timestamp_column, ttl) values ('fleeting', 'market', 'quote', 'fetched_at', '1 minute')`,
    );
    const client = await running.greet('ada');
    await client.want([
      ['fleeting', 'A'],
      ['quote', 'A'],
    ]);
    await client.next('snapshot');
    await client.next('snapshot');
    await scene.db.query(`delete from pgfresh.data_type_registry where data_type = 'fleeting'`);
    let said = await client.next();
    while (said.type !== 'revoked') said = await client.next();
    expect(said).toMatchObject({ pair: ['fleeting', 'A'], code: 'PGF_TYPE_UNKNOWN' });
    await scene.quote('A', 4);
    const isRead = ({ rows }: Said): boolean => rows !== undefined;
    expect(await client.nextAbout('quote', ['change'], isRead)).toMatchObject({ rows: [{ price: 4 }] });
  });

  it('is explained to its viewers when it goes stale without a refresh', async () => {
    await scene.quote('A', 1, '55 seconds');
    const client = await running.greet('ada');
    await client.want([['quote', 'A']]);
    expect(await client.next('snapshot')).toMatchObject({ state: 'fresh' });
    await scene.db.query(`insert into pgfresh.spending_stop (reason) values ('a test')`);
    const said = await client.next('change');
    expect(said).toMatchObject({ state: expect.stringMatching(/stale|refreshing/) as string });
    expect(said).not.toHaveProperty('rows');
    await scene.db.query('delete from pgfresh.spending_stop');
  });
});

describe('a client that reads slowly', () => {
  it('gets only the newest state of each pair, is told so, and slows no other client', async () => {
    const wide = await scene.gateway({ limits: { bufferBytes: '64KB' } });
    await scene.db.query(`alter table quote add column if not exists note text`);
    const write = (price: number) =>
      scene.db.query(
        `insert into quote values ('BIG', $1::numeric, clock_timestamp(), repeat('x', 1000000)) on conflict (key) do update set price = excluded.price, fetched_at = excluded.fetched_at`,
        [price],
      );
    await write(0);
    const [slow, quick] = [await wide.greet('ada'), await wide.greet('ben')];
    await slow.want([['quote', 'BIG']]);
    await slow.next('snapshot');
    slow.webSocket.pause();
    await quick.want([['quote', 'BIG']]);
    await quick.next('snapshot');
    for (let price = 1; price <= 15; price++) {
      await write(price);
      for (let got = 0; got < price;) got = ((await quick.next('change'))['rows'] as { price: number }[])[0]!.price;
    }
    slow.webSocket.resume();
    let resynced: number | undefined;
    let changes = 0;
    for (let got = 0; got < 15;) {
      const message = await slow.next();
      if (message.type === 'resync') resynced = message['skipped'] as number;
      else {
        changes += 1;
        got = (message['rows'] as { price: number }[])[0]!.price;
      }
    }
    expect(resynced).toBeGreaterThan(0);
    expect(changes + resynced!).toBeLessThanOrEqual(15);
    expect(wide.seen.some(({ type }) => type === 'gateway.slow')).toBe(true);
  });

  it('is disconnected when it does not read at all', async () => {
    const strict = await scene.gateway({ limits: { bufferBytes: '1KB', slowFor: '100ms' } });
    await scene.db.query(`alter table quote add column if not exists note text`);
    const client = await strict.greet('ada');
    client.webSocket.pause();
    client.say({ type: 'want', pairs: [['quote', 'BIG']] });
    for (let n = 0; !strict.refusals.includes('PGF_LIVE_SLOW'); n++) {
      await scene.db.query(
        `insert into quote values ('BIG', $1::numeric, clock_timestamp(), repeat('x', 1000000)) on conflict (key) do update set price = excluded.price, note = excluded.note`,
        [n],
      );
    }
    client.webSocket.resume();
    expect(await client.closed).toMatchObject({ code: expect.any(Number) });
  });
});

describe('a gateway that stops', () => {
  it('sends all clients to another server, and accepts no new ones', async () => {
    const other = await scene.gateway();
    const client = await other.greet('ada');
    await client.want([['quote', 'A']]);
    await client.next('snapshot');
    const stopped = other.stop();
    expect((await client.next('reconnect'))['after_ms']).toBeGreaterThanOrEqual(0);
    expect(await client.closed).toEqual({ code: 1012, reason: 'PGF_LIVE_STOPPING' });
    await stopped;
    expect(await scene.demand()).toEqual([]);
  });

  it('does not wait for a silent client', async () => {
    const other = await scene.gateway();
    const client = await other.greet('ada');
    client.webSocket.pause();
    await other.stop();
    client.webSocket.resume();
    await client.closed;
  });
});
