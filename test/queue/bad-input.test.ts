import { beforeAll, describe, expect, it } from 'vitest';
import { queueFunctions, sourceFunctions } from '../harness/called-functions.ts';
import { freezeClock } from '../harness/clock.ts';
import { mirror } from '../harness/mirror.ts';
import { expectNoChange, expectRefusal } from '../harness/refusal.ts';
import { openSession } from '../harness/session.ts';
import { QueueScene } from './scene.ts';
import { inSchema } from '../harness/schemas.ts';

type Expected =
  | { readonly refuses: `PGF_${string}` }
  /** The type of the argument cannot hold it: PostgreSQL itself refuses. */
  | { readonly sqlState: string }
  | { readonly answers: readonly unknown[] };

const argument: Expected = { refuses: 'PGF_ARGUMENT_INVALID' };
const key: Expected = { refuses: 'PGF_KEY_INVALID' };
const type: Expected = { refuses: 'PGF_TYPE_UNKNOWN' };
const source: Expected = { refuses: 'PGF_SOURCE_UNKNOWN' };
const lease: Expected = { refuses: 'PGF_LEASE_LOST' };
const registry: Expected = { refuses: 'PGF_REGISTRY_INVALID' };
const notOfThatType = { sqlState: '22P02' } as const satisfies Expected;
const answers = (...rows: unknown[]): Expected => ({ answers: rows });

/** 10 kB, as everywhere below. */
const long = `repeat('x', 10240)`;
/** Names of claims that do not go with one job. */
const misnamed = [`'{}'`, `array[gen_random_uuid(), gen_random_uuid()]`, `'{NULL}'`];

/** The end of the running job, and more of it, as fail_jobs and put_back_jobs take it. */
const end = (more = '') => `jsonb_build_array(jsonb_build_object('id', :running, 'attempt', :attempt) || '{${more}}')`;
const badEnds: readonly (readonly [string, Expected])[] = [
  ['null', argument],
  [`'{}'`, argument],
  [`'null'`, argument],
  [`'[]'`, answers()],
  [`'[null]'`, argument],
  [`'[7]'`, argument],
  [`'[{}]'`, argument],
  [`jsonb_build_array(jsonb_build_object('id', :running))`, argument],
  [`jsonb_build_array(jsonb_build_object('attempt', :attempt))`, argument],
  [`jsonb_build_array(jsonb_build_object('id', :running, 'attempt', :attempt + 1))`, answers()],
  [`jsonb_build_array(jsonb_build_object('id', :waiting, 'attempt', 0))`, answers()],
  [`'[{"id": 9223372036854775807, "attempt": 1}]'`, argument],
  [`'[{"id": 0, "attempt": 1}]'`, argument],
  [`'[{"id": "A", "attempt": 1}]'`, notOfThatType],
  [`${end()} || ${end()}`, argument],
  [end(`"attempt": -1`), argument],
  [end(`"bytes": -1`), argument],
  [end(`"bytes": 1000000000000001`), argument],
  [end(`"calls": -1`), argument],
  [end(`"calls": 1000001`), argument],
  [end(`"fetch_ms": -1`), argument],
  [end(`"validate_ms": -1`), argument],
  [end(`"outcome": ""`), argument],
  [end(`"outcome": "Two Words"`), argument],
  [end(`"outcome": "a\\nb"`), argument],
  [end(`"request": "A"`), notOfThatType],
  [end(`"request": "00000000-0000-0000-0000-000000000000"`), answers()],
  [`(select jsonb_agg('{"id": 1, "attempt": 1}'::jsonb) from generate_series(1, 10001))`, argument],
];

/**
 * Arguments that make no sense, and what each call does. Nothing else happens in any of them.
 * `:running`, `:attempt` and `:worker` are a job that runs and who holds it; `:metered` is a job of another data type
 * that runs in its first attempt too; `:waiting` is a job that waits.
 */
const cases: Record<
  Exclude<(typeof queueFunctions | typeof sourceFunctions)[number], 'clock'>,
  readonly (readonly [string, Expected])[]
