import type pg from 'pg';
import { Database, migrate, readSqlFiles } from '../../src/database/index.ts';
import { Events } from '../../src/events/index.ts';
import { syncRegistry } from '../../src/registry/index.ts';
import type { Scope } from '../scope.ts';
import { type BenchServer, connect } from '../server.ts';
import { oldRows, table } from '../worker/mirror.ts';
import type { Plan } from './plan.ts';
import { configFor, harmed, otherTypes } from './types.ts';

const hangingGate = `
  create table harm (since timestamptz);
  create function hanging_gate(text, text) returns boolean language plpgsql as $$
    begin
      while exists (select from harm) loop perform pg_sleep(0.01); end loop;
      return true;
    end $$;
  grant select on harm to pgfresh_evaluator;
  grant execute on function hanging_gate(text, text) to pgfresh_evaluator;
  update pgfresh.data_type_registry set gate_function = 'hanging_gate' where data_type = 'hung'`;

/** A database with types that are refreshed all the time, one whose gate can hang and one whose table can be locked. */
export class Scene {
  readonly url: string;
  readonly #client: pg.Client;
  readonly #locker: pg.Client;
  readonly #others: readonly string[];

  private constructor(url: string, client: pg.Client, locker: pg.Client, others: readonly string[]) {
    this.url = url;
    this.#client = client;
    this.#locker = locker;
    this.#others = others;
  }

  static async build(server: BenchServer, scope: Scope, plan: Plan, provider: string): Promise<Scene> {
    const url = await server.createDatabase(scope);
    const events = new Events();
    const db = new Database({ url, events, applicationName: 'pgfresh bench' });
    try {
      await migrate(db, { files: await readSqlFiles(), events });
      for (const name of [...otherTypes(plan), ...harmed]) {
        await db.query(table.replace('quote', name));
        await db.query(oldRows.replace('quote', name), [plan.pairs]);
        await db.query(`grant select on ${name} to pgfresh_evaluator`);
      }
      await syncRegistry(db, configFor(plan, provider), events);
      await db.query(hangingGate);
      await db.query('vacuum (analyze)');
    } finally {
      await db.close();
    }
    return new Scene(url, await connect(url, scope), await connect(url, scope), otherTypes(plan));
  }

  /** As if the rows had been fetched at all times of a TTL, so that they do not go stale at once. */
  async spread({ ttlSeconds }: Plan): Promise<void> {
    for (const name of [...this.#others, ...harmed])
      await this.#client.query(
        `update ${name} set fetched_at = clock_timestamp() - random() * $1::int * interval '1 s'`,
        [ttlSeconds],
      );
  }

  /** The gate of one type hangs, and the table of another is locked as ALTER TABLE locks it. */
  async harm(): Promise<void> {
    await this.#client.query('insert into harm values (clock_timestamp())');
    await this.#locker.query('begin; lock table locked in access exclusive mode');
  }

  async release(): Promise<void> {
    await this.#client.query('delete from harm');
    await this.#locker.query('rollback');
  }

  async now(): Promise<string> {
    const { rows } = await this.#client.query<{ now: string }>('select clock_timestamp()::text as now');
    return rows[0]!.now;
  }

  /** Jobs of the viewed pairs of the other types that were planned between two times. */
  planned(from: string, to: string): Promise<number> {
    return this.#count(this.#others, from, to);
  }

  async isPlanned(dataType: string, since: string): Promise<boolean> {
    return (await this.#count([dataType], since, 'infinity')) > 0;
  }

  async #count(types: readonly string[], from: string, to: string): Promise<number> {
    const { rows } = await this.#client.query<{ count: number }>(
      `select count(*)::int as count
       from (
         select type_id, key, created_at from pgfresh_engine.job
         union all
         select type_id, key, created_at from pgfresh_engine.history_succeeded
         union all
         select type_id, key, created_at from pgfresh_engine.history_other
       ) as j
       join pgfresh.data_type_registry as r on r.type_id = j.type_id
       where r.data_type = any ($1::text[]) and j.key ~ '^K' and j.created_at between $2::timestamptz and $3::timestamptz`,
      [types, from, to],
    );
    return rows[0]!.count;
  }
}
