import { freezeClock } from '../harness/clock.ts';
import { QueueScene } from '../queue/scene.ts';

export type Counts = Readonly<Record<string, number | boolean | string>>;

interface TypeOptions {
  /** Further columns of the registry, as SQL. */
  readonly columns?: Readonly<Record<string, string>>;
  readonly ttl?: string;
  readonly source?: string;
}

/** A queue scene with a clock that stands still, and tables of a user: one a data type, of the same name. */
export class PlannerScene {
  readonly queue: QueueScene;
  readonly clock: Awaited<ReturnType<typeof freezeClock>>;

  private constructor(queue: QueueScene, clock: PlannerScene['clock']) {
    this.queue = queue;
    this.clock = clock;
  }

  static async open(options: { poolSize?: number } = {}): Promise<PlannerScene> {
    const queue = await QueueScene.open(options);
    await queue.db.query(`delete from pgfresh.data_type_registry`);
    const scene = new PlannerScene(queue, await freezeClock(queue.db));
    await scene.db.query(`update pgfresh_engine.process set lease_until = 'infinity'`);
    return scene;
  }

  get db() {
    return this.queue.db;
  }

  /** A data type with a table of its own: key, fetched_at. */
  async type(name: string, { columns = {}, ttl = '1 minute', source = 'market' }: TypeOptions = {}): Promise<void> {
    const table = name.replaceAll('-', '_');
    await this.db.query(`create table if not exists public.${table} (key text primary key, fetched_at timestamptz)`);
    const all = {
      data_type: `'${name}'`,
      source: `'${source}'`,
      table_name: `'${table}'`,
      timestamp_column: `'fetched_at'`,
      ttl: `'${ttl}'`,
      ...columns,
    };
    await this.db.query(
      `insert into pgfresh.data_type_registry (${Object.keys(all).join(', ')}) values (${Object.values(all).join(', ')})`,
    );
  }

  /** Writes rows of a type whose data is so old. */
  async rows(type: string, keys: readonly string[], age = '0'): Promise<void> {
    await this.db.query(
      `insert into public.${type.replaceAll('-', '_')} select key, (select pgfresh.clock()) - $2::interval from unnest($1::text[]) as key
       on conflict (key) do update set fetched_at = excluded.fetched_at`,
      [keys, age],
    );
  }

  /** So many users look at these pairs, without the check that a first subscription brings. */
  async look(type: string, keys: readonly string[], viewers = 1): Promise<void> {
    await this.db.query(
      `insert into pgfresh_engine.subscription (user_id, type_id, key, subscribed_at, last_seen_at)
       select 'u' || n, r.type_id, key, pgfresh.clock(), pgfresh.clock()
       from unnest($2::text[]) as key, generate_series(1, $3::int) as n, pgfresh.data_type_registry as r where r.data_type = $1::text
       on conflict do nothing`,
      [type, keys, viewers],
    );
  }

  tick(limit = 500): Promise<Counts> {
    return this.queue.value<Counts>('pgfresh_engine.plan_due_pairs($1::int)', [limit]);
  }

  /** Calls the sweep until all pairs have had their turn, and adds up what it says. */
  async sweep(limit = 500): Promise<Record<string, number>> {
    const counts: Record<string, number> = {};
    for (let done = false; !done;) {
      const answer = await this.queue.value<Counts>('pgfresh.check_and_queue_stale_data($1::int)', [limit]);
      for (const [name, count] of Object.entries(answer)) {
        if (typeof count === 'number') counts[name] = (counts[name] ?? 0) + count;
      }
      done = answer['done'] === true;
    }
    return counts;
  }

  /** The open jobs as "type key priority", in order. */
  async open(): Promise<string[]> {
    const rows = await this.db.query<{ job: string }>(
      `select data_type || ' ' || key || ' ' || priority as job from pgfresh_engine.open_jobs order by 1`,
    );
    return rows.map(({ job }) => job);
  }

  /** Ends every open job that is ready, with an outcome; says how many there were. */
  async finish(outcome: 'fresh' | 'unchanged' | 'empty' | 'older_source' | 'failed' | 'cancelled'): Promise<number> {
    const jobs = await this.queue.claim({ limit: 1_000 });
    const ids = jobs.map(({ id }) => id);
    if (outcome === 'cancelled') await this.db.query('select pgfresh.cancel_queue_jobs($1::bigint[])', [ids]);
    else if (outcome === 'failed')
      for (const { id } of jobs)
        await this.db.query(`select pgfresh.fail_queue_job($1::bigint, 'no', null, true)`, [id]);
    else
      for (const { id } of jobs)
        await this.db.query('select pgfresh.complete_queue_job($1::bigint, 1, null, $2::text)', [id, outcome]);
    return jobs.length;
  }

  warnings(): Promise<{ code: string; subject: string; count: number }[]> {
    return this.db.query('select code, subject, count from pgfresh.warnings order by code, subject');
  }
}
