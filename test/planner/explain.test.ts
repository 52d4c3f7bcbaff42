import { expect, test } from 'vitest';
import { explainPair, reasons, type Explanation, type Reason } from '../../src/planner/index.ts';
import { runCommand } from '../harness/command-line.ts';
import { temporaryFolder } from '../harness/folder.ts';
import { PlannerScene } from './scene.ts';

interface Situation {
  readonly make: (scene: PlannerScene) => Promise<unknown>;
  readonly says: RegExp;
  readonly also?: object;
}

/** Each reason, with the situation made for real. The pair is (quote, A); somebody looks at it unless said otherwise. */
const situations: Readonly<Record<Reason, Situation>> = {
  retry: {
    make: async (scene) => {
      await viewed(scene);
      const { id } = await scene.queue.claimOne();
      await scene.db.query(`select pgfresh.fail_queue_job($1::bigint, 'status 503')`, [id]);
      await scene.db.query(`update pgfresh_engine.job set run_at = pgfresh.clock() + interval '10 seconds'`);
    },
    says: /^It failed and is tried again in 10 s: status 503$/,
    also: { job: { status: 'retryable', error: 'status 503' } },
  },
  queued: {
    make: async (scene) => {
      await scene.look('quote', ['B'], 9);
      await viewed(scene);
    },
    says: /at place 2 of its source/,
    also: { job: { place: 2, priority: 1 }, viewers: 1, viewers_by: { heartbeat: 1, gateway: 0 } },
  },
  no_worker: {
    make: async (scene) => {
      await viewed(scene);
      await scene.db.query(`update pgfresh_engine.process set lease_until = '-infinity' where kind = 'worker'`);
    },
    says: /^No worker is running: start one with "pgfresh run --roles worker"\.$/,
    also: { job: { status: 'pending' } },
  },
  unresolved: {
    make: async (scene) => {
      await scene.look('quote', ['A']);
      await scene.db.query('drop table quote');
    },
    says: /there is no table public\.quote\. Create it, or correct table_name\./,
    also: { state: 'missing', activity: 'waiting' },
  },
  quarantined: {
    make: async (scene) => {
      await scene.rows('quote', ['A'], '1 hour');
      await scene.look('quote', ['A']);
      await scene.db.query(
        `select pgfresh_engine.note_type_timeout(type_id, 'tick', 'no answer') from pgfresh.data_type_registry, generate_series(1, 2)`,
      );
      await scene.tick();
      await scene.clock.advance('3 seconds');
    },
    says: /^quote has not answered in time 2 times, last 3 s ago \(tick: no answer\); it is probed every second\.$/,
    also: { state: 'missing', activity: 'waiting' },
  },
  refused: {
    make: async (scene) => {
      await scene.rows('quote', ['A'], '1 hour');
      await viewed(scene);
      await scene.finish('failed');
    },
    says: /^The last outcome was failed; it is not asked for again before 60 s have passed\.$/,
    also: { state: 'stale', failures_in_a_row: 1, outcomes: [{ outcome: 'failed', error: 'no' }] },
  },
  paused: {
    make: async (scene) => {
      await viewed(scene);
      await scene.db.query('update pgfresh.sources set enabled = false');
    },
    says: /^The source market is switched off\.$/,
  },
  stopped: {
    make: async (scene) => {
      await viewed(scene);
      await scene.db.query(`insert into pgfresh.spending_stop (reason) values ('the bill is too high')`);
      await scene.clock.advance('3 seconds');
    },
    says: /^Spending was stopped 3 s ago: the bill is too high$/,
  },
  breaker: {
    make: async (scene) => {
      await scene.look('quote', ['B', 'C', 'D', 'E', 'F']);
      await scene.tick();
      for (const { id } of await scene.queue.claim())
        await scene.db.query(`select pgfresh.fail_queue_job($1::bigint, 'status 503')`, [id]);
      await scene.clock.advance('1 minute');
      await viewed(scene);
    },
    says: /^The source market failed too often and is left alone for 4 min more\.$/,
    also: { job: null },
  },
  rate: {
    make: async (scene) => {
      await scene.db.query('delete from pgfresh.data_type_registry');
      await scene.queue.source('rated', { rate: 2 });
      await scene.type('quote', { source: 'rated' });
      await scene.look('quote', ['B', 'C'], 2);
      await viewed(scene);
      await scene.queue.claim({ limit: 2 });
      await scene.clock.advance('50 seconds');
    },
    says: /^The source rated may be called 2 times a minute, spread over it, and the next call is free in 12 s\.$/,
    also: { job: { status: 'pending' } },
  },
  quota: {
    make: async (scene) => {
      await scene.db.query('update pgfresh.sources set quota_bytes = 1000');
      await scene.db.query(
        `insert into pgfresh.usage_corrections (source, bytes, reason) values ('market', 950, 'the provider says so')`,
      );
      await viewed(scene);
    },
    says: /^The bytes that the source market may use now are used up; there are more in /,
  },
  concurrency: {
    make: async (scene) => {
      await scene.db.query('update pgfresh.sources set max_concurrency = 2');
      await scene.look('quote', ['B', 'C'], 2);
      await viewed(scene);
      await scene.queue.claim({ limit: 5 });
    },
    says: /^The source market takes 2 jobs at a time, and as many run\.$/,
    also: { job: { status: 'pending' } },
  },
  same_key: {
    make: async (scene) => {
      await scene.db.query('update pgfresh.sources set one_key_at_a_time = true');
      await scene.type('profile');
      await scene.look('profile', ['A'], 2);
      await scene.tick();
      await scene.queue.claim();
      await viewed(scene);
      await scene.clock.advance('3 seconds');
    },
    says: /^A worker has been fetching the profile of the same key for 3 s, and the source market takes one job per key at a time\.$/,
    also: { job: { status: 'pending' } },
  },
  gate: {
    make: async (scene) => {
      await scene.db.query(
        `create function closed(text, text) returns boolean language sql as 'select false';
         create function opens(text, text) returns timestamptz language sql as $$ select timestamptz '2026-01-05 15:00Z' $$;
         update pgfresh.data_type_registry set gate_function = 'closed', gate_opens_function = 'opens'`,
      );
      await scene.rows('quote', ['A'], '1 hour');
      await viewed(scene);
    },
    says: /^The gate closed is closed, and opens in 3 h\.$/,
  },
  dependency: {
    make: async (scene) => {
      await scene.type('profile');
      await scene.db.query(`update pgfresh.data_type_registry set depends_on = '{profile}' where data_type = 'quote'`);
      await viewed(scene);
    },
    says: /^It needs the profile of the same key first: it has waited in the queue for less than a second, at place 1 of its source\.$/,
    also: { needs: 'profile' },
  },
  due: {
    make: async (scene) => {
      await scene.rows('quote', ['A']);
      await viewed(scene);
      await scene.clock.advance('1 minute');
    },
    says: /^It will be queued by the planner's next tick\.$/,
    also: { state: 'stale' },
  },
};

