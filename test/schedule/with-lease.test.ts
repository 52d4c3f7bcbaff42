import { setTimeout as wait } from 'node:timers/promises';
import pg from 'pg';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { withLease, type Leased, type LeaseOptions } from '../../src/index.ts';
import { blocked } from '../harness/blocked.ts';
import { openDatabase } from '../harness/database.ts';
import { openSession } from '../harness/session.ts';
import { LeaseScene } from './lease-scene.ts';
import { until } from './scene.ts';

const scene = await LeaseScene.open();
const { db } = scene;

/** Work that goes on until the test lets it end. */
function startWork(name: string, options: Partial<LeaseOptions> = {}) {
  const began = Promise.withResolvers<Leased>();
  const end = Promise.withResolvers<string>();
  const run = withLease(name, { db, ...options }, (leased) => {
    began.resolve(leased);
    return end.promise;
  });
  // Whoever does not wait for its end is not to be ended by it.
  run.catch(() => {});
  return { run, began: began.promise, end };
}

async function heldUntil(name: string): Promise<number> {
  const held = 'select locked_until from pgfresh.refresh_schedule where function_name = $1::text';
  const [row] = await db.query<{ locked_until: Date }>(held, [name]);
  return row!.locked_until.getTime();
}

/** Work that stops when it is told to. */
const obedient = async ({ signal }: Leased): Promise<never> => {
  await wait(2 ** 30, undefined, { signal }).catch(() => {});
  throw signal.reason as Error;
};

describe('work that is due', () => {
  it('runs, is recorded as a success, and is due again when it says', async () => {
    const result = await withLease('due', { db, every: ['2m', '3m'] }, async ({ token, signal }) => {
      expect(await scene.row('due')).toMatchObject({ locked: true });
      expect(signal.aborted).toBe(false);
      return token;
    });
    expect(result).toEqual({ ran: true, result: expect.any(Number) as number, nextRunAt: expect.any(Date) as Date });
    const row = await scene.row('due');
    expect(row).toMatchObject({ last_status: 'success', failures: 0, locked: false });
    expect(row!['due_in']).toBeGreaterThan(1.9);
    expect(row!['due_in']).toBeLessThanOrEqual(3);
    expect(await withLease('due', { db }, async () => 'again')).toEqual({
      skipped: true,
      reason: 'not_due',
      nextRunAt: (result as { nextRunAt: Date }).nextRunAt,
    });
    expect(await withLease('due', { db, manual: true }, async () => 'again')).toMatchObject({ result: 'again' });
  });

  it('and fails is recorded as a failure, and throws what it threw', async () => {
    const oops = new Error('oops');
    await expect(withLease('bad', { db }, () => Promise.reject(oops))).rejects.toBe(oops);
    const thrower = (): Promise<never> => {
      throw oops;
    };
    await expect(withLease('bad', { db, manual: true, afterFailure: '1h' }, thrower)).rejects.toBe(oops);
    const row = await scene.row('bad');
    expect(row).toMatchObject({ last_status: 'failed', failures: 2, locked: false });
    expect(row!['due_in']).toBeGreaterThan(19.9);
    expect(row!['due_in']).toBeLessThanOrEqual(40);
  });

  it('runs once of two that come at the same time; by hand is no exception', async () => {
    const first = startWork('twice');
    await first.began;
    for (const manual of [false, true]) {
      expect(await withLease('twice', { db, manual }, async () => 'too')).toMatchObject({
        skipped: true,
        reason: 'locked',
      });
    }
    first.end.resolve('worked');
    expect(await first.run).toMatchObject({ ran: true, result: 'worked' });
  });

  it('by hand ahead of its time leaves the next run where it was planned, also if it says how often it runs', async () => {
    const options = { db, every: '2m', afterFailure: '3m' };
    const { nextRunAt } = await withLease('ahead', options, async () => {});
    const ahead = await withLease('ahead', { ...options, manual: true }, async () => {});
    expect(ahead).toEqual({ ran: true, result: undefined, nextRunAt });
    const failing = withLease('ahead', { ...options, manual: true }, () => Promise.reject(new Error('no')));
    await expect(failing).rejects.toThrow('no');
    const row = 'select next_run_at from pgfresh.refresh_schedule where function_name = $1::text';
    expect(await db.query(row, ['ahead'])).toEqual([{ next_run_at: nextRunAt }]);
  });

  it('does not run when it is disabled, or when the schedule cannot be read', async () => {
    await withLease('off', { db }, async () => {});
    await db.query(`update pgfresh.refresh_schedule set enabled = false where function_name = 'off'`);
    const work = vi.fn<() => Promise<void>>();
    expect(await withLease('off', { db, manual: true }, work)).toMatchObject({ skipped: true, reason: 'disabled' });
    await db.query('alter table pgfresh.refresh_schedule rename to away');
    expect(await withLease('off', { db }, work)).toMatchObject({
      skipped: true,
      reason: 'schedule_read_error',
      problem: expect.stringContaining('refresh_schedule') as string,
    });
    await db.query('alter table pgfresh.away rename to refresh_schedule');
    const gone = openDatabase(scene.url);
    await gone.close();
    expect(await withLease('off', { db: gone }, work)).toMatchObject({ skipped: true, reason: 'schedule_read_error' });
    expect(work).not.toHaveBeenCalled();
  });
});

