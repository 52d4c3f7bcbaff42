import { beforeAll, beforeEach, describe, expect, it } from 'vitest';
import type { GatewayDefinition } from '../../src/config/index.ts';
import { examineGateway } from '../../src/gateway/index.ts';
import { createLogin } from '../harness/login.ts';
import { EventClient } from './event-client.ts';
import type { LiveClient, Said } from './live-client.ts';
import { LiveScene, tokenOf, type RunningGateway } from './live-scene.ts';

let scene: LiveScene;
let member: string;
let guest: string;
let running: RunningGateway;

const who = `(current_setting('request.jwt.claims', true)::jsonb ->> 'sub')`;

/** Creates a data type whose rows have an owner, with a policy "seen" that decides who sees them. */
async function addType(name: string, policy: string): Promise<void> {
  await scene.db.query(`
    create table ${name} (key text primary key, owner text, amount int, fetched_at timestamptz default clock_timestamp());
    alter table ${name} enable row level security;
    grant select on ${name} to ${member}, ${guest}, pgfresh_evaluator;
    create policy planner on ${name} for select to pgfresh_evaluator using (true);
    create policy seen on ${name} for select to ${member}, ${guest} using (${policy});
    insert into pgfresh.data_type_registry (data_type, source, table_name, timestamp_column, ttl, visibility) values ('${name}', 'market', '${name}', 'fetched_at', '1 hour', 'rls')`);
}

const give = (key: string, owner: string, amount: number, table = 'holding') =>
  scene.db.query(
    `insert into ${table} values ($1::text, $2::text, $3::int) on conflict (key) do update set owner = excluded.owner, amount = excluded.amount`,
    [key, owner, amount],
  );

beforeAll(async () => {
  scene = await LiveScene.open();
  ({ name: member } = await createLogin(scene.url, 'pgfresh_viewer'));
  ({ name: guest } = await createLogin(scene.url, 'pgfresh_viewer'));
  await addType('holding', `owner = ${who}`);
});
beforeEach(async () => {
  await scene.clear();
  await scene.db.query('delete from holding');
  running = await start();
});

const start = (gateway: GatewayDefinition = {}, timeout: '1s' | '10s' = '10s') =>
  scene.gateway({ rls: { role: member, roleClaim: 'role', timeout }, ...gateway });

const as = async (user: string, claims: object = {}) => ({
  authorization: `Bearer ${await tokenOf(user, { claims })}`,
});

/** Connects, requests the pairs, and waits for the snapshot of each. */
async function look(user: string, pairs: string[][], claims: object = {}, to = running): Promise<LiveClient> {
  const client = await to.greet(undefined, { headers: await as(user, claims) });
  expect(await client.want(pairs)).toEqual(pairs.map(() => 'accepted'));
  return client;
}

const amounts = (said: Said) => (said['rows'] as { amount: number }[]).map(({ amount }) => amount);

/** The next message with rows. Skips all others. */
async function rows(client: LiveClient): Promise<number[]> {
  for (;;) {
    const said = await client.next();
    if (said['rows'] !== undefined) return amounts(said);
  }
}

