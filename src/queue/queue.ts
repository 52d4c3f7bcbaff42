import { randomUUID } from 'node:crypto';
import { storableJson, type Queryable } from '../database/index.ts';
import { ClaimFloors } from './floors.ts';

export interface EnqueueOptions {
  /** Number of distinct viewers; -1 for background work. */
  readonly priority?: number;
  readonly estimatedBytes?: number;
  readonly metadata?: object;
  readonly runAt?: Date;
  /** Run again even if a job of the pair is running. */
  readonly force?: boolean;
}

/**
 * The result of an enqueue: a new job; merged into a waiting job, which takes the higher priority and earlier time;
 * already running; running and forced, so it will run again; or another transaction is ending or enqueuing it.
 */
export type EnqueueResult = 'queued' | 'merged' | 'running' | 'rerun' | 'busy';

export interface Enqueued {
  readonly jobId: number;
  readonly result: EnqueueResult;
}

/** A job held by a worker. Id, attempt and request form the token that ends it. */
export interface ClaimedJob {
  readonly id: number;
  readonly attempt: number;
  /** The id of its claim. */
  readonly request: string;
  readonly type: number;
  readonly key: string;
  readonly source: number;
  readonly band: number;
  /** Its lane in the ready index. */
  readonly lane: number;
  readonly priority: number;
  readonly estimatedBytes: number;
  readonly retries: number;
  readonly metadata: object | null;
  /** The definition of its data type at the claim; answers fetched under another one are not written. */
  readonly definition: number;
  /** The API key to call its source with, from 1; null if the source has no rate limit. */
  readonly apiKey: number | null;
  /** Latest time to send its call, by `performance.now()`; null if the source has no rate limit. */
  readonly sendBy: number | null;
}

export interface ClaimOptions {
  readonly worker: number;
  readonly limit: number;
  readonly sources?: readonly number[];
  readonly types?: readonly number[];
  readonly maxBytes?: number;
  /** The id of the claim, for callers that must know it in advance; generated if left out. */
  readonly request?: string;
  /** Whether the claim is its own transaction; then it skips the wait for the disk if no limit counts it. */
  readonly alone?: boolean;
}

export interface Claim {
  /** The id of the claim; the worker reports it as held until its last job has ended. */
  readonly request: string;
  readonly jobs: readonly ClaimedJob[];
}

export interface JobEnd {
  readonly id: number;
  readonly attempt: number;
  /** The id of its claim. A database crash may forget an `alone` claim; only this id tells it from the next one. */
  readonly request: string;
  readonly bytes: number;
  /** Calls to the provider, including redirects; 0 if cached. Default: 1, or for failures 1 only if there are bytes. */
  readonly calls?: number;
  /** How many calls it needs, if it could not get as many. */
  readonly needs?: number;
  readonly fetchMs?: number;
  readonly validateMs?: number;
}

export interface JobSuccess extends JobEnd {
  /** Default: fresh. */
  readonly outcome?: string;
  readonly commitMs?: number;
  /** The current time of its row, as PostgreSQL text; if left out, the next tick reads it. */
  readonly rowAt?: string | undefined;
  /** How long ago its answer was fetched, in seconds. */
  readonly age?: number | undefined;
  /** The answer's time at the source. */
  readonly sourceAt?: string | undefined;
}

/** Why a job is put back. */
export interface PutBackReason {
  readonly outcome?: string;
  readonly error?: string;
}

/** Why a job has failed. */
export interface FailureReason extends PutBackReason {
  /** A retry would fail the same way. */
  readonly permanent?: boolean;
  /** Whether the source's breaker counts it as a failure. */
  readonly counts?: boolean;
}

/** What happened to a job that did not succeed. */
export interface Unfinished {
  readonly id: number;
  readonly status: 'pending' | 'retryable' | 'failed' | 'cancelled';
  readonly nextRetryAt: Date | null;
}

const statements = {
  enqueue: {
    name: 'pgfresh.enqueue',
    text: `select job_id as "jobId", result
      from pgfresh_engine.queue_refreshes($1::text, $2::text[], $3::int, $4::bigint, $5::jsonb, $6::timestamptz, $7::boolean)`,
  },
  enqueueMany: {
    name: 'pgfresh.enqueue_many',
    text: `select result, count(*)::int as count
      from pgfresh_engine.queue_refreshes($1::text, $2::text[], $3::int, $4::bigint, $5::jsonb, $6::timestamptz, $7::boolean) group by result`,
  },
  claim: {
    name: 'pgfresh.claim',
    text: `select id, attempt, type_id as type, key, source_id as source, band, lane, priority, est_bytes as "estimatedBytes", retries, metadata,
        api_key as "apiKey", definition, case when use_by is not null then (extract(epoch from use_by - pgfresh.clock()) * 1000)::float8 end as "sendBy"
      from pgfresh_engine.claim_jobs($1::bigint, $2::uuid, $3::int, $4::int[], $5::int[], $6::bigint, $7::int[], $8::smallint[], $9::bigint[], $10::boolean)`,
  },
  complete: {
    name: 'pgfresh.complete',
    text: `select pgfresh_engine.complete_jobs($1::bigint[], $2::int[], $3::bigint[], $4::text[], $5::int[], $6::int[], $7::int[], $8::int[], $9::uuid[],
      $10::timestamptz[], $11::float8[], $12::timestamptz[]) as done`,
  },
  fail: {
    name: 'pgfresh.fail',
    text: `select id, status, next_retry_at as "nextRetryAt" from pgfresh_engine.fail_jobs($1::jsonb)`,
  },
  putBack: {
    name: 'pgfresh.put_back',
    text: `select id, status, next_retry_at as "nextRetryAt" from pgfresh_engine.put_back_jobs($1::jsonb, $2::boolean)`,
  },
} as const;

