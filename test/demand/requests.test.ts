import { beforeAll, describe, expect, it } from 'vitest';
import type { Queryable } from '../../src/database/index.ts';
import { createLogin } from '../harness/login.ts';
import { expectNoChange, expectRefusal } from '../harness/refusal.ts';
import { openSession } from '../harness/session.ts';
import { RegistryScene } from '../registry/scene.ts';

/** The functions of viewers and applications run with the rights of their caller, over the view `pgfresh_engine.request`. */
let scene: RegistryScene;
beforeAll(async () => {
  scene = await RegistryScene.open();
  await scene.add('quote');
});

/** A login with these roles, whose session says that it is this user. */
async function login(user: string, ...roles: string[]): Promise<{ name: string; session: Queryable }> {
  const { name, url } = await createLogin(scene.url, ...roles);
  const session = await openSession(url);
  await session.query(`select set_config('request.jwt.claims', $1::text, false)`, [JSON.stringify({ sub: user })]);
  return { name, session };
}

const subscribers = (key: string) =>
  scene.value<string[]>(
    `array(select user_id from pgfresh.active_subscriptions where key = $1::text order by user_id)`,
    [key],
  );

describe('the caller', () => {
  it('is the role that was set: of two users of one connection, each leaves only their own', async () => {
    const roles = { ann: (await login('', 'pgfresh_viewer')).name, ben: (await login('', 'pgfresh_viewer')).name };
    // It may name any user, until it has become one of the others.
    const pool = await openSession((await createLogin(scene.url, 'pgfresh_gateway', ...Object.values(roles))).url);
    const as = async <T>(user: keyof typeof roles, act: () => Promise<T>): Promise<T> => {
      await pool.query(`begin; set local role ${roles[user]}; set local request.jwt.claims = '{"sub": "${user}"}'`);
      try {
        return await act();
      } finally {
        await pool.query('commit');
      }
    };
    for (const user of ['ann', 'ben'] as const) await as(user, () => scene.subscribe(null, 'A', 'quote', pool));
    expect(await subscribers('A')).toEqual(['ann', 'ben']);
    await expectRefusal(
      as('ann', () => scene.leave('ben', 'A', 'quote', pool)),
      'PGF_VIEWER_OTHER',
    );
    expect(await as('ann', () => scene.leave(null, 'A', 'quote', pool))).toBe(true);
    expect(await subscribers('A')).toEqual(['ben']);
    expect(await as('ann', () => scene.leave(null, 'A', 'quote', pool))).toBe(false);
    expect(await as('ben', () => scene.leave(null, 'A', 'quote', pool))).toBe(true);
    expect(await subscribers('A')).toEqual([]);
  });

  it('is the owner of a function with rights of its own', async () => {
    const gateway = await login('', 'pgfresh_gateway');
    await scene.db.query(`
      create function public.speaks(p_user text) returns jsonb language sql security definer set search_path = pg_catalog, pg_temp
        as $$ select pgfresh.upsert_active_subscription(p_user, 'S', 'quote') $$;
      alter function public.speaks(text) owner to ${gateway.name}`);
    const { session } = await login('ann', 'pgfresh_viewer');
    await session.query(`select public.speaks('cid')`);
    expect(await subscribers('S')).toEqual(['cid']);
    await scene.db.query('drop function public.speaks(text)');
  });

  it('is noted, whatever is written in the request', async () => {
    const { name, session } = await login('ann', 'pgfresh_viewer');
    const forged = `insert into pgfresh_engine.request (verb, args, caller)
      values ('subscribe', '{"user_id": "ben", "key": "F", "data_type": "quote"}', 'pgfresh_gateway') returning answer`;
    await expect(session.query(forged)).rejects.toMatchObject({ code: '42501' });
    await scene.db.query(
      `grant usage on schema pgfresh_engine to ${name}; grant insert, select on pgfresh_engine.request to ${name}`,
    );
    await expectRefusal(session.query(forged), 'PGF_VIEWER_OTHER');
    expect(await subscribers('F')).toEqual([]);
  });

  it('of a request without its function needs the right to execute it', async () => {
    const application = (await login('ann', 'pgfresh_scheduler')).session;
    const monitor = (await login('ann', 'pgfresh_monitor')).session;
    const ask = (db: Queryable, verb: string) =>
      db.query(
        `insert into pgfresh_engine.request (verb, args) values ($1::text, '{"key": "A", "data_type": "quote"}') returning answer`,
        [verb],
      );
    expect(await ask(monitor, 'explain')).toMatchObject([{ answer: { key: 'A' } }]);
    await expectNoChange(scene.db, async () => {
      for (const verb of ['subscribe', 'unsubscribe', 'check', 'explain', 'nonsense', null])
        await expect(ask(application, verb as string)).rejects.toMatchObject({ code: '42501' });
      for (const verb of ['subscribe', 'trigger', 'cancel', 'backfill'])
        await expect(ask(monitor, verb)).rejects.toMatchObject({ code: '42501' });
      await expect(
        application.query(`insert into pgfresh_engine.request (verb, caller) values ('trigger', 'postgres')`),
      ).rejects.toMatchObject({ code: '42501' });
    });
  });
});

