import { beforeAll, expect, it } from 'vitest';
import { PgfreshError } from '../../src/errors/index.ts';
import { isZone } from '../../src/config/index.ts';
import { checkedCron } from '../../src/schedule/index.ts';
import type { Database } from '../../src/database/index.ts';
import { freezeClock } from '../harness/clock.ts';
import { createDatabase, openDatabase } from '../harness/database.ts';
import { seededRandom } from '../harness/random.ts';

/** A job is refused by the database where TypeScript would not run it, and by nothing else. */
const now = new Date('2026-11-16T12:00:00Z');
let db: Database;
beforeAll(async () => {
  db = openDatabase(await createDatabase(), { poolSize: 1 });
  await freezeClock(db, now.toISOString());
});

type Verdict = 'good' | 'invalid' | 'never';

async function bySql(expressions: readonly string[]): Promise<Verdict[]> {
  const rows = await db.query<{ problem: string | null }>(
    'select pgfresh_engine.cron_problem(e) as problem from unnest($1::text[]) with ordinality as t(e, place) order by place',
    [expressions],
  );
  return rows.map(({ problem }) =>
    problem === null ? 'good' : problem === 'it has no occurrence within 8 years' ? 'never' : 'invalid',
  );
}

function byTypeScript(expression: string): Verdict {
  try {
    checkedCron(expression, 'UTC', now);
    return 'good';
  } catch (error) {
    if (!(error instanceof PgfreshError)) throw error;
    return error.code === 'PGF_CRON_NEVER' ? 'never' : 'invalid';
  }
}

async function expectAgreement(expressions: readonly string[]): Promise<Map<Verdict, number>> {
  const verdicts = await bySql(expressions);
  const differing = expressions.flatMap((expression, index) => {
    const [sql, typeScript] = [verdicts[index], byTypeScript(expression)];
    return sql === typeScript ? [] : [{ expression, sql, typeScript }];
  });
  expect(differing).toEqual([]);
  return verdicts.reduce((counts, verdict) => counts.set(verdict, (counts.get(verdict) ?? 0) + 1), new Map());
}