describe('the lease', () => {
  it('is renewed while the work runs', async () => {
    const { began, run, end } = startWork('renewed', { lease: '3s' });
    await began;
    const first = await heldUntil('renewed');
    // Past the end that it had at first, so it was renewed more than once.
    await until(async () => (await scene.clock.now()) > first);
    expect((await scene.acquire('renewed')).reason).toBe('locked');
    end.resolve('worked');
    expect(await run).toMatchObject({ ran: true });
  });

  it('that is lost aborts the work, and nothing is recorded', async () => {
    const { began, run } = startWork('lost', { lease: '1s' });
    const { signal } = await began;
    await scene.clock.advance('2 seconds');
    await expect(run).rejects.toMatchObject({ code: 'PGF_LOCK_LOST' });
    expect(signal.reason).toMatchObject({ code: 'PGF_LOCK_LOST' });
    expect(await scene.row('lost')).toMatchObject({ last_status: null, ended: false });
  });

  it('ends by the clock of this process too, if the database does not answer; work that does not stop is not waited for', async () => {
    const session = await openSession(scene.url);
    const { began, run } = startWork('silent', { lease: '3s' });
    const { signal } = await began;
    await session.query('begin');
    await session.query(`select from pgfresh.refresh_schedule where function_name = 'silent' for update`);
    const since = performance.now();
    const ended = run.catch((error: unknown) => error);
    await blocked(db);
    await until(() => signal.aborted);
    expect(performance.now() - since).toBeLessThan(6_000);
    await session.query('commit');
    expect(await ended).toMatchObject({ code: 'PGF_LOCK_LOST', message: expect.stringContaining('in time') as string });
  });

  it('outlives a renewal that fails', async () => {
    const { began, run, end } = startWork('outlives', { lease: '4s' });
    await began;
    // A sequence counts also what is rolled back.
    await db.query(`
      create sequence tries;
      alter function pgfresh.renew_refresh_lock rename to away;
      create function pgfresh.renew_refresh_lock(text, bigint, interval, out reason text) language plpgsql
      as $$ begin perform nextval('public.tries'); raise 'not now'; end $$`);
    const tried = async () => (await db.query<{ is_called: boolean }>('select is_called from tries'))[0]!.is_called;
    await until(tried);
    const first = await heldUntil('outlives');
    await db.query(`
      drop function pgfresh.renew_refresh_lock;
      alter function pgfresh.away rename to renew_refresh_lock`);
    await until(async () => (await heldUntil('outlives')) !== first || (await scene.clock.now()) > first);
    end.resolve('worked');
    expect(await run).toMatchObject({ ran: true });
  });

  it('is for a run of limited time, however well it is renewed', async () => {
    const options = { db, maxRun: '20ms', afterFailure: '1h' };
    const tooLong = { code: 'PGF_RUN_TOO_LONG', message: 'The run of "long" was stopped after 20ms.' };
    await expect(withLease('long', options, obedient)).rejects.toMatchObject(tooLong);
    const row = await scene.row('long');
    expect(row).toMatchObject({ last_status: 'failed', locked: false });
    expect(row!['due_in']).toBeCloseTo(60, 0);
    // One that ends well after it was cut has not ended well.
    const late = withLease('long', { ...options, manual: true }, async ({ signal }) => {
      await obedient({ signal } as Leased).catch(() => {});
      return 'late';
    });
    await expect(late).rejects.toMatchObject(tooLong);
  });

  it('of a run that was cut and does not stop ends by itself', async () => {
    const { run } = startWork('deaf', { lease: '1s', maxRun: '1ms' });
    await expect(run).rejects.toMatchObject({ code: 'PGF_RUN_TOO_LONG' });
    // The database has begun to count a moment later.
    let reason = '';
    await until(async () => (reason = (await scene.acquire('deaf')).reason) !== 'locked');
    // In that moment the failure may have been recorded. Later it cannot be, and whoever asks has the lease.
    expect(await scene.row('deaf')).toMatchObject(
      reason === 'acquired' ? { last_status: null, locked: true } : { last_status: 'failed', locked: false },
    );
  });
});

