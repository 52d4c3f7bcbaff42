import pg from 'pg';
import { onTestFinished } from 'vitest';
import type { LiveScene } from './live-scene.ts';

/**
 * Data types that can be made to hang: "gated" by its gate, "looping" by its staleness function, "locked" by a lock on its
 * table, and "listed" by a lock on the table of its keys. Each has a stale row A.
 */
export class HarmScene {
  readonly #scene: LiveScene;

  private constructor(scene: LiveScene) {
    this.#scene = scene;
  }

  static async open(scene: LiveScene): Promise<HarmScene> {
    await scene.db.query(`
      create table harm (name text);
      create table listing (key text primary key);
      create function hanging_gate(text, text) returns boolean language plpgsql as $$
        begin
          while exists (select from harm where name = 'gate') loop perform pg_sleep(0.01); end loop;
          return true;
        end $$;
      create function looping_check(timestamptz, interval) returns boolean language plpgsql as $$
        begin
          while exists (select from harm where name = 'check') loop null; end loop;
          return $1 + $2 <= now();
        end $$;
      grant select on harm, listing to pgfresh_evaluator;
      grant execute on function hanging_gate(text, text), looping_check(timestamptz, interval) to pgfresh_evaluator;
      insert into listing values ('A'), ('B')`);
    await addType(scene, 'gated', { gate_function: 'hanging_gate' });
    await addType(scene, 'looping', { staleness_function: 'looping_check' });
    await addType(scene, 'locked');
    await addType(scene, 'listed', { key_table: 'listing', key_table_column: 'key' });
    return new HarmScene(scene);
  }

  /** Makes users' functions hang until the returned function is called. */
  async hang(...names: readonly ('gate' | 'check')[]): Promise<() => Promise<void>> {
    await this.#scene.db.query('insert into harm select unnest($1::text[])', [names]);
    const release = async (): Promise<void> => void (await this.#scene.db.query('delete from harm'));
    onTestFinished(release);
    return release;
  }

  /** Probes quarantined types, as a planner does once per second. */
  async probe(): Promise<void> {
    await this.#scene.db.query('select pgfresh_engine.probe_type(type_id) from pgfresh_engine.quarantined_types()');
  }

  /** Locks tables like ALTER TABLE does, until the returned function is called. */
  async lock(...tables: readonly string[]): Promise<() => Promise<void>> {
    const client = new pg.Client({ connectionString: this.#scene.url });
    await client.connect();
    await client.query(`begin; lock table ${tables.join(', ')} in access exclusive mode`);
    let ended: Promise<void> | undefined;
    const release = (): Promise<void> => (ended ??= client.query('rollback').then(() => client.end()));
    onTestFinished(release);
    return release;
  }
}

async function addType(scene: LiveScene, name: string, columns: Readonly<Record<string, string>> = {}): Promise<void> {
  const all = {
    data_type: name,
    source: 'market',
    table_name: name,
    timestamp_column: 'fetched_at',
    ttl: '1 minute',
    ...columns,
  };
  const names = Object.keys(all);
  await scene.db.query(`
    create table ${name} (key text primary key, price numeric, fetched_at timestamptz);
    grant select on ${name} to pgfresh_evaluator;
    insert into ${name} values ('A', 1, now() - interval '1 hour')`);
  await scene.db.query(
    `insert into pgfresh.data_type_registry (${names.join(', ')}) values (${names.map((_, n) => `$${n + 1}`).join(', ')})`,
    Object.values(all),
  );
}
