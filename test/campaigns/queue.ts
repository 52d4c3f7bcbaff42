import { randomUUID } from 'node:crypto';
import { Database, failureOf, type Queryable } from '../../src/database/index.ts';
import { PgfreshError } from '../../src/errors/index.ts';
import { Events } from '../../src/events/index.ts';
import { Queue } from '../../src/queue/index.ts';
import { freezeClock } from '../harness/clock.ts';
import { mirror } from '../harness/mirror.ts';
import { seededRandom } from '../harness/random.ts';
import type { Campaign } from './campaign.ts';

const connections = 8;
const stepsBetweenChecks = 500;

/**
 * Eight connections that do everything that can be done to a queue, at random, to the same few pairs. Every so many steps
 * they pause, and what the database holds must be what the answers to the steps add up to.
 */
export const queue: Campaign = {
  about: 'everything that can be done to the queue, from eight connections at random',
  steps: 1_000_000,
  testSteps: 10_000,
  mustMeet: ['queued', 'claimed', 'ended', 'leases lost', 'late completions', 'calls of a rate', 'breakers opened'],
  async run({ url, seed, steps, progress }) {
    const database = new Database({
      url,
      events: new Events(),
      applicationName: 'pgfresh campaign',
      poolSize: connections,
      // A deadlock is a failure of the campaign, and nothing here may hide it by repeating.
    });
    try {
      const house = await House.build(database, seed);
      const lanes = Array.from(
        { length: connections },
        (_, lane) => new Lane(house, seededRandom(seed * 1_000 + lane)),
      );
      for (let done = 0; done < steps; done += stepsBetweenChecks) {
        let left = Math.min(stepsBetweenChecks, steps - done);
        await Promise.all(
          lanes.map(async (lane) => {
            while (left-- > 0) await lane.step();
          }),
        );
        await house.check(lanes);
        progress(done);
      }
      await house.drain(lanes);
      return house.tally;
    } finally {
      await database.close();
    }
  },
};

interface Token {
  readonly id: number;
  readonly attempt: number;
  readonly request: string;
  readonly type: number;
  readonly source: number;
  /** What the claim reserved; nothing for sources without a quota. */
  readonly reserved: number;
  readonly estimate: number;
}

/** Of two attempts of one job only the newer can still have been running. */
function newestOf<T extends Token>(ends: readonly T[], id: number): T {
  return ends.filter((end) => end.id === id).reduce((newest, end) => (end.attempt > newest.attempt ? end : newest));
}

const nameOf = ({ id, attempt }: Pick<Token, 'id' | 'attempt'>): string => `${id}/${attempt}`;

interface SourceSettings {
  readonly name: string;
  readonly quota?: number;
  readonly rate?: number;
  readonly apiKeys?: number;
  readonly concurrency?: number;
  readonly oneKey?: boolean;
}

const sources: readonly SourceSettings[] = [
  { name: 'free' },
  { name: 'wide', quota: 2_000_000 },
  { name: 'narrow', quota: 20_000 },
  { name: 'rated', rate: 60, apiKeys: 2 },
  { name: 'guarded', concurrency: 5, oneKey: true },
  // The only one whose failures its breaker counts.
  { name: 'shaky' },
];
const types = [
  { name: 'quote', source: 'free', bytes: 100 },
  { name: 'news', source: 'free', bytes: 0 },
  { name: 'page', source: 'wide', bytes: 500 },
  { name: 'book', source: 'narrow', bytes: 900 },
  { name: 'price', source: 'rated', bytes: 100 },
  { name: 'filing', source: 'guarded', bytes: 100 },
  { name: 'note', source: 'guarded', bytes: 100 },
  { name: 'rumour', source: 'shaky', bytes: 100 },
] as const;
/** How far apart two calls by one place in the rate must be allowed, so that they are a minute apart where they arrive. */
const slotMs = 62_000;

