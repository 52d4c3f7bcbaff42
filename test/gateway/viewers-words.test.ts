import { beforeEach, describe, expect, it, test } from 'vitest';
import { errorTable, PgfreshError, type ErrorCode } from '../../src/errors/index.ts';
import { Events, type PgfreshEvent } from '../../src/events/index.ts';
import { reasonSentences, refusalSentences, errorResponse, stateSentences } from '../../src/gateway/index.ts';
import { reasons, type Reason } from '../../src/planner/index.ts';
import { createLogin } from '../harness/login.ts';
import { EventClient } from './event-client.ts';
import type { Said } from './live-client.ts';
import { LiveScene, tokenOf, type RunningGateway } from './live-scene.ts';

/** A marker in everything that only operators may read: names of tables and functions, addresses, secrets, errors. */
const canary = 'canary';
const operatorsOnly = /canary|10\.0\.0\.7|https?:|postgres|pgfresh\.|\bselect\b|\bupdate\b|\binsert\b|status 5/i;
const secretText = `${canary}: status 503 of http://10.0.0.7:5433/v1?key=${canary}; update pgfresh.data_type_registry`;
const sentences = new Set<string>([...Object.values(reasonSentences), ...Object.values(stateSentences)]);

let scene: LiveScene;
let running: RunningGateway;

interface Situation {
  /** Statements, with $type and $key for the pair. */
  readonly before?: string;
  readonly row?: boolean;
  readonly columns?: Readonly<Record<string, string>>;
}

const settled = ['fresh', 'running', 'schedule'] as const;
type Settled = (typeof settled)[number];

const queue = `select pgfresh.queue_refresh_if_not_exists('$key', '$type');`;
const claim = `select * from pgfresh.get_queue_batch(1);`;
const fail = (isFinal: boolean): string =>
  `do $do$ declare j bigint := (select id from pgfresh_engine.job where key = '$key'); begin
    perform pgfresh.fail_queue_job(j, '${secretText}', null, ${isFinal}); end $do$;`;

/** How to bring about each reason. `due` has its own test; a pair that does not wait has no reason. */
const situations: Readonly<Record<Exclude<Reason, 'due'> | Settled, Situation>> = {
  fresh: { row: true, before: `update ${canary}_table set fetched_at = pgfresh.clock()` },
  queued: {},
  no_worker: { before: `update pgfresh_engine.process set lease_until = '-infinity' where kind = 'worker'` },
  running: { before: `${queue} ${claim}` },
  retry: { before: `${queue} ${claim} ${fail(false)}` },
  refused: { before: `${queue} ${claim} ${fail(true)}` },
  schedule: {
    row: true,
    columns: {
      refresh_strategy: 'scheduled',
      refresh_schedule: '0 3 * * *',
      key_table: `${canary}_keys`,
      key_table_column: 'key',
      key_pattern: '',
    },
  },
  gate: { row: true, columns: { gate_function: `${canary}_closed`, gate_opens_function: `${canary}_opens` } },
  dependency: { columns: { depends_on: '{quote}' } },
  rate: {
    before: `select pgfresh_engine.hold_source(id, pgfresh.clock() + interval '30 seconds', '${secretText}') from pgfresh.sources`,
  },
  quota: {
    before: `update pgfresh.sources set quota_bytes = 1000; insert into pgfresh.usage_corrections (source, bytes, reason) values ('${canary}_source', 990, '${canary}')`,
  },
  concurrency: { before: `update pgfresh.sources set max_concurrency = 1; ${other('B')} ${claim} ${queue}` },
  same_key: { before: `update pgfresh.sources set one_key_at_a_time = true; ${other('$key')} ${claim} ${queue}` },
  breaker: {
    before: `update pgfresh.sources set paused_until = pgfresh.clock() + interval '4 minutes', paused_by = 'breaker', pause_reason = '${secretText}', breaker_opened_at = pgfresh.clock()`,
  },
  paused: { before: `select pgfresh.pause_source('${canary}_source', p_reason => '${secretText}')` },
  stopped: { before: `insert into pgfresh.spending_stop (reason) values ('${secretText}')` },
  quarantined: {
    row: true,
    before: `select pgfresh_engine.note_type_timeout(type_id, '${canary}', '${secretText}') from pgfresh.data_type_registry, generate_series(1, 2) where data_type = '$type'`,
  },
  unresolved: {
    row: true,
    columns: { staleness_function: `${canary}_stale` },
    before: `create or replace function ${canary}_stale(timestamptz, interval) returns boolean language sql stable as 'select true and true'`,
  },
};

