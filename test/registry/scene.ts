import type { Database, Queryable } from '../../src/database/index.ts';
import { freezeClock } from '../harness/clock.ts';
import { createDatabase, openDatabase } from '../harness/database.ts';
import { mirror } from '../harness/mirror.ts';
import { standInWorker } from '../harness/stand-in-worker.ts';
import { openSession } from '../harness/session.ts';

/** Columns of a registry row. */
export type Columns = Readonly<Record<string, unknown>>;

/** A database whose clock stands still, with a source "market", a table "mirror", and short words for what tests do with them. */
export class RegistryScene {
  readonly url: string;
  readonly db: Database;
  /** For what is refused again and again: the pool would open a new connection after each error. */
  readonly session: Queryable;
  readonly clock: Awaited<ReturnType<typeof freezeClock>>;

  private constructor(url: string, db: Database, session: Queryable, clock: Awaited<ReturnType<typeof freezeClock>>) {
    this.url = url;
    this.db = db;
    this.session = session;
    this.clock = clock;
  }

  static async open(options: { poolSize?: number } = {}): Promise<RegistryScene> {
    const url = await createDatabase();
    const db = openDatabase(url, options);
    const clock = await freezeClock(db);
    await db.query(mirror.table);
    await db.query(`insert into pgfresh.sources (name) values ('market')`);
    await standInWorker(db);
    return new RegistryScene(url, db, await openSession(url), clock);
  }

  /** Writes a row of the registry; what is not said is that of a type over the table "mirror". */
  async add(dataType: string, columns: Columns = {}): Promise<number> {
    const row = {
      data_type: dataType,
      source: 'market',
      table_name: 'mirror',
      timestamp_column: 'fetched_at',
      ttl: '1 minute',
      ...columns,
    };
    const names = Object.keys(row);
    const [added] = await this.session.query<{ id: number }>(
      `insert into pgfresh.data_type_registry (${names.join(', ')}) values (${names.map((_, n) => `$${n + 1}`).join(', ')}) returning type_id as id`,
      Object.values(row),
    );
    return added!.id;
  }

  async change(dataType: string, columns: Columns): Promise<void> {
    const set = Object.keys(columns).map((name, n) => `${name} = $${n + 2}`);
    await this.session.query(`update pgfresh.data_type_registry set ${set.join(', ')} where data_type = $1::text`, [
      dataType,
      ...Object.values(columns),
    ]);
  }

  typeId(dataType = 'quote'): Promise<number> {
    return this.value('select type_id from pgfresh.data_type_registry where data_type = $1::text', [dataType]);
  }

  subscribe(user: string | null, key: string | null, dataType = 'quote', db: Queryable = this.db) {
    return call<{ result: 'subscribed' | 'seen'; key: string; planned?: Record<string, number> }>(
      db,
      'pgfresh.upsert_active_subscription($1::text, $2::text, $3::text)',
      [user, key, dataType],
    );
  }

  leave(user: string | null, key: string, dataType = 'quote', db: Queryable = this.db) {
    return call<boolean>(db, 'pgfresh.remove_active_subscription($1::text, $2::text, $3::text)', [user, key, dataType]);
  }

  explain(key: string, dataType = 'quote') {
    return this.value<Record<string, unknown>>('pgfresh.explain_pair($1::text, $2::text)', [dataType, key]);
  }

  /** missing, stale, fresh or unknown. */
  async state(key: string, dataType = 'quote'): Promise<unknown> {
    return (await this.explain(key, dataType))['state'];
  }

  tick() {
    return this.value<Record<string, number>>('pgfresh_engine.plan_due_pairs(10000)');
  }

  cleanUp() {
    return this.value<Record<string, unknown>>('pgfresh.cleanup_stale_subscriptions()');
  }

  async pair(key: string, dataType = 'quote') {
    const [row] = await this.db.query<{
      demanded: boolean;
      viewers: number;
      job_id: number | null;
      warm_until: Date | null;
    }>(
      `select p.demanded, p.viewers, p.job_id, p.warm_until from pgfresh_engine.pairs as p join pgfresh.data_type_registry as r using (type_id)
       where r.data_type = $1::text and p.key = $2::text`,
      [dataType, key],
    );
    return row;
  }

  /** The keys of the open jobs, in order. */
  async queued(dataType = 'quote'): Promise<string[]> {
    const rows = await this.db.query<{ key: string }>(
      'select key from pgfresh_engine.open_jobs where data_type = $1::text order by key collate "C"',
      [dataType],
    );
    return rows.map(({ key }) => key);
  }

  /** Ends all open jobs without having written anything. */
  async finish(): Promise<void> {
    for (const job of await this.value<{ id: number; attempt: number }[]>('pgfresh.get_queue_batch(1000)'))
      await this.db.query('select pgfresh.complete_queue_job($1::bigint, 0, $2::int)', [job.id, job.attempt]);
  }

  warnings() {
    return this.db.query<{ code: string; subject: string; message: string; next_step: string; count: number }>(
      'select code, subject, message, next_step, count from pgfresh.warnings order by code, subject',
    );
  }

  value<T>(expression: string, values: readonly unknown[] = []): Promise<T> {
    return call<T>(this.db, expression, values);
  }
}

async function call<T>(db: Queryable, expression: string, values: readonly unknown[]): Promise<T> {
  const [row] = await db.query<{ value: T }>(`select (${expression}) as value`, values);
  return row!.value;
}
