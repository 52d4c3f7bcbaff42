import { describe, expect, it } from 'vitest';
import { PgfreshError } from '../../src/errors/index.ts';
import { afterFailure } from '../../src/refresh/commit-failure.ts';
import { Commits, lockPatienceMs } from '../../src/refresh/index.ts';
import { blocked } from '../harness/blocked.ts';
import { openDatabase } from '../harness/database.ts';
import { Proxy } from '../harness/proxy.ts';
import { openSession } from '../harness/session.ts';
import { quoteType, RefreshScene } from './scene.ts';

const signal = new AbortController().signal;
const sqlState = (code: string) => Object.assign(new Error('no'), { code });
const unknown = new PgfreshError('PGF_COMMIT_UNKNOWN', { problem: 'cut' });
const lost = new PgfreshError('PGF_DATABASE_LOST', { problem: 'cut' });

describe('after a failed commit', () => {
  it.each([
    ['23514', 5, 0, { step: 'halves' }],
    ['23514', 1, 0, { step: 'refuse', outcome: 'write_conflict' }],
    ['22P02', 1, 0, { step: 'refuse', outcome: 'write_conflict' }],
    ['21000', 1, 0, { step: 'refuse', outcome: 'write_conflict' }],
    ['P0001', 2, 0, { step: 'halves' }],
    ['23503', 1, 0, { step: 'refuse', outcome: 'dependency' }],
    ['40P01', 5, 0, { step: 'again', counted: true }],
    ['40001', 5, 2, { step: 'again', counted: true }],
    ['55P03', 5, 0, { step: 'later', shared: true }],
    ['55P03', 1, 0, { step: 'later', shared: false }],
    ['57014', 5, 0, { step: 'later', shared: true }],
    ['57014', 1, 0, { step: 'later', shared: false }],
    ['40P01', 5, 3, { step: 'refuse', outcome: 'interrupted' }],
    ['42P01', 5, 0, { step: 'refuse', outcome: 'config' }],
    ['42501', 5, 0, { step: 'refuse', outcome: 'config' }],
    ['25006', 5, 9, { step: 'wait', shared: true }],
    ['53100', 1, 9, { step: 'wait', shared: false }],
    ['28P01', 1, 0, { step: 'wait', shared: false }],
    ['57P01', 5, 9, { step: 'again', counted: false }],
  ])('%s of %i jobs, repeated %i times', (code, jobs, repeated, next) => {
    expect(afterFailure(sqlState(code), jobs, repeated)).toEqual(next);
  });

  it.each([unknown, lost])('a line that broke is tried again without an end', (error) => {
    expect(afterFailure(error, 5, 99)).toEqual({ step: 'again', counted: false });
  });
});

/** The jobs of keys, claimed and fetched, ready to be ended. */
async function ready(scene: RefreshScene, keys: readonly string[]) {
  const type = await scene.type();
  await scene.enqueue('quote', keys);
  const refresher = scene.refresher();
  const jobs = await scene.claim(type.id);
  return {
    type,
    jobs: await Promise.all(jobs.map(async (job) => ({ job, fetched: await refresher.fetch(type, job, signal) }))),
  };
}

/** Counts what is written, row by row. */
async function audit(scene: RefreshScene) {
  await scene.db.query(`
    create table public.audit (symbol text);
    create function public.note() returns trigger language plpgsql as 'begin insert into public.audit values (new.symbol); return new; end';
    create trigger note after insert or update on public.quote for each row execute function public.note();`);
  return () =>
    scene.db.query<{ symbol: string; times: number }>(
      `select symbol, count(*)::int as times from audit group by 1 order by 1`,
    );
}