> = {
  queue_refresh_if_not_exists: [
    [`null, 'quote'`, key],
    [`'', 'quote'`, key],
    [`${long}, 'quote'`, key],
    [`repeat('é', 257), 'quote'`, key],
    [`E'A\\nB', 'quote'`, key],
    [`E'A\\tB', 'quote'`, key],
    [`E'\\x7f', 'quote'`, key],
    [`U&'A\\0085B', 'quote'`, key],
    [`U&'A\\009FB', 'quote'`, key],
    [`'A', null`, type],
    [`'A', ''`, type],
    [`'A', 'qoute'`, type],
    [`'A', 'QUOTE'`, type],
    [`'A', E'quote\\n'`, type],
    [`'A', ${long}`, type],
    [`'A', '''; drop schema pgfresh cascade; --'`, type],
    [`'A', 'quote', null`, argument],
    [`'A', 'quote', -2`, argument],
    [`'A', 'quote', 0, -1`, argument],
    [`'A', 'quote', 0, 1000000000000001`, argument],
    [`'A', 'quote', 0, 9223372036854775807`, argument],
    [`'A', 'quote', 0, 0, to_jsonb(repeat('x', 65536))`, argument],
    [`'A', 'quote', 0, 0, null, 'infinity'`, argument],
    [`'A', 'quote', 0, 0, null, now() + interval '100 years'`, argument],
    [`'A', 'quote', 0, 0, null, null, null`, argument],
    [`'A', 'quote', 2147483648`, { sqlState: '42883' }],
    [`'A', 'quote', 'NaN'`, notOfThatType],
    [`'A', 'quote', 0, 'NaN'`, notOfThatType],
    [`'A', 'quote', 0, 0, '{'`, notOfThatType],
    [`'A', 'quote', 0, 0, '"\\u0000"'`, { sqlState: '22P05' }],
    [`'A', 'quote', 0, 0, null, 'NaN'`, { sqlState: '22007' }],
  ],
  queue_refreshes: [
    [`null, '{A}'`, type],
    [`'', '{A}'`, type],
    [`'quote', null`, argument],
    [`'quote', '{}'`, answers()],
    [`'quote', '{A,NULL}'`, key],
    [`'quote', '{A,""}'`, key],
    [`'quote', array['A', ${long}]`, key],
    [`'quote', array['A', E'B\\r']`, key],
    [`'quote', array_fill('A'::text, array[100001])`, argument],
    [`'quote', '{A}', null`, argument],
    [`'quote', '{A}', -2147483648`, argument],
    [`'quote', '{A}', 0, -9223372036854775808`, argument],
    [`'quote', '{A}', 0, 0, null, null, null`, argument],
    [`'quote', '{A'`, notOfThatType],
  ],
  get_queue_batch: [
    ['null', argument],
    ['0', argument],
    ['-1', argument],
    ['10001', argument],
    ['2147483647', argument],
    [`10, '{}'`, answers([])],
    [`10, '{nobody}'`, source],
    [`10, '{market,NULL}'`, source],
    [`10, '{""}'`, source],
    [`10, array[${long}]`, source],
    [`10, array['''; drop schema pgfresh cascade; --']`, source],
    [`10, null, '{}'`, answers([])],
    [`10, null, '{nothing}'`, type],
    [`10, null, array[E'quote\\n']`, type],
    [`10, null, null, -1`, argument],
    [`10, null, null, -9223372036854775808`, argument],
    [`10, null, null, null, ''`, argument],
    [`10, null, null, null, ${long}`, argument],
    [`10, null, null, null, E'etl\\x7f'`, argument],
  ],
  claim_next_pending_job: [
    [`''`, argument],
    [long, argument],
    [`E'etl\\n'`, argument],
    [`null, '{}'`, answers(null)],
    [`null, '{nobody}'`, source],
    [`null, array[null]`, source],
    [`null, array[${long}]`, source],
    [`null, null, '{}'`, answers(null)],
    [`null, null, '{nothing}'`, type],
    [`null, null, array['quote', '']`, type],
    [`null, 'market'`, notOfThatType],
  ],
  claim_jobs: [
    [`0, gen_random_uuid(), 10`, lease],
    [`-1, gen_random_uuid(), 10`, lease],
    [`9223372036854775807, gen_random_uuid(), 10`, lease],
    [`:worker, null, 10`, argument],
    [`:worker, (select request from pgfresh_engine.claim limit 1), 10`, argument],
    [`:worker, gen_random_uuid(), null`, argument],
    [`:worker, gen_random_uuid(), 0`, argument],
    [`:worker, gen_random_uuid(), 10001`, argument],
    [`:worker, gen_random_uuid(), 10, null, null, -1`, argument],
    [`null, gen_random_uuid(), 10, '{}'`, answers()],
    [`null, gen_random_uuid(), 10, '{-1,0,NULL}'`, answers()],
    [`null, gen_random_uuid(), 10, null, '{}'`, answers()],
    [`null, gen_random_uuid(), 10, null, '{-1,NULL}'`, answers()],
    [`:worker, gen_random_uuid(), 10, null, null, null, '{1}', '{1,0}', '{5}'`, argument],
    [`:worker, gen_random_uuid(), 10, null, null, null, '{1}', '{}', '{}'`, argument],
    [`:worker, gen_random_uuid(), 10, null, null, null, null, null, null`, argument],
    [`:worker, gen_random_uuid(), 10, null, null, null, '{1,1}', '{0,0}', '{1,1}'`, argument],
    [`null, gen_random_uuid(), 10, '{}', p_alone => null`, answers()],
    [`:worker, 'not a uuid', 10`, notOfThatType],
  ],
  heartbeat_jobs: [
    ['null', argument],
    [`array_fill(1::bigint, array[10001])`, argument],
    [`array[:running], '{}'`, argument],
    [`array[:running], '{1,2}'`, argument],
    [`'{}'`, answers([])],
    [`'{-1,0,NULL,9223372036854775807}'`, answers([])],
    [`array[:waiting]`, answers([])],
    [`array[:running], array[:attempt + 1]`, answers([])],
    [`array[:running], '{-1}'`, answers([])],
    [`'{NaN}'`, notOfThatType],
  ],
  complete_queue_job: [
    ['null, 0', argument],
    ['0, 0', argument],
    ['-1, 0', argument],
    ['9223372036854775807, 0', answers(false)],
    [':waiting, 0', answers(false)],
    [':running, null', argument],
    [':running, -1', argument],
    [':running, 1000000000000001', argument],
    [':running, 0, :attempt + 1', answers(false)],
    [':running, 0, 0', answers(false)],
    [':running, 0, -1', answers(false)],
    [':running, 0, :attempt, null', argument],
    [`:running, 0, :attempt, ''`, argument],
    [`:running, 0, :attempt, ${long}`, argument],
    [`:running, 0, :attempt, E'fre\\nsh'`, argument],
    [`:running, 0, :attempt, '''; --'`, argument],
    [`:running, 'NaN'`, notOfThatType],
  ],
  complete_jobs: [
    [`null, '{}', '{}'`, argument],
    [`'{}', null, '{}'`, argument],
    [`'{}', '{}', null`, argument],
    [`'{}', '{}', '{}'`, answers([])],
    [`array[:running], '{}', '{0}'`, argument],
    [`array[:running], array[:attempt], '{0,0}'`, argument],
    [`array[:running, null], array[:attempt, 1], '{0,0}'`, argument],
    [`array[:running], '{NULL}', '{0}'`, argument],
    [`array[:running], array[:attempt], '{NULL}'`, argument],
    [`array[:running], array[:attempt], '{-1}'`, argument],
    [`array[:running], array[:attempt], '{1000000000000001}'`, argument],
    [`array[:running, :running], array[:attempt, :attempt], '{1,2}'`, argument],
    [`array[:running, :running - 1], array[0, 1048576 + :attempt], '{0,0}'`, argument],
    [`array[:running], '{-1}', '{0}'`, argument],
    [`array[:running], array[:attempt + 1], '{0}'`, answers([])],
    [`array[:waiting], '{0}', '{0}'`, answers([])],
    [`'{-1}', '{1}', '{0}'`, argument],
    [`'{9223372036854775807}', '{1}', '{0}'`, argument],
    [`array[:running, :metered], array[:attempt, 1], '{0,0}'`, argument],
    [`array_fill(1::bigint, array[10001]), array_fill(1, array[10001]), array_fill(0::bigint, array[10001])`, argument],
    [`array[:running], array[:attempt], '{0}', '{NULL}'`, argument],
    [`array[:running], array[:attempt], '{0}', '{}'`, argument],
    [`array[:running], array[:attempt], '{0}', '{fresh,fresh}'`, argument],
    [`array[:running], array[:attempt], '{0}', '{""}'`, argument],
    [`array[:running], array[:attempt], '{0}', array[${long}]`, argument],
    [`array[:running], array[:attempt], '{0}', array[E'fre\\nsh']`, argument],
    [`array[:running], array[:attempt], '{0}', null, '{}'`, argument],
    [`array[:running], array[:attempt], '{0}', null, '{1,2}'`, argument],
    [`array[:running], array[:attempt], '{0}', null, '{-1}'`, argument],
    [`array[:running], array[:attempt], '{0}', null, '{NULL}'`, argument],
    [`array[:running], array[:attempt], '{0}', null, '{1000001}'`, argument],
    ...misnamed.map(
      (claims) => [`array[:running], array[:attempt], '{0}', p_requests => ${claims}`, argument] as const,
    ),
    [`array[:running], array[:attempt], '{0}', p_requests => array[gen_random_uuid()]`, answers([])],
    ...['p_fetch_ms', 'p_validate_ms', 'p_commit_ms'].flatMap((time) =>
      [`'{}'`, `'{1,2}'`, `'{-1}'`].map(
        (value) => [`array[:running], array[:attempt], '{0}', ${time} => ${value}`, argument] as const,
      ),
    ),
  ],
  fail_queue_job: [
    [`null, 'down'`, argument],
    [`-1, 'down'`, argument],
    [`9223372036854775807, 'down'`, answers(null)],
    [`:waiting, 'down'`, answers(null)],
    [`:running, null`, argument],
    [`:running, ''`, argument],
    [`:running, 'down', :attempt + 1`, answers(null)],
    [`:running, 'down', -1`, answers(null)],
    [`:running, 'down', :attempt, null`, argument],
    [`:running, 'down', :attempt, false, null`, argument],
    [`:running, 'down', :attempt, false, -1`, argument],
    [`:running, 'down', :attempt, false, 1000000000000001`, argument],
    [`:running, 'down', :attempt, false, 0, ''`, argument],
    [`:running, 'down', :attempt, false, 0, ${long}`, argument],
    [`:running, 'down', :attempt, false, 0, E'a\\nb'`, argument],
    [`:running, 'down', :attempt, 'perhaps'`, notOfThatType],
  ],
  reset_job_immediate: [
    ['null', argument],
    ['0', argument],
    ['-1', argument],
    ['9223372036854775807', answers(false)],
    [':waiting', answers(false)],
    [':running, :attempt + 1', answers(false)],
    [':running, -1', answers(false)],
  ],
  fail_jobs: [...badEnds, [end(`"permanent": "perhaps"`), notOfThatType], [end(`"counts": 7.5`), notOfThatType]],
  put_back_jobs: [...badEnds, [`${end()}, null`, argument], [`${end()}, 'perhaps'`, notOfThatType]],
  cancel_queue_jobs: [
    ['', argument],
    ['null, null, null, null, null', argument],
    [`'{}'`, answers(0)],
    [`'{NULL,-1,0,9223372036854775807}'`, answers(0)],
    [`null, ''`, type],
    [`null, 'nothing'`, type],
    [`null, null, 'nobody'`, source],
    [`null, null, ${long}`, source],
    [`null, null, null, 'succeeded'`, argument],
    [`null, null, null, ''`, argument],
    [`null, null, null, ${long}`, argument],
    [`null, null, null, null, ''`, key],
    [`null, null, null, null, ${long}`, key],
    [`null, null, null, null, E'A\\n'`, key],
    [`null, null, null, null, 'never asked for'`, answers(0)],
    [`null, null, null, null, '%'`, answers(0)],
    [`array[:running], null, null, null, null, null`, argument],
  ],
  retry_failed_jobs: [
    ['', argument],
    ['null, null, null, null', argument],
    [`'{}'`, answers(0)],
    [`'{NULL,-1,0,9223372036854775807}'`, answers(0)],
    [`array[:running]`, answers(0)],
    [`null, 'nothing'`, type],
    [`null, null, ''`, source],
    [`null, null, null, 'infinity'`, answers(0)],
    [`null, null, null, 'NaN'`, { sqlState: '22007' }],
    [`null, 'quote', null, null, null`, argument],
  ],
  register_process: [
    [`'worker', null`, argument],
    [`'worker', ''`, argument],
    [`'worker', ${long}`, argument],
    [`'worker', E'a\\nb'`, argument],
    [`'worker', U&'a\\0085b'`, argument],
    [`null, 'a'`, argument],
    [`'planner', 'a'`, argument],
    [`'worker', 'a', ''`, argument],
    [`'worker', 'a', ${long}`, argument],
    [`'worker', 'a', '1', null`, argument],
    [`'worker', 'a', '1', 0`, argument],
    [`'worker', 'a', '1', 1, 'me'`, notOfThatType],
  ],
  heartbeat_process: [
    ['null', answers({ alive: false })],
    ['9223372036854775808', { sqlState: '42883' }],
    [`null, '{}'`, answers({ alive: false })],
    [`-1, '{}'`, answers({ alive: false })],
    [`9223372036854775807, '{}'`, answers({ alive: false })],
    [`:worker, null`, argument],
    [`:worker, '{NULL}'`, argument],
    [`:worker, '{not a uuid}'`, notOfThatType],
  ],
  retire_process: [
    ['null', answers(0)],
    ['-1', answers(0)],
    ['9223372036854775807', answers(0)],
  ],
  recover_stuck_jobs: [
    ['null', argument],
    [`'0 seconds'`, argument],
    [`'-1 minute'`, argument],
    [`'2 days'`, argument],
    [`'90 seconds', null`, argument],
    [`'90 seconds', 0`, argument],
    [`'90 seconds', -1`, argument],
    [`'90 seconds', 2147483647`, argument],
    [`'NaN'`, { sqlState: '22007' }],
  ],
  is_quota_exceeded: [
    ['null', source],
    [`''`, source],
    [`'nobody'`, source],
    [`'MARKET'`, source],
    [`E'market\\n'`, source],
    [long, source],
    [`'''; drop schema pgfresh cascade; --'`, source],
  ],
  count_calls: [
    ['null, 1, 1', source],
    ['-1, 1, 1', source],
    ['2147483647, 1, 1', source],
    ['1, null, 1', argument],
    ['1, -1, 1', argument],
    ['1, 1000001, 1', argument],
    ['1, 1, null', argument],
    ['1, 1, -1', argument],
    ['1, 1, 9223372036854775807', argument],
  ],
  take_call: [
    ['null', source],
    ['0', source],
    ['-1', source],
    ['2147483647', source],
    ['1, 0::smallint', argument],
    ['1, -1::smallint', argument],
    ['1, 2::smallint', argument],
    ['1, 32767::smallint', argument],
    [`1, '32768'`, { sqlState: '22003' }],
  ],
  hold_source: [
    [`null, 'infinity', 'asked'`, source],
    [`0, 'infinity', 'asked'`, source],
    [`2147483647, 'infinity', 'asked'`, source],
    [`1, 'infinity', null`, argument],
    [`1, 'infinity', ''`, argument],
    [`1, 'infinity', ${long}`, argument],
    [`1, '-infinity', 'asked'`, answers(null)],
    [`1, 'NaN', 'asked'`, { sqlState: '22007' }],
  ],
  pause_source: [
    ['null', source],
    [`''`, source],
    [`'nobody'`, source],
    [long, source],
    [`'market', null`, argument],
    [`'market', '-infinity'`, argument],
    [`'market', '2020-01-01'`, argument],
    [`'market', 'infinity', null`, argument],
    [`'market', 'infinity', ''`, argument],
    [`'market', 'infinity', ${long}`, argument],
  ],
  resume_source: [
    ['null', source],
    [`''`, source],
    [`'nobody'`, source],
    [long, source],
    [`'market'`, answers(false)],
  ],
  override_source: [
    [`null, 'rate_limit_per_minute', '1', 'why'`, source],
    [`'nobody', 'rate_limit_per_minute', '1', 'why'`, source],
    [`'market', null, '1', 'why'`, argument],
    [`'market', 'name', 'other', 'why'`, argument],
    [`'market', 'paused_until', 'infinity', 'why'`, argument],
    [`'market', 'id; drop table pgfresh_engine.job', '1', 'why'`, argument],
    [`'market', 'rate_limit_per_minute', '0', 'why'`, registry],
    [`'market', 'rate_limit_per_minute', 'many', 'why'`, argument],
    [`'market', 'rate_limit_per_minute', '99999999999', 'why'`, argument],
    [`'market', 'quota_window', null, 'why'`, registry],
    [`'market', 'quota_window', '100000 years', 'why'`, registry],
    [`'market', 'breaker_failures', '101', 'why'`, argument],
    [`'market', 'rate_limit_per_minute', '1', null`, argument],
    [`'market', 'rate_limit_per_minute', '1', ''`, argument],
    [`'market', 'rate_limit_per_minute', '1', ${long}`, argument],
  ],
  clear_source_override: [
    ['null', source],
    [`'nobody'`, source],
    [`'market', 'name'`, argument],
    [`'market', ''`, argument],
  ],
  maintain_queue_partitions: [
    ['null', argument],
    ['0', argument],
    ['-1', argument],
    ['3651', argument],
    ['2147483647', argument],
    ['7, null', argument],
    ['7, 0', argument],
    ['7, -2147483648', argument],
  ],
};