describe('a process that ends', () => {
  it('gives the lease back: work that stops is due as before', async () => {
    const stop = new AbortController();
    const run = withLease('stopping', { db, signal: stop.signal }, obedient);
    stop.abort(new Error('the process ends'));
    await expect(run).rejects.toThrow('the process ends');
    expect(await scene.row('stopping')).toEqual({
      enabled: true,
      last_status: null,
      failures: 0,
      ended: false,
      locked: false,
      due_in: null,
    });
  });

  it('records work that ends well all the same', async () => {
    const stop = new AbortController();
    const run = withLease('finishing', { db, signal: stop.signal }, async ({ signal }) => {
      stop.abort();
      return signal.aborted;
    });
    expect(await run).toMatchObject({ ran: true, result: true });
    expect(await scene.row('finishing')).toMatchObject({ last_status: 'success' });
  });
});

describe('an end that cannot be recorded', () => {
  it('gives the lease back alone, and says why', async () => {
    await db.query(`
      create function public.refuse_status() returns trigger language plpgsql as $$ begin raise 'no status today'; end $$;
      create trigger refuse before update on pgfresh.refresh_schedule for each row
        when (new.function_name = 'unrecorded' and new.last_status is not null) execute function public.refuse_status()`);
    onTestFinished(async () => {
      await db.query('drop trigger refuse on pgfresh.refresh_schedule');
    });
    expect(await withLease('unrecorded', { db }, async () => 'worked')).toEqual({
      ran: true,
      result: 'worked',
      nextRunAt: null,
      problem: 'no status today',
    });
    expect(await scene.row('unrecorded')).toMatchObject({ last_status: null, locked: false });
    await expect(withLease('unrecorded', { db }, () => Promise.reject(new Error('oops')))).rejects.toThrow('oops');
    expect(await scene.row('unrecorded')).toMatchObject({ last_status: null, locked: false });
  });
});

describe('the fence', () => {
  it('is for the connection of the transaction, ours or one of pg', async () => {
    await db.query('create table written (what text)');
    const client = new pg.Client(scene.url);
    await client.connect();
    onTestFinished(() => client.end());
    await withLease('fenced', { db }, async ({ fence, token }) => {
      await db.transact('ours', async (tx) => {
        await tx.query(`insert into written values ('ours')`);
        await fence(tx);
      });
      await client.query(`begin; insert into written values ('of pg')`);
      await fence(client);
      await client.query('commit');
      await scene.release('fenced', token, null);
      await client.query(`begin; insert into written values ('late')`);
      await expect(fence(client)).rejects.toMatchObject({ code: 'PGF_LOCK_LOST' });
      await client.query('rollback');
    }).catch(() => {});
    expect(await db.query('select what from written order by what')).toEqual([{ what: 'of pg' }, { what: 'ours' }]);
  });
});

it('takes a pool of pg as it is', async () => {
  const pool = new pg.Pool({ connectionString: scene.url });
  onTestFinished(() => pool.end());
  expect(await withLease('pool', { db: pool }, async ({ token }) => typeof token)).toMatchObject({ result: 'number' });
  expect(await withLease('pool', { db: pool }, async () => {})).toMatchObject({ reason: 'not_due' });
  await expect(withLease('', { db: pool }, async () => {})).rejects.toMatchObject({ code: 'PGF_ARGUMENT_INVALID' });
});

describe('options that make no sense', () => {
  it.each<[string, Partial<LeaseOptions>]>([
    ['lease: expected a time from 1s to 1d, got "1ms"', { lease: '1ms' }],
    ['lease: expected a time from 1s to 1d, got "2d"', { lease: '2d' }],
    [
      'lease: expected a positive time such as "30s", "15m", "6h" or a number of milliseconds, got "soon"',
      { lease: 'soon' },
    ],
    [
      'lease: expected a positive time such as "30s", "15m", "6h" or a number of milliseconds, got null',
      { lease: null as never },
    ],
    ['maxRun: expected a time from 1ms to 7d, got "8d"', { maxRun: '8d' }],
    ['maxRun: expected a positive time such as "30s", "15m", "6h" or a number of milliseconds, got 0', { maxRun: 0 }],
    ['every: expected the least before the most, got ["15m","10m"]', { every: ['15m', '10m'] }],
    [
      'every: expected a positive time such as "30s", "15m", "6h" or a number of milliseconds, got -1',
      { every: [-1, 5] },
    ],
    ['afterFailure: expected a time from 1ms to 366d, got "1000d"', { afterFailure: '1000d' }],
    ['leese: there is no such option; did you mean "lease"?', { leese: '1m' } as never],
    ['retries: there is no such option', { retries: 3 } as never],
  ])('%s', async (problem, options) => {
    const work = vi.fn<() => Promise<void>>();
    const run = withLease('options', { db, ...options }, work);
    await expect(run).rejects.toMatchObject({ code: 'PGF_ARGUMENT_INVALID', message: problem });
    expect(work).not.toHaveBeenCalled();
    expect(await scene.row('options')).toBeUndefined();
  });

  it('and names', async () => {
    for (const name of ['', 'x'.repeat(201), 'a\nb']) {
      await expect(withLease(name, { db }, async () => {})).rejects.toMatchObject({ code: 'PGF_ARGUMENT_INVALID' });
    }
  });
});