describe('a pair with row security', () => {
  it('is visible to its owner, and reveals nothing to others', async () => {
    await give('A', 'ada', 1);
    const [ada, ben] = [await look('ada', [['holding', 'A']]), await look('ben', [['holding', 'A']])];
    expect(await ada.next('snapshot')).toMatchObject({ state: 'fresh', rows: [{ amount: 1, owner: 'ada' }] });
    const nothing = await ben.next('snapshot');
    expect(nothing).toEqual({
      type: 'snapshot',
      pair: ['holding', 'A'],
      version: expect.any(String) as string,
      status: 'empty',
      state: 'missing',
      activity: 'idle',
      reason: null,
      words: 'There is nothing to see.',
      until: null,
      error: null,
      fetched_at: null,
      stale_at: null,
      source_at: null,
      rows: [],
    });
    await expect.poll(() => scene.demand()).toEqual(['holding A 2']);
    await give('A', 'ada', 2);
    expect(amounts(await ada.next('change'))).toEqual([2]);
    expect(await ben.isQuiet()).toBe(true);
    expect(await scene.queued()).toEqual([]);
  });

  it('sound 1: is read even with claims that PostgreSQL cannot store, which are made storable', async () => {
    await addType('named', `owner = (current_setting('request.jwt.claims', true)::jsonb ->> 'team')`);
    await give('A', 'a\uFFFDb', 7, 'named');
    const client = await look('ada', [['named', 'A']], { team: 'a\0b', ['half \ud83d']: ['\ud83d', { deep: '\0' }] });
    expect(await rows(client)).toEqual([7]);
  });

  it('truth 2: is not fresh if its data is older at the source than its type allows', async () => {
    await addType('aged', `owner = ${who}`);
    await give('A', 'ada', 1, 'aged');
    await scene.db.query(`select pgfresh.queue_refresh_if_not_exists('A', 'aged')`);
    await scene.db.query(
      `update pgfresh_engine.pairs set source_at = pgfresh.clock() - interval '80 seconds' where key = 'A'`,
    );
    const state = async () => (await (await look('ada', [['aged', 'A']])).next('snapshot'))['state'];
    expect(await state()).toBe('fresh');
    await scene.db.query(`update pgfresh.data_type_registry set max_source_age = '1 minute' where data_type = 'aged'`);
    running = await start();
    expect(await state()).toBe('stale');
  });

  it('that changes its owner disappears for one and appears for the other, and versions grow for both', async () => {
    await give('A', 'ada', 1);
    const clients = { ada: await look('ada', [['holding', 'A']]), ben: await look('ben', [['holding', 'A']]) };
    const versions = { ada: '', ben: '' };
    const next = async (name: 'ada' | 'ben') => {
      const said = await clients[name].next();
      expect((said['version'] as string) > versions[name]).toBe(true);
      versions[name] = said['version'] as string;
      return amounts(said);
    };
    expect([await next('ada'), await next('ben')]).toEqual([[1], []]);
    await give('A', 'ben', 1);
    expect([await next('ada'), await next('ben')]).toEqual([[], [1]]);
    await give('A', 'ada', 2);
    expect([await next('ada'), await next('ben')]).toEqual([[2], []]);
    await scene.db.query('delete from holding');
    expect(await next('ada')).toEqual([]);
    expect(await clients.ben.isQuiet()).toBe(true);
  });

  it('is queued when it is cold, and then visible to its owner', async () => {
    const client = await look('ada', [['holding', 'COLD']]);
    expect(await client.next('snapshot')).toMatchObject({
      state: 'missing',
      activity: 'waiting',
      reason: 'queued',
      rows: [],
    });
    expect(await scene.queued()).toEqual(['holding COLD']);
    await give('COLD', 'ada', 1);
    expect(await rows(client)).toEqual([1]);
  });

  it('counts each user once, however many tokens they have, until they leave', async () => {
    const clients = [
      await look('ada', [['holding', 'A']]),
      await look('ada', [['holding', 'A']], { more: 1 }),
      await look('ben', [['holding', 'A']]),
    ];
    await expect.poll(() => scene.demand()).toEqual(['holding A 2']);
    await clients[0]!.close();
    await clients[2]!.close();
    await expect.poll(() => scene.demand()).toEqual(['holding A 1']);
    await clients[1]!.close();
    await expect.poll(() => scene.demand()).toEqual([]);
    // Another user, and then the first one again while their pair still lingers.
    await look('cyd', [['holding', 'A']]);
    await look('ben', [['holding', 'A']]);
    await expect.poll(() => scene.demand()).toEqual(['holding A 2']);
  });
});