/** Rows that the tables do not take, with the SQLSTATE by which PostgreSQL says so. */
const rows: readonly (readonly [string, string])[] = [
  ...[
    'null',
    `''`,
    `'Market'`,
    `'1market'`,
    `'-market'`,
    `'märkt'`,
    `'mar ket'`,
    `E'stocks\\n'`,
    `'a''b'`,
    long,
  ].flatMap((name): [string, string][] => {
    const state = 'PGF_REGISTRY_INVALID';
    return [
      [`insert into pgfresh.sources (name) values (${name})`, state],
      [
        `insert into pgfresh.data_type_registry (data_type, source, ${mirror.columns}) values (${name}, 'market', ${mirror.values})`,
        state,
      ],
    ];
  }),
  [`insert into pgfresh.sources (name) values ('market')`, '23505'],
  ...Object.entries({
    name: ['null'],
    enabled: ['null'],
    rate_limit_per_minute: ['0', '-1', '100001'],
    api_keys: ['null', '0', '-1', '101'],
    viewed_share: ['null', '-0.1', '1', `'NaN'`, `'Infinity'`],
    max_concurrency: ['0', '-1'],
    one_key_at_a_time: ['null'],
    paused_by: [`'nobody'`],
    quota_bytes: ['0', '-1', '-9223372036854775808'],
    quota_window: ['null', `'0'`, `'59 minutes'`, `'-30 days'`, `'367 days'`, `'100000 years'`],
    quota_buffer: ['null', '0', '-0.5', '1.01', `'NaN'`, `'Infinity'`],
    failure_streak: ['null', '-1'],
  }).flatMap(([column, values]) =>
    values.map((value): [string, string] => [
      `update pgfresh.sources set ${column} = ${value} where name = 'metered'`,
      // What pgfresh itself writes all the time is left to the table.
      ['paused_by', 'failure_streak'].includes(column)
        ? value === 'null'
          ? '23502'
          : '23514'
        : 'PGF_REGISTRY_INVALID',
    ]),
  ),
  [`delete from pgfresh.sources where name = 'market'`, 'PGF_REGISTRY_INVALID'],
  [
    `insert into pgfresh.data_type_registry (data_type, source, ${mirror.columns}) values ('quote', 'market', ${mirror.values})`,
    '23505',
  ],
  [
    `insert into pgfresh.data_type_registry (data_type, source, ${mirror.columns}) values ('news', 'nobody', ${mirror.values})`,
    'PGF_REGISTRY_INVALID',
  ],
  ...Object.entries({
    ttl: ['null', `'0'`, `'-1 second'`, `'100000 years'`],
    estimated_data_size_bytes: ['null', '-1', '1000000000000001'],
    max_retries: ['null', '-1', '101'],
    max_run: ['null', `'0'`, `'-1 second'`, `'31 days'`, `'100000 years'`],
  }).flatMap(([column, values]) =>
    values.map((value): [string, string] => [
      `update pgfresh.data_type_registry set ${column} = ${value} where data_type = 'quote'`,
      'PGF_REGISTRY_INVALID',
    ]),
  ),
];

