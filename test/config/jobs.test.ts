import { describe, expect, expectTypeOf, it } from 'vitest';
import { resolveConfig } from '../../src/config/index.ts';
import { defineJob, type Config, type JobContext, type JobDefinition } from '../../src/index.ts';

const nightly = { name: 'nightly', function: 'app.clean_up', schedule: '0 3 * * *' };
const handler = async () => ({ success: true, message: 'done' });
const read = (config: Config) => resolveConfig({ config, file: 'x.ts' });
const job = (changes: object) => read({ jobs: [{ ...nightly, ...changes }] }).jobs![0]!;

describe('a job', () => {
  it('is read in milliseconds, with its defaults', () => {
    expect(job({})).toEqual({
      ...nightly,
      timezone: 'UTC',
      enabled: true,
      params: {},
      timeout: 30_000,
      retries: 0,
      retryBase: 15_000,
      catchUp: 'once',
      catchUpMax: 100,
      overlap: 'skip',
      blackoutDates: [],
    });
    expect(read({}).jobs).toBeUndefined();
  });

  it('comes at times of the day, or some time after the last one', () => {
    const every = (value: unknown) => job({ schedule: undefined, every: value }).every;
    expect(every('10m')).toEqual([600_000, 600_000]);
    expect(every(['10m', '15m'])).toEqual([600_000, 900_000]);
    expect(job({ schedule: undefined, every: '1h', afterFailure: ['20m', '40m'] }).afterFailure).toEqual([
      1_200_000, 2_400_000,
    ]);
  });

  it.each<[string, object, string]>([
    [
      'an option that is mistyped',
      { shedule: '@daily' },
      'jobs[0].shedule ("nightly"): there is no such option; did you mean "schedule"?',
    ],
    ['no name', { name: undefined }, 'jobs[0].name: '],
    ['a name with spaces', { name: 'a b' }, 'jobs[0].name ("a b"): expected letters, digits'],
    [
      'a function and a handler',
      { handler },
      'jobs[0].function ("nightly"): expected function or handler, and not both',
    ],
    [
      'neither of them',
      { function: undefined },
      'jobs[0].function ("nightly"): expected function or handler, and one of them',
    ],
    [
      'a schedule and an interval',
      { every: '10m' },
      'jobs[0].schedule ("nightly"): expected schedule or every, and not both',
    ],
    [
      'neither of those',
      { schedule: undefined },
      'jobs[0].schedule ("nightly"): expected schedule or every, and one of them',
    ],
    ['four fields', { schedule: '0 3 * *' }, 'jobs[0].schedule ("nightly"): expected five fields'],
    ['a zone that is none', { timezone: 'Mars/Olympus' }, 'jobs[0].timezone ("nightly"): expected a time zone'],
    [
      'the longer time first',
      { schedule: undefined, every: ['15m', '10m'] },
      'jobs[0].every ("nightly"): expected the shorter time first',
    ],
    ['an interval of nothing', { schedule: undefined, every: 0 }, 'jobs[0].every ("nightly"): expected'],
    ['afterFailure of a schedule', { afterFailure: '1h' }, 'jobs[0].afterFailure ("nightly"): expected every'],
    [
      'a handler that is a name',
      { function: undefined, handler: 'clean' },
      'jobs[0].handler ("nightly"): expected a function',
    ],
    ['params that are a list', { params: [1] }, 'jobs[0].params ("nightly"): '],
    ['params that no JSON can hold', { params: { at: () => 1 } }, 'jobs[0].params.at ("nightly"): '],
    ['a day that is none', { blackoutDates: ['2026-02-30'] }, 'jobs[0].blackoutDates[0] ("nightly"): expected a date'],
    ['a function with its arguments', { function: 'f()' }, 'jobs[0].function ("nightly"): expected a name'],
    ['too many retries', { retries: 101 }, 'jobs[0].retries ("nightly"): '],
    ['an overlap that is a third thing', { overlap: 'both' }, 'jobs[0].overlap ("nightly"): '],
    ['a time limit of two days', { timeout: '2d' }, 'jobs[0].timeout ("nightly"): expected a time from 1ms to 1d'],
  ])('refuses %s', (_, changes, message) => {
    expect(() => job(changes)).toThrow(
      expect.objectContaining({ code: 'PGF_CONFIG_INVALID', message: expect.stringContaining(message) }),
    );
  });

  it('has a name of its own', () => {
    expect(() => read({ jobs: [nightly, nightly] })).toThrow('jobs[1].name: expected each name once');
    expect(() => read({ jobs: {} as never })).toThrow('jobs: expected a list, got {}');
  });

  it('hands its params to its handler with their types', () => {
    const typed = defineJob({
      name: 'typed',
      schedule: '@daily',
      params: { days: 30 },
      handler: ({ params, slot, attempt, signal, db, log }) => {
        expectTypeOf(params).toEqualTypeOf<{ days: number }>();
        expectTypeOf({ slot, attempt, signal }).toEqualTypeOf<{
          slot: Date | null;
          attempt: number;
          signal: AbortSignal;
        }>();
        expectTypeOf(db).toEqualTypeOf<JobContext['db']>();
        log('looked', { days: params.days });
        return { success: true, message: `kept ${params.days} days` };
      },
    });
    expectTypeOf(typed).toEqualTypeOf<JobDefinition>();
    const context = { params: { days: 30 }, log: () => {} } as unknown as JobContext;
    expect(read({ jobs: [typed] }).jobs![0]!.handler!(context)).toEqual({ success: true, message: 'kept 30 days' });
  });
});