describe('what a viewer may see', () => {
  it(
    'ends with the policy, the grant or the row that allows it, without a change of the pair',
    { timeout: 60_000 },
    async () => {
      await scene.db.query('create table if not exists friend (name text); truncate friend');
      await scene.db.query(`grant select on friend to ${member}; insert into friend values ('ada')`);
      await addType('altered', 'true');
      await addType('revoked', 'true');
      await addType('befriended', `exists (select from friend where name = ${who})`);
      const pairs = ['altered', 'revoked', 'befriended', 'holding'].map((type) => [type, 'A']);
      for (const [type] of pairs) await give('A', 'ada', 1, type);
      // Before the gateway under test starts, so that nothing else makes it read them again.
      const early = await look('ada', pairs);
      // It waits for all transactions that write on this server, in other databases too.
      await expect
        .poll(() => scene.value('(select bool_and(settled) from pgfresh_engine.watched_type)'), { timeout: 25_000 })
        .toBe(true);
      for (const [type] of pairs) await give('A', 'ada', 2, type);
      for (let told = 0; told < pairs.length;) if ((await rows(early))[0] === 2) told += 1;
      const client = await look('ada', pairs, {}, await start());
      for (const _ of pairs) expect(amounts(await client.next('snapshot'))).toEqual([2]);
      await scene.db.query(`
      alter policy seen on altered using (owner = 'ben'); revoke select on revoked from ${member}; delete from friend`);
      const gone = new Set<string>();
      while (gone.size < 3) {
        const said = await client.next('change');
        expect(said).toMatchObject({ rows: [], state: 'missing', fetched_at: null });
        gone.add((said['pair'] as string[])[0]!);
      }
      expect([...gone].toSorted()).toEqual(['altered', 'befriended', 'revoked']);
      expect(await client.isQuiet()).toBe(true);
      await scene.db.query(`alter policy seen on altered using (true)`);
      expect(await rows(client)).toEqual([2]);
      await give('A', 'ada', 3, 'altered');
      expect(await rows(client)).toEqual([3]);
      // The type itself can become shared; then viewers have to request it again.
      await scene.db.query(`update pgfresh.data_type_registry set visibility = 'shared' where data_type = 'altered'`);
      let said = await client.next();
      while (said.type !== 'revoked') said = await client.next();
      expect(said).toMatchObject({ pair: ['altered', 'A'], code: 'PGF_LIVE_UNDECIDED' });
      expect(await client.want([['altered', 'A']], 'add')).toEqual(['accepted']);
      expect(await rows(client)).toEqual([3]);
    },
  );

  it('depends on the role and all other claims of their token', async () => {
    await addType(
      'ranked',
      `current_user = '${guest}' or amount <= (current_setting('request.jwt.claims')::jsonb ->> 'rank')::int`,
    );
    await give('LOW', 'x', 1, 'ranked');
    await give('HIGH', 'x', 9, 'ranked');
    const pairs = [
      ['ranked', 'LOW'],
      ['ranked', 'HIGH'],
    ];
    const [low, high, other] = [
      await look('ada', pairs, { rank: 1 }),
      await look('ada', pairs, { rank: 9 }),
      await look('ada', pairs, { role: guest }),
    ];
    expect([await rows(low), await rows(low)]).toEqual([[1], []]);
    expect([await rows(high), await rows(high)]).toEqual([[1], [9]]);
    expect([await rows(other), await rows(other)]).toEqual([[1], [9]]);
    // The next token of the same connection has other claims.
    high.say({ type: 'auth', token: await tokenOf('ada', { claims: { rank: 0 } }) });
    await high.next('authenticated');
    expect([await high.next('change'), await high.next('change')]).toMatchObject([{ rows: [] }, { rows: [] }]);
    low.say({ type: 'auth', token: await tokenOf('ada', { claims: { role: guest } }) });
    await low.next('authenticated');
    expect(await rows(low)).toEqual([9]);
    await give('HIGH', 'x', 10, 'ranked');
    expect([await rows(low), await rows(other)]).toEqual([[10], [10]]);
    expect(await high.isQuiet()).toBe(true);
    await expect.poll(() => scene.demand()).toEqual(['ranked HIGH 1', 'ranked LOW 1']);
  });
});

describe('a viewer who comes back', () => {
  const version = async (client: LiveClient) => (await client.next('snapshot'))['version'] as string;

  it('with the same token gets what they missed, and nothing that they have', async () => {
    await give('A', 'ada', 1);
    await give('B', 'ada', 1);
    const token = await as('ada');
    const open = async (pairs: string[][]) => {
      const client = await running.greet(undefined, { headers: token });
      await client.want(pairs);
      return client;
    };
    const before = await open([
      ['holding', 'A'],
      ['holding', 'B'],
    ]);
    const versions = [await version(before), await version(before)];
    await before.close();
    await give('B', 'ada', 2);
    const after = await open([
      ['holding', 'A', versions[0]!],
      ['holding', 'B', versions[1]!],
    ]);
    expect(amounts(await after.next('snapshot'))).toEqual([2]);
    expect(await after.isQuiet()).toBe(true);
  });

  it('with another token gets what they may see now, in a greater version', async () => {
    await give('A', 'ada', 1);
    const [ada, ben] = [await look('ada', [['holding', 'A']]), await look('ben', [['holding', 'A']])];
    const had = await version(ada);
    await version(ben);
    // Nothing was written in the meantime, and what ben sees is already cached.
    const again = await look('ben', [['holding', 'A', had]]);
    const said = await again.next('snapshot');
    expect(said).toMatchObject({ rows: [] });
    expect((said['version'] as string) > had).toBe(true);
  });
});

