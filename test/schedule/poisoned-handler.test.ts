import { afterEach, beforeAll, describe, expect, it } from 'vitest';
import type { JobContext, JobResult } from '../../src/config/index.ts';
import { logEvents } from '../../src/watch/index.ts';
import { ScheduleScene, until } from './scene.ts';

let scene: ScheduleScene;
const lines: string[] = [];

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
