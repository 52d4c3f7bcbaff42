import { once } from 'node:events';
import pg from 'pg';
import { beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { blocked } from '../harness/blocked.ts';
import { openDatabase } from '../harness/database.ts';
import { Proxy } from '../harness/proxy.ts';
import { openSession } from '../harness/session.ts';
import { readJobResult } from '../../src/schedule/job-result.ts';
import { done, JobScene, plpgsql } from './job-scene.ts';

let scene: JobScene;
beforeAll(async () => {
  scene = await JobScene.open();
  await scene.db.query('create table public.not_hers (at int)');
  await scene.ann.session.query(`
    create table ann.work (at int);
    create table ann.parents (at int primary key);
    create table ann.later (at int references ann.parents deferrable initially deferred)`);
});

const failed = (sqlstate: string, message: unknown = expect.any(String)) => ({
  kind: 'failed',
  result: { success: false, message, details: { sqlstate } },
});
const wordOf = (verb: string, what: string) => `${verb}_${what.toLowerCase().replaceAll(/\W/g, '_')}`;
const stateOf = (id: number) =>
  scene.value<string[]>(`array(select state from pgfresh.scheduled_job_runs where job_id = $1::int)`, [id]);
const rowsOf = (table: string) => scene.value<number>(`(select count(*)::int from ${table})`);

describe('a function that', () => {
  it("does its work: the work and its success are there together, and it ran as the job's owner and no more", async () => {
    const id = await scene.add(
      'good',
      `insert into ann.work values (1); ${done(`jsonb_build_object('user', current_user, 'path', current_setting('search_path'))`)}`,
    );
    const end = await scene.run(id);
    const result = { success: true, message: 'done', details: { user: scene.ann.name, path: 'ann, public, pg_temp' } };
    expect(end).toEqual({ kind: 'succeeded', result });
    expect([await rowsOf('ann.work'), await scene.recorded(id)]).toEqual([1, 1]);
  });

  it('takes params gets them', async () => {
    await scene.ann.session.query(plpgsql('ann.greet(p jsonb)', done('p')));
    const id = await scene.register({
      name: 'greet',
      function_name: 'ann.greet',
      schedule: '@daily',
      params: '{"a": 1}',
    });
    expect(await scene.run(id, { params: { b: [2] } })).toMatchObject({ result: { details: { b: [2] } } });
  });

  it('takes none refuses those that somebody passes', async () => {
    const id = await scene.add('no_params', done());
    expect(await scene.run(id, { params: { b: 2 } })).toMatchObject({
      kind: 'failed',
      result: {
        message: expect.stringContaining('params: ann.no_params() takes none'),
        details: { code: 'PGF_JOB_INVALID' },
      },
    });
  });

  it.each([
    ['raises', `raise 'no %', 'way';`, failed('P0001', 'no way')],
    ['raises an SQLSTATE of its own', `raise using errcode = 'ZZ123', message = 'mine';`, failed('ZZ123', 'mine')],
    ['divides by zero', `perform 1 / 0; ${done()}`, failed('22012')],
    ['commits', `commit; ${done()}`, failed('2D000')],
    ['rolls back', `rollback; ${done()}`, failed('2D000')],
    [
      'sleeps',
      `perform pg_sleep(60); ${done()}`,
      failed('57014', 'The function took longer than its time limit of 200 ms.'),
    ],
    ['loops forever', `loop null; end loop;`, failed('57014')],
    [
      'lifts its time limit',
      `set statement_timeout = 0; set local statement_timeout = 0; perform pg_sleep(60); ${done()}`,
      failed('57014'),
    ],
    [
      'catches whatever is raised while it sleeps',
      `begin perform pg_sleep(60); exception when others then null; end; ${done()}`,
      failed('57014'),
    ],
    ['resets its role', `reset role; ${done()}`, failed('42501')],
    ['sets its role', `set role pgfresh_worker; ${done()}`, failed('42501')],
    ['sets its role by a function', `perform set_config('role', 'none', false); ${done()}`, failed('42501')],
    ['sets the session authorization', `set session authorization default; ${done()}`, failed('42501')],
    [
      'sets the session authorization by a function',
      `perform set_config('session_authorization', session_user, false); ${done()}`,
      failed('42501'),
    ],
    ['drops scheduled_jobs', `drop table pgfresh.scheduled_jobs cascade; ${done()}`, failed('42501')],
    ['empties scheduled_jobs', `truncate pgfresh.scheduled_jobs; ${done()}`, failed('42501')],
    ['reads what is not its own', `perform * from public.not_hers; ${done()}`, failed('42501')],
    [
      'makes something in the schema pgfresh',
      `create function pgfresh.mine() returns int language sql as 'select 1'; ${done()}`,
      failed('42501'),
    ],
    ['runs another job by itself', `perform pgfresh_engine.call_job_function(1, '{}'); ${done()}`, failed('42501')],
    ['breaks a constraint that waits for the commit', `insert into ann.later values (1); ${done()}`, failed('23503')],
  ])('%s has failed, and has done nothing', async (what, body, end) => {
    const before = await rowsOf('ann.work');
    const id = await scene.add(wordOf('bad', what), `insert into ann.work values (7); ${body}`);
    expect(await scene.run(id, { timeoutMs: 200 })).toMatchObject(end);
    expect([await rowsOf('ann.work'), await scene.recorded(id)]).toEqual([before, 0]);
    // The session that it had is as good as new.
    expect(await scene.run(await scene.add(wordOf('after', what), done()))).toMatchObject({ kind: 'succeeded' });
  });

  it.each([
    ['null', 'null', 'got null'],
    ['JSON null', `'null'::jsonb`, 'got null'],
    ['an array', `'[true, "done"]'::jsonb`, 'got an array'],
    ['a text', `'"done"'::jsonb`, 'got a string'],
    ['a number', `'1'::jsonb`, 'got a number'],
    ['no success', `'{"message": "done"}'::jsonb`, 'got no success'],
    ['a success that is a text', `'{"success": "true", "message": "done"}'::jsonb`, 'got a success that is true'],
    ['a success that is null', `'{"success": null, "message": "done"}'::jsonb`, 'got no success'],
    ['no message', `'{"success": true}'::jsonb`, 'got no message'],
    ['a message that is a number', `'{"success": true, "message": 1}'::jsonb`, 'got a message that is a number'],
    [
      'too much',
      `jsonb_build_object('success', true, 'message', 'm', 'details', repeat('x', 1048577))`,
      'got more than a megabyte',
    ],
  ])('returns %s has failed, is told what was expected, and keeps what it wrote', async (what, result, got) => {
    const before = await rowsOf('ann.work');
    const id = await scene.add(wordOf('returns', what), `insert into ann.work values (8); return ${result};`);
    expect(await scene.run(id)).toMatchObject({
      kind: 'unsuccessful',
      result: {
        success: false,
        message: expect.stringMatching(new RegExp(`^expected \\{"success": true or false, "message".*${got}`)),
        details: { code: 'PGF_JOB_RESULT' },
      },
    });
    expect(await rowsOf('ann.work')).toBe(before + 1);
    expect(await stateOf(id)).toEqual(['failed']);
  });

  it('truth 14: says that it has failed keeps what it wrote, and its failure is recorded with it', async () => {
    const before = await rowsOf('ann.work');
    const id = await scene.add(
      'says_no',
      `insert into ann.work values (9); return '{"success": false, "message": "not today", "details": {"why": 1}}'::jsonb;`,
    );
    const result = { success: false, message: 'not today', details: { why: 1 } };
    expect(await scene.run(id)).toEqual({ kind: 'unsuccessful', result });
    expect([await rowsOf('ann.work'), await stateOf(id)]).toEqual([before + 1, ['failed']]);
  });

  it.each([
    ['no details', `{"success": true, "message": "done"}`, undefined],
    ['details that are null', `{"success": true, "message": "done", "details": null}`, undefined],
    ['keys besides', `{"success": true, "message": "done", "rows": 5, "code": "40P01"}`, { rows: 5, code: '40P01' }],
    [
      'keys besides, and details of the same name',
      `{"success": true, "message": "done", "rows": 5, "details": {"rows": 6, "ms": 7}}`,
      { rows: 6, ms: 7 },
    ],
    [
      'keys besides, and details that are a list',
      `{"success": true, "message": "done", "rows": 5, "details": [1]}`,
      { rows: 5, details: [1] },
    ],
  ])('truth 14: returns success, message and %s has succeeded', async (what, result, details) => {
    const id = await scene.add(wordOf('at_least', what), `return '${result}'::jsonb;`);
    expect(await scene.run(id)).toEqual({
      kind: 'succeeded',
      result: { success: true, message: 'done', ...(details && { details }) },
    });
    expect(readJobResult(JSON.parse(result))).toMatchObject({
      success: true,
      message: 'done',
      ...(details && { details }),
    });
    const kept = '(select details from pgfresh.scheduled_job_runs where job_id = $1::int)';
    expect(await scene.value(kept, [id])).toEqual(details ?? null);
  });

  it('survives being cancelled loses its session, soon after its time', async () => {
    const id = await scene.add(
      'stubborn',
      `loop begin perform pg_sleep(60); exception when query_canceled then null; end; end loop;`,
    );
    expect(await scene.run(id, { timeoutMs: 100, graceMs: 100 })).toMatchObject(failed('57014'));
    expect(await scene.run(await scene.add('after_stubborn', done()))).toMatchObject({ kind: 'succeeded' });
    // It ends a moment after it was told to.
    await expect
      .poll(() =>
        scene.value(
          `(select count(*)::int from pg_stat_activity where query ~ 'do_run' and state = 'active' and pid <> pg_backend_pid() and datname = current_database())`,
        ),
      )
      .toBe(0);
  });

  it('runs 5: survives being cancelled ends soon after its process is gone', async () => {
    const { proxy, url } = await Proxy.before(scene.url);
    onTestFinished(() => proxy.close());
    const guests = openDatabase(url, { poolSize: 1, pipelined: true });
    const id = await scene.add(
      'orphan',
      `loop begin perform pg_sleep(0.05); exception when query_canceled then null; end; end loop;`,
    );
    const sessions = () =>
      scene.value(
        `(select count(*)::int from pg_stat_activity where query ~ 'do_run' and state = 'active' and pid <> pg_backend_pid() and datname = current_database())`,
      );
    const end = scene.run(id, { guests, timeoutMs: 500 });
    await expect.poll(sessions).toBe(1);
    proxy.cut();
    await end;
    await expect.poll(sessions).toBe(0);
  });

  it('is cancelled ends at once', async () => {
    const id = await scene.add('cancelled', `perform pg_sleep(60); ${done()}`);
    const stop = new AbortController();
    const end = scene.run(id, { signal: stop.signal, timeoutMs: 60_000 });
    await expect
      .poll(() =>
        scene.value(
          `exists (select from pg_stat_activity where wait_event = 'PgSleep' and datname = current_database())`,
        ),
      )
      .toBe(true);
    stop.abort();
    expect(await end).toMatchObject({
      kind: 'failed',
      result: { message: 'It was cancelled.', details: { reason: 'cancelled' } },
    });
    expect(await scene.run(id, { signal: stop.signal })).toMatchObject({
      result: { details: { reason: 'cancelled' } },
    });
  });

  it('drops its own table has done so, and fails the next time', async () => {
    await scene.ann.session.query('create table ann.once (at int)');
    const id = await scene.add('drops', `drop table ann.once; ${done()}`);
    expect(await scene.run(id)).toMatchObject({ kind: 'succeeded' });
    expect(await scene.run(id)).toMatchObject(failed('42P01'));
  });

  it('drops scheduled_jobs as somebody who may is undone, because its success has no place any more', async () => {
    const root = { name: 'postgres', url: scene.url, session: scene.db };
    const id = await scene.add('drops_all', `drop table pgfresh.scheduled_jobs cascade; ${done()}`, {}, root, 'public');
    expect(await scene.run(id)).toMatchObject(failed('42P01'));
    expect(await scene.value(`(select count(*)::int from pgfresh.scheduled_jobs where id = ${id})`)).toBe(1);
  });

  it('locks keeps nobody waiting after its end', async () => {
    const id = await scene.add(
      'locks',
      `perform pg_advisory_lock(4711); lock table ann.work in access exclusive mode; ${done()}`,
    );
    expect(await scene.run(id)).toMatchObject({ kind: 'succeeded' });
    expect(await scene.value('pg_try_advisory_xact_lock(4711)')).toBe(true);
    expect(await rowsOf('ann.work')).toBeGreaterThan(0);
  });

  it('waits for a lock that it never gets has failed when its time is over', async () => {
    const other = await openSession(scene.ann.url);
    await other.query('begin; lock table ann.work in access exclusive mode');
    const id = await scene.add('waits', `insert into ann.work values (1); ${done()}`);
    expect(await scene.run(id, { timeoutMs: 150 })).toMatchObject(failed('57014'));
    await other.query('rollback');
  });
});

describe('nothing stays in the session', () => {
  it('of what a function has set, made, prepared, declared, locked or listened to', async () => {
    const look = done(`jsonb_build_object(
      'path', current_setting('search_path'), 'zone', current_setting('timezone'), 'mine', nullif(current_setting('my.own', true), ''), 'limit', current_setting('statement_timeout'),
      'temp', to_regclass('pg_temp.left_behind'), 'statements', (select count(*) from pg_prepared_statements), 'cursors', (select count(*) from pg_cursors where is_holdable),
      'channels', (select count(*) from pg_listening_channels()), 'locks', (select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()), 'pid', pg_backend_pid())`);
    const leaves = await scene.add(
      'leaves',
      `
      set search_path = ann; set timezone = 'Asia/Tokyo'; set my.own = 'secret'; set default_transaction_read_only = on; set statement_timeout = '1h';
      create temp table left_behind (at int); execute 'prepare mine as select 1'; execute 'declare mine cursor with hold for select 1'; listen mine; perform pg_advisory_lock(1);
      notify mine, 'hello'; ${look}`,
    );
    const looks = await scene.add('looks', look);
    const details = async (id: number) =>
      ((await scene.run(id)) as { result: { details: Record<string, unknown> } }).result.details;
    const before = await details(looks);
    expect(await details(leaves)).toMatchObject({
      mine: 'secret',
      zone: 'Asia/Tokyo',
      temp: expect.any(String),
      statements: 1,
      locks: 1,
    });
    expect(await details(looks)).toEqual(before);
    expect(before).toMatchObject({ temp: null, statements: 0, cursors: 0, channels: 0, locks: 0, limit: '10s' });
  });

  it('and a notification of a function that succeeded arrives', async () => {
    const client = new pg.Client(scene.url);
    await client.connect();
    try {
      const heard = once(client, 'notification');
      await client.query('listen heard');
      expect(await scene.run(await scene.add('fails_to_tell', `notify heard, 'lost'; raise 'no';`))).toMatchObject({
        kind: 'failed',
      });
      await scene.run(await scene.add('tells', `notify heard, 'hello'; ${done()}`));
      expect(await heard).toMatchObject([{ payload: 'hello' }]);
    } finally {
      await client.end();
    }
  });
});

describe('the run', () => {
  it('does nothing if it is not ours at the beginning, and nothing stays if it is not at the end', async () => {
    const before = await rowsOf('ann.work');
    const id = await scene.add('fenced', `insert into ann.work values (1); ${done()}`);
    expect(await scene.run(id, { scheduler: 2 })).toEqual({ kind: 'lost' });
    const root = { name: 'postgres', url: scene.url, session: scene.db };
    const moves = `update pgfresh.scheduled_job_runs set scheduler = 2 where state = 'running'; insert into ann.work values (1); ${done()}`;
    expect(await scene.run(await scene.add('moves', moves, {}, root, 'public'))).toEqual({ kind: 'lost' });
    expect(await rowsOf('ann.work')).toBe(before);
  });

  it('keeps everybody from taking it over, and nobody from asking for its end', async () => {
    const id = await scene.add('held', `perform pg_advisory_xact_lock(815); ${done()}`);
    const other = await openSession(scene.url);
    await other.query('begin; select pg_advisory_xact_lock(815)');
    const end = scene.run(id);
    await blocked(scene.db);
    const running = `pgfresh.scheduled_job_runs where job_id = ${id} and state = 'running'`;
    expect(await scene.db.query(`select id from ${running} for update skip locked`)).toEqual([]);
    expect(await scene.db.query(`select id from ${running} for no key update skip locked`)).toHaveLength(1);
    await other.query('commit');
    expect(await end).toMatchObject({ kind: 'succeeded' });
  });

  it('fails if the server loses it, and is unknown if that happens to its commit', async () => {
    const id = await scene.add('lost', `perform pg_sleep(60); ${done()}`);
    const end = scene.run(id, { timeoutMs: 60_000 });
    await expect
      .poll(() =>
        scene.value(
          `(select count(pg_terminate_backend(pid))::int from pg_stat_activity where wait_event = 'PgSleep' and datname = current_database())`,
        ),
      )
      .toBe(1);
    expect(await end).toMatchObject({ kind: 'failed', result: { details: { code: 'PGF_DATABASE_LOST' } } });
    const ends = await scene.add('ends', done());
    const { proxy, url } = await Proxy.before(scene.url);
    onTestFinished(() => proxy.close());
    const guests = openDatabase(url, { pipelined: true });
    proxy.judge = (chunk, way) => (way === 'to server' && chunk.includes('commit') ? 'cut' : 'pass');
    expect(await scene.run(ends, { guests })).toMatchObject({ kind: 'unknown' });
    expect(await scene.run(ends)).toMatchObject({ kind: 'succeeded' });
  });

  it.for(['the first answer', 'the answer of the function'])(
    'runs 5: ends soon after its limit when its connection dies without a word before %s',
    async (when) => {
      const id = await scene.add(wordOf('dies', when), `perform pg_sleep(30); ${done()}`);
      const { proxy, url } = await Proxy.before(scene.url);
      onTestFinished(() => proxy.close());
      const guests = openDatabase(url, { pipelined: true });
      await guests.query('select 1');
      let isDead = false;
      proxy.judge = (chunk, way) => {
        if (way === 'to client') return isDead ? 'hold' : 'pass';
        isDead ||= when === 'the first answer' && chunk.includes('begin');
        return 'pass';
      };
      const since = performance.now();
      const running = scene.run(id, { guests, timeoutMs: 1_500 });
      const sleeping = `exists (select from pg_stat_activity where wait_event = 'PgSleep' and datname = current_database())`;
      await expect.poll(() => scene.value<boolean>(sleeping)).toBe(true);
      isDead = true;
      expect(await running).toMatchObject(failed('57014', 'The function took longer than its time limit of 1500 ms.'));
      // As long as its limit and what it is given to end, and not as long as statements of ours may take.
      expect(performance.now() - since).toBeLessThan(15_000);
    },
  );

  it.for([
    ['its commit', done(), 'unknown'],
    ['its rollback', `raise 'no';`, 'failed'],
  ] as const)(
    'runs 5: ends soon when its connection dies without a word before the answer to %s',
    async ([when, body, kind]) => {
      const id = await scene.add(wordOf('dies', when), body);
      const { proxy, url } = await Proxy.before(scene.url);
      onTestFinished(() => proxy.close());
      const guests = openDatabase(url, { pipelined: true, statementTimeoutMs: 60_000 });
      await guests.query('select 1');
      let isDead = false;
      proxy.judge = (chunk, way) => {
        isDead ||= way === 'to server' && /commit|rollback/.test(String(chunk));
        return isDead ? 'hold' : 'pass';
      };
      const since = performance.now();
      expect(await scene.run(id, { guests, timeoutMs: 1_500 })).toMatchObject({ kind });
      expect(performance.now() - since).toBeLessThan(15_000);
    },
  );

  it('runs 6: says that someone cancelled its statement, and not that its time was over', async () => {
    const id = await scene.add('interrupted', `perform pg_sleep(30); ${done()}`);
    const running = scene.run(id, { timeoutMs: 20_000 });
    await expect
      .poll(() =>
        scene.value(
          `(select count(pg_cancel_backend(pid))::int from pg_stat_activity where wait_event = 'PgSleep' and datname = current_database())`,
        ),
      )
      .toBe(1);
    expect(await running).toMatchObject(failed('57014', 'Someone cancelled its statement in the database.'));
  });

  it('fails with what to do if the function is gone, and works again when it is back', async () => {
    const id = await scene.add('dropped', done());
    await scene.ann.session.query('drop function ann.dropped()');
    expect(await scene.run(id)).toMatchObject({
      kind: 'failed',
      result: {
        message: expect.stringContaining('there is no function ann.dropped()'),
        details: { code: 'PGF_JOB_INVALID', next: 'Create it, or correct function_name.' },
      },
    });
    expect(await scene.problem(id)).toMatchObject({
      problem: expect.stringContaining('there is no function ann.dropped()'),
    });
    await scene.ann.session.query(plpgsql('ann.dropped()', done()));
    expect(await scene.problem(id)).toBeUndefined();
    expect(await scene.run(id)).toMatchObject({ kind: 'succeeded' });
  });

  it('fails with what to do if the function has another signature or right now', async () => {
    const id = await scene.add('changed', done());
    await scene.ann.session.query(
      'drop function ann.changed(); create function ann.changed() returns int language sql as $$ select 1 $$',
    );
    expect(await scene.problem(id)).toMatchObject({ next_step: 'There is ann.changed(), which returns integer.' });
    expect(await scene.run(id)).toMatchObject({ kind: 'failed', result: { details: { code: 'PGF_JOB_INVALID' } } });
  });
});

describe("somebody else's function", () => {
  it('runs as it was registered, and not as its owner changes it later', async () => {
    const ben = await scene.person('ben');
    await ben.session.query(plpgsql('ben.shared()', done()));
    const id = await scene.register({ name: 'shared', function_name: 'ben.shared', schedule: '@daily' });
    expect(await scene.run(id)).toMatchObject({ kind: 'succeeded' });
    await ben.session.query(plpgsql('ben.shared()', `insert into ann.work values (666); ${done()}`));
    expect(await scene.run(id)).toMatchObject({
      kind: 'failed',
      result: { message: expect.stringContaining('was changed by') },
    });
    const { next_step: next } = (await scene.problem(id))!;
    await scene.ann.session.query(/(update .*;)$/.exec(next)![1]!);
    expect(await scene.problem(id)).toBeUndefined();
    // One that runs with the rights of its own owner may change as it likes.
    await ben.session.query(plpgsql('ben.shared()', done('to_jsonb(current_user)'), 'security definer'));
    expect(await scene.run(id)).toMatchObject({ result: { details: ben.name } });
    await scene.db.query(`alter function ben.shared() owner to ${scene.ann.name}`);
    expect(await scene.problem(id)).toMatchObject({ problem: expect.stringContaining('to another role when') });
  });

  it('is not taken for another one in a schema of the same name', async () => {
    const dan = await scene.person('dan');
    await dan.session.query(plpgsql('dan.named()', done()));
    const id = await scene.register({ name: 'named', function_name: 'dan.named', schedule: '@daily' });
    await scene.db.query('alter schema dan rename to dan_before');
    expect(await scene.run(id)).toMatchObject({ kind: 'failed', result: { details: { code: 'PGF_JOB_INVALID' } } });
    const eve = await scene.person('dan');
    await eve.session.query(plpgsql('dan.named()', `insert into ann.work values (666); ${done()}`));
    expect(await scene.run(id)).toMatchObject({
      kind: 'failed',
      result: { message: expect.stringContaining('to another role when') },
    });
  });

  it("may change as its owner likes where that is the job's", async () => {
    const id = await scene.add('own', done());
    await scene.ann.session.query(plpgsql('ann.own()', done(`'"new"'::jsonb`)));
    expect(await scene.run(id)).toMatchObject({ kind: 'succeeded', result: { details: 'new' } });
  });

  it('that changes and changes back while it runs has done nothing', async () => {
    const cat = await scene.person('cat');
    await cat.session.query(plpgsql('cat.swift()', `perform pg_advisory_xact_lock(99); ${done()}`));
    const id = await scene.register({ name: 'swift', function_name: 'cat.swift', schedule: '@daily' });
    await cat.session.query('select pg_advisory_lock(99)');
    const end = scene.run(id);
    const waits = `exists (select from pg_stat_activity where datname = current_database() and wait_event = 'advisory')`;
    await expect.poll(() => scene.value(waits)).toBe(true);
    // Two statements: in one, the lock would be free before the change is committed.
    await cat.session.query('alter function cat.swift() cost 101');
    await cat.session.query('select pg_advisory_unlock(99)');
    expect(await end).toMatchObject({
      kind: 'failed',
      result: { message: expect.stringContaining('was changed while it ran') },
    });
  });
});