let scene: QueueScene;
let names: Record<string, number>;

beforeAll(async () => {
  scene = await QueueScene.open();
  const clock = await freezeClock(scene.db);
  const worker = await scene.register();
  await scene.source('metered', { quotaBytes: 1_000_000 });
  await scene.type('filing', 'metered', 100);
  await scene.queue.enqueueMany(scene.db, 'quote', ['done', 'fails', 'retries', 'runs']);
  await scene.queue.enqueue(scene.db, 'filing', 'runs');
  const jobs = Object.fromEntries((await scene.claim()).map((job) => [`${job.key} ${job.estimatedBytes}`, job]));
  await scene.complete([jobs['done 0']!]);
  await scene.queue.fail(scene.db, [{ ...jobs['fails 0']!, bytes: 0 }], { permanent: true, error: 'gone' });
  await scene.queue.fail(scene.db, [{ ...jobs['retries 0']!, bytes: 0 }], { error: 'slow' });
  // Its delay is drawn at random; it must not be over when a claim is tried below.
  await scene.db.query(`update pgfresh_engine.job set run_at = '2026-03-01' where state = 'w'`);
  const waiting = await scene.queue.enqueue(scene.db, 'quote', 'waits', { runAt: new Date('2026-02-01') });
  await scene.queue.enqueue(scene.db, 'quote', 'ready');
  // Old enough for a heartbeat to put back what its worker does not know of.
  await clock.advance('10 seconds');
  const running = jobs['runs 0']!;
  names = {
    running: running.id,
    attempt: running.attempt,
    metered: jobs['runs 100']!.id,
    waiting: waiting.jobId,
    worker,
  };
});

