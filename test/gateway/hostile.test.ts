import { once } from 'node:events';
import { connect } from 'node:net';
import { beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { LiveScene, type RunningGateway } from './live-scene.ts';

let scene: LiveScene;
let running: RunningGateway;
beforeAll(async () => {
  scene = await LiveScene.open();
});
beforeEach(async () => {
  await scene.clear();
  running = await scene.gateway({ limits: { messagesPerSecond: 1_000 } });
});

/** Checks that nothing was left behind, and that other clients are served. */
async function expectUnharmed(): Promise<void> {
  // Measured in CPU time, because other programs may use the machine.
  const before = process.cpuUsage();
  expect((await fetch(`${running.http.url}/livez`)).status).toBe(200);
  const { user, system } = process.cpuUsage(before);
  expect((user + system) / 1_000).toBeLessThan(250);
  expect(await scene.queued()).toEqual([]);
  expect(await scene.value('(select count(*) from pgfresh_engine.pairs)')).toBe(0);
}

describe('a message', () => {
  it.each([
    ['', 'not JSON'],
    ['{', 'not JSON'],
    ['null', 'expected a type'],
    ['[]', 'expected a type'],
    ['"want"', 'expected a type'],
    ['{}', 'expected a type'],
    ['{"type":1}', 'expected a type'],
    ['{"type":"toString"}', 'expected a type'],
    ['{"type":"__proto__"}', 'expected a type'],
    ['{"type":"want"}', 'want.pairs'],
    ['{"type":"want","pairs":{}}', 'want.pairs'],
    ['{"type":"want","pairs":[["quote"]]}', 'want.pairs.0'],
    ['{"type":"want","pairs":[["quote","A","1","2"]]}', 'want.pairs.0'],
    ['{"type":"want","pairs":[["quote",1]]}', 'want.pairs.0'],
    ['{"type":"want","pairs":[],"more":1}', 'more'],
    ['{"type":"drop","pairs":[["quote","A","1"]]}', 'drop.pairs.0'],
    ['{"type":"refresh"}', 'refresh.pair'],
    ['{"type":"auth"}', 'auth.token'],
    [`{"type":"want","pairs":${'['.repeat(50)}${']'.repeat(50)}}`, 'more than 6 levels'],
    ['['.repeat(60_000), 'more than 6 levels'],
    [`{"type":"want","pairs":[["quote","${'x'.repeat(300)}","${'v'.repeat(300)}"]]}`, 'want.pairs.0'],
  ])('%.60s is refused, and the connection goes on', async (text, problem) => {
    const client = await running.greet('ada');
    client.say(text);
    const error = await client.next('error');
    expect(error).toMatchObject({ code: 'PGF_LIVE_MESSAGE', message: expect.stringContaining(problem) as string });
    expect(await client.isQuiet()).toBe(true);
    await client.close();
    await expectUnharmed();
  });

  it('that is binary closes the connection', async () => {
    const client = await running.greet('ada');
    client.webSocket.send(Buffer.from('{"type":"ping"}'), { binary: true });
    expect(await client.next('error')).toMatchObject({ code: 'PGF_LIVE_MESSAGE' });
    expect((await client.closed).code).toBe(4400);
  });

  it('that is too large closes the connection', async () => {
    const client = await running.greet('ada');
    client.say(JSON.stringify({ type: 'want', pairs: [['quote', 'x'.repeat(200_000)]] }));
    expect((await client.closed).code).toBe(1009);
    await expect.poll(() => running.refusals).toContain('PGF_LIVE_TOO_LARGE');
    await expectUnharmed();
  });

  it.each([[2], ['1'], [null], [{ deep: [1] }], [undefined]])(
    'of protocol %j ends the connection',
    async (protocol) => {
      const client = await running.connect('ada');
      client.say({ type: 'hello', protocol });
      expect(await client.next('error')).toMatchObject({ code: 'PGF_LIVE_PROTOCOL' });
      expect((await client.closed).code).toBe(4400);
    },
  );

  it('before hello closes the connection', async () => {
    const client = await running.connect('ada');
    client.say({ type: 'want', pairs: [['quote', 'A']] });
    expect(await client.next('error')).toMatchObject({ code: 'PGF_LIVE_PROTOCOL' });
    expect((await client.closed).code).toBe(4400);
    await expectUnharmed();
  });

  it('that is not a WebSocket frame closes the connection', async () => {
    const client = await running.greet('ada');
    (client.webSocket as unknown as { _socket: { write(data: Buffer): void } })._socket.write(Buffer.alloc(64, 0xff));
    await client.closed;
    await expectUnharmed();
  });
});

describe('a pair', () => {
  it.each([
    ['nothing', 'A', 'PGF_TYPE_UNKNOWN'],
    ['', 'A', 'PGF_TYPE_UNKNOWN'],
    ['quote A', 'B', 'PGF_TYPE_UNKNOWN'],
    ['quote\n', 'A', 'PGF_TYPE_UNKNOWN'],
    ["quote'; drop table quote; --", 'A', 'PGF_TYPE_UNKNOWN'],
    ['quote', '', 'PGF_KEY_INVALID'],
    ['quote', 'A\u0000B', 'PGF_KEY_INVALID'],
    ['quote', 'A\nB', 'PGF_KEY_INVALID'],
    ['quote', '\ud800', 'PGF_KEY_INVALID'],
    ['quote', 'x'.repeat(513), 'PGF_KEY_INVALID'],
    ['quote', 'ä'.repeat(257), 'PGF_KEY_INVALID'],
    ['quote', "'; drop table quote; --", 'PGF_KEY_UNKNOWN'],
    ['quote', '12', 'PGF_KEY_UNKNOWN'],
  ])('%j %j is refused, and the others are not', async (dataType, key, code) => {
    const client = await running.greet('ada');
    expect(
      await client.want([
        [dataType, key],
        ['quote', 'GOOD'],
      ]),
    ).toEqual([code, 'accepted']);
    await expect.poll(() => scene.queued()).toEqual(['quote GOOD']);
  });

  it('of a type with row security is refused', async () => {
    await scene.db.query(
      `insert into pgfresh.data_type_registry (data_type, source, table_name, timestamp_column, ttl, visibility) values ('own', 'market', 'quote', 'fetched_at', '1 minute', 'rls')`,
    );
    const client = await running.greet('ada');
    expect(await client.want([['own', 'A']])).toEqual(['PGF_LIVE_PRIVATE']);
    await expectUnharmed();
  });

  it('of a type with a table of keys is refused if its key is not in it, whatever the column type', async () => {
    await scene.db.query(`
      create table listed (id int primary key); insert into listed values (1), (2);
      grant select on listed to pgfresh_evaluator;
      create table item (id int primary key, fetched_at timestamptz); grant select on item to pgfresh_evaluator;
      insert into pgfresh.data_type_registry (data_type, source, table_name, key_columns, timestamp_column, ttl, key_table, key_table_column)
        values ('item', 'market', 'item', '{id}', 'fetched_at', '1 minute', 'listed', 'id')`);
    const client = await running.greet('ada');
    const keys = ['1', '3', 'x', '2', 'y', '99999999999999'];
    expect(await client.want(keys.map((key) => ['item', key]))).toEqual([
      'accepted',
      'PGF_KEY_UNKNOWN',
      'PGF_KEY_UNKNOWN',
      'accepted',
      'PGF_KEY_UNKNOWN',
      'PGF_KEY_UNKNOWN',
    ]);
    await client.close();
    // A type that no longer resolves does not affect pairs of other types.
    await scene.db.query('drop table listed');
    const other = await running.greet('ada');
    expect(
      await other.want([
        ['item', '9'],
        ['quote', 'GOOD'],
      ]),
    ).toEqual(['PGF_LIVE_BUSY', 'accepted']);
    await other.next('snapshot');
    await scene.db.query(`delete from pgfresh.data_type_registry where data_type = 'item'`);
  });
});

describe('limits', () => {
  it('of pairs, per connection and per user', async () => {
    const gateway = await scene.gateway({ limits: { pairsPerConnection: 2, pairsPerUser: 3 } });
    const [one, two, other] = [await gateway.greet('ada'), await gateway.greet('ada'), await gateway.greet('ben')];
    expect(
      await one.want([
        ['quote', 'A'],
        ['quote', 'B'],
        ['quote', 'C'],
      ]),
    ).toEqual(['accepted', 'accepted', 'PGF_LIVE_TOO_MANY_PAIRS']);
    expect(
      await two.want([
        ['quote', 'A'],
        ['quote', 'B'],
      ]),
    ).toEqual(['accepted', 'PGF_LIVE_TOO_MANY_PAIRS']);
    expect(
      await other.want([
        ['quote', 'A'],
        ['quote', 'B'],
      ]),
    ).toEqual(['accepted', 'accepted']);
    // A dropped pair makes room.
    await one.close();
    await expect.poll(() => gateway.seen.some(({ type }) => type === 'gateway.closed')).toBe(true);
    for (;;) {
      const said = await two.next();
      if (said['pair'] !== undefined) break;
    }
    expect(await two.want([['quote', 'B']], 'add')).toEqual(['accepted']);
  });

  it('of connections, per user, address and server', async () => {
    const tooMany = { status: 429, code: 'PGF_LIVE_TOO_MANY_CONNECTIONS' };
    const gateway = await scene.gateway({ limits: { connectionsPerUser: 1, connectionsPerAddress: 2 } });
    const first = await gateway.connect('ada');
    const second = await gateway.connect('ada');
    expect(await second.closed).toEqual({ code: 4429, reason: 'PGF_LIVE_TOO_MANY_CONNECTIONS' });
    await gateway.connect('ben');
    await expect(gateway.connect('cyd')).rejects.toMatchObject(tooMany);
    await first.close();
    await expect.poll(() => gateway.seen.filter(({ type }) => type === 'gateway.closed').length).toBe(1);
    await gateway.connect('cyd');
    const small = await scene.gateway({ limits: { connections: 1 } });
    await small.connect('ada');
    await expect(small.connect('ben')).rejects.toMatchObject(tooMany);
  });

  it('of messages', async () => {
    const gateway = await scene.gateway({ limits: { messagesPerSecond: 5 } });
    const client = await gateway.greet('ada');
    for (let n = 0; n < 20; n++) client.say({ type: 'ping' });
    expect(await client.closed).toEqual({ code: 4429, reason: 'PGF_LIVE_TOO_FAST' });
  });

  it('of bytes that a client may leave unread', async () => {
    const gateway = await scene.gateway({ limits: { messagesPerSecond: 1_000, bufferBytes: '10KB' } });
    const client = await gateway.greet('ada');
    client.webSocket.pause();
    const pairs = Array.from({ length: 500 }, (_, n) => ['quote', `no key ${n}`]);
    for (let n = 0; n < 300 && !gateway.refusals.includes('PGF_LIVE_SLOW'); n++) {
      client.say({ type: 'want', pairs });
      await new Promise(setImmediate);
    }
    await expect.poll(() => gateway.refusals).toContain('PGF_LIVE_SLOW');
    client.webSocket.resume();
    await client.closed;
  });

  it('of refreshes, per user', async () => {
    const gateway = await scene.gateway({ limits: { refreshesPerMinute: 2 } });
    const client = await gateway.greet('ada');
    for (const key of ['A', 'B', 'C']) await scene.quote(key, 1);
    await client.want([
      ['quote', 'A'],
      ['quote', 'B'],
      ['quote', 'C'],
    ]);
    for (let n = 0; n < 3; n++) await client.next('snapshot');
    const results: unknown[] = [];
    for (const key of ['A', 'B', 'C']) {
      client.say({ type: 'refresh', pair: ['quote', key] });
      let said = await client.next();
      while (said.type !== 'refresh') said = await client.next();
      results.push(said['code'] ?? said['result']);
    }
    expect(results).toEqual(['queued', 'queued', 'PGF_LIVE_TOO_MANY_REFRESHES']);
    expect(await scene.queued()).toEqual(['quote A', 'quote B']);
  });
});

describe('a flood of invented pairs', () => {
  it('neither fills the queue nor spends quota', async () => {
    const gateway = await scene.gateway({ limits: { newPairsPerMinute: 5, messagesPerSecond: 1_000 } });
    const client = await gateway.greet('ada');
    const letters = (n: number): string => String(n).replace(/\d/g, (digit) => 'ABCDEFGHIJ'.charAt(Number(digit)));
    const results = new Map<string, number>();
    const since = performance.now();
    for (let round = 0; round < 40; round++) {
      const pairs = Array.from({ length: 500 }, (_, n) =>
        n % 2 === 0 ? ['quote', `no key ${round} ${n}`] : ['quote', letters(round * 500 + n)],
      );
      for (const result of await client.want(pairs)) results.set(result, (results.get(result) ?? 0) + 1);
      while (!(await client.isQuiet()));
    }
    // Five at once, and then one every twelve seconds.
    const most = 5 + Math.ceil((performance.now() - since) / 12_000);
    expect(results.get('PGF_KEY_UNKNOWN')).toBe(10_000);
    expect(results.get('accepted')).toBeLessThanOrEqual(most);
    expect(results.get('PGF_LIVE_TOO_MANY_NEW_PAIRS')).toBeGreaterThanOrEqual(10_000 - most);
    expect((await scene.queued()).length).toBeLessThanOrEqual(most);
    expect(await scene.value('(select count(*) from pgfresh_engine.pairs)')).toBeLessThanOrEqual(most);
    // Other users are still served.
    const other = await gateway.greet('ben');
    expect(await other.want([['quote', 'GOOD']])).toEqual(['accepted']);
    await other.next('snapshot');
  });
});

it('a client that connects and stays silent does no harm', async () => {
  const { port, hostname } = new URL(running.http.url);
  const silent = connect(Number(port), hostname);
  await once(silent, 'connect');
  silent.write(`GET /live HTTP/1.1\r\nHost: ${hostname}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n`);
  silent.resume();
  await once(silent, 'close');
  await expectUnharmed();
});