/** Where it waits for nothing. */
const settled: Readonly<Record<string, Situation>> = {
  running: {
    make: async (scene) => {
      await viewed(scene);
      await scene.queue.claim();
      await scene.clock.advance('3 seconds');
    },
    says: /^A worker has been fetching it for 3 s, in attempt 1\.$/,
    also: { activity: 'refreshing', state: 'missing', job: { status: 'running', attempt: 1 } },
  },
  not_viewed: {
    make: async (scene) => scene.rows('quote', ['A'], '1 hour'),
    says: /^Nobody looks at it\.$/,
    also: { viewers: 0, state: 'stale', activity: 'idle' },
  },
  fresh: {
    make: async (scene) => {
      await scene.rows('quote', ['A'], '18 seconds');
      await viewed(scene);
    },
    says: /^It is fresh for 42 s more\.$/,
    also: {
      state: 'fresh',
      activity: 'idle',
      stale_at: expect.any(String) as string,
      age_seconds: 18,
      ttl_seconds: 60,
    },
  },
  schedule: {
    make: async (scene) => {
      await scene.db.query(`create table symbols (symbol text primary key); insert into symbols values ('A')`);
      await scene.db.query(
        `update pgfresh.data_type_registry set refresh_strategy = 'scheduled', refresh_schedule = '0 3 * * *', key_table = 'symbols', key_table_column = 'symbol'`,
      );
      await scene.rows('quote', ['A'], '1 hour');
      await viewed(scene);
    },
    says: /^It is refreshed by its schedule, 0 3 \* \* \* in UTC\.$/,
  },
  empty: {
    make: async (scene) => {
      await viewed(scene);
      await scene.finish('empty');
    },
    says: /^The source says that there is nothing; it is asked again in 60 s\.$/,
    also: { activity: 'idle', state: 'empty', job: null },
  },
};

