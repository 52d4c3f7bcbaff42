import pg from 'pg';
import type { Contender, Enqueuer, Worker } from '../contender.ts';

const batch = 500;
const channel = 'job';

/**
 * The least that can be called a queue: one plain table, claimed in batches, rows deleted on completion. No dedup, no
 * history, no ledger, no fence, no recovery from a dead worker. It shows what the server can do, so
 * that the others are compared with more than each other.
 */
export const minimum: Contender = {
  name: 'minimum',
  system: 'minimum',
  settings: `one table, for update skip locked in batches of ${batch}, delete on completion, two connections a process`,

  async setup(url) {
    const client = new pg.Client({ connectionString: url });
    await client.connect();
    await client.query(`
      create table job (id bigint generated always as identity primary key, payload jsonb not null, claimed_at timestamptz);
      create index on job (id) where claimed_at is null`);
    await client.end();
  },

  enqueuer: async (url, connections) => new MinimumEnqueuer(url, connections),

  async worker(url) {
    const worker = new MinimumWorker(url);
    await worker.connect();
    return worker;
  },

  async hasOpenJobs(query) {
    return (await query('select 1 from job limit 1')).length > 0;
  },
};

class MinimumEnqueuer implements Enqueuer {
  readonly #pool: pg.Pool;
  readonly #waker: pg.Pool;
  #waking: Promise<unknown> | undefined;
  #wakeAgain = false;

  constructor(url: string, connections: number) {
    this.#pool = new pg.Pool({ connectionString: url, max: connections });
    this.#waker = new pg.Pool({ connectionString: url, max: 1 });
    for (const pool of [this.#pool, this.#waker]) pool.on('error', () => {});
  }

  async one(id: number): Promise<void> {
    await this.#pool.query({ name: 'one', text: 'insert into job (payload) values ($1::jsonb)', values: [{ id }] });
    this.#wake();
  }

  async set(ids: readonly number[]): Promise<void> {
    await this.#pool.query({
      name: 'set',
      text: 'insert into job (payload) select payload from unnest($1::jsonb[]) as payload',
      values: [ids.map((id) => JSON.stringify({ id }))],
    });
    this.#wake();
  }

  // After the commit and from one place: commits that notify queue up behind a lock of the whole cluster.
  #wake(): void {
    if (this.#waking) {
      this.#wakeAgain = true;
      return;
    }
    this.#waking = this.#waker
      .query(`notify ${channel}`)
      .catch(() => {})
      .finally(() => {
        this.#waking = undefined;
        if (!this.#wakeAgain) return;
        this.#wakeAgain = false;
        this.#wake();
      });
  }

  async close(): Promise<void> {
    while (this.#waking) await this.#waking;
    await Promise.all([this.#pool.end(), this.#waker.end()]);
  }
}

// An array and not a join or an "in": the planner cannot take it for anything but a few rows by their key.
const claim = `
  update job set claimed_at = now()
  where id = any (array(select id from job where claimed_at is null order by id limit ${batch} for update skip locked))
  returning id, payload`;

const complete = 'delete from job where id = any ($1::bigint[])';

class MinimumWorker implements Worker {
  readonly #listener: pg.Client;
  readonly #connections: readonly pg.Client[];
  #wakeUp: (() => void)[] = [];

  constructor(url: string) {
    const client = () => new pg.Client({ connectionString: url });
    this.#listener = client();
    // Two, so that the server works on one batch while this process handles the other.
    this.#connections = [client(), client()];
  }

  async connect(): Promise<void> {
    await Promise.all([this.#listener, ...this.#connections].map((each) => each.connect()));
    this.#listener.on('notification', () => this.#wakeAll());
    await this.#listener.query(`listen ${channel}`);
  }

  async start(onJob: (id: number) => void): Promise<void> {
    // Polling is the floor under a lost notification.
    setInterval(() => this.#wakeAll(), 1000);
    for (const connection of this.#connections) void this.#work(connection, onJob);
  }

  #wakeAll(): void {
    for (const wakeUp of this.#wakeUp.splice(0)) wakeUp();
  }

  async #work(connection: pg.Client, onJob: (id: number) => void): Promise<never> {
    for (;;) {
      // Asked for before the look, so that a job that comes after the look is not missed.
      const woken = new Promise<void>((resolve) => this.#wakeUp.push(resolve));
      const { rows: jobs } = await connection.query<{ id: string; payload: { id: number } }>({
        name: 'claim',
        text: claim,
      });
      for (const job of jobs) onJob(job.payload.id);
      const ids = jobs.map((job) => job.id);
      if (ids.length > 0) await connection.query({ name: 'complete', text: complete, values: [ids] });
      else await woken;
    }
  }
}