/** The database, and what must be in it according to everything that was answered so far. */
class House {
  readonly database: Database;
  readonly queue = new Queue();
  readonly random: () => number;
  readonly clock: Awaited<ReturnType<typeof freezeClock>>;
  readonly limited: ReadonlySet<number>;
  readonly freeSources: readonly number[];
  readonly shaky: number;
  readonly tally: Record<string, number> = {};
  /** Claimed and, as far as we know, not yet ended. */
  readonly held = new Map<string, Token>();
  /** Every token that was ever given out, and of each whether its end was confirmed. */
  readonly #tokens = new Map<string, 'claimed' | 'ended'>();
  /** Ids that enqueues returned and that were not yet seen in the history. */
  readonly #open = new Set<number>();
  readonly #settled = new Map<number, number>();
  /** By source and API key, until when each call had to be sent. */
  readonly #calls = new Map<string, number[]>();

  private constructor(
    database: Database,
    seed: number,
    clock: Awaited<ReturnType<typeof freezeClock>>,
    rows: readonly { id: number; limited: boolean }[],
  ) {
    this.database = database;
    this.random = seededRandom(seed);
    this.clock = clock;
    this.limited = new Set(rows.filter(({ limited }) => limited).map(({ id }) => id));
    this.freeSources = rows.filter(({ limited }) => !limited).map(({ id }) => id);
    this.shaky = rows.at(-1)!.id;
  }

  static async build(database: Database, seed: number): Promise<House> {
    const clock = await freezeClock(database);
    await database.query(mirror.table);
    for (const { name, quota, rate, apiKeys = 1, concurrency, oneKey = false } of sources) {
      await database.query(
        `insert into pgfresh.sources (name, quota_bytes, quota_window, rate_limit_per_minute, api_keys, max_concurrency, one_key_at_a_time)
         values ($1::text, $2::bigint, '1 hour', $3::int, $4::smallint, $5::int, $6::boolean)`,
        [name, quota, rate, apiKeys, concurrency, oneKey],
      );
    }
    for (const { name, source, bytes } of types) {
      await database.query(
        `insert into pgfresh.data_type_registry (data_type, source, estimated_data_size_bytes, max_run, ${mirror.columns})
         values ($1::text, $2::text, $3::bigint, '40 seconds', ${mirror.values})`,
        [name, source, bytes],
      );
    }
    await database.query('create table public.campaign_ended (id bigint primary key)');
    const rows = await database.query<{ id: number; limited: boolean }>(
      'select id, quota_bytes is not null as limited from pgfresh.sources order by id',
    );
    return new House(database, seed, clock, rows);
  }

  count(what: string, by = 1): void {
    this.tally[what] = (this.tally[what] ?? 0) + by;
  }