const written = `
* * * * *|0 3 * * *|*/15 * * * *|0 9-17 * * 1-5|0 0 1,15 * *|0 0 L * *|0 0 l * *|0 0 L,15 * *|0 0 15,L * *|0 0 * * 1#2|0 0 * * MON#L|0 0 * * mon#l|0 0 * * 5#5|0 0 * * 0,3#1
0 0 * * 7|0 0 * * 5-7|0 0 * * 6-0|0 0 * * 7-2|0 0 * * SUN-SAT|0 0 * * FRI-SUN|0 0 * * SAT-MON|0 0 * JAN-MAR *|0 0 * jan,dec *|0 0 ? * MON|? ? ? ? ?|0 0 */2 * 1|0 0 13 * 5|5/15 * * * *|5-59/15 * * * *
*/59 * * * *|*/60 * * * *|*/61 * * * *|* */24 * * *|* */25 * * *|* * */31 * *|* * */32 * *|* * * */12 *|* * * */13 *|* * * * */7|* * * * */8|*/0 * * * *|*/-1 * * * *|*/1.5 * * * *|*/a * * * *|*/ * * * *|/5 * * * *|*/5/5 * * * *
60 * * * *|* 24 * * *|* * 0 * *|* * 32 * *|* * * 0 *|* * * 13 *|* * * * 8|-1 * * * *|1- * * * *|1-2-3 * * * *|5-1 * * * *|* 23-1 * * *|00 03 * * *|007 * * * *|0007 * * * *|00007 * * * *|1,2,3 * * * *|1,,2 * * * *|,1 * * * *|1, * * * *|, * * * *
0 0 29 2 *|0 0 30 2 *|0 0 31 2 *|0 0 31 4 *|0 0 31 4,6,9,11 *|0 0 31 4,5 *|0 0 30 2 1|0 0 30 2 1#5|0 0 L 2 *|0 0 * 2 1#5|0 0 * 2 2#5|0 0 * 2 0#5|0 0 * 2 3#5|0 0 * 2 TUE#5,WED#5|0 0 * 2 MON#L|0 0 30 2 2#5
0 0 * * 1#0|0 0 * * 1#6|0 0 * * 8#1|0 0 * * #1|0 0 * * 1#|0 0 * * 1##2|0 0 * * 1-2#1|0 0 * * */2#1|0 0 * * *#1|0 0 * * 7#1|0 0 * * MON#1,|0 0 * * 5L|0 0 * * L|0 0 LW * *|0 0 15W * *|0 0 L-2 * *|L 0 * * *|0 0 1-L * *|0 0 L,, * *|0 0 ,L * *|0 0 L/2 * *
@daily|@DAILY|@Daily|@yearly|@annually|@monthly|@weekly|@midnight|@hourly|@reboot|@every 5m|@|@dail|@daily @daily|0 3 * * * @daily| @daily |*|* *|* * * *|* * * * * *|0 0 3 * * * *||
0 0 * FEBRUARY *|0 0 * * MONDAY|0 0 * * M|0 0 * JANUARY-MARCH *|0 0 MON * *|JAN * * * *|0 0 * 1-MAR *|0 0 * * 1-FRI|0 0 1-5,MON * *|0 0 * MON *|+5 * * * *|5+ * * * *|0x5 * * * *|1e1 * * * *|٣ * * * *|a * * * *|'; drop schema pgfresh cascade; -- * *|$1 * * * *|%s * * * *|0 0 * * ſun|0 0 * * ſat#1|0 0 * auguſt *|0 0 * auĝ *|@wee\u212aly|@weekly|0 0 * * ﬁ|0 0 ʟ * *|\\d * * * *|[0-5] * * * *|(1) * * * *|1|2 * * * *`
  .split(/\n|\|/)
  .concat(
    '0\t3 * * *',
    '0\t3\t*\n*\r*',
    '0\u00a03 * * *',
    '\ufeff0 3 * * *',
    '0\u200b3 * * *',
    `0 ${'3,'.repeat(300)}3 * * *`,
    `${' '.repeat(495)}@daily`,
    ' '.repeat(600),
  );

it('what people write', async () => {
  const counts = await expectAgreement(written);
  expect(counts.get('good')).toBeGreaterThan(60);
  expect(counts.get('never')).toBeGreaterThan(5);
  expect(counts.get('invalid')).toBeGreaterThan(80);
});

const fields = [
  { low: 0, high: 59, words: [] },
  { low: 0, high: 23, words: [] },
  { low: 1, high: 31, words: ['L', 'l'] },
  { low: 1, high: 12, words: ['JAN', 'feb', 'Jun', 'DEC'] },
  { low: 0, high: 7, words: ['SUN', 'mon', 'Fri', 'SAT', 'MON#1', '2#5', '0#L', '5#l'] },
] as const;

it('four thousand that were made up, the same every time', async () => {
  const random = seededRandom(20_261_116);
  const below = (count: number): number => Math.floor(random() * count);
  const pick = <T>(list: readonly T[]): T => list[below(list.length)]!;
  const value = ({ low, high, words }: (typeof fields)[number]): string => {
    if (words.length > 0 && random() < 0.2) return pick<string>(words);
    // Now and then one beside the bounds.
    return String(random() < 0.03 ? pick([low - 1, high + 1, 99]) : low + below(high - low + 1));
  };
  const term = (field: (typeof fields)[number]): string => {
    const kind = random();
    if (kind < 0.02) return pick(['', '-', '/', '#', '*-5', '5-*', '**', '*/']);
    const base = kind < 0.3 ? pick(['*', '*', '?']) : kind < 0.55 ? `${value(field)}-${value(field)}` : value(field);
    return random() < 0.15 ? `${base}/${pick([0, 1, 2, 5, 7, 12, 24, 31, 60])}` : base;
  };
  const text = (field: (typeof fields)[number]): string =>
    random() < 0.35 ? '*' : Array.from({ length: pick([1, 1, 1, 2, 3]) }, () => term(field)).join(',');
  const expressions = Array.from({ length: 4_000 }, () => fields.map(text).join(pick([' ', ' ', '  ', '\t'])));
  // Rare days of rare months, of which few come.
  const rare = Array.from(
    { length: 500 },
    () =>
      `0 0 ${pick(['*', '?', '29', '30', '31', '30,31', 'L'])} ${pick(['2', '4', 'FEB,APR', '6,9,11', '1-2'])} ${pick(['*', '?', '1#5', '2#5', 'WED#5,0#5', '6#L', '3'])}`,
  );
  const counts = await expectAgreement([...expressions, ...rare]);
  expect(counts.get('good')).toBeGreaterThan(1_000);
  expect(counts.get('invalid')).toBeGreaterThan(1_000);
  expect(counts.get('never')).toBeGreaterThan(30);
});

