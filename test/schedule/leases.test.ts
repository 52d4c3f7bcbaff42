import { describe, expect, it } from 'vitest';
import type { Queryable } from '../../src/database/index.ts';
import { blocked } from '../harness/blocked.ts';
import { expectRefusal } from '../harness/refusal.ts';
import { openSession } from '../harness/session.ts';
import { LeaseScene } from './lease-scene.ts';

const scene = await LeaseScene.open({ poolSize: 64 });
const racers = 64;

describe('acquire', () => {
  it('takes what nobody ever took, and says locked to the next one until the lease ends', async () => {
    const first = await scene.acquire('first');
    expect(first).toMatchObject({ reason: 'acquired', token: expect.any(Number) as number, next_run_at: null });
    expect(first.locked_until!.getTime() - (await scene.clock.now())).toBeGreaterThan(4.9 * 60_000);
    for (const manual of [false, true]) {
      expect(await scene.acquire('first', { manual })).toEqual({
        reason: 'locked',
        token: null,
        locked_until: first.locked_until,
        next_run_at: null,
      });
    }
    await scene.clock.advance('5 minutes');
    const second = await scene.acquire('first');
    expect(second.reason).toBe('acquired');
    expect(second.token!).toBeGreaterThan(first.token!);
  });

  it('says not_due until the next run is due, unless it is by hand, and disabled to everybody', async () => {
    const { next_run_at } = await scene.release('due', await scene.take('due'), true);
    expect(await scene.acquire('due')).toEqual({ reason: 'not_due', token: null, locked_until: null, next_run_at });
    await scene.release('due', await scene.take('due', { manual: true }), null);
    await scene.clock.advance('15 minutes');
    await scene.release('due', await scene.take('due'), null);
    await scene.db.query(`update pgfresh.refresh_schedule set enabled = false where function_name = 'due'`);
    for (const manual of [false, true]) expect((await scene.acquire('due', { manual })).reason).toBe('disabled');
  });

  it('gives tokens that only grow, also when the row was deleted in between', async () => {
    const first = await scene.take('deleted');
    await scene.db.query(`delete from pgfresh.refresh_schedule where function_name = 'deleted'`);
    expect(await scene.renew('deleted', first)).toBe('lost');
    expect(await scene.take('deleted')).toBeGreaterThan(first);
    expect(await scene.renew('deleted', first)).toBe('lost');
  });

  it('is the same for names of every kind', async () => {
    for (const odd of [`O'Neil`, 'a"b', 'a\\b', '$1', '%s', '日経', '🪙', ' ', `'; drop schema pgfresh cascade; --`]) {
      const token = await scene.take(odd);
      expect((await scene.acquire(odd)).reason).toBe('locked');
      await scene.fence(odd, token);
      expect(await scene.release(odd, token, true)).toMatchObject({ reason: 'released' });
    }
  });

  it('finds the row, whatever the collation of the caller', async () => {
    await scene.take('collated');
    const [row] = await scene.db.query<{ answer: { reason: string } }>(
      `select to_jsonb(a) as answer from (select 'collated'::text collate "ucs_basic" as name) as n, pgfresh.acquire_refresh_lock(n.name, n.name) as a`,
    );
    expect(row!.answer.reason).toBe('locked');
  });
});

