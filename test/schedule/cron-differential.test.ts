import { execFile } from 'node:child_process';
import { beforeAll, describe, expect, it } from 'vitest';
import { seededRandom } from '../harness/random.ts';
import { firstSlots, ZoneTable } from './cron-oracle.ts';

const zones = [
  'UTC',
  'America/New_York',
  'America/Santiago',
  'America/St_Johns',
  'America/Havana',
  'America/Nuuk',
  'Africa/Cairo',
  'Africa/Casablanca',
  'Antarctica/Troll',
  'Asia/Beirut',
  'Asia/Kathmandu',
  'Asia/Tokyo',
  'Australia/Lord_Howe',
  'Europe/London',
  'Pacific/Chatham',
];
const processZones = ['UTC', 'America/New_York', 'Australia/Lord_Howe', 'Asia/Kathmandu', 'Pacific/Apia'];

// Long enough for the last day of a month after any day.
const window = 40 * 86_400_000;
const most = 4;
const from = Date.UTC(2026, 0);
const until = Date.UTC(2028, 11, 31) - window;

const fields = {
  minute: ['0', '30', '15', '59', '0,30', '5,45', '7', '*', '*/15', '*/20', '*/7', '10-20', '30-59/10'],
  hour: ['0', '1', '2', '3', '2,14', '0,1,2,3', '22,23', '23', '12', '*', '*/2', '*/5', '1-4', '0-23/3', '9-17'],
  day: ['*', '*', '*', '*', '1', '15', 'L', 'L,10', '*/2', '1,15', '28-31', '29', '8-14'],
  month: ['*', '*', '*', '*', '3', '10,11', '3-5', '*/2', '2,9'],
  weekday: ['*', '*', '*', '*', '0', '7', '1-5', '5-7', '0-3', '6', '*/2', '1#1', '0#L', '7#2,3'],
};

type Question = [cron: string, zone: string, after: number, count: number];

const questions: Question[] = [];
const expected: number[][] = [];

beforeAll(() => {
  const random = seededRandom(6);
  const pick = <T>(list: readonly T[]): T => list[Math.floor(random() * list.length)]!;
  const tables = new Map(zones.map((zone) => [zone, new ZoneTable(zone, from - 86_400_000, until + 2 * window)]));
  for (let number = 0; number < 4_000; number++) {
    const zone = zones[number % zones.length]!;
    const table = tables.get(zone)!;
    const cron = Object.values(fields).map(pick).join(' ');
    const changes = table.changes.filter((at) => at < until);
    // Two of three ask within hours of a change of the clocks, some of them from inside the hour that comes twice.
    const near = changes.length > 0 && random() < 2 / 3;
    const after = Math.floor(
      near ? pick(changes) + (random() - 0.7) * 8 * 3_600_000 : from + random() * (until - from),
    );
    questions.push([cron, zone, after, most]);
    expected.push(firstSlots(cron, table, after, after + window, most));
  }
});

describe('generated expressions, against an oracle that shares no code', () => {
  it('are of every kind', () => {
    const ended = expected.filter((slots) => slots.length < most).length;
    expect(ended).toBeGreaterThan(100);
    expect(ended).toBeLessThan(questions.length / 2);
    expect(new Set(questions.map(([cron]) => cron)).size).toBeGreaterThan(3_000);
  });

  it.each(processZones)('have the same slots in a process of %s', async (zone) => {
    const { answers, zone: shown } = await answersIn(zone);
    expect(shown).toMatch(clockOf1970[zone]!);
    const wrong = questions.flatMap(([cron, place, after], index) => {
      const got = answers[index]!.filter((slot) => slot <= after + window);
      const right = expected[index]!;
      return String(got) === String(right)
        ? []
        : [{ cron, place, after: iso(after), got: got.map(iso), right: right.map(iso) }];
    });
    expect(wrong).toEqual([]);
  });
});

const clockOf1970: Record<string, RegExp> = {
  UTC: /1970 00:00:00 GMT\+0000/,
  'America/New_York': /1969 19:00:00 GMT-0500/,
  'Australia/Lord_Howe': /1970 10:00:00 GMT\+1000/,
  'Asia/Kathmandu': /1970 05:30:00 GMT\+0530/,
  'Pacific/Apia': /1969 13:00:00 GMT-1100/,
};

function answersIn(zone: string): Promise<{ zone: string; answers: number[][] }> {
  const script = new URL('cron-answers.ts', import.meta.url).pathname;
  return new Promise((resolve, reject) => {
    const options = { env: { ...process.env, TZ: zone }, maxBuffer: 1e8 };
    const child = execFile(process.execPath, [script], options, (error, stdout) =>
      error ? reject(new Error('the process failed', { cause: error })) : resolve(JSON.parse(stdout)),
    );
    child.stdin!.end(JSON.stringify(questions));
  });
}

function iso(instant: number): string {
  return new Date(instant).toISOString();
}