function other(key: string): string {
  return `select pgfresh.queue_refresh_if_not_exists('${key}', '${canary}_other');`;
}

async function openScene(): Promise<void> {
  scene = await LiveScene.open();
  await scene.db.query(`
    update pgfresh.sources set name = '${canary}_source';
    create table ${canary}_table (key text primary key, price int, fetched_at timestamptz);
    create table ${canary}_keys (key text primary key);
    grant select on ${canary}_table, ${canary}_keys to pgfresh_evaluator;
    create function ${canary}_closed(text, text) returns boolean language sql as 'select false';
    create function ${canary}_opens(text, text) returns timestamptz language sql as $$ select timestamptz '2100-01-01' $$;
    create function ${canary}_stale(timestamptz, interval) returns boolean language sql stable as 'select true'`);
  running = await scene.gateway({ anonymous: 'loopback' });
}

async function register(name: string, columns: Readonly<Record<string, string>> = {}): Promise<void> {
  const all = {
    data_type: name,
    source: `${canary}_source`,
    table_name: `${canary}_table`,
    timestamp_column: 'fetched_at',
    ttl: '1 minute',
    key_pattern: '^[A-Z]+$',
    ...columns,
  };
  const given = Object.entries(all).filter(([, value]) => value !== '');
  await scene.db.query(
    `insert into pgfresh.data_type_registry (${given.map(([column]) => column).join(', ')}) values (${given.map((_, place) => `$${place + 1}`).join(', ')})`,
    given.map(([, value]) => value),
  );
}

/**
 * All messages that a viewer gets about a pair, by WebSocket, event stream and plain read. The first says that its job
 * waits; the reason follows a moment later.
 */
async function look(type: string, key: string, isExplained: boolean): Promise<Said[]> {
  const authorization = { authorization: `Bearer ${await tokenOf('ada')}` };
  const client = await running.greet('ada');
  await client.want([[type, key]]);
  const stream = await EventClient.open(running.http.url, authorization);
  const { session } = await stream.next('welcome');
  await stream.say(session as string, { type: 'want', pairs: [[type, key]] });
  await stream.next('answer');
  const first = [await client.next('snapshot'), await stream.next('snapshot')];
  const last = isExplained ? [await client.next('change'), await stream.next('change')] : [];
  const read = await fetch(`${running.http.url}/live/${type}/${key}`, { headers: authorization });
  const heard = [...(isExplained ? last : first), (await read.json()) as Said];
  stream.close();
  return heard;
}

/** All messages that a client gets about the pairs, by WebSocket and plain reads. */
async function want(gateway: RunningGateway, pairs: string[][], claims: object = {}): Promise<unknown[]> {
  const headers = { authorization: `Bearer ${await tokenOf('ada', { claims })}` };
  const client = await gateway.greet(undefined, { headers });
  client.say({ type: 'want', pairs });
  const heard: unknown[] = [];
  // Pairs that are answered later get a note first.
  for (let answered = 0; answered < pairs.length;) {
    const said = await client.next();
    if (!['answer', 'waiting'].includes(said.type)) continue;
    heard.push(said);
    answered += ((said['pairs'] ?? []) as unknown[]).length;
  }
  for (const [type, key] of pairs) {
    const read = await fetch(`${gateway.http.url}/live/${type}/${encodeURIComponent(key!)}`, { headers });
    heard.push(await read.json());
  }
  return heard;
}

