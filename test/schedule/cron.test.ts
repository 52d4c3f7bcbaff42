import { readFile } from 'node:fs/promises';
import { describe, expect, it } from 'vitest';
import { errorTable, PgfreshError } from '../../src/errors/index.ts';
import { checkedCron, explainCron, nextSlot, nextSlots, parseCron } from '../../src/schedule/index.ts';
import vectors from './cron-vectors.json' with { type: 'json' };

const next = (cron: string, zone: string, from: string, count: number) =>
  nextSlots(parseCron(cron), zone, new Date(from), count).map((slot) => slot.toISOString().replace('.000Z', 'Z'));

const refusal = (work: () => unknown): PgfreshError => {
  try {
    work();
  } catch (error) {
    if (error instanceof PgfreshError) return error;
    throw error;
  }
  throw new Error('nothing was refused');
};

describe('the vectors', () => {
  it.each(vectors)('$id: $title', ({ cron, time_zone: zone, from, expect: slots }) => {
    expect(next(cron, zone, from, Math.max(slots.length, 1))).toEqual(slots);
  });
});

describe('docs/reference/cron.md', async () => {
  const page = await readFile('docs/reference/cron.md', 'utf8');
  const rows = [...page.matchAll(/^\| (`.+`) \| (.+) \|$/gm)].map(([, first, rest]) => [first!, ...rest!.split(' | ')]);
  const meanings = rows.filter((row) => row.length === 2);
  const runs = rows.filter((row) => row.length === 4);

  it.each(meanings)('%s is %s', (expressions, words) => {
    for (const [, expression] of expressions.matchAll(/`(.+?)`/g))
      expect(explainCron(expression!, 'UTC', new Date(), 1).words).toBe(words);
  });

  it.each(runs)('%s in %s after %s', (expression, zone, from, slots) => {
    expect(next(expression.slice(1, -1), zone, from, slots.split(', ').length).join(', ')).toBe(slots);
  });

  it('has examples of both', () => {
    expect([meanings.length, runs.length]).toEqual([15, 7]);
  });
});

describe('an expression', () => {
  const from = '2026-06-01T00:00:00Z';

  it.each([
    ['0 9 * * SUN', '0 9 * * 7'],
    ['0 9 * * sun-tue', '0 9 * * 0,1,2'],
    ['0 9 * * FRI-SUN', '0 9 * * 5,6,0'],
    ['0 9 * * 7-2', '0 9 * * 0-2'],
    ['0 9 * * 0-7', '0 9 * * *'],
    ['0 9 * * 1-7/2', '0 9 * * 1,3,5,7'],
    ['0 9 ? * 1', '0 9 * * 1'],
    ['0 9 ? ? ?', '0 9 * * *'],
    ['5/20 * * * *', '5,25,45 * * * *'],
    ['0 0 1 jan,JUL *', '0 0 1 1,7 *'],
    ['  0\t0  1 * *  ', '@monthly'],
    ['@Midnight', '@daily'],
    ['0 0 1,1,1 * *', '0 0 1 * *'],
  ])('%s is %s', (one, other) => {
    expect(next(one, 'Europe/Paris', from, 20)).toEqual(next(other, 'Europe/Paris', from, 20));
  });

  it('knows the second Tuesday, the last Friday and the fifth Monday of months that have one', () => {
    expect(next('0 0 * * TUE#2', 'UTC', from, 2)).toEqual(['2026-06-09T00:00:00Z', '2026-07-14T00:00:00Z']);
    expect(next('0 0 * * 5#L', 'UTC', from, 2)).toEqual(['2026-06-26T00:00:00Z', '2026-07-31T00:00:00Z']);
    expect(next('0 0 * * 1#5', 'UTC', from, 2)).toEqual(['2026-06-29T00:00:00Z', '2026-08-31T00:00:00Z']);
  });

  it('runs once for several times that one gap leaves out, and once if it would run then anyway', () => {
    const zone = 'America/New_York';
    expect(next('0,15,30 2 * * *', zone, '2026-03-08T00:00:00Z', 2)).toEqual([
      '2026-03-08T07:00:00Z',
      '2026-03-09T06:00:00Z',
    ]);
    expect(next('0 2,3 * * *', zone, '2026-03-08T00:00:00Z', 2)).toEqual([
      '2026-03-08T07:00:00Z',
      '2026-03-09T06:00:00Z',
    ]);
  });

  it('is about the day that was left out, also when the gap ends on the next', () => {
    // In Nuuk the hour before midnight of a Saturday is left out.
    expect(next('30 23 * * SAT', 'America/Nuuk', '2027-03-27T12:00:00Z', 1)).toEqual(['2027-03-28T01:00:00Z']);
  });

  it('skips the day that Samoa skipped', () => {
    expect(next('0 12 * * *', 'Pacific/Apia', '2011-12-29T23:00:00Z', 1)).toEqual(['2011-12-30T22:00:00Z']);
  });

  it('finds a leap day that is exactly eight years away, and nothing later', () => {
    expect(next('0 0 29 2 *', 'UTC', '2096-02-29T00:00:00Z', 1)).toEqual(['2104-02-29T00:00:00Z']);
    // Five Mondays in February come every 28 years.
    expect(nextSlot(parseCron('0 0 * 2 1#5'), 'UTC', new Date(from))).toBeNull();
  });

  it('is strictly after, on a whole minute', () => {
    expect(next('* * * * *', 'UTC', '2026-06-01T00:00:59.999Z', 1)).toEqual(['2026-06-01T00:01:00Z']);
    expect(next('* * * * *', 'UTC', '2026-06-01T00:01:00.000Z', 1)).toEqual(['2026-06-01T00:02:00Z']);
  });

  it('is found quickly: 500 jobs in the same second', () => {
    const crons = Array.from({ length: 500 }, (_, index) => parseCron(`${index % 60} ${index % 24} * * *`));
    const zones = ['America/New_York', 'Europe/London', 'Asia/Tokyo', 'Australia/Lord_Howe', 'UTC'];
    const began = performance.now();
    crons.forEach((cron, index) => nextSlot(cron, zones[index % zones.length]!, new Date(from)));
    expect(performance.now() - began).toBeLessThan(200);
  });
});

