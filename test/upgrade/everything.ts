import { resolveConfig, type Config } from '../../src/config/index.ts';
import { migrate, readSqlFiles, type Database, type Queryable } from '../../src/database/index.ts';
import { Events } from '../../src/events/index.ts';
import { Queue } from '../../src/queue/index.ts';
import { syncRegistry } from '../../src/registry/index.ts';
import { syncJobs } from '../../src/schedule/index.ts';

/** Roles of people, which a server has and not a database. */
export interface People {
  /** Owns the schema shop with its functions and its job. */
  readonly owner: string;
  /** Looks at rows with row security. */
  readonly viewer: string;
}

/** What is known of a database before it is dumped. */
export interface Before {
  /** The newest version of a pair. */
  readonly version: string;
  /** The token of a lease that is held. */
  readonly token: number;
}

const users = ({ owner, viewer }: People): string => `
  create schema shop authorization ${owner};
  create table public.quote (key text primary key, value numeric not null, fetched_at timestamptz);
  set role ${owner};
  create table shop.symbol (symbol text primary key, listed boolean not null default true);
  create table shop.profile (key text primary key, value numeric, fetched_at timestamptz);
  create table shop.daily (key text primary key, value numeric, fetched_at timestamptz);
  create table shop.chart (
    symbol text, days int, value numeric, minutes int, fetched_at timestamptz, primary key (symbol, days));
  create table shop.holding (key text primary key, value numeric, fetched_at timestamptz);
  create table shop.tidied (at timestamptz default clock_timestamp());
  alter table shop.holding enable row level security;
  create policy planner on shop.holding for select to pgfresh_evaluator using (true);
  create policy seen on shop.holding for select to ${viewer} using (true);
  grant usage on schema shop to ${viewer}, pgfresh_evaluator;
  grant select on shop.holding to ${viewer};
  create function shop.is_old(timestamptz, interval) returns boolean language sql stable
    as 'select $1 + $2 <= clock_timestamp()';
  create function shop.is_open(p_key text, p_type text) returns boolean language sql stable
    begin atomic select p_key <> '' and p_type is not null; end;
  create function shop.opens_at(text, text) returns timestamptz language plpgsql stable as 'begin return null; end';
  create function shop.tidy() returns jsonb language plpgsql as $$
    begin
      insert into shop.tidied default values;
      return '{"success": true, "message": "tidied"}';
    end $$;
  reset role;
  grant pgfresh_scheduler to ${owner};
  grant pgfresh_viewer to ${viewer}`;

const rows = `
  insert into shop.symbol select 'S' || n from generate_series(1, 40) as n;
  insert into public.quote select symbol, 1, clock_timestamp() - interval '1 day' from shop.symbol;
  insert into shop.profile select symbol, 1, clock_timestamp() - interval '1 day' from shop.symbol;
  insert into shop.daily select symbol, 1, clock_timestamp() from shop.symbol;
  insert into shop.chart select symbol, 7, 1, 60, clock_timestamp() - interval '1 day' from shop.symbol;
  insert into shop.holding values ('S1', 1, clock_timestamp());`;

/** Somebody looks at these pairs, and was last heard of so long ago. */
const look = (user: string, type: string, keys: string, silent: string): string => `
  insert into pgfresh_engine.subscription (user_id, type_id, key, subscribed_at, last_seen_at)
  select '${user}', r.type_id, k.key, pgfresh.clock(), pgfresh.clock() - interval '${silent}'
  from pgfresh.data_type_registry as r, (${keys}) as k(key) where r.data_type = '${type}';`;

