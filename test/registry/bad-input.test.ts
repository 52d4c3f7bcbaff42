import { beforeAll, expect, it } from 'vitest';
import { planningFunctions } from '../harness/called-functions.ts';
import { expectNoChange, expectRefusal } from '../harness/refusal.ts';
import { openSession } from '../harness/session.ts';
import { RegistryScene } from './scene.ts';
import { inSchema } from '../harness/schemas.ts';

type Expected =
  | { readonly refuses: `PGF_${string}` }
  /** The type of the argument cannot hold it: PostgreSQL itself refuses. */
  | { readonly sqlState: string }
  | { readonly answers: unknown };

const argument: Expected = { refuses: 'PGF_ARGUMENT_INVALID' };
const key: Expected = { refuses: 'PGF_KEY_INVALID' };
const unknownKey: Expected = { refuses: 'PGF_KEY_UNKNOWN' };
const type: Expected = { refuses: 'PGF_TYPE_UNKNOWN' };
const lease: Expected = { refuses: 'PGF_LEASE_LOST' };
const viewer: Expected = { refuses: 'PGF_VIEWER_UNKNOWN' };
const notOfThatType: Expected = { sqlState: '22P02' };
const notATime: Expected = { sqlState: '22007' };
const noSuchFunction: Expected = { sqlState: '42883' };
const answers = (answer: unknown): Expected => ({ answers: answer });

/** 10 kB, as everywhere below. */
const long = `repeat('x', 10240)`;
const injected = `'''; drop schema pgfresh cascade; --'`;

type Calls = readonly (readonly [string, Expected])[];

const keys: Calls = [
  ['null', key],
  [`''`, key],
  [long, key],
  [`repeat('é', 257)`, key],
  [`E'A\\nB'`, key],
  [`E'\\x7f'`, key],
  [`U&'A\\0085B'`, key],
  [`'lower case'`, unknownKey],
  [injected, unknownKey],
];
const types: Calls = [
  ['null', type],
  [`''`, type],
  [`'qoute'`, type],
  [`'QUOTE'`, type],
  [`E'quote\\n'`, type],
  [long, type],
  [injected, type],
];
const sizes: Calls = [
  ['null', argument],
  ['0', argument],
  ['-1', argument],
  ['10001', argument],
  ['2147483647', argument],
  ['-2147483648', argument],
  ['2147483648', noSuchFunction],
  [`'NaN'`, notOfThatType],
];
const keeps: Calls = [
  ['null', argument],
  [`'0'`, argument],
  [`'59 seconds'`, argument],
  [`'-1 day'`, argument],
  [`'100000 years'`, argument],
  [`'NaN'`, notATime],
];

/** Each of the values in its place among arguments that are good. */
const accepted = (values: Calls, answer: unknown): Calls => values.map(([value]) => [value, answers(answer)]);
const within = (values: Calls, place: (value: string) => string): Calls =>
  values.map(([value, expected]) => [place(value), expected] as const);