describe('what cannot be read', () => {
  it.each([
    ['', 'expected five fields, got 0'],
    ['* * * *', 'expected five fields, got 4'],
    ['0 0 0 1 1 *', 'expected five fields, got 6; seconds and years are not kept: did you mean "0 0 1 1 *"?'],
    ['* * * * * ; drop table', 'expected five fields, got 8'],
    ['@reboot', 'a schedule has times, and @reboot has none'],
    ['@dayly', 'there is no word "@dayly"; did you mean "@daily"?'],
    ['@every 5m', 'there is no word "@every 5m"; expected one of @yearly, @annually'],
    ['60 * * * *', 'minute "60": expected 0 to 59, or *'],
    ['* 24 * * *', 'hour "24": expected 0 to 23, or *'],
    ['* * 0 * *', 'day of month "0": expected 1 to 31, or *'],
    ['* * * 13 *', 'month "13": expected 1 to 12 or JAN to DEC, or *'],
    ['* * * * 8', 'day of week "8": expected 0 to 7 or SUN to SAT, or *'],
    ['* * * * Monday', 'day of week "Monday": expected 0 to 7 or SUN to SAT, or *; did you mean "MON"?'],
    ['* * * Juli *', 'did you mean "JUL"?'],
    ['* * * * 5L', 'did you mean "5#L", the last one of the month?'],
    ['* * * * FRIL', 'did you mean "5#L", the last one of the month?'],
    ['* * * * 5#6', 'day of week "5#6": expected a day, # and 1 to 5 or L, such as MON#1'],
    ['* * * * 1-5#2', 'day of week "1-5": expected'],
    ['* * 15W * *', 'day of month "15W": expected'],
    ['* * L-3 * *', 'day of month "L": expected'],
    ['*/0 * * * *', 'minute "*/0": expected a step from 1 to 60, got "0"'],
    ['*/61 * * * *', 'expected a step from 1 to 60, got "61"'],
    ['* * * * */8', 'expected a step from 1 to 7, got "8"'],
    ['*/ * * * *', 'expected a step from 1 to 60, got ""'],
    ['*/-5 * * * *', 'expected a step from 1 to 60, got "-5"'],
    ['1/2/3 * * * *', 'minute "1/2/3": expected one step, such as */15'],
    ['1-2-3 * * * *', 'minute "1-2-3": expected one range, such as 0-59'],
    ['0 22-4 * * *', 'hour "22-4": expected a range that goes up; did you mean "22-23,0-4"?'],
    ['* * * * FRI-MON', 'did you mean "5-6,0-1"?'],
    ['5, * * * *', 'minute "": expected 0 to 59'],
    ['-5 * * * *', 'minute "": expected 0 to 59'],
    ['1.5 * * * *', 'minute "1.5": expected'],
    ['0x1 * * * *', 'minute "0x1": expected'],
    ['٣ * * * *', 'minute "٣": expected'],
    ['MON * * * *', 'minute "MON": expected'],
    ['1'.repeat(501), 'expected at most 500 characters, got 501'],
  ])('%s', (expression, problem) => {
    const { code, message, next: step } = refusal(() => parseCron(expression));
    expect(code).toBe('PGF_CRON_INVALID');
    expect(message).toContain(problem);
    expect(step).toBe(errorTable.PGF_CRON_INVALID.next);
  });

  it.each([
    ['', 'There is no time zone ""'],
    ['Amerika/New_York', 'There is no time zone "Amerika/New_York"; did you mean "America/New_York"?'],
    ['+05:00', 'There is no time zone "+05:00"'],
    ['local', 'There is no time zone "local"'],
    [`UTC'; drop`, `There is no time zone "UTC'; drop"`],
  ])('the time zone %s', (zone, message) => {
    const error = refusal(() => nextSlot(parseCron('* * * * *'), zone, new Date()));
    expect(error).toMatchObject({ code: 'PGF_ZONE_UNKNOWN', message });
  });

  it('is no schedule if it never runs', () => {
    const now = new Date('2026-06-01T00:00:00Z');
    expect(checkedCron('0 0 29 2 *', 'UTC', now).fixed).toBe(true);
    expect(refusal(() => checkedCron('0 0 30 2 *', 'UTC', now))).toMatchObject({
      code: 'PGF_CRON_NEVER',
      message: 'The cron expression "0 0 30 2 *" has no occurrence in UTC within 8 years.',
    });
    expect(refusal(() => checkedCron('* * * * *', 'Mars', now)).code).toBe('PGF_ZONE_UNKNOWN');
  });
});