describe('a commit', () => {
  it('whose fence is gone writes nothing', async () => {
    const scene = await RefreshScene.open();
    scene.quote('A', 1);
    scene.quote('B', 1);
    const { type, jobs } = await ready(scene, ['A', 'B']);
    // A was taken back and claimed again meanwhile.
    await scene.db.query(`update pgfresh_engine.job set attempt = attempt + 1 where key = 'A'`);
    const { ended } = await new Commits(scene.db, scene.queue).end(type, jobs, signal);
    expect(ended.map(({ job }) => job.key)).toEqual(['B']);
    expect(await scene.rows()).toEqual([{ symbol: 'B', price: 1 }]);
    expect(await scene.value(`select state from pgfresh_engine.job where key = 'A'`)).toBe('x');
  });

  it('that deadlocks is repeated with the answer that is here, and no retry is counted', async () => {
    const scene = await RefreshScene.open();
    await scene.db.query(`insert into quote values ('A', 0), ('B', 0)`);
    scene.quote('A', 1);
    scene.quote('B', 1);
    const { type, jobs } = await ready(scene, ['A', 'B']);
    const other = await openSession(scene.url);
    await other.query('begin');
    await other.query(`update quote set name = 'held' where symbol = 'B'`);
    // Whoever looks for a deadlock is its victim, so this one does not look.
    await other.query(`set deadlock_timeout = '1min'`);
    const ending = new Commits(scene.db, scene.queue).end(type, jobs, signal);
    await blocked(scene.db);
    await other.query(`update quote set name = 'held' where symbol = 'A'`);
    await other.query('commit');
    expect((await ending).ended.map(({ outcome }) => outcome)).toEqual(['fresh', 'fresh']);
    expect(scene.provider.asked).toHaveLength(2);
    expect(await scene.value(`select sum(retries)::int from pgfresh_engine.history_succeeded`)).toBe(0);
  });

  it.each(['53100', '28P01', '25006'])(
    'sound 2: refused with %s by what one row depends on keeps its answer, and fails as busy when that lasts',
    async (code) => {
      const scene = await RefreshScene.open();
      await scene.db.query(`
        create function public.full() returns trigger language plpgsql as $$
          begin if new.symbol = 'B' then raise 'no' using errcode = '${code}'; end if; return new; end $$;
        create trigger full_disk before insert on public.quote for each row execute function public.full();`);
      for (const key of ['A', 'B', 'C']) scene.quote(key, 1);
      const { type, jobs } = await ready(scene, ['A', 'B', 'C']);
      const commits = new Commits(scene.db, scene.queue);
      const { ended, stuck } = await commits.end(type, jobs, signal);
      expect(ended.map(({ job, outcome }) => `${job.key} ${outcome}`).toSorted()).toEqual(['A fresh', 'C fresh']);
      const late = stuck.map((one) => ({ ...one, stuckSince: one.stuckSince! - lockPatienceMs - 1 }));
      const last = await commits.end(type, late, signal);
      expect(last.ended.map(({ job, outcome }) => `${job.key} ${outcome}`)).toEqual(['B busy']);
      expect(await scene.value(`select sum(calls)::int from pgfresh_engine.usage`)).toBe(3);
      expect(await scene.value(`select state = 'w' and retries = 1 from pgfresh_engine.job`)).toBe(true);
      expect(scene.provider.asked).toHaveLength(3);
    },
  );

  it('sound 2: of a server that is read-only keeps the answers until it is not, however long that lasts', async () => {
    const scene = await RefreshScene.open();
    scene.quote('A', 1);
    scene.provider.json('/quote/B', {}, 500);
    const { type, jobs } = await ready(scene, ['A', 'B']);
    const standby = openDatabase(`${scene.url}?options=${encodeURIComponent('-c default_transaction_read_only=on')}`);
    const { stuck } = await new Commits(standby, scene.queue).end(type, jobs, signal);
    const late = stuck.map((one) => ({ ...one, stuckSince: one.stuckSince! - lockPatienceMs - 1 }));
    const still = await new Commits(standby, scene.queue).end(type, late, signal);
    expect([still.ended, still.stuck.length]).toEqual([[], 2]);
    const { ended } = await new Commits(scene.db, scene.queue).end(type, still.stuck, signal);
    expect(ended.map(({ job, outcome }) => `${job.key} ${outcome}`)).toEqual(['A fresh', 'B http_5xx']);
    expect(await scene.value(`select sum(calls)::int from pgfresh_engine.usage`)).toBe(2);
  });

  it('sound 2: that finds its table locked keeps the answers, and fails as busy when that lasts', async () => {
    const scene = await RefreshScene.open();
    scene.quote('A', 1);
    scene.quote('B', 1);
    const { type, jobs } = await ready(scene, ['A', 'B']);
    const commits = new Commits(scene.db, scene.queue);
    const other = await openSession(scene.url);
    await other.query('begin');
    await other.query('lock table quote in share mode');
    const { ended, stuck, isTableLocked } = await commits.end(type, jobs, signal);
    expect({ ended, stuck: stuck.map(({ job }) => job.key), isTableLocked }).toEqual({
      ended: [],
      stuck: ['A', 'B'],
      isTableLocked: true,
    });
    const [first, late] = stuck.map((one, n) => ({ ...one, stuckSince: one.stuckSince! - n * (lockPatienceMs + 1) }));
    expect(await commits.end(type, [first!, late!], signal)).toMatchObject({
      ended: [{ job: { key: 'B' }, outcome: 'busy' }],
      stuck: [{ job: { key: 'A' }, stuckSince: first!.stuckSince }],
    });
    await other.query('rollback');
    expect(await commits.end(type, [first!], signal)).toMatchObject({ ended: [{ outcome: 'fresh' }], stuck: [] });
    expect(await scene.db.query(`select key, state, retries, error from pgfresh_engine.job`)).toEqual([
      { key: 'B', state: 'w', retries: 1, error: 'canceling statement due to lock timeout' },
    ]);
    expect(await scene.value(`select sum(calls)::int from pgfresh_engine.usage`)).toBe(2);
  });

  it('sound 2: that meets one locked row writes all others, and only that one waits', async () => {
    const scene = await RefreshScene.open();
    const keys = Array.from({ length: 51 }, (_, n) => `K${n}`);
    for (const key of keys) scene.quote(key, 1);
    await scene.db.query(`insert into quote values ('K30', 0)`);
    const { type, jobs } = await ready(scene, keys);
    const other = await openSession(scene.url);
    await other.query('begin');
    await other.query(`select from quote where symbol = 'K30' for update`);
    const commits = new Commits(scene.db, scene.queue);
    const { ended, stuck, isTableLocked } = await commits.end(type, jobs, signal);
    expect(ended.filter(({ outcome }) => outcome === 'fresh')).toHaveLength(50);
    expect([stuck.map(({ job }) => job.key), isTableLocked]).toEqual([['K30'], false]);
    await other.query('rollback');
    expect(await commits.end(type, stuck, signal)).toMatchObject({ ended: [{ outcome: 'fresh' }], stuck: [] });
    expect(scene.provider.asked).toHaveLength(51);
    expect(await scene.value(`select sum(calls)::int from pgfresh_engine.usage`)).toBe(51);
    expect(await scene.value(`select sum(retries)::int from pgfresh_engine.history_succeeded`)).toBe(0);
  });

  it('sound 2: that hangs by one row writes all others, and only that one waits', async () => {
    const scene = await RefreshScene.open();
    const keys = ['A', 'B', 'HANGS', 'Y', 'Z'];
    for (const key of keys) scene.quote(key, 1);
    const { type, jobs } = await ready(scene, keys);
    await scene.db.query(`
      create function public.hang() returns trigger language plpgsql as $$
        begin if new.symbol = 'HANGS' then perform pg_sleep(60); end if; return new; end $$;
      create trigger hang before insert or update on quote for each row execute function public.hang()`);
    const db = openDatabase(scene.url, { statementTimeoutMs: 1_000 });
    const { ended, stuck, isTableLocked } = await new Commits(db, scene.queue).end(type, jobs, signal);
    expect(ended.map(({ job, outcome }) => `${job.key} ${outcome}`)).toEqual([
      'A fresh',
      'B fresh',
      'Y fresh',
      'Z fresh',
    ]);
    expect([stuck.map(({ job }) => job.key), isTableLocked]).toEqual([['HANGS'], false]);
    await db.close();
  });

  it('that was cut at COMMIT is neither lost nor done twice, whether it arrived or not', async () => {
    const scene = await RefreshScene.open([quoteType({ sourceTimestamp: undefined })]);
    const written = await audit(scene);
    const { proxy, url } = await Proxy.before(scene.url);
    const db = openDatabase(url);
    let cuts = 0;
    for (let round = 0; round < 20; round++) {
      const arrives = round % 2 === 0;
      const key = `K${String(round).padStart(2, '0')}`;
      scene.quote(key, 1);
      const { type, jobs } = await ready(scene, [key]);
      let sent = false;
      proxy.judge = (chunk, direction) => {
        const isCommit = direction === 'to server' && chunk.includes('commit\0');
        if (isCommit && !arrives) proxy.judge = () => 'pass';
        if (isCommit && !arrives) return (cuts++, 'cut');
        if (isCommit) sent = true;
        if (!sent || direction === 'to server') return 'pass';
        proxy.judge = () => 'pass';
        return (cuts++, 'cut');
      };
      const { ended } = await new Commits(db, scene.queue).end(type, jobs, signal);
      expect(ended).toMatchObject([{ job: { key }, outcome: 'fresh' }]);
    }
    expect(cuts).toBe(20);
    const all = await written();
    expect(all).toHaveLength(20);
    expect(all.filter(({ times }) => times !== 1)).toEqual([]);
    expect(await scene.value('select count(*)::int from pgfresh_engine.history_succeeded')).toBe(20);
    expect(await scene.value('select count(*)::int from pgfresh_engine.job')).toBe(0);
    await db.close();
    await proxy.close();
  });
});