describe.each([
  ['has locked a pair that is known', known('L'), `select from pgfresh_engine.pairs where key = 'L' for update`],
  ['has queued a pair that is new', '', `select pgfresh.queue_refresh_if_not_exists('N', 'quote')`],
  [
    'has locked the job of a pair',
    `select pgfresh.queue_refresh_if_not_exists('J', 'quote')`,
    `select from pgfresh_engine.job where key = 'J' for update`,
  ],
])('while a stranger %s', (_, before, statement) => {
  it('a viewer does not wait for them', async () => {
    await scene.db.query(before);
    const stranger = await openSession(scene.url);
    await stranger.query(`begin; ${statement}`);
    const { session } = await login('ann', 'pgfresh_viewer');
    await session.query(`set lock_timeout = '100ms'`);
    for (const key of ['L', 'N', 'J']) {
      const all = () =>
        session.query('select pgfresh.upsert_active_subscriptions($1::jsonb) as answers', [
          JSON.stringify([{ data_type: 'quote', key }]),
        ]);
      expect(await scene.subscribe(null, key, 'quote', session)).toMatchObject({ result: 'subscribed' });
      expect(await scene.subscribe(null, key, 'quote', session)).toMatchObject({ result: 'seen' });
      await session.query(
        `select pgfresh.check_and_queue_stale_batch($1::text, '{quote}'), pgfresh.explain_pair('quote', $1::text)`,
        [key],
      );
      expect(await scene.leave(null, key, 'quote', session)).toBe(true);
      expect(await all()).toEqual([{ answers: [{ result: 'subscribed', data_type: 'quote', key }] }]);
      expect(await all()).toEqual([{ answers: [{ result: 'seen', data_type: 'quote', key }] }]);
      expect(await scene.leave(null, key, 'quote', session)).toBe(true);
    }
    await stranger.query('rollback');
  });
});

/** Adds a pair that no one views and that has no job. */
function known(key: string): string {
  return `insert into pgfresh_engine.pairs (type_id, key) select type_id, '${key}' from pgfresh.data_type_registry`;
}

it("a caller's setting for literals does not change what pgfresh's functions mean", async () => {
  const { session } = await login('ann', 'pgfresh_viewer');
  await session.query('set standard_conforming_strings = off');
  const [row] = await session.query<{ answers: { problem: string }[] }>(
    `select pgfresh.upsert_active_subscriptions('[{"data_type": "nonsense", "key": "A"}]') as answers`,
  );
  expect(row!.answers).toMatchObject([{ code: 'PGF_TYPE_UNKNOWN', problem: expect.not.stringContaining('PGF_') }]);
});

it('a viewer is told the codes of a pair, a monitor everything', async () => {
  const explain = async (db: Queryable) =>
    (await db.query<{ told: object }>(`select pgfresh.explain_pair('quote', 'E') as told`))[0]!.told;
  const viewer = await login('ann', 'pgfresh_viewer');
  const told = await explain(viewer.session);
  expect(told).toEqual({
    data_type: 'quote',
    key: 'E',
    state: 'missing',
    activity: 'idle',
    reason: null,
    until: null,
  });
  expect(await explain((await login('ann', 'pgfresh_monitor')).session)).toMatchObject({
    ...told,
    words: 'Nobody looks at it.',
    viewers: 0,
  });
  // It counts as a call, so it needs a user.
  expect(await scene.value(`(select calls from pgfresh_engine.viewer_calls where user_id = 'ann')`)).toBeGreaterThan(0);
  await expectRefusal(explain((await login('', 'pgfresh_viewer')).session), 'PGF_ARGUMENT_INVALID');
  // An application that registers jobs may use the schema of the engine, and is told no more for that.
  const application = await login('dee', 'pgfresh_viewer', 'pgfresh_scheduler');
  expect(await explain(application.session)).toEqual(told);
  expect(await scene.value(`(select calls from pgfresh_engine.viewer_calls where user_id = 'dee')`)).toBe(1);
  for (const role of ['operator', 'worker', 'planner', 'gateway'])
    expect(await explain((await login('eve', `pgfresh_${role}`, 'pgfresh_viewer')).session)).toHaveProperty('words');
});
