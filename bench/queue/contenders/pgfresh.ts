import { Database, Listener, migrate, readSqlFiles } from '../../../src/database/index.ts';
import { Events } from '../../../src/events/index.ts';
import { Renewal } from '../../../src/process/index.ts';
import { Queue, workerRegistration, type Claim } from '../../../src/queue/index.ts';
import type { ClaimProbe } from '../claim-cost.ts';
import type { Contender, Enqueuer, Worker } from '../contender.ts';

const batch = 500;
const lanes = 2;
const type = 'bench';
const blockedType = 'blocked';

export const pgfresh: Contender = {
  name: 'pgfresh',
  system: 'pgfresh',
  settings: `claims of ${batch} on ${lanes} connections, with dedup, history, fence and ledger`,

  async setup(url) {
    const database = open(url, 2);
    await migrate(database, { files: await readSqlFiles(), events: new Events() });
    await database.query('create table mirror (key text primary key, fetched_at timestamptz)');
    await database.query(`insert into pgfresh.sources (name, enabled) values ('bench', true), ('blocked', false)`);
    await database.query(
      `insert into pgfresh.data_type_registry (data_type, source, table_name, timestamp_column, ttl)
       select name, name, 'mirror', 'fetched_at', '1 minute' from pgfresh.sources`,
    );
    await database.close();
  },

  async enqueuer(url, connections) {
    return new PgfreshEnqueuer(open(url, connections));
  },

  async worker(url) {
    const worker = new PgfreshWorker(url);
    await worker.connect();
    return worker;
  },

  async hasOpenJobs(query) {
    return (await query('select 1 from pgfresh_engine.job limit 1')).length > 0;
  },

  async claimProbe(url) {
    const probe = new PgfreshProbe(open(url, 2));
    await probe.register();
    return probe;
  },
};

function open(url: string, poolSize: number): Database {
  return new Database({
    url,
    events: new Events(),
    applicationName: 'pgfresh bench',
    poolSize,
    statementTimeoutMs: 600_000,
  });
}

class PgfreshEnqueuer implements Enqueuer {
  readonly #database: Database;
  readonly #queue = new Queue();

  constructor(database: Database) {
    this.#database = database;
  }

  async one(id: number): Promise<void> {
    await this.#queue.enqueue(this.#database, type, String(id), { priority: 1 });
  }

  async set(ids: readonly number[]): Promise<void> {
    const { queued } = await this.#queue.enqueueMany(this.#database, type, ids.map(String), { priority: 1 });
    if (queued < ids.length) throw new Error(`${ids.length - queued} of ${ids.length} new jobs were not enqueued`);
  }

  close(): Promise<void> {
    return this.#database.close();
  }
}

class PgfreshWorker implements Worker {
  readonly #database: Database;
  readonly #lease: Renewal;
  readonly #listener: Listener;
  readonly #waiting: (() => void)[] = [];
  #missed = false;

  constructor(url: string) {
    this.#database = open(url, lanes + 1);
    this.#lease = new Renewal(this.#database, workerRegistration('bench'));
    this.#listener = new Listener({
      url,
      channel: 'pgfresh_job',
      events: new Events(),
      onNotification: () => this.#wakeOne(),
    });
  }

  async connect(): Promise<void> {
    await Promise.all([this.#lease.start(), this.#listener.start()]);
    await Promise.all(Array.from({ length: lanes }, () => this.#database.query('select pg_sleep(0.01)')));
  }

  async start(onJob: (id: number) => void): Promise<void> {
    // Polling is the floor under a lost notification.
    setInterval(() => this.#wakeOne(), 1000);
    for (let lane = 0; lane < lanes; lane++) void this.#work(new Queue(), onJob);
  }

  // One lane is enough for one job; a lane that finds more than it can take wakes the next.
  #wakeOne(): void {
    const wake = this.#waiting.shift();
    if (wake) wake();
    else this.#missed = true;
  }

  async #work(queue: Queue, onJob: (id: number) => void): Promise<never> {
    for (;;) {
      this.#missed = false;
      const claim = await queue.claim(this.#database, { worker: this.#lease.id, limit: batch, alone: true });
      this.#lease.hold(claim.request, claim.jobs.length);
      if (claim.jobs.length === batch) this.#wakeOne();
      for (const job of claim.jobs) onJob(Number(job.key));
      if (claim.jobs.length > 0) await complete(queue, this.#database, claim);
      // A job that arrived after the look woke no lane, but was noticed.
      else if (!this.#missed) await new Promise<void>((resolve) => this.#waiting.push(resolve));
      this.#lease.ended(claim.request, claim.jobs.length);
    }
  }
}

async function complete(queue: Queue, database: Database, { jobs }: Claim): Promise<void> {
  await queue.complete(
    database,
    jobs.map(({ id, attempt, request }) => ({ id, attempt, request, bytes: 0 })),
  );
}

class PgfreshProbe implements ClaimProbe {
  readonly #database: Database;
  readonly #queue = new Queue();
  #worker = 0;
  #keys = 0;
  #last: Claim | undefined;

  constructor(database: Database) {
    this.#database = database;
  }

  async register(): Promise<void> {
    const [row] = await this.#database.query<{ id: number }>(
      `select pgfresh_engine.register_process('worker', 'bench') as id`,
    );
    this.#worker = row!.id;
    // The measure lasts longer than a lease.
    await this.#database.query(`update pgfresh_engine.process set lease_until = 'infinity' where id = $1::bigint`, [
      this.#worker,
    ]);
  }

  async prepareWaiting(jobs: number, priorities: readonly number[]): Promise<void> {
    for (const [index, priority] of priorities.entries()) {
      const share = Math.floor(jobs / priorities.length) + (index < jobs % priorities.length ? 1 : 0);
      await this.#enqueue(type, share, priority);
    }
  }

  async prepareFinished(jobs: number): Promise<void> {
    await this.#database.query(
      `insert into pgfresh_engine.history_succeeded (id, ended_at, created_at, claimed_at, bytes, type_id, source_id, priority, attempt, retries, lost, status, outcome, key)
       select nextval('pgfresh_engine.job_id'), now(), now(), now(), 0, 1, 1, 1, 1, 0, 0, 'succeeded', 'fresh', 'f' || n from generate_series(1, $1::int) as n`,
      [jobs],
    );
    await this.#database.query(
      `insert into pgfresh_engine.pairs (type_id, key, last_job) select 1, 'f' || n, n from generate_series(1, $1::int) as n`,
      [jobs],
    );
  }

  async prepareBlocked(jobs: number): Promise<void> {
    await this.#enqueue(blockedType, jobs, 1);
  }

  async claim(size: number): Promise<number> {
    this.#last = await this.#queue.claim(this.#database, { worker: this.#worker, limit: size, alone: true });
    return this.#last.jobs.length;
  }

  async finish(): Promise<void> {
    if (this.#last) await complete(this.#queue, this.#database, this.#last);
  }

  close(): Promise<void> {
    return this.#database.close();
  }

  async #enqueue(of: string, jobs: number, priority: number): Promise<void> {
    for (let left = jobs; left > 0; left -= 10_000) {
      const keys = Array.from({ length: Math.min(left, 10_000) }, () => `${this.#keys++}`);
      await this.#queue.enqueueMany(this.#database, of, keys, { priority });
    }
  }
}