const expectNothingOfOperators = (heard: unknown): void => expect(JSON.stringify(heard)).not.toMatch(operatorsOnly);

test('truth 11: every reason has a sentence for viewers, and none reveals internals', () => {
  expect(Object.keys(reasonSentences).toSorted()).toEqual(Object.keys(reasons).toSorted());
  for (const sentence of sentences) expect(sentence).toMatch(/^([A-Z][a-z ]+\.)?$/);
});

describe('truth 11: what viewers are told about a pair', () => {
  beforeEach(openScene);

  it.each(Object.entries(situations))('%s', async (reason, { before = '', row = false, columns }) => {
    const [type, key] = [`${reason.replace('_', '-')}-type`, 'KEY'];
    const fill = (text: string): string => text.replaceAll('$type', type).replaceAll('$key', key);
    await scene.db.query(`insert into ${canary}_keys values ('${key}')`);
    await register(type, columns);
    await register(`${canary}_other`);
    if (row)
      await scene.db.query(`insert into ${canary}_table values ('${key}', 1, pgfresh.clock() - interval '1 hour')`);
    if (before !== '') await scene.db.query(fill(before));
    const heard = await look(type, key, reason === 'concurrency' || reason === 'same_key');
    expectNothingOfOperators(heard);
    const expected = (settled as readonly string[]).includes(reason) ? null : reason;
    expect(heard.map((said) => said['reason'])).toEqual(heard.map(() => expected));
    for (const { words } of heard) expect(sentences).toContain(words);
  });

  it('due', async () => {
    await register('short', { ttl: '5 seconds' });
    await scene.db.query(`insert into ${canary}_table values ('KEY', 1, pgfresh.clock())`);
    const client = await running.greet('ada');
    await client.want([['short', 'KEY']]);
    const heard = [await client.next('snapshot'), await client.next('change')];
    expectNothingOfOperators(heard);
    expect(heard.map((said) => said['reason'])).toEqual([null, 'due']);
    for (const { words } of heard) expect(sentences).toContain(words);
  });
});

describe('truth 11: what clients are told about an error', () => {
  const spent = (code: ErrorCode): Record<string, string> =>
    Object.fromEntries(
      [...`${errorTable[code].says}${errorTable[code].next}`.matchAll(/\{(\w+)\}/g)].map(([, name]) => [
        name!,
        secretText,
      ]),
    );

  it.each(Object.keys(errorTable) as ErrorCode[])('%s', (code) => {
    const seen: PgfreshEvent[] = [];
    const events = new Events();
    events.subscribe((event) => seen.push(event));
    // As raised by the database or by functions of the configuration.
    const error = new PgfreshError(code, spent(code) as never, { cause: new Error(secretText) });
    const refused = errorResponse(error, events);
    expectNothingOfOperators(refused);
    expect(Object.keys(refusalSentences)).toContain(refused.code);
    if (Object.keys(spent(code)).length > 0) expect(JSON.stringify(seen)).toContain(canary);
  });

  it('any other error', () => {
    const refused = errorResponse(new Error(secretText), new Events());
    expect(refused).toMatchObject({ status: 503, code: 'PGF_LIVE_BUSY' });
    expectNothingOfOperators(refused);
  });
});