describe('other transports', () => {
  it('a plain request returns the rows of its user, with a tag per user', async () => {
    await give('A', 'ada', 1);
    const [ada, ben] = [await as('ada'), await as('ben')];
    const get = (headers: Record<string, string>) => fetch(`${running.http.url}/live/holding/A`, { headers });
    const [first, other] = [await get(ada), await get(ben)];
    expect([await first.json(), await other.json()]).toMatchObject([{ rows: [{ amount: 1 }] }, { rows: [] }]);
    expect([first.headers.get('cache-control'), first.headers.get('vary')]).toEqual([
      'private, no-cache',
      'authorization',
    ]);
    const tag = first.headers.get('etag')!;
    expect((await get({ ...ada, 'if-none-match': tag })).status).toBe(304);
    const foreign = await get({ ...ben, 'if-none-match': tag });
    expect([foreign.status, await foreign.json()]).toMatchObject([200, { rows: [] }]);
    await give('A', 'ben', 1);
    await expect.poll(async () => (await (await get(ada)).json()) as object).toMatchObject({ rows: [] });
    // The same rows have another tag for another user.
    const [none, same] = [
      await get(ada),
      await get({ ...(await as('cyd')), 'if-none-match': (await get(ada)).headers.get('etag')! }),
    ];
    expect([await none.json(), same.status, await same.json()]).toMatchObject([{ rows: [] }, 200, { rows: [] }]);
  });

  it('an event stream sends the rows of its user', async () => {
    await give('A', 'ada', 1);
    const stream = await EventClient.open(running.http.url, await as('ben'));
    const { session } = await stream.next('welcome');
    await stream.say(session as string, { type: 'want', pairs: [['holding', 'A']] });
    await stream.next('answer');
    expect(await stream.next('snapshot')).toMatchObject({ rows: [] });
    await give('A', 'ben', 2);
    expect(await stream.next('change')).toMatchObject({ rows: [{ amount: 2 }] });
    stream.close();
  });

  it('anonymous viewers are one reader, if they have a role', async () => {
    await addType('open_to_all', `${who} is null`);
    await give('A', 'x', 1, 'open_to_all');
    const open = await start({ anonymous: 'loopback', rls: { anonymousRole: guest } });
    const client = await open.greet(undefined);
    await client.want([['open_to_all', 'A']]);
    expect(amounts(await client.next('snapshot'))).toEqual([1]);
    const closed = await start({ anonymous: 'loopback' });
    expect(await (await closed.greet(undefined)).want([['open_to_all', 'A']])).toEqual(['PGF_LIVE_PRIVATE']);
    // A token without a role.
    expect(await (await open.greet('ada')).want([['open_to_all', 'A']])).toEqual(['PGF_LIVE_PRIVATE']);
  });
});

