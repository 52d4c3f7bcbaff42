import type { Database, Queryable } from '../../src/database/index.ts';
import { Queue, type ClaimedJob, type ClaimOptions, type FailureReason, type JobEnd } from '../../src/queue/index.ts';
import { createDatabase, openDatabase } from '../harness/database.ts';
import { mirror } from '../harness/mirror.ts';

export interface SourceSettings {
  quotaBytes?: number;
  window?: string;
  rate?: number;
  apiKeys?: number;
  viewedShare?: number;
  concurrency?: number;
  oneKeyAtATime?: boolean;
}

/** The ways in which a job does not succeed. */
export const failures = ['retry', 'fail', 'put_back', 'lost'] as const;

/** Ends jobs in one of these ways. */
export function unfinish(
  queue: Queue,
  db: Queryable,
  ends: readonly JobEnd[],
  how: (typeof failures)[number],
  reason: FailureReason = {},
) {
  if (how === 'retry' || how === 'fail') return queue.fail(db, ends, { ...reason, permanent: how === 'fail' });
  return queue.putBack(db, ends, { ...reason, lost: how === 'lost' });
}

/** A database with a queue, a source "market" and its data type "quote", and short words for what tests do with them. */
export class QueueScene {
  readonly url: string;
  readonly db: Database;
  readonly queue = new Queue();
  #worker = 0;

  private constructor(url: string, db: Database) {
    this.url = url;
    this.db = db;
  }

  static async open({ url, ...options }: { url?: string; poolSize?: number } = {}): Promise<QueueScene> {
    const own = url ?? (await createDatabase());
    const scene = new QueueScene(own, openDatabase(own, options));
    await scene.db.query(mirror.table);
    await scene.source('market');
    await scene.type('quote', 'market');
    await scene.register();
    return scene;
  }

  async register(name = 'test'): Promise<number> {
    const [row] = await this.db.query<{ id: number }>(
      `select pgfresh_engine.register_process('worker', $1::text) as id`,
      [name],
    );
    this.#worker = row!.id;
    return this.#worker;
  }

  async source(name: string, settings: SourceSettings = {}): Promise<number> {
    const { quotaBytes, window = '30 days', rate, apiKeys = 1, viewedShare = 0 } = settings;
    const [row] = await this.db.query<{ id: number }>(
      `insert into pgfresh.sources (name, quota_bytes, quota_window, rate_limit_per_minute, api_keys, viewed_share, max_concurrency, one_key_at_a_time)
       values ($1::text, $2::bigint, $3::interval, $4::int, $5::smallint, $6::numeric, $7::int, $8::boolean) returning id`,
      [name, quotaBytes, window, rate, apiKeys, viewedShare, settings.concurrency, settings.oneKeyAtATime ?? false],
    );
    return row!.id;
  }

  async type(name: string, source: string, estimatedBytes = 0): Promise<number> {
    const [row] = await this.db.query<{ id: number }>(
      `insert into pgfresh.data_type_registry (data_type, source, estimated_data_size_bytes, ${mirror.columns})
       values ($1::text, $2::text, $3::bigint, ${mirror.values}) returning type_id as id`,
      [name, source, estimatedBytes],
    );
    return row!.id;
  }

  /** Claims and brings the jobs into the order in which they should be worked. */
  async claim(options: Partial<ClaimOptions> = {}): Promise<ClaimedJob[]> {
    // Always from the beginning of the queue: what is remembered between claims has tests of its own.
    const { jobs } = await new Queue().claim(this.db, { worker: this.#worker, limit: 100, ...options });
    return jobs.toSorted((a, b) => b.band - a.band || a.id - b.id);
  }

  async claimOne(): Promise<ClaimedJob> {
    const [job] = await this.claim({ limit: 1 });
    if (!job) throw new Error('nothing to claim');
    return job;
  }

  complete(jobs: readonly ClaimedJob[], bytes = 0): Promise<number[]> {
    return this.queue.complete(
      this.db,
      jobs.map(({ id, attempt, request }) => ({ id, attempt, request, bytes })),
    );
  }

  /** The job as the view shows it. */
  async job(id: number): Promise<Record<string, unknown> | undefined> {
    const [row] = await this.db.query<Record<string, unknown>>(
      'select * from pgfresh.api_call_queue where id = $1::bigint',
      [id],
    );
    return row;
  }

  async value<T>(expression: string, values: readonly unknown[] = []): Promise<T> {
    const [row] = await this.db.query<{ value: T }>(`select (${expression}) as value`, values);
    return row!.value;
  }
}