  queued(ids: readonly number[]): void {
    for (const id of ids) {
      must(!this.#open.has(id), `job ${id} was queued twice`);
      this.#open.add(id);
    }
    this.count('queued', ids.length);
  }

  claimed(tokens: readonly Token[]): void {
    for (const token of tokens) {
      must(!this.#tokens.has(nameOf(token)), `token ${nameOf(token)} was given out twice`);
      this.#tokens.set(nameOf(token), 'claimed');
      this.held.set(nameOf(token), token);
    }
    this.count('claimed', tokens.length);
  }

  /** An end was confirmed: it must be the only one of its token, and has cost so much. */
  ended(token: Token, bytes: number, how: string): void {
    must(this.#tokens.get(nameOf(token)) === 'claimed', `token ${nameOf(token)} was used twice`);
    this.#tokens.set(nameOf(token), 'ended');
    this.held.delete(nameOf(token));
    this.#settled.set(token.source, (this.#settled.get(token.source) ?? 0) + bytes);
    this.count(how);
  }

  called(source: number, apiKey: number, useBy: Date): void {
    const place = `${source} ${apiKey}`;
    const times = this.#calls.get(place) ?? [];
    times.push(useBy.getTime());
    this.#calls.set(place, times);
    this.count('calls of a rate');
  }

  spent(source: number, bytes: number): void {
    this.#settled.set(source, (this.#settled.get(source) ?? 0) + bytes);
  }

  /** With all lanes paused: the database holds what the answers said, and is consistent. */
  async check(lanes: readonly Lane[]): Promise<void> {
    await this.#findTakenBack();
    await this.#checkJobs();
    await this.#checkLedger();
    await this.#checkLimits();
    for (const lane of lanes) lane.forgetEnded();
    this.count('checks');
  }

  /** What is left can be worked to its end, as fast as the quotas allow. */
  async drain(lanes: readonly Lane[]): Promise<void> {
    for (let round = 0; round < 500; round++) {
      await this.clock.advance('5 minutes');
      await this.database.query('select pgfresh_engine.recover_silent_jobs(10000)');
      await Promise.all(lanes.map((lane) => lane.work()));
      const [row] = await this.database.query<{ open: number }>('select count(*)::int as open from pgfresh_engine.job');
      if (row!.open === 0) return this.check(lanes);
    }
    throw new Error('jobs are left that nobody can claim');
  }

  /** Tokens that no longer run although none of our ends was confirmed were lost or cancelled, at their whole reservation. */
  async #findTakenBack(): Promise<void> {
    const rows = await this.database.query<{ id: number; attempt: number }>(
      `select id, attempt from pgfresh_engine.job where state = 'x'`,
    );
    const running = new Set(rows.map(nameOf));
    for (const token of this.held.values()) {
      if (!running.has(nameOf(token))) this.ended(token, token.reserved, 'taken back');
    }
    must(running.size === this.held.size, `${running.size} jobs run, and ${this.held.size} are held`);
  }

  async #checkJobs(): Promise<void> {
    const pairs = await this.database.query(
      `select p.type_id, p.key, p.job_id, j.id from pgfresh_engine.pairs as p
       full join pgfresh_engine.job as j on j.id = p.job_id and j.type_id = p.type_id and j.key = p.key
       where (p.job_id is not null or j.id is not null) and (p.job_id is null or j.id is null)`,
    );
    must(pairs.length === 0, 'pairs and their open jobs differ', pairs);
    const twice = await this.database.query(
      'select type_id, key from pgfresh_engine.job group by type_id, key having count(*) > 1',
    );
    must(twice.length === 0, 'pairs with two open jobs', twice);
    const states = await this.database.query(
      `select * from pgfresh_engine.job where (state = 'x') <> (request is not null) or (state = 'x') <> (claimed_at is not null)
         or (state <> 'x' and reserved <> 0) or band <> pgfresh_engine.band_of(priority)`,
    );
    must(states.length === 0, 'jobs whose columns contradict their state', states);
    // Each ended job is in the history once, or the primary key refuses it.
    const ended = await this.database.transact('history', async (tx) => {
      const rows = await tx.query<{ id: number }>(
        `insert into public.campaign_ended (id)
         select id from pgfresh_engine.history_succeeded union all select id from pgfresh_engine.history_other returning id`,
      );
      await tx.query('truncate pgfresh_engine.history_succeeded, pgfresh_engine.history_other');
      return rows;
    });
    this.count('ended', ended.length);
    const both = await this.database.query('select id from pgfresh_engine.job join public.campaign_ended using (id)');
    must(both.length === 0, 'jobs that are open and in the history', both);
    for (const { id } of ended) this.#open.delete(id);
    const lost = await this.database.query(
      'select id from unnest($1::bigint[]) as queued(id) where not exists (select from pgfresh_engine.job where job.id = queued.id)',
      [[...this.#open]],
    );
    must(lost.length === 0, 'jobs that are neither open nor in the history', lost);
  }

  async #checkLimits(): Promise<void> {
    const rate = sources.find(({ name }) => name === 'rated')!.rate!;
    for (const [place, times] of this.#calls) {
      times.sort((a, b) => a - b);
      const tight = times.slice(rate).findIndex((time, index) => time - times[index]! < slotMs);
      must(tight < 0, `source and key ${place} may have been called more than ${rate} times in a minute`);
      // What is older cannot be in one window with what comes.
      this.#calls.set(place, times.slice(-rate));
    }
    // A claim that began before the opening of a breaker was committed may bear a time after it: the clock moves meanwhile,
    // by two seconds at most.
    const crowds = await this.database.query(
      `select s.name, count(*) from pgfresh_engine.job as j join pgfresh.sources as s on s.id = j.source_id
       where j.state = 'x' group by s.id having count(*) > s.max_concurrency or (s.one_key_at_a_time and count(*) > count(distinct j.key))
         or count(*) filter (where j.claimed_at > s.breaker_opened_at + interval '2 seconds') > 1`,
    );
    must(crowds.length === 0, 'sources with more running jobs than they allow', crowds);
    const opened = await this.database.query<{ count: number }>(
      `select count::int from pgfresh.warnings where code = 'breaker_opened'`,
    );
    if (opened.length > 0) this.tally['breakers opened'] = opened[0]!.count;
  }

  async #checkLedger(): Promise<void> {
    const rows = await this.database.query<{
      source: number;
      used: number;
      reserved: number | null;
      open: number;
      budget: { used: number; reserved: number; cap: number } | null;
    }>(
      `select s.id as source, (select coalesce(sum(bytes), 0)::bigint from pgfresh_engine.usage as u where u.source_id = s.id) as used,
         (select reserved from pgfresh_engine.source_state as t where t.source_id = s.id) as reserved,
         (select coalesce(sum(j.reserved), 0)::bigint from pgfresh_engine.job as j where j.source_id = s.id) as open,
         (select to_jsonb(b) from pgfresh_engine.source_budget(s.id) as b) as budget
       from pgfresh.sources as s`,
    );
    for (const { source, used, reserved, open, budget } of rows) {
      const settled = this.#settled.get(source) ?? 0;
      must(used === settled, `source ${source} has used ${used}, and the ends add up to ${settled}`);
      const held = [...this.held.values()].filter((token) => token.source === source);
      const expected = held.reduce((sum, token) => sum + token.reserved, 0);
      must(open === expected, `source ${source} has jobs with ${open} reserved, and the claims add up to ${expected}`);
      must((reserved ?? 0) === open, `source ${source} has ${reserved} reserved, its jobs ${open}`);
      if (budget) {
        must(budget.used + budget.reserved <= budget.cap, `source ${source} is over its quota`, [budget]);
        if (budget.used + budget.reserved > budget.cap * 0.9) this.count('checks near a cap');
      }
    }
  }
}

/** One connection, which is also one worker at a time. */
class Lane {
  readonly #house: House;
  readonly #random: () => number;
  #worker: number | undefined;
  #known = new Map<string, readonly string[]>();