async function viewed(scene: PlannerScene): Promise<void> {
  await scene.look('quote', ['A']);
  await scene.tick();
}

test.for(Object.keys(reasons) as Reason[])('%s', async (reason) => {
  const scene = await PlannerScene.open();
  await scene.type('quote');
  const { make, says, also = {} } = situations[reason];
  await make(scene);
  const explanation = await explainPair(scene.db, 'quote', 'A');
  expect(explanation.words).toMatch(says);
  expect(explanation).toMatchObject({ reason, activity: 'waiting', data_type: 'quote', key: 'A', ...also });
});

test('every reason that SQL gives has its sentence there, and is one of the known reasons', async () => {
  const scene = await PlannerScene.open();
  const [row] = await scene.db.query<{ text: string }>(
    `select string_agg(prosrc, '') as text from pg_proc
     where oid in ('pgfresh_engine.obstacles_of'::regproc, 'pgfresh_engine.explanation_of'::regproc)`,
  );
  const written = [...row!.text.matchAll(/row\('(\w+)'/g)].map(([, reason]) => reason);
  // A hold after an outcome has the reason that activity_of gives: retry or refused.
  expect(new Set([...written, 'refused'])).toEqual(new Set(Object.keys(reasons)));
});

test.for(Object.entries(settled))('%s waits for nothing', async ([, { make, says, also }]) => {
  const scene = await PlannerScene.open();
  await scene.type('quote');
  await make(scene);
  const explanation = await explainPair(scene.db, 'quote', 'A');
  expect(explanation.words).toMatch(says);
  expect(explanation).toMatchObject({ reason: null, obstacles: [], ...also });
});

test.for([
  [
    `select pgfresh.pause_source('market', p_reason => 'holiday')`,
    'paused',
    /^The source market is paused: holiday\.$/,
  ],
  [
    `select pgfresh_engine.hold_source(id, pgfresh.clock() + interval '30 seconds', 'Retry-After: 30') from pgfresh.sources`,
    'rate',
    /^The source market asked to be left alone for 30 s more: Retry-After: 30$/,
  ],
  [
    `update pgfresh.sources set breaker_opened_at = pgfresh.clock()`,
    'breaker',
    /^The source market failed and is tried with one job at a time, until one succeeds\.$/,
  ],
] as const)('after %s', async ([statement, reason, says]) => {
  const scene = await PlannerScene.open();
  await scene.type('quote');
  await viewed(scene);
  await scene.db.query(statement);
  const explanation = await explainPair(scene.db, 'quote', 'A');
  expect(explanation).toMatchObject({ reason, words: expect.stringMatching(says) as string });
});

test('pgfresh explain says it in words and as JSON, and refuses what is not there', async () => {
  const scene = await PlannerScene.open();
  await scene.type('quote');
  await viewed(scene);
  const cwd = await temporaryFolder('explain');
  const explain = (...args: string[]) =>
    runCommand(['explain', ...args], { cwd, env: { DATABASE_URL: scene.queue.url } });
  const words = await explain('quote', 'A');
  expect(words).toMatchObject({ code: 0, stderr: '' });
  expect(words.stdout).toMatch(/^quote A: It has waited in the queue for .*, at place 1 of its source\.\n/);
  expect(words.stdout).toMatch(/^viewers +1 \(1 by SQL, 0 through gateways\)$/m);
  const json = JSON.parse((await explain('quote', 'A', '--json')).stdout) as Explanation;
  expect(json).toMatchObject({ reason: 'queued', viewers: 1 });
  expect(await explain('qoute', 'A')).toMatchObject({
    code: 1,
    stderr: expect.stringMatching(
      /^PGF_TYPE_UNKNOWN There is no data type "qoute"; did you mean "quote"\?$/m,
    ) as string,
  });
  expect(await explain('quote', '')).toMatchObject({
    code: 1,
    stderr: expect.stringContaining('PGF_KEY_INVALID') as string,
  });
  expect(await explain('quote')).toMatchObject({ code: 2, stderr: expect.stringContaining('PGF_USAGE') as string });
});

const breaker = (kind: string) => `insert into pgfresh_engine.breaker (type_id, kind, streak, opened_at, paused_until)
  select type_id, '${kind}', '{}', pgfresh.clock(), pgfresh.clock() + interval '5 minutes' from pgfresh.data_type_registry`;

test.for([
  ['refused', 'The last answers for quote were refused; one is tried again in 5 min.'],
  ['older_source', 'The last answers for quote were older than what is here; one is tried again in 5 min.'],
] as const)(
  'truth 3: a data type that is paused because of its answers says so in a sentence: %s',
  async ([kind, words]) => {
    const scene = await PlannerScene.open();
    await scene.type('quote');
    await scene.db.query(breaker(kind));
    await viewed(scene);
    const pair = await explainPair(scene.db, 'quote', 'A');
    expect(pair).toMatchObject({ reason: 'paused', words });
    // The same time in both.
    expect(pair.due_at).toBe(pair.until);
  },
);

test('truth 3: after a 401 the only obstacle is the API key, and not a rate', async () => {
  const scene = await PlannerScene.open();
  await scene.type('quote');
  await scene.db.query('update pgfresh.sources set rate_limit_per_minute = 300');
  await scene.clock.advance('2 minutes');
  await viewed(scene);
  const { id, attempt } = await scene.queue.claimOne();
  await scene.db.query(
    `select pgfresh_engine.fail_jobs(jsonb_build_array(jsonb_build_object('id', $1::bigint, 'attempt', $2::int, 'bytes', 1,
      'outcome', 'unauthorized', 'error', 'HTTP 401')))`,
    [id, attempt],
  );
  const pair = await explainPair(scene.db, 'quote', 'A');
  expect(pair).toMatchObject({ reason: 'paused', obstacles: [], last_outcome: 'unauthorized' });
});

test('truth 13: a pair that needs another says what is the matter with that one, and until when', async () => {
  const scene = await PlannerScene.open();
  await scene.type('quote');
  await scene.type('profile', { ttl: '7 days' });
  await scene.db.query(`update pgfresh.data_type_registry set depends_on = '{profile}' where data_type = 'quote'`);
  await viewed(scene);
  await scene.finish('empty');
  await scene.tick();
  await scene.clock.advance('1 day');
  const needed = await explainPair(scene.db, 'profile', 'A');
  expect(needed).toMatchObject({ words: 'Nobody looks at it.', state: 'empty' });
  expect(await explainPair(scene.db, 'quote', 'A')).toMatchObject({
    reason: 'dependency',
    needs: 'profile',
    words:
      'It needs the profile of the same key first: the source says that there is nothing; it is asked again in 6 days.',
    until: needed.next_ask_at,
    due_at: needed.next_ask_at,
  });
});

test('truth 13: a pair whose prerequisite has failed says so, and when that one is asked for again', async () => {
  const scene = await PlannerScene.open();
  await scene.type('quote');
  await scene.type('profile', { ttl: '7 days' });
  await scene.db.query(`update pgfresh.data_type_registry set depends_on = '{profile}' where data_type = 'quote'`);
  await viewed(scene);
  await scene.finish('failed');
  await scene.tick();
  const needed = await explainPair(scene.db, 'profile', 'A');
  expect(await explainPair(scene.db, 'quote', 'A')).toMatchObject({
    reason: 'dependency',
    needs: 'profile',
    words:
      'It needs the profile of the same key first: the last outcome was failed; it is not asked for again before 24 h have passed.',
    until: needed.next_ask_at,
    due_at: needed.next_ask_at,
  });
});

test('truth 13: a stop has no end, so nothing is due; after a refresh the end of an old hold means nothing', async () => {
  const scene = await PlannerScene.open();
  await scene.type('quote', { ttl: '7 days' });
  await viewed(scene);
  await scene.finish('failed');
  await scene.clock.advance('1 second');
  await scene.queue.value(`pgfresh.queue_refresh_if_not_exists('A', 'quote')`);
  await scene.rows('quote', ['A']);
  const { id } = await scene.queue.claimOne();
  await scene.db.query(
    `select pgfresh_engine.complete_jobs(array[$1::bigint], array[1], array[1::bigint], p_row_at => array[pgfresh.clock()])`,
    [id],
  );
  const fresh = await explainPair(scene.db, 'quote', 'A');
  expect(fresh).toMatchObject({ state: 'fresh', words: 'It is fresh for 7 days more.' });
  expect(fresh.due_at).toBe(fresh.stale_at);
  await scene.db.query(`insert into pgfresh.spending_stop (reason) values ('the bill is too high')`);
  await scene.look('quote', ['B']);
  await scene.tick();
  expect(await explainPair(scene.db, 'quote', 'B')).toMatchObject({ reason: 'stopped', due_at: null });
});

test('truth 26: the last outcome is that of the last attempt, also of a job that is tried again', async () => {
  const scene = await PlannerScene.open();
  await scene.type('quote');
  await viewed(scene);
  await scene.rows('quote', ['A']);
  await scene.finish('fresh');
  const succeeded = await explainPair(scene.db, 'quote', 'A');
  expect(succeeded).toMatchObject({ last_outcome: 'fresh', last_outcome_at: succeeded.last_success_at });
  await scene.clock.advance('1 minute');
  await scene.tick();
  const { id } = await scene.queue.claimOne();
  await scene.db.query(`select pgfresh.fail_queue_job($1::bigint, 'status 503', null, false, 0, 'http_5xx')`, [id]);
  const retried = await explainPair(scene.db, 'quote', 'A');
  expect(retried).toMatchObject({
    last_outcome: 'http_5xx',
    last_success_at: succeeded.last_success_at,
    outcomes: [{ outcome: 'http_5xx' }, { outcome: 'fresh' }],
  });
  expect(Date.parse(retried.last_outcome_at!) - Date.parse(retried.last_success_at!)).toBe(60_000);
});

test.for([false, true])(
  'truth 15: a pair for which there is nothing is good until the source is asked again; its row is kept: %s',
  async (isKept) => {
    const scene = await PlannerScene.open();
    await scene.type('quote');
    if (isKept) await scene.rows('quote', ['A'], '1 hour');
    await viewed(scene);
    await scene.finish('empty');
    const pair = await explainPair(scene.db, 'quote', 'A');
    expect(pair).toMatchObject({ state: 'empty', stale_at: pair.next_ask_at });
    const [read] = await scene.db.query<{ state: string; stale_at: Date }>(
      `select state, stale_at from pgfresh_engine.read_pairs((select type_id from pgfresh.data_type_registry), '{A}')`,
    );
    expect([read!.state, read!.stale_at.getTime()]).toEqual(['empty', Date.parse(pair.next_ask_at!)]);
  },
);