describe.each(Object.entries(cases))('%s', (name, calls) => {
  it.each(calls)('(%s)', async (args, expected) => {
    const given = args.replaceAll(/(?<!:):([a-z]+)/g, (_, word: string) => String(names[word]));
    const call = () =>
      scene.db.query<{ answer: unknown }>(
        `select coalesce(json_agg(answer), '[]') as answer from ${inSchema(name)}(${given}) as answer`,
      );
    await expectNoChange(scene.db, async () => {
      if ('answers' in expected) expect((await call())[0]!.answer).toEqual(expected.answers);
      else if ('sqlState' in expected) await expect(call()).rejects.toMatchObject({ code: expected.sqlState });
      else await expectRefusal(call(), expected.refuses);
    });
  });
});

it('knows every function that users call', () => {
  expect(Object.keys(cases).toSorted()).toEqual(
    [...queueFunctions, ...sourceFunctions].filter((name) => name !== 'clock').toSorted(),
  );
});

describe('rows that people write', () => {
  const correction = (columns: string, values: string) =>
    `insert into pgfresh.usage_corrections (${columns}) values (${values})`;
  const stop = (reason: string) => `insert into pgfresh.spending_stop (reason) values (${reason})`;
  it.each([
    [correction('source, bytes, reason', `null, 1, 'invoice'`), source],
    [correction('source, bytes, reason', `'nobody', 1, 'invoice'`), source],
    [correction('source, bytes, reason', `'market', null, 'invoice'`), argument],
    [correction('source, bytes, reason', `'market', 0, 'invoice'`), argument],
    [correction('source, bytes, reason', `'market', 1000000000000001, 'invoice'`), argument],
    [correction('source, bytes, reason', `'market', -1000000000000001, 'invoice'`), argument],
    [correction('source, bytes, reason', `'market', 'Infinity', 'invoice'`), notOfThatType],
    [correction('source, bytes, reason', `'market', 1, null`), argument],
    [correction('source, bytes, reason', `'market', 1, ''`), argument],
    [correction('source, bytes, reason', `'market', 1, ${long}`), argument],
    [correction('source, bytes, provider_bytes, reason', `'market', 1, 1, 'both'`), argument],
    [correction('source, provider_bytes, reason', `'market', -1, 'invoice'`), argument],
    [correction('source, provider_bytes, reason', `'market', 1000000000000001, 'invoice'`), argument],
    [correction('source, provider_bytes, since, reason', `'market', 1, 'infinity', 'invoice'`), argument],
    [correction('source, provider_bytes, since, reason', `'market', 1, '-infinity', 'invoice'`), argument],
    [correction('source, provider_bytes, since, reason', `'market', 1, '2020-01-01', 'invoice'`), argument],
    [stop('null'), argument],
    [stop(`''`), argument],
    [stop(long), argument],
  ])('%s', async (statement, expected) => {
    await expectNoChange(scene.db, async () => {
      const done = scene.db.query(statement);
      if ('refuses' in expected) await expectRefusal(done, expected.refuses);
      else await expect(done).rejects.toMatchObject({ code: notOfThatType.sqlState });
    });
  });
});