describe('64 racers', () => {
  it('for one lease, 100 rounds: one has it each time, the others are told at once that it is locked', async () => {
    let last = 0;
    for (let round = 0; round < 100; round++) {
      // A name that nobody took before, and one that was given back a moment ago.
      const name = round % 2 === 0 ? `round ${round}` : 'round 0';
      const answers = await Promise.all(Array.from({ length: racers }, () => scene.acquire(name)));
      const winners = answers.filter(({ reason }) => reason === 'acquired');
      expect(winners).toHaveLength(1);
      expect(answers.filter(({ reason }) => reason === 'locked')).toHaveLength(racers - 1);
      expect(winners[0]!.token!).toBeGreaterThan(last);
      last = winners[0]!.token!;
      expect(await scene.release(name, last, true, '0')).toMatchObject({ reason: 'released' });
    }
  });

  it('that come, work and go as they like are never inside together', async () => {
    let inside = 0;
    let runs = 0;
    let most = 0;
    await Promise.all(
      Array.from({ length: racers }, async () => {
        while (runs < 40) {
          const { reason, token } = await scene.acquire('busy', { manual: true });
          if (reason !== 'acquired') continue;
          most = Math.max(most, ++inside);
          runs++;
          if (runs % 3 === 0) await scene.fence('busy', token!);
          inside--;
          expect(await scene.release('busy', token!, runs % 2 === 0)).toMatchObject({ reason: 'released' });
        }
      }),
    );
    expect(most).toBe(1);
  });

  it('in transactions that take several leases in every order wait for nobody, so there is no deadlock', async () => {
    const [one, two] = [await openSession(scene.url), await openSession(scene.url)];
    const reason = async (db: Queryable, name: string) => (await scene.acquire(name, { db })).reason;
    await scene.release('old a', await scene.take('old a'), null);
    await scene.release('old b', await scene.take('old b'), null);
    for (const [a, b] of [
      ['new a', 'new b'],
      ['old a', 'old b'],
    ] as const) {
      await one.query('begin');
      await two.query('begin');
      expect([await reason(one, a), await reason(two, b)]).toEqual(['acquired', 'acquired']);
      expect([await reason(one, b), await reason(two, a)]).toEqual(['locked', 'locked']);
      await one.query('rollback');
      await two.query('commit');
      expect([await reason(one, a), await reason(one, b)]).toEqual(['acquired', 'locked']);
    }
  });

  it('who lose only read: no row is locked or written, and no transaction id is used', async () => {
    await scene.take('held');
    const [row] = await scene.db.query<{ xid: string | null }>(
      `select a.reason, pg_current_xact_id_if_assigned()::text as xid from pgfresh.acquire_refresh_lock('held', 'a test') as a`,
    );
    expect(row).toEqual({ reason: 'locked', xid: null });
  });
});

describe('renew', () => {
  it('holds it for longer, from now on', async () => {
    const token = await scene.take('renewed');
    await scene.clock.advance('4 minutes');
    expect(await scene.renew('renewed', token)).toBe('renewed');
    await scene.clock.advance('4 minutes');
    expect((await scene.acquire('renewed')).reason).toBe('locked');
    expect(await scene.renew('renewed', token)).toBe('renewed');
  });

  it('is too late when the lease has ended, even if nobody took it, and when it was given back', async () => {
    const token = await scene.take('late');
    await scene.clock.advance('5 minutes');
    expect(await scene.renew('late', token)).toBe('lost');
    const next = await scene.take('late');
    expect(await scene.renew('late', token)).toBe('lost');
    await scene.release('late', next, true);
    expect(await scene.renew('late', next)).toBe('lost');
    expect(await scene.renew('never taken', 1)).toBe('lost');
  });

  it('that had to wait goes by the time after the wait', async () => {
    const token = await scene.take('waiting');
    const session = await openSession(scene.url);
    await session.query('begin');
    await scene.fence('waiting', token, session);
    const renewal = scene.renew('waiting', token);
    await blocked(scene.db);
    await scene.clock.advance('5 minutes');
    await session.query('commit');
    expect(await renewal).toBe('lost');
  });
});