/** Fills a new database with everything that a dump can hold: what is due, open, running, held, used, refused. */
export async function fillWithEverything(db: Database, config: Config, people: People): Promise<Before> {
  const events = new Events();
  await migrate(db, { files: await readSqlFiles(), events });
  await db.query(users(people));
  const resolved = resolveConfig({ config });
  await syncRegistry(db, resolved, events);
  await syncJobs(db, resolved, events);
  await db.query(rows);
  await db.query(`
    set role ${people.owner};
    insert into pgfresh.scheduled_jobs (name, function_name, every_min) values ('tidy', 'shop.tidy', '1 hour');
    reset role;
    -- It has been due for long. Slots are whole milliseconds.
    update pgfresh_engine.job_cursor set slot = date_trunc('hour', pgfresh.clock()) - interval '1 day', due_at = '-infinity'
    where job_id = (select id from pgfresh.scheduled_jobs where name = 'tidy')`);
  await db.query(look('ann', 'quote', 'select symbol from shop.symbol', '10 seconds'));
  await db.query(look('gone', 'chart', `select symbol || '|7' from shop.symbol`, '1 day'));
  await db.query('select pgfresh_engine.plan_due_pairs()');
  await db.query(`select pgfresh.queue_refresh_if_not_exists('S1', 'profile')`);
  await runWhatDies(db);
  await db.query(`
    select pgfresh_engine.warn('row_lost', 'quote', 'a row is gone', 'Find out why.');
    select pgfresh_engine.keep_refused_answer(type_id, 'S1', null, 'bad_schema', 'not good', 200, 'application/json', 2, '{}')
    from pgfresh.data_type_registry where data_type = 'quote'`);
  return readAndMark(db, people);
}

/** Processes that hold something, and that nobody will hear of again. */
async function runWhatDies(db: Queryable): Promise<void> {
  const number = async (text: string, values: unknown[] = []): Promise<number> => {
    const [row] = await db.query<{ number: number }>(`select (${text}) as number`, values);
    return row!.number;
  };
  const worker = await number(`pgfresh_engine.register_process('worker', 'dead worker')`);
  for (const type of ['profile', 'quote']) {
    const id = await number('select type_id from pgfresh.data_type_registry where data_type = $1::text', [type]);
    const { jobs } = await new Queue().claim(db, { worker, limit: 4, types: [id] });
    if (jobs.length === 0) throw new Error(`there was no job of ${type} to claim`);
  }
  const node = await number(`pgfresh_engine.register_process('gateway', 'dead gateway')`);
  await db.query(
    `select pgfresh_engine.set_node_demand($1::bigint, array[type_id], '{S2}', '{3}')
     from pgfresh.data_type_registry where data_type = 'profile'`,
    [node],
  );
  const scheduler = await number(
    `pgfresh_engine.serve_jobs(pgfresh_engine.register_process('scheduler', 'dead scheduler'), '{hourly}', '2020a')`,
  );
  await db.query(
    `insert into pgfresh.scheduled_job_runs (job_id, state, triggered_by, scheduled_for, started_at, scheduler)
     select id, 'running', 'scheduler', pgfresh.clock(), pgfresh.clock(), $1::bigint
     from pgfresh.scheduled_jobs where name = 'hourly'`,
    [scheduler],
  );
  // As long as nobody's lease is, so that a test which finds it ended knows why.
  await db.query(`
    update pgfresh_engine.process set lease_until = pgfresh.clock() + interval '1 hour';
    select pgfresh_engine.hold_duty('planner', gen_random_uuid(), '1 hour');
    select pgfresh_engine.hold_duty('pump', gen_random_uuid(), '1 hour')`);
}

/** Reads pairs as gateways do, by which functions and versions are made, and leaves marks of changes. */
async function readAndMark(db: Queryable, { viewer }: People): Promise<Before> {
  await db.query(
    `select pgfresh_engine.read_pairs_as($1::text, 'ann', '{}', type_id, '{S1}')
     from pgfresh.data_type_registry where data_type = 'holding'`,
    [viewer],
  );
  await db.query(`select pgfresh_engine.watch_changes(array_agg(type_id)) from pgfresh.data_type_registry`);
  await db.query(`update public.quote set value = 2 where key = 'S1'`);
  // As if the old server had seen far more transactions than the new one.
  await db.query(`insert into pgfresh_engine.change (xid, type_id, keys)
    select '900000000000', type_id, '{S1}' from pgfresh.data_type_registry where data_type = 'quote'`);
  // As if it had seen many failovers.
  await db.query(
    `update pgfresh_engine.change_epoch set epoch = split_part(epoch, '.', 1) || '.ffffff.ffffffffffffff'`,
  );
  const [pair] = await db.query<{ version: string }>(`
    select p.version from pgfresh.data_type_registry as r
    cross join lateral pgfresh_engine.read_pairs(r.type_id, '{S1}') as p where r.data_type = 'quote'`);
  const [lease] = await db.query<{ token: string }>(
    `select token from pgfresh.acquire_refresh_lock('nightly', 'a dead process', '1 hour')`,
  );
  return { version: pair!.version, token: Number(lease!.token) };
}