/** The queue, over any connection or inside any transaction. SQL users call the same functions. */
export class Queue {
  readonly #floors = new Map<string, ClaimFloors>();
  readonly #now: (() => number) | undefined;

  constructor(now?: () => number) {
    this.#now = now;
  }

  /** Enqueues a job for one pair, unless it has an open one, in the transaction of `db`. */
  async enqueue(db: Queryable, type: string, key: string, options: EnqueueOptions = {}): Promise<Enqueued> {
    const [row] = await db.query<Enqueued>(statements.enqueue, enqueueValues(type, [key], options));
    return row!;
  }

  /** The same for many keys of a data type; returns the count of each result. */
  async enqueueMany(
    db: Queryable,
    type: string,
    keys: readonly string[],
    options: EnqueueOptions = {},
  ): Promise<Record<EnqueueResult, number>> {
    const rows = await db.query<{ result: EnqueueResult; count: number }>(
      statements.enqueueMany,
      enqueueValues(type, keys, options),
    );
    const counts = { queued: 0, merged: 0, running: 0, rerun: 0, busy: 0 };
    for (const { result, count } of rows) counts[result] = count;
    return counts;
  }

  /** Claims ready jobs for a worker, best band first, within the budgets of their sources. */
  async claim(db: Queryable, options: ClaimOptions): Promise<Claim> {
    const floors = this.#floorsFor(options);
    const { request = randomUUID() } = options;
    const jobs = await this.#claimFrom(floors.next(), db, request, options);
    if (!floors.learn(jobs)) return { request, jobs };
    const again = await this.#claimFrom(floors.next(), db, request, options);
    floors.learn(again);
    return { request, jobs: again };
  }

  /** Ends jobs of one data type as succeeded; returns those that were still ours. */
  async complete(db: Queryable, ends: readonly JobSuccess[]): Promise<number[]> {
    const [row] = await db.query<{ done: number[] }>(statements.complete, [
      ends.map((end) => end.id),
      ends.map((end) => end.attempt),
      ends.map((end) => end.bytes),
      eachOf(ends, 'outcome', 'fresh'),
      eachOf(ends, 'calls', 1),
      eachOf(ends, 'fetchMs'),
      eachOf(ends, 'validateMs'),
      eachOf(ends, 'commitMs'),
      ends.map((end) => end.request),
      eachOf(ends, 'rowAt'),
      eachOf(ends, 'age'),
      eachOf(ends, 'sourceAt'),
    ]);
    return row!.done;
  }

  /** Ends failed attempts: they are retried later, or fail for good. Returns those that were still ours. */
  fail(db: Queryable, ends: readonly (JobEnd & FailureReason)[], reason: FailureReason = {}): Promise<Unfinished[]> {
    return db.query<Unfinished>(statements.fail, [storableJson(ends.map((end) => unfinished(end, reason)))]);
  }

  /** Makes jobs ready again that did not fail; `lost`: their holder is gone. Returns those that were still ours. */
  putBack(
    db: Queryable,
    ends: readonly (JobEnd & PutBackReason)[],
    { lost = false, ...reason }: PutBackReason & { readonly lost?: boolean } = {},
  ): Promise<Unfinished[]> {
    const said = ends.map((end) => unfinished(end, reason));
    return db.query<Unfinished>(statements.putBack, [storableJson(said), lost]);
  }

  // Floors are per filter: a claim with one filter says nothing about jobs of another.
  #floorsFor({ types, maxBytes }: ClaimOptions): ClaimFloors {
    const filter = JSON.stringify([types, maxBytes]);
    const floors = this.#floors.get(filter) ?? new ClaimFloors(this.#now);
    this.#floors.set(filter, floors);
    return floors;
  }

  async #claimFrom(
    floors: ReturnType<ClaimFloors['next']>,
    db: Queryable,
    request: string,
    options: ClaimOptions,
  ): Promise<ClaimedJob[]> {
    const { worker, limit, sources, types, maxBytes, alone = false } = options;
    // Read before the database reads its clock, so that a deadline passes here no later than there.
    const asked = performance.now();
    const jobs = await db.query<Omit<ClaimedJob, 'request'>>(statements.claim, [
      worker,
      request,
      limit,
      sources,
      types,
      maxBytes,
      floors.map((floor) => floor.type),
      floors.map((floor) => floor.lane),
      floors.map((floor) => floor.id),
      alone,
    ]);
    return jobs.map((job) => Object.assign(job, { request, sendBy: job.sendBy === null ? null : asked + job.sendBy }));
  }
}

/** A job's end in the form that `fail_jobs` and `put_back_jobs` take. */
function unfinished(end: JobEnd & FailureReason, reason: FailureReason): object {
  const { id, attempt, request, bytes, calls, needs, fetchMs: fetch_ms, validateMs: validate_ms } = end;
  const { outcome, error, permanent, counts } = { ...reason, ...end };
  return { id, attempt, request, bytes, calls, needs, fetch_ms, validate_ms, outcome, error, permanent, counts };
}

/** One field of all ends; null if none has it. */
function eachOf<E extends JobEnd, K extends keyof E>(ends: readonly E[], field: K, otherwise: E[K] | null = null) {
  return ends.some((end) => end[field] !== undefined) ? ends.map((end) => end[field] ?? otherwise) : null;
}

function enqueueValues(type: string, keys: readonly string[], options: EnqueueOptions): unknown[] {
  const { priority = 0, estimatedBytes, metadata, runAt, force = false } = options;
  return [type, keys, priority, estimatedBytes, metadata, runAt, force];
}