it('zones: the database takes no name that is none, and every name that Node.js has', async () => {
  const names = [
    ...Intl.supportedValuesOf('timeZone'),
    'UTC',
    'GMT',
    'EST5EDT',
    'Etc/GMT+5',
    'europe/london',
    'Asia/Calcutta',
    'US/Eastern',
  ];
  const wrong = [
    '',
    ' ',
    'UTC ',
    'Mars/Olympus',
    'PST',
    'Any/Thing5',
    'X5',
    '+02:00',
    'UTC+2',
    'localtime',
    'posix/UTC',
    'America',
    'America/',
    '/',
    'New York',
    '../UTC',
  ];
  const known = await db.query<{ name: string; known: boolean }>(
    'select n as name, pgfresh_engine.is_time_zone(n) as known from unnest($1::text[]) as n',
    [[...names, ...wrong]],
  );
  expect(known.filter(({ name, known: is }) => is !== names.includes(name))).toEqual([]);
  expect(names.filter((name) => !isZone(name))).toEqual([]);
});

it('truth 14: Node.js and the database know the same zones', async () => {
  const more =
    `ACT AET AGT ART AST BET BST CAT CNT CST CTT EAT ECT IET IST JST MIT NET NST PLT PNT PRT PST SST VST EST MST HST UCT utc Zulu W-SU
    GMT+0 GMT+5 GMT5 UTC+2 Etc/GMT+5 Etc/GMT5 Etc/Unknown Etc/GMT-14 Etc/GMT+14 SystemV/PST8PDT SystemV/EST5 US/Pacific-New Canada/East-Saskatchewan
    Asia/Hanoi EUROPE/LONDON europe/london Europe/Iſtanbul Aſia/Tokyo posix/UTC right/UTC localtime Factory posixrules UTC0 X5 Any/Thing5 America America/`.split(
      /\s+/,
    );
  const zones = await db.query<{ name: string; known: boolean }>(
    `select name, pgfresh_engine.is_time_zone(name) as known from (select name from pg_timezone_names union select unnest($1::text[]) union select unnest($2::text[])) as z`,
    [more, Intl.supportedValuesOf('timeZone')],
  );
  expect(zones.length).toBeGreaterThan(500);
  expect(zones.filter(({ name, known }) => known !== isZone(name))).toEqual([]);
});

it('truth 14: letters beyond A to Z are no names of days, months or schedules', async () => {
  const strange = ['0 0 * * ſun', '0 0 * * ſat#1', '@wee\u212aly', '@daıly'];
  expect(await bySql(strange)).toEqual(strange.map(() => 'invalid'));
  expect(strange.map(byTypeScript)).toEqual(strange.map(() => 'invalid'));
});

it.for([
  ['0 25 * * *', "hour '25': expected 0 to 23, or *"],
  ['0 0 * 13 *', "month '13': expected 1 to 12 or JAN to DEC, or *"],
] as const)('the database says what is wrong with %s', async ([expression, problem]) => {
  expect(await db.query('select pgfresh_engine.cron_problem($1::text) as problem', [expression])).toEqual([
    { problem },
  ]);
});
