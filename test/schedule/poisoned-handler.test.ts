import { afterEach, beforeAll, describe, expect, it } from 'vitest';
import type { JobContext, JobResult } from '../../src/config/index.ts';
import { logEvents } from '../../src/watch/index.ts';
import { ScheduleScene, until } from './scene.ts';

let scene: ScheduleScene;
const lines: string[] = [];
const ended: number[] = [];

beforeAll(async () => {
  scene = await ScheduleScene.open();
  logEvents(scene.events, 'info', { write: (line: string) => lines.push(line) });
  await scene.scheduler({
    logs: ({ log }: JobContext): JobResult => {
      const circle: Record<string, unknown> = { circle: undefined };
      circle['circle'] = circle;
      log('a big number', { ns: 1n });
      log('a circle', circle);
      log('long '.repeat(1_000_000), { long: 'x'.repeat(1_000_000) });
      log(Symbol('no text') as unknown as string);
      log('a lie', Object.defineProperty({}, 'lie', { enumerable: true, get: () => raise('no value') }));
      return { success: true, message: 'logged' };
    },
    leavesOpen: async ({ db }: JobContext): Promise<JobResult> => {
      await db.query('begin');
      throw new Error('not reached');
    },
    sets: async ({ db }: JobContext): Promise<JobResult> => {
      // At once, so that all connections have it.
      const all = (text: string): Promise<unknown> => Promise.all(Array.from({ length: 5 }, () => db.query(text)));
      await all('set role pg_monitor; set default_transaction_read_only = on; select pg_sleep(0.1)');
      await all(`select set_config('search_path', 'nowhere', false), pg_sleep(0.1)`);
      return { success: true, message: 'set' };
    },
    reads: async ({ db }: JobContext): Promise<JobResult> => {
      const settings = `select concat_ws(' ', current_user, current_setting('search_path'), current_setting('default_transaction_read_only')) as said`;
      const rows = await Promise.all([1, 2].map(() => db.query<{ said: string }>(settings)));
      return { success: true, message: [...new Set(rows.flat().map(({ said }) => said))].join(' and ') };
    },
    several: async ({ db }: JobContext): Promise<JobResult> => {
      const rows = await db.query<{ one: number }>('begin; select 1 as one; select 2 as one; commit');
      return { success: true, message: JSON.stringify(rows) };
    },
    greedy: async ({ db, signal }: JobContext): Promise<JobResult> => {
      const sleeps = Array.from({ length: 60 }, () => db.query('select pg_sleep(1)').catch(() => 'not sent'));
      signal.addEventListener('abort', () => void Promise.all(sleeps).then((ends) => ended.push(ends.length)));
      await Promise.all(sleeps);
      return { success: true, message: 'slept' };
    },
    good: (): JobResult => ({ success: true, message: 'good' }),
    throwsMuch: (): JobResult => raise('x'.repeat(5_000_000)),
    throwsNul: (): JobResult => raise('a zero \0 in it'),
    throwsNothing: (): JobResult => {
      throw Object.create(null) as Error;
    },
    emoji: (): JobResult => ({ success: true, message: 'half \uD83D', details: { '\uDE00': '\uD83D\0' } }),
  });
});

function raise(message: string): never {
  throw new Error(message);
}

afterEach(() => expect(scene.problems).toEqual([]));

async function ranOnce(name: string): Promise<unknown> {
  await scene.job(name, { kind: 'handler', function_name: name });
  await scene.idle();
  await scene.advance('1 minute');
  await scene.idle();
  const [run] = await scene.runs(name);
  return run;
}

describe('runs 1: a run ends in the database, whatever its handler says', () => {
  it.each([
    ['throwsNul', { state: 'failed', message: 'a zero \uFFFD in it' }],
    ['throwsNothing', { state: 'failed', message: 'no message' }],
    ['emoji', { state: 'succeeded', message: 'half \uFFFD', details: { '\uFFFD': '\uFFFD\uFFFD' } }],
  ])('%s', async (name, end) => {
    expect(await ranOnce(name)).toMatchObject(end);
  });
});

it('runs 2: a transaction that a handler leaves open ends with its connection, and no one else runs inside', async () => {
  const message = expect.stringMatching(/^A statement left a transaction open/);
  expect(await ranOnce('leavesOpen')).toMatchObject({ state: 'failed', message });
  const open = `(select count(*)::int from pg_stat_activity where datname = current_database() and state like 'idle in transaction%')`;
  await until(async () => (await scene.value(open)) === 0);
  expect(await ranOnce('good')).toMatchObject({ state: 'succeeded' });
});

it('runs 2: what a handler sets in a session is not for the others', async () => {
  expect(await ranOnce('sets')).toMatchObject({ state: 'succeeded' });
  expect(await ranOnce('reads')).toMatchObject({ message: `${new URL(scene.url).username} "$user", public off` });
  await scene.db.query(`delete from pgfresh.scheduled_jobs where name in ('sets', 'reads')`);
});

it('runs 2: a text of several statements gives the rows of all of them', async () => {
  expect(await ranOnce('several')).toMatchObject({ message: '[{"one":1},{"one":2}]' });
});

it('runs 2: a handler that asks sixty things at once leaves connections to the others', async () => {
  await scene.job('greedy', { kind: 'handler', function_name: 'greedy', timeout: '2 seconds' });
  await scene.idle();
  await scene.advance('1 minute');
  const asleep = `(select count(*)::int from pg_stat_activity where datname = current_database() and query = 'select pg_sleep(1)' and state = 'active')`;
  await until(async () => (await scene.value<number>(asleep)) > 3);
  for (let time = 0; time < 20; time++) expect(await scene.value(asleep)).toBeLessThan(5);
  await scene.idle();
  // What was not sent by then never is.
  await until(() => ended.length === 1);
  await scene.db.query(`delete from pgfresh.scheduled_jobs where name = 'greedy'`);
});

it('runs 8: the log goes on after details that no log can write', async () => {
  expect(await ranOnce('logs')).toMatchObject({ state: 'succeeded' });
  const said = lines.map((line) => JSON.parse(line) as { msg: string }).map(({ msg }) => msg);
  expect(said).toEqual(
    expect.arrayContaining([
      'job logs: a big number {"ns":"1"}',
      expect.stringContaining('job logs: a circle {"details":'),
      expect.stringContaining('job logs: a lie {"details":'),
      expect.stringContaining('logs'),
    ]),
  );
  expect(said).toContain('job logs: Symbol(no text)');
  expect(said.filter((text) => text.includes('subscriber'))).toEqual([]);
});

it('runs 8: a handler that says millions of letters does not fill the log', async () => {
  expect(await ranOnce('throwsMuch')).toMatchObject({ state: 'failed', message: 'x'.repeat(4_000) });
  expect(Math.max(...lines.map(({ length }) => length))).toBeLessThan(10_000);
});