describe('truth 11: what clients are told about a refusal', () => {
  beforeEach(openScene);
  const codes = (heard: unknown[]): string[] =>
    [...JSON.stringify(heard).matchAll(/"code":"(\w+)"/g)].map(([, code]) => code!).toSorted();

  it('because authorize throws, a key or type does not exist, or a table is gone', async () => {
    await scene.db.query(`create table ${canary}_gone (key text primary key)`);
    await register('keyed', { key_table: `${canary}_keys`, key_table_column: 'key', key_pattern: '' });
    await register('broken', { key_table: `${canary}_gone`, key_table_column: 'key', key_pattern: '' });
    await scene.db.query(`drop table ${canary}_gone`);
    const gateway = await scene.gateway({
      authorize: (_, { key }) => {
        throw new Error(`${secretText} ${key}`);
      },
    });
    const heard = await want(gateway, [
      ['quote', 'A'],
      ['keyed', 'NO'],
      ['quote', '12'],
      ['nothing', 'A'],
      ['broken', 'A'],
    ]);
    expectNothingOfOperators(heard);
    expect(new Set(codes(heard))).toEqual(
      new Set(['PGF_LIVE_UNDECIDED', 'PGF_KEY_UNKNOWN', 'PGF_TYPE_UNKNOWN', 'PGF_LIVE_BUSY']),
    );
    // Operators learn the cause.
    expect(JSON.stringify(gateway.seen)).toContain(canary);
  });

  it('because a policy raises an error, a role cannot be used, or none is configured', async () => {
    const { name: member } = await createLogin(scene.url, 'pgfresh_viewer');
    await scene.db.query(`
      create function ${canary}_raises() returns boolean language plpgsql as $$ begin raise '${secretText}'; end $$;
      create function ${canary}_refuses() returns boolean language plpgsql as $$ begin
        raise exception using errcode = 'PGF01', message = 'PGF_LIVE_MESSAGE: ${secretText}'; end $$`);
    for (const name of ['raises', 'refuses'])
      await scene.db.query(`
        create table ${name} (key text primary key, fetched_at timestamptz);
        insert into ${name} values ('A', pgfresh.clock());
        alter table ${name} enable row level security;
        grant select on ${name} to ${member}, pgfresh_evaluator;
        create policy planner on ${name} for select to pgfresh_evaluator using (true);
        create policy seen on ${name} for select to ${member} using (${canary}_${name}());
        insert into pgfresh.data_type_registry (data_type, source, table_name, timestamp_column, ttl, visibility)
          values ('${name}', '${canary}_source', '${name}', 'fetched_at', '1 hour', 'rls')`);
    const gateway = await scene.gateway({ rls: { role: member, roleClaim: 'role', timeout: '300ms' } });
    const client = await gateway.greet('ada');
    await client.want([['raises', 'A']]);
    const heard: unknown[] = [await client.next('revoked')];
    heard.push(
      ...(await want(gateway, [
        ['raises', 'A'],
        ['refuses', 'A'],
      ])),
    );
    heard.push(...(await want(gateway, [['raises', 'A']], { role: `${canary}_role` })));
    heard.push(...(await want(running, [['raises', 'A']])));
    expectNothingOfOperators(heard);
    expect(new Set(codes(heard))).toEqual(
      new Set(['PGF_LIVE_UNDECIDED', 'PGF_LIVE_BUSY', 'PGF_LIVE_ROLE', 'PGF_LIVE_PRIVATE']),
    );
    expect(JSON.stringify(gateway.seen)).toContain(canary);
  });

  it('because a JWKS endpoint does not answer, a refresh fails, or a token is wrong', async () => {
    const gateway = await scene.gateway({ jwt: { jwksUrl: `http://127.0.0.1:9/${canary}`, issuer: canary } });
    for (const path of ['/live/quote/A', '/live/events?protocol=1', '/live']) {
      const headers = { authorization: `Bearer ${await tokenOf('ada')}` };
      const answer = await fetch(`${gateway.http.url}${path}`, { headers });
      expectNothingOfOperators(await answer.text());
    }
    await scene.quote('A', 1);
    const client = await running.greet('ada');
    await client.want([['quote', 'A']]);
    await client.next('snapshot');
    await scene.db.query(`
      create function ${canary}_raise() returns trigger language plpgsql as $$ begin raise '${secretText}'; end $$;
      create trigger ${canary} before insert on pgfresh_engine.job for each row execute function ${canary}_raise()`);
    client.say({ type: 'refresh', pair: ['quote', 'A'] });
    const refused = await client.next('refresh');
    await scene.db.query(`drop trigger ${canary} on pgfresh_engine.job`);
    expect(refused).toMatchObject({ result: 'refused', code: 'PGF_LIVE_BUSY' });
    expectNothingOfOperators(refused);
  });
});