/** Arguments that make no sense, and what each call does. Nothing else happens in any of them. `:node` is a node that is alive. */
const cases: Record<(typeof planningFunctions)[number], Calls> = {
  upsert_active_subscription: [
    ...within(keys, (value) => `'ann', ${value}, 'quote'`),
    ...within(types, (value) => `'ann', 'A', ${value}`),
    [`null, 'A', 'quote'`, viewer],
    [`'', 'A', 'quote'`, argument],
    [`${long}, 'A', 'quote'`, argument],
    [`repeat('é', 101), 'A', 'quote'`, argument],
    [`E'a\\nb', 'A', 'quote'`, argument],
    [`U&'a\\009Fb', 'A', 'quote'`, argument],
  ],
  upsert_active_subscriptions: [
    [`null, 'ann'`, argument],
    [`'[]', 'ann'`, argument],
    [`'{"data_type": "quote", "key": "A"}', 'ann'`, argument],
    [`'"A"', 'ann'`, argument],
    [`'[{'`, notOfThatType],
    [
      `(select jsonb_agg(jsonb_build_object('data_type', 'quote', 'key', n::text)) from generate_series(1, 501) as n), 'ann'`,
      argument,
    ],
    [`'[{"data_type": "quote", "key": "A"}]'`, viewer],
    [`'[{"data_type": "quote", "key": "A"}]', ''`, argument],
  ],
  remove_active_subscription: [
    // What they leave does not matter: see test/demand.
    [`null, 'A', 'quote'`, viewer],
    [`'', 'A', 'quote'`, argument],
    [`${long}, 'A', 'quote'`, argument],
  ],
  cleanup_stale_subscriptions: [['null', noSuchFunction]],
  get_active_subscriptions: [['null', noSuchFunction]],
  count_viewers: [
    [`null, '{A}'`, argument],
    [`'{1}', null`, argument],
    [`'{1}', '{A,B}'`, argument],
    [`'{x}', '{A}'`, notOfThatType],
    [`array_fill(1, array[10001]), array_fill('A'::text, array[10001])`, argument],
  ],
  refresh_pair: [...within(keys, (value) => `'quote', ${value}`), ...within(types, (value) => `${value}, 'A'`)],
  // What it refuses of a batch is in test/demand.
  set_node_demand: [
    [`null, '{1}', '{A}', '{1}'`, lease],
    [`0, '{1}', '{A}', '{1}'`, lease],
    [`-1, '{1}', '{A}', '{1}'`, lease],
    [`9223372036854775807, '{1}', '{A}', '{1}'`, lease],
    [`:node, null, '{A}', '{1}'`, argument],
    [`:node, '{1}', null, '{1}'`, argument],
    [`:node, '{1}', '{A}', null`, argument],
    [`:node, '{1,1}', '{A}', '{1}'`, argument],
    [`:node, '{1}', '{A,B}', '{1}'`, argument],
    [`:node, '{1}', '{A}', '{1,2}'`, argument],
    [`:node, '{1}', '{A}', '{-1}'`, argument],
    [`:node, '{1}', '{A}', '{NULL}'`, argument],
    [`:node, '{1}', '{A}', '{10000001}'`, argument],
    [`:node, '{1}', '{A}', '{2147483648}'`, { sqlState: '22003' }],
    [`:node, '{1}', '{A}', '{many}'`, notOfThatType],
    [`:node, '{quote}', '{A}', '{1}'`, notOfThatType],
    [`:node, '{1', '{A}', '{1}'`, notOfThatType],
    [`:node, array_fill(1, array[10001]), array_fill('A'::text, array[10001]), array_fill(1, array[10001])`, argument],
    [`:node, '{}', '{}', '{}'`, answers({ changed: 0, refused: [] })],
    ...within(accepted(keys, { changed: 0, refused: [] }), (value) => `:node, '{1}', array[${value}], '{0}'`),
    [`:node, '{-7}', '{A}', '{0}'`, answers({ changed: 0, refused: [] })],
    [`:node, '{NULL}', '{A}', '{0}'`, answers({ changed: 0, refused: [] })],
  ],
  check_and_queue_stale_data: sizes,
  check_and_queue_stale_batch: [
    ...within(keys, (value) => `${value}, '{quote}'`),
    ...within(types, (value) => `'A', array['quote', ${value}]`),
    [`'A', null`, argument],
    [`'A', '{}'`, argument],
    [`'A', array_fill('quote'::text, array[51])`, argument],
    [`'A', '{quote'`, notOfThatType],
  ],
  plan_due_pairs: sizes,
  open_refresh_cycle: [
    ...within(types, (value) => `${value}, now()`),
    [`'quote', now()`, argument],
    [`'nightly', null`, argument],
    [`'nightly', 'infinity'`, argument],
    [`'nightly', '-infinity'`, argument],
    [`'nightly', 'someday'`, notATime],
  ],
  queue_scheduled_refreshes: sizes,
  explain_pair: [...within(keys, (value) => `'quote', ${value}`), ...within(types, (value) => `${value}, 'A'`)],
  overview: [[`'A'`, noSuchFunction]],
  is_data_stale: [
    ['now()', noSuchFunction],
    ['now(), null::interval', argument],
    ['now(), null::int', argument],
    [`now(), interval '0'`, argument],
    [`now(), interval '-1 second'`, argument],
    ['now(), 0', argument],
    ['now(), -1', argument],
    ['now(), -2147483648', argument],
    ['null, 0', argument],
    [`'NaN', 1`, notATime],
    [`null, 1`, answers(true)],
  ],
  is_valid_identifier: [
    ['null', answers(false)],
    [`''`, answers(false)],
    [long, answers(false)],
    [`repeat('x', 64)`, answers(false)],
    [`repeat('x', 63)`, answers(true)],
    [`'a.b'`, answers(false)],
    [`E'a\\n'`, answers(false)],
    [`'a b'`, answers(false)],
    [`'ä'`, answers(false)],
    [`'1a'`, answers(false)],
    [injected, answers(false)],
  ],
  warn: [
    [`null, 's', 'm', 'n'`, argument],
    [`'', 's', 'm', 'n'`, argument],
    [`'Upper', 's', 'm', 'n'`, argument],
    [`${long}, 's', 'm', 'n'`, argument],
    [`E'a\\n', 's', 'm', 'n'`, argument],
    [`'a', null, 'm', 'n'`, argument],
    [`'a', 's', null, 'n'`, argument],
    [`'a', 's', 'm', null`, argument],
    [`'a', 's', 'm', 'n', null`, argument],
    [`'a', 's', 'm', 'n', 0`, argument],
    [`'a', 's', 'm', 'n', -1`, argument],
  ],
  clear_old_warnings: keeps,
  clear_planner_runs: keeps,
  hold_duty: [
    [`null, gen_random_uuid(), '1 minute'`, argument],
    [`'', gen_random_uuid(), '1 minute'`, argument],
    [`'Planner', gen_random_uuid(), '1 minute'`, argument],
    [`${long}, gen_random_uuid(), '1 minute'`, argument],
    [`E'a\\n', gen_random_uuid(), '1 minute'`, argument],
    [`'planner', null, '1 minute'`, argument],
    [`'planner', 'me', '1 minute'`, notOfThatType],
    [`'planner', gen_random_uuid(), null`, argument],
    [`'planner', gen_random_uuid(), '0'`, argument],
    [`'planner', gen_random_uuid(), '-1 minute'`, argument],
    [`'planner', gen_random_uuid(), '2 hours'`, argument],
    [`'pump', gen_random_uuid(), '1 minute'`, answers(false)],
    [`'unknown', gen_random_uuid(), '1 minute'`, argument],
  ],
  release_duty: [
    [`null, gen_random_uuid()`, answers(false)],
    [`'pump', null`, answers(false)],
    [`'pump', gen_random_uuid()`, answers(false)],
    [`${long}, gen_random_uuid()`, answers(false)],
    [`'pump', 'me'`, notOfThatType],
  ],
};