describe('a function called by a policy', () => {
  it('cannot switch to another role, and leaves no state for the next reader', async () => {
    await scene.db.query(`
      create function meddle() returns boolean language plpgsql as $$ declare me text := ${who}; begin
        -- Once a read; the other rows of it find what the first has left.
        if current_setting('a.trace', true) = me then return true; end if;
        if coalesce(current_setting('a.trace', true), '') || coalesce(current_setting('request.jwt.claim.sub', true), '') <> '' then raise 'a setting was left'; end if;
        if exists (select from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()) or exists (select from pg_cursors where is_holdable) then raise 'a lock or a cursor was left'; end if;
        perform set_config('a.trace', me, false), set_config('request.jwt.claim.sub', me, false), set_config('search_path', 'nowhere', false), set_config('statement_timeout', '0', false);
        perform pg_catalog.pg_advisory_lock(1);
        execute 'declare kept cursor with hold for select 1'; execute 'listen heard';
        return current_user = '${member}'; end $$;
      create function escape() returns boolean language plpgsql as $$ begin execute 'reset role'; return true; end $$;
      create function escape_further() returns boolean language plpgsql as $$ begin execute 'set session authorization default'; return true; end $$;
      create function write() returns boolean language plpgsql as $$ begin insert into quote values ('WRITTEN'); return true; end $$;
      grant insert on quote to ${member}`);
    await addType('meddled', 'meddle()');
    for (const name of ['escape', 'escape_further', 'write']) await addType(`${name}_type`, `${name}()`);
    await give('A', 'x', 1, 'meddled');
    // More readers than connections.
    for (let n = 0; n < 12; n++) {
      const client = await look(`user ${n}`, [['meddled', 'A']]);
      expect(amounts(await client.next('snapshot'))).toEqual([1]);
      await client.close();
    }
    for (const type of ['escape_type', 'escape_further_type']) {
      await give('A', 'x', 1, type);
      expect(await rows(await look('ada', [[type, 'A']]))).toEqual([]);
    }
    await give('A', 'x', 1, 'write_type');
    const client = await look('ada', [['write_type', 'A']]);
    expect(await client.next('revoked')).toMatchObject({ code: 'PGF_LIVE_UNDECIDED' });
    expect(await scene.value(`exists (select from quote where key = 'WRITTEN')`)).toBe(false);
  });

  it('that raises an error for a row ends that pair, reveals nothing, and the others continue', async () => {
    await addType('raising', `case when owner = 'bad' then (1 / (amount - amount)) = 0 else true end`);
    await give('GOOD', 'x', 1, 'raising');
    await give('BAD', 'bad', 4711, 'raising');
    await give('A', 'ada', 1);
    const client = await look('ada', [
      ['raising', 'GOOD'],
      ['raising', 'BAD'],
      ['holding', 'A'],
    ]);
    const said = [await client.next(), await client.next(), await client.next()];
    const revoked = said.find(({ type }) => type === 'revoked')!;
    expect(revoked).toMatchObject({ pair: ['raising', 'BAD'], code: 'PGF_LIVE_UNDECIDED' });
    expect(JSON.stringify(said)).not.toMatch(/4711|division/);
    expect(said.filter(({ type }) => type === 'snapshot').map(amounts)).toEqual([[1], [1]]);
    await give('GOOD', 'x', 2, 'raising');
    expect(await rows(client)).toEqual([2]);
    const answer = await fetch(`${running.http.url}/live/raising/BAD`, { headers: await as('ada') });
    expect([answer.status, await answer.json()]).toMatchObject([503, { error: { code: 'PGF_LIVE_UNDECIDED' } }]);
  });

  it('that takes too long ends that pair, and no other waits for it', async () => {
    await addType('sleeping', `pg_sleep(20) is not null`);
    await give('A', 'x', 1, 'sleeping');
    await give('A', 'ada', 1);
    const short = await start({}, '1s');
    const sleepers = await Promise.all(
      Array.from({ length: 8 }, (_, n) => look(`user ${n}`, [['sleeping', 'A']], {}, short)),
    );
    const ada = await look('ada', [['holding', 'A']], {}, short);
    expect(amounts(await ada.next('snapshot'))).toEqual([1]);
    await give('A', 'ada', 2);
    expect(await rows(ada)).toEqual([2]);
    expect(await sleepers[0]!.next('revoked')).toMatchObject({ code: 'PGF_LIVE_UNDECIDED' });
    await Promise.all(sleepers.map((client) => client.close()));
  });
});

it('50 users of one pair each see their own rows, and another user does not wait for all of them', async () => {
  await addType('shared_out', `owner = 'all' or owner = ${who}`);
  await give('A', 'all', 0, 'shared_out');
  await give('A', 'ada', 0);
  const clients = await Promise.all(Array.from({ length: 50 }, (_, n) => look(`u${n}`, [['shared_out', 'A']])));
  for (const client of clients) expect(await rows(client)).toEqual([0]);
  await expect.poll(() => scene.demand()).toEqual(['shared_out A 50']);
  const ada = await look('ada', [['holding', 'A']]);
  await rows(ada);
  for (let amount = 1; amount <= 3; amount++) {
    await give('A', 'all', amount, 'shared_out');
    await give('A', 'ada', amount);
    expect(await rows(ada)).toEqual([amount]);
    for (const client of clients) for (let got = -1; got < amount;) [got = -1] = await rows(client);
  }
  await give('A', 'u7', 9, 'shared_out');
  const seen = await Promise.all(clients.map(rows));
  expect(seen.map((got, n) => (got.length > 0 ? n : -1)).filter((n) => n >= 0)).toEqual([7]);
});

