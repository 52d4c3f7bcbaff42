import type { Database, Queryable } from '../../src/database/index.ts';
import { shiftClock } from '../harness/clock.ts';
import { createDatabase, openDatabase } from '../harness/database.ts';

interface Acquired {
  readonly reason: string;
  readonly token: number | null;
  readonly locked_until: Date | null;
  readonly next_run_at: Date | null;
}

interface Ended {
  readonly reason: string;
  readonly next_run_at: Date | null;
}

/** A database with a clock that a test can move, and short words for leases. */
export class LeaseScene {
  readonly url: string;
  readonly db: Database;
  readonly clock: Awaited<ReturnType<typeof shiftClock>>;

  private constructor(url: string, db: Database, clock: Awaited<ReturnType<typeof shiftClock>>) {
    this.url = url;
    this.db = db;
    this.clock = clock;
  }

  static async open(options: { poolSize?: number } = {}): Promise<LeaseScene> {
    const url = await createDatabase();
    const db = openDatabase(url, options);
    return new LeaseScene(url, db, await shiftClock(db));
  }

  async acquire(
    name: string,
    { manual = false, lease = '5 minutes', db = this.db }: { manual?: boolean; lease?: string; db?: Queryable } = {},
  ): Promise<Acquired> {
    const [row] = await db.query<Acquired>(
      `select * from pgfresh.acquire_refresh_lock($1::text, 'a test', $2::interval, $3::boolean)`,
      [name, lease, manual],
    );
    return row!;
  }

  /** Acquires what must be free, and returns its token. */
  async take(name: string, options: { manual?: boolean; db?: Queryable } = {}): Promise<number> {
    const { reason, token } = await this.acquire(name, options);
    if (reason !== 'acquired') throw new Error(`${name} is ${reason}`);
    return token!;
  }

  async renew(name: string, token: number): Promise<string> {
    const [row] = await this.db.query<{ reason: string }>(
      'select reason from pgfresh.renew_refresh_lock($1::text, $2::bigint)',
      [name, token],
    );
    return row!.reason;
  }

  async release(name: string, token: number, success: boolean | null, nextIn: string | null = null): Promise<Ended> {
    const [row] = await this.db.query<Ended>(
      'select * from pgfresh.release_refresh_lock($1::text, $2::bigint, $3::boolean, $4::interval)',
      [name, token, success, nextIn],
    );
    return row!;
  }

  async fence(name: string, token: number, db: Queryable = this.db): Promise<void> {
    await db.query('select pgfresh.fence_refresh_lock($1::text, $2::bigint)', [name, token]);
  }

  /** How the work stands, and in how many minutes it is due. */
  async row(name: string): Promise<Record<string, unknown> | undefined> {
    const [row] = await this.db.query<Record<string, unknown>>(
      `select enabled, last_status, failures_in_row as failures, last_run_at is not null as ended, locked_by is not null as locked,
         extract(epoch from next_run_at - pgfresh.clock())::float8 / 60 as due_in
       from pgfresh.refresh_schedule where function_name = $1::text`,
      [name],
    );
    return row;
  }
}