/** Twenty jobs whose calls have failed. */
async function failed(scene: RefreshScene) {
  const keys = Array.from({ length: 20 }, (_, n) => `K${n}`);
  for (const key of keys) scene.provider.json(`/quote/${key}`, {}, 500);
  return ready(scene, keys);
}

describe('sound 1: an end that cannot be recorded', () => {
  it('is bisected, so that the others are recorded, and its call is booked all the same', async () => {
    const scene = await RefreshScene.open();
    const { type, jobs } = await failed(scene);
    await scene.db.query(`
      create function public.no() returns trigger language plpgsql as 'begin raise exception ''no room for %'', new.key; end';
      create trigger no before insert on pgfresh_engine.history_attempt for each row when (new.key = 'K7') execute function public.no();`);
    const { ended, stuck, problems } = await new Commits(scene.db, scene.queue).end(type, jobs, signal);
    expect([ended.length, stuck]).toEqual([19, []]);
    expect(problems).toEqual([expect.stringContaining('the end of quote/K7 could not be recorded: no room for K7')]);
    expect(
      await scene.db.query(
        `select state, count(*)::int, sum(retries)::int as retries from pgfresh_engine.job group by 1`,
      ),
    ).toEqual(
      expect.arrayContaining([
        { state: 'w', count: 19, retries: 19 },
        { state: 'x', count: 1, retries: 0 },
      ]),
    );
    expect(await scene.value(`select sum(calls)::int from pgfresh_engine.usage`)).toBe(20);
  });

  it('with its answer is recorded without it', async () => {
    const scene = await RefreshScene.open();
    const { type, jobs } = await failed(scene);
    await scene.db.query(`
      create function public.no() returns trigger language plpgsql as 'begin raise exception ''no room''; end';
      create trigger no before insert on pgfresh_engine.refused_answer for each row when (new.key = 'K9') execute function public.no();`);
    const { ended, stuck, problems } = await new Commits(scene.db, scene.queue).end(type, jobs, signal);
    expect([ended.length, stuck, problems]).toEqual([20, [], []]);
    expect(await scene.value(`select retries::int from pgfresh_engine.job where key = 'K9'`)).toBe(1);
    expect(await scene.value(`select sum(calls)::int from pgfresh_engine.usage`)).toBe(20);
  });

  it('because a stranger holds its job waits for it, and is booked when that lasts', async () => {
    const scene = await RefreshScene.open();
    const { type, jobs } = await failed(scene);
    const other = await openSession(scene.url);
    await other.query('begin');
    await other.query(`select pgfresh.queue_refresh_if_not_exists('K7', 'quote', p_force => true)`);
    const commits = new Commits(scene.db, scene.queue);
    const { ended, stuck, problems } = await commits.end(type, jobs, signal);
    expect([ended.length, stuck.map(({ job }) => job.key), problems]).toEqual([19, ['K7'], []]);
    const late = stuck.map((one) => ({ ...one, stuckSince: one.stuckSince! - lockPatienceMs - 1 }));
    expect(await commits.end(type, late, signal)).toMatchObject({
      ended: [],
      stuck: [],
      problems: [expect.stringContaining('the end of quote/K7 could not be recorded')],
    });
    await other.query('rollback');
    expect(await scene.value(`select sum(calls)::int from pgfresh_engine.usage`)).toBe(20);
  });

  it('is put back with its cost when the worker has to stop', async () => {
    const scene = await RefreshScene.open();
    scene.quote('A', 1);
    const { type, jobs } = await ready(scene, ['A']);
    const other = await openSession(scene.url);
    await other.query('begin');
    await other.query('lock table quote in share mode');
    const stopping = AbortSignal.abort();
    expect(await new Commits(scene.db, scene.queue).end(type, jobs, stopping)).toMatchObject({
      ended: [{ outcome: 'interrupted' }],
      stuck: [],
    });
    await other.query('rollback');
    expect(await scene.value(`select sum(calls)::int from pgfresh_engine.usage`)).toBe(1);
    expect(await scene.value(`select status from pgfresh_engine.open_jobs`)).toBe('pending');
  });
});