  constructor(house: House, random: () => number) {
    this.#house = house;
    this.#random = random;
  }

  get #db(): Queryable {
    return this.#house.database;
  }

  async step(): Promise<void> {
    const kind = pick(this.#random, weights);
    this.#house.count(kind);
    try {
      await this.#acts[kind]();
    } catch (error) {
      // This worker's lease ended, because another lane moved the clock.
      const expected = error instanceof PgfreshError && error.code === 'PGF_LEASE_LOST';
      if (!expected) throw new Error(`${kind} failed (${failureOf(error)}): ${String(error)}`, { cause: error });
      this.#house.count('leases lost');
      this.#worker = undefined;
    }
  }

  /** Claims what can be claimed and completes it. */
  async work(): Promise<void> {
    await this.#beat();
    for (const token of await this.#claim(50, true)) await this.#complete([token]);
  }

  forgetEnded(): void {
    for (const [request, names] of this.#known) {
      if (!names.some((name) => this.#house.held.has(name))) this.#known.delete(request);
    }
  }

  readonly #acts: Record<keyof typeof weights, () => Promise<unknown>> = {
    enqueue: () => this.#enqueue(1),
    'enqueue a set': () => this.#enqueue(2 + this.#int(20)),
    claim: () => this.#claim(1 + this.#int(8), true),
    'claim, answer lost': () => this.#claim(1 + this.#int(3), false),
    complete: () => this.#complete(this.#someOfOneType()),
    'fail for now': () => this.#turnBack('retry'),
    'fail for good': () => this.#turnBack('fail'),
    'put back': () => this.#turnBack('put_back'),
    cancel: () => this.#cancel(),
    'retry failed': () =>
      this.#db.query('select pgfresh.retry_failed_jobs(p_data_type => $1::text)', [this.#type().name]),
    'recover lost': () => this.#db.query(`select pgfresh.recover_stuck_jobs('1 day')`),
    'recover silent': () => this.#db.query('select pgfresh_engine.recover_silent_jobs($1::int)', [1 + this.#int(20)]),
    'heartbeat of the worker': () => this.#beat(),
    'heartbeat of jobs': () => this.#beatJobs(),
    'extra call': () => this.#takeCall(),
    'move the clock': () => this.#house.clock.advance(`${this.#int(2_000)} milliseconds`),
    correct: () => this.#correct(),
  };

  async #enqueue(count: number): Promise<void> {
    const keys = Array.from({ length: count }, () => `K${this.#int(60)}`);
    const runAt = this.#random() < 0.15 ? `${this.#int(8_000)} milliseconds` : null;
    const priority = this.#random() < 0.3 ? -1 : Math.floor(2 ** (this.#random() * 12)) - 1;
    const rows = await this.#db.query<{ id: number; result: string }>(
      `select job_id as id, result from pgfresh_engine.queue_refreshes($1::text, $2::text[], $3::int,
         p_run_at => pgfresh.clock() + $4::interval, p_force => $5::boolean)`,
      [this.#type().name, keys, priority, runAt, this.#random() < 0.2],
    );
    must(rows.length === new Set(keys).size, 'an enqueue answered for another number of keys', rows);
    this.#house.queued(rows.filter(({ result }) => result === 'queued').map(({ id }) => id));
    for (const { result } of rows) this.#house.count(`enqueued: ${result}`);
  }

  async #claim(limit: number, answered: boolean): Promise<Token[]> {
    const worker = await this.#registered();
    const request = randomUUID();
    // Known before it is sent, so that moving the clock meanwhile does not strand it.
    if (answered) this.#known.set(request, []);
    const { limited, freeSources } = this.#house;
    // What an unknown claim has cost depends on who takes it back, so that is done where nothing is reserved.
    const rows = await this.#db.query<
      Omit<Token, 'request' | 'reserved'> & { useBy: Date | null; apiKey: number | null }
    >(
      `select id, attempt, type_id as type, source_id as source, est_bytes as estimate, use_by as "useBy", api_key as "apiKey"
       from pgfresh_engine.claim_jobs($1::bigint, $2::uuid, $3::int, $4::int[])`,
      [worker, request, limit, answered ? null : freeSources],
    );
    const tokens = rows.map((row) => ({ ...row, request, reserved: limited.has(row.source) ? row.estimate : 0 }));
    must(tokens.length <= limit, `${tokens.length} jobs were claimed, and ${limit} wanted`);
    this.#house.claimed(tokens);
    for (const { source, apiKey, useBy } of rows) if (apiKey !== null) this.#house.called(source, apiKey, useBy!);
    if (answered) this.#known.set(request, tokens.map(nameOf));
    return tokens;
  }

  async #complete(tokens: readonly Token[]): Promise<void> {
    const ends = tokens.map((token) => ({ ...token, bytes: this.#bytes(token) }));
    const done = await this.#house.queue.complete(this.#db, ends);
    for (const id of done.map(Number)) {
      const end = newestOf(ends, id);
      this.#house.ended(end, end.bytes, 'completed');
    }
    this.#house.count('late completions', ends.length - done.length);
  }

  async #turnBack(verdict: 'retry' | 'fail' | 'put_back'): Promise<void> {
    const ends = this.#someOfOneType().map((token) => ({
      ...token,
      bytes: this.#random() < 0.5 ? 0 : this.#bytes(token),
    }));
    const counts = ends[0]?.source === this.#house.shaky;
    const unfinished =
      verdict === 'put_back'
        ? this.#house.queue.putBack(this.#db, ends, { error: 'planted' })
        : this.#house.queue.fail(this.#db, ends, { error: 'planted', counts, permanent: verdict === 'fail' });
    for (const { id, status } of await unfinished) {
      const end = newestOf(ends, id);
      this.#house.ended(end, end.bytes, `turned back: ${status}`);
    }
  }

  #cancel(): Promise<unknown> {
    if (this.#random() < 0.2) {
      return this.#db.query('select pgfresh.cancel_queue_jobs(p_data_type => $1::text, p_key => $2::text)', [
        this.#type().name,
        `K${this.#int(60)}`,
      ]);
    }
    const ids = this.#someOfOneType().map(({ id }) => id);
    return this.#db.query('select pgfresh.cancel_queue_jobs($1::bigint[])', [ids]);
  }

  async #beat(): Promise<void> {
    const worker = await this.#registered();
    const [row] = await this.#db.query<{ answer: { alive: boolean; stranded?: string[] } }>(
      'select pgfresh_engine.heartbeat_process($1::bigint, $2::uuid[]) as answer',
      [worker, [...this.#known.keys()]],
    );
    const { alive, stranded = [] } = row!.answer;
    if (!alive) this.#worker = undefined;
    for (const request of stranded)
      await this.#db.query('select pgfresh_engine.release_claim($1::bigint, $2::uuid)', [worker, request]);
  }

  async #beatJobs(): Promise<void> {
    const tokens = this.#someOfOneType();
    await this.#db.query('select pgfresh.heartbeat_jobs($1::bigint[], $2::int[])', [
      tokens.map(({ id }) => id),
      tokens.map(({ attempt }) => attempt),
    ]);
  }

  async #takeCall(): Promise<void> {
    const apiKey = 1 + this.#int(2);
    const [row] = await this.#db.query<{ source: number; useBy: Date | null }>(
      `select id as source, pgfresh_engine.take_call(id, $1::smallint) as "useBy" from pgfresh.sources where name = 'rated'`,
      [apiKey],
    );
    if (row!.useBy !== null) this.#house.called(row!.source, apiKey, row!.useBy);
  }

  async #correct(): Promise<void> {
    const [source] = this.#house.freeSources;
    const bytes = 1 + this.#int(100);
    await this.#db.query(
      `insert into pgfresh.usage_corrections (source, bytes, reason)
       select name, $2::bigint, 'planted' from pgfresh.sources where id = $1::int`,
      [source, bytes],
    );
    this.#house.spent(source!, bytes);
  }

  async #registered(): Promise<number> {
    if (this.#worker !== undefined) return this.#worker;
    const [row] = await this.#db.query<{ id: number }>(
      `select pgfresh_engine.register_process('worker', 'campaign') as id`,
    );
    this.#known = new Map();
    return (this.#worker = row!.id);
  }

  /** Held by any lane: two often end the same job at once. */
  #someOfOneType(): Token[] {
    const held = [...this.#house.held.values()];
    const first = held[this.#int(held.length)];
    return held.filter((token) => token === first || (token.type === first?.type && this.#random() < 0.1));
  }

  /** The cost of an answer. Never more than was reserved, or the quota could not hold. */
  #bytes({ source, estimate }: Token): number {
    return this.#house.limited.has(source) ? this.#int(estimate + 1) : this.#int(300);
  }

  #type(): (typeof types)[number] {
    return types[this.#int(types.length)]!;
  }

  #int(below: number): number {
    return Math.floor(this.#random() * below);
  }
}

const weights = {
  enqueue: 14,
  'enqueue a set': 10,
  claim: 22,
  'claim, answer lost': 1,
  complete: 18,
  'fail for now': 5,
  'fail for good': 2,
  'put back': 3,
  cancel: 3,
  'retry failed': 0.5,
  'recover lost': 2,
  'recover silent': 2,
  'heartbeat of the worker': 8,
  'heartbeat of jobs': 3,
  'extra call': 2,
  'move the clock': 6,
  correct: 0.5,
};

function pick<K extends string>(random: () => number, weighted: Readonly<Record<K, number>>): K {
  const entries = Object.entries<number>(weighted) as [K, number][];
  let left = random() * entries.reduce((sum, [, weight]) => sum + weight, 0);
  return entries.find(([, weight]) => (left -= weight) < 0)?.[0] ?? entries[0]![0];
}

function must(holds: boolean, message: string, rows: readonly unknown[] = []): void {
  if (!holds) throw new Error(`${message}${rows.length > 0 ? `: ${JSON.stringify(rows.slice(0, 5))}` : ''}`);
}