let scene: RegistryScene;
let node: number;

beforeAll(async () => {
  scene = await RegistryScene.open();
  await scene.db.query(`create table symbols (key text); insert into symbols values ('A')`);
  await scene.add('quote', { key_pattern: '^[A-Z]+$' });
  await scene.add('nightly', {
    refresh_strategy: 'scheduled',
    refresh_schedule: '0 3 * * *',
    key_table: 'symbols',
    key_table_column: 'key',
  });
  await scene.subscribe('ann', 'A');
  await scene.subscribe('ann', 'B');
  await scene.tick();
  node = await scene.value(`pgfresh_engine.register_process('gateway', $1::text)`, ['test']);
  await scene.db.query(`select pgfresh_engine.set_node_demand($1::bigint, array[$2::int], '{C}', '{3}')`, [
    node,
    await scene.typeId(),
  ]);
  await scene.db.query(
    `select pgfresh_engine.warn('old', 's', 'm', 'n'), pgfresh_engine.hold_duty('pump', gen_random_uuid(), '1 hour'), pgfresh_engine.open_refresh_cycle('nightly', pgfresh.clock())`,
  );
  // Long enough for the things that are old to be removed by a call that should not.
  await scene.clock.advance('2 minutes');
  node = await scene.value(`pgfresh_engine.register_process('gateway', $1::text)`, ['test']);
});

it.each(Object.entries(cases))('%s', async (name, calls) => {
  // For the one that has no argument which says for whom.
  await scene.session.query('select set_config($1::text, $2::text, false)', [
    'pgfresh.user_id',
    name === 'check_and_queue_stale_batch' ? 'ann' : '',
  ]);
  await expectNoChange(scene.db, async () => {
    for (const [args, expected] of calls)
      await expectOutcome(name, args.replace(':node', String(node)), expected).catch((cause: unknown) => {
        throw new Error(`${name}(${args})`, { cause });
      });
  });
});

async function expectOutcome(name: string, args: string, expected: Expected): Promise<void> {
  const call = scene.session.query<{ answer: unknown }>(`select ${inSchema(name)}(${args}) as answer`);
  if ('answers' in expected) expect(await call).toEqual([{ answer: expected.answers }]);
  else if ('sqlState' in expected) await expect(call).rejects.toMatchObject({ code: expected.sqlState });
  else await expectRefusal(call, expected.refuses);
}

it('refuses to check a batch for nobody', async () => {
  await expectRefusal(scene.value(`pgfresh.check_and_queue_stale_batch('A', '{quote}')`), 'PGF_VIEWER_UNKNOWN');
});

it('knows every function that users call', () => {
  expect(Object.keys(cases).toSorted()).toEqual([...planningFunctions].toSorted());
});

it.each([
  ['a key', `select pgfresh.upsert_active_subscription('ann', $1::text, 'quote')`],
  ['a user', `select pgfresh.upsert_active_subscription($1::text, 'A', 'quote')`],
  ['a data type', `select pgfresh.explain_pair($1::text, 'A')`],
  ['the name of a node', `select pgfresh_engine.register_process('gateway', $1::text)`],
])('%s with a zero character never reaches a function', async (_, statement) => {
  const session = await openSession(scene.url);
  await expect(session.query(statement, ['A\u0000B'])).rejects.toMatchObject({ code: '22021' });
});

it('takes quotes, backslashes and other alphabets in keys and ids as they are', async () => {
  await scene.add('any');
  for (const odd of [
    `O'Neil`,
    `a"b`,
    'a\\b',
    '$1',
    '%s',
    '日経',
    '🪙',
    ' ',
    '|',
    `'; drop schema pgfresh cascade; --`,
  ]) {
    expect(await scene.subscribe(odd, odd, 'any')).toMatchObject({
      result: 'subscribed',
      key: odd,
      planned: { queued: 1 },
    });
    expect(await scene.explain(odd, 'any')).toMatchObject({ key: odd, reason: 'queued' });
    expect(await scene.leave(odd, odd, 'any')).toBe(true);
  }
});