describe('an explanation', () => {
  const surprises = (cron: string, zone: string, from = '2026-11-16T00:00:00Z') =>
    explainCron(cron, zone, new Date(from), 1).surprises.map(({ at, effect, words }) => [
      at.toISOString().slice(0, 10),
      effect,
      words,
    ]);

  it('tells what clocks do to times of the day', () => {
    expect(surprises('30 2 * * *', 'America/New_York')).toEqual([
      ['2027-03-14', 'moved', 'Clocks go from 02:00 to 03:00. 02:30 does not exist; it runs once at 03:00 instead.'],
    ]);
    expect(surprises('0 2,3 * * *', 'America/New_York')[0]![2]).toMatch(/at 03:00 instead, which is one of its times/);
    expect(surprises('15,45 1 * * *', 'America/New_York')).toEqual([
      [
        '2027-11-07',
        'first_only',
        'Clocks go from 02:00 to 01:00. 01:15, 01:45 come twice; it runs the first time only.',
      ],
    ]);
  });

  it('tells what clocks do to a rhythm', () => {
    expect(surprises('*/10 * * * *', 'Europe/London')).toEqual([
      [
        '2027-03-28',
        'left_out',
        'Clocks go from 01:00 to 02:00. 01:00, 01:10, … 01:50 (6 times) do not exist and are left out.',
      ],
      [
        '2027-10-31',
        'twice',
        'Clocks go from 02:00 to 01:00. 01:00, 01:10, … 01:50 (6 times) come twice, and it runs both times.',
      ],
    ]);
  });

  it('is silent about what does not concern it', () => {
    expect(surprises('0 12 * * *', 'America/New_York')).toEqual([]);
    expect(surprises('30 2 * * MON', 'America/New_York')).toEqual([]);
    expect(surprises('30 2 * * *', 'Asia/Tokyo')).toEqual([]);
  });

  it('looks 400 days ahead', () => {
    expect(surprises('30 2 * * *', 'America/New_York', '2026-02-06T00:00:00Z')).toHaveLength(1);
    expect(surprises('30 2 * * *', 'America/New_York', '2026-02-08T00:00:00Z')).toHaveLength(2);
  });

  it.each([
    ['* * * * *', 'every minute every day'],
    ['*/7 * * * *', 'at minutes 0, 7, 14, 21, 28, 35, 42, 49 and 56 of every hour every day'],
    ['5/20 */2 * * *', 'at minutes 5, 25 and 45 of every second hour from 00:00 every day'],
    ['0 */6 * * *', 'at 00:00, 06:00, 12:00 and 18:00 every day'],
    ['* 9-17,20 * * *', 'every minute from 09:00 to 17:59 and 20:00 to 20:59 every day'],
    ['0 8 1,15,L 1-3,6 *', 'at 08:00 on days 1 and 15 and on the last day of the month in January to March and June'],
    ['0 0 ? * FRI#L,MON#1', 'at 00:00 on the last Friday and on the first Monday of the month'],
  ])('of %s', (expression, words) => {
    expect(explainCron(expression, 'UTC', new Date(), 1).words).toBe(words);
  });
});