describe('release', () => {
  it('plans the next run: 10 to 15 minutes after a success, 20 to 40 after a failure, never twice the same', async () => {
    const waits = { true: new Set<number>(), false: new Set<number>() };
    for (let run = 0; run < 40; run++) {
      const success = run % 2 === 0;
      const token = await scene.take('planned', { manual: false });
      await scene.release('planned', token, success);
      const row = await scene.row('planned');
      expect(row).toMatchObject({
        last_status: success ? 'success' : 'failed',
        failures: success ? 0 : 1,
        locked: false,
        ended: true,
      });
      const due = row!['due_in'] as number;
      expect(due).toBeGreaterThan((success ? 10 : 20) - 0.1);
      expect(due).toBeLessThanOrEqual(success ? 15 : 40);
      waits[`${success}`].add(Math.round(due));
      await scene.clock.advance('40 minutes');
    }
    expect(waits.true.size).toBeGreaterThan(3);
    expect(waits.false.size).toBeGreaterThan(8);
  });

  it('goes by the waits of the row, or by the one that is passed', async () => {
    await scene.release('own waits', await scene.take('own waits'), false);
    await scene.db.query(
      `update pgfresh.refresh_schedule set success_wait_min = '1 day', success_wait_max = '1 day', next_run_at = null where function_name = 'own waits'`,
    );
    await scene.release('own waits', await scene.take('own waits'), true);
    expect((await scene.row('own waits'))!['due_in']).toBeCloseTo(24 * 60, 0);
    await scene.clock.advance('24 hours');
    await scene.release('own waits', await scene.take('own waits'), false, '90 seconds');
    expect((await scene.row('own waits'))!['due_in']).toBeCloseTo(1.5, 1);
  });

  it('counts failures in a row', async () => {
    for (const success of [false, false, true, false]) {
      await scene.release('failing', await scene.take('failing', { manual: true }), success, '0');
    }
    expect(await scene.row('failing')).toMatchObject({ last_status: 'failed', failures: 1 });
  });

  it('of a run by hand ahead of the time leaves the next one where it was, however long it took', async () => {
    const planned = (await scene.release('ahead', await scene.take('ahead'), true)).next_run_at;
    const token = await scene.take('ahead', { manual: true });
    expect((await scene.release('ahead', token, true)).next_run_at).toEqual(planned);
    const long = await scene.take('ahead', { manual: true });
    for (let minutes = 0; minutes < 16; minutes += 4) {
      await scene.clock.advance('4 minutes');
      expect(await scene.renew('ahead', long)).toBe('renewed');
    }
    expect((await scene.release('ahead', long, true)).next_run_at).toEqual(planned);
    // It is due by now, and by hand it is the run that was planned.
    const due = await scene.take('ahead', { manual: true });
    expect((await scene.release('ahead', due, true)).next_run_at!.getTime()).toBeGreaterThan(planned!.getTime());
  });

  it('truth 14: of a run by hand ahead of the time plans the next one as it is told', async () => {
    await scene.release('told', await scene.take('told'), true);
    for (const success of [true, false]) {
      await scene.release('told', await scene.take('told', { manual: true }), success, '2 hours');
      expect((await scene.row('told'))!['due_in']).toBeCloseTo(120, 0);
    }
  });

  it('without a success only gives it back', async () => {
    await scene.release('given back', await scene.take('given back'), null);
    expect(await scene.row('given back')).toEqual({
      enabled: true,
      last_status: null,
      failures: 0,
      ended: false,
      locked: false,
      due_in: null,
    });
    expect((await scene.acquire('given back')).reason).toBe('acquired');
  });

  it('records nothing of a lease that has ended, was taken or given back', async () => {
    const token = await scene.take('over');
    await scene.clock.advance('5 minutes');
    const lost = { reason: 'lost', next_run_at: null };
    expect(await scene.release('over', token, true)).toEqual(lost);
    const next = await scene.take('over');
    expect(await scene.release('over', token, true)).toEqual(lost);
    expect(await scene.row('over')).toMatchObject({ last_status: null, ended: false, locked: true });
    await scene.release('over', next, false);
    expect(await scene.release('over', next, true)).toEqual(lost);
    expect(await scene.row('over')).toMatchObject({ last_status: 'failed' });
  });
});

describe('a fence', () => {
  it('lets through who has the lease, also twice at once, and says what became of it to others', async () => {
    const token = await scene.take('fenced');
    await scene.db.transact('one', async (one) => {
      await scene.fence('fenced', token, one);
      await scene.db.transact('two', (two) => scene.fence('fenced', token, two));
    });
    // In one session: a refusal reaches its client before the server has let go the row, and others would find it locked.
    const session = await openSession(scene.url);
    const told = async (name: string, of: number) =>
      (await expectRefusal(scene.fence(name, of, session), 'PGF_LOCK_LOST')).message;
    expect(await told('fenced', token - 1)).toMatch(/it was taken with token \d+$/);
    await scene.clock.advance('5 minutes 2 seconds');
    expect(await told('fenced', token)).toMatch(/it ended \d\.\d s ago$/);
    const next = await scene.take('fenced', { db: session });
    expect(await told('fenced', token)).toMatch(/it was taken with token \d+$/);
    await session.query('select');
    await scene.release('fenced', next, true);
    expect(await told('fenced', next)).toMatch(/it was given back$/);
    expect(await told('never taken', 1)).toMatch(/there is no such lease$/);
  });

  it('keeps the lease from everybody until its transaction has ended, also past its time', async () => {
    const token = await scene.take('committing');
    const session = await openSession(scene.url);
    await session.query('begin');
    await scene.fence('committing', token, session);
    await scene.clock.advance('6 minutes');
    expect((await scene.acquire('committing')).reason).toBe('locked');
    await session.query('commit');
    expect((await scene.acquire('committing')).reason).toBe('acquired');
  });

  it.each(['commit', 'rollback'])(
    'that comes late waits for who takes the lease, and is refused after his %s',
    async (end) => {
      const name = `half-way ${end}`;
      const token = await scene.take(name);
      await scene.clock.advance('5 minutes');
      const session = await openSession(scene.url);
      await session.query('begin');
      expect((await scene.acquire(name, { db: session })).reason).toBe('acquired');
      const fence = expectRefusal(scene.fence(name, token), 'PGF_LOCK_LOST');
      await blocked(scene.db);
      await session.query(end);
      await fence;
    },
  );
});