it.each(rows)('%s', async (statement, sqlState) => {
  await expectNoChange(scene.db, async () => {
    await expect(scene.db.query(statement)).rejects.toMatchObject({ code: sqlState });
  });
});

it.each([
  ['a key', `select pgfresh.queue_refresh_if_not_exists($1::text, 'quote')`],
  ['a data type', `select pgfresh.queue_refresh_if_not_exists('A', $1::text)`],
  ['the name of a worker', `select pgfresh_engine.register_process('worker', $1::text)`],
  ['a source', 'select pgfresh.is_quota_exceeded($1::text)'],
])('%s with a zero character never reaches a function', async (_, statement) => {
  const session = await openSession(scene.url);
  await expectNoChange(scene.db, async () => {
    await expect(session.query(statement, ['A\u0000B'])).rejects.toMatchObject({ code: '22021' });
  });
});

it('takes quotes, backslashes and other alphabets in a key as they are', async () => {
  for (const odd of [`O'Neil`, `a"b`, 'a\\b', '$1', '%s', '日経', '🪙', ' ']) {
    const { result } = await scene.queue.enqueue(scene.db, 'quote', odd);
    expect(result).toBe('queued');
    expect(await scene.value('(select count(*)::int from pgfresh_engine.open_jobs where key = $1::text)', [odd])).toBe(
      1,
    );
  }
});

it('takes a time in the past as now', async () => {
  const answer = await scene.value<{ job_id: number; result: string }>(
    `pgfresh.queue_refresh_if_not_exists('past', 'quote', p_run_at => '-infinity')`,
  );
  expect(answer.result).toBe('queued');
  expect(await scene.job(answer.job_id)).toMatchObject({ status: 'pending', next_retry_at: null });
});