describe('a role', () => {
  it('that is not a viewer role is refused, with the next step', async () => {
    const { name: stranger } = await createLogin(scene.url);
    const { name: mighty } = await createLogin(scene.url, 'pgfresh_viewer');
    await scene.db.query(`alter role ${mighty} bypassrls`);
    for (const role of ['nobody_at_all', stranger, mighty, 'postgres', 'public', '', `"; drop table holding; --`, 7]) {
      const client = await running.greet(undefined, { headers: await as('ada', { role }) });
      const [code] = await client.want([['holding', 'A']]);
      expect(code).toBe(role === 7 ? 'PGF_LIVE_PRIVATE' : 'PGF_LIVE_ROLE');
    }
    const check = (role: string) => examineGateway(scene.db, { gateway: { rls: { role, timeout: 1 } } });
    expect((await check('nobody_at_all'))[0]).toMatchObject({
      state: 'fatal',
      code: 'PGF_LIVE_ROLE',
      next: expect.stringContaining(member) as string,
    });
    expect((await check(stranger))[0]).toMatchObject({ next: `Run: grant pgfresh_viewer to ${stranger};` });
    expect((await check(mighty))[0]).toMatchObject({ next: expect.stringContaining('BYPASSRLS') as string });
    expect(await examineGateway(scene.db, { gateway: { jwt: { userClaim: 'sub' } } })).toContainEqual(
      expect.objectContaining({
        name: 'data type holding',
        code: 'PGF_LIVE_PRIVATE',
        next: 'Set gateway.rls in the configuration; docs/guides/access.md shows how.',
      }),
    );
  });

  it('that may not read, and a table without row security, are reported by check', async () => {
    await addType('unsecured', 'true');
    await scene.db.query(`alter table unsecured disable row level security; revoke select on unsecured from ${guest}`);
    const findings = await examineGateway(scene.db, { gateway: { rls: { role: guest, timeout: 1 } } });
    expect(findings.filter(({ name }) => name === 'data type unsecured')).toMatchObject([
      { state: 'warning', next: 'Run: alter table unsecured enable row level security;' },
      { state: 'warning', next: expect.stringContaining(`grant select on unsecured to ${guest};`) as string },
    ]);
    expect(findings.filter(({ name }) => name === 'data type holding')).toEqual([]);
  });

  it('that gains the right to see everything is no longer used', async () => {
    const { name: fleeting } = await createLogin(scene.url, 'pgfresh_viewer');
    await scene.db.query(
      `grant select on holding to ${fleeting}; create policy fleeting on holding to ${fleeting} using (false)`,
    );
    await give('A', 'ada', 1);
    const client = await look('ada', [['holding', 'A']], { role: fleeting });
    expect(await rows(client)).toEqual([]);
    await scene.db.query(`alter role ${fleeting} bypassrls`);
    await give('A', 'ada', 2);
    expect(await client.next('revoked')).toMatchObject({ code: 'PGF_LIVE_ROLE' });
    await expect.poll(() => scene.demand()).toEqual([]);
  });

  it('that pgfresh may not assume needs a grant', async () => {
    const { name: owner } = await createLogin(scene.url);
    const [{ problem, next_step }] = (await scene.db.transact('look', async (tx) => {
      await tx.query(`alter schema pgfresh owner to ${owner}`);
      const found = await tx.query<{ problem: string; next_step: string }>(
        'select * from pgfresh_engine.viewer_role_problem($1::text)',
        [member],
      );
      await tx.query('reset role');
      await tx.query(`alter schema pgfresh owner to session_user`);
      return found;
    })) as [{ problem: string; next_step: string }];
    expect([problem, next_step]).toEqual([
      `pgfresh may not read as the role ${member}`,
      `Run as an administrator: grant ${member} to ${owner};`,
    ]);
  });
});
