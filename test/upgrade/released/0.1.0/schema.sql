\set ON_ERROR_STOP on

begin;

set local search_path = pg_catalog, pg_temp;

select pg_advisory_xact_lock(7467337004);

do $guard$
declare
  problem text := (with ours as (
  select oid, nspowner from pg_namespace where nspname = 'pgfresh'
), object (classid, objid, owner) as (
  select 'pg_namespace'::regclass, oid, nspowner from ours
  union all
  select 'pg_class'::regclass, pg_class.oid, relowner from pg_class join ours on relnamespace = ours.oid
  union all
  select 'pg_proc'::regclass, pg_proc.oid, proowner from pg_proc join ours on pronamespace = ours.oid
  union all
  select 'pg_type'::regclass, pg_type.oid, typowner from pg_type join ours on typnamespace = ours.oid
), problem (text) as (
  select format('%s belongs to %I', pg_describe_object(classid, objid, 0), pg_get_userbyid(owner))
  from object
  join pg_roles as me on me.rolname = current_user
  left join pg_roles as role on role.oid = object.owner
  where not (
    owner = me.oid
    or coalesce(role.rolsuper, false)
    -- Made by ourselves, to ask users' tables with its rights instead of ours.
    or (classid = 'pg_proc'::regclass and owner = to_regrole('pgfresh_evaluator'))
    -- Made by ourselves too, to run the jobs of a role. Nobody who owns one can write another text into it.
    or (classid = 'pg_proc'::regclass and (select proname ~ '^run_as_[0-9]+$' from pg_proc where pg_proc.oid = objid))
    or owner = (select datdba from pg_database where datname = current_database())
    or (not me.rolsuper and pg_has_role(owner, 'usage')))
  union all
  select format('it holds %s, but no record of migrations', pg_describe_object(classid, objid, 0))
  from object
  where classid <> 'pg_namespace'::regclass
    and not exists (select from pg_class join ours on relnamespace = ours.oid where relname = 'migrations')
)
select text from problem limit 1);
begin
  if problem is not null then
    raise exception 'PGF_SCHEMA_FOREIGN: the schema "pgfresh" is not to be trusted: %', problem;
  end if;
end
$guard$;

do $$ begin
  if to_regnamespace('pgfresh') is null then create schema pgfresh; end if;
end $$;
create table if not exists pgfresh.migrations (
  kind text not null check (kind in ('migration', 'functions')),
  name text not null,
  hash text not null,
  applied_at timestamptz not null default clock_timestamp(),
  primary key (kind, name)
);
comment on table pgfresh.migrations is 'Which of pgfresh''s SQL files this database has seen, and with what text.';

-- migration 001_schema
comment on schema pgfresh is 'pgfresh: keeps tables that mirror metered APIs fresh for the people who look at them.';

-- Nobody gets anything by default; rights are given one by one, by function.
revoke all on schema pgfresh from public;

insert into pgfresh.migrations (kind, name, hash) values ('migration'::text, '001_schema'::text, 'ec02cc559ec5e37b0aaf7aaa6fdf0bf59c41eb412748d555aaded3ff53f97caf'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- migration 002_registry
create table pgfresh.sources (
  id int generated always as identity primary key,
  name text not null unique check (name ~ '^[a-z][a-z0-9_-]{0,62}$'),
  enabled boolean not null default true,
  rate_limit_per_minute int check (rate_limit_per_minute > 0),
  -- Bytes that may be used in any window; null is no limit. The buffer is the share of it that is ever used.
  quota_bytes bigint check (quota_bytes > 0),
  quota_window interval not null default '30 days' check (quota_window between '1 hour' and '366 days'),
  quota_buffer numeric not null default 0.95 check (quota_buffer > 0 and quota_buffer <= 1),
  failure_streak int not null default 0 check (failure_streak >= 0),
  last_success_at timestamptz,
  last_failure_at timestamptz,
  paused_until timestamptz,
  created_at timestamptz not null default clock_timestamp()
);
comment on table pgfresh.sources is 'The providers: who is called, and within which limits.';

/*
  What a user writes to have a data type kept fresh, by one insert. What the names mean is looked up when the row is
  written, and kept in type_resolution. A name may have its schema before a dot; without one it means the schema public.
*/
create table pgfresh.data_type_registry (
  type_id int generated always as identity unique,
  data_type text primary key check (data_type ~ '^[a-z][a-z0-9_-]{0,62}$'),
  -- Given by name; the trigger fills in the number.
  source text not null references pgfresh.sources (name) on update cascade,
  source_id int not null references pgfresh.sources,
  fetcher text check (fetcher ~ '^[A-Za-z][A-Za-z0-9_.-]{0,99}$'),

  -- The table that mirrors the provider. A key of several columns is written with | between them.
  table_name text not null,
  key_columns text[] not null default '{key}' check (cardinality(key_columns) between 1 and 8),
  timestamp_column text not null,

  -- How old is too old. There is no default, because nobody else can know it.
  ttl interval not null check (ttl > '0' and ttl <= '3660 days'),
  -- A column that says it for single rows, as an interval or in whole minutes.
  ttl_column text,
  -- How long the answer that there is nothing is good for; the ttl if null.
  empty_ttl interval check (empty_ttl > '0' and empty_ttl <= '3660 days'),
  staleness_function text not null default 'pgfresh.is_data_stale',

  refresh_strategy text not null default 'on-demand' check (refresh_strategy in ('on-demand', 'scheduled')),
  refresh_schedule text check (refresh_schedule <> ''),
  schedule_zone text not null default 'UTC',
  check ((refresh_strategy = 'scheduled') = (refresh_schedule is not null)),

  -- Which keys there are: those of a table, or those that match a pattern; any, if neither is given.
  key_table text,
  key_table_column text,
  key_active_column text,
  key_pattern text,
  normalise text not null default 'none' check (normalise in ('none', 'upper', 'lower')),
  check ((key_table is null) = (key_table_column is null)),
  check (key_table is not null or key_active_column is null),
  check (key_table is null or key_pattern is null),
  -- A cycle walks over all keys, so it must know them.
  check (refresh_strategy <> 'scheduled' or key_table is not null),

  -- A closed gate holds back refreshes of what is there already:
  -- (key text, data_type text) returns boolean, and when it opens.
  gate_function text,
  gate_opens_function text,
  check (gate_function is not null or gate_opens_function is null),

  -- Below so many viewers the priority is this, and above it the number of viewers.
  background_priority int check (background_priority between 0 and 1000000),
  ui_threshold int check (ui_threshold between 1 and 1000000),
  check ((background_priority is null) = (ui_threshold is null)),

  -- Data types whose row of the same key must be there first.
  depends_on text[] not null default '{}' check (cardinality(depends_on) <= 16),

  estimated_data_size_bytes bigint not null default 0 check (estimated_data_size_bytes between 0 and 1000000000000000),
  source_timestamp_field text check (source_timestamp_field <> ''),
  max_retries int not null default 3 check (max_retries between 0 and 100),
  -- A job without progress for so long is taken back.
  -- Bounded, because recovery subtracts it from the time for all types at once.
  max_run interval not null default '300 seconds' check (max_run > '0' and max_run <= '30 days'),
  visibility text not null default 'shared' check (visibility in ('shared', 'rls')),
  managed_by text not null default 'sql' check (managed_by in ('config', 'sql')),
  created_at timestamptz not null default clock_timestamp()
);
create index on pgfresh.data_type_registry (source_id);
comment on table pgfresh.data_type_registry is
  'One row a data type: where it lives, when it is stale, how it is fetched and what it may cost.';

-- What the names of a registry row meant when it was written, to be compared with what they mean when they are used.
create table pgfresh.type_resolution (
  type_id int primary key references pgfresh.data_type_registry (type_id) on delete cascade,
  fingerprint jsonb not null,
  -- The statements that ask the user's tables and functions, with every name in them resolved and quoted.
  check_sql text not null,
  missing_sql text not null,
  rows_sql text,
  gate_sql text,
  keys_sql text,
  unknown_sql text,
  -- What of the catalog it was made of, and in which versions; see catalog_stamps.
  tables oid[] not null,
  columns name[] not null,
  functions name[] not null,
  stamp text
);
comment on table pgfresh.type_resolution is 'What each registry row refers to, and the statements made of it.';

create table pgfresh.type_dependency (
  type_id int not null references pgfresh.data_type_registry (type_id) on delete cascade,
  needs_id int not null references pgfresh.data_type_registry (type_id) on delete cascade,
  primary key (needs_id, type_id)
);
comment on table pgfresh.type_dependency is 'Which data type needs which, by number.';

create table pgfresh.warnings (
  code text not null,
  subject text not null,
  message text not null,
  next_step text not null,
  first_at timestamptz not null,
  last_at timestamptz not null,
  count bigint not null default 1,
  primary key (code, subject)
);
create index on pgfresh.warnings (last_at);
comment on table pgfresh.warnings is
  'What is not an error but should not stay unseen: one row for each kind and subject, with how often and when.';

insert into pgfresh.migrations (kind, name, hash) values ('migration'::text, '002_registry'::text, '928dd68b83b052b690a60e53d6b18c0a57f46131c6e6b58883fd862aa18a3ec3'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- migration 003_queue
-- Only sources with a quota have a row here, so the others touch nothing shared when their jobs are claimed and ended.
create table pgfresh.source_state (
  source_id int primary key references pgfresh.sources on delete cascade,
  reserved bigint not null default 0 check (reserved >= 0),
  -- A bucket that fills with what is used and drains at the pace of the quota.
  level double precision not null default 0,
  level_at timestamptz not null,
  -- The large job that small ones must leave room for, and since when they do.
  saving_job bigint,
  saving_bytes bigint,
  saving_since timestamptz
) with (fillfactor = 50);
comment on table pgfresh.source_state is
  'What each source with a quota has reserved and how full its paced allowance is.';

-- The last word on how large an answer of a type is. Apart from the registry, because every completion writes it.
create table pgfresh.type_stats (
  type_id int primary key references pgfresh.data_type_registry (type_id) on delete cascade,
  estimated_bytes bigint not null,
  samples bigint not null default 0
) with (fillfactor = 50);
comment on table pgfresh.type_stats is 'Sizes of answers, corrected by every completion.';

create sequence pgfresh.job_id;

-- No foreign key: it would cost more than the row. A pair is made by the functions, which know the type.
create table pgfresh.pairs (
  type_id int not null,
  key text collate "C" not null,
  -- The one open job of the pair. This row is the mutex by which there is never a second one.
  job_id bigint,
  last_job bigint,
  checked_at timestamptz,
  outcome text,
  fails int not null default 0,
  -- The last success stays here when its history is long gone.
  ok_job bigint,
  ok_at timestamptz,
  -- Whether anybody looks at it, or did a moment ago. How many is in no index, so that counting rewrites none.
  demanded boolean not null default false,
  viewers int not null default 0,
  -- Until when nobody's pair counts as demanded all the same.
  warm_until timestamptz,
  -- When the planner looks at it next; infinity while a job is open and for everything that nobody looks at.
  due_at timestamptz not null default 'infinity',
  -- Its last outcome says that there is no sense in asking earlier.
  not_before timestamptz,
  primary key (type_id, key)
-- Room for a second version of every row:
-- pairs that were asked for together are ended together, and stay on their page.
) with (fillfactor = 50);
-- For the sweep. What changes all the time, jobs and due times, is in no index of this table.
create index pairs_demanded on pgfresh.pairs (type_id, key) where demanded;
create index pairs_cooling on pgfresh.pairs (warm_until) where warm_until is not null;
comment on table pgfresh.pairs is
  'Every (data type, key) that was ever asked for: who looks at it, when it is due, its open job and its last outcome.';

/*
  What the tick looks at, by time. Who gives a demanded pair a time adds an entry, and the tick takes it away; one whose
  pair says otherwise by then means nothing. Apart from the pair, which would else be rewritten in all of its indexes by
  every job.
*/
create table pgfresh.due (
  due_at timestamptz not null,
  type_id int not null,
  key text collate "C" not null,
  primary key (due_at, type_id, key)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
comment on table pgfresh.due is 'When which pair is due.';

create table pgfresh.worker (
  id bigint generated always as identity primary key,
  name text not null,
  started_at timestamptz not null,
  lease_until timestamptz not null,
  -- Somebody who enqueues wakes only those who wait.
  idle boolean not null default false
) with (fillfactor = 50);
comment on table pgfresh.worker is 'Incarnations of worker processes, each alive until its lease ends.';

-- One row a claim and not one a job: which jobs a worker holds is asked rarely, and claimed often.
create table pgfresh.claim (
  request uuid primary key,
  worker bigint,
  claimed_at timestamptz not null,
  job_ids bigint[] not null
);
-- Ids do not compress, and trying takes longer than the rest of the insert.
alter table pgfresh.claim alter column job_ids set storage external;
create index on pgfresh.claim (worker);
comment on table pgfresh.claim is 'What was claimed together. Goes when its jobs have ended or were taken back.';

create table pgfresh.job (
  id bigint primary key,
  -- The id once more, for the ready index alone:
  -- an order that the primary key had too would tempt the planner to walk that.
  seq bigint not null,
  run_at timestamptz not null,
  created_at timestamptz not null,
  claimed_at timestamptz,
  progress_at timestamptz,
  est_bytes bigint not null,
  reserved bigint not null default 0,
  worker bigint,
  request uuid,
  type_id int not null,
  source_id int not null,
  priority int not null,
  attempt int not null default 0,
  retries smallint not null default 0,
  lost smallint not null default 0,
  band smallint not null,
  size_class smallint not null default 0,
  -- w waits for its time, r is ready, x runs
  state "char" not null check (state in ('w', 'r', 'x')),
  rerun boolean not null default false,
  key text collate "C" not null,
  error text,
  metadata jsonb
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
comment on table pgfresh.job is 'Open jobs only. Who is next is found by the ready index alone, in exactly its order.';
-- The source leads, so a source that may not be called costs a claim nothing, however many of its jobs wait.
create index job_ready on pgfresh.job (source_id, size_class, band desc, seq) where state = 'r';
create index job_waiting on pgfresh.job (run_at) where state = 'w';

-- Two trees, because successes are many and soon forgotten, and the rest is few and kept for longer.
-- BRIN: ids and times grow with the table, and a page range is found without an entry for every row.
create table pgfresh.history_succeeded (
  id bigint not null,
  ended_at timestamptz not null,
  created_at timestamptz not null,
  claimed_at timestamptz,
  bytes bigint not null,
  worker bigint,
  type_id int not null,
  source_id int not null,
  priority int not null,
  attempt int not null,
  retries int not null,
  lost int not null,
  fetch_ms int,
  status text not null,
  outcome text not null,
  key text collate "C" not null,
  error text,
  metadata jsonb
) partition by range (ended_at);
comment on table pgfresh.history_succeeded is 'Jobs that succeeded, by day.';
create index on pgfresh.history_succeeded using brin (id, ended_at) with (pages_per_range = 32);
create table pgfresh.history_succeeded_default partition of pgfresh.history_succeeded default;

create table pgfresh.history_other (like pgfresh.history_succeeded) partition by range (ended_at);
comment on table pgfresh.history_other is 'Jobs that failed or were cancelled, by day: the dead letters.';
alter table pgfresh.history_other add column redriven_at timestamptz;
create index on pgfresh.history_other (id);
-- Few rows, and somebody who asks why a pair is not fresh wants its failures at once.
create index on pgfresh.history_other (type_id, key, ended_at);
create table pgfresh.history_other_default partition of pgfresh.history_other default;

create table pgfresh.usage (
  source_id int not null,
  hour timestamptz not null,
  -- Several rows an hour, so that ends on different connections do not wait for each other.
  shard smallint not null,
  bytes bigint not null,
  calls bigint not null,
  primary key (source_id, hour, shard)
) with (fillfactor = 70);
comment on table pgfresh.usage is 'Bytes that were used, by source and hour.';

create table pgfresh.usage_correction (
  id bigint generated always as identity primary key,
  source_id int not null references pgfresh.sources on delete cascade,
  at timestamptz not null,
  bytes bigint not null check (bytes <> 0),
  reason text not null check (reason <> '')
);
comment on table pgfresh.usage_correction is
  'Signed entries by which the ledger was brought in line with the provider.';

-- When recovery last ran, to tell dead workers from a database that was away.
create table pgfresh.recovery (
  single boolean primary key default true check (single),
  ran_at timestamptz not null,
  trust_leases_from timestamptz not null
);
insert into pgfresh.recovery (ran_at, trust_leases_from) values ('-infinity', '-infinity');
comment on table pgfresh.recovery is 'When recovery last ran, and from when on it believes leases again.';

insert into pgfresh.migrations (kind, name, hash) values ('migration'::text, '003_queue'::text, 'e9b86fce19f3c0763c70d484494ed5f02822903307ad0a1591a678952bbeb6e3'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- migration 004_planning
-- Who looks at what, as told by clients that speak SQL. No index on last_seen_at, so that a heartbeat rewrites none.
-- Ids are compared byte by byte, whatever the collation of the caller's own columns:
-- with another one the index could not be used.
create table pgfresh.active_subscriptions (
  user_id text collate "C" not null check (user_id <> '' and octet_length(user_id) <= 200),
  type_id int not null references pgfresh.data_type_registry (type_id) on delete cascade,
  key text collate "C" not null,
  subscribed_at timestamptz not null,
  last_seen_at timestamptz not null,
  primary key (user_id, type_id, key)
) with (fillfactor = 70);
create index on pgfresh.active_subscriptions (type_id, key);
comment on table pgfresh.active_subscriptions is
  'Subscriptions of clients that speak SQL, each alive for five minutes after its last heartbeat. '
  'last_seen_at is written at most every 75 seconds.';

-- How often each user called in the current minute. Unlogged: after a crash the minute begins anew.
create unlogged table pgfresh.viewer_calls (
  user_id text collate "C" primary key,
  minute timestamptz not null,
  calls int not null
) with (fillfactor = 50);
comment on table pgfresh.viewer_calls is 'Calls of each user in the current minute, for their cap.';

create table pgfresh.nodes (
  id bigint generated always as identity primary key,
  name text not null,
  started_at timestamptz not null,
  lease_until timestamptz not null
) with (fillfactor = 50);
comment on table pgfresh.nodes is 'Gateway processes, each alive until its lease ends.';

create table pgfresh.node_demand (
  node_id bigint not null references pgfresh.nodes on delete cascade,
  type_id int not null references pgfresh.data_type_registry (type_id) on delete cascade,
  key text collate "C" not null,
  viewers int not null check (viewers > 0),
  primary key (node_id, type_id, key)
) with (fillfactor = 70);
create index on pgfresh.node_demand (type_id, key);
comment on table pgfresh.node_demand is 'How many distinct users look at a pair through each node.';

-- Every change of the two above, until the planner has added it to the pair.
-- Appended, so that viewers of one pair do not wait for each other.
create table pgfresh.demand_change (
  id bigint generated always as identity primary key,
  type_id int not null,
  key text collate "C" not null,
  delta int not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
comment on table pgfresh.demand_change is 'Viewers that came and went since the planner last looked.';

create table pgfresh.planner_state (
  single boolean primary key default true check (single),
  -- Where the sweep goes on.
  sweep_type int not null default 0,
  sweep_key text collate "C" not null default '',
  sweep_started_at timestamptz,
  -- All demand fell silent at once, and is believed only from then on.
  demand_held_until timestamptz
);
insert into pgfresh.planner_state default values;
comment on table pgfresh.planner_state is 'Where the sweep stands, and whether a total loss of demand is being held.';

create table pgfresh.planner_run (
  kind text not null check (kind in ('tick', 'sweep', 'schedule')),
  -- Ticks of one minute are one row; so is one sweep over everything.
  started_at timestamptz not null,
  last_at timestamptz not null,
  calls int not null,
  ms double precision not null,
  counts jsonb not null,
  primary key (kind, started_at)
);
comment on table pgfresh.planner_run is
  'What the planner did: ticks by minute, sweeps and scheduled refreshes, with their time and counts.';

create table pgfresh.refresh_cycle (
  type_id int not null references pgfresh.data_type_registry (type_id) on delete cascade,
  slot timestamptz not null,
  opened_at timestamptz not null,
  -- The last key that had its turn; null before the first.
  cursor_key text,
  queued bigint not null default 0,
  done_at timestamptz,
  primary key (type_id, slot)
);
create index on pgfresh.refresh_cycle (slot, type_id) where done_at is null;
comment on table pgfresh.refresh_cycle is 'Rounds over all keys of a scheduled data type, each opened by its slot.';

-- Duties that one process at a time does, as long as it says so.
create table pgfresh.duty (
  name text primary key,
  holder uuid not null,
  lease_until timestamptz not null
) with (fillfactor = 50);
comment on table pgfresh.duty is 'Who does each duty of which there must be only one, and until when.';

insert into pgfresh.migrations (kind, name, hash) values ('migration'::text, '004_planning'::text, 'a4b7416fa19b4ab6a20a70eacdfd0e80cee64cadbf46ae2f6c16a01d562ff168'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- migration 005_sources
-- Functions and types whose arguments have changed; the files of functions make them anew.
drop function if exists pgfresh.complete_jobs(bigint[], int[], bigint[], text, int[]);
drop function if exists pgfresh.turn_back_jobs(bigint[], int[], bigint[], text, text, text);
drop type if exists pgfresh.claimed_job cascade;

alter table pgfresh.sources
  -- One row of rate_slot for each.
  add check (rate_limit_per_minute <= 100000),
  -- How many API keys it is called with. Each has a rate of its own.
  add column api_keys smallint not null default 1 check (api_keys between 1 and 100),
  -- The share of its rate that is kept for what people look at; background work takes only what lies beyond.
  add column viewed_share numeric not null default 0.2 check (viewed_share >= 0 and viewed_share < 1),
  -- How many of its jobs may run at once; null is no limit.
  add column max_concurrency int check (max_concurrency > 0),
  -- Whether two jobs of one key may run at once, of whatever data types.
  add column one_key_at_a_time boolean not null default false,
  -- Who wrote paused_until, and why.
  add column paused_by text check (paused_by in ('person', 'provider', 'breaker')),
  add column pause_reason text check (length(pause_reason) <= 1000),
  -- Not null while the breaker is open:
  -- when paused_until has passed, one job at a time tries whether the source is back.
  add column breaker_opened_at timestamptz,
  add column probe_job bigint,
  add column probe_attempt int,
  -- When jobs of it were last put off to be tried again, at most ten.
  add column recent_retries timestamptz[] not null default '{}' check (cardinality(recent_retries) <= 10),
  -- A claim has to count something for it. What this is false for touches nothing shared when it is claimed.
  add column limited boolean not null generated always as (
    quota_bytes is not null or rate_limit_per_minute is not null or max_concurrency is not null or one_key_at_a_time
  ) stored;

-- One row for each call that an API key may make in a minute. Who takes it says when it is free again, so it frees
-- itself whatever becomes of who took it.
create table pgfresh.rate_slot (
  source_id int not null references pgfresh.sources on delete cascade,
  api_key smallint not null,
  slot int not null,
  free_at timestamptz not null,
  primary key (source_id, api_key, slot)
) with (
  fillfactor = 50,
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0
);
create index rate_slot_free on pgfresh.rate_slot (source_id, free_at);
comment on table pgfresh.rate_slot is
  'The calls that each source with a rate may make in a minute, and when each of them may be made again.';

-- What was claimed from sources that count their running jobs.
-- It counts while the job runs in this attempt, so no end has to touch it.
create table pgfresh.source_place (
  source_id int not null references pgfresh.sources on delete cascade,
  job_id bigint not null,
  attempt int not null,
  key text collate "C" not null,
  primary key (source_id, job_id)
) with (
  fillfactor = 50,
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0
);
comment on table pgfresh.source_place is 'Running jobs of sources that limit how many run at once.';

create table pgfresh.spending_stop (
  single boolean primary key default true check (single),
  stopped_at timestamptz not null,
  reason text not null check (length(reason) between 1 and 1000)
);
comment on table pgfresh.spending_stop is 'Has a row while nothing may be spent.';

alter table pgfresh.history_succeeded
  add column calls int not null default 1, add column validate_ms int, add column commit_ms int;
alter table pgfresh.history_other
  add column calls int not null default 0, add column validate_ms int, add column commit_ms int;

-- Sources that had a limit before there were rows for it.
insert into pgfresh.rate_slot (source_id, api_key, slot, free_at)
select s.id, 1, n, '-infinity'
from pgfresh.sources as s
cross join lateral generate_series(1, s.rate_limit_per_minute) as n;

insert into pgfresh.migrations (kind, name, hash) values ('migration'::text, '005_sources'::text, 'd379ccffaf5f4c0a57241caa62a8d45e75ca2806feae671b738df5fc1cf80819'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- migration 006_refresh
-- Answers that were not good enough to be written, to be looked at and checked again after a correction.
-- Few, and the newest only.
create table pgfresh.refused_answer (
  id bigint generated always as identity primary key,
  type_id int not null references pgfresh.data_type_registry (type_id) on delete cascade,
  key text collate "C" not null,
  job_id bigint,
  at timestamptz not null,
  outcome text not null,
  error text not null,
  status int,
  content_type text,
  -- How large it was; what is kept may be its start only.
  size bigint not null,
  body bytea not null,
  metadata jsonb
);
create index on pgfresh.refused_answer (type_id, id);
-- Bodies are read one at a time, if at all.
alter table pgfresh.refused_answer alter column body set storage external;
comment on table pgfresh.refused_answer is
  'The newest refused answers of each data type, without secrets; pgfresh refused shows them.';

insert into pgfresh.migrations (kind, name, hash) values ('migration'::text, '006_refresh'::text, '473ea14fe86150db223fa53ff82b49a9d52748df00159e13b6d221ab8566932c'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- migration 007_scheduled_jobs
/*
  What runs at set times, by one insert. Bounds of single values are here; what a name means, and whether a schedule can
  ever come, is looked up by the triggers of sql/functions/jobs.sql.
*/
create table pgfresh.scheduled_jobs (
  id int generated always as identity primary key,
  name text collate "C" not null unique check (name ~ '^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$'),
  description text check (octet_length(description) <= 4000),
  -- A function of the database, or a handler of the configuration.
  kind text not null default 'sql' check (kind in ('sql', 'handler')),
  -- The function, with its schema and a dot before it if that is not public;
  -- or the handler's name, which is the job's if it is left out.
  function_name text not null check (octet_length(function_name) between 1 and 200),

  -- Five fields in a time zone, or a time between two bounds after the last run; another one after a failure.
  schedule text check (length(schedule) between 1 and 500),
  timezone text not null default 'UTC',
  every_min interval check (every_min between '1 second' and '366 days'),
  every_max interval check (every_max between '1 second' and '366 days'),
  failure_min interval check (failure_min between '1 second' and '366 days'),
  failure_max interval check (failure_max between '1 second' and '366 days'),
  check ((schedule is null) <> (every_min is null)),
  check ((every_min is null) = (every_max is null) and every_min <= every_max),
  check ((failure_min is null) = (failure_max is null) and failure_min <= failure_max),
  check (failure_min is null or every_min is not null),

  enabled boolean not null default true,
  params jsonb not null default '{}' check (jsonb_typeof(params) = 'object' and octet_length(params::text) <= 65536),
  timeout interval not null default '30 seconds' check (timeout between '1 millisecond' and '1 day'),
  retries int not null default 0 check (retries between 0 and 100),
  -- The wait before the first retry; it doubles with each one.
  retry_base interval not null default '15 seconds' check (retry_base between '1 second' and '1 day'),
  -- What is done about slots that came while no scheduler was up.
  catch_up text not null default 'once' check (catch_up in ('once', 'skip', 'all')),
  -- How far back that goes, and how many runs it may be.
  catch_up_window interval not null default '1 day' check (catch_up_window between '1 second' and '366 days'),
  catch_up_max int not null default 100 check (catch_up_max between 1 and 10000),
  -- What is done about a slot that comes while a run is under way.
  overlap text not null default 'skip' check (overlap in ('skip', 'queue')),
  jitter interval not null default '0' check (jitter between '0' and '1 day'),
  -- Days of the job's time zone on which it does not run.
  blackout_dates date[] not null default '{}'
    check (cardinality(blackout_dates) <= 1000 and coalesce(array_ndims(blackout_dates), 1) = 1
      and array_position(blackout_dates, null) is null),

  paused_at timestamptz,
  paused_by text check (octet_length(paused_by) <= 200),
  paused_reason text check (octet_length(paused_reason) <= 1000),
  -- Null is until somebody resumes it.
  paused_until timestamptz,
  check (paused_at is not null or (paused_by is null and paused_reason is null and paused_until is null)),

  -- As whom it runs.
  owner regrole not null default quote_ident(current_user)::regrole,
  managed_by text not null default 'sql' check (managed_by in ('config', 'sql')),
  -- What the function's name meant when the row was written; see job_problem.
  resolution jsonb,
  -- What only a scheduler can see, such as a handler that its configuration lacks. The rest is told by job_problem.
  problem text,
  created_at timestamptz not null default clock_timestamp(),
  updated_at timestamptz not null default clock_timestamp()
);
create index on pgfresh.scheduled_jobs (owner);
comment on table pgfresh.scheduled_jobs is
  'One row a job: what runs, when, as whom, and what is done when that does not work.';

insert into pgfresh.migrations (kind, name, hash) values ('migration'::text, '007_scheduled_jobs'::text, '5cdb7d0c6b0b6b5fd7fb2a5844f654c7036039b06ba2d906f76c968ca75c4f56'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- migration 008_slots
-- Processes that run jobs, each alive until its lease ends.
create table pgfresh.scheduler (
  id bigint generated always as identity primary key,
  name text not null,
  started_at timestamptz not null,
  -- Since when its heartbeats have come without a gap. Who had a gap himself can not tell who else is gone.
  steady_since timestamptz not null,
  lease_until timestamptz not null,
  -- The handlers that it can run.
  handlers text[] not null
) with (fillfactor = 50);
comment on table pgfresh.scheduler is
  'Scheduler processes, each alive until its lease ends, and the handlers that they know.';

create table pgfresh.schedule_state (
  single boolean primary key default true check (single),
  -- Of the time zones by which future slots were computed; null before the first scheduler.
  zone_data text,
  -- The last job whose history was pruned.
  pruned_job int not null default 0
);
insert into pgfresh.schedule_state default values;
comment on table pgfresh.schedule_state is 'By which time zone data slots were computed, and where pruning stands.';

/*
  Where each job stands. Apart from the job, so that what is rewritten at every slot is narrow. Its row is the mutex of
  the job: whoever opens a run holds it.
*/
create table pgfresh.job_cursor (
  job_id int primary key references pgfresh.scheduled_jobs on delete cascade,
  -- Grows whenever the job's times change, so that nobody goes on with what he has read before.
  revision int not null default 0,
  -- The first slot that is not accounted for; null if a scheduler has yet to compute it.
  slot timestamptz,
  -- When to look: the slot and its jitter. Infinity while the end of a run is what is waited for.
  due_at timestamptz not null,
  -- Why slots up to now are skipped: the job was disabled or paused until a moment ago.
  behind text,
  -- The handler that it needs; null for SQL.
  handler text collate "C",
  runs bigint not null default 0,
  successes bigint not null default 0,
  failures_in_a_row int not null default 0,
  last_run_at timestamptz,
  last_run_success boolean,
  last_success_at timestamptz
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);
create index on pgfresh.job_cursor (due_at);
comment on table pgfresh.job_cursor is 'The next slot of each job, and what came of its runs so far.';

-- What takes long to count. Apart from the cursor, which whoever opens a run holds.
create table pgfresh.job_statistics (
  job_id int primary key references pgfresh.scheduled_jobs on delete cascade,
  -- Of a job that has had so many. Where it has had others since, they are counted by whoever asks.
  runs bigint not null,
  counted_at timestamptz not null,
  success_rate_percent_7d numeric,
  p50_ms float8,
  p95_ms float8,
  lateness_p95_ms float8
) with (fillfactor = 70);
comment on table pgfresh.job_statistics is
  'How the newest runs of each job went, so that looking at all jobs does not read all runs.';

create table pgfresh.scheduled_job_runs (
  id bigint generated always as identity primary key,
  job_id int not null references pgfresh.scheduled_jobs on delete cascade,
  state text not null check (state in ('waiting', 'running', 'succeeded', 'failed', 'cancelled', 'skipped')),
  triggered_by text not null check (triggered_by in ('scheduler', 'manual', 'catchup', 'backfill')),
  -- The slot, which is the time of the schedule before jitter; of a manual run, when it was asked for;
  -- of skips, the first slot and the last.
  scheduled_for timestamptz not null,
  scheduled_to timestamptz,
  occurrences int not null default 1,
  attempt int not null default 1,
  -- How many of the attempts before were lost with their process or the database, and are nobody's failure.
  lost int not null default 0,
  -- Of one that waits: not before; infinity while another run of the job has to end first.
  run_at timestamptz,
  started_at timestamptz,
  completed_at timestamptz,
  duration_ms bigint,
  lateness_ms bigint,
  success boolean,
  reason text check (reason in ('overlap', 'missed', 'paused', 'blackout', 'disabled')),
  message text,
  details jsonb,
  -- Instead of the job's, if the run has its own.
  params jsonb,
  scheduler bigint,
  worker text,
  requested_by text,
  cancel_asked boolean not null default false,
  -- The least time between two runs of a backfill.
  pause interval,
  check ((state = 'skipped') = (reason is not null)),
  check ((state = 'waiting') = (run_at is not null)),
  check ((state = 'running') = (scheduler is not null))
) with (fillfactor = 80);
-- A slot that was skipped may be run later, by a backfill.
create unique index on pgfresh.scheduled_job_runs (job_id, scheduled_for, attempt)
  where triggered_by <> 'manual' and state <> 'skipped';
create index on pgfresh.scheduled_job_runs (job_id, id);
create index on pgfresh.scheduled_job_runs (job_id) where state in ('waiting', 'running');
create index on pgfresh.scheduled_job_runs (run_at) where state = 'waiting';
create index on pgfresh.scheduled_job_runs (scheduler) where state = 'running';
comment on table pgfresh.scheduled_job_runs is
  'Every slot of every job: it ran, once an attempt, or it was skipped, with the reason. '
  'Skips of one reason that follow each other are one row.';

create type pgfresh.taken_run as (
  run_id bigint, job_id int, name text, kind text, function_name text, params jsonb, timeout_ms float8,
  slot timestamptz, attempt int, triggered_by text, lateness_ms bigint, skipped text, occurrences int
);
comment on type pgfresh.taken_run is
  'A run that a scheduler has just started, with what it needs for it; or slots that were skipped, with the reason.';

insert into pgfresh.migrations (kind, name, hash) values ('migration'::text, '008_slots'::text, 'de2e74dc330e344c34ce3148a8a8655c1b0bfeffc064d57e85db8c60f68b4c61'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- migration 009_leases
-- One row for each piece of work that one process at a time does when it is due. No index but that of the key, so that
-- taking, renewing and giving back a lease rewrite none.
create table pgfresh.refresh_schedule (
  function_name text collate "C" primary key check (function_name <> '' and octet_length(function_name) <= 200),
  enabled boolean not null default true,
  -- Null is due.
  next_run_at timestamptz,
  -- When the last run ended, and how.
  last_run_at timestamptz,
  last_status text check (last_status in ('success', 'failed')),
  failures_in_row int not null default 0,
  -- How long after a run the next one is due: a random time between the two.
  success_wait_min interval not null default '10 minutes' check (success_wait_min >= '0'),
  success_wait_max interval not null default '15 minutes'
    check (success_wait_max >= success_wait_min and success_wait_max <= '366 days'),
  failure_wait_min interval not null default '20 minutes' check (failure_wait_min >= '0'),
  failure_wait_max interval not null default '40 minutes'
    check (failure_wait_max >= failure_wait_min and failure_wait_max <= '366 days'),
  locked_until timestamptz,
  locked_by text,
  locked_at timestamptz,
  lock_token bigint not null default 0
) with (fillfactor = 50);
comment on table pgfresh.refresh_schedule is
  'Leases: who does each piece of work now and until when, when it is due, and how its last run ended.';

-- Of all leases together: a row that was deleted and made again must not hand out a token for the second time.
create sequence pgfresh.lock_token;

insert into pgfresh.migrations (kind, name, hash) values ('migration'::text, '009_leases'::text, '00da36d92b93cf35026a7bc5ebdd27b19c8db0cc19aa736939f0b56334c24301'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- migration 010_changes
/*
  What was written, until everybody who watches has heard of it. Unlogged: after a crash nobody knows what was in it,
  and then every watched pair is read again. The watched types go with it, and that is how it is noticed.
*/
create unlogged table pgfresh.change (
  xid xid8 not null default pg_current_xact_id(),
  type_id int not null,
  -- Null is every key of the type. So is an empty array, and then nobody knows by which transaction.
  keys text[]
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
-- Who reads on knows which transactions he has seen, and looks up the others.
create index on pgfresh.change (xid);
comment on table pgfresh.change is 'Marks of pairs whose rows or state were written, for ten seconds or so.';

create unlogged table pgfresh.watched_type (
  type_id int primary key,
  watched_until timestamptz not null,
  -- Since when, without a gap.
  since timestamptz not null,
  -- Whether all transactions have ended that may have written before they could see this row, and so without a mark.
  settled boolean not null default false
) with (fillfactor = 50);
comment on table pgfresh.watched_type is 'Data types that somebody watches. Only their changes are marked.';

-- Transaction numbers can go back in a crash, if commits were lost that did not wait for the disk.
-- Where the log stood then can not.
create unlogged table pgfresh.change_epoch (
  single boolean primary key default true check (single),
  epoch text collate "C" not null
);
comment on table pgfresh.change_epoch is 'How versions of pairs begin since the last crash or failover.';

insert into pgfresh.migrations (kind, name, hash) values ('migration'::text, '010_changes'::text, '079c56339c84b0ce2f8f7d326607d49441b3900d9dd0477a23d3491283a72e42'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- migration 011_truth
/*
  What is shown of a pair is true: its row is fresh by its own time, or by the time at which the source confirmed it,
  and never by an attempt. When it may be asked for again is another matter, and has a column of its own.
*/
alter table pgfresh.pairs rename column not_before to next_ask_at;
alter table pgfresh.pairs
  drop column checked_at,
  -- When the source last said that what is there still holds (unchanged, 304).
  add column confirmed_at timestamptz,
  -- When the source last said that there is nothing.
  add column empty_at timestamptz,
  -- The time of the row as its last success left it, or as the planner has seen it since; null is no row.
  -- A row without a time is as old as can be.
  add column row_at timestamptz,
  -- When that row goes stale.
  add column stale_at timestamptz,
  -- How old the data is at the source, by its last answer.
  add column source_at timestamptz,
  -- False while nobody has looked at what the last success left.
  add column seen boolean not null default true,
  -- How often others have deleted or set back what was just written, and when last.
  add column lapses smallint not null default 0,
  add column lapsed_at timestamptz,
  -- What keeps a stale pair from a job, as the planner's last look has found it.
  add column waits_for text;
-- What is known of them is when they were last refreshed. The next sweep looks.
update pgfresh.pairs as p
set seen = false, stale_at = p.ok_at + r.ttl,
  empty_at = case when p.outcome = 'empty' then p.ok_at end
from pgfresh.data_type_registry as r
where r.type_id = p.type_id and p.ok_at is not null;

alter table pgfresh.data_type_registry
  -- How old data may be at the source; null is as old as it likes.
  add column max_source_age interval check (max_source_age > '0' and max_source_age <= '3660 days');

-- Functions and types whose arguments or results have changed; the files of functions make them anew.
drop function if exists pgfresh.ask_stale(int, text[], timestamptz[], timestamptz[], interval, timestamptz);
drop function if exists pgfresh.complete_jobs(bigint[], int[], bigint[], text[], int[], int[], int[], int[], uuid[]);
drop function if exists pgfresh.read_pairs(int, text[]);
drop function if exists pgfresh.read_pairs_as(text, text, jsonb, int, text[]);
drop type if exists pgfresh.looks cascade;
drop type if exists pgfresh.look cascade;
do $$
declare
  v_function regprocedure;
begin
  -- The functions that ask whether pairs are stale are made anew, by the file of the registry's functions.
  for v_function in
    select p.oid
    from pg_proc as p
    where p.pronamespace = 'pgfresh'::regnamespace and p.proname ~ '^check_\d+$'
  loop
    execute format('drop function %s', v_function);
  end loop;
end
$$;

insert into pgfresh.migrations (kind, name, hash) values ('migration'::text, '011_truth'::text, '2f2f4aae039f9f11cff0864be484d81ef9c0560bd16ec73d1705d84bc48615cf'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- migration 012_source_guards
-- Functions and views whose result or arguments have changed; the files of functions make them anew.
drop view if exists pgfresh.source_health;
drop function if exists pgfresh.note_failure(int, bigint[], int, text, timestamptz);
drop function if exists pgfresh.note_success(int, bigint[], timestamptz);

alter table pgfresh.sources
  drop constraint sources_recent_retries_check,
  add check (cardinality(recent_retries) <= 200),
  drop constraint sources_paused_by_check,
  add check (paused_by in ('person', 'provider', 'breaker', 'credentials')),
  -- The breaker opens after so many failures in a row, or twice as many retries within the window.
  add column breaker_failures int not null default 5 check (breaker_failures between 1 and 100),
  add column breaker_window interval not null default '10 minutes'
    check (breaker_window between '1 second' and '1 day'),
  add column breaker_pause interval not null default '5 minutes' check (breaker_pause between '1 second' and '1 day'),
  -- When the first failure of the streak was recorded.
  add column streak_since timestamptz,
  -- API keys that the provider does not accept: only a probe uses one of them.
  add column denied_keys smallint[] not null default '{}',
  -- Who writes its limits: the configuration, or whoever writes this table.
  add column managed_by text not null default 'sql' check (managed_by in ('config', 'sql')),
  -- What the configuration says, by column; and what of it was changed here: value, config_value, by, at, reason.
  add column config jsonb not null default '{}',
  add column overrides jsonb not null default '{}';

-- With which API key it runs, so that its end can tell whose fault it is.
alter table pgfresh.job add column api_key smallint;

/*
  What is wrong with a part of a source: with one of its API keys, or with one data type. Nearly always empty, so ends
  and claims can ask it each time. A probe takes the pause with it: whoever claims one moves paused_until ahead, so
  there is never a second one, and the next comes by itself if nothing is heard of it.
*/
create table pgfresh.breaker (
  -- Either an API key of a source, or a data type.
  source_id int references pgfresh.sources on delete cascade,
  api_key smallint,
  type_id int references pgfresh.data_type_registry (type_id) on delete cascade,
  kind text not null check (kind in ('denied', 'refused', 'older_source')),
  -- What failed in a row.
  streak text[] not null,
  opened_at timestamptz,
  paused_until timestamptz,
  reason text,
  check (num_nonnulls(source_id, api_key) = case when type_id is null then 2 else 0 end),
  unique nulls not distinct (type_id, source_id, api_key)
);
create index on pgfresh.breaker (source_id);
comment on table pgfresh.breaker is
  'API keys that are refused, and data types whose answers are: how often in a row, and until when each is left alone.';

-- Which due times come from an obstacle, so that its pairs are found by the index of due times when it ends early.
create table pgfresh.hold (
  type_id int not null references pgfresh.data_type_registry (type_id) on delete cascade,
  until timestamptz not null,
  reason text not null,
  -- Of a gate: when it was last asked, and about which key last.
  asked_at timestamptz not null,
  asked_key text collate "C" not null default '',
  primary key (type_id, until)
);
comment on table pgfresh.hold is 'Pairs that an obstacle keeps from being planned, by data type and due time.';

insert into pgfresh.migrations (kind, name, hash) values ('migration'::text, '012_source_guards'::text, '8224e17fd790867f48d5db9857f87ea936356d2a8df412a6b23b37a0b2141f4f'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- migration 013_jobs
-- One open round per data type: of several, the newest is the one that goes on.
update pgfresh.refresh_cycle as c
set done_at = clock_timestamp()
where c.done_at is null and exists (
  select from pgfresh.refresh_cycle as n where n.type_id = c.type_id and n.slot > c.slot and n.done_at is null
);
drop index pgfresh.refresh_cycle_slot_type_id_idx;
create unique index refresh_cycle_open on pgfresh.refresh_cycle (type_id) where done_at is null;
alter table pgfresh.refresh_cycle
  -- A round that took over an open one begins where that stood, goes to the end,
  -- and then from the first key to this one.
  add column last_key text,
  add column wraps boolean not null default false,
  -- The round that took this one over before its end.
  add column next_slot timestamptz;

-- How many scheduled jobs of a source and data type wait, without reading those of others. Viewed jobs have no entry.
create index job_background on pgfresh.job (source_id, type_id) where band = -1 and state <> 'x';

-- Without a window, catching up once takes the newest missed slot however late it is.
alter table pgfresh.scheduled_jobs
  alter column catch_up_window drop not null,
  alter column catch_up_window drop default,
  -- When its last run began. Written by the end of each run, which is why pages have room for a second version.
  add column last_run_at timestamptz,
  set (fillfactor = 70);
alter table pgfresh.scheduled_jobs disable trigger user;
update pgfresh.scheduled_jobs as j
set last_run_at = c.last_run_at,
  -- The old default, which nobody can have meant for it.
  catch_up_window = case when j.catch_up = 'once' and j.catch_up_window = interval '1 day' then null
    else j.catch_up_window end
from pgfresh.job_cursor as c
where c.job_id = j.id;
alter table pgfresh.scheduled_jobs enable trigger user;

-- A function that runs holds its run. Deleting the job must not wait for it: see end_job_runs.
alter table pgfresh.scheduled_job_runs drop constraint scheduled_job_runs_job_id_fkey;
-- A trigger for each row takes the place of this one.
drop trigger if exists follow_update on pgfresh.scheduled_jobs;

insert into pgfresh.migrations (kind, name, hash) values ('migration'::text, '013_jobs'::text, 'f3658ba1354f12c604aaa8b411f2f653751e4baeae64e7adabfc40d22d556718'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- migration 014_deletions
-- Attempts that did not end their job, so that each call of a job is in the history and not only the last one.
-- A tree of its own: a job that succeeds at once writes nothing here, and the other two have one row for each job.
create table pgfresh.history_attempt (like pgfresh.history_succeeded including defaults) partition by range (ended_at);
comment on table pgfresh.history_attempt is
  'Attempts after which their job was tried again, by day. The last attempt of a job is in one of the other two trees.';
create index on pgfresh.history_attempt (id);
create index on pgfresh.history_attempt (type_id, key, ended_at);
create table pgfresh.history_attempt_default partition of pgfresh.history_attempt default;

-- The column that says how old data is at its source is validated from now on, and looked up anew where registered.
update pgfresh.type_resolution as t
set columns = t.columns || r.source_timestamp_field::name, stamp = null
from pgfresh.data_type_registry as r
where r.type_id = t.type_id and r.source_timestamp_field is not null;

alter table pgfresh.data_type_registry
  -- What an answer that there is nothing does to the rows of its key; null: what the fetcher's way of writing says.
  add column empty_rows text constraint empty_rows_known check (empty_rows in ('keep', 'delete')),
  -- The share of rows that may go at once; an answer beyond it is refused as suspicious.
  add column max_deletes numeric not null default 0.25
    constraint max_deletes_is_share check (max_deletes between 0 and 1),
  -- Rows of keys that nobody has viewed for so long are deleted; null: never.
  add column evict_after interval constraint evict_after_range check (evict_after between '1 hour' and '3660 days'),
  -- A schedule would fetch again what was evicted.
  add constraint evict_after_on_demand check (evict_after is null or refresh_strategy = 'on-demand');
comment on constraint empty_rows_known on pgfresh.data_type_registry is
  E'expected keep or delete\nSay what becomes of the rows of a key for which there is nothing, or leave it out.';
comment on constraint max_deletes_is_share on pgfresh.data_type_registry is
  E'expected a share from 0 to 1\nFor instance 0.25: a quarter of the rows may go at once.';
comment on constraint evict_after_range on pgfresh.data_type_registry is
  E'expected an interval from 1 hour to 3660 days\nFor instance 30 days, or leave it out.';
comment on constraint evict_after_on_demand on pgfresh.data_type_registry is
  E'expected no schedule beside evict_after: it would fetch again what was evicted\nLeave out one of them.';

-- How many rows answers have taken away lately, so that a provider that lies about many keys is stopped in time.
create table pgfresh.type_losses (
  type_id int primary key references pgfresh.data_type_registry (type_id) on delete cascade,
  since timestamptz not null,
  lost bigint not null,
  -- When an answer was last refused because too many rows had gone.
  refused_at timestamptz
) with (fillfactor = 50);
comment on table pgfresh.type_losses is
  'Rows of each data type that answers have taken away since a time; see max_deletes of the registry.';

-- Since when nobody has viewed the pair; null while somebody does, and for one that was never viewed.
alter table pgfresh.pairs add column unviewed_since timestamptz;
-- Where the search for rows to evict goes on.
create table pgfresh.eviction (
  type_id int primary key references pgfresh.data_type_registry (type_id) on delete cascade,
  cursor_key text collate "C" not null
);
comment on table pgfresh.eviction is 'Where the next search for rows to evict goes on, for each data type.';

insert into pgfresh.migrations (kind, name, hash) values ('migration'::text, '014_deletions'::text, 'c22efbfb9759d3abdfea114e25728d3490a773a78d7b8ca5d61eb673ae26ec49'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- migration 016_workers
-- What each worker can refresh, so that a job which no worker takes is seen as such.
-- Apart from the worker, whose row is written by every heartbeat.
create table pgfresh.worker_service (
  worker bigint primary key references pgfresh.worker on delete cascade,
  -- The data types that it refreshes now, by number.
  types int[] not null,
  -- The fetchers of its configuration, and the data types that it is limited to; null is no limit.
  fetchers text[] not null,
  limited_to text[]
);
comment on table pgfresh.worker_service is
  'What workers refresh, as they have said it. One without a row here may refresh anything.';

-- What a rule of several columns means, for the one who breaks it: what is wrong, and on the next line what to do.
alter table pgfresh.data_type_registry rename constraint data_type_registry_check to schedule_with_strategy;
comment on constraint schedule_with_strategy on pgfresh.data_type_registry is
  'refresh_schedule goes with refresh_strategy ''scheduled'', and with no other
Set both, or leave out both.';
alter table pgfresh.data_type_registry rename constraint data_type_registry_check1 to key_table_with_column;
comment on constraint key_table_with_column on pgfresh.data_type_registry is
  'key_table and key_table_column go together
Set both, or leave out both.';
alter table pgfresh.data_type_registry rename constraint data_type_registry_check2 to key_active_column_with_table;
comment on constraint key_active_column_with_table on pgfresh.data_type_registry is
  'key_active_column is a column of key_table, and there is none
Set key_table and key_table_column too, or leave it out.';
alter table pgfresh.data_type_registry rename constraint data_type_registry_check3 to key_table_or_pattern;
comment on constraint key_table_or_pattern on pgfresh.data_type_registry is
  'keys come from key_table or match key_pattern, not both
Leave out one of them.';
alter table pgfresh.data_type_registry rename constraint data_type_registry_check4 to schedule_needs_key_table;
comment on constraint schedule_needs_key_table on pgfresh.data_type_registry is
  'a scheduled data type needs key_table: the schedule refreshes the keys that it has
Set key_table and key_table_column.';
alter table pgfresh.data_type_registry rename constraint data_type_registry_check5 to gate_opens_with_gate;
comment on constraint gate_opens_with_gate on pgfresh.data_type_registry is
  'gate_opens_function says when a gate opens, and there is no gate_function
Set gate_function too, or leave it out.';
alter table pgfresh.data_type_registry rename constraint data_type_registry_check6 to priority_with_threshold;
comment on constraint priority_with_threshold on pgfresh.data_type_registry is
  'background_priority and ui_threshold go together
Set both, or leave out both.';
comment on constraint data_type_registry_data_type_check on pgfresh.data_type_registry is
  'a data type has a name of lower-case letters, digits, _ and -, at most 63, that begins with a letter
Choose another name, such as quote or dividend-history.';
comment on constraint data_type_registry_fetcher_check on pgfresh.data_type_registry is
  'a fetcher has a name of letters, digits, _, . and -, at most 100, that begins with a letter
Name a data type of the configuration that has request, schema and rows.';
comment on constraint sources_name_check on pgfresh.sources is
  'a source has a name of lower-case letters, digits, _ and -, at most 63, that begins with a letter
Choose another name, such as market.';

insert into pgfresh.migrations (kind, name, hash) values ('migration'::text, '016_workers'::text, '4b2a392898dd1b71dbee750910764c34920e46572aa498f5b52ecb71b420a4d4'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- migration 018_worker_names
-- The name of a worker outlives its lease, and SQL clients, which have no lease, have a name too.
create table pgfresh.worker_name (
  id bigint generated always as identity primary key,
  name text not null,
  has_lease boolean not null,
  -- When it registered or ended; of an SQL client, some claim of the last hour that it claimed in.
  last_seen_at timestamptz not null
);
comment on table pgfresh.worker_name is
  'Names of workers and SQL clients, by the number that jobs and history have. Kept as long as the history.';
-- Not unique: two clients of one name that come at once must not wait for each other.
create index worker_name_of_clients on pgfresh.worker_name (name) where not has_lease;

alter table pgfresh.worker add column renewed_at timestamptz not null default '-infinity';
comment on column pgfresh.worker.renewed_at is 'When the worker last said that it is alive.';

insert into pgfresh.worker_name (id, name, has_lease, last_seen_at) overriding system value
select id, name, true, started_at from pgfresh.worker;
select setval(pg_get_serial_sequence('pgfresh.worker_name', 'id'),
  nextval(pg_get_serial_sequence('pgfresh.worker', 'id')), false);
alter table pgfresh.worker alter column id drop identity;

drop view if exists pgfresh.stuck_jobs;
drop function if exists pgfresh.claim_jobs(
  bigint, uuid, int, int[], int[], bigint, int[], smallint[], bigint[], boolean);
drop function if exists pgfresh.get_queue_batch(int, text[], text[], bigint);
drop function if exists pgfresh.claim_next_pending_job(text[], text[]);

insert into pgfresh.migrations (kind, name, hash) values ('migration'::text, '018_worker_names'::text, '9c4a6c72d1e67e44af08314684b0a4ca20942def43b05fd0e06a92c187baa673'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- migration 019_upgrade
/*
  Ends and ticks write these rows while they have jobs and pairs; who deletes a data type has its row, and waits for
  those jobs and pairs. A foreign key would make each wait for the other, so forget_type deletes them instead.
*/
alter table pgfresh.hold drop constraint hold_type_id_fkey;
alter table pgfresh.breaker drop constraint breaker_type_id_fkey;
alter table pgfresh.type_losses drop constraint type_losses_type_id_fkey;
alter table pgfresh.type_stats drop constraint type_stats_type_id_fkey;
alter table pgfresh.refused_answer drop constraint refused_answer_type_id_fkey;

-- What an earlier version knew as unchanged was confirmed then, however old its row is.
update pgfresh.pairs set confirmed_at = ok_at where outcome = 'unchanged' and confirmed_at is null and not seen;

insert into pgfresh.migrations (kind, name, hash) values ('migration'::text, '019_upgrade'::text, 'ad45a3c1e4771d6beae09ba81bbf39c8bcf4104104ae2ef52e0de0db16545cb2'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- migration 020_refusals
-- Pairs whose last refresh failed because of the answer's form, so that they are found when their data type recovers.
-- Whether a pair is still held its own row says. No foreign key, as for the breaker.
create table pgfresh.refused_pair (
  type_id int not null,
  key text collate "C" not null,
  -- When its hold last ended because the type had recovered. That is done once until it succeeds.
  released_at timestamptz,
  primary key (type_id, key)
);
comment on table pgfresh.refused_pair is
  'Pairs whose answers were refused, which are asked for again when their data type recovers.';

insert into pgfresh.migrations (kind, name, hash) values ('migration'::text, '020_refusals'::text, '07f80f4bd85c76d6321fda3f399ce5ec710bdcc69ca496ed181f68e14887b105'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- migration 021_budgets
-- Functions and types whose arguments or results have changed, or that are gone; the files of functions make them anew.
drop trigger if exists keep_source_state on pgfresh.sources;
drop trigger if exists wait_for_jobs on pgfresh.sources;
drop view if exists pgfresh.source_health;
drop view if exists pgfresh.open_jobs cascade;
drop function if exists pgfresh.keep_source_state();
drop function if exists pgfresh.wait_for_jobs();
drop function if exists pgfresh.size_class_of(bigint, boolean);
drop function if exists pgfresh.size_unknown_jobs(int, bigint, int[], smallint, int);
drop function if exists pgfresh.source_budget(int);
drop function if exists pgfresh.pick_free(int, int[], int[], bigint, int[], smallint[], bigint[]);
drop function if exists pgfresh.pick_limited(int, int, int[], bigint);
drop function if exists pgfresh.take_limits(int, bigint[], timestamptz);
drop function if exists pgfresh.take_slots(int, smallint, int, timestamptz);
drop function if exists pgfresh.serve_types(bigint, int[], text[], text[]);
drop trigger if exists keep_rate_slots on pgfresh.sources;
drop function if exists pgfresh.keep_rate_slots();
drop type if exists pgfresh.claimed_job cascade;

/*
  Every source has a state row, always, with and without a quota. So setting or removing a quota touches no job, and
  what running jobs have reserved stays what their ends give back.
*/
alter table pgfresh.source_state
  drop column saving_job,
  drop column saving_bytes,
  drop column saving_since,
  -- What a source has used stays known when it is deleted and added again: it gets its number back.
  drop constraint source_state_source_id_fkey,
  -- Whose turn the next call is; see pick_limited.
  add column turn smallint not null default 0,
  -- How many calls of this round went to viewed pairs without a row.
  add column missing_turns smallint not null default 0;
insert into pgfresh.source_state (source_id, level_at)
select id, clock_timestamp() from pgfresh.sources
on conflict do nothing;
comment on table pgfresh.source_state is
  'What each source has reserved, how full its paced allowance is, and whose turn its next call is.';

create table pgfresh.source_past (
  name text primary key,
  source_id int not null,
  -- Whether it had a rate, so that its calls were counted.
  rated boolean not null
);
comment on table pgfresh.source_past is
  'The numbers of sources that were deleted. One that is added again gets its number back, and what it has used.';

/*
  Ready jobs stand in lanes, each in the order of their age. The lane is a column of its own, made of what decides:
  a claim finds the lanes that exist by one probe each, and starts in each of them where it likes. The data type leads,
  so jobs of types that a worker does not serve, and of types that are paused, cost it nothing.
*/
drop index pgfresh.job_ready;
alter table pgfresh.job rename column key to old_key;
alter table pgfresh.job rename column api_key to old_api_key;
alter table pgfresh.job
  drop column size_class,
  -- The definition that it was claimed under; null for a job that an earlier version has claimed.
  add column definition bigint,
  -- How often it was put back without counting a retry.
  add column put_backs smallint not null default 0,
  add column api_key smallint,
  -- A viewed pair has no row yet.
  add column missing boolean not null default false,
  -- What lane_of says. Not a generated column, which cost 6 % of each claim and enqueue of 25 jobs.
  add column lane smallint,
  -- The key stays last: what a claim writes lies before it, and then the log need not repeat it.
  add column key text collate "C";
update pgfresh.job
set key = old_key, api_key = old_api_key, lane = 52 - band + case when est_bytes > 1048576 then 64 else 0 end;
alter table pgfresh.job
  alter column key set not null, alter column lane set not null, drop column old_key, drop column old_api_key;
create index job_ready on pgfresh.job (type_id, lane, seq) where state = 'r';

-- Calls that were handed out, and no longer those that may be: a limit is compared with their sum.
alter table pgfresh.rate_slot rename to old_rate_slot;
create table pgfresh.rate_slot (
  source_id int not null,
  free_at timestamptz not null,
  api_key smallint not null,
  calls int not null,
  constraint rate_slot_pkey1 primary key (source_id, free_at, api_key)
) with (
  fillfactor = 50,
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0
);
comment on table pgfresh.rate_slot is
  'Calls that were handed out, by source and API key, and when they count no more against the rate.';
insert into pgfresh.rate_slot (source_id, free_at, api_key, calls)
select source_id, free_at, api_key, count(*)
from pgfresh.old_rate_slot
where free_at > clock_timestamp()
group by source_id, free_at, api_key;
drop table pgfresh.old_rate_slot;
alter table pgfresh.rate_slot rename constraint rate_slot_pkey1 to rate_slot_pkey;

-- How many API keys of which source the worker has; of one that is not named, any.
alter table pgfresh.worker_service add column api_keys jsonb not null default '{}';

insert into pgfresh.migrations (kind, name, hash) values ('migration'::text, '021_budgets'::text, '0af6f9e366a85f46d69143928d579cccd321c00c513873c6eb2773682b3b87ac'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- migration 022_ends
drop function if exists pgfresh.turn_back_jobs(
  bigint[], int[], bigint[], text, text, text, int[], boolean, int[], int[], uuid[]);
drop function if exists pgfresh.take_back(bigint, text, text);

drop function if exists pgfresh.take_call(int, smallint);
drop function if exists pgfresh.take_slots(pgfresh.sources, smallint, int, timestamptz);
drop function if exists pgfresh.learn_size(int, bigint[]);

alter table pgfresh.job
  -- How many calls it is known to take, and how many of them its claim has taken and it has not made yet.
  add column needs smallint not null default 1,
  add column calls_left smallint not null default 0;
-- How many calls a job of the type takes: more than one where it is redirected, for instance.
alter table pgfresh.type_stats add column calls real not null default 1;

-- How often in a row its provider has refused calls as too many and has not said for how long.
alter table pgfresh.sources add column unhinted_holds smallint not null default 0;

insert into pgfresh.migrations (kind, name, hash) values ('migration'::text, '022_ends'::text, 'f052beb027637b0465c3c8364d9cea9b3dd54270e20226aca90eaf3adfce0e81'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- migration 023_definitions
alter table pgfresh.data_type_registry
  -- Grows with each change of what a fetch or a write depends on, so that an answer to an earlier one is recognised.
  add column definition bigint not null default 1;

/*
  Whoever changes or deletes a data type waits for nobody. Pairs and jobs that others have locked at that moment, and
  what a transaction adds that had read the registry before, follow afterwards: recovery does that for each row here.
*/
create table pgfresh.registry_change (
  id bigint generated always as identity primary key,
  type_id int not null,
  changed_at timestamptz not null,
  -- What pairs have to be told, and which of them were locked.
  effect text not null check (effect in ('plan', 'ask', 'forget', 'clear')),
  keys text[] not null default '{}'
);
comment on table pgfresh.registry_change is
  'Changes of data types of the last minute, which recovery brings to pairs and jobs that were locked at that moment.';

/*
  Gateways and subscribers have some of these rows while they add others; who deletes a data type has its row. A foreign
  key would make each wait for the other, so clear_type deletes them instead.
*/
alter table pgfresh.active_subscriptions drop constraint active_subscriptions_type_id_fkey;
alter table pgfresh.node_demand drop constraint node_demand_type_id_fkey;

-- When recovery last looked for jobs and pairs that have lost their data type or source.
alter table pgfresh.recovery add column strays_at timestamptz not null default '-infinity';

-- Triggers, functions and types whose name, arguments or results have changed; the files of functions make them anew.
drop trigger if exists follow_ttl on pgfresh.data_type_registry;
drop function if exists pgfresh.follow_ttl();
drop type if exists pgfresh.claimed_job cascade;
drop function if exists pgfresh.fence_jobs(int, bigint[], int[], text[], uuid[]);

insert into pgfresh.migrations (kind, name, hash) values ('migration'::text, '023_definitions'::text, '365682d1041b918f80bbea72854553c115e2cb9d946e198c58b64a708271d3bf'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- migration 024_demand
-- By the number of a data type: one that is renamed takes its demand along, and whoever counts it can still leave.
drop function if exists pgfresh.set_node_demand(bigint, text[], text[], int[]);

alter table pgfresh.pairs
  -- When its key was last found to be none of its data type's, though there are viewers. It is not demanded until then.
  add column unlisted_at timestamptz;
create index pairs_unlisted on pgfresh.pairs (unlisted_at) where unlisted_at is not null;

-- The priority with which somebody other than viewers asked for the job: a schedule, an application, an operator.
-- Null: only viewers want it, and it goes when they do.
alter table pgfresh.job add column asked int;
update pgfresh.job set asked = priority;

-- Demand of pairs that another transaction had locked, or had added without being committed yet.
-- Apart from demand_change, so that they are not in the way of others. Only the planner writes it.
create table pgfresh.demand_waiting (
  type_id int not null,
  key text collate "C" not null,
  delta bigint not null,
  tries int not null default 1,
  next_at timestamptz not null,
  primary key (type_id, key)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
create index on pgfresh.demand_waiting (next_at);
comment on table pgfresh.demand_waiting is
  'Viewers that came and went while their pair was locked, until the planner has added them to it.';

-- Names that data types had before, so that a viewer who knows only the old one can leave.
create table pgfresh.former_type_name (
  data_type text primary key,
  type_id int not null references pgfresh.data_type_registry (type_id) on delete cascade
);
create index on pgfresh.former_type_name (type_id);
comment on table pgfresh.former_type_name is 'Former names of data types.';

alter table pgfresh.planner_state
  -- The open job after which the review of open jobs goes on.
  add column reviewed_job bigint not null default 0;

insert into pgfresh.migrations (kind, name, hash) values ('migration'::text, '024_demand'::text, '91cf4c96c7fdf04b7a79a8c3b1eff5815e0fec6b101bec5d6d6d086ae214ddc8'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- migration 025_planner
/*
  Data types whose code or tables have kept the planner, a gateway or a worker waiting. Two timeouts within a minute put
  a type into quarantine, which lasts as long as a probe finds it still hanging.
*/
create table pgfresh.type_timeout (
  type_id int primary key references pgfresh.data_type_registry (type_id) on delete cascade,
  since timestamptz not null,
  last_at timestamptz not null,
  timeouts int not null check (timeouts > 0),
  -- What was asked the last time, and what PostgreSQL said.
  last_where text not null,
  last_message text not null
) with (fillfactor = 50);
comment on table pgfresh.type_timeout is
  'Data types that have timed out lately. From two timeouts within a minute on a type is in quarantine.';

-- Functions with other arguments now; the files of functions make them anew.
drop function if exists pgfresh.plan_due_pairs(int);
drop function if exists pgfresh.check_and_queue_stale_data(int);
drop function if exists pgfresh.queue_scheduled_refreshes(int);
drop function if exists pgfresh.take_due(timestamptz, int);
drop function if exists pgfresh.release_held(timestamptz, int);

insert into pgfresh.migrations (kind, name, hash) values ('migration'::text, '025_planner'::text, '1661e9289536bbdd596092e0db25b2d2fa33e8708f86338ce416bdaead9f7778'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- migration 027_upkeep
alter table pgfresh.refresh_cycle
  -- Keys whose pairs were locked when their turn came, and are asked for again.
  add column busy_keys text[] not null default '{}',
  -- Whether all keys have had their turn; the round ends when no busy ones are left.
  add column walked boolean not null default false;

-- Where the search for pairs to forget goes on.
create table pgfresh.pruning (
  single boolean primary key default true check (single),
  type_id int not null default 0,
  key text collate "C" not null default ''
);
insert into pgfresh.pruning default values;
comment on table pgfresh.pruning is 'Where the next search for pairs to forget goes on.';

insert into pgfresh.migrations (kind, name, hash) values ('migration'::text, '027_upkeep'::text, '5e53be37cfe25a6051c94894ecc9bb1d6a171b7ed95724418e1438bdb5f6ebe1'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- migration 028_plans
-- It takes any number of objects now.
drop function if exists pgfresh.add_counts(jsonb, jsonb);
-- Whether a row was found is said by what was seen of it.
drop function if exists pgfresh.note_lapses(pgfresh.data_type_registry, pgfresh.look[], boolean[], timestamptz);

insert into pgfresh.migrations (kind, name, hash) values ('migration'::text, '028_plans'::text, '44717f09c9b4054faf20b6be2da79e530b92fe393d23e1fb991b7d24334748ab'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- migration 029_claim
-- Only our own functions write jobs, and reading the constraint anew cost each claim and each enqueue 6 µs.
alter table pgfresh.job drop constraint job_state_check;

drop function if exists pgfresh.pick_free(int, int[], smallint[], bigint[], boolean, boolean, bigint);
drop function if exists pgfresh.judge_keys(pgfresh.data_type_registry, text[]);
drop function if exists pgfresh.queue_cycle_keys(pgfresh.data_type_registry, text[]);

insert into pgfresh.migrations (kind, name, hash) values ('migration'::text, '029_claim'::text, '34768c664923a70794f15f3cfdf1183d077642bd1c697f4351080a4935ecf4a6'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- migration 030_held_runs
-- The request by which a scheduler has taken a run. Its heartbeat lists the requests that it holds, so that a run whose
-- answer was lost on its way is found.
alter table pgfresh.scheduled_job_runs add column request uuid;
drop function if exists pgfresh.heartbeat_scheduler(bigint);
drop function if exists pgfresh.settle_slots(bigint, jsonb, int);
drop function if exists pgfresh.take_waiting_runs(bigint, text[], int);
drop function if exists pgfresh.due_slots(text[], int);
drop function if exists pgfresh.schedule_pause(text[]);

-- A run that has to wait for the end of another one is queued. It is let go only when nothing of its job runs.
alter table pgfresh.scheduled_job_runs drop constraint scheduled_job_runs_state_check;
update pgfresh.scheduled_job_runs set state = 'queued', run_at = null where state = 'waiting' and run_at = 'infinity';
alter table pgfresh.scheduled_job_runs add constraint scheduled_job_runs_state_check
  check (state in ('queued', 'waiting', 'running', 'succeeded', 'failed', 'cancelled', 'skipped'));
drop index pgfresh.scheduled_job_runs_job_id_idx;
create index scheduled_job_runs_open on pgfresh.scheduled_job_runs (job_id)
  where state in ('queued', 'waiting', 'running');
-- Attempts at the slot that were made before someone asked for it again: they are no failures of this request.
alter table pgfresh.scheduled_job_runs add column earlier int not null default 0;
-- The last slot of which runs were forgotten: whether it succeeded is not known any more.
alter table pgfresh.job_cursor add column forgotten_until timestamptz;
-- Slots in time zones are left to those of the living schedulers whose time zone data is the newest.
alter table pgfresh.scheduler add column zone_data text not null default '';

insert into pgfresh.migrations (kind, name, hash) values ('migration'::text, '030_held_runs'::text, '80b0f1c1f81a3476aaecc62ff9d05a9bb8a3ede7f4bc1e0428d9d93a0b76a52e'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- migration 031_worker_answer
-- It answers which claims the worker has not named, instead of putting them back itself.
drop function if exists pgfresh.heartbeat_worker(bigint, uuid[]);

insert into pgfresh.migrations (kind, name, hash) values ('migration'::text, '031_worker_answer'::text, '0494031c2a647fb8bfd25bf2d7a190bb68d6956ca6796fc86253447b2ef77722'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- functions 000_refuse
-- Loaded first by its name: the others are checked against it.
create or replace function pgfresh.refuse(p_code text, p_message text, p_hint text) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  -- What was passed is quoted in the message, which must stay one line all the same.
  raise exception using errcode = 'PGF01',
    message = p_code || ': ' || regexp_replace(p_message, '[[:cntrl:]]', '?', 'g'), hint = p_hint;
end
$$;
comment on function pgfresh.refuse(text, text, text) is
  'Ends the statement with one of pgfresh''s coded errors, SQLSTATE PGF01.';

create or replace function pgfresh.require_key(p_key text) returns void
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  if p_key is null or p_key = '' or octet_length(p_key) > 512 or p_key ~ '[[:cntrl:]]' then
    perform pgfresh.refuse('PGF_KEY_INVALID',
      format('a key has 1 to 512 bytes and no control characters, got %s',
        coalesce(left(quote_literal(p_key), 60), 'null')),
      'Pass the key as the provider writes it, for instance AAPL.');
  end if;
end
$$;
comment on function pgfresh.require_key(text) is 'Refuses what cannot be a key.';

create or replace function pgfresh.require_type(p_data_type text) returns pgfresh.data_type_registry
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_type pgfresh.data_type_registry;
begin
  select * into v_type from pgfresh.data_type_registry where data_type = p_data_type;
  if not found then
    perform pgfresh.refuse('PGF_TYPE_UNKNOWN',
      format('there is no data type %s', coalesce(left(quote_literal(p_data_type), 80), 'null')),
      'The known ones: select data_type from pgfresh.data_type_registry.');
  end if;
  return v_type;
end
$$;
comment on function pgfresh.require_type(text) is 'The registry''s row of a data type; refuses one that is not there.';

create or replace function pgfresh.require_source(p_source text) returns pgfresh.sources
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_source pgfresh.sources;
begin
  select * into v_source from pgfresh.sources where name = p_source;
  if not found then
    perform pgfresh.refuse('PGF_SOURCE_UNKNOWN',
      format('there is no source %s', coalesce(left(quote_literal(p_source), 80), 'null')),
      'The known ones: select name from pgfresh.sources.');
  end if;
  return v_source;
end
$$;
comment on function pgfresh.require_source(text) is 'A source by its name; refuses one that is not there.';

create or replace function pgfresh.require_outcome(p_outcome text) returns void
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  if p_outcome is null or p_outcome !~ '^[a-z][a-z0-9_]{0,59}$' then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      format('p_outcome must be a word of 1 to 60 lower-case letters, digits and underscores, got %s',
        coalesce(left(quote_literal(p_outcome), 60), 'null')),
      'For instance fresh, unchanged or empty.');
  end if;
end
$$;
comment on function pgfresh.require_outcome(text) is 'Refuses what cannot be the name of an outcome.';

create or replace function pgfresh.require_worker_name(p_argument text, p_name text) returns void
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  if coalesce(p_name, '') = '' or length(p_name) > 200 or p_name ~ '[[:cntrl:]]' then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      format('%s must have 1 to 200 characters, and no control characters', p_argument),
      'For instance the host and the process id.');
  end if;
end
$$;
comment on function pgfresh.require_worker_name(text, text) is 'Refuses what cannot be the name of a worker.';

create or replace function pgfresh.require_range(p_name text, p_value numeric, p_low numeric, p_high numeric)
returns void
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  if p_value is null or p_value < p_low or p_value > p_high then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      format('%s must be from %s to %s, got %s', p_name, p_low, p_high, coalesce(p_value::text, 'null')),
      'Pass a value in that range.');
  end if;
end
$$;
comment on function pgfresh.require_range(text, numeric, numeric, numeric) is
  'Refuses a number outside of its range, null included.';

insert into pgfresh.migrations (kind, name, hash) values ('functions'::text, '000_refuse'::text, 'a56fa601a4366152cac7328a96ae00e3f07b5d3aa02ffe2837bb716f2c0b4e79'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- functions 000_roles
/*
  Who may do what is said in zz_rights.sql.
  Roles belong to the whole server, so another database may have made them already.
    pgfresh_worker     claims, fetches and ends jobs
    pgfresh_planner    plans, and runs scheduled jobs: for the processes of the roles planner and scheduler
    pgfresh_gateway    says who looks at what, for all of its users
    pgfresh_monitor    reads everything
    pgfresh_operator   reads everything, and decides about jobs, sources and spending: for the console
    pgfresh_scheduler  registers jobs that run at set times, triggers and pauses them: for applications
    pgfresh_viewer     says what the current user looks at, and nothing else
    pgfresh_evaluator  as whom the tables and functions of users are asked; nobody logs in as this
*/
do $$
declare
  v_role text;
begin
  foreach v_role in array array[
    'pgfresh_worker', 'pgfresh_planner', 'pgfresh_gateway', 'pgfresh_monitor', 'pgfresh_operator',
    'pgfresh_scheduler', 'pgfresh_viewer', 'pgfresh_evaluator'
  ] loop
    begin
      if to_regrole(v_role) is null then
        execute format('create role %I nologin', v_role);
      end if;
    -- Somebody who migrates another database of this server was faster.
    exception when duplicate_object or unique_violation then null;
    end;
  end loop;
  -- The functions that ask users' tables are owned by the evaluator, and only one of its members can make them.
  if not pg_has_role(current_user, 'pgfresh_evaluator', 'usage') then
    execute format('grant pgfresh_evaluator to %I', current_user);
  end if;
end
$$;

insert into pgfresh.migrations (kind, name, hash) values ('functions'::text, '000_roles'::text, '325bafbb26857de6a68f38742e5a7da6571efa690372b90df5f73d34d36690d5'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- functions 000_rules
/*
  The rules of a table that people write are its own check constraints. What they refuse is said here with a code and a
  next step, before the constraint is asked: by the comment of the constraint, or else by its text.
*/
create or replace function pgfresh.refuse_broken_rules() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_values jsonb := to_jsonb(new);
  v_hint text := format('Correct the row of %s; docs/registry.md says what each column means.', tg_relid::regclass);
  v_rule record;
  v_holds boolean;
  v_absent text := (
    select a.attname
    from pg_attribute as a
    where a.attrelid = tg_relid and a.attnum > 0 and not a.attisdropped and a.attnotnull and a.attgenerated = ''
      and v_values ->> a.attname is null
    order by a.attnum
    limit 1
  );
begin
  if v_absent is not null then
    perform pgfresh.refuse(tg_argv[0], format('%s must not be null', v_absent), v_hint);
  end if;
  for v_rule in
    select pg_get_expr(c.conbin, c.conrelid) as expression, obj_description(c.oid, 'pg_constraint') as words,
      string_agg(a.attname, ', ' order by a.attnum) as columns,
      string_agg(coalesce(left(v_values ->> a.attname, 80), 'null'), ', ' order by a.attnum) as got
    from pg_constraint as c
    join pg_attribute as a on a.attrelid = c.conrelid and a.attnum = any (c.conkey)
    where c.conrelid = tg_relid and c.contype = 'c'
    group by c.oid
    order by c.conname
  loop
    execute format('select %s from (select ($1).*) as r', v_rule.expression) into v_holds using new;
    continue when v_holds is not false;
    perform pgfresh.refuse(tg_argv[0],
      format('%s: %s, got %s',
        v_rule.columns,
        coalesce(
          split_part(v_rule.words, E'\n', 1),
          -- As people write it: without casts, and without parentheses around each comparison.
          'expected ' || regexp_replace(
            regexp_replace(
              replace(replace(v_rule.expression, '= ANY (ARRAY[', 'one of '), '])', ''), '::[a-z]+', '', 'g'),
            '[()]', '', 'g')),
        v_rule.got),
      coalesce(nullif(split_part(v_rule.words, E'\n', 2), ''), v_hint));
  end loop;
  return new;
end
$$;
comment on function pgfresh.refuse_broken_rules() is
  'Trigger of tables that people write: says what is wrong with a row and what to do, with a code. '
  'Its argument is the code.';

insert into pgfresh.migrations (kind, name, hash) values ('functions'::text, '000_rules'::text, 'f92fe78588c26ff15505abbc5b95957665bdc75c5dc33942e42a7bcffdd08eb7'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- functions breakers
/*
  The breaker. A source that fails five times in a row, or for which ten jobs were put off within ten minutes, is left
  alone for five minutes; the numbers are settings of the source. Then one job at a time is let through: when one
  succeeds the breaker closes, and when it fails it is open for as long again. A probe that is neither, because its
  worker is gone, is not out any more when its job does not run.

  What fails in the same moment says the same thing once. So it opens only if a job fails too that was claimed after
  the first failure of the row had been recorded.
*/
create or replace function pgfresh.note_failure(
  p_source_id int, p_ids bigint[], p_retries int, p_claimed_at timestamptz, p_error text, p_now timestamptz)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_source pgfresh.sources;
  v_most int;
  v_probe_failed boolean;
  v_in_a_row boolean; v_often boolean;
  v_why text;
begin
  select * into v_source from pgfresh.sources where id = p_source_id for no key update;
  v_most := 2 * v_source.breaker_failures;
  v_source.failure_streak := v_source.failure_streak + cardinality(p_ids);
  v_source.recent_retries := v_source.recent_retries || array_fill(p_now, array[least(p_retries, v_most)]);
  v_source.recent_retries :=
    v_source.recent_retries[greatest(1, cardinality(v_source.recent_retries) - v_most + 1):];
  v_in_a_row := v_source.failure_streak >= v_source.breaker_failures
    and (p_claimed_at >= v_source.streak_since or v_source.breaker_failures = 1);
  v_often := cardinality(v_source.recent_retries) = v_most
    and v_source.recent_retries[1] >= p_now - v_source.breaker_window
    and v_source.recent_retries[1] < p_now and p_claimed_at >= v_source.recent_retries[1];
  v_probe_failed := v_source.breaker_opened_at is not null and v_source.probe_job = any (p_ids);
  if v_probe_failed or (v_source.breaker_opened_at is null and (v_in_a_row or v_often)) then
    v_source.breaker_opened_at := coalesce(v_source.breaker_opened_at, p_now);
    v_source.probe_job := null;
    v_why := case
      when v_probe_failed then 'the probe failed'
      when v_in_a_row then format('%s failures in a row', v_source.failure_streak)
      else format('%s retries in %s', v_most, pgfresh.in_words(v_source.breaker_window))
    end || coalesce(': ' || left(p_error, 200), '');
    -- Somebody may have paused it for longer.
    if v_source.paused_until is null or v_source.paused_until < p_now + v_source.breaker_pause then
      v_source.paused_until := p_now + v_source.breaker_pause;
      v_source.paused_by := 'breaker';
      v_source.pause_reason := v_why;
    end if;
  end if;
  update pgfresh.sources
  set failure_streak = v_source.failure_streak, streak_since = coalesce(v_source.streak_since, p_now),
    recent_retries = v_source.recent_retries, last_failure_at = p_now,
    breaker_opened_at = v_source.breaker_opened_at, probe_job = v_source.probe_job,
    paused_until = v_source.paused_until, paused_by = v_source.paused_by, pause_reason = v_source.pause_reason
  where id = p_source_id;
  if v_source.breaker_opened_at = p_now then
    perform pgfresh.warn('breaker_opened', v_source.name,
      format('The source %s is left alone for %s: %s.',
        v_source.name, pgfresh.in_words(v_source.breaker_pause), v_why),
      'Nothing has to be done: one job tries later whether it is back. "pgfresh source resume" tries now.');
  end if;
end
$$;
comment on function pgfresh.note_failure(int, bigint[], int, timestamptz, text, timestamptz) is
  'Counts failures of a source, the last of whose jobs was claimed then, '
  'and opens its breaker where they are too many. A part of every end that is one.';

create or replace function pgfresh.note_success(p_source_id int, p_ids bigint[], p_now timestamptz) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_source record;
begin
  select s.failure_streak, s.unhinted_holds, s.last_success_at,
    s.breaker_opened_at is not null and s.probe_job = any (p_ids) as probed
  into v_source
  from pgfresh.sources as s
  where s.id = p_source_id;
  if v_source.probed then
    update pgfresh.sources
    set failure_streak = 0, streak_since = null, unhinted_holds = 0, last_success_at = p_now, recent_retries = '{}',
      breaker_opened_at = null, probe_job = null,
      paused_until = case when paused_by in ('breaker', 'credentials') is not true then paused_until end,
      paused_by = case when paused_by in ('breaker', 'credentials') is not true then paused_by end,
      pause_reason = case when paused_by in ('breaker', 'credentials') is not true then pause_reason end
    where id = p_source_id;
    perform pgfresh.wake_workers();
  elsif v_source.failure_streak > 0 or v_source.unhinted_holds > 0 then
    update pgfresh.sources
    set failure_streak = 0, streak_since = null, unhinted_holds = 0, last_success_at = p_now
    where id = p_source_id;
  elsif v_source.last_success_at is null or v_source.last_success_at < p_now - interval '10 seconds' then
    -- Only for people to see, so nobody waits for it, and it is written now and then.
    update pgfresh.sources
    set last_success_at = p_now
    where id = (select s.id from pgfresh.sources as s where s.id = p_source_id for no key update skip locked);
  end if;
end
$$;
comment on function pgfresh.note_success(int, bigint[], timestamptz) is
  'Notes that a source has answered: failures start anew, and a probe closes the breaker. '
  'A part of every end that is one.';

/*
  The breaker of a part: of an API key that the provider does not accept, or of a data type whose answers are refused
  or older than what is there. What was claimed before it opened neither counts nor prolongs it.
*/
create or replace function pgfresh.note_trouble(
  p_source_id int, p_api_key smallint, p_type_id int, p_kind text, p_what text[], p_most int, p_claimed_at timestamptz,
  p_error text, p_now timestamptz)
returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_source pgfresh.sources;
  v_part pgfresh.breaker;
  v_before pgfresh.breaker;
  v_name text;
  v_why text;
begin
  select * into v_source from pgfresh.sources where id = p_source_id for no key update;
  if not found then
    -- Deleted while its last jobs ran.
    return false;
  end if;
  select *
  into v_before
  from pgfresh.breaker
  where case when p_type_id is null then source_id = p_source_id and api_key = p_api_key else type_id = p_type_id end;
  if v_before.opened_at > p_claimed_at then
    return true;
  end if;
  if v_before.kind = p_kind then
    v_part := v_before;
  end if;
  v_part.streak := (
    array(select distinct what from unnest(v_part.streak || p_what) as what where what is not null)
  )[1:p_most];
  if v_part.opened_at is not null or cardinality(v_part.streak) >= p_most then
    v_part.opened_at := coalesce(v_part.opened_at, p_now);
    v_part.paused_until := p_now + v_source.breaker_pause;
    v_why := case p_kind
      when 'denied' then format('the provider refuses API key %s', p_api_key)
      when 'refused' then format('%s answers in a row were refused', p_most)
      else format('%s answers in a row were older than what is there', p_most)
    end || coalesce(': ' || left(p_error, 200), '');
  end if;
  insert into pgfresh.breaker (source_id, api_key, type_id, kind, streak, opened_at, paused_until, reason)
  values (
    case when p_type_id is null then p_source_id end, p_api_key, p_type_id, p_kind,
    v_part.streak, v_part.opened_at, v_part.paused_until, v_why)
  on conflict (type_id, source_id, api_key) do update
  set kind = excluded.kind, streak = excluded.streak, opened_at = excluded.opened_at,
    paused_until = excluded.paused_until, reason = excluded.reason;
  if v_part.opened_at is null then
    return false;
  end if;
  if p_kind = 'denied' then
    perform pgfresh.deny_key(v_source, p_api_key, v_why, p_now);
  end if;
  if v_part.opened_at = p_now then
    select data_type into v_name from pgfresh.data_type_registry where type_id = p_type_id;
    perform pgfresh.warn(
      case p_kind when 'denied' then 'key_refused' when 'refused' then 'answers_refused' else 'older_source' end,
      coalesce(v_name, v_source.name),
      format('%s is left alone for %s: %s.',
        case
          when p_kind = 'denied' then format('API key %s of the source %s', p_api_key, v_source.name)
          else format('The data type %s', v_name)
        end,
        pgfresh.in_words(v_source.breaker_pause), v_why),
      case p_kind
        when 'denied' then format('Renew the API key. One job tries it later; "pgfresh source resume %s" tries it now.',
          v_source.name)
        when 'refused' then format('Compare an answer with the definition ("pgfresh refused list %s"). '
          'One job tries later; "pgfresh source resume %s" tries now.', v_name, v_source.name)
        else format('Ask the provider why its data does not move on. One job tries later; '
          '"pgfresh source resume %s" tries now.', v_source.name)
      end);
  end if;
  return true;
end
$$;
comment on function pgfresh.note_trouble(
  int, smallint, int, text, text[], int, timestamptz, text, timestamptz) is
  'Counts what is wrong with an API key (denied) or a data type (refused, older_source), '
  'and leaves it alone where it is too much in a row. Returns whether it is left alone. '
  'A part of every end that is one.';

-- Without a key that may be used, the source itself waits for the first that is tried again.
create or replace function pgfresh.deny_key(
  p_source pgfresh.sources, p_api_key smallint, p_why text, p_now timestamptz)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_denied smallint[] := array(
    select distinct k from unnest(p_source.denied_keys || p_api_key) as k where k <= p_source.api_keys order by k);
  v_until timestamptz;
begin
  if cardinality(v_denied) >= p_source.api_keys then
    select min(b.paused_until)
    into v_until
    from pgfresh.breaker as b
    where b.source_id = p_source.id and b.api_key = any (v_denied);
  end if;
  update pgfresh.sources as s
  set denied_keys = v_denied, last_failure_at = p_now,
    breaker_opened_at = case
      when v_until is not null then coalesce(s.breaker_opened_at, p_now) else s.breaker_opened_at
    end,
    probe_job = null,
    paused_until = case when v_until > coalesce(s.paused_until, p_now) then v_until else s.paused_until end,
    paused_by = case when v_until > coalesce(s.paused_until, p_now) then 'credentials' else s.paused_by end,
    pause_reason = case when v_until > coalesce(s.paused_until, p_now) then p_why else s.pause_reason end
  where s.id = p_source.id;
end
$$;
comment on function pgfresh.deny_key(pgfresh.sources, smallint, text, timestamptz) is
  'Lets an API key not be used, and pauses the source when none is left. A part of note_trouble.';

create or replace function pgfresh.note_answers(
  p_source_id int, p_type_id int, p_api_keys smallint[], p_older bigint[], p_claimed_at timestamptz,
  p_now timestamptz)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_keys smallint[];
  v_open boolean;
begin
  -- As note_trouble takes them: the row of the source, then those of its parts.
  perform from pgfresh.sources where id = p_source_id for no key update;
  -- What was called before the key was refused does not say that it is accepted again.
  with accepted as (
    delete from pgfresh.breaker
    where source_id = p_source_id and api_key = any (p_api_keys)
      and (opened_at is null or opened_at <= p_claimed_at)
    returning api_key, opened_at
  )
  select array_agg(api_key) into v_keys from accepted where opened_at is not null;
  if v_keys is not null then
    update pgfresh.sources
    set denied_keys = array(select k from unnest(denied_keys) as k where k <> all (v_keys)),
      breaker_opened_at = case when paused_by = 'credentials' then null else breaker_opened_at end,
      paused_until = case when paused_by = 'credentials' then null else paused_until end,
      pause_reason = case when paused_by = 'credentials' then null else pause_reason end,
      paused_by = nullif(paused_by, 'credentials')
    where id = p_source_id;
  end if;
  if p_older is null then
    delete from pgfresh.breaker
    where type_id = p_type_id and (opened_at is null or opened_at <= p_claimed_at)
    returning opened_at is not null into v_open;
  else
    -- Each answer counts, also if it is always the same pair.
    perform pgfresh.note_trouble(
      p_source_id, null, p_type_id, 'older_source', p_older::text[], s.breaker_failures, p_claimed_at, null, p_now)
    from pgfresh.sources as s
    where s.id = p_source_id;
  end if;
  if v_open then
    insert into pgfresh.hold (type_id, until, reason, asked_at)
    select p_type_id, 'infinity', 'refused', p_now
    where exists (select from pgfresh.refused_pair as r where r.type_id = p_type_id)
    on conflict do nothing;
  end if;
  if v_open or v_keys is not null then
    perform pgfresh.wake_workers();
  end if;
end
$$;
comment on function pgfresh.note_answers(int, int, smallint[], bigint[], timestamptz, timestamptz) is
  'Notes what answers say about API keys and a data type: these keys are accepted, '
  'and these jobs got older data than is there, or some got good data. A part of complete_jobs.';

create or replace function pgfresh.take_key_probes(p_source pgfresh.sources, p_count int, p_now timestamptz)
returns smallint[]
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_key smallint;
  v_keys smallint[] := '{}';
begin
  for v_key in
    select b.api_key
    from pgfresh.breaker as b
    where b.source_id = p_source.id and b.api_key = any (p_source.denied_keys) and b.paused_until <= p_now
    order by b.api_key
    limit p_count for update skip locked
  loop
    continue when p_source.rate_limit_per_minute is not null
      and cardinality(pgfresh.take_slots(p_source, v_key, 1, p_now)) = 0;
    update pgfresh.breaker
    set paused_until = p_now + interval '1 minute'
    where source_id = p_source.id and api_key = v_key;
    v_keys := v_keys || v_key;
    -- Of a source that has no other key, one job in all.
    exit when p_source.breaker_opened_at is not null;
  end loop;
  return v_keys;
end
$$;
comment on function pgfresh.take_key_probes(pgfresh.sources, int, timestamptz) is
  'API keys of a source that were refused and may be tried again, each by one job. A part of take_limits.';

insert into pgfresh.migrations (kind, name, hash) values ('functions'::text, 'breakers'::text, '7fd64e9b9d49cda90157e43d960b1655d8c64ee2a32aac3a15e928a3d6570533'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- functions by_hand
create or replace function pgfresh.running_attempt(p_job_id bigint, p_attempt int) returns int
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_attempt int;
begin
  perform pgfresh.require_range('p_job_id', p_job_id, 1, 9223372036854775807);
  select attempt
  into v_attempt
  from pgfresh.job
  where id = p_job_id and state = 'x' and attempt = coalesce(p_attempt, attempt);
  if v_attempt is null then
    raise warning 'job % is not running%', p_job_id, coalesce(' in attempt ' || p_attempt, '');
  end if;
  return v_attempt;
end
$$;
comment on function pgfresh.running_attempt(bigint, int) is
  'The attempt in which a job runs; warns and returns null if it does not.';

create or replace function pgfresh.complete_queue_job(
  p_job_id bigint, p_data_size_bytes bigint, p_attempt int default null, p_outcome text default 'fresh')
returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_attempt int := pgfresh.running_attempt(p_job_id, p_attempt);
begin
  perform pgfresh.require_range('p_data_size_bytes', p_data_size_bytes, 0, 1e15);
  perform pgfresh.require_outcome(p_outcome);
  if exists (
    select from pgfresh.job as j
    join pgfresh.data_type_registry as r on r.type_id = j.type_id
    where j.id = p_job_id and j.attempt = v_attempt and j.definition <> r.definition
  ) then
    raise warning 'the data type of job % was changed while it ran: it is asked for again', p_job_id;
    perform pgfresh.put_back_jobs(jsonb_build_array(jsonb_build_object(
      'id', p_job_id, 'attempt', v_attempt, 'bytes', p_data_size_bytes, 'calls', 1, 'outcome', 'redefined')));
    return false;
  end if;
  return v_attempt is not null and cardinality(
    pgfresh.complete_jobs(array[p_job_id], array[v_attempt], array[p_data_size_bytes], array[p_outcome])) = 1;
end
$$;
comment on function pgfresh.complete_queue_job(bigint, bigint, int, text) is
  'Ends a running job as succeeded and settles its bytes. '
  'Pass the attempt that the claim returned: a late call of an earlier attempt then has no effect. '
  'A job whose data type was changed while it ran is put back instead. '
  'Returns whether it had an effect; warns if not.';

create or replace function pgfresh.fail_queue_job(
  p_job_id bigint, p_error_message text, p_attempt int default null, p_permanent boolean default false,
  p_data_size_bytes bigint default 0, p_outcome text default null)
returns jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_attempt int := pgfresh.running_attempt(p_job_id, p_attempt);
  v_result jsonb;
begin
  perform pgfresh.require_range('p_data_size_bytes', p_data_size_bytes, 0, 1e15);
  if coalesce(p_error_message, '') = '' or p_permanent is null then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      'p_error_message must not be empty and p_permanent not null',
      'Say what failed, in one line.');
  end if;
  if p_outcome is not null then perform pgfresh.require_outcome(p_outcome); end if;
  if v_attempt is not null then
    select jsonb_build_object('status', t.status, 'next_retry_at', t.next_retry_at)
    into v_result
    from pgfresh.fail_jobs(jsonb_build_array(jsonb_build_object(
      'id', p_job_id, 'attempt', v_attempt, 'bytes', p_data_size_bytes, 'outcome', p_outcome,
      'error', p_error_message, 'permanent', p_permanent, 'counts', not p_permanent))) as t;
  end if;
  return v_result;
end
$$;
comment on function pgfresh.fail_queue_job(bigint, text, int, boolean, bigint, text) is
  'Ends a running attempt as failed. A transient failure waits and is tried again up to the type''s max_retries, '
  'and counts for the breaker of the source; a permanent one is failed at once. '
  'Returns {"status", "next_retry_at"}, or null with a warning if the job does not run in that attempt.';

create or replace function pgfresh.reset_job_immediate(p_job_id bigint, p_attempt int default null) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_attempt int := pgfresh.running_attempt(p_job_id, p_attempt);
begin
  return v_attempt is not null
    and exists (
      select from pgfresh.put_back_jobs(jsonb_build_array(jsonb_build_object('id', p_job_id, 'attempt', v_attempt))));
end
$$;
comment on function pgfresh.reset_job_immediate(bigint, int) is
  'Makes a running job ready again at once, without counting a retry: '
  'for deadlocks and other failures that are not the job''s. After the fifth time it counts as a retry.';

create or replace function pgfresh.cancel_queue_jobs(
  p_job_ids bigint[] default null, p_data_type text default null, p_source text default null,
  p_status text default null, p_key text default null, p_dry_run boolean default false)
returns bigint
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_ids bigint[];
begin
  if p_dry_run is null or num_nonnulls(p_job_ids, p_data_type, p_source, p_status, p_key) = 0 then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      'cancelling needs at least one filter, and p_dry_run must be true or false',
      'Pass ids, a data type, a source, a status or a key.');
  end if;
  if p_data_type is not null then perform pgfresh.require_type(p_data_type); end if;
  if p_source is not null then perform pgfresh.require_source(p_source); end if;
  if p_key is not null then perform pgfresh.require_key(p_key); end if;
  if p_status is not null and p_status not in ('pending', 'retryable', 'running') then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      format('p_status must be pending, retryable or running, got %s', left(quote_literal(p_status), 60)),
      'Only open jobs can be cancelled.');
  end if;
  select array_agg(q.id order by q.id)
  into v_ids
  from pgfresh.open_jobs as q
  where (p_job_ids is null or q.id = any (p_job_ids))
    and (p_data_type is null or q.data_type = p_data_type)
    and (p_source is null or q.source = p_source)
    and (p_status is null or q.status = p_status)
    and (p_key is null or q.key = p_key);
  if p_dry_run or v_ids is null then
    return coalesce(cardinality(v_ids), 0);
  end if;
  return pgfresh.cancel_jobs(v_ids);
end
$$;
comment on function pgfresh.cancel_queue_jobs(bigint[], text, text, text, text, boolean) is
  'Cancels open jobs by filter and returns how many; with p_dry_run only counts them. '
  'What a running one does afterwards has no effect.';

create or replace function pgfresh.retry_failed_jobs(
  p_job_ids bigint[] default null, p_data_type text default null, p_source text default null,
  p_since timestamptz default null, p_dry_run boolean default false)
returns bigint
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_group record;
  v_keys text[];
  v_ids bigint[];
  v_count bigint := 0;
  v_skipped bigint := 0;
begin
  if p_dry_run is null or num_nonnulls(p_job_ids, p_data_type, p_source, p_since) = 0 then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      'retrying needs at least one filter, and p_dry_run must be true or false',
      'Pass ids, a data type, a source or a time.');
  end if;
  if p_data_type is not null then perform pgfresh.require_type(p_data_type); end if;
  if p_source is not null then perform pgfresh.require_source(p_source); end if;
  for v_group in
    select f.data_type, f.priority, f.metadata, array_agg(f.id) as ids, array_agg(f.key) as keys
    from (
      select f.*, row_number() over (partition by f.data_type, f.priority, f.metadata order by f.id) as place
      from pgfresh.failed_jobs as f
      where f.redriven_at is null
        and (p_job_ids is null or f.id = any (p_job_ids))
        and (p_data_type is null or f.data_type = p_data_type)
        and (p_source is null or f.source = p_source)
        and (p_since is null or f.ended_at >= p_since)
    ) as f
    -- In sets, because queue_refreshes refuses more than 100000 keys.
    group by f.data_type, f.priority, f.metadata, (f.place - 1) / 10000
    order by min(f.id)
  loop
    -- What is no key any more, or belongs to a type that cannot be asked, must not keep the others from their turn.
    begin
      v_keys := array(
        select j.key
        from pgfresh.judge_keys(pgfresh.require_type(v_group.data_type), v_group.keys) as j
        where j.code is null and j.key = v_group.keys[j.place]);
      if not p_dry_run then
        -- A pair that somebody has locked gets no job, and can be retried later.
        v_keys := array(
          select q.key
          from pgfresh.queue_refreshes(v_group.data_type, v_keys, v_group.priority, null, v_group.metadata) as q
          where q.result <> 'busy');
      end if;
    exception when sqlstate 'PGF01' then
      v_keys := '{}';
    end;
    v_ids := array(
      select f.id
      from unnest(v_group.ids, v_group.keys) as f(id, key)
      where f.key in (select k from unnest(v_keys) as k));
    v_count := v_count + cardinality(v_ids);
    v_skipped := v_skipped + cardinality(v_group.ids) - cardinality(v_ids);
    if not p_dry_run then
      update pgfresh.history_other
      set redriven_at = pgfresh.clock()
      where id = any (v_ids) and status = 'failed';
    end if;
  end loop;
  if v_skipped > 0 then
    raise warning '% failed jobs were skipped: their keys are not keys of their data types any more, or are locked',
      v_skipped
      using hint = 'They stay in pgfresh.failed_jobs and can be retried later.';
  end if;
  return v_count;
end
$$;
comment on function pgfresh.retry_failed_jobs(bigint[], text, text, timestamptz, boolean) is
  'Enqueues failed jobs again, by filter, each once; returns how many. With p_dry_run only counts them. '
  'Those whose key is no key of their data type any more, or whose pair is locked, are skipped, '
  'and a warning says how many.';

insert into pgfresh.migrations (kind, name, hash) values ('functions'::text, 'by_hand'::text, '7cb246ee6a9ffe1ba5a99177745124b743fdbad8b89cd6406215bd8afe9bca4c'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- functions changes
/*
  How changes reach those who watch. Triggers on users' tables, and the end of every job, append a mark to
  pgfresh.change, in the transaction that writes. They do so only for data types that somebody watches; else they look
  at one row and return.

  Transactions end in another order than they begin, so neither a sequence nor a time can say what was read already.
  A snapshot can: what is visible now and was not visible in the snapshot of the last read is new, and each mark is new
  exactly once.
*/
create or replace function pgfresh.mark_pairs(p_type_id int, p_keys text[]) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  -- A transaction with one snapshot for all of its statements would not see that somebody has begun to watch meanwhile,
  -- so it always marks.
  if current_setting('transaction_isolation') not in ('read committed', 'read uncommitted')
      or exists (select from pgfresh.watched_type where type_id = p_type_id and watched_until > pgfresh.clock()) then
    insert into pgfresh.change (type_id, keys) values (p_type_id, p_keys);
  end if;
end
$$;
comment on function pgfresh.mark_pairs(int, text[]) is
  'Marks pairs whose jobs have ended, if anybody watches their data type. A part of every end.';

create or replace function pgfresh.key_expression(p_type pgfresh.data_type_registry, p_alias text) returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select case p_type.normalise when 'none' then joined.parts else format('%s(%s)', p_type.normalise, joined.parts) end
  from (
    select string_agg(format('%s.%I::text', p_alias, k.name), ' || ''|'' || ' order by k.place) as parts
    from unnest(p_type.key_columns) with ordinality as k(name, place)
  ) as joined
$$;
comment on function pgfresh.key_expression(pgfresh.data_type_registry, text) is
  'The expression that spells the key of a row as the registry does.';

/*
  Each data type has a trigger function and a function that reads its rows of its own, so that their plans are kept.
  They are made by the schema's owner, whoever writes the row of the registry.

  A user's statement must not fail because of us. What reads the rows can fail, for instance after a column of the key
  was renamed: then the whole type is marked. Nothing is written inside of that block, so it costs the user's
  transaction no number of a subtransaction.
*/
create or replace function pgfresh.write_change_functions(p_type pgfresh.data_type_registry) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_id int := p_type.type_id;
  v_table oid := (select tables[1] from pgfresh.type_resolution where type_id = p_type.type_id);
  v_key text := format('(%s) collate "C"', pgfresh.key_expression(p_type, 'x'));
  v_is_key text;
  v_ttl text := 'null::interval';
  v_rows text;
begin
  execute format($f$
    create or replace function pgfresh.mark_%1$s() returns trigger
    language plpgsql security definer set search_path = pg_catalog, pg_temp as $body$
declare
  v_keys text[];
  v_rows bigint;
begin
  -- The end of a job marks its pair itself, also where no row is written. What users' own triggers write besides is not
  -- known to it.
  if current_setting('pgfresh.ending', true) = '%1$s' and pg_trigger_depth() = 1
      -- As in mark_pairs. Every statement of users pays for this, and a call would double it.
      or (current_setting('transaction_isolation') in ('read committed', 'read uncommitted')
      and not exists (select from pgfresh.watched_type where type_id = %1$s and watched_until > pgfresh.clock())) then
    return null;
  end if;
  if tg_op <> 'TRUNCATE' then
    begin
      if tg_op = 'INSERT' then
        select count(*), coalesce(array_agg(distinct k.key) filter (where octet_length(k.key) <= 512), '{}')
        into v_rows, v_keys
        from (select %2$s as key from fresh as x limit 5001) as k;
      elsif tg_op = 'DELETE' then
        select count(*), coalesce(array_agg(distinct k.key) filter (where octet_length(k.key) <= 512), '{}')
        into v_rows, v_keys
        from (select %2$s as key from gone as x limit 5001) as k;
      else
        select count(*) / 2, coalesce(array_agg(distinct k.key) filter (where octet_length(k.key) <= 512), '{}')
        into v_rows, v_keys
        from (
          (select %2$s as key from fresh as x limit 5001)
          union all
          (select %2$s from gone as x limit 5001)
        ) as k;
      end if;
      if v_keys = '{}' then
        return null;
      end if;
      if v_rows > 5000 or cardinality(v_keys) > 1000 then
        v_keys := null;
      end if;
    exception when others then
      v_keys := null;
    end;
  end if;
  insert into pgfresh.change (type_id, keys) values (%1$s, v_keys);
  return null;
end
$body$ $f$, v_id, v_key);
  execute format('comment on function pgfresh.mark_%s() is %L', v_id,
    'Marks what statements have changed in the table of a data type. Written by the registry.');
  execute format('revoke all on function pgfresh.mark_%s() from public', v_id);

  -- With -1, because char and bit without a length have the length 1.
  select string_agg(
    format('x.%I = %s::%s', k.name,
      case
        when cardinality(p_type.key_columns) = 1 then 'k.key'
        else format('split_part(k.key, ''|'', %s)', k.place)
      end,
      format_type(a.atttypid, -1)),
    ' and ' order by k.place)
  into v_is_key
  from unnest(p_type.key_columns) with ordinality as k(name, place)
  join pg_attribute as a on a.attrelid = v_table and a.attname = k.name;
  if p_type.ttl_column is not null then
    v_ttl := format(
      case
        when (select atttypid from pg_attribute where attrelid = v_table and attname = p_type.ttl_column)
          = 'interval'::regtype then 'x.%I'
        else 'make_interval(mins => x.%I::int)'
      end,
      p_type.ttl_column);
  end if;
  v_rows := format('select row_to_json(x)::text as rows, x.%I as fetched_at, %s as ttl from %s as x where %s',
    p_type.timestamp_column, v_ttl, v_table::regclass, v_is_key);
  -- Where a key has one row, there is nothing to put together and to sort, which is most of the work.
  if not exists (
    select from pg_index as i
    where i.indrelid = v_table and i.indisunique and i.indisvalid and i.indimmediate
      and i.indpred is null and i.indexprs is null
      and not exists (
        select from unnest(i.indkey) with ordinality as k(attnum, place)
        join pg_attribute as a on a.attrelid = v_table and a.attnum = k.attnum
        where k.place <= i.indnkeyatts and a.attname <> all (p_type.key_columns)
      )
  ) then
    v_rows := format(
      'select string_agg(x.rows, '','' order by x.fetched_at desc nulls last, x.rows collate "C") as rows, '
      'max(x.fetched_at) as fetched_at, '
      '(array_agg(x.ttl order by x.fetched_at desc nulls last))[1] as ttl from (%s) as x', v_rows);
  end if;
  -- By itself for each key (offset 0): a join could read the whole table, if nobody knows yet how large it is.
  v_rows := format(
    'select k.key, r.rows, r.fetched_at, r.ttl '
    'from unnest($1) as k(key) left join lateral (%s offset 0) as r on true', v_rows);
  update pgfresh.type_resolution set rows_sql = v_rows where type_id = v_id;
  execute format($f$
    create or replace function pgfresh.rows_%1$s(text[])
    returns table (key text, rows text, fetched_at timestamptz, ttl interval) language plpgsql stable as $body$
#variable_conflict use_column
begin
  return query %2$s;
end
$body$ $f$, v_id, v_rows);
  execute format('comment on function pgfresh.rows_%s(text[]) is %L', v_id,
    'The rows of pairs of a data type, as JSON. Written by the registry.');
  execute format('revoke all on function pgfresh.rows_%s(text[]) from public', v_id);
  execute format('grant execute on function pgfresh.rows_%s(text[]) to pgfresh_evaluator', v_id);
end
$$;
comment on function pgfresh.write_change_functions(pgfresh.data_type_registry) is
  'Makes the functions that mark and read the rows of a data type. A part of the registry.';

create or replace function pgfresh.drop_change_functions(p_type_id int) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
-- Who drops a trigger waits for everybody who reads the table, and everybody who comes later waits for him.
set lock_timeout = '2s'
as $$
begin
  execute format('drop function if exists pgfresh.rows_%s(text[])', p_type_id);
  begin
    -- With the triggers, also of a table that somebody else owns.
    execute format('drop function if exists pgfresh.mark_%s() cascade', p_type_id);
  exception when lock_not_available then
    perform pgfresh.warn('triggers_left', format('mark_%s', p_type_id),
      'a table was in use, so triggers of a data type that is gone are still on it; they do nothing any more',
      format('Run: drop function pgfresh.mark_%s() cascade;', p_type_id));
  end;
end
$$;
comment on function pgfresh.drop_change_functions(int) is
  'Drops what write_change_functions has made, and the triggers. A part of the registry.';

/*
  With the rights of who writes the registry: a trigger is made by one who may. Where that does not work, what pgfresh
  itself writes is still marked, because the end of a job does that.
*/
create or replace function pgfresh.keep_change_triggers(p_type pgfresh.data_type_registry) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
-- Who makes a trigger waits for everybody who writes to the table, and everybody who comes later waits for him.
set lock_timeout = '2s'
as $$
declare
  v_table record;
  v_trigger record;
  v_problem text;
  v_next text := format(
    'Then run: update pgfresh.data_type_registry set data_type = data_type where data_type = %L;', p_type.data_type);
begin
  select c.oid::regclass as name, c.oid, c.relkind
  into v_table
  from pg_class as c
  where c.oid = (select tables[1] from pgfresh.type_resolution where type_id = p_type.type_id);
  -- A table that was dropped took its triggers along. The type is unresolved, and is resolved anew when it is written.
  if not found then
    return;
  end if;
  if exists (
    select from pg_trigger
    where tgfoid = to_regproc(format('pgfresh.mark_%s', p_type.type_id)) and tgrelid <> v_table.oid
  ) then
    perform pgfresh.drop_change_functions(p_type.type_id);
  end if;
  perform pgfresh.write_change_functions(p_type);
  if v_table.relkind not in ('r', 'p') then
    perform pgfresh.warn('changes_unseen', p_type.data_type,
      format('%s is no plain table: viewers hear of what pgfresh writes, and not of what others write', v_table.name),
      'Name the table itself, if viewers are to hear of everything.');
    return;
  end if;
  for v_trigger in
    select format('pgfresh_%s_%s', p_type.type_id, t.done) as name, t.event, t.rows
    from (values
      ('inserted', 'insert', 'referencing new table as fresh'),
      ('updated', 'update', 'referencing old table as gone new table as fresh'),
      ('deleted', 'delete', 'referencing old table as gone'),
      ('truncated', 'truncate', '')
    ) as t(done, event, rows)
    where not exists (
      select from pg_trigger as g
      where g.tgrelid = v_table.oid and g.tgname = format('pgfresh_%s_%s', p_type.type_id, t.done)
    )
  loop
    begin
      execute format('create trigger %I after %s on %s %s for each statement execute function pgfresh.mark_%s()',
        v_trigger.name, v_trigger.event, v_table.name, v_trigger.rows, p_type.type_id);
    exception
      when insufficient_privilege then
        v_problem := format('%I may not make triggers on it', current_user);
        v_next := format('Run: grant trigger on %s to %I; %s', v_table.name, current_user, v_next);
      when lock_not_available then
        v_problem := 'it was being written to for longer than we would let others wait';
      when feature_not_supported or wrong_object_type or invalid_object_definition then
        v_problem := sqlerrm;
    end;
    if v_problem is not null then
      perform pgfresh.warn('changes_unseen', p_type.data_type,
        format('%s has no trigger: %s. Viewers hear of what pgfresh writes, and not of what others write',
          v_table.name, v_problem),
        v_next);
      return;
    end if;
  end loop;
end
$$;
comment on function pgfresh.keep_change_triggers(pgfresh.data_type_registry) is
  'Makes the triggers that mark what others write to the table of a data type. A part of the registry.';

create or replace function pgfresh.changes_since(p_since pg_snapshot) returns jsonb
language plpgsql stable
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
begin
  return (
    select coalesce(
      jsonb_agg(
        jsonb_build_array(c.type_id, case when not c.whole then c.keys end, c.xids) order by c.type_id, c.xids),
      '[]')
    from (
      select m.type_id, bool_or(m.many or m.keys is null or m.keys = '{}') as whole,
        array_agg(distinct k.key) filter (where k.key is not null) as keys,
        case when not coalesce(bool_or(m.keys = '{}'), false) then array_agg(distinct m.xid::text::bigint) end as xids
      from (
        -- More keys than a few messages hold are the whole type.
        select c.*, sum(cardinality(c.keys)) over (partition by c.type_id) > 5000 as many
        from (
          select c.xid, c.type_id, c.keys
          from pgfresh.change as c
          where c.xid >= pg_snapshot_xmax(coalesce(p_since, '1:1:'))
          union all
          select c.xid, c.type_id, c.keys
          from pgfresh.change as c
          where c.xid = any (array(select pg_snapshot_xip(p_since)))
        ) as c
      ) as m
      left join lateral unnest(case when not m.many then m.keys end) as k(key) on true
      group by m.type_id, case when not m.many then m.xid end
    ) as c);
end
$$;
comment on function pgfresh.changes_since(pg_snapshot) is
  'What is marked now and was not in that snapshot, '
  'as [type, keys or null for all, transactions or null if nobody knows] for each transaction.';

create or replace function pgfresh.watch_changes(p_types int[], p_since pg_snapshot default null) returns jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := pgfresh.clock();
  v_answer jsonb;
begin
  perform pgfresh.require_primary();
  if p_types is null or array_position(p_types, null) is not null or cardinality(p_types) > 10000 then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      'p_types must be an array of at most 10000 numbers of data types, with no null in it',
      'Pass the types whose pairs are watched.');
  end if;
  -- Most calls find everything well for a while, and then write nothing.
  if exists (
    select from unnest(p_types) as t(id)
    where not exists (
      select from pgfresh.watched_type as w
      where w.type_id = t.id and w.watched_until >= v_now + interval '20 seconds'
    )
  ) then
    perform set_config('synchronous_commit', 'off', true);
    -- One that an open transaction deletes or renames has its turn in a later call: no one waits for that transaction.
    insert into pgfresh.watched_type as w (type_id, watched_until, since)
    select r.type_id, v_now + interval '30 seconds', v_now
    from (
      select type_id from pgfresh.data_type_registry where type_id = any (p_types)
      order by type_id for key share skip locked
    ) as r
    order by r.type_id
    on conflict (type_id) do update set watched_until = excluded.watched_until,
      -- Somebody may already have found the time past, and not marked. Five seconds are for this transaction, from its
      -- reading of the clock to its commit.
      since = case when w.watched_until < v_now + interval '5 seconds' then v_now else w.since end,
      settled = w.settled and w.watched_until >= v_now + interval '5 seconds';
  end if;
  select jsonb_build_object(
    'snapshot', pg_current_snapshot()::text,
    'changes', case when p_since is null then '[]' else pgfresh.changes_since(p_since) end
      -- That a type is not there any more is a change of all of it.
      || coalesce((
        select jsonb_agg(jsonb_build_array(t.id, null, null))
        from unnest(p_types) as t(id)
        where not exists (select from pgfresh.data_type_registry as r where r.type_id = t.id)
      ), '[]'))
  into v_answer;
  return v_answer;
end
$$;
comment on function pgfresh.watch_changes(int[], pg_snapshot) is
  'Says that pairs of these data types are watched for the next 30 seconds, so that their changes are marked, '
  'and tells what was marked since a snapshot that an earlier call returned. '
  'Returns {"snapshot", "changes": [[type, keys or null for all, transactions or null if nobody knows], …]}; '
  'a type that is not there any more is among them. '
  'Marks are kept for ten seconds: who comes later reads everything anew.';

create or replace function pgfresh.pump_changes(p_holder uuid, p_since pg_snapshot default null) returns jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := pgfresh.clock();
  v_answer jsonb;
begin
  perform pgfresh.require_primary();
  if p_holder is null then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      'p_holder must not be null',
      'Pass a uuid of your own making, the same for each call.');
  end if;
  perform set_config('synchronous_commit', 'off', true);
  if not exists (
        select from pgfresh.duty
        where name = 'pump' and holder = p_holder and lease_until > v_now + interval '2 seconds'
      )
      and not pgfresh.hold_duty('pump', p_holder, interval '3 seconds') then
    return null;
  end if;
  select jsonb_build_object(
    'snapshot', s.snapshot::text, 'changes', pgfresh.changes_since(p_since), 'unsettled', w.types)
  into v_answer
  from (select pg_current_snapshot() as snapshot) as s
  cross join (
    select coalesce(jsonb_agg(jsonb_build_array(type_id, since::text)), '[]') as types
    from pgfresh.watched_type
    where not settled
  ) as w;
  if v_answer -> 'unsettled' <> '[]' then
    -- Every transaction that has written so far has a number below this one.
    v_answer := v_answer || jsonb_build_object('next', pg_current_xact_id()::text::bigint);
  end if;
  return v_answer;
end
$$;
comment on function pgfresh.pump_changes(uuid, pg_snapshot) is
  'Takes or renews the duty of the one who tells of changes; null while another one has it. '
  'Else as watch_changes, and besides which types are watched only just now, '
  'and the first transaction that cannot have missed that.';

create or replace function pgfresh.settle_changes(
  p_from pg_snapshot, p_to pg_snapshot, p_unmarked int[] default '{}', p_types int[] default '{}',
  p_since timestamptz[] default '{}')
returns bigint
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
  v_first bigint := 0;
  v_more bigint := 0;
begin
  perform pgfresh.require_primary();
  if p_types is null or p_since is null or cardinality(p_types) <> cardinality(p_since) or cardinality(p_types) > 10000
      or p_unmarked is null or cardinality(p_unmarked) > 10000 or array_position(p_unmarked, null) is not null then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      'p_unmarked must be types with no null, and p_types and p_since arrays of one length, each at most 10000',
      'Pass them as pump_changes returned them.');
  end if;
  perform set_config('synchronous_commit', 'off', true);
  if p_to is not null then
    delete from pgfresh.change as c
    where c.xid >= pg_snapshot_xmax(coalesce(p_from, '1:1:')) and c.xid < pg_snapshot_xmax(p_to)
      and pg_visible_in_snapshot(c.xid, p_to);
    get diagnostics v_first = row_count;
    delete from pgfresh.change as c
    where c.xid = any (array(select pg_snapshot_xip(p_from))) and pg_visible_in_snapshot(c.xid, p_to);
    get diagnostics v_more = row_count;
  end if;
  if cardinality(p_unmarked) > 0 then
    insert into pgfresh.change (type_id, keys) select t.id, '{}' from unnest(p_unmarked) as t(id);
  end if;
  if cardinality(p_types) > 0 then
    -- One that an open transaction deletes stays unsettled until a later call.
    update pgfresh.watched_type as w
    set settled = true
    from (
      select o.type_id
      from unnest(p_types, p_since) as t(type_id, since)
      join pgfresh.watched_type as o on o.type_id = t.type_id and o.since = t.since
      order by o.type_id for update of o skip locked
    ) as s
    where w.type_id = s.type_id;
  end if;
  return v_first + v_more;
end
$$;
comment on function pgfresh.settle_changes(pg_snapshot, pg_snapshot, int[], int[], timestamptz[]) is
  'Forgets the marks between two snapshots, which everybody has heard of; '
  'marks whole types to which somebody has written who could not know that they are watched; '
  'and notes of types that nobody writes to them any more who could not. Returns how many marks are forgotten.';

create or replace function pgfresh.clear_unwatched_changes() returns bigint
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_count bigint;
begin
  -- One statement: who sees a mark in it also sees that somebody has begun to watch before.
  delete from pgfresh.change as c
  where not exists (
    select from pgfresh.watched_type as w
    where w.type_id = c.type_id and w.watched_until > (select pgfresh.clock()) - interval '1 minute'
  );
  get diagnostics v_count = row_count;
  return v_count;
end
$$;
comment on function pgfresh.clear_unwatched_changes() is 'Forgets marks that nobody waits for. Returns how many.';

create or replace function pgfresh.version_of(p_snapshot pg_snapshot) returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select e.epoch
    || '.' || lpad(to_hex(pg_snapshot_xmax(p_snapshot)::text::bigint), 12, '0')
    || '.' || lpad(to_hex(65535 - least(65535, (select count(*) from pg_snapshot_xip(p_snapshot)))), 4, '0')
  from pgfresh.change_epoch as e
$$;
comment on function pgfresh.version_of(pg_snapshot) is
  'A snapshot as a text that is greater than that of every earlier one, byte by byte: '
  'a later snapshot has a higher end, or the same one and fewer transactions that still run.';

create or replace function pgfresh.ask_rows(p_type_id int, p_keys text[])
returns table (key text, rows text, fetched_at timestamptz, ttl interval)
-- Stable, so that it reads by the snapshot of the statement that calls it.
language plpgsql stable security definer
set search_path = pg_catalog, public, pg_temp
set plan_cache_mode = auto
set enable_seqscan = on
as $$
begin
  perform set_config('transaction_read_only', 'on', true);
  return query execute format('select r.key, r.rows, r.fetched_at, r.ttl from pgfresh.rows_%s($1) as r', p_type_id)
    using p_keys;
  perform pgfresh.clear_leftovers(pg_catalog.current_setting('search_path'));
-- Never raised. It makes this a subtransaction, at whose end the transaction may write again.
exception when sqlstate 'PGF00' then raise;
end
$$;
comment on function pgfresh.ask_rows(int, text[]) is 'Reads the rows of pairs of a data type as the evaluator.';

create or replace function pgfresh.require_readable(p_type_id int, p_keys text[]) returns pgfresh.data_type_registry
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_type pgfresh.data_type_registry;
begin
  perform pgfresh.require_primary();
  select * into v_type from pgfresh.data_type_registry where type_id = p_type_id;
  if not found then
    perform pgfresh.refuse('PGF_TYPE_UNKNOWN',
      format('there is no data type with the number %s', coalesce(p_type_id::text, 'null')),
      'The known ones: select type_id, data_type from pgfresh.data_type_registry.');
  end if;
  if p_keys is null or array_position(p_keys, null) is not null or cardinality(p_keys) > 10000 then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      'p_keys must be an array of at most 10000 keys, with no null in it',
      'Pass the keys as admit_pairs returned them.');
  end if;
  if not exists (select from pgfresh.change_epoch) then
    -- The timeline grows with every failover, and what is on the disk of the log is there after a crash too.
    insert into pgfresh.change_epoch (epoch)
    select lpad(lower(ltrim(left(pg_walfile_name(pg_current_wal_lsn()), 8), '0')), 6, '0')
      || '.' || lpad(to_hex((pg_current_wal_flush_lsn() - '0/0')::bigint), 14, '0')
    on conflict do nothing;
  end if;
  return v_type;
end
$$;
comment on function pgfresh.require_readable(int, text[]) is
  'The data type of pairs that are to be read; refuses what cannot be read. From here on versions have a beginning.';

create or replace function pgfresh.read_pairs(p_type_id int, p_keys text[])
returns table (
  version text, snapshot text, key text, rows text, fetched_at timestamptz, stale_at timestamptz,
  source_at timestamptz, state text, activity text, reason text, failing boolean, as_of timestamptz
)
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
-- Times in the rows are written the same way whoever reads them.
set timezone = 'UTC'
as $$
#variable_conflict use_column
declare
  v_type pgfresh.data_type_registry := pgfresh.require_readable(p_type_id, p_keys);
  v_source record;
begin
  if v_type.visibility <> 'shared' then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      format('the rows of %s are not for everybody', v_type.data_type),
      'Read them as the user who looks, with read_pairs_as.');
  end if;
  select coalesce(h.reason, case when b.paused_until > c.now then 'paused' end) as reason,
    coalesce(h.until, case when b.paused_until > c.now then b.paused_until end) as until,
    -- What jobs wait for while one of them tries for all.
    case when s.breaker_opened_at is not null then 'breaker' when b.opened_at is not null then 'paused' end as probed
  into v_source
  from (select pgfresh.clock() as now) as c
  cross join pgfresh.source_hindrance(v_type.source_id, c.now) as h
  join pgfresh.sources as s on s.id = v_type.source_id
  left join pgfresh.breaker as b on b.type_id = v_type.type_id;
  -- It lasts until somebody starts one, so it outlasts what ends by itself.
  if v_source.until is distinct from 'infinity' and pgfresh.worker_obstacle(v_type, pgfresh.clock()) is not null then
    v_source.reason := 'no_worker';
    v_source.until := 'infinity';
  end if;
  -- One statement, whose snapshot is the version of everything that it reads. The version is made once (offset 0), and
  -- each pair looked up by itself: a join could read them all.
  return query
    select s.version, s.snapshot, a.key, '[' || coalesce(a.rows, '') || ']', a.fetched_at,
      case when t.state = 'empty' then (p.pair).empty_at + coalesce(v_type.empty_ttl, v_type.ttl) else t.stale_at end,
      (p.pair).source_at, t.state, w.activity, w.reason,
      coalesce((p.pair).fails > 0 or j.retries > 0, false), s.as_of
    from (
      select pgfresh.clock() as as_of, pgfresh.version_of(pg_current_snapshot()) as version,
        pg_current_snapshot()::text as snapshot
      offset 0
    ) as s
    cross join pgfresh.ask_rows(p_type_id, p_keys) as a
    cross join lateral (
      select (select p from pgfresh.pairs as p where p.type_id = p_type_id and p.key = a.key collate "C") as pair
      offset 0
    ) as p
    left join lateral (
      select j.state, j.run_at, j.retries from pgfresh.job as j where j.id = (p.pair).job_id
    ) as j on true
    cross join lateral (
      select u.stale_at,
        pgfresh.state_of(p.pair, a.rows is not null, a.fetched_at, u.stale_at,
          coalesce(v_type.empty_ttl, v_type.ttl), v_type.max_source_age, s.as_of) as state
      from (
        select case
          when a.rows is null then (p.pair).empty_at + coalesce(v_type.empty_ttl, v_type.ttl)
          -- As the planner knows it, if this is the row that it knows.
          when a.fetched_at = (p.pair).row_at then (p.pair).stale_at
          when a.fetched_at is not null then least(a.fetched_at, '9999-12-31') + coalesce(a.ttl, v_type.ttl)
        end as stale_at
      ) as u
      offset 0
    ) as t
    cross join lateral pgfresh.activity_of(p.pair, t.state, j.state, j.run_at,
      v_type.refresh_strategy = 'scheduled',
      coalesce(v_source.reason, case when j.state is not null then v_source.probed end),
      coalesce(v_source.until,
        case when j.state is not null and v_source.probed is not null then s.as_of + interval '10 seconds' end),
      s.as_of) as w
    where not pgfresh.is_row_lost(p.pair, a.rows is not null, a.fetched_at)
      or pgfresh.hasten(p_type_id, a.key, s.as_of) is not null;
end
$$;
comment on function pgfresh.read_pairs(int, text[]) is
  'The rows and the state of pairs of a shared data type, read by one statement, with its version and its snapshot: '
  'when the row was fetched and goes stale, how old it is at the source, the state of the data, what happens with it '
  'and for what it waits, and whether its last refresh has failed. '
  'Versions are texts that compare byte by byte.';

-- What is registered already has the functions of this version, and the triggers if they were not there yet.
select pgfresh.keep_change_triggers(r)
from pgfresh.data_type_registry as r
join pgfresh.type_resolution using (type_id);

insert into pgfresh.migrations (kind, name, hash) values ('functions'::text, 'changes'::text, '557fc3556f484323807b0ac4e10bfb94736bde29962331dae7a4064e3fb1ef51'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- functions claim
do $$ begin
  if to_regtype('pgfresh.claimed_job') is null then
    create type pgfresh.claimed_job as (
      id bigint, attempt int, type_id int, key text, source_id int, band smallint, lane smallint, priority int,
      est_bytes bigint, retries int, metadata jsonb,
      use_by timestamptz, api_key smallint, definition bigint);
  end if;
end $$;
comment on type pgfresh.claimed_job is
  'A job as claim_jobs returns it. Id and attempt together are the token by which it is ended. '
  'Of a source with a rate, it has one call, to be sent by use_by with that API key, or not at all. '
  'What was fetched under another definition than this one is not written.';

/*
  The number of an SQL client's name. It is written once, and then once an hour, and waits for nobody: who does not see
  the name that another one is just writing writes it a second time.
*/
create or replace function pgfresh.client_number(p_name text) returns bigint
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := pgfresh.clock();
  v_name text := coalesce(p_name,
    coalesce(nullif(current_setting('application_name', true), ''), session_user) || ':' || pg_backend_pid());
  v_client pgfresh.worker_name;
begin
  select *
  into v_client
  from pgfresh.worker_name
  where name = v_name and not has_lease
  order by last_seen_at desc
  limit 1;
  if not found then
    insert into pgfresh.worker_name (name, has_lease, last_seen_at)
    values (v_name, false, v_now)
    returning * into v_client;
  elsif v_client.last_seen_at < v_now - interval '1 hour' then
    update pgfresh.worker_name set last_seen_at = v_now
    where id = (select n.id from pgfresh.worker_name as n where n.id = v_client.id for update skip locked);
  end if;
  return v_client.id;
end
$$;
comment on function pgfresh.client_number(text) is
  'The number under which a client that speaks only SQL claims: that of its name, '
  'or of its application_name (else its user) and process id. A part of claim_jobs.';

-- Locked until this claim ends, so nobody else tries them meanwhile.
create or replace function pgfresh.type_probes(p_left_alone int[], p_types int[], p_now timestamptz) returns int[]
language sql
set search_path = pg_catalog, pg_temp
as $$
  select coalesce(array_agg(b.type_id), '{}')
  from (
    select b.type_id
    from pgfresh.breaker as b
    where b.type_id = any (p_left_alone) and b.paused_until <= p_now and (p_types is null or b.type_id = any (p_types))
    for update skip locked
  ) as b
$$;
comment on function pgfresh.type_probes(int[], int[], timestamptz) is
  'Data types that were left alone and may be tried again, each by one job. A part of claim_jobs.';

create or replace function pgfresh.one_of_each(p_ids bigint[], p_types int[]) returns bigint[]
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select coalesce(array_agg(c.id order by c.place), '{}')
  from (
    select c.id, c.place, j.type_id,
      -- First one whose last answer was not the same trouble: a pair that always has it must not answer for all.
      row_number() over (
        partition by j.type_id
        order by p.fails > 0 or (p.outcome = 'older_source') is true, c.place
      ) as turn
    from unnest(p_ids) with ordinality as c(id, place)
    join pgfresh.job as j on j.id = c.id
    join pgfresh.pairs as p on p.type_id = j.type_id and p.key = j.key
  ) as c
  where c.turn = 1 or c.type_id <> all (p_types)
$$;
comment on function pgfresh.one_of_each(bigint[], int[]) is
  'These jobs, but of each of these data types only one, if there is one whose pair had no trouble last. '
  'A part of claim_jobs.';

create or replace function pgfresh.claim_jobs(
  p_worker bigint, p_request uuid, p_limit int, p_sources int[] default null, p_types int[] default null,
  p_max_bytes bigint default null, p_floor_types int[] default '{}', p_floor_lanes smallint[] default '{}',
  p_floor_ids bigint[] default '{}', p_alone boolean default false, p_client text default null)
returns setof pgfresh.claimed_job
language plpgsql
set search_path = pg_catalog, pg_temp
-- Planned once, with all that it calls: for a claim of one job, planning would take longer than claiming.
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
-- Before version 18 a scan that is switched off but cannot be avoided costs so much that it is compiled.
set jit = off
as $$
declare
  v_now timestamptz := pgfresh.clock();
  v_idle boolean;
  v_due boolean;
  v_stopped boolean;
  -- Sources without limits, and the others.
  v_free int[];
  v_limited int[];
  -- The lanes in which jobs of sources without limits are ready: the first job of each, and since when it has been
  -- ready, if it is no background work. And whether one of them has waited for more than ten seconds.
  v_ready int[];
  v_lanes smallint[];
  v_starts bigint[];
  v_since timestamptz[];
  v_count int;
  v_shares boolean;
  -- The source and the definition of each data type that may be claimed.
  v_types int[];
  v_sources_of int[];
  v_definitions bigint[];
  -- How many of what was picked, the first ones, have a share of the claim.
  v_shared int := 0;
  v_ids bigint[] := '{}';
  v_bytes bigint[];
  -- Of each that is to be claimed, its source; and of those that take a call with them, its API key.
  v_sources int[];
  v_source int;
  v_rated int[] := '{}';
  v_taken record;
  v_called bigint[];
  v_api_keys smallint[];
  v_reserved bigint[];
  -- How many API keys of which source the worker knows of; a newer configuration may have more.
  v_known jsonb;
  v_use_by timestamptz;
  -- Data types that are left alone, and those of them of which one job may try now.
  v_left_alone int[];
  v_probed int[] := '{}';
  v_floors int := cardinality(p_floor_types);
  v_holder bigint := p_worker;
begin
  -- One comparison in the usual case;
  -- which refusal it is, and whether several floors are one too many, is asked only then.
  if (p_limit between 1 and 10000 and p_request is not null and coalesce(p_max_bytes, 0) >= 0 and v_floors <= 1
      and v_floors = cardinality(p_floor_lanes) and v_floors = cardinality(p_floor_ids)) is not true then
    perform pgfresh.require_range('p_limit', p_limit, 1, 10000);
    if p_request is null then
      perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
        'p_request must not be null',
        'Pass a uuid of your own making, a new one for each claim.');
    end if;
    if p_max_bytes < 0 then
      perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
        format('p_max_bytes must not be negative, got %s', p_max_bytes),
        'Leave it out to claim jobs of every size.');
    end if;
    -- A place named twice would be looked at twice, and its jobs be claimed twice.
    if (v_floors = cardinality(p_floor_lanes) and v_floors = cardinality(p_floor_ids)
        and v_floors = (
          select count(distinct (f.type_id, f.lane))
          from unnest(p_floor_types, p_floor_lanes) as f(type_id, lane)
        )) is not true then
      perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
        'the floors must be three arrays of one length that name each data type and lane once',
        'Leave them out, or pass one data type, lane and id for each.');
    end if;
  end if;

  -- All that a claim has to know before it looks for jobs, in one statement,
  -- because each costs more to begin than to run.
  select
    (select w.idle from pgfresh.worker as w where w.id = p_worker and w.lease_until > v_now),
    (select true from pgfresh.job as j where j.state = 'w' and j.run_at <= v_now order by j.run_at limit 1),
    (select true from pgfresh.spending_stop),
    array(
      select s.id
      from pgfresh.sources as s
      where not s.limited and s.breaker_opened_at is null and s.denied_keys = '{}'
        and s.enabled and (s.paused_until is null or s.paused_until <= v_now)
        and (p_sources is null or s.id = any (p_sources))),
    array(
      select s.id
      from pgfresh.sources as s
      where (s.limited or s.breaker_opened_at is not null or s.denied_keys <> '{}')
        and s.enabled and (s.paused_until is null or s.paused_until <= v_now)
        and (p_sources is null or s.id = any (p_sources))
      order by s.id),
    array(select b.type_id from pgfresh.breaker as b where b.type_id is not null and b.opened_at is not null)
  into v_idle, v_due, v_stopped, v_free, v_limited, v_left_alone;
  if p_client is not null then
    perform pgfresh.require_worker_name('the name of a worker', p_client);
  end if;
  if p_worker is not null and v_idle is null then
    perform pgfresh.refuse('PGF_LEASE_LOST',
      format('worker %s has no lease', p_worker),
      'Register again with register_worker and forget what was claimed.');
  end if;
  if v_due then
    perform pgfresh.promote_jobs(v_now);
  end if;
  if v_stopped then
    v_free := '{}';
    v_limited := '{}';
  end if;
  if v_left_alone <> '{}' then
    v_probed := pgfresh.type_probes(v_left_alone, p_types, v_now);
    p_types := array(
      select r.type_id
      from pgfresh.data_type_registry as r
      where (p_types is null or r.type_id = any (p_types))
        and (r.type_id <> all (v_left_alone) or r.type_id = any (v_probed)));
  end if;

  if v_free <> '{}' then
    if v_floors = 0 then
      -- A loose scan of the ready index: one probe for each lane that exists, and one for a data type not asked for.
      with recursive found as (
        (
          select j.type_id, j.lane, j.seq, j.run_at
          from pgfresh.job as j
          where j.state = 'r'
          order by j.type_id, j.lane, j.seq
          limit 1
        )
        union all
        select j.*
        from found as f
        cross join lateral (
          select j.type_id, j.lane, j.seq, j.run_at
          from pgfresh.job as j
          where j.state = 'r' and (j.type_id, j.lane)
            > (f.type_id, case when p_types is null or f.type_id = any (p_types) then f.lane else 127 end)
          order by j.type_id, j.lane, j.seq
          limit 1
        ) as j
      )
      select array_agg(f.type_id), array_agg(f.lane), array_agg(f.seq),
        array_agg(case when f.lane & 31 < 20 then f.run_at end)
      into v_ready, v_lanes, v_starts, v_since
      from found as f
      where p_types is null or f.type_id = any (p_types);
    else
      select array_agg(l.type_id), array_agg(l.lane), array_agg(l.seq),
        array_agg(case when l.lane & 31 < 20 then l.since end)
      into v_ready, v_lanes, v_starts, v_since
      from pgfresh.ready_lanes(
        array(
          select r.type_id
          from pgfresh.data_type_registry as r
          where r.source_id = any (v_free) and (p_types is null or r.type_id = any (p_types))),
        p_floor_types, p_floor_lanes, p_floor_ids) as l;
    end if;
    select array_agg(r.type_id), array_agg(r.source_id), array_agg(r.definition)
    into v_types, v_sources_of, v_definitions
    from pgfresh.data_type_registry as r
    where r.type_id = any (v_ready) and r.source_id = any (v_free);
    if (v_ready <@ v_types) is not true then
      select array_agg(l.type_id), array_agg(l.lane), array_agg(l.seq), array_agg(l.since)
      into v_ready, v_lanes, v_starts, v_since
      from unnest(v_ready, v_lanes, v_starts, v_since) as l(type_id, lane, seq, since)
      where l.type_id = any (v_types);
    end if;
    v_count := cardinality(v_ready);
    -- Of one lane, no one has a share.
    v_shares := v_count > 1 and (v_now - interval '10 seconds' > any (v_since)) is true;
    if v_ready[1] = v_ready[v_count] and v_lanes[1] & 96 = v_lanes[v_count] & 96 and not v_shares and v_floors = 0 then
      -- Lanes of one data type that differ in their band only: the order of the index is the order of the claim.
      v_ids := array(
        select j.id
        from pgfresh.job as j
        where j.state = 'r' and j.type_id = v_ready[1] and (j.lane, j.seq) >= (v_lanes[1], v_starts[1])
          and (p_max_bytes is null or j.est_bytes <= p_max_bytes)
        order by j.lane, j.seq
        limit p_limit for update skip locked);
    elsif v_lanes[1] = all (v_lanes) and not v_shares then
      v_ids := pgfresh.lock_ready(v_ready, v_lanes, v_starts, p_limit, p_max_bytes, '{}');
    elsif v_count > 0 then
      select picked.ids, picked.shared
      into v_ids, v_shared
      from pgfresh.pick_free(p_limit, v_ready, v_lanes, v_starts, v_shares, p_max_bytes) as picked;
    end if;
  end if;
  if v_limited <> '{}' then
    select v_types || array_agg(r.type_id), v_sources_of || array_agg(r.source_id),
      v_definitions || array_agg(r.definition)
    into v_types, v_sources_of, v_definitions
    from pgfresh.data_type_registry as r
    where r.source_id = any (v_limited) and (p_types is null or r.type_id = any (p_types));
    -- What was picked from each is put in one order; what is too much is let go when this transaction ends.
    v_known := (select s.api_keys from pgfresh.worker_service as s where s.worker = p_worker);
    with picked as (
      select j.id, v_sources_of[array_position(v_types, j.type_id)] as source_id,
        -- Those that have a share come first.
        case
          when p.place <= v_shared then (20 - (select min(l.lane & 31) from unnest(v_lanes) as l(lane)))::smallint
          else j.band
        end as band,
        case when p.place <= v_shared then 0 else j.seq end as seq, 0::bigint as bytes, p.place
      from unnest(v_ids) with ordinality as p(id, place)
      join pgfresh.job as j on j.id = p.id
      union all
      select picked.*
      from (
        select r.source_id as id, array_agg(r.type_id) as types
        from pgfresh.data_type_registry as r
        where r.source_id = any (v_limited) and (p_types is null or r.type_id = any (p_types))
        group by r.source_id
        order by r.source_id
      ) as s
      cross join lateral pgfresh.pick_limited(s.id, p_limit, s.types, p_max_bytes, v_known) with ordinality as picked
    ), chosen as (
      select * from picked order by band desc, seq, place limit p_limit
    )
    select coalesce(array_agg(c.id order by c.band desc, c.seq, c.place), '{}'),
      coalesce(array_agg(c.source_id order by c.band desc, c.seq, c.place), '{}'),
      coalesce(array_agg(c.bytes order by c.band desc, c.seq, c.place), '{}')
    into v_ids, v_sources, v_bytes
    from chosen as c;
    if v_probed <> '{}' then
      select coalesce(array_agg(c.id order by c.place), '{}'), coalesce(array_agg(c.source_id order by c.place), '{}'),
        coalesce(array_agg(c.bytes order by c.place), '{}')
      into v_ids, v_sources, v_bytes
      from unnest(v_ids, v_sources, v_bytes) with ordinality as c(id, source_id, bytes, place)
      where c.id = any (pgfresh.one_of_each(v_ids, v_probed));
    end if;
    foreach v_source in array v_limited loop
      continue when not v_source = any (v_sources);
      select array_agg(t.id) as ids, array_agg(t.api_key) as api_keys, array_agg(t.reserved) as reserved
      into v_taken
      from (
        select array_agg(c.id order by c.place) as ids, array_agg(c.bytes order by c.place) as bytes
        from unnest(v_ids, v_sources, v_bytes) with ordinality as c(id, source_id, bytes, place)
        where c.source_id = v_source
      ) as c
      cross join lateral pgfresh.take_limits(v_source, c.ids, c.bytes, v_known, v_now) as t;
      select coalesce(array_agg(c.id), '{}'), coalesce(array_agg(c.source_id), '{}'), coalesce(array_agg(c.bytes), '{}')
      into v_ids, v_sources, v_bytes
      from unnest(v_ids, v_sources, v_bytes) as c(id, source_id, bytes)
      -- A join and no comparison with each: that would be quadratic.
      left join unnest(v_taken.ids) as t(id) on t.id = c.id
      where c.source_id <> v_source or t.id is not null;
      v_called := v_called || v_taken.ids;
      v_api_keys := v_api_keys || v_taken.api_keys;
      v_reserved := v_reserved || v_taken.reserved;
    end loop;
    -- What each takes with it, in the order of their ids, by which the update below looks it up.
    select coalesce(array_agg(c.id order by c.id), '{}'), array_agg(t.api_key order by c.id),
      array_agg(coalesce(t.reserved, 0) order by c.id)
    into v_ids, v_api_keys, v_reserved
    from unnest(v_ids) as c(id)
    left join unnest(v_called, v_api_keys, v_reserved) as t(id, api_key, reserved) on t.id = c.id;
    v_use_by := pgfresh.use_by_of(v_now);
    v_rated := array(
      select s.id from pgfresh.sources as s where s.id = any (v_limited) and s.rate_limit_per_minute is not null);
  end if;
  if v_probed <> '{}' then
    if v_limited = '{}' then
      v_ids := pgfresh.one_of_each(v_ids, v_probed);
    end if;
    -- Only those of which there is a job to try with: the others may still be tried, and planned for.
    update pgfresh.breaker as b
    set paused_until = v_now + interval '1 minute'
    where b.type_id = any (v_probed) and b.type_id in (select j.type_id from pgfresh.job as j where j.id = any (v_ids));
  end if;

  -- Who got less than it asked for will soon wait for more, and wants to be woken.
  if v_idle <> (cardinality(v_ids) < p_limit) then
    update pgfresh.worker as w set idle = not v_idle where w.id = p_worker;
  end if;
  if v_ids = '{}' then
    return;
  end if;
  -- A claim that a crash of the database forgets has cost nothing where nothing is metered.
  -- The job is ready again, and who had it is fenced off: his claim has another name.
  if p_alone and (v_sources && v_limited) is not true then
    perform set_config('synchronous_commit', 'off', true);
  end if;
  if p_worker is null then
    v_holder := pgfresh.client_number(p_client);
  end if;
  return query
    with named as (
      insert into pgfresh.claim (request, worker, claimed_at, job_ids)
      values (p_request, p_worker, v_now, v_ids)
      on conflict do nothing
      returning true as new
    )
    update pgfresh.job as j
    set state = 'x', worker = v_holder, request = p_request, claimed_at = v_now, progress_at = v_now,
      attempt = j.attempt + 1,
      -- That by whose limits it was picked, whatever its data type's source was when it was enqueued.
      source_id = v_sources_of[array_position(v_types, j.type_id)],
      reserved = coalesce(v_reserved[width_bucket(j.id, v_ids)], 0),
      definition = v_definitions[array_position(v_types, j.type_id)],
      api_key = v_api_keys[width_bucket(j.id, v_ids)]
    where j.id = any (v_ids) and (select named.new from named)
    returning j.id, j.attempt, j.type_id, j.key, j.source_id, j.band, j.lane, j.priority,
      -- What was not known is what is reserved for it.
      coalesce(nullif(j.est_bytes, 0), j.reserved), j.retries::int, j.metadata,
      case when j.source_id = any (v_rated) then v_use_by end,
      j.api_key, j.definition;
  if not found then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      format('p_request %s has named a claim before', p_request),
      'Pass a uuid of your own making, a new one for each claim.');
  end if;
end
$$;
comment on function pgfresh.claim_jobs(
  bigint, uuid, int, int[], int[], bigint, int[], smallint[], bigint[], boolean, text) is
  'Claims up to p_limit ready jobs for a registered worker, best band first, '
  'and only what all limits of their sources allow. '
  'p_request is a uuid made by the caller: it names the claim in heartbeat_worker. '
  'The floors are a hint: per data type and lane, the first id worth looking at. '
  'p_alone says that the transaction is this call alone; '
  'then a claim of sources without limits does not wait for the disk, '
  'and its jobs must be ended with p_request as a part of their token. '
  'p_client is the name of a client that has no number and no lease: p_worker is null then.';

create or replace function pgfresh.promote_jobs(p_now timestamptz) returns int
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_count int;
begin
  -- It has waited since now, so it stands behind those that were ready before.
  update pgfresh.job
  set state = 'r', seq = nextval('pgfresh.job_id')
  where id = any (array(
    select id from pgfresh.job where state = 'w' and run_at <= p_now order by run_at limit 500 for update skip locked));
  get diagnostics v_count = row_count;
  return v_count;
end
$$;
comment on function pgfresh.promote_jobs(timestamptz) is
  'Makes jobs ready whose time has come, at most 500 a call. Every claim does it.';

create or replace function pgfresh.get_queue_batch(
  p_batch_size int default 50, p_sources text[] default null, p_data_types text[] default null,
  p_max_bytes bigint default null, p_worker text default null)
returns jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_sources int[];
  v_types int[];
begin
  perform pgfresh.require_range('p_batch_size', p_batch_size, 1, 10000);
  if p_sources is not null then
    select coalesce(array_agg((pgfresh.require_source(name)).id), '{}')
    into v_sources
    from unnest(p_sources) as name;
  end if;
  if p_data_types is not null then
    select coalesce(array_agg((pgfresh.require_type(name)).type_id), '{}')
    into v_types
    from unnest(p_data_types) as name;
  end if;
  return (
    select coalesce(
      jsonb_agg(
        jsonb_build_object(
          'id', c.id, 'attempt', c.attempt, 'key', c.key, 'data_type', r.data_type, 'priority', c.priority,
          'estimated_size', c.est_bytes, 'retry_count', c.retries, 'metadata', c.metadata,
          'use_by', c.use_by, 'api_key', c.api_key)
        order by c.band desc, c.id),
      '[]')
    from pgfresh.claim_jobs(
      null, gen_random_uuid(), p_batch_size, v_sources, v_types, p_max_bytes, p_client => p_worker) as c
    join pgfresh.data_type_registry as r on r.type_id = c.type_id
  );
end
$$;
comment on function pgfresh.get_queue_batch(int, text[], text[], bigint, text) is
  'Claims a batch for a client that speaks only SQL and returns it as a JSON array. '
  'Pass each job''s id and attempt to complete_queue_job or fail_queue_job; '
  'a job that is silent for its maximum (300 s by default) is taken back unless heartbeat_jobs reports progress. '
  'p_worker is the name under which the jobs are shown (locked_by); '
  'without it, the application_name (else the user) and the process id of the connection.';

create or replace function pgfresh.claim_next_pending_job(
  p_worker text default null, p_sources text[] default null, p_data_types text[] default null)
returns jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  perform pgfresh.recover_silent_jobs(10);
  return pgfresh.get_queue_batch(1, p_sources, p_data_types, p_worker => p_worker) -> 0;
end
$$;
comment on function pgfresh.claim_next_pending_job(text, text[], text[]) is
  'Claims one job under a name, after taking back some that have been silent for their maximum. '
  'Returns it as get_queue_batch does, or null.';

insert into pgfresh.migrations (kind, name, hash) values ('functions'::text, 'claim'::text, '58a10779fea223223c0b745d26f5a40afab05322f9b6ff1e1b39a22a10ce6f9a'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- functions clock
-- The one source of time. It is volatile, so a comparison with an indexed column must read it once,
-- as (select pgfresh.clock()), or the index is not used.
create or replace function pgfresh.clock() returns timestamptz
language sql volatile parallel safe
set search_path = pg_catalog, pg_temp
as $$ select pg_catalog.clock_timestamp() $$;

comment on function pgfresh.clock() is
  'The time by the database''s own clock, which decides everything in pgfresh. Only a test database may replace it.';

revoke all on function pgfresh.clock() from public;

insert into pgfresh.migrations (kind, name, hash) values ('functions'::text, 'clock'::text, '33871f17c582ca7fe91f1658a0acaa527c6b26c3a500b22b5a51d4d67c33dd3b'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- functions cron
/*
  Whether a cron expression can be read, and ever comes. When it comes is said by TypeScript alone: here the zones of
  the server would decide, and "at time zone" takes the second of two hours of one name. A test compares the two
  readers.
*/
create or replace function pgfresh.read_cron_value(p_field text, p_text text, out value int, out problem text)
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_low int := case when p_field in ('day of month', 'month') then 1 else 0 end;
  v_high int := case p_field
    when 'minute' then 59
    when 'hour' then 23
    when 'day of month' then 31
    when 'month' then 12
    else 7
  end;
  v_names text[] := case p_field
    when 'month' then '{JAN,FEB,MAR,APR,MAY,JUN,JUL,AUG,SEP,OCT,NOV,DEC}'
    when 'day of week' then '{SUN,MON,TUE,WED,THU,FRI,SAT}'
    else '{}'
  end::text[];
begin
  value := case
    when p_text ~ '^[0-9]{1,4}$' then p_text::int
    else array_position(v_names, upper(p_text collate "C")) - 1 + v_low
  end;
  if value is null or value < v_low or value > v_high then
    value := null;
    problem := format('%s %s: expected %s to %s%s, or *', p_field, quote_literal(left(p_text, 40)), v_low, v_high,
      case when v_names <> '{}' then format(' or %s to %s', v_names[1], v_names[cardinality(v_names)]) else '' end);
  end if;
end
$$;
comment on function pgfresh.read_cron_value(text, text) is
  'The number that a word of a cron field stands for, or what is wrong with it.';

create or replace function pgfresh.read_cron_field(p_field text, p_text text, out list int[], out problem text)
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_weekday boolean := p_field = 'day of week';
  v_low int := case when p_field in ('day of month', 'month') then 1 else 0 end;
  v_last int := case p_field
    when 'minute' then 59
    when 'hour' then 23
    when 'day of month' then 31
    when 'month' then 12
    else 6
  end;
  v_term text;
  v_step text[];
  v_range text[];
  v_from int;
  v_to int;
begin
  list := '{}';
  foreach v_term in array string_to_array(p_text, ',') loop
    v_step := string_to_array(v_term, '/');
    v_range := string_to_array(v_step[1], '-');
    if cardinality(v_step) > 2 or cardinality(v_range) > 2 then
      problem := format('%s %s: expected one range and one step, such as %s-%s/2',
        p_field, quote_literal(left(v_term, 40)), v_low, v_last);
    elsif cardinality(v_step) = 2
        and not (v_step[2] ~ '^[0-9]{1,4}$' and v_step[2]::int between 1 and v_last - v_low + 1) then
      problem := format('%s %s: expected a step from 1 to %s',
        p_field, quote_literal(left(v_term, 40)), v_last - v_low + 1);
    elsif v_step[1] in ('*', '?') then
      v_from := v_low;
      v_to := v_last;
    else
      select r.value, r.problem
      into v_from, problem
      from pgfresh.read_cron_value(p_field, coalesce(v_range[1], '')) as r;
      v_to := case when cardinality(v_step) = 2 then greatest(v_from, v_last) else v_from end;
      if problem is null and cardinality(v_range) = 2 then
        select r.value, r.problem into v_to, problem from pgfresh.read_cron_value(p_field, v_range[2]) as r;
        -- Sunday has two numbers, and a range takes the one that fits.
        if v_weekday and v_from > v_to and v_to = 0 then
          v_to := 7;
        elsif v_weekday and v_from > v_to and v_from = 7 then
          v_from := 0;
        elsif v_from > v_to then
          problem := format('%s %s: expected a range that goes up', p_field, quote_literal(left(v_term, 40)));
        end if;
      end if;
    end if;
    if problem is not null then
      list := null;
      return;
    end if;
    list := list || array(
      select case when v_weekday then n % 7 else n end
      from generate_series(v_from, v_to, coalesce(v_step[2], '1')::int) as n
    );
  end loop;
  if cardinality(list) = 0 then
    list := null;
    problem := format('%s is empty', p_field);
  end if;
end
$$;
comment on function pgfresh.read_cron_field(text, text) is
  'The numbers that a field of a cron expression means, or what is wrong with it.';

create or replace function pgfresh.cron_problem(p_schedule text) returns text
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  -- What TypeScript takes for white space, whatever the server's locale does.
  v_space constant text := E'[\t\n\u000b\f\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff]';
  v_text text;
  v_words constant jsonb :=
    '{"@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0", '
    '"@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *"}';
  v_fields text[];
  v_problem text;
  v_months int[];
  v_days int[] := '{}';
  v_weekdays int[] := '{}';
  v_special text[];
  v_plain text;
  v_first date;
begin
  -- The simple ones, which most are, at once: each field is a number or a star, and no day is one that only some months
  -- have.
  if p_schedule ~ '^(\*(/([1-9]|[1-5][0-9]))?|[1-5]?[0-9]) (\*(/([1-9]|1[0-9]|2[0-4]))?|1?[0-9]|2[0-3]) '
      '(\*|[1-9]|1[0-9]|2[0-8]) (\*|[1-9]|1[0-2]) (\*|[0-7])$' then
    return null;
  end if;
  if p_schedule is null or length(p_schedule) > 500 then
    return format('expected at most 500 characters, got %s', coalesce(length(p_schedule)::text, 'null'));
  end if;
  v_text := regexp_replace(p_schedule, '^' || v_space || '+|' || v_space || '+$', '', 'g');
  if v_text like '@%' then
    v_text := v_words ->> lower(v_text collate "C");
    if v_text is null then
      return case
        when lower(p_schedule) like '%@reboot%' then 'a schedule has times, and @reboot has none'
        else format('there is no word %s; '
          'expected one of @yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly',
          quote_literal(left(p_schedule, 40)))
      end;
    end if;
  end if;
  v_fields := case when v_text = '' then '{}'::text[] else regexp_split_to_array(v_text, v_space || '+') end;
  if cardinality(v_fields) <> 5 then
    return format('expected five fields, got %s%s', cardinality(v_fields),
      case
        when cardinality(v_fields) = 6 then
          format('; seconds and years are not kept: did you mean %s?',
            quote_literal(left(array_to_string(v_fields[2:], ' '), 60)))
        else ''
      end);
  end if;
  v_problem := coalesce(
    (pgfresh.read_cron_field('minute', v_fields[1])).problem, (pgfresh.read_cron_field('hour', v_fields[2])).problem);
  if v_problem is not null then
    return v_problem;
  end if;
  -- L is the last day of the month. Of weekdays, 2#1 is the first Tuesday and 2#L the last one.
  v_plain := array_to_string(
    array(select t from unnest(string_to_array(v_fields[3], ',')) as t where upper(t collate "C") <> 'L'), ',');
  if v_plain <> '' or v_fields[3] !~* '^L(,L)*$' then
    select f.list, f.problem
    into v_days, v_problem
    from pgfresh.read_cron_field('day of month', case when v_plain = '' then v_fields[3] else v_plain end) as f;
  end if;
  if v_problem is null then
    select f.list, f.problem into v_months, v_problem from pgfresh.read_cron_field('month', v_fields[4]) as f;
  end if;
  v_special := array(
    select upper(t collate "C") from unnest(string_to_array(v_fields[5], ',')) as t where t like '%#%');
  v_plain := array_to_string(
    array(select t from unnest(string_to_array(v_fields[5], ',')) as t where t not like '%#%'), ',');
  if v_problem is null and (v_plain <> '' or cardinality(v_special) = 0 or v_fields[5] ~ '^,|,,|,$') then
    select f.list, f.problem
    into v_weekdays, v_problem
    from pgfresh.read_cron_field(
      'day of week', case when v_fields[5] ~ '^,|,,|,$' then v_fields[5] else v_plain end) as f;
  end if;
  v_problem := coalesce(v_problem, (
    select coalesce(
      case
        when t !~ '^[^#]*#[1-5L]$' then
          format('day of week %s: expected a day, # and 1 to 5 or L, such as MON#1', quote_literal(left(t, 40)))
      end,
      (pgfresh.read_cron_value('day of week', split_part(t, '#', 1))).problem) as problem
    from unnest(v_special) as t
    order by 1
    limit 1
  ));
  if v_problem is not null then
    return v_problem;
  end if;
  v_special := array(
    select (pgfresh.read_cron_value('day of week', split_part(t, '#', 1))).value % 7 || split_part(t, '#', 2)
    from unnest(v_special) as t
  );
  -- Most expressions come every year, because each month has 28 days and each weekday four times. Of the others, the
  -- days of eight years are looked at.
  if v_fields[3] in ('*', '?') and v_fields[5] in ('*', '?')
      or v_fields[3] not in ('*', '?') and (28 >= any (v_days) or v_fields[3] ~* '(^|,)L(,|$)')
      or v_fields[5] not in ('*', '?')
      and (cardinality(v_weekdays) > 0 or exists (select from unnest(v_special) as t where t !~ '5$')) then
    return null;
  end if;
  v_first := (pgfresh.clock() at time zone 'UTC')::date;
  if exists (
    select from generate_series(v_first, v_first + interval '8 years', interval '1 day') as d(at),
      lateral (
        select extract(day from at)::int as day, extract(dow from at)::int as weekday,
          extract(month from at)::int as month,
          extract(month from at + interval '1 day') <> extract(month from at) as last_day,
          extract(month from at + interval '7 days') <> extract(month from at) as last_week
      ) as p
    where p.month = any (v_months) and (
      v_fields[3] not in ('*', '?') and (p.day = any (v_days) or (p.last_day and v_fields[3] ~* '(^|,)L(,|$)'))
      or v_fields[5] not in ('*', '?') and (
        p.weekday = any (v_weekdays)
        or p.weekday || ((p.day + 6) / 7)::text = any (v_special)
        or (p.last_week and p.weekday || 'L' = any (v_special))
      )
    )
  ) then
    return null;
  end if;
  return 'it has no occurrence within 8 years';
end
$$;
comment on function pgfresh.cron_problem(text) is
  'Why a text cannot be the schedule of a job, or null if it can: '
  'five fields of cron, or a word such as @daily, that comes within eight years.';

create or replace function pgfresh.is_time_zone(p_name text) returns boolean
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  if p_name = 'UTC' then
    return true;
  end if;
  if p_name is null or p_name !~ '^[A-Za-z][A-Za-z0-9_+/-]{0,99}$'
      or p_name ~* '^(posix|right)/|^(localtime|posixrules|factory)$' then
    return false;
  end if;
  /*
    The list of all zones reads hundreds of files, and "at time zone" takes what the list has not: offsets such as
    Any/Thing5, which have a digit, and abbreviations such as PST, which have no slash. So only names like these are
    looked for in the list.
  */
  if p_name ~ '[0-9]' or p_name !~ '/' then
    return exists (select from pg_timezone_names where lower(name) = lower(p_name));
  end if;
  perform now() at time zone p_name;
  return true;
exception when invalid_parameter_value then
  return false;
end
$$;
comment on function pgfresh.is_time_zone(text) is
  'Whether the server knows a time zone of this name of the IANA database.';

insert into pgfresh.migrations (kind, name, hash) values ('functions'::text, 'cron'::text, '96a888e6179ceda74de42c6a7f6fdffc965082e44567d4b648887d9ae3b427cf'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- functions cycles
create or replace function pgfresh.open_refresh_cycle(p_data_type text, p_slot timestamptz) returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_type pgfresh.data_type_registry := pgfresh.require_type(p_data_type);
  v_now timestamptz := pgfresh.clock();
  v_stands_at text;
begin
  perform pgfresh.require_primary();
  if v_type.refresh_strategy <> 'scheduled' then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      format('%s is refreshed on demand, not by a schedule', p_data_type),
      'Set its refresh_strategy, refresh_schedule and key_table.');
  end if;
  if p_slot is null or not isfinite(p_slot) then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      format('p_slot must be a time, got %s', coalesce(p_slot::text, 'null')),
      'Pass the time of the schedule that has come.');
  end if;
  if exists (select from pgfresh.refresh_cycle where type_id = v_type.type_id and slot = p_slot) then
    return false;
  end if;
  -- Rounds of a source that is away must not pile up: each would ask for every key again when it comes back.
  update pgfresh.refresh_cycle
  set done_at = v_now, next_slot = p_slot
  where type_id = v_type.type_id and done_at is null
  returning case when not walked then cursor_key end into v_stands_at;
  insert into pgfresh.refresh_cycle (type_id, slot, opened_at, cursor_key, last_key, wraps)
  values (v_type.type_id, p_slot, v_now, v_stands_at, v_stands_at, v_stands_at is not null)
  on conflict do nothing;
  return found;
end
$$;
comment on function pgfresh.open_refresh_cycle(text, timestamptz) is
  'Opens a round over all keys of a scheduled data type, one for each slot. '
  'A round that is still open is taken over: the new one goes on where it stood, once around. '
  'Returns whether it is new.';

/*
  One key that is no key of the type, or a pair that somebody has locked, costs only itself: the others are queued, and
  the caller learns which pairs to ask for again. A key without an answer was being added by somebody else.
*/
create or replace function pgfresh.queue_cycle_keys(
  p_type pgfresh.data_type_registry, p_again text[], p_keys text[], out queued int, out busy text[], out refused int)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_good text[] := array(
    select j.key
    from pgfresh.judge_keys(p_type, p_keys, true) as j
    where j.code is null and j.key = p_keys[j.place]
    order by j.place);
  v_answered text[];
begin
  if p_again <> '{}' then
    v_good := v_good || array(
      select j.key
      from pgfresh.judge_keys(p_type, p_again) as j
      where j.code is null and j.key = p_again[j.place]
      order by j.place);
  end if;
  refused := cardinality(p_again || p_keys) - cardinality(v_good);
  -- Nobody waits for it: -1, whatever the registry says.
  select count(*) filter (where q.result = 'queued'), coalesce(array_agg(q.key) filter (where q.result <> 'busy'), '{}')
  into queued, v_answered
  from pgfresh.queue_refreshes(p_type.data_type, v_good, -1) as q;
  busy := array(select k from unnest(v_good) as k except select k from unnest(v_answered) as k);
end
$$;
comment on function pgfresh.queue_cycle_keys(pgfresh.data_type_registry, text[], text[]) is
  'Queues scheduled refreshes of those keys that the data type can have, of some that were busy and of some that were '
  'just read from its key table: how many were queued, which pairs were locked, and how many keys were none. '
  'A part of queue_scheduled_refreshes.';

create or replace function pgfresh.queue_scheduled_refreshes(
  p_max_depth int default 1000, p_data_types text[] default null)
returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  -- The walk waits while more pairs than these are locked.
  c_most_busy constant int := 10000;
  v_began timestamptz := clock_timestamp();
  v_now timestamptz := pgfresh.clock();
  v_types int[];
  v_cycle record;
  -- Keys that this call may still walk over, and data types that have yet to get their part of them.
  v_left int := p_max_depth;
  v_to_come int;
  v_turn int;
  -- Of its turn: keys to walk over, and busy ones to ask for again.
  v_steps int;
  v_repeats int;
  v_keys text[];
  v_again text[];
  v_at_end boolean;
  v_walked boolean;
  v_done boolean;
  v_result record;
  v_busy text[];
  v_counts jsonb := jsonb_build_object(
    'queued', 0, 'merged', 0, 'busy', 0, 'skipped', 0, 'failed', 0, 'finished', 0);
begin
  perform pgfresh.require_primary();
  perform pgfresh.require_range('p_max_depth', p_max_depth, 1, 1000);
  if not pg_try_advisory_xact_lock(7041, 3) then
    return jsonb_build_object('skipped', 'locked');
  end if;
  -- In a random order: where not every type fits into one call, each is as likely to have its turn.
  v_types := array(
    select c.type_id
    from pgfresh.refresh_cycle as c
    where c.done_at is null and (p_data_types is null
      or c.type_id in (select r.type_id from pgfresh.data_type_registry as r where r.data_type = any (p_data_types)))
    order by random()
    limit 100);
  if cardinality(v_types) = 0 then
    return v_counts;
  end if;
  perform pgfresh.limit_lock_waits();
  for v_cycle in
    select open.*, count(*) filter (where obstacle is null and room > 0) over () as types
    from (
      select t.place, c.type_id, c.slot, c.cursor_key, c.last_key, c.wraps, c.opened_at, c.busy_keys,
        c.walked, r as registered, res.keys_sql,
        o.reason as obstacle,
        -- The depth is per source, and each of its types has a part of it that no other type can fill.
        ceil(p_max_depth::float8
          / greatest(count(*) filter (where o.reason is null) over (partition by r.source_id), 1))::int - (
          select count(*)
          from (
            select from pgfresh.job as j
            where j.source_id = r.source_id and j.type_id = c.type_id and j.band = -1 and j.state <> 'x'
            limit p_max_depth
          ) as waiting
        ) as room
      from unnest(v_types) with ordinality as t(type_id, place)
      join pgfresh.refresh_cycle as c on c.type_id = t.type_id and c.done_at is null
      -- A type may have lost its schedule meanwhile.
      join pgfresh.data_type_registry as r on r.type_id = c.type_id and r.refresh_strategy = 'scheduled'
      join pgfresh.type_resolution as res on res.type_id = c.type_id
      left join pgfresh.planning_obstacles(v_types, v_now) as o on o.type_id = c.type_id
    ) as open
    order by open.place
  loop
    if v_cycle.obstacle is not null then
      v_counts := pgfresh.add_counts(v_counts, jsonb_build_object('skipped', 1, 'skipped_' || v_cycle.obstacle, 1));
      continue;
    end if;
    continue when v_cycle.room <= 0;
    v_to_come := coalesce(v_to_come, v_cycle.types);
    v_turn := least(v_cycle.room, ceil(v_left / v_to_come::float8));
    v_to_come := v_to_come - 1;
    continue when v_turn <= 0;
    -- Busy ones at most in half of the turn, as long as others have not had theirs.
    v_repeats := least(cardinality(v_cycle.busy_keys), case when v_cycle.walked then v_turn else v_turn / 2 end);
    v_steps := case
      when v_cycle.walked or cardinality(v_cycle.busy_keys) >= c_most_busy then 0
      else v_turn - v_repeats
    end;
    begin
      v_keys := '{}';
      v_at_end := v_cycle.walked;
      if v_steps > 0 then
        v_keys := array(select k from pgfresh.ask_next_keys(v_cycle.keys_sql, v_cycle.cursor_key, v_steps) as k);
        v_at_end := cardinality(v_keys) < v_steps;
      end if;
      v_walked := v_at_end and not v_cycle.wraps;
      v_left := v_left - cardinality(v_keys) - v_repeats;
      if not v_cycle.wraps and v_cycle.last_key = any (v_keys) then
        v_keys := v_keys[:array_position(v_keys, v_cycle.last_key)];
        v_walked := true;
      end if;
      -- Whoever had the pair locked may have refreshed it.
      v_again := array(
        select k
        from unnest(v_cycle.busy_keys[:v_repeats]) as k
        where not exists (
          select from pgfresh.pairs as p
          where p.type_id = v_cycle.type_id and p.key = k collate "C" and p.ok_at >= v_cycle.opened_at));
      v_result := pgfresh.queue_cycle_keys(v_cycle.registered, v_again, v_keys);
    exception
    when lock_not_available then
      perform pgfresh.note_type_timeout(v_cycle.type_id, 'keys', sqlerrm);
      v_counts := pgfresh.add_counts(v_counts, jsonb_build_object('failed', 1));
      continue;
    when others then
      perform pgfresh.warn('keys_raised', (v_cycle.registered).data_type, sqlerrm,
        'Correct key_table and its columns.');
      v_counts := pgfresh.add_counts(v_counts, jsonb_build_object('failed', 1));
      continue;
    end;
    if v_result.refused > 0 then
      perform pgfresh.warn('keys_raised', (v_cycle.registered).data_type,
        'key_table has keys that the data type cannot have, or that are not written as it writes them',
        'Correct them; the others had their turn.', v_result.refused);
    end if;
    v_busy := v_cycle.busy_keys[v_repeats + 1:] || v_result.busy;
    v_done := v_walked and v_busy = '{}';
    v_counts := pgfresh.add_counts(v_counts, jsonb_build_object(
      'queued', v_result.queued, 'busy', cardinality(v_busy),
      'merged', cardinality(v_again || v_keys) - v_result.queued - v_result.refused - cardinality(v_result.busy),
      'failed', v_result.refused, 'finished', v_done::int
    ));
    update pgfresh.refresh_cycle
    set cursor_key = case when not v_at_end or v_walked then coalesce(v_keys[cardinality(v_keys)], cursor_key) end,
      wraps = wraps and not v_at_end, queued = queued + v_result.queued, busy_keys = v_busy, walked = v_walked,
      done_at = case when v_done then v_now end
    where type_id = v_cycle.type_id and slot = v_cycle.slot and done_at is null;
  end loop;
  delete from pgfresh.refresh_cycle where done_at < v_now - interval '30 days';
  if (v_counts ->> 'queued')::int > 0 then
    perform pgfresh.record_run('schedule', date_trunc('minute', v_now),
      1000 * extract(epoch from clock_timestamp() - v_began), v_counts);
  end if;
  return v_counts;
end
$$;
comment on function pgfresh.queue_scheduled_refreshes(int, text[]) is
  'Walks on through the open cycles of scheduled data types, at most p_max_depth keys a call, in turns, '
  'as long as fewer than p_max_depth (at most 1000) scheduled jobs of a source wait, which its data types share. '
  'Always with priority -1. Keys that the data type cannot have are skipped with a warning, '
  'and pairs that are locked are asked for again within the round. Returns counts.';

insert into pgfresh.migrations (kind, name, hash) values ('functions'::text, 'cycles'::text, '8c2ac7ee36f3de531a3c740d01fd9e852b54029431e027e179751b6baeb64c59'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- functions demand
/*
  Who looks at what. Subscriptions of SQL clients and the counts of gateway nodes are the truth; every change of them is
  appended to demand_change in the same transaction, and the planner adds those up in pairs.viewers. So the viewers of
  one pair never wait for each other nor for anybody who has locked the pair, and what the planner does follows what has
  changed.
*/
create or replace function pgfresh.note_demand() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if tg_table_name = 'node_demand' then
    if tg_op = 'INSERT' then
      insert into pgfresh.demand_change (type_id, key, delta) select type_id, key, viewers from fresh;
    elsif tg_op = 'UPDATE' then
      -- No join: its plan is kept from the first time, mostly of no rows at all, and is quadratic.
      insert into pgfresh.demand_change (type_id, key, delta)
      select c.type_id, c.key, sum(c.viewers)
      from (
        select type_id, key, viewers from fresh
        union all
        select type_id, key, -viewers from gone
      ) as c
      group by c.type_id, c.key
      having sum(c.viewers) <> 0;
    else
      insert into pgfresh.demand_change (type_id, key, delta) select type_id, key, -viewers from gone;
    end if;
  elsif tg_op = 'INSERT' then
    insert into pgfresh.demand_change (type_id, key, delta)
    select type_id, key, count(*) from fresh group by type_id, key;
  else
    insert into pgfresh.demand_change (type_id, key, delta)
    select type_id, key, -count(*) from gone group by type_id, key;
  end if;
  return null;
end
$$;
comment on function pgfresh.note_demand() is
  'Trigger of active_subscriptions and node_demand: notes every change for the planner.';

create or replace trigger note_added after insert on pgfresh.active_subscriptions
  referencing new table as fresh
  for each statement execute function pgfresh.note_demand();
create or replace trigger note_removed after delete on pgfresh.active_subscriptions
  referencing old table as gone
  for each statement execute function pgfresh.note_demand();
create or replace trigger note_added after insert on pgfresh.node_demand
  referencing new table as fresh
  for each statement execute function pgfresh.note_demand();
create or replace trigger note_changed after update on pgfresh.node_demand
  referencing new table as fresh old table as gone
  for each statement execute function pgfresh.note_demand();
create or replace trigger note_removed after delete on pgfresh.node_demand
  referencing old table as gone
  for each statement execute function pgfresh.note_demand();

create or replace function pgfresh.require_viewer(p_user_id text) returns text
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_claims text := nullif(current_setting('request.jwt.claims', true), '');
  -- Definer functions do not see who called them, but they see the role that was set, and who logged in.
  v_role text := current_setting('role');
  v_caller name := case when v_role = 'none' then session_user else v_role end;
  v_own text;
begin
  if v_claims is not null then
    begin
      v_own := v_claims::jsonb ->> 'sub';
    exception when data_exception then
      perform pgfresh.refuse('PGF_VIEWER_UNKNOWN', 'request.jwt.claims is not JSON', 'Let the API gateway set it.');
    end;
  end if;
  v_own := coalesce(
    v_own,
    nullif(current_setting('request.jwt.claim.sub', true), ''),
    nullif(current_setting('pgfresh.user_id', true), ''));
  -- Gateways, workers and the owner, who is the current user here, speak for everybody; anybody else for himself.
  if pg_has_role(v_caller, 'pgfresh_gateway', 'member') or pg_has_role(v_caller, 'pgfresh_worker', 'member')
      or pg_has_role(v_caller, current_user, 'member') then
    v_own := coalesce(p_user_id, v_own);
  end if;
  if v_own is null then
    perform pgfresh.refuse('PGF_VIEWER_UNKNOWN',
      'the session does not say who is looking',
      'Log in, so that request.jwt.claims has a sub, or set pgfresh.user_id where the session is trusted.');
  elsif p_user_id is not null and p_user_id <> v_own then
    perform pgfresh.refuse('PGF_VIEWER_OTHER',
      'the session belongs to another user',
      'Leave p_user_id out: it is taken from the session.');
  end if;
  if coalesce(v_own, '') = '' or octet_length(v_own) > 200 or v_own ~ '[[:cntrl:]]' then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      format(
        'p_user_id must have 1 to 200 bytes and no control characters, got %s',
        coalesce(left(quote_literal(v_own), 60), 'null')),
      'Pass the id of the user who looks.');
  end if;
  return v_own;
end
$$;
comment on function pgfresh.require_viewer(text) is
  'The user on whose behalf the session speaks, by its claims or settings; refuses another''s id.';

create or replace function pgfresh.count_call(p_user_id text) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
declare
  v_minute timestamptz := date_trunc('minute', pgfresh.clock());
  v_calls int;
begin
  update pgfresh.viewer_calls as v
  set minute = v_minute, calls = case when v.minute = v_minute then v.calls + 1 else 1 end
  where v.user_id = p_user_id
  returning v.calls into v_calls;
  if not found then
    insert into pgfresh.viewer_calls as v (user_id, minute, calls)
    values (p_user_id, v_minute, 1)
    on conflict (user_id) do update set calls = v.calls + 1;
  end if;
  if v_calls > 1200 then
    perform pgfresh.refuse('PGF_TOO_MANY_CALLS',
      'more than 1200 calls in one minute',
      'One heartbeat a minute and pair is enough.');
  end if;
end
$$;
comment on function pgfresh.count_call(text) is
  'Counts a call of a user and refuses more than 1200 a minute. '
  'A heartbeat that comes 30 s or more after the last one is not counted.';

create or replace function pgfresh.upsert_active_subscription(p_user_id text, p_key text, p_data_type text)
returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
-- Planned once and by the index, also on a table that is empty now.
-- Else each call would plan its one row anew, for longer than it takes to write it.
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
declare
  v_user text := pgfresh.require_viewer(p_user_id);
  v_type pgfresh.data_type_registry;
  v_type_id int;
  v_normalise text;
  v_key text;
  v_now timestamptz := pgfresh.clock();
  v_seen timestamptz;
  v_counts jsonb;
begin
  -- Nearly every call is a heartbeat, which needs two columns of the type and not all of them.
  select type_id, normalise into v_type_id, v_normalise from pgfresh.data_type_registry where data_type = p_data_type;
  if not found then
    perform pgfresh.require_type(p_data_type);
  end if;
  -- A function call costs more than a comparison, so the functions are only called to refuse.
  if pg_is_in_recovery() then
    perform pgfresh.require_primary();
  end if;
  if (p_key <> '' and octet_length(p_key) <= 512 and p_key !~ '[[:cntrl:]]') is not true then
    perform pgfresh.require_key(p_key);
  end if;
  v_key := pgfresh.canonical_key(p_key, v_normalise);
  select last_seen_at
  into v_seen
  from pgfresh.active_subscriptions
  where user_id = v_user and type_id = v_type_id and key = v_key;
  -- A client beats every minute, and its row says so at every second one: a commit costs more than all else here.
  if v_seen <= v_now - interval '75 seconds' then
    update pgfresh.active_subscriptions
    set last_seen_at = v_now
    where user_id = v_user and type_id = v_type_id and key = v_key;
  elsif (v_seen <= v_now - interval '30 seconds') is not true then
    -- A heartbeat that takes its time is not counted: there are 500 subscriptions at most.
    perform pgfresh.count_call(v_user);
  end if;
  if v_seen is not null then
    return jsonb_build_object('result', 'seen', 'data_type', p_data_type, 'key', v_key);
  end if;
  v_type := pgfresh.require_type(p_data_type);
  v_key := (pgfresh.admit_new_keys(v_type, array[v_key]))[1];
  if (
    select count(*)
    from (select from pgfresh.active_subscriptions where user_id = v_user limit 500) as held
  ) = 500 then
    perform pgfresh.refuse('PGF_TOO_MANY_SUBSCRIPTIONS',
      'more than 500 subscriptions of one user',
      'Remove those that are not on the screen any more.');
  end if;
  insert into pgfresh.active_subscriptions (user_id, type_id, key, subscribed_at, last_seen_at)
  values (v_user, v_type.type_id, v_key, v_now, v_now)
  on conflict (user_id, type_id, key) do update set last_seen_at = excluded.last_seen_at;
  -- The first viewer does not wait for the planner. A pair that is locked is left to the planner's next tick. So is one
  -- that has a job: the caller's transaction may stay open, and the end of the job would wait for it.
  perform pgfresh.make_pairs(v_type.type_id, array[v_key]);
  perform from pgfresh.pairs
  where type_id = v_type.type_id and key = v_key and not demanded and job_id is null
  for update skip locked;
  if found then
    update pgfresh.pairs
    set demanded = true, unlisted_at = null, warm_until = v_now + interval '15 seconds', due_at = v_now
    where type_id = v_type.type_id and key = v_key;
    v_counts := pgfresh.plan_new_looks(v_type.type_id, array[v_key], v_now);
  end if;
  return jsonb_build_object('result', 'subscribed', 'data_type', v_type.data_type, 'key', v_key)
    || case when v_counts is null then '{}' else jsonb_build_object('planned', v_counts) end;
end
$$;
comment on function pgfresh.upsert_active_subscription(text, text, text) is
  'Says that a user looks at a pair: adds the subscription and is its heartbeat, at least once in five minutes. '
  'The user is taken from the session; p_user_id may be null. '
  'A pair at which nobody looked before is checked at once. '
  'Returns {"result": "subscribed" or "seen", …}.';

create or replace function pgfresh.keep_former_name() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  insert into pgfresh.former_type_name (data_type, type_id)
  values (old.data_type, new.type_id)
  on conflict (data_type) do update set type_id = excluded.type_id;
  return null;
end
$$;
comment on function pgfresh.keep_former_name() is
  'Trigger of the registry: a viewer who knows a data type by its former name can still leave.';
create or replace trigger keep_former_name after update of data_type on pgfresh.data_type_registry
  for each row when (old.data_type <> new.data_type) execute function pgfresh.keep_former_name();

-- Never refused: what has become of the key, the data type or its name does not matter to someone who leaves.
create or replace function pgfresh.remove_active_subscription(p_user_id text, p_key text, p_data_type text)
returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_user text := pgfresh.require_viewer(p_user_id);
begin
  perform pgfresh.require_primary();
  if p_key is null or p_data_type is null then
    return false;
  end if;
  delete from pgfresh.active_subscriptions as s
  using (
    select r.type_id, pgfresh.canonical_key(p_key, r.normalise) as key
    from pgfresh.data_type_registry as r
    where r.data_type = p_data_type
    union
    -- As it was subscribed, if the data type spells its keys in another way now.
    select r.type_id, p_key from pgfresh.data_type_registry as r where r.data_type = p_data_type
    union
    select f.type_id, k.key
    from pgfresh.former_type_name as f
    join pgfresh.data_type_registry as r on r.type_id = f.type_id
    cross join lateral (values (p_key), (pgfresh.canonical_key(p_key, r.normalise))) as k(key)
    where f.data_type = p_data_type
  ) as left_pair
  where s.user_id = v_user and s.type_id = left_pair.type_id and s.key = left_pair.key;
  if found then
    return true;
  end if;
  -- Only calls without an effect are counted: as many leave as came.
  perform pgfresh.count_call(v_user);
  return false;
end
$$;
comment on function pgfresh.remove_active_subscription(text, text, text) is
  'Says that a user does not look at a pair any more, also if its key or data type is gone or has another name now. '
  'Returns whether the user did.';

-- Five minutes, and the 75 seconds for which a heartbeat may not have been written.
create or replace function pgfresh.longest_silence() returns interval
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$ select interval '375 seconds' $$;
comment on function pgfresh.longest_silence() is
  'How old the last heartbeat that was written may be: nobody is given up before five silent minutes.';

-- A tracker that restarts looks like an empty house.
-- So when all fall silent in one step, they are believed only after a while.
create or replace function pgfresh.is_loss_held(p_now timestamptz) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_held_until timestamptz := (select demand_held_until from pgfresh.planner_state);
begin
  if exists (select from pgfresh.active_subscriptions where last_seen_at >= p_now - pgfresh.longest_silence())
      or exists (
        select from pgfresh.nodes as n
        where n.lease_until > p_now and exists (select from pgfresh.node_demand as d where d.node_id = n.id)
      ) then
    if v_held_until is not null then
      update pgfresh.planner_state set demand_held_until = null;
    end if;
    return false;
  end if;
  if v_held_until is null then
    if (
      select count(*)
      from (
        select distinct type_id, key
        from (
          select type_id, key from pgfresh.active_subscriptions
          union all
          select type_id, key from pgfresh.node_demand
        ) as silent
        limit 10
      ) as pairs
    ) < 10 then
      return false;
    end if;
    v_held_until := p_now + interval '120 seconds';
    update pgfresh.planner_state set demand_held_until = v_held_until;
    perform pgfresh.warn('demand_lost', 'all',
      'everybody stopped looking at once; their pairs are kept fresh for 120 s more',
      'See whether the gateways or the clients'' network had a failure.');
  end if;
  return p_now < v_held_until;
end
$$;
comment on function pgfresh.is_loss_held(timestamptz) is
  'Whether all demand (10 pairs or more) has just fallen silent at once, which is believed only after 120 s.';

create or replace function pgfresh.cleanup_stale_subscriptions() returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := pgfresh.clock();
  v_removed int := 0;
  v_nodes int := 0;
begin
  perform pgfresh.require_primary();
  if not pg_try_advisory_xact_lock(7041, 2) then
    return jsonb_build_object('skipped', 'locked');
  end if;
  if exists (select from pgfresh.active_subscriptions where last_seen_at < v_now - pgfresh.longest_silence())
      or exists (select from pgfresh.nodes where lease_until <= v_now) then
    if pgfresh.is_loss_held(v_now) then
      return jsonb_build_object('skipped', 'held');
    end if;
    delete from pgfresh.active_subscriptions where last_seen_at < v_now - pgfresh.longest_silence();
    get diagnostics v_removed = row_count;
    v_nodes := pgfresh.expire_nodes(v_now);
  end if;
  -- Nothing silent is left: a loss that was held is over, and the next one is another.
  update pgfresh.planner_state set demand_held_until = null where demand_held_until is not null;
  delete from pgfresh.viewer_calls where minute < v_now - interval '10 minutes';
  perform pgfresh.review_open_jobs(v_now);
  return jsonb_build_object('removed', v_removed, 'nodes', v_nodes);
end
$$;
comment on function pgfresh.cleanup_stale_subscriptions() is
  'Removes subscriptions that have been silent for more than five minutes, at the latest after six and a quarter, '
  'and nodes whose lease has ended; cancels waiting jobs of keys that are gone. Run it every minute. '
  'Returns {"removed", "nodes"} or {"skipped"}.';

create or replace function pgfresh.get_active_subscriptions()
returns table (data_type text, key text, viewers bigint, adapters text[])
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select r.data_type, d.key, sum(d.viewers), array_agg(distinct d.adapter)
  from (
    select type_id, key, count(*) as viewers, 'heartbeat' as adapter
    from pgfresh.active_subscriptions
    group by type_id, key
    union all
    select type_id, key, sum(viewers), 'gateway'
    from pgfresh.node_demand
    group by type_id, key
  ) as d
  join pgfresh.data_type_registry as r on r.type_id = d.type_id
  group by r.data_type, d.key
$$;
comment on function pgfresh.get_active_subscriptions() is
  'What is being looked at, by how many, and through which adapters. '
  'A user who looks through two nodes, or through a node and by SQL, counts twice.';

insert into pgfresh.migrations (kind, name, hash) values ('functions'::text, 'demand'::text, 'e0353e62aed1a809c1a17c9f16ea785f269d66641b2bbb9408d70e5a34e512e6'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- functions duties
create or replace function pgfresh.hold_duty(p_name text, p_holder uuid, p_lease interval) returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if coalesce(p_name, '') !~ '^[a-z][a-z0-9_]{0,59}$' or p_holder is null then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      'a duty needs a name in lower case and a holder',
      'Pass a uuid of your own making, the same for each renewal.');
  end if;
  perform pgfresh.require_range('p_lease in seconds', extract(epoch from p_lease), 1, 3600);
  insert into pgfresh.duty as d (name, holder, lease_until)
  values (p_name, p_holder, pgfresh.clock() + p_lease)
  on conflict (name) do update set holder = excluded.holder, lease_until = excluded.lease_until
    where d.holder = excluded.holder or d.lease_until <= pgfresh.clock();
  return found;
end
$$;
comment on function pgfresh.hold_duty(text, uuid, interval) is
  'Takes or renews a duty that only one process at a time may do. False while another one has it.';

create or replace function pgfresh.release_duty(p_name text, p_holder uuid) returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  delete from pgfresh.duty where name = p_name and holder = p_holder;
  return found;
end
$$;
comment on function pgfresh.release_duty(text, uuid) is 'Gives a duty back. Returns whether it was held.';

insert into pgfresh.migrations (kind, name, hash) values ('functions'::text, 'duties'::text, 'b11ee4583b533dbaa13950aa7940bb52629fd3e6820225ca76b2b30de2b6f6a1'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- functions end
/*
  The end of jobs, one data type a call, in one transaction with whatever the caller did before. Fence first: only a job
  that still runs in the given attempt is ended. Then its history, its pair, the ledger, the size it taught us.

  The table of open jobs is empty one minute and full the next, so its statistics are never right. Every table is
  therefore reached by an array of keys, which leaves nothing to choose but the index; what comes with a job is joined
  to it by a hash.
*/
create or replace function pgfresh.complete_jobs(
  p_ids bigint[], p_attempts int[], p_bytes bigint[], p_outcomes text[] default null, p_calls int[] default null,
  p_fetch_ms int[] default null, p_validate_ms int[] default null, p_commit_ms int[] default null,
  p_requests uuid[] default null, p_row_at timestamptz[] default null, p_ages double precision[] default null,
  p_source_at timestamptz[] default null)
returns bigint[]
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_nestloop = off
set enable_mergejoin = off
-- The index walks the jobs in the order of their ids, as everybody else locks them;
-- a bitmap would go by their place in the table.
set enable_bitmapscan = off
as $$
declare
  v_now timestamptz := pgfresh.clock();
  v_done bigint[];
  v_keys text[];
  v_sizes bigint[];
  v_outcomes text[];
  v_rows timestamptz[];
  v_asked timestamptz[];
  v_at_source timestamptz[];
  v_called bigint[];
  v_again bigint[];
  v_ttl interval;
  v_empty_ttl interval;
  v_judged boolean;
  -- Whether an answer that there is nothing has deleted the rows.
  v_removes boolean;
  v_noteworthy boolean;
  -- That of all of them; null where they differ.
  v_outcome text := 'fresh';
  v_api_keys smallint[]; v_claimed_at timestamptz;
  v_type_low int; v_type_high int; v_source int; v_reserved bigint; v_bytes bigint; v_calls bigint; v_ended bigint;
  v_oldest bigint; v_newest bigint; v_changed boolean; v_needed boolean;
  -- Of each job its source, and what to settle with that.
  v_sources int[]; v_each_reserved bigint[]; v_each_bytes bigint[]; v_each_calls int[];
  v_part record;
begin
  perform pgfresh.require_ends(p_ids, p_attempts, p_bytes, p_requests);
  if num_nonnulls(p_calls, p_fetch_ms, p_validate_ms, p_commit_ms) > 0 then
    perform pgfresh.require_measures(cardinality(p_ids), p_calls, p_fetch_ms, p_validate_ms, p_commit_ms);
  end if;
  if p_outcomes is not null then
    if cardinality(p_outcomes) <> cardinality(p_ids) then
      perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
        'p_outcomes must be as long as p_ids',
        'Pass an outcome for each job, or leave it out where all are fresh.');
    end if;
    perform pgfresh.require_outcome(said.outcome)
    from (select distinct outcome from unnest(p_outcomes) as outcome) as said;
    v_outcome := case when p_outcomes[1] = all (p_outcomes) then p_outcomes[1] end;
  end if;
  if cardinality(p_row_at) <> cardinality(p_ids) or cardinality(p_ages) <> cardinality(p_ids)
      or cardinality(p_source_at) <> cardinality(p_ids) or 0 > any (p_ages) or 1e9 < any (p_ages) then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      'p_row_at, p_ages and p_source_at must be as long as p_ids, and no age negative',
      'Pass null for a time that is not known.');
  end if;
  with ended as (
    delete from pgfresh.job as j
    where j.id = any (p_ids) and j.state = 'x'
      and pgfresh.token_of(j.id, j.attempt, case when p_requests is not null then j.request end) = any (array(
        select pgfresh.token_of(e.id, e.attempt, e.request)
        from unnest(p_ids, p_attempts, p_requests) as e(id, attempt, request)
      ))
    returning j.*
  ), measured as (
    select ended.*, e.bytes, coalesce(v_outcome, e.outcome) as outcome, coalesce(e.calls, 1) as calls,
      e.fetch_ms, e.validate_ms, e.commit_ms, e.row_at, e.source_at,
      v_now - make_interval(secs => coalesce(e.age, 0)) as asked_at
    from ended
    join unnest(p_ids, p_attempts, p_bytes, p_outcomes, p_calls, p_fetch_ms, p_validate_ms, p_commit_ms,
        p_row_at, p_ages, p_source_at)
        as e(id, attempt, bytes, outcome, calls, fetch_ms, validate_ms, commit_ms, row_at, age, source_at)
      on e.id = ended.id and e.attempt = ended.attempt
  ), history as (
    insert into pgfresh.history_succeeded (
      id, ended_at, created_at, claimed_at, bytes, calls, worker, type_id, source_id, priority, attempt, retries, lost,
      fetch_ms, validate_ms, commit_ms, status, outcome, key, metadata)
    select
      id, v_now, created_at, claimed_at, bytes, calls, worker, type_id, source_id, priority, attempt, retries, lost,
      fetch_ms, validate_ms, commit_ms, 'succeeded', outcome, key, metadata
    from measured
  )
  -- What was known already has asked nobody, so it says nothing about the source and about the size of an answer.
  select array_agg(id), array_agg(key), array_agg(bytes) filter (where calls > 0),
    array_agg(outcome), array_agg(row_at), array_agg(asked_at), array_agg(source_at),
    array_agg(id) filter (where calls > 0), array_agg(id) filter (where rerun),
    array_agg(coalesce(api_key, 1::smallint)) filter (where calls > 0), max(claimed_at),
    min(type_id), max(type_id), min(source_id), min(definition), max(definition),
    sum(reserved), sum(bytes), sum(calls), (select count(*) from ended),
    array_agg(source_id), array_agg(reserved), array_agg(bytes), array_agg(calls)
  into v_done, v_keys, v_sizes,
    v_outcomes, v_rows, v_asked, v_at_source,
    v_called, v_again,
    v_api_keys, v_claimed_at,
    v_type_low, v_type_high, v_source, v_oldest, v_newest,
    v_reserved, v_bytes, v_calls, v_ended,
    v_sources, v_each_reserved, v_each_bytes, v_each_calls
  from measured;
  -- More than was ended: one job twice. Less: attempts that make no sense and are the token of another job.
  if v_type_low <> v_type_high or v_ended <> coalesce(cardinality(v_done), 0) then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      'jobs of several data types in one call, or one job twice',
      'End one data type a call, and each job once.');
  end if;
  if v_done is null then
    return '{}';
  end if;
  select r.ttl, coalesce(r.empty_ttl, r.ttl),
    -- Where rows say themselves how long they are good, or a function does, the planner asks them at its next tick.
    r.ttl_column is not null or r.staleness_function <> 'pgfresh.is_data_stale',
    coalesce(r.empty_rows = 'delete', false),
    -- Most ends change nothing about their source, and then its row is not written.
    (
      select s.failure_streak > 0 or s.unhinted_holds > 0 or s.breaker_opened_at is not null
        or s.last_success_at > v_now - interval '10 seconds' is not true
      from pgfresh.sources as s
      where s.id = v_source
    )
  into v_ttl, v_empty_ttl, v_judged, v_removes, v_noteworthy
  from pgfresh.data_type_registry as r
  where r.type_id = v_type_low;
  /*
    Each outcome says when the pair is asked for again, and what it says of the row. Only unchanged confirms it. What
    was written is fresh by its own time; where that is not known, or is past already, the next tick looks.
  */
  with freed as (
    update pgfresh.pairs as p
    set last_job = p.job_id, ok_job = p.job_id, job_id = null, ok_at = v_now, outcome = e.outcome, fails = 0,
      waits_for = null, next_ask_at = e.next_ask_at,
      row_at = case when e.outcome = 'empty' and v_removes then e.row_at else coalesce(e.row_at, p.row_at) end,
      confirmed_at = case e.outcome when 'unchanged' then e.asked_at when 'older_source' then p.confirmed_at end,
      empty_at = case when e.outcome = 'empty' then e.asked_at end,
      source_at = case when e.outcome = 'empty' then null else coalesce(e.source_at, p.source_at) end,
      seen = case when e.confirms then e.stale_at is not null else p.seen end,
      stale_at = case
        when e.confirms then coalesce(e.stale_at, case when e.known + v_ttl <= v_now then v_now else v_now + v_ttl end)
        else coalesce(p.stale_at, e.row_at + v_ttl, v_now)
      end,
      due_at = case when p.demanded then e.due_at else p.due_at end
    from (
      select e.*, coalesce(e.next_ask_at, e.stale_at, v_now) as due_at
      from (
        select e.key, e.outcome, e.row_at, e.source_at, e.asked_at, c.confirms, c.known,
          v_now + case e.outcome when 'empty' then v_empty_ttl when 'older_source' then v_ttl end as next_ask_at,
          case when c.confirms and not v_judged and c.known + v_ttl > v_now then c.known + v_ttl end as stale_at
        from unnest(v_keys, v_outcomes, v_rows, v_asked, v_at_source) as e(key, outcome, row_at, asked_at, source_at)
        cross join lateral (
          select e.outcome in ('fresh', 'unchanged') as confirms,
            case
              when e.outcome = 'fresh' then case when e.row_at <= v_now + interval '1 day' then e.row_at end
              when e.row_at is not null then e.asked_at
            end as known
        ) as c
      ) as e
    ) as e
    where p.type_id = v_type_low and p.key = any (v_keys) and p.key = e.key
    returning p.key, p.demanded, p.due_at
  )
  -- The entry of an earlier time means nothing any more.
  insert into pgfresh.due (due_at, type_id, key)
  select f.due_at, v_type_low, f.key from freed as f where f.demanded
  on conflict do nothing;
  /*
    What was fetched under another definition of the data type is not written. Asked when the pairs are ours: a change
    that has committed before has left them out, and one that commits later comes back to them.
  */
  select v_oldest <> r.definition or v_newest <> r.definition,
    exists (select from pgfresh.type_dependency as d where d.needs_id = r.type_id)
  into v_changed, v_needed
  from pgfresh.data_type_registry as r
  where r.type_id = v_type_low;
  if v_changed then
    raise serialization_failure using
      message = 'the data type was changed while its jobs ran',
      hint = 'Run the transaction again, and put back what fence_jobs calls outdated.';
  end if;
  -- Who needs these and waits for them is looked at now. What somebody has locked, the sweep finds.
  -- A pair that failed without them does not sit out its time either, once: what fails again has another cause.
  if v_needed then
    with recursive dependent (type_id) as (
      select type_id from pgfresh.type_dependency where needs_id = v_type_low
      union
      select d.type_id from dependent as n join pgfresh.type_dependency as d on d.needs_id = n.type_id
    ), woken as (
      update pgfresh.pairs as p
      set due_at = v_now,
        next_ask_at = case when p.outcome = 'dependency' and p.fails = 1 then null else p.next_ask_at end
      from (
        select w.type_id, w.key
        from dependent as d
        cross join lateral (
          select w.type_id, w.key
          from pgfresh.pairs as w
          where w.type_id = d.type_id and w.key = any (v_keys) and w.demanded and w.job_id is null
          for update skip locked
        ) as w
      ) as waiting
      where p.type_id = waiting.type_id and p.key = waiting.key
      returning p.type_id, p.key
    )
    insert into pgfresh.due (due_at, type_id, key)
    select v_now, w.type_id, w.key from woken as w
    on conflict do nothing;
  end if;
  if v_again is not null then
    perform pgfresh.run_again(v_again, v_now);
  end if;
  -- Jobs of a data type that has moved were claimed from several sources.
  if v_source <> any (v_sources) then
    v_api_keys := '{}';
    for v_part in
      select e.source_id, sum(e.reserved)::bigint as reserved, sum(e.bytes)::bigint as bytes, sum(e.calls) as calls,
        array_agg(e.id) filter (where e.calls > 0) as called
      from unnest(v_done, v_sources, v_each_reserved, v_each_bytes, v_each_calls)
        as e(id, source_id, reserved, bytes, calls)
      group by e.source_id
      order by e.source_id
    loop
      perform pgfresh.note_success(v_part.source_id, v_part.called, v_now) where v_part.called is not null;
      perform pgfresh.settle_usage(v_part.source_id, v_part.reserved, v_part.bytes, v_part.calls);
    end loop;
  elsif v_noteworthy and v_called is not null then
    perform pgfresh.note_success(v_source, v_called, v_now);
  end if;
  if v_called is not null and (
      v_outcome = 'older_source'
      or exists (select from pgfresh.breaker as b where b.source_id = v_source)
      or exists (select from pgfresh.breaker as b where b.type_id = v_type_low)) then
    perform pgfresh.note_answers(
      v_source, v_type_low, v_api_keys,
      case when v_outcome = 'older_source' then v_called end,
      v_claimed_at, v_now);
  end if;
  if v_source = all (v_sources) then
    perform pgfresh.settle_usage(v_source, v_reserved, v_bytes, v_calls);
  end if;
  if v_sizes is not null then
    perform pgfresh.learn_size(v_type_low, v_sizes, v_calls);
  end if;
  perform pgfresh.mark_pairs(v_type_low, v_keys);
  return v_done;
end
$$;
comment on function pgfresh.complete_jobs(
  bigint[], int[], bigint[], text[], int[], int[], int[], int[], uuid[], timestamptz[], double precision[],
  timestamptz[]) is
  'Ends jobs of one data type as succeeded. For each: the bytes that it used; its outcome, fresh if none is given; '
  'how often the provider was called for it, once if nothing is said, and never if the answer was known already; '
  'how long fetching, validating and writing took; by which claim it is held, '
  'required when claiming with p_alone; the time of its row as it is now, how many seconds ago its answer was '
  'fetched, and of which time the answer is at the source. '
  'Returns the ids of those that were still running in the given attempt; '
  'the others were taken back or cancelled meanwhile, and nothing of them is changed.';

/*
  Job and attempt as one number, so that a set of both can be asked for at once. What did not wait for the disk can be
  forgotten in a crash, and the same numbers be given again; the name of the claim cannot, so it is a part of the token
  of who has claimed in that way.
*/
create or replace function pgfresh.token_of(p_id bigint, p_attempt int, p_request uuid) returns bigint
language sql immutable parallel safe
as $$ select (p_id * 1048576 + p_attempt) # coalesce(uuid_hash_extended(p_request, 0), 0) $$;
comment on function pgfresh.token_of(bigint, int, uuid) is
  'The fencing token of an attempt, or of an attempt under a claim: no two have the same.';

-- A refresh was forced while the job ran: its pair gets a new one, with what the ended one had.
create or replace function pgfresh.run_again(p_ended bigint[], p_now timestamptz) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  with ended as (
    -- By the source that the data type has now.
    select h.*, r.source_id, r.estimated_data_size_bytes, nextval('pgfresh.job_id') as next_id
    from (
      select id, type_id, key, priority, metadata
      from pgfresh.history_succeeded
      where id = any (p_ended) and ended_at = p_now
      union all
      select id, type_id, key, priority, metadata
      from pgfresh.history_other
      where id = any (p_ended) and ended_at = p_now
    ) as h
    join pgfresh.data_type_registry as r on r.type_id = h.type_id
  ), opened as (
    update pgfresh.pairs as p
    set job_id = e.next_id, due_at = 'infinity', next_ask_at = null
    from ended as e
    where p.type_id = e.type_id and p.key = e.key
  )
  insert into pgfresh.job (
    id, seq, run_at, created_at, est_bytes, type_id, source_id, priority, asked, band, lane,
    state, key, metadata)
  select
    e.next_id, e.next_id, p_now, p_now, bytes.estimate, e.type_id, e.source_id, e.priority, e.priority,
    pgfresh.band_of(e.priority), pgfresh.lane_of(pgfresh.band_of(e.priority), false, bytes.estimate),
    'r', e.key, e.metadata
  from ended as e
  cross join lateral (
    select coalesce(
      (select t.estimated_bytes from pgfresh.type_stats as t where t.type_id = e.type_id),
      e.estimated_data_size_bytes) as estimate
  ) as bytes;
end
$$;
comment on function pgfresh.run_again(bigint[], timestamptz) is
  'Opens a new job for pairs whose refresh was forced while they were being refreshed. A part of every end.';

create or replace function pgfresh.require_ends(
  p_ids bigint[], p_attempts int[], p_bytes bigint[], p_requests uuid[])
returns void
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  if p_ids is null or p_attempts is null or p_bytes is null
      or cardinality(p_ids) <> cardinality(p_attempts) or cardinality(p_ids) <> cardinality(p_bytes)
      or cardinality(p_ids) > 10000 then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      'ids, attempts and bytes must be arrays of one length, at most 10000',
      'Pass one attempt and one size for each job.');
  end if;
  if cardinality(p_requests) <> cardinality(p_ids) or array_position(p_requests, null) is not null then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      'p_requests must be as long as p_ids, and none may be null',
      'Pass the name of its claim for each job, or leave it out.');
  end if;
  -- A larger id has no token.
  if exists (
    select from unnest(p_ids, p_attempts, p_bytes) as e(id, attempt, bytes)
    where (
      e.id between 1 and 8796093022207 and e.attempt >= 0 and e.bytes between 0 and 1000000000000000
    ) is not true
  ) then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      'ids must be from 1 to 8796093022207, attempts not negative, and bytes from 0 to 1e15; none may be null',
      'Pass id and attempt as the claim returned them, and the real size of each answer.');
  end if;
end
$$;
comment on function pgfresh.require_ends(bigint[], int[], bigint[], uuid[]) is
  'Refuses arrays that do not describe ends of jobs.';

create or replace function pgfresh.require_measures(
  p_count int, p_calls int[], p_fetch_ms int[], p_validate_ms int[], p_commit_ms int[])
returns void
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  if cardinality(p_calls) <> p_count or array_position(p_calls, null) is not null
      or 0 > any (p_calls) or 1000000 < any (p_calls) then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      'p_calls must be as long as p_ids, and each from 0 to 1000000',
      'Pass how often the provider was called for each job, redirects included.');
  end if;
  if cardinality(p_fetch_ms) <> p_count or 0 > any (p_fetch_ms)
      or cardinality(p_validate_ms) <> p_count or 0 > any (p_validate_ms)
      or cardinality(p_commit_ms) <> p_count or 0 > any (p_commit_ms) then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      'times must be arrays as long as p_ids, and none negative',
      'Pass null for a time that is not known.');
  end if;
end
$$;
comment on function pgfresh.require_measures(int, int[], int[], int[], int[]) is
  'Refuses calls and times that do not go with so many jobs.';

insert into pgfresh.migrations (kind, name, hash) values ('functions'::text, 'end'::text, '34bed2d73ad78d691a03267805ed81a144e3bc34e2cb05750949ceddae9ca175'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- functions enqueue
-- Claims go by band, not by priority: a raise within a band rewrites no index entry. Nobody's work is -1.
create or replace function pgfresh.band_of(p_priority int) returns smallint
language sql immutable parallel safe
as $$
  select (pg_catalog.width_bucket(
    p_priority,
    '{0,1,2,4,8,16,32,64,128,256,512,1024,2048,4096,8192,16384,32768,65536,131072,262144,524288}'::int[]) - 1)::smallint
$$;
comment on function pgfresh.band_of(int) is
  'The band of a priority: -1 for background, 0 for 0, then one for each power of two up to 20.';

create or replace function pgfresh.lane_of(p_band smallint, p_missing boolean, p_bytes bigint) returns smallint
language sql immutable parallel safe
as $$
  select (20 - p_band
    + case when p_missing then 0 else 32 end
    + case when p_bytes > 1048576 then 64 else 0 end)::smallint
$$;
comment on function pgfresh.lane_of(smallint, boolean, bigint) is
  'The lane of the ready index in which a job stands: 20 less its band, so 0 to 21; '
  'and 32 unless it is for a viewed pair without a row, and 64 if it is large: more than 1 MiB.';

-- Wakes workers that wait. Under load none does, and then the commit is spared the lock that a notification takes.
create or replace function pgfresh.wake_workers() returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if exists (select from pgfresh.worker where idle) then
    perform pg_notify('pgfresh_job', '');
  end if;
end
$$;
comment on function pgfresh.wake_workers() is
  'Notifies the channel pgfresh_job at commit, if any worker waits for work.';

/*
  Lock order: pairs, then jobs. Nothing here waits for a completion: pairs that exist are found by the snapshot and
  locked only while they have no open job, and what is locked by somebody else is left to that one. So is a pair that
  another transaction has added and not yet committed.
*/
create or replace function pgfresh.queue_refreshes(
  p_data_type text, p_keys text[], p_priority int default 0, p_estimated_size bigint default null,
  p_metadata jsonb default null, p_run_at timestamptz default null, p_force boolean default false)
returns table (key text, job_id bigint, result text)
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
  v_type int;
  v_source int;
  v_bytes bigint;
  v_choosy boolean;
  v_now timestamptz := pgfresh.clock();
  v_run_at timestamptz := greatest(coalesce(p_run_at, v_now), v_now);
  v_state "char" := case when p_run_at > v_now then 'w' else 'r' end;
  v_band smallint;
  -- That of a pair which is not missing.
  v_lane smallint;
  v_keys text[];
  v_longest int;
  v_known bigint;
  v_new_keys text[];
  v_new_ids bigint[];
  v_old_keys text[];
  v_old_ids bigint[];
  v_old_times timestamptz[];
  -- Of each whose pair was there, whether that is viewed and has no row.
  v_old_missing boolean[];
  v_open_ids bigint[];
  v_busy text[];
  v_raised int := 0;
begin
  select r.type_id, r.source_id,
    coalesce(
      p_estimated_size,
      (select t.estimated_bytes from pgfresh.type_stats as t where t.type_id = r.type_id),
      r.estimated_data_size_bytes),
    r.normalise <> 'none' or r.key_pattern is not null or r.key_table is not null or cardinality(r.key_columns) > 1
  into v_type, v_source, v_bytes, v_choosy
  from pgfresh.data_type_registry as r
  where r.data_type = p_data_type;
  if not found then
    perform pgfresh.require_type(p_data_type);
  end if;
  if p_keys is null or cardinality(p_keys) > 100000 then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      format('p_keys must have at most 100000 keys, got %s', coalesce(cardinality(p_keys)::text, 'null')),
      'Enqueue in smaller sets.');
  end if;
  -- A function call costs more than a comparison, so the functions are only called to refuse.
  if (p_priority >= -1) is not true then
    perform pgfresh.require_range('p_priority', p_priority, -1, 2147483647);
  end if;
  if p_force is null then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      'p_force must be true or false, got null',
      'Leave it out if the refresh is not forced.');
  end if;
  if p_estimated_size not between 0 and 1000000000000000 then
    perform pgfresh.require_range('p_estimated_size', p_estimated_size, 0, 1e15);
  end if;
  if p_run_at > v_now + interval '366 days' then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID', 'p_run_at is more than 366 days ahead', 'Pass a nearer time.');
  end if;
  if octet_length(p_metadata::text) > 65536 then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      'p_metadata has more than 65536 bytes',
      'Keep large things in a table of yours and pass their key.');
  end if;
  if v_choosy then
    p_keys := pgfresh.admit_keys(pgfresh.require_type(p_data_type), p_keys);
  end if;
  -- In key order and once each, so that two sets cannot wait for each other in a circle.
  select array_agg(wanted.key order by wanted.key), max(octet_length(wanted.key))
  into v_keys, v_longest
  from (select distinct wanted.key collate "C" as key from unnest(p_keys) as wanted(key)) as wanted;
  if v_longest > 512 or array_position(v_keys, null) is not null or '' = any (v_keys)
      or array_to_string(v_keys, '') ~ '[[:cntrl:]]' then
    perform pgfresh.require_key(bad.key) from unnest(p_keys) as bad(key);
  end if;

  v_band := pgfresh.band_of(p_priority);
  v_lane := pgfresh.lane_of(v_band, false, v_bytes);

  -- The whole set in one walk of the index.
  -- Before version 17 the planner may walk all keys of the type instead, and is not asked.
  if current_setting('server_version_num')::int >= 170000 then
    v_known := (select count(*) from pgfresh.pairs as p where p.type_id = v_type and p.key = any (v_keys));
  end if;
  if v_known = 0 then
    v_new_keys := v_keys;
  elsif v_known is distinct from cardinality(v_keys) then
    -- A subquery for each key, and no join: whatever the statistics say, a key is looked up by its index.
    v_new_keys := array(
      select wanted.key
      from unnest(v_keys) as wanted(key)
      where (select true from pgfresh.pairs as p where p.type_id = v_type and p.key = wanted.key) is null);
  end if;

  if cardinality(v_new_keys) > 0 then
    -- First as if nobody else were adding the same pairs, which is the rule and costs a third less.
    v_new_ids := array(select nextval('pgfresh.job_id') from unnest(v_new_keys));
    if not pgfresh.add_pairs(v_type, v_new_keys, v_new_ids) then
      v_busy := pgfresh.make_pairs(v_type, v_new_keys);
      v_new_keys := '{}';
      v_new_ids := '{}';
    end if;
  end if;

  if coalesce(cardinality(v_new_keys), 0) < cardinality(v_keys) then
    -- Before the others are opened, so that these need not be told from them.
    v_open_ids := array(
      select p.job_id
      from pgfresh.pairs as p
      where p.type_id = v_type and p.key = any (v_keys) and p.job_id is not null);
    with opened as (
      update pgfresh.pairs as p
      set job_id = nextval('pgfresh.job_id')
      where p.type_id = v_type and p.key = any (array(
        select free.key
        from pgfresh.pairs as free
        where free.type_id = v_type and free.key = any (v_keys) and free.job_id is null
        order by free.key for update skip locked))
      returning p.key, p.job_id, p.demanded and p.row_at is null and p.seen and p.empty_at is null as missing,
        -- What is viewed does not wait longer than it would without this job.
        case when p.demanded then least(v_run_at, p.due_at) else v_run_at end as run_at
    )
    select array_agg(o.key), array_agg(o.job_id), array_agg(o.run_at), array_agg(o.missing)
    into v_old_keys, v_old_ids, v_old_times, v_old_missing
    from opened as o;

    -- Those that wait already: a higher priority or an earlier time is taken over. Only force ends the wait after a
    -- failure. A claim in flight keeps its lock and its job.
    update pgfresh.job as j
    set priority = greatest(j.priority, p_priority),
      asked = greatest(j.asked, p_priority),
      band = greatest(j.band, v_band),
      lane = j.lane + j.band - greatest(j.band, v_band),
      run_at = case
        when j.state = 'w' and (j.retries = 0 or p_force) then least(j.run_at, v_run_at) else j.run_at
      end,
      state = case when j.state = 'w' and (j.retries = 0 or p_force) and v_state = 'r' then 'r' else j.state end
    where j.id = any (array(
      select waiting.id
      from pgfresh.job as waiting
      where waiting.id = any (v_open_ids) and waiting.state <> 'x'
        and (waiting.priority < p_priority
          or (waiting.asked >= p_priority) is not true
          or (waiting.state = 'w' and (waiting.retries = 0 or p_force) and waiting.run_at > v_run_at))
      order by waiting.id for update skip locked));
    get diagnostics v_raised = row_count;

    if p_force then
      update pgfresh.job as j
      set rerun = true
      where j.id = any (array(
        select running.id
        from pgfresh.job as running
        where running.id = any (v_open_ids) and running.state = 'x' and not running.rerun
        order by running.id for update skip locked));
    end if;
  end if;

  insert into pgfresh.job (
    id, seq, run_at, created_at, est_bytes, type_id, source_id, priority, asked, band, lane,
    state, missing, key, metadata)
  select
    added.id, added.id, added.run_at, v_now, v_bytes, v_type, v_source, p_priority, p_priority, v_band,
    v_lane - case when added.missing then 32 else 0 end,
    case when added.run_at > v_now then 'w' else 'r' end, added.missing, added.key, p_metadata
  from (
    select unnest(v_new_ids) as id, unnest(v_new_keys) as key, v_run_at as run_at, false as missing
    union all
    select o.id, o.key, greatest(o.run_at, v_now), o.missing
    from unnest(v_old_ids, v_old_keys, v_old_times, v_old_missing) as o(id, key, run_at, missing)
  ) as added;
  v_new_keys := v_new_keys || v_old_keys;
  v_new_ids := v_new_ids || v_old_ids;

  if (cardinality(v_new_ids) > 0 or v_raised > 0) and (v_state = 'r' or v_now >= any (v_old_times)) then
    perform pgfresh.wake_workers();
  end if;

  return query select unnest(v_new_keys), unnest(v_new_ids), 'queued';
  if coalesce(cardinality(v_new_keys), 0) < cardinality(v_keys) then
    return query
      select p.key, p.job_id,
        coalesce((
          select case
            when j.state <> 'x' then 'merged'
            when not p_force then 'running'
            when j.rerun then 'rerun'
            else 'busy'
          end
          from pgfresh.job as j
          where j.id = p.job_id
        ), 'busy')
      from pgfresh.pairs as p
      -- A set difference and no comparison with each: that would be quadratic.
      where p.type_id = v_type and p.key = any (array(
        select unnest(v_keys) collate "C"
        except
        select unnest(v_new_keys) collate "C"));
    return query select unnest(v_busy), null::bigint, 'busy';
  end if;
end
$$;
comment on function pgfresh.queue_refreshes(text, text[], int, bigint, jsonb, timestamptz, boolean) is
  'Enqueues a job for each key of a data type that has none open, in the caller''s transaction. '
  'Says for each key what came of it: '
  'queued; merged (it waits already; a higher priority or an earlier time was taken over, '
  'and with p_force the wait after a failure is over); running; '
  'rerun (it runs, was forced, and will run again); '
  'busy (it is being ended or enqueued by somebody else this moment).';

create or replace function pgfresh.queue_refresh_if_not_exists(
  p_key text, p_data_type text, p_priority int default 0, p_estimated_size bigint default null,
  p_metadata jsonb default null, p_run_at timestamptz default null, p_force boolean default false)
returns jsonb
language sql
set search_path = pg_catalog, pg_temp
as $$
  select jsonb_build_object('job_id', q.job_id, 'result', q.result)
  from pgfresh.queue_refreshes(
    p_data_type, array[p_key], p_priority, p_estimated_size, p_metadata, p_run_at, p_force) as q
$$;
comment on function pgfresh.queue_refresh_if_not_exists(text, text, int, bigint, jsonb, timestamptz, boolean) is
  'Enqueues a job for one pair unless it has one open. '
  'Returns {"job_id", "result"}; see queue_refreshes for the results.';

insert into pgfresh.migrations (kind, name, hash) values ('functions'::text, 'enqueue'::text, 'f4fd19665eef4b7dbcc4be743c636d2c9410581495b334b546fd654ab51782cd'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- functions eviction
/*
  Rows of pairs that nobody has viewed for long are deleted by workers, who write users' tables with the rights of their
  own login. Nothing here touches those tables: a trigger, a policy or an operator of theirs would run with our rights.

  A worker locks pairs, deletes their rows and notes it, in one transaction. The pairs are walked by their key from a
  cursor, a bounded number at a time, so that no index has to be kept for it.
*/
create or replace function pgfresh.lock_evictable(
  p_type_id int, p_limit int, out keys text[], out done boolean)
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
  -- So many pairs are looked at in a call.
  c_span constant int := 2000;
  v_now timestamptz := pgfresh.clock();
  v_type pgfresh.data_type_registry;
  v_after text;
  v_before timestamptz;
  v_span record;
  v_dependents int[];
begin
  perform pgfresh.require_primary();
  perform pgfresh.require_range('p_limit', p_limit, 1, 1000);
  keys := '{}';
  done := true;
  select * into v_type from pgfresh.data_type_registry where type_id = p_type_id;
  if v_type.evict_after is null then
    return;
  end if;
  v_before := v_now - v_type.evict_after;
  insert into pgfresh.eviction (type_id, cursor_key) values (p_type_id, '') on conflict do nothing;
  -- Another worker that does it already is not waited for.
  select cursor_key into v_after from pgfresh.eviction where type_id = p_type_id for update skip locked;
  if not found then
    return;
  end if;
  select count(*) as count, max(s.key) as last,
    array_agg(s.key order by s.key) filter (
      where not s.demanded and s.job_id is null and (s.row_at is not null or not s.seen)
        -- A refresh that somebody asked for counts like a view.
        and greatest(s.unviewed_since, s.ok_at) <= v_before
    ) as candidates
  into v_span
  from (
    select p.key, p.demanded, p.job_id, p.row_at, p.seen, p.unviewed_since, p.ok_at
    from pgfresh.pairs as p
    where p.type_id = p_type_id and p.key > v_after
    order by p.key
    limit c_span
  ) as s;
  -- First the lock, then the look: who arrives now waits for this pair, or is seen by the next statement.
  keys := array(
    select p.key
    from pgfresh.pairs as p
    where p.type_id = p_type_id and p.key = any (v_span.candidates)
      and not p.demanded and p.viewers = 0 and p.job_id is null
      and greatest(p.unviewed_since, p.ok_at) <= v_before
    order by p.key
    limit p_limit for update skip locked
  );
  done := v_span.count < c_span and cardinality(keys) < p_limit;
  update pgfresh.eviction
  set cursor_key = case when done then '' when cardinality(keys) = p_limit then keys[p_limit] else v_span.last end
  where type_id = p_type_id;
  v_dependents := array(
    with recursive dependent (type_id) as (
      select type_id from pgfresh.type_dependency where needs_id = p_type_id
      union
      select d.type_id from dependent as n join pgfresh.type_dependency as d on d.needs_id = n.type_id
    )
    select type_id from dependent
  );
  keys := array(
    select k.key
    from unnest(keys) as k(key)
    where not exists (select from pgfresh.active_subscriptions as a where a.type_id = p_type_id and a.key = k.key)
      and not exists (select from pgfresh.node_demand as d where d.type_id = p_type_id and d.key = k.key)
      -- What depends on the row counts as if the row itself were viewed.
      and not exists (
        select from pgfresh.pairs as p
        where p.type_id = any (v_dependents) and p.key = k.key
          and (p.demanded or p.job_id is not null or greatest(p.unviewed_since, p.ok_at) > v_before)
      )
    order by k.key
  );
end
$$;
comment on function pgfresh.lock_evictable(int, int) is
  'Locks the next pairs of a data type that nobody has viewed for its evict_after, and returns their keys, '
  'and whether the walk over all pairs is done. Delete their rows in the same transaction, and call note_evicted.';

create or replace function pgfresh.note_evicted(p_type_id int, p_keys text[]) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if p_type_id is null or p_keys is null or cardinality(p_keys) > 1000 then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      'p_type_id must not be null, and p_keys be at most 1000 keys',
      'Pass the keys that lock_evictable returned.');
  end if;
  update pgfresh.pairs
  set row_at = null, stale_at = null, source_at = null, confirmed_at = null, empty_at = null, seen = true
  where type_id = p_type_id and key = any (p_keys) and not demanded and job_id is null;
end
$$;
comment on function pgfresh.note_evicted(int, text[]) is
  'Notes that the rows of pairs are gone because nobody views them: they are missing, and not planned.';

insert into pgfresh.migrations (kind, name, hash) values ('functions'::text, 'eviction'::text, '6e7a4267779a864b482a1ef8ea23a8ff5d4d7dca48823d5d343799c3ba194129'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- functions explain
-- An age or a wait as people say it.
create or replace function pgfresh.in_words(p_time interval) returns text
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
  select case
    when s < 1 then 'less than a second'
    when s < 120 then floor(s) || ' s'
    when s < 7200 then floor(s / 60) || ' min'
    when s < 172800 then floor(s / 3600) || ' h'
    else floor(s / 86400) || ' days'
  end
  from (select abs(extract(epoch from p_time)) as s) as t
$$;
comment on function pgfresh.in_words(interval) is 'A time in the unit that suits it. A part of explain_pair.';

-- Of a data type that does not resolve or does not answer, the pairs are explained all the same.
create or replace function pgfresh.explained_key(p_type pgfresh.data_type_registry, p_key text) returns text
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if not pgfresh.is_quarantined(p_type.type_id, pgfresh.clock()) then
    begin
      return (pgfresh.admit_keys(p_type, array[p_key]))[1];
    exception
      when lock_not_available then null;
      when sqlstate 'PGF01' then
        if sqlerrm not like 'PGF_REGISTRY_INVALID:%' then
          raise;
        end if;
    end;
  end if;
  return pgfresh.canonical_key(p_key, p_type.normalise);
end
$$;
comment on function pgfresh.explained_key(pgfresh.data_type_registry, text) is
  'A key as the data type spells it, also where its table of keys is gone or locked. A part of explain_pair.';

do $$ begin
  if to_regtype('pgfresh.obstacle') is null then
    create type pgfresh.obstacle as (reason text, words text, since timestamptz, until timestamptz, lasts timestamptz);
  end if;
end $$;
comment on type pgfresh.obstacle is
  'Something that keeps a pair from being refreshed, since and until when if that is known, '
  'and for how long at least, by which several of them are ordered.';

create or replace function pgfresh.hold_words(
  p_pair pgfresh.pairs, p_state text, p_now timestamptz)
returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select case
    when p_pair.outcome = 'older_source' and p_state = 'missing' then
      format('The table took nothing of its answer; it is asked again in %s.',
        pgfresh.in_words(p_pair.next_ask_at - p_now))
    when p_pair.outcome = 'older_source' then
      format('The source answers with something older than what is here%s; it is asked again in %s.',
        coalesce(': its own data is ' || pgfresh.in_words(p_now - p_pair.source_at) || ' old', ''),
        pgfresh.in_words(p_pair.next_ask_at - p_now))
    when p_pair.outcome = 'unchanged' and p_state = 'missing' then
      format('The source answers that nothing has changed, but there is no row; it is asked again in %s.',
        pgfresh.in_words(p_pair.next_ask_at - p_now))
    when p_pair.outcome in ('fresh', 'unchanged') and p_pair.lapses > 1 then
      format('Others have deleted it or set it back %s times after it was written; it is fetched again in %s.',
        p_pair.lapses, pgfresh.in_words(p_pair.next_ask_at - p_now))
    when p_pair.outcome in ('fresh', 'unchanged') then
      format('It was stale as soon as it was written, so it is fetched once per TTL, and again in %s.',
        pgfresh.in_words(p_pair.next_ask_at - p_now))
    else
      format('The last outcome was %s; it is not asked for again before %s have passed.',
        p_pair.outcome, pgfresh.in_words(p_pair.next_ask_at - p_now))
  end
$$;
comment on function pgfresh.hold_words(pgfresh.pairs, text, timestamptz) is
  'Why a pair without a job is left alone until its time. A part of explain_pair.';

-- What keeps the jobs of a source from being claimed. An end of its own has only what ends by itself.
create or replace function pgfresh.source_obstacles(p_source pgfresh.sources, p_job pgfresh.job, p_now timestamptz)
returns setof pgfresh.obstacle
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_stop pgfresh.spending_stop;
  v_rate record;
  v_running record;
  v_until timestamptz := case when isfinite(p_source.paused_until) then p_source.paused_until end;
begin
  select * into v_stop from pgfresh.spending_stop;
  if v_stop.stopped_at is not null then
    return next row('stopped',
      format('Spending was stopped %s ago: %s', pgfresh.in_words(p_now - v_stop.stopped_at), v_stop.reason),
      v_stop.stopped_at, null, 'infinity')::pgfresh.obstacle;
  end if;
  if not p_source.enabled then
    return next row('paused',
      format('The source %s is switched off.', p_source.name), null, null, 'infinity')::pgfresh.obstacle;
  end if;
  if p_source.paused_until > p_now then
    return next row(
      case p_source.paused_by when 'breaker' then 'breaker' when 'provider' then 'rate' else 'paused' end,
      case p_source.paused_by
        -- Without the reason: it has an error of another pair.
        when 'breaker' then format('The source %s failed too often and is left alone for %s more.',
          p_source.name, pgfresh.in_words(v_until - p_now))
        when 'credentials' then format('The provider refuses the API key of the source %s; it is tried again in %s.',
          p_source.name, pgfresh.in_words(v_until - p_now))
        when 'provider' then format('The source %s asked to be left alone for %s more: %s',
          p_source.name, pgfresh.in_words(v_until - p_now), p_source.pause_reason)
        else format('The source %s is paused%s%s.',
          p_source.name,
          coalesce(' for ' || pgfresh.in_words(v_until - p_now) || ' more', ''),
          coalesce(': ' || p_source.pause_reason, ''))
      end,
      null, v_until, p_source.paused_until)::pgfresh.obstacle;
  elsif p_job.id is not null and p_source.breaker_opened_at is not null then
    return next row('breaker',
      format('The source %s failed and is tried with one job at a time, until one succeeds.', p_source.name),
      null, null, p_now + interval '10 seconds')::pgfresh.obstacle;
  end if;
  v_until := pgfresh.quota_until(p_source.id, p_now, p_job.est_bytes);
  if v_until is not null then
    return next row('quota',
      format('The bytes that the source %s may use now are used up; there are more in %s.',
        p_source.name, pgfresh.in_words(v_until - p_now)),
      null, v_until, v_until)::pgfresh.obstacle;
  end if;
  if p_job.id is null then
    return;
  end if;
  select * into v_rate from pgfresh.calls_now(p_source, p_now);
  -- Without a key that the provider accepts, the rate is not what it waits for.
  if p_source.rate_limit_per_minute is not null and cardinality(p_source.denied_keys) < p_source.api_keys
      and (case when p_job.band = -1 then v_rate.background else v_rate.viewed end) = 0 then
    return next row('rate',
      format('The source %s may be called %s times a minute, spread over it, and %s.',
        p_source.name,
        p_source.rate_limit_per_minute * (p_source.api_keys - cardinality(p_source.denied_keys)),
        case
          when v_rate.viewed > 0 then 'what is left is kept for what people look at'
          else 'the next call is free in ' || pgfresh.in_words(v_rate.next_at - p_now)
        end),
      null, v_rate.next_at, coalesce(v_rate.next_at, p_now))::pgfresh.obstacle;
  end if;
  select count(*) as jobs,
    min(r.data_type) filter (where j.key = p_job.key) as of_key,
    min(j.claimed_at) filter (where j.key = p_job.key) as since
  into v_running
  from pgfresh.source_place as p
  join pgfresh.job as j on j.id = p.job_id and j.state = 'x' and j.attempt = p.attempt
  join pgfresh.data_type_registry as r on r.type_id = j.type_id
  where p.source_id = p_source.id;
  if p_source.one_key_at_a_time and v_running.of_key is not null then
    return next row('same_key',
      format('A worker has been fetching the %s of the same key for %s, '
        'and the source %s takes one job per key at a time.',
        v_running.of_key, pgfresh.in_words(p_now - v_running.since), p_source.name),
      v_running.since, null, p_now)::pgfresh.obstacle;
  end if;
  if v_running.jobs >= p_source.max_concurrency then
    return next row('concurrency',
      format('The source %s takes %s jobs at a time, and as many run.', p_source.name, p_source.max_concurrency),
      null, null, p_now)::pgfresh.obstacle;
  end if;
end
$$;
comment on function pgfresh.source_obstacles(pgfresh.sources, pgfresh.job, timestamptz) is
  'What keeps a source from being called, for a job or for planning. A part of explain_pair.';

create or replace function pgfresh.breaker_obstacle(
  p_type pgfresh.data_type_registry, p_job pgfresh.job, p_now timestamptz)
returns setof pgfresh.obstacle
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select 'paused',
    format('The last answers for %s were %s; %s.',
      p_type.data_type,
      case b.kind when 'refused' then 'refused' else 'older than what is here' end,
      case
        when b.paused_until > p_now then format('one is tried again in %s', pgfresh.in_words(b.paused_until - p_now))
        else 'one job at a time tries, until one succeeds'
      end),
    b.opened_at, case when b.paused_until > p_now then b.paused_until end,
    greatest(b.paused_until, p_now + interval '10 seconds')
  from pgfresh.breaker as b
  where b.type_id = p_type.type_id and b.opened_at is not null and (b.paused_until > p_now or p_job.id is not null)
$$;
comment on function pgfresh.breaker_obstacle(pgfresh.data_type_registry, pgfresh.job, timestamptz) is
  'That a data type is left alone because of its answers. A part of explain_pair.';

create or replace function pgfresh.due_answer(p_pair pgfresh.pairs, p_now timestamptz) returns pgfresh.obstacle
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select row('due',
    case
      when h.reason = 'gate' then 'Its gate has opened; the planner sees that within seconds.'
      when h.reason is null and p_pair.due_at > p_now + interval '1 second' and isfinite(p_pair.due_at) then
        format('The planner looks at it again within %s.',
          pgfresh.in_words(least(p_pair.due_at - p_now, interval '1 minute')))
      else 'It will be queued by the planner''s next tick.'
    end,
    null, null, null)::pgfresh.obstacle
  from (select) as one
  left join pgfresh.hold as h on h.type_id = p_pair.type_id and h.until = p_pair.due_at
$$;
comment on function pgfresh.due_answer(pgfresh.pairs, timestamptz) is
  'When the planner sees that nothing is in the way of a pair any more. A part of explain_pair.';

-- What keeps a stale pair without a job from getting one.
create or replace function pgfresh.pair_obstacles(
  p_type pgfresh.data_type_registry, p_key text, p_found boolean, p_now timestamptz)
returns table (obstacle pgfresh.obstacle, needs text)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_gate record;
  v_needed jsonb;
  v_sql text := (select r.gate_sql from pgfresh.type_resolution as r where r.type_id = p_type.type_id);
begin
  if p_found and v_sql is not null then
    begin
      select g.open, g.opens_at into v_gate from pgfresh.ask_gate(v_sql, array[p_key], p_type.data_type) as g;
    exception when others then
      select true as open, null::timestamptz as opens_at into v_gate;
    end;
    if not v_gate.open then
      obstacle := row('gate',
        format('The gate %s is closed%s.',
          p_type.gate_function, coalesce(', and opens in ' || pgfresh.in_words(v_gate.opens_at - p_now), '')),
        null, v_gate.opens_at, coalesce(v_gate.opens_at, p_now + interval '1 minute'))::pgfresh.obstacle;
      return next;
    end if;
  end if;
  for v_gate in
    select r.data_type, res.missing_sql
    from pgfresh.type_dependency as d
    join pgfresh.data_type_registry as r on r.type_id = d.needs_id
    join pgfresh.type_resolution as res on res.type_id = d.needs_id
    where d.type_id = p_type.type_id and not pgfresh.is_quarantined(r.type_id, p_now)
    order by r.data_type
  loop
    begin
      needs := (select v_gate.data_type from pgfresh.ask_keys(v_gate.missing_sql, array[p_key]) limit 1);
    exception when others then
      -- As for the planner: what cannot be asked is not waited for.
      needs := null;
    end;
    if needs is not null then
      v_needed := pgfresh.explanation_of(needs, p_key, true);
      obstacle := row('dependency',
        format('It needs the %s of the same key first: %s', needs,
          lower(left(v_needed ->> 'words', 1)) || substr(v_needed ->> 'words', 2)),
        v_needed ->> 'since', v_needed ->> 'until',
        coalesce((v_needed ->> 'until')::timestamptz, p_now))::pgfresh.obstacle;
      return next;
      return;
    end if;
  end loop;
end
$$;
comment on function pgfresh.pair_obstacles(pgfresh.data_type_registry, text, boolean, timestamptz) is
  'What keeps a stale pair without a job from getting one: its gate, and what must be there first. '
  'A part of explain_pair.';

/*
  Why a pair is or is not being refreshed, on two axes: the state of its data, and what happens with it. An open job is
  asked what it waits for, a pair without one what keeps it from getting one. Of several obstacles the one that lasts
  longest is the answer, and the others follow.
*/
create or replace function pgfresh.explanation_of(p_data_type text, p_key text, p_is_needed boolean) returns jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
-- Who asks why something waits does not wait for it.
set lock_timeout = '200ms'
as $$
declare
  v_now timestamptz := pgfresh.clock();
  v_type pgfresh.data_type_registry := pgfresh.require_type(p_data_type);
  v_key text := pgfresh.explained_key(v_type, p_key);
  v_pair pgfresh.pairs; v_wanted pgfresh.pairs;
  v_job pgfresh.job;
  v_source pgfresh.sources;
  v_row record;
  v_problem record;
  v_quarantine pgfresh.obstacle[] := array(select o from pgfresh.quarantine_obstacle(v_type, v_now) as o);
  v_sql_viewers bigint; v_gateway_viewers bigint;
  v_place int;
  v_raised text;
  v_asked boolean;
  v_needs text;
  v_no_worker text;
  v_state text; v_stale_at timestamptz;
  v_obstacles pgfresh.obstacle[];
  v_more pgfresh.obstacle[];
  v_answer pgfresh.obstacle;
  v_activity text := 'waiting';
  v_outcomes jsonb;
  v_last jsonb;
begin
  select * into v_pair from pgfresh.pairs where type_id = v_type.type_id and key = v_key;
  select * into v_job from pgfresh.job where id = v_pair.job_id;
  select * into v_source from pgfresh.sources where id = v_type.source_id;
  select count(*)
  into v_sql_viewers
  from pgfresh.active_subscriptions
  where type_id = v_type.type_id and key = v_key;
  select coalesce(sum(viewers), 0)
  into v_gateway_viewers
  from pgfresh.node_demand
  where type_id = v_type.type_id and key = v_key;
  select * into v_problem from pgfresh.type_problem(v_type);
  select null::boolean as found, true as stale, null::timestamptz as next_at, null::timestamptz as at into v_row;
  v_asked := v_problem.problem is null and v_quarantine = '{}';
  if v_asked then
    begin
      select a.found, a.stale, a.next_at, a.at, a.raised
      into v_row
      from pgfresh.ask_stale(
        v_type.type_id, array[v_key], array[pgfresh.confirmed_of(v_pair)], array[pgfresh.row_time_of(v_pair)],
        array[null::timestamptz], v_type.ttl, v_now
      ) as a;
      v_raised := v_row.raised;
    exception when lock_not_available then
      v_asked := false;
      v_raised := format('it cannot be asked about now: %s', sqlerrm);
    end;
  end if;
  if pgfresh.is_row_lost(v_pair, v_row.found, v_row.at) and pgfresh.hasten(v_type.type_id, v_key, v_now) then
    v_pair.due_at := v_now;
  end if;
  if not v_asked then
    -- What cannot be asked is as it was last seen, unless its table is gone.
    v_state := pgfresh.state_of(v_pair,
      case when not exists (
        select from pgfresh.type_resolution as r join pg_class as c on c.oid = r.tables[1]
        where r.type_id = v_type.type_id
      ) then false end,
      null, null,
      coalesce(v_type.empty_ttl, v_type.ttl), v_type.max_source_age, v_now);
    v_stale_at := v_pair.stale_at;
  elsif v_row.found is null then
    -- A check that raises counts as stale, as for the planner.
    v_state := pgfresh.state_of(v_pair, pgfresh.has_row(v_type.type_id, v_key), null, null,
      coalesce(v_type.empty_ttl, v_type.ttl), v_type.max_source_age, v_now);
  else
    v_stale_at := case
      when not v_row.stale then greatest(v_row.next_at, v_now + interval '1 minute')
      else least(v_row.next_at, v_now)
    end;
    v_state := pgfresh.state_of(v_pair, v_row.found, v_row.at, v_stale_at,
      coalesce(v_type.empty_ttl, v_type.ttl), v_type.max_source_age, v_now);
    v_stale_at := case when not v_row.stale then v_row.next_at else v_stale_at end;
  end if;
  if v_state = 'empty' then
    v_stale_at := v_pair.empty_at + coalesce(v_type.empty_ttl, v_type.ttl);
  end if;

  if v_job.state = 'x' then
    v_activity := 'refreshing';
    v_answer := row(null,
      format('A worker has been fetching it for %s, in attempt %s.',
        pgfresh.in_words(v_now - v_job.claimed_at), v_job.attempt),
      v_job.claimed_at, null, null);
  elsif v_job.id is null and v_problem.problem is not null then
    v_answer := row('unresolved',
      format('The registry row of %s cannot be used: %s. %s',
        v_type.data_type, v_problem.problem, v_problem.next_step),
      null, null, null);
  elsif v_job.id is null and coalesce(v_pair.demanded, false) = false and not p_is_needed then
    v_activity := 'idle';
    v_answer := row(null, 'Nobody looks at it.', null, null, null);
  elsif v_job.id is null and v_state = 'empty' then
    v_activity := 'idle';
    v_answer := row(null,
      format('The source says that there is nothing; it is asked again in %s.',
        pgfresh.in_words(coalesce(v_pair.next_ask_at, v_pair.due_at) - v_now)),
      v_pair.empty_at, v_pair.next_ask_at, null);
  elsif v_job.id is null and v_state = 'fresh' then
    v_activity := 'idle';
    v_answer := row(null,
      case
        when v_stale_at > v_now then format('It is fresh for %s more.', pgfresh.in_words(v_stale_at - v_now))
        else 'It is fresh, as its staleness function says.'
      end,
      null, v_stale_at, null);
  elsif v_job.id is null and v_row.found and v_type.refresh_strategy = 'scheduled' then
    v_activity := 'idle';
    v_answer := row(null,
      format('It is refreshed by its schedule, %s in %s.', v_type.refresh_schedule, v_type.schedule_zone),
      null, null, null);
  else
    v_obstacles := array(
      select o from pgfresh.source_obstacles(v_source, v_job, v_now) as o
      union all
      select o from pgfresh.breaker_obstacle(v_type, v_job, v_now) as o
      union all
      -- A job waits for the end of a quarantine only if workers could not write its row.
      select o from unnest(v_quarantine) as o
      where v_job.id is null or (
        select pgfresh.is_write_locked(r.tables[1]) from pgfresh.type_resolution as r where r.type_id = v_type.type_id
      ));
    v_no_worker := pgfresh.worker_obstacle(v_type, v_now);
    if v_no_worker is not null then
      v_obstacles := v_obstacles
        || row('no_worker', v_no_worker, v_job.created_at, null, 'infinity')::pgfresh.obstacle;
    end if;
    if v_job.state = 'w' then
      v_obstacles := v_obstacles || row('retry',
        case
          when v_job.retries > 0 then format('It failed and is tried again in %s: %s',
            pgfresh.in_words(v_job.run_at - v_now), coalesce(v_job.error, 'no reason given'))
          else format('Its job is for later, in %s.', pgfresh.in_words(v_job.run_at - v_now))
        end,
        null, v_job.run_at, v_job.run_at)::pgfresh.obstacle;
    elsif v_job.id is null then
      if v_pair.next_ask_at > v_now then
        -- What another pair needs is wanted, though no one looks at it.
        v_wanted := v_pair;
        v_wanted.demanded := true;
        v_obstacles := v_obstacles || row(
          (pgfresh.activity_of(v_wanted, v_state, null, null, false, null, null, v_now)).reason,
          pgfresh.hold_words(v_pair, v_state, v_now), null, v_pair.next_ask_at, v_pair.next_ask_at)::pgfresh.obstacle;
      elsif not v_row.stale then
        v_obstacles := v_obstacles || row('retry',
          format('The source''s own data is %s old, and may be %s; it is asked again in %s.',
            pgfresh.in_words(v_now - v_pair.source_at), pgfresh.in_words(v_type.max_source_age),
            pgfresh.in_words(v_stale_at - v_now)),
          null, v_stale_at, v_stale_at)::pgfresh.obstacle;
      end if;
      if v_quarantine = '{}' then
        select array_agg(o.obstacle), max(o.needs)
        into v_more, v_needs
        from pgfresh.pair_obstacles(v_type, v_key, v_row.found, v_now) as o;
        v_obstacles := v_obstacles || v_more;
      end if;
    end if;
    select array_agg(o order by o.lasts desc) into v_obstacles from unnest(v_obstacles) as o;
    v_answer := v_obstacles[1];
    if v_answer.reason is null and v_job.id is not null then
      v_place := 1 + (
        select count(*)
        from (
          select from pgfresh.job as j
          where j.state = 'r' and j.source_id = v_job.source_id
            and (j.band > v_job.band or (j.band = v_job.band and j.seq < v_job.seq))
          limit 9999
        ) as ahead
      );
      v_answer := row('queued',
        format('It has waited in the queue for %s, at place %s of its source.',
          pgfresh.in_words(v_now - v_job.created_at), v_place),
        v_job.created_at, null, null);
    elsif v_answer.reason is null and p_is_needed and v_pair.demanded is not true then
      v_answer := row('due', 'It is queued within a minute.', null, null, null);
    elsif v_answer.reason is null then
      v_answer := pgfresh.due_answer(v_pair, v_now);
    end if;
    if v_state = 'older_source' and not (v_job.id is null and v_answer.reason = 'retry') then
      v_answer.words := v_answer.words || format(
        ' The source answers with something older than what is here%s.',
        coalesce(': its own data is ' || pgfresh.in_words(v_now - v_pair.source_at) || ' old', ''));
    end if;
  end if;

  v_outcomes := (
    select coalesce(jsonb_agg(
      jsonb_build_object(
        'job', o.id, 'attempt', o.attempt, 'status', o.status, 'ended_at', o.ended_at,
        'outcome', o.outcome, 'error', o.error, 'bytes', o.bytes, 'calls', o.calls, 'fetch_ms', o.fetch_ms)
      order by o.ended_at desc, o.attempt desc
    ), '[]')
    from (
      (
        select id, attempt, status, ended_at, outcome, error, bytes, calls, fetch_ms
        from pgfresh.history_succeeded
        where id = v_pair.ok_job
      )
      union all
      (
        select id, attempt, status, ended_at, outcome, error, bytes, calls, fetch_ms
        from pgfresh.history_other
        where type_id = v_type.type_id and key = v_key
        order by ended_at desc
        limit 5
      )
      union all
      (
        select id, attempt, status, ended_at, outcome, error, bytes, calls, fetch_ms
        from pgfresh.history_attempt
        where type_id = v_type.type_id and key = v_key
        order by ended_at desc
        limit 5
      )
    ) as o
  );
  -- What an open job has tried is newer than what the pair knows of its last one.
  v_last := (
    select o
    from jsonb_array_elements(v_outcomes) with ordinality as t(o, place)
    where (o ->> 'job')::bigint = v_job.id and o ->> 'outcome' <> 'interrupted'
    order by t.place
    limit 1
  );
  return jsonb_build_object(
    'data_type', v_type.data_type, 'key', v_key,
    'state', v_state, 'activity', v_activity,
    'reason', v_answer.reason, 'words', v_answer.words, 'since', v_answer.since, 'until', v_answer.until,
    'obstacles', coalesce((
      select jsonb_agg(jsonb_build_object(
        'reason', o.reason, 'words', o.words, 'since', o.since, 'until', o.until) order by o.place)
      from unnest(v_obstacles) with ordinality as o(reason, words, since, until, lasts, place)
      where o.place > 1
    ), '[]'),
    'viewers', v_sql_viewers + v_gateway_viewers,
    'viewers_by', jsonb_build_object('heartbeat', v_sql_viewers, 'gateway', v_gateway_viewers),
    'demanded', coalesce(v_pair.demanded, false),
    'data_at', v_row.at, 'confirmed_at', v_pair.confirmed_at, 'stale_at', v_stale_at,
    -- Before version 17 an infinite time cannot be subtracted.
    'age_seconds', case when isfinite(v_row.at) then extract(epoch from v_now - v_row.at) end,
    'ttl_seconds', extract(epoch from v_type.ttl), 'source_at', v_pair.source_at,
    'source_age_seconds', case when isfinite(v_pair.source_at) then extract(epoch from v_now - v_pair.source_at) end,
    -- When something happens with it next; where it waits for something, when that ends.
    'due_at', case
      when v_job.id is not null then null
      when v_activity = 'waiting' and v_answer.reason <> 'due' then v_answer.until
      when isfinite(v_pair.due_at) then v_pair.due_at
    end,
    'next_ask_at', v_pair.next_ask_at,
    'job', case when v_job.id is not null then jsonb_build_object(
      'id', v_job.id,
      'status', case v_job.state when 'x' then 'running' when 'r' then 'pending' when 'w' then 'retryable' end,
      'priority', v_job.priority, 'attempt', v_job.attempt, 'place', v_place, 'error', v_job.error
    ) end,
    'needs', v_needs, 'problem', coalesce(v_problem.problem, v_raised),
    'last_outcome', coalesce(v_last ->> 'outcome', v_pair.outcome),
    'last_outcome_at', coalesce(
      v_last ->> 'ended_at',
      (
        select o ->> 'ended_at'
        from jsonb_array_elements(v_outcomes) as o
        where (o ->> 'job')::bigint = v_pair.last_job and o ->> 'outcome' = v_pair.outcome
        limit 1
      ),
      to_jsonb(case when v_pair.fails = 0 then v_pair.ok_at end) #>> '{}'),
    'last_success_at', v_pair.ok_at, 'failures_in_a_row', coalesce(v_pair.fails, 0),
    'outcomes', v_outcomes
  );
end
$$;
comment on function pgfresh.explanation_of(text, text, boolean) is
  'What explain_pair says, also of a pair that nobody looks at but that is needed by another.';

create or replace function pgfresh.explain_pair(p_data_type text, p_key text) returns jsonb
language sql
set search_path = pg_catalog, pg_temp
as $$ select pgfresh.explanation_of(p_data_type, p_key, false) $$;
comment on function pgfresh.explain_pair(text, text) is
  'Why a pair is or is not being refreshed, and until when: '
  'the state of its data and how old that is here and at the source, what happens with it and what it waits for, '
  'who looks at it, how its last success went and its last attempts that were none. '
  'A row that is gone or set back is looked at by the next tick. '
  'state, activity and reason are words of fixed lists; words says the same in a sentence. '
  'Of several obstacles reason is the one that lasts longest; obstacles has the others.';

insert into pgfresh.migrations (kind, name, hash) values ('functions'::text, 'explain'::text, '1ec1e5adbbfe242f3b1bd4085c1fdd363e9704f11897c540041724696b558508'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- functions first_seen
-- With the rights of its owner, because who writes the table need not have any on this schema.
-- It touches nothing but the row.
create or replace function pgfresh.preserve_first_seen_at() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if tg_op = 'UPDATE' and old.first_seen_at is not null then
    new.first_seen_at := old.first_seen_at;
  elsif new.first_seen_at is null then
    new.first_seen_at := pgfresh.clock();
  end if;
  return new;
end
$$;
comment on function pgfresh.preserve_first_seen_at() is
  'Trigger of attach_first_seen_at: sets first_seen_at of a new row, and keeps it ever after.';

create or replace function pgfresh.attach_first_seen_at(p_table regclass) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_kind "char";
  v_type text;
  v_generated text;
  v_known boolean;
begin
  select relkind into v_kind from pg_class where oid = p_table;
  if v_kind is null or v_kind not in ('r', 'p') then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      format('p_table must be a table, got %s', coalesce(left(p_table::text, 130), 'null')),
      'Pass its name, for instance ''public.opening_signals''.');
  end if;
  select format_type(atttypid, null), attgenerated
  into v_type, v_generated
  from pg_attribute
  where attrelid = p_table and attname = 'first_seen_at' and not attisdropped;
  if v_type is distinct from 'timestamp with time zone' or v_generated <> '' then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      format('%s must have a column first_seen_at of type timestamptz, got %s', left(p_table::text, 130),
        case when v_generated <> '' then 'a generated one' else coalesce('one of type ' || v_type, 'none') end),
      format('Add it: alter table %s add column first_seen_at timestamptz.', left(p_table::text, 130)));
  end if;
  v_known := exists (
    select from pg_trigger
    where tgrelid = p_table and tgname = 'preserve_first_seen_at'
      and tgfoid = 'pgfresh.preserve_first_seen_at()'::regprocedure
  );
  execute format('create or replace trigger preserve_first_seen_at before insert or update on %s '
    'for each row execute function pgfresh.preserve_first_seen_at()', p_table);
  return not v_known;
end
$$;
comment on function pgfresh.attach_first_seen_at(regclass) is
  'Lets a table keep first_seen_at: set when a row is inserted, and never changed by an update or an upsert. '
  'Needs the rights of the table''s owner. Returns whether it did not do so before.';

insert into pgfresh.migrations (kind, name, hash) values ('functions'::text, 'first_seen'::text, '3d1dc3ef0e58e782f7e3dcdf3bfcd11406d18f048b26b419f6b04c72e7a0132a'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- functions holds
/*
  An obstacle gives all pairs of a data type that it holds the same due time, so they are found together by the index of
  due times when it ends before that.
*/
create or replace function pgfresh.note_hold(p_type_id int, p_until timestamptz, p_reason text, p_now timestamptz)
returns void
language sql
set search_path = pg_catalog, pg_temp
as $$
  insert into pgfresh.hold (type_id, until, reason, asked_at)
  values (p_type_id, p_until, p_reason, p_now)
  on conflict (type_id, until) do update set reason = excluded.reason
  where hold.reason <> excluded.reason
$$;
comment on function pgfresh.note_hold(int, timestamptz, text, timestamptz) is
  'Remembers that an obstacle holds pairs of a data type until then. A part of the planner.';

/*
  A data type has recovered, or an operator has resumed its source: what was refused is asked for again at once. A pair
  that is refused all the same, while others are not, is not asked for again by the next recovery, or it could pause its
  type again and again; an operator can.
  Lock order: the pair, then its entry.
*/
create or replace function pgfresh.release_refused(p_type_id int, p_all boolean, p_now timestamptz, p_limit int)
returns int
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
  v_taken record;
begin
  select coalesce(array_agg(t.key), '{}') as keys, coalesce(array_agg(t.key) filter (where t.is_held), '{}') as held
  into v_taken
  from (
    select r.key, p.is_held
    from pgfresh.refused_pair as r
    cross join lateral (
      select p.ok_at, p.job_id is null and p.next_ask_at > p_now and pgfresh.is_refused_answer(p.outcome) as is_held
      from pgfresh.pairs as p
      where p.type_id = r.type_id and p.key = r.key
      for update skip locked
    ) as p
    where r.type_id = p_type_id and (p_all or r.released_at is null or p.ok_at > r.released_at)
    limit p_limit
  ) as t;
  with released as (
    update pgfresh.pairs as p
    set next_ask_at = null, due_at = case when p.demanded then p_now else p.due_at end
    where p.type_id = p_type_id and p.key = any (v_taken.held)
    returning p.key, p.demanded
  )
  insert into pgfresh.due (due_at, type_id, key)
  select p_now, p_type_id, r.key from released as r where r.demanded
  on conflict do nothing;
  delete from pgfresh.refused_pair
  where type_id = p_type_id and key = any (v_taken.keys) and (p_all or not key = any (v_taken.held));
  if not p_all then
    update pgfresh.refused_pair
    set released_at = p_now
    where type_id = p_type_id and key = any (v_taken.held);
  end if;
  -- What somebody has locked stays for the next tick.
  delete from pgfresh.hold as h
  where h.type_id = p_type_id and h.until = 'infinity' and cardinality(v_taken.keys) < p_limit
    and not exists (
      select from pgfresh.refused_pair as r
      join pgfresh.pairs as p on p.type_id = r.type_id and p.key = r.key
      where r.type_id = p_type_id and (p_all or r.released_at is null or p.ok_at > r.released_at)
    );
  return cardinality(v_taken.keys);
end
$$;
comment on function pgfresh.release_refused(int, boolean, timestamptz, int) is
  'Makes pairs due whose answers were refused, now that their data type has recovered: those for which this was done '
  'before, and which were refused again, only if all are asked for. A part of the tick.';

create or replace function pgfresh.release_held(p_now timestamptz, p_limit int, p_types int[]) returns int
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
  v_hold record;
  v_entries tid[];
  v_keys text[];
  v_count int := 0;
begin
  -- What is due comes by itself.
  delete from pgfresh.hold where until <= p_now;
  for v_hold in
    select h.type_id, h.until, h.reason
    from pgfresh.hold as h
    join pgfresh.data_type_registry as r on r.type_id = h.type_id
    left join lateral pgfresh.type_obstacle(r.type_id, r.source_id, p_now) as o on true
    -- A few seconds sooner is not worth a look at each of them.
    where (o.until is null or (isfinite(h.until) and o.until < h.until - interval '5 seconds'))
      and (p_types is null or h.type_id = any (p_types))
      and (h.reason <> 'gate' or pgfresh.is_gate_open(h, p_now))
    order by h.type_id, h.until
  loop
    exit when v_count >= p_limit;
    if v_hold.reason in ('refused', 'resumed') then
      v_count := v_count + pgfresh.release_refused(
        v_hold.type_id, v_hold.reason = 'resumed', p_now, p_limit - v_count);
      continue;
    end if;
    -- Entries of pairs that somebody has locked stay for the next tick.
    select array_agg(d.ctid), array_agg(d.key)
    into v_entries, v_keys
    from (
      select d.ctid, d.key
      from pgfresh.due as d
      cross join lateral (
        select from pgfresh.pairs as p where p.type_id = d.type_id and p.key = d.key for update skip locked
      ) as p
      where d.due_at = v_hold.until and d.type_id = v_hold.type_id
      limit p_limit - v_count
    ) as d;
    if v_entries is null then
      -- Locked before the entries are counted: a transaction that adds one, and has not ended, has it locked.
      continue when not exists (
        select from pgfresh.hold as h where h.type_id = v_hold.type_id and h.until = v_hold.until
        for update skip locked);
      delete from pgfresh.hold as h
      where h.type_id = v_hold.type_id and h.until = v_hold.until
        and not exists (
          select from pgfresh.due as d where d.due_at = v_hold.until and d.type_id = v_hold.type_id);
      continue;
    end if;
    delete from pgfresh.due where ctid = any (v_entries);
    with moved as (
      update pgfresh.pairs as p
      set due_at = p_now
      where p.type_id = v_hold.type_id and p.key = any (v_keys) and p.due_at = v_hold.until
      returning p.key
    )
    insert into pgfresh.due (due_at, type_id, key)
    select p_now, v_hold.type_id, m.key from moved as m
    on conflict do nothing;
    v_count := v_count + cardinality(v_keys);
  end loop;
  return v_count;
end
$$;
comment on function pgfresh.release_held(timestamptz, int, int[]) is
  'Makes pairs due whose obstacle is gone before its time, or is a gate that has opened. A part of the tick.';

-- A gate that does not say when it opens is asked every five seconds, each time about the next twenty keys it holds.
create or replace function pgfresh.is_gate_open(p_hold pgfresh.hold, p_now timestamptz) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_type record;
  v_keys text[];
begin
  if p_hold.asked_at > p_now - interval '5 seconds' then
    return false;
  end if;
  v_keys := array(
    select d.key
    from pgfresh.due as d
    where d.due_at = p_hold.until and d.type_id = p_hold.type_id and d.key > p_hold.asked_key
    order by d.key
    limit 20);
  update pgfresh.hold
  set asked_at = p_now, asked_key = case when cardinality(v_keys) < 20 then '' else v_keys[20] end
  where type_id = p_hold.type_id and until = p_hold.until;
  select r.data_type, res.gate_sql
  into v_type
  from pgfresh.data_type_registry as r
  join pgfresh.type_resolution as res on res.type_id = r.type_id
  where r.type_id = p_hold.type_id and not exists (select from pgfresh.type_problem(r));
  -- A function that has changed is not run until an operator has accepted it.
  if not found then
    return false;
  end if;
  -- At the end of a round there may be none left, and the next one begins anew.
  return (v_keys = '{}' and p_hold.asked_key = '') or v_type.gate_sql is null
    or exists (select from pgfresh.ask_gate(v_type.gate_sql, v_keys, v_type.data_type) as g where g.open);
exception
  when lock_not_available then
    perform pgfresh.note_type_timeout(p_hold.type_id, 'gate', sqlerrm);
    return false;
  -- The planner says what is wrong with it when it is asked there, and takes it for open.
  when others then
    return true;
end
$$;
comment on function pgfresh.is_gate_open(pgfresh.hold, timestamptz) is
  'Whether a gate has opened for one of the pairs that it holds; asked at most every five seconds. '
  'A part of release_held.';

insert into pgfresh.migrations (kind, name, hash) values ('functions'::text, 'holds'::text, '14e24b6f6677ff72c97f620261fc79e3d7d802973a1578637a0f4cdd9a8d0a3e'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- functions job_runs
/*
  The functions of users run as the owner of their job and cannot get out of that: "set role" is refused inside of a
  function that runs with its owner's rights, and "reset role" too. So each such role has one, run_as_ and its number,
  made here.

  It belongs to the role, which may alter it to run with the caller's rights. So its first words ask as whom it runs, in
  names that no search path can bend, and it is called from another function of this kind, in which no setting of it can
  choose a role either. Its text cannot be replaced: that needs the right to create in this schema.
*/
create or replace function pgfresh.make_job_runner(p_role oid) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_signature text := format('pgfresh.run_as_%s(text, text, jsonb)', p_role);
  v_lends boolean;
begin
  for v_turn in 1..2 loop
    if exists (
      select from pg_proc
      where oid = to_regprocedure(v_signature) and proowner = p_role
        and prosecdef and not proisstrict and provolatile = 'v'
        and proconfig = array['search_path=pg_catalog, pg_temp']
        and has_function_privilege(current_user, oid, 'execute')
    ) then
      return;
    end if;
    -- Whoever else makes one is waited for, and looked at again. Writers of jobs go on.
    lock table pgfresh.scheduled_jobs in share update exclusive mode;
  end loop;
  v_lends := not has_schema_privilege(p_role, 'pgfresh', 'create')
    and not (select rolsuper from pg_roles where rolname = current_user);
  if to_regprocedure(v_signature) is not null then
    execute format('drop function %s', v_signature);
  end if;
  execute format($create$
    create function pgfresh.run_as_%s(p_call text, p_path text, p_params jsonb) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    as $run$
    declare
      v_result pg_catalog.jsonb;
    begin
      if pg_catalog.to_regrole(pg_catalog.quote_ident(current_user))::pg_catalog.oid
          operator(pg_catalog.<>) %s::pg_catalog.oid then
        raise exception using errcode = '42501',
          message = 'this function was altered, and does not run as its owner any more';
      end if;
      perform pg_catalog.set_config('search_path', p_path, true);
      execute p_call into v_result using p_params;
      -- At the commit it would be another role that these run as.
      set constraints all immediate;
      return v_result;
    end
    $run$ $create$, p_role, p_role);
  execute format('comment on function %s is %L',
    v_signature, 'Runs the jobs of one role. Written when a job is registered.');
  execute format('revoke all on function %s from public', v_signature);
  if p_role <> quote_ident(current_user)::regrole then
    -- The new owner must be allowed to create here for the moment in which it becomes one.
    if v_lends then
      execute format('grant create on schema pgfresh to %s', p_role::regrole);
    end if;
    execute format('alter function %s owner to %s', v_signature, p_role::regrole);
    if v_lends then
      execute format('revoke create on schema pgfresh from %s', p_role::regrole);
    end if;
    execute format('grant execute on function %s to %I', v_signature, current_user);
  end if;
end
$$;
comment on function pgfresh.make_job_runner(oid) is
  'Makes the function that runs the jobs of a role, if it is not there or was altered.';

-- What was written is kept whatever is returned: only raising undoes it.
create or replace function pgfresh.job_result(p_result jsonb) returns jsonb
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_problem text;
  v_expected constant text :=
    'expected {"success": true or false, "message": "a text", "details": anything}, of which details may be left out';
  v_besides jsonb;
  v_details jsonb;
begin
  v_problem := case
    when p_result is null then 'got null'
    when jsonb_typeof(p_result) <> 'object' then
      'got ' || case jsonb_typeof(p_result)
        when 'array' then 'an array'
        when 'null' then 'null'
        else 'a ' || jsonb_typeof(p_result)
      end
    when p_result -> 'success' is null or jsonb_typeof(p_result -> 'success') <> 'boolean' then
      'got ' || coalesce('a success that is ' || left(p_result ->> 'success', 40), 'no success')
    when p_result -> 'message' is null or jsonb_typeof(p_result -> 'message') <> 'string' then
      'got ' || coalesce('a message that is a ' || jsonb_typeof(p_result -> 'message'), 'no message')
    when octet_length(p_result::text) > 1048576 then 'got more than a megabyte'
  end;
  if v_problem is not null then
    return jsonb_build_object('success', false, 'message', format('%s; %s', v_expected, v_problem),
      'details', jsonb_build_object('code', 'PGF_JOB_RESULT',
        'next', 'Return jsonb_build_object(''success'', true, ''message'', ''Deleted 5 rows'').'));
  end if;
  -- Keys besides the three are details too.
  v_besides := p_result - array['success', 'message', 'details'];
  v_details := nullif(p_result -> 'details', 'null');
  if v_besides <> '{}' then
    v_details := v_besides || case
      when v_details is null then '{}'
      when jsonb_typeof(v_details) = 'object' then v_details
      else jsonb_build_object('details', v_details)
    end;
  end if;
  return jsonb_build_object('success', p_result -> 'success', 'message', left(p_result ->> 'message', 4000))
    || case when v_details is null then '{}' else jsonb_build_object('details', v_details) end;
end
$$;
comment on function pgfresh.job_result(jsonb) is
  'What a job has returned: success, message and details, into which other keys go. '
  'What is not of that form is a failure that says so.';

create or replace function pgfresh.call_job_function(p_job_id int, p_params jsonb) returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_job pgfresh.scheduled_jobs;
  v_now jsonb;
  v_result jsonb;
  v_table regclass;
begin
  select * into v_job from pgfresh.scheduled_jobs where id = p_job_id and kind = 'sql';
  if not found then
    perform pgfresh.refuse('PGF_JOB_UNKNOWN',
      format('there is no job with the number %s that calls a function', coalesce(p_job_id::text, 'null')),
      'Pass the id of a row of pgfresh.scheduled_jobs.');
  end if;
  if p_params is null or jsonb_typeof(p_params) <> 'object' then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      format('p_params must be an object, got %s', coalesce(jsonb_typeof(p_params), 'null')),
      'Pass the params of the run.');
  end if;
  v_job.params := p_params;
  v_now := v_job.resolution;
  if not pgfresh.is_job_as_registered(v_job) then
    v_now := pgfresh.resolve_job(v_job);
    if pgfresh.job_change(v_job, v_now) is not null then
      perform pgfresh.refuse_job(pgfresh.job_change(v_job, v_now), pgfresh.accept_job(v_job.name));
    end if;
  end if;
  perform pgfresh.make_job_runner(v_job.owner);

  execute format('select pgfresh.run_as_%s($1, $2, $3)', v_job.owner::oid)
    into v_result
    using v_now ->> 'call', v_now ->> 'path', p_params;

  -- The function may have set these. What comes after it is not for it to decide.
  set local search_path = pg_catalog, pg_temp;
  -- A cursor "with hold" is read to its end by the commit, and not as the role that has declared it.
  execute 'close all';
  -- Somebody else's function may have become another between the look at it and the call.
  if not (v_now -> 'definer')::boolean and (v_now ->> 'owner')::oid <> v_job.owner
      and not pgfresh.can_act_as((v_now ->> 'owner')::oid, v_job.owner)
      and v_now ->> 'stamp' is distinct from (
        select xmin || ' ' || ctid from pg_proc where oid = to_regprocedure(v_now ->> 'signature')
      ) then
    perform pgfresh.refuse_job(format('%s was changed while it ran', v_now ->> 'signature'), 'See who changed it.');
  end if;
  /*
    So would what a trigger has put off until the commit. Foreign keys are safe, and the registry's own trigger, and
    those alone. Which triggers wait is not told to anybody, but they are of a table that was written, and that is still
    locked.
  */
  if not pg_has_role(v_job.owner, session_user, 'usage')
      and not pgfresh.can_act_as(v_job.owner, quote_ident(session_user)::regrole)
      and exists (
        select from pg_trigger
        where tgdeferrable and tgfoid <> 'pgfresh.follow_registry()'::regprocedure and tgfoid not in (
          select oid from pg_proc where proname ~ '^RI_FKey_' and pronamespace = 'pg_catalog'::regnamespace
        )
      ) then
    select t.tgrelid
    into v_table
    from pg_trigger as t
    join pg_locks as l on l.locktype = 'relation' and l.relation = t.tgrelid
      and l.pid = pg_backend_pid() and l.mode ~ '^(Row|ShareRow|Access)?Exclusive'
    where t.tgdeferrable and t.tgfoid <> 'pgfresh.follow_registry()'::regprocedure
      and t.tgfoid not in (
        select oid from pg_proc where proname ~ '^RI_FKey_' and pronamespace = 'pg_catalog'::regnamespace
      )
      and not exists (
        select from pg_index as i
        where i.indexrelid = t.tgconstrindid and t.tgfoid = 'pg_catalog.unique_key_recheck()'::regprocedure
          and i.indexprs is null and i.indpred is null
      )
    limit 1;
    if found then
      perform pgfresh.refuse_job(
        format('a job of %s may not write %s, which has a trigger that can be put off until the commit',
          v_job.owner, v_table),
        'Make that constraint not deferrable.');
    end if;
  end if;
  return pgfresh.job_result(v_result);
end
$$;
comment on function pgfresh.call_job_function(int, jsonb) is
  'Runs the function of a job as the job''s owner, and returns its result. '
  'Raises what it raises; a result of another form is a failure that says so. '
  'To be called at the top of a transaction, under a statement_timeout; '
  'what the function has set lasts until the session is reset.';

insert into pgfresh.migrations (kind, name, hash) values ('functions'::text, 'job_runs'::text, 'e3d4d2e07068a6cc71b5556f7edda4ddfbef9502079aabe7f84c5f50b3a5c9fa'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- functions jobs
create or replace function pgfresh.refuse_job(p_message text, p_hint text) returns void
language sql
set search_path = pg_catalog, pg_temp
as $$ select pgfresh.refuse('PGF_JOB_INVALID', p_message, p_hint) $$;
comment on function pgfresh.refuse_job(text, text) is 'Refuses a row of scheduled_jobs.';

create or replace function pgfresh.can_act_as(p_user oid, p_role oid) returns boolean
language sql stable
set search_path = pg_catalog, pg_temp
-- Up to version 15, a member may always become the role.
as $$
  select pg_has_role(p_user, p_role, 'usage')
    or pg_has_role(p_user, p_role,
      case when current_setting('server_version_num')::int < 160000 then 'member' else 'set' end)
$$;
comment on function pgfresh.can_act_as(oid, oid) is 'Whether one role has the rights of another, or may become it.';

/*
  Runs with the rights of whoever writes, because he is known as current_user only there. Names of functions are
  written with their schema: it runs with the search path of pgfresh, but what it may call was given by name.
*/
create or replace function pgfresh.check_job_right() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_me oid := quote_ident(current_user)::regrole;
  v_pgfresh oid := (select nspowner from pg_namespace where nspname = 'pgfresh');
  v_operators constant text[] := '{enabled, paused_at, paused_by, paused_reason, paused_until, updated_at}';
begin
  if tg_op <> 'INSERT' and old.owner <> v_me
      and not pgfresh.can_act_as(v_me, old.owner) and not pgfresh.can_act_as(v_me, v_pgfresh)
      and not (tg_op = 'UPDATE' and pg_has_role(v_me, 'pgfresh_operator', 'usage')
        and to_jsonb(new) - v_operators = to_jsonb(old) - v_operators) then
    perform pgfresh.refuse('PGF_JOB_RIGHT',
      format('the job %s belongs to %s, and %s is not a member of that role', old.name, old.owner, v_me::regrole),
      format('Ask %s, or an administrator.', old.owner));
  end if;
  if tg_op = 'DELETE' then
    return old;
  end if;
  if (tg_op = 'INSERT' or new.owner is distinct from old.owner)
      and new.owner <> v_me and not pgfresh.can_act_as(v_me, new.owner) then
    perform pgfresh.refuse('PGF_JOB_RIGHT',
      format('%s may not register a job that runs as %s', v_me::regrole, new.owner),
      format('Leave owner out, or run as an administrator: grant %s to %s;', new.owner, v_me::regrole));
  end if;
  -- What a handler does, it does with the rights of the process that runs it.
  if new.kind = 'handler' and (tg_op = 'INSERT'
      or (new.kind, new.function_name, new.params) is distinct from (old.kind, old.function_name, old.params))
      and not pgfresh.can_act_as(v_me, v_pgfresh) then
    perform pgfresh.refuse('PGF_JOB_RIGHT',
      format('%s may not register a handler, which runs with the rights of pgfresh', v_me::regrole),
      'Define the job in pgfresh.config.ts, or register an SQL function.');
  end if;
  return new;
end
$$;
comment on function pgfresh.check_job_right() is
  'Trigger of scheduled_jobs: a job is written by those who could do themselves what it does.';

create or replace function pgfresh.check_job_schedule(p_job pgfresh.scheduled_jobs) returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_problem text;
begin
  if (p_job.schedule is null) = (p_job.every_min is null) then
    perform pgfresh.refuse_job(
      case
        when p_job.schedule is null then 'a job needs a schedule or every_min'
        else 'a job has a schedule or every_min, not both'
      end,
      'Write schedule = ''0 3 * * *'', or every_min = ''10 minutes'' and every_max = ''15 minutes''.');
  elsif p_job.every_min > p_job.every_max or p_job.failure_min > p_job.failure_max then
    perform pgfresh.refuse_job(
      case
        when p_job.every_min > p_job.every_max then 'every_min is more than every_max'
        else 'failure_min is more than failure_max'
      end,
      'Exchange the two.');
  elsif p_job.every_min is null
      and (p_job.every_max is not null or p_job.failure_min is not null or p_job.failure_max is not null) then
    perform pgfresh.refuse_job('every_max, failure_min and failure_max need an every_min',
      'Leave them out where there is a schedule; retries say what is done about a failure.');
  elsif p_job.failure_min is null and p_job.failure_max is not null then
    perform pgfresh.refuse_job('failure_max needs a failure_min', 'Give both, or neither.');
  end if;
  v_problem := case when p_job.schedule is not null then pgfresh.cron_problem(p_job.schedule) end;
  if v_problem is not null then
    perform pgfresh.refuse_job(format('schedule %s: %s', left(quote_literal(p_job.schedule), 80), v_problem),
      'Write minute, hour, day of month, month and day of week, such as 30 2 * * MON-FRI, or a word such as @daily.');
  end if;
  if not pgfresh.is_time_zone(p_job.timezone) then
    perform pgfresh.refuse_job(format('timezone: there is no time zone %s', left(quote_literal(p_job.timezone), 80)),
      coalesce((
        select 'Did you mean ' || string_agg(near.name, ' or ') || '?'
        from (
          select name
          from pg_timezone_names
          where name !~ '^(posix|right)/' and length(p_job.timezone) between 3 and 50
            and regexp_replace(lower(name), '[^a-z]', '', 'g')
              like '%' || nullif(regexp_replace(lower(p_job.timezone), '[^a-z]', '', 'g'), '') || '%'
          order by length(name), name
          limit 3
        ) as near
      ), 'Use a name of the IANA database, such as UTC or America/New_York.'));
  end if;
end
$$;
comment on function pgfresh.check_job_schedule(pgfresh.scheduled_jobs) is 'Refuses a job whose times cannot be.';

/*
  What the function of a job is now; refuses it if it is not there, has another signature, or cannot be called as the
  job's owner. Never by the search path: a name has its schema, or it means public.
*/
create or replace function pgfresh.resolve_job(p_job pgfresh.scheduled_jobs) returns jsonb
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_parts text[] := string_to_array(p_job.function_name, '.');
  v_function record;
  v_pgfresh oid := (select nspowner from pg_namespace where nspname = 'pgfresh');
begin
  if not exists (select from pg_roles where oid = p_job.owner) then
    perform pgfresh.refuse_job(format('owner: there is no role %s', p_job.owner),
      'Give the job to a role that exists.');
  end if;
  if cardinality(v_parts) = 1 then
    v_parts := array['public'] || v_parts;
  end if;
  if p_job.function_name !~ '^([A-Za-z_][A-Za-z0-9_]{0,62}\.)?[A-Za-z_][A-Za-z0-9_]{0,62}$' then
    perform pgfresh.refuse_job(format('function_name %s is not a name', left(quote_literal(p_job.function_name), 80)),
      'Expected letters, digits and underscores, at most 63, with the schema and a dot before it if it is not public.');
  end if;
  select f.oid, f.xmin || ' ' || f.ctid as stamp, f.proowner, f.prosecdef, f.pronargs, n.oid as schema, n.nspname
  into v_function
  from pg_proc as f
  join pg_namespace as n on n.oid = f.pronamespace
  where n.nspname = v_parts[1] and f.proname = v_parts[2] and oidvectortypes(f.proargtypes) in ('', 'jsonb')
    and f.prorettype = 'jsonb'::regtype and f.prokind = 'f' and not f.proretset
  order by f.pronargs desc
  limit 1;
  if not found then
    perform pgfresh.refuse_job(
      format('function_name: there is no function %I.%I() or %I.%I(jsonb) that returns jsonb',
        v_parts[1], v_parts[2], v_parts[1], v_parts[2]),
      coalesce((
        select 'There is ' || string_agg(near.found, ' and ') || '.'
        from (
          select format('%I.%I(%s)%s', n.nspname, f.proname, oidvectortypes(f.proargtypes),
            case
              when f.prokind = 'p' then ', a procedure'
              when f.proretset then ', which returns many rows'
              else ', which returns ' || format_type(f.prorettype, null)
            end) as found
          from pg_proc as f
          join pg_namespace as n on n.oid = f.pronamespace
          where lower(f.proname) = lower(v_parts[2]) and n.nspname !~ '^pg_'
          order by (n.nspname = v_parts[1]) desc, n.nspname, f.oid
          limit 3
        ) as near
      ), 'Create it, or correct function_name.'));
  end if;
  if not has_function_privilege(p_job.owner, v_function.oid, 'execute')
      or not has_schema_privilege(p_job.owner, v_function.schema, 'usage') then
    perform pgfresh.refuse_job(
      format('function_name: %s may not call %s', p_job.owner, v_function.oid::regprocedure),
      format('Run: grant usage on schema %s to %s; grant execute on function %s to %s;',
        v_function.schema::regnamespace, p_job.owner, v_function.oid::regprocedure, p_job.owner));
  end if;
  if v_function.pronargs = 0 and p_job.params <> '{}' then
    perform pgfresh.refuse_job(format('params: %s takes none', v_function.oid::regprocedure),
      'Leave params out, or give the function an argument of type jsonb.');
  end if;
  -- The function that runs it belongs to the owner, and only one of his members can make that.
  if not pg_has_role(v_pgfresh, p_job.owner, 'usage') then
    perform pgfresh.refuse_job(format('owner: pgfresh may not run anything as %s', p_job.owner),
      format('Run as an administrator: grant %s to %s;', p_job.owner, v_pgfresh::regrole));
  end if;
  return jsonb_build_object(
    'signature', v_function.oid::regprocedure::text, 'function', v_function.oid, 'stamp', v_function.stamp,
    'schema', v_function.nspname, 'owner', v_function.proowner, 'definer', v_function.prosecdef,
    'body', case when v_function.nspname <> 'pgfresh' then md5(pg_get_functiondef(v_function.oid)) end,
    'call', format('select %I.%I(%s)', v_parts[1], v_parts[2], case when v_function.pronargs = 1 then '$1' else '' end),
    'path', format('%I, public, pg_temp', v_parts[1]));
end
$$;
comment on function pgfresh.resolve_job(pgfresh.scheduled_jobs) is
  'Looks up the function that a job names; refuses it if it is missing or does not fit.';

create or replace function pgfresh.complete_job() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_missing text;
  v_same boolean := tg_op = 'UPDATE' and to_jsonb(new) - 'problem' = to_jsonb(old) - 'problem';
begin
  -- Said by a scheduler, not by somebody who writes the job.
  if v_same and new.problem is distinct from old.problem then
    return new;
  end if;
  new.kind := coalesce(new.kind, 'sql');
  if new.kind = 'handler' then
    new.function_name := coalesce(new.function_name, new.name);
  end if;
  if num_nulls(
    new.name, new.function_name, new.timezone, new.enabled, new.params, new.timeout, new.retries, new.retry_base,
    new.catch_up, new.catch_up_max, new.overlap, new.jitter, new.blackout_dates,
    new.owner, new.managed_by
  ) > 0 then
    select key
    into v_missing
    from jsonb_each(to_jsonb(new))
    where value = 'null' and key in (
      'name', 'function_name', 'timezone', 'enabled', 'params', 'timeout', 'retries', 'retry_base',
      'catch_up', 'catch_up_max', 'overlap', 'jitter', 'blackout_dates',
      'owner', 'managed_by'
    )
    order by key
    limit 1;
    perform pgfresh.refuse_job(format('%s must not be null', v_missing),
      case
        when v_missing in ('name', 'function_name') then 'Give it a value.'
        else 'Leave the column out to have its default.'
      end);
  end if;
  if new.name !~ '^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$' then
    perform pgfresh.refuse_job(format('name %s is not one', left(quote_literal(new.name), 80)),
      'Expected letters, digits, underscores, dots and dashes, at most 100, with a letter or digit first.');
  elsif new.kind not in ('sql', 'handler') or new.catch_up not in ('once', 'skip', 'all')
      or new.overlap not in ('skip', 'queue') or new.managed_by not in ('config', 'sql') then
    perform pgfresh.refuse_job(
      format('%s must be %s, got %s', w.word, w.choice, left(quote_literal(w.value), 80)),
      'Choose one of these.')
    from (values
      (1, 'kind', 'sql or handler', new.kind, new.kind in ('sql', 'handler')),
      (2, 'catch_up', 'once, skip or all', new.catch_up, new.catch_up in ('once', 'skip', 'all')),
      (3, 'overlap', 'skip or queue', new.overlap, new.overlap in ('skip', 'queue')),
      (4, 'managed_by', 'config or sql', new.managed_by, new.managed_by in ('config', 'sql'))
    ) as w(place, word, choice, value, good)
    where not w.good
    order by w.place
    limit 1;
  elsif octet_length(new.description) > 4000 or octet_length(new.function_name) not between 1 and 200 then
    perform pgfresh.refuse_job(
      format('%s is too long',
        case when octet_length(new.description) > 4000 then 'description' else 'function_name' end),
      'A description has at most 4000 bytes, and the name of a function 1 to 200.');
  elsif new.kind = 'handler' and new.function_name !~ '^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$' then
    perform pgfresh.refuse_job(
      format('function_name %s is not the name of a handler', left(quote_literal(new.function_name), 80)),
      'Write the name of a job of pgfresh.config.ts that has a handler.');
  elsif jsonb_typeof(new.params) <> 'object' or octet_length(new.params::text) > 65536 then
    perform pgfresh.refuse_job(
      format('params must be an object of at most 65536 bytes, got %s of %s',
        jsonb_typeof(new.params), octet_length(new.params::text)),
      'For instance {"days": 30}.');
  elsif new.retries not between 0 and 100 or new.catch_up_max not between 1 and 10000 then
    perform pgfresh.refuse_job(
      case
        when new.retries not between 0 and 100 then format('retries must be from 0 to 100, got %s', new.retries)
        else format('catch_up_max must be from 1 to 10000, got %s', new.catch_up_max)
      end,
      'Pass a value in that range.');
  elsif coalesce(array_ndims(new.blackout_dates), 1) <> 1 or cardinality(new.blackout_dates) > 1000
      or array_position(new.blackout_dates, null) is not null
      or 'infinity' = any (new.blackout_dates) or '-infinity' = any (new.blackout_dates) then
    perform pgfresh.refuse_job('blackout_dates must be a list of at most 1000 dates',
      'For instance {2026-12-24,2026-12-25}.');
  elsif new.paused_at is null
      and (new.paused_by is not null or new.paused_reason is not null or new.paused_until is not null) then
    perform pgfresh.refuse_job('paused_by, paused_reason and paused_until need a paused_at',
      'Call pgfresh.pause_scheduled_job(name, reason, until).');
  elsif octet_length(new.paused_by) > 200 or octet_length(new.paused_reason) > 1000 then
    perform pgfresh.refuse_job('paused_by has at most 200 bytes, and paused_reason 1000', 'Say it in fewer words.');
  end if;

  new.every_max := coalesce(new.every_max, new.every_min);
  new.failure_max := coalesce(new.failure_max, new.failure_min);
  perform pgfresh.refuse_job(
    format('%s must be from %s to %s, got %s', b.name, b.low, b.high, b.value),
    format('Correct %s, for instance ''10 minutes''.', b.name))
  from (values
    (1, 'every_min', new.every_min, interval '1 second', interval '366 days'),
    (2, 'every_max', new.every_max, '1 second', '366 days'),
    (3, 'failure_min', new.failure_min, '1 second', '366 days'),
    (4, 'failure_max', new.failure_max, '1 second', '366 days'),
    (5, 'timeout', new.timeout, '1 millisecond', '1 day'),
    (6, 'retry_base', new.retry_base, '1 second', '1 day'),
    (7, 'catch_up_window', new.catch_up_window, '1 second', '366 days'),
    (8, 'jitter', new.jitter, '0', '1 day')
  ) as b(place, name, value, low, high)
  where b.value < b.low or b.value > b.high
  order by b.place
  limit 1;
  -- In hours and less, because a day of the server's own zone may have 23 of them.
  new.every_min := make_interval(secs => extract(epoch from new.every_min)::float8);
  new.every_max := make_interval(secs => extract(epoch from new.every_max)::float8);
  new.failure_min := make_interval(secs => extract(epoch from new.failure_min)::float8);
  new.failure_max := make_interval(secs => extract(epoch from new.failure_max)::float8);
  new.timeout := make_interval(secs => extract(epoch from new.timeout)::float8);
  new.retry_base := make_interval(secs => extract(epoch from new.retry_base)::float8);
  new.catch_up_window := make_interval(secs => extract(epoch from new.catch_up_window)::float8);
  new.jitter := make_interval(secs => extract(epoch from new.jitter)::float8);
  new.updated_at := pgfresh.clock();
  new.created_at := case when tg_op = 'INSERT' then new.updated_at else old.created_at end;
  new.problem := null;

  -- A job whose function is gone can be paused or disabled all the same.
  if tg_op = 'INSERT' or v_same
      or (new.schedule, new.timezone, new.every_min, new.every_max, new.failure_min, new.failure_max)
      is distinct from (old.schedule, old.timezone, old.every_min, old.every_max, old.failure_min, old.failure_max) then
    perform pgfresh.check_job_schedule(new);
  end if;
  if new.kind = 'handler' then
    new.resolution := null;
  elsif tg_op = 'INSERT' or v_same or (new.enabled and not old.enabled)
      or (new.kind, new.function_name, new.owner, new.params)
      is distinct from (old.kind, old.function_name, old.owner, old.params) then
    new.resolution := pgfresh.resolve_job(new);
    perform pgfresh.make_job_runner(new.owner);
  else
    new.resolution := old.resolution;
  end if;
  return new;
end
$$;
comment on function pgfresh.complete_job() is
  'Trigger of scheduled_jobs: checks every value, looks up what the function''s name means, '
  'and refuses what does not fit.';

create or replace function pgfresh.forget_job() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if not exists (select from pgfresh.scheduled_jobs where owner = old.owner and kind = 'sql') then
    execute format('drop function if exists pgfresh.run_as_%s(text, text, jsonb)', old.owner::oid);
  end if;
  return null;
end
$$;
comment on function pgfresh.forget_job() is
  'Trigger of scheduled_jobs: a role that has no job any more has nothing in the schema either.';

/*
  A run that is under way belongs to its scheduler, and a function holds its row until it has ended. So it is left to
  its scheduler, who is told, and its end finds no job any more and takes it away. Everything else goes now; what is
  being ended at this moment ends by itself.
*/
create or replace function pgfresh.end_job_runs() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  delete from pgfresh.scheduled_job_runs
  where id in (
    select id
    from pgfresh.scheduled_job_runs
    where job_id = old.id and state <> 'running'
    order by id
    for update skip locked
  );
  perform pg_notify('pgfresh_schedule', 'cancel');
  return null;
end
$$;
comment on function pgfresh.end_job_runs() is
  'Trigger of scheduled_jobs: forgets the runs of a job that was deleted, and has its scheduler stop one under way.';

-- In the order of their names: first who, then what.
do $$
declare
  -- The end of every run writes when it began, and has nothing to be checked.
  v_columns text := (
    select string_agg(quote_ident(attname), ', ')
    from pg_attribute
    where attrelid = 'pgfresh.scheduled_jobs'::regclass and attnum > 0 and not attisdropped
      and attname <> 'last_run_at'
  );
begin
  execute format('create or replace trigger a_check_job_right before insert or delete or update of %s '
    'on pgfresh.scheduled_jobs for each row execute function pgfresh.check_job_right()', v_columns);
  execute format('create or replace trigger b_complete_job before insert or update of %s '
    'on pgfresh.scheduled_jobs for each row execute function pgfresh.complete_job()', v_columns);
end
$$;
create or replace trigger d_end_job_runs after delete on pgfresh.scheduled_jobs
  for each row execute function pgfresh.end_job_runs();
create or replace trigger c_forget_job after delete or update of owner, kind on pgfresh.scheduled_jobs
  for each row execute function pgfresh.forget_job();

/*
  Whoever replaces the body of a function has everything done that the job's owner may do. He must be one who could do
  it anyway. A function that runs with the rights of its own owner gives nobody the rights of the job's.
*/
create or replace function pgfresh.job_change(p_job pgfresh.scheduled_jobs, p_now jsonb) returns text
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_owner regrole := (p_now ->> 'owner')::oid;
begin
  return case
    when p_now -> 'owner' is distinct from p_job.resolution -> 'owner' then
      format('%s belongs to %s now, and to another role when the job was registered', p_now ->> 'signature', v_owner)
    when p_now -> 'body' is distinct from p_job.resolution -> 'body'
      and not (p_now -> 'definer')::boolean and not pgfresh.can_act_as(v_owner, p_job.owner) then
      format('%s was changed by %s, who could not do as %s', p_now ->> 'signature', v_owner, p_job.owner)
  end;
end
$$;
comment on function pgfresh.job_change(pgfresh.scheduled_jobs, jsonb) is
  'What of a job''s function is not any more as it was registered, if that matters; null if it does not.';

/*
  The same row of the catalogue is the same function, with the same owner and for the same roles. What is not in that
  row is looked at here, as the owner of the schema, and of a role that is gone only the number is left. This is for the
  many times at which nothing has changed; resolve_job finds out what has.
*/
create or replace function pgfresh.is_job_as_registered(p_job pgfresh.scheduled_jobs) returns boolean
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  return exists (
    select from pg_proc as f
    join pg_namespace as n on n.oid = f.pronamespace
    where f.oid = (p_job.resolution ->> 'function')::oid and f.xmin || ' ' || f.ctid = p_job.resolution ->> 'stamp'
      and n.nspname = p_job.resolution ->> 'schema'
      and (f.pronargs = 1 or p_job.params = '{}')
      and has_function_privilege(p_job.owner, f.oid, 'execute') and has_schema_privilege(p_job.owner, n.oid, 'usage')
  ) and pg_get_userbyid(p_job.owner) !~ '^unknown' and pg_has_role(p_job.owner, 'usage');
end
$$;
comment on function pgfresh.is_job_as_registered(pgfresh.scheduled_jobs) is
  'Whether the function of a job is for certain the one that was registered, and can be called. '
  'If not, resolve_job says what it is now.';

create or replace function pgfresh.accept_job(p_name text) returns text
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
  select format('See whether the change is meant, then accept it: '
    'update pgfresh.scheduled_jobs set name = name where name = %L;', p_name)
$$;
comment on function pgfresh.accept_job(text) is 'What to do about a function that has changed.';

create or replace function pgfresh.job_problem(p_job pgfresh.scheduled_jobs)
returns table (problem text, next_step text)
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  if p_job.kind = 'handler' or pgfresh.is_job_as_registered(p_job) then
    return;
  end if;
  begin
    problem := pgfresh.job_change(p_job, pgfresh.resolve_job(p_job));
    next_step := pgfresh.accept_job(p_job.name);
  exception when sqlstate 'PGF01' then
    get stacked diagnostics problem = message_text, next_step = pg_exception_hint;
    problem := regexp_replace(problem, '^PGF_\w+: ', '');
  end;
  if problem is not null then
    return next;
  end if;
end
$$;
comment on function pgfresh.job_problem(pgfresh.scheduled_jobs) is
  'Why a job cannot run now, and what to do; no row if it can. '
  'What only a scheduler can see is in the column problem.';

create or replace function pgfresh.require_job(p_name text) returns pgfresh.scheduled_jobs
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_job pgfresh.scheduled_jobs;
begin
  select * into v_job from pgfresh.scheduled_jobs where name = p_name collate "C";
  if not found then
    perform pgfresh.refuse('PGF_JOB_UNKNOWN',
      format('there is no job %s', coalesce(left(quote_literal(p_name), 80), 'null')),
      'The known ones: select name from pgfresh.scheduled_jobs.');
  end if;
  return v_job;
end
$$;
comment on function pgfresh.require_job(text) is 'A job by its name; refuses one that is not there.';

create or replace function pgfresh.require_job_right(p_name text) returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_job pgfresh.scheduled_jobs := pgfresh.require_job(p_name);
  v_me oid := quote_ident(current_user)::regrole;
begin
  if not pgfresh.can_act_as(v_me, v_job.owner)
      and not pgfresh.can_act_as(v_me, (select nspowner from pg_namespace where nspname = 'pgfresh'))
      and not pg_has_role(v_me, 'pgfresh_operator', 'usage') then
    perform pgfresh.refuse('PGF_JOB_RIGHT',
      format('the job %s belongs to %s, and %s is not a member of that role', v_job.name, v_job.owner, v_me::regrole),
      format('Ask %s, or an administrator.', v_job.owner));
  end if;
end
$$;
comment on function pgfresh.require_job_right(text) is
  'Refuses a job that the current user may not decide about: they must be a member of its owner, of the schema''s, '
  'or of pgfresh_operator. '
  'Runs with the rights of its caller, whom it would not know otherwise.';

create or replace function pgfresh.pause_scheduled_job(
  p_name text, p_reason text default null, p_until timestamptz default null)
returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_paused boolean;
begin
  perform pgfresh.require_job_right(p_name);
  if octet_length(p_reason) > 1000 or p_until <= pgfresh.clock() or not isfinite(p_until) then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      case
        when octet_length(p_reason) > 1000 then 'p_reason has at most 1000 bytes'
        else format('p_until must be a time to come, got %s', p_until)
      end,
      'Leave p_until out to pause it until it is resumed.');
  end if;
  select paused_at is not null into v_paused from pgfresh.scheduled_jobs where name = p_name collate "C";
  update pgfresh.scheduled_jobs
  set paused_at = coalesce(paused_at, pgfresh.clock()), paused_by = current_user,
    paused_reason = p_reason, paused_until = p_until
  where name = p_name collate "C";
  return not v_paused;
end
$$;
comment on function pgfresh.pause_scheduled_job(text, text, timestamptz) is
  'Holds a job back, until a time or until it is resumed. Its slots are recorded as skipped. '
  'Returns whether it was not paused before.';

create or replace function pgfresh.resume_scheduled_job(p_name text) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  perform pgfresh.require_job_right(p_name);
  -- One that is over stays as it was: it says which of the slots that are still to be settled were paused.
  update pgfresh.scheduled_jobs
  set paused_at = null, paused_by = null, paused_reason = null, paused_until = null
  where name = p_name collate "C" and paused_at is not null and coalesce(paused_until > pgfresh.clock(), true);
  return found;
end
$$;
comment on function pgfresh.resume_scheduled_job(text) is
  'Lets a paused job go on with its next slot. Returns whether it was paused.';

insert into pgfresh.migrations (kind, name, hash) values ('functions'::text, 'jobs'::text, '90b77989ec80b7b139ec1ab725176d9b86077b659ee125902b36fcdc11fa3c09'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- functions keys
/*
  The one definition of how a key is spelled: only A to Z have two cases here. What else has a capital letter depends on
  the server's version and collation and on who is asked, and a key must be the same for all of them. canonicalKey in
  src/registry is the same in TypeScript.
*/
create or replace function pgfresh.canonical_key(p_key text, p_normalise text) returns text
language sql immutable parallel safe
as $$
  select case p_normalise
    when 'upper' then pg_catalog.upper(p_key collate pg_catalog."C")
    when 'lower' then pg_catalog.lower(p_key collate pg_catalog."C")
    else p_key
  end
$$;
comment on function pgfresh.canonical_key(text, text) is
  'A key in the case of its data type (upper, lower or none). Only the letters A to Z are changed.';

/*
  A pair that another transaction has added and not yet committed cannot be seen, and SKIP LOCKED cannot skip it: an
  insert of the same pair waits for that transaction, however long it stays open. So whatever adds pairs gives up after
  a few milliseconds, and leaves such pairs to a later time.
*/
create or replace function pgfresh.add_pairs(p_type_id int, p_keys text[], p_job_ids bigint[]) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '5ms'
as $$
begin
  insert into pgfresh.pairs (type_id, key, job_id) select p_type_id, unnest(p_keys), unnest(p_job_ids);
  return true;
exception when unique_violation or lock_not_available then
  return false;
end
$$;
comment on function pgfresh.add_pairs(int, text[], bigint[]) is
  'Adds new pairs with their jobs; false, and none of them, if another transaction has added one of them. '
  'A part of queue_refreshes.';

/*
  All at once first. If that has to wait, one by one, in a random order: each that is locked then costs one wait, those
  before it are added, and it goes on behind it. After ten of them the rest is left to a later time, and the random
  order lets that one find others.
*/
create or replace function pgfresh.make_pairs(p_type_id int, p_keys text[]) returns text[]
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set lock_timeout = '5ms'
as $$
declare
  v_new text[] := array(
    select distinct k.key collate "C"
    from unnest(p_keys) as k(key)
    where (select true from pgfresh.pairs as p where p.type_id = p_type_id and p.key = k.key collate "C") is null
    order by 1);
  v_count int := cardinality(v_new);
  v_locked text[] := '{}';
  v_from int := 1;
  -- The last of those before a locked one; null while that is not known.
  v_until int;
  v_at int;
begin
  if v_count = 0 then
    return v_new;
  end if;
  -- Without a lock: what is added to a data type that is just being removed, follow_changes clears.
  if not exists (select from pgfresh.data_type_registry where type_id = p_type_id) then
    return v_new;
  end if;
  for v_try in 0..20 loop
    exit when v_from > v_count;
    if v_try = 1 then
      v_new := array(select n from unnest(v_new) as n order by random());
    end if;
    v_at := null;
    begin
      if v_try = 0 or v_until is not null then
        insert into pgfresh.pairs (type_id, key)
        select p_type_id, unnest(v_new[v_from:coalesce(v_until, v_count)])
        on conflict do nothing;
      else
        for i in v_from..v_count loop
          v_at := i;
          insert into pgfresh.pairs (type_id, key) values (p_type_id, v_new[i]) on conflict do nothing;
        end loop;
      end if;
      v_from := coalesce(v_until + 2, v_count + 1);
      v_until := null;
    exception when lock_not_available then
      if v_until is not null then
        v_locked := v_locked || v_new[v_from:v_until];
        v_from := v_until + 2;
        v_until := null;
      elsif v_at is not null then
        v_locked := v_locked || v_new[v_at];
        if v_at = v_from then
          v_from := v_from + 1;
        else
          v_until := v_at - 1;
        end if;
      end if;
    end;
  end loop;
  return v_locked || v_new[v_from:];
end
$$;
comment on function pgfresh.make_pairs(int, text[]) is
  'Adds those pairs of a data type that are not there yet, and waits for nobody. Returns the keys of those that it '
  'left out, because another transaction has added them and is still open.';

create or replace function pgfresh.has_key_rules(p_type pgfresh.data_type_registry) returns boolean
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
  select p_type.key_table is not null or p_type.key_pattern is not null or p_type.normalise <> 'none'
    or cardinality(p_type.key_columns) > 1
$$;
comment on function pgfresh.has_key_rules(pgfresh.data_type_registry) is
  'Whether a text can be no key of the data type. A part of the planner.';

create or replace function pgfresh.unlisted_keys(p_type pgfresh.data_type_registry, p_keys text[]) returns text[]
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '100ms'
as $$
begin
  if not pgfresh.has_key_rules(p_type) then
    return '{}';
  end if;
  return array(
    select p_keys[j.place]
    from pgfresh.judge_keys(p_type, p_keys) as j
    where j.code is not null or j.key <> p_keys[j.place]);
-- A data type whose key table cannot be asked is left alone for that, not for its keys.
exception when others then
  return '{}';
end
$$;
comment on function pgfresh.unlisted_keys(pgfresh.data_type_registry, text[]) is
  'Those of these keys that are no keys of the data type any more: gone from its key table or inactive there, '
  'or not as its pattern, its case and its columns want them.';

create or replace function pgfresh.admitted_keys(p_type pgfresh.data_type_registry, p_keys text[]) returns text[]
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '100ms'
as $$
begin
  return array(
    select distinct j.key collate "C" from pgfresh.judge_keys(p_type, p_keys) as j where j.code is null order by 1);
exception when others then
  return '{}';
end
$$;
comment on function pgfresh.admitted_keys(pgfresh.data_type_registry, text[]) is
  'Those of these keys that the data type has, as it spells them, in order; none while they cannot be asked for.';

insert into pgfresh.migrations (kind, name, hash) values ('functions'::text, 'keys'::text, '49560fc6432f052f28f7174f142e86db1bd595de49c2778a407a3ec33fac2f70'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- functions leases
create or replace function pgfresh.require_label(p_name text, p_value text, p_hint text) returns void
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  if p_value is null or p_value = '' or octet_length(p_value) > 200 or p_value ~ '[[:cntrl:]]' then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      format('%s must have 1 to 200 bytes and no control characters, got %s',
        p_name, coalesce(left(quote_literal(p_value), 60), 'null')),
      p_hint);
  end if;
end
$$;
comment on function pgfresh.require_label(text, text, text) is
  'Refuses what cannot be the name of a lease or of its holder.';

create or replace function pgfresh.require_lease(p_name text, p_token bigint) returns void
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  perform pgfresh.require_label('p_name', p_name, 'Pass the name of the work, for instance refresh_opening_signals.');
  if p_token is null then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      'p_token must be a number, got null',
      'Pass the token that acquire_refresh_lock has answered with the reason acquired.');
  end if;
end
$$;
comment on function pgfresh.require_lease(text, bigint) is 'Refuses what cannot be a lease and its token.';

create or replace function pgfresh.why_not_now(p_row pgfresh.refresh_schedule, p_manual boolean) returns text
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  select case
    when not p_row.enabled then 'disabled'
    when p_row.locked_until > now.now then 'locked'
    when not p_manual and p_row.next_run_at > now.now then 'not_due'
  end
  from pgfresh.clock() as now(now)
$$;
comment on function pgfresh.why_not_now(pgfresh.refresh_schedule, boolean) is
  'Why a lease cannot be taken this moment; null if it can.';

/*
  Waits for nobody, so that any number of callers cannot stand in each other's way, and none of them in a deadlock.
  Those who come while it is held only read a row. The row is locked by the few who saw it free at the same moment; of
  them, who finds it locked has lost. It may also be locked by a fence: then somebody who had the lease is committing
  what he did under it.
*/
create or replace function pgfresh.acquire_refresh_lock(
  p_name text, p_holder text, p_lease interval default '5 minutes', p_manual boolean default false, out reason text,
  out token bigint, out locked_until timestamptz, out next_run_at timestamptz)
returns record
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_row pgfresh.refresh_schedule;
begin
  perform pgfresh.require_label('p_name', p_name, 'Pass the name of the work, for instance refresh_opening_signals.');
  perform pgfresh.require_label('p_holder', p_holder,
    'Pass something by which people find who it is, for instance the host and the process id.');
  perform pgfresh.require_range('p_lease in seconds', extract(epoch from p_lease), 1, 86400);
  if p_manual is null then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      'p_manual must be true or false, got null',
      'Leave it out to run only what is due.');
  end if;
  perform pgfresh.require_primary();

  select * into v_row from pgfresh.refresh_schedule as s where s.function_name = p_name collate "C";
  if not found then
    -- An insert would wait for another one of the same name, and this does not.
    if not pg_try_advisory_xact_lock(7043, hashtext(p_name collate "C")) then
      reason := 'locked';
      return;
    end if;
    insert into pgfresh.refresh_schedule (function_name) values (p_name) on conflict do nothing;
  else
    reason := pgfresh.why_not_now(v_row, p_manual);
  end if;

  if reason is null then
    select *
    into v_row
    from pgfresh.refresh_schedule as s
    where s.function_name = p_name collate "C"
    for no key update skip locked;
    -- What was free a moment ago may be taken, or have been given back, by now.
    reason := case when found then coalesce(pgfresh.why_not_now(v_row, p_manual), 'acquired') else 'locked' end;
  end if;
  if reason = 'acquired' then
    update pgfresh.refresh_schedule as s
    set locked_until = now.now + make_interval(secs => extract(epoch from p_lease)::float8),
      locked_by = p_holder, locked_at = now.now, lock_token = nextval('pgfresh.lock_token')
    from pgfresh.clock() as now(now)
    where s.function_name = p_name collate "C"
    returning s.* into v_row;
    token := v_row.lock_token;
  end if;
  if reason in ('acquired', 'locked') then
    locked_until := v_row.locked_until;
  end if;
  next_run_at := v_row.next_run_at;
end
$$;
comment on function pgfresh.acquire_refresh_lock(text, text, interval, boolean) is
  'Takes the lease of a piece of work. '
  'The reason is acquired, locked (until when), not_due (until when) or disabled; only the first has a token. '
  'The first call of a name makes its row. A manual call need not be due.';

create or replace function pgfresh.lock_lease(p_name text, p_token bigint) returns pgfresh.refresh_schedule
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_row pgfresh.refresh_schedule;
begin
  perform pgfresh.require_lease(p_name, p_token);
  -- The time is read after the row is locked: who had to wait may have lost it meanwhile.
  select * into v_row from pgfresh.refresh_schedule as s where s.function_name = p_name collate "C" for no key update;
  if v_row.lock_token = p_token and v_row.locked_until > pgfresh.clock() then
    return v_row;
  end if;
  return null;
end
$$;
comment on function pgfresh.lock_lease(text, bigint) is
  'The row of a lease that is held by this token, locked; null if it is lost.';

create or replace function pgfresh.renew_refresh_lock(
  p_name text, p_token bigint, p_lease interval default '5 minutes', out reason text, out locked_until timestamptz)
returns record
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  perform pgfresh.require_range('p_lease in seconds', extract(epoch from p_lease), 1, 86400);
  reason := 'lost';
  if (pgfresh.lock_lease(p_name, p_token)).function_name is not null then
    update pgfresh.refresh_schedule as s
    set locked_until = pgfresh.clock() + make_interval(secs => extract(epoch from p_lease)::float8)
    where s.function_name = p_name collate "C"
    returning 'renewed', s.locked_until into reason, locked_until;
  end if;
end
$$;
comment on function pgfresh.renew_refresh_lock(text, bigint, interval) is
  'Holds a lease for longer, from now on. '
  'The reason is renewed, or lost if it had ended or was taken by somebody else: then stop the work.';

create or replace function pgfresh.release_refresh_lock(
  p_name text, p_token bigint, p_success boolean default null, p_next_in interval default null, out reason text,
  out next_run_at timestamptz)
returns record
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_row pgfresh.refresh_schedule;
  v_now timestamptz;
  v_low interval;
  v_high interval;
begin
  if p_next_in is not null then
    perform pgfresh.require_range('p_next_in in seconds', extract(epoch from p_next_in), 0, 366 * 86400);
  end if;
  reason := 'lost';
  v_row := pgfresh.lock_lease(p_name, p_token);
  if v_row.function_name is null then
    return;
  end if;
  v_now := pgfresh.clock();
  if p_success then
    v_row.last_status := 'success';
    v_row.failures_in_row := 0;
    v_low := coalesce(p_next_in, v_row.success_wait_min);
    v_high := coalesce(p_next_in, v_row.success_wait_max);
  elsif not p_success then
    v_row.last_status := 'failed';
    v_row.failures_in_row := v_row.failures_in_row + 1;
    v_low := coalesce(p_next_in, v_row.failure_wait_min);
    v_high := coalesce(p_next_in, v_row.failure_wait_max);
  end if;
  if p_success is not null then
    v_row.last_run_at := v_now;
    -- A run ahead of its time, by hand, leaves the next one where it was planned, unless it says when that is.
    if p_next_in is not null or v_row.next_run_at is null or v_row.next_run_at <= v_row.locked_at then
      v_row.next_run_at := v_now
        + make_interval(secs => extract(epoch from v_low + random() * (v_high - v_low))::float8);
    end if;
  end if;
  update pgfresh.refresh_schedule as s
  set locked_until = null, locked_by = null, locked_at = null,
    last_run_at = v_row.last_run_at, last_status = v_row.last_status,
    failures_in_row = v_row.failures_in_row, next_run_at = v_row.next_run_at
  where s.function_name = p_name collate "C"
  returning 'released', s.next_run_at into reason, next_run_at;
end
$$;
comment on function pgfresh.release_refresh_lock(text, bigint, boolean, interval) is
  'Ends a run: gives its lease back, records success or failure and plans the next run, '
  'after the time that is passed or one within the waits of the row; '
  'an early run by hand leaves it as it was planned, unless a time is passed. '
  'Null instead of a success only gives it back. The reason is released, or lost: then nothing was recorded.';

create or replace function pgfresh.fence_refresh_lock(p_name text, p_token bigint) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_row pgfresh.refresh_schedule;
  v_now timestamptz;
begin
  perform pgfresh.require_lease(p_name, p_token);
  -- Shared, so that several transactions of one holder do not wait for each other,
  -- and until the commit, so that nobody takes the lease before it.
  select * into v_row from pgfresh.refresh_schedule as s where s.function_name = p_name collate "C" for share;
  v_now := pgfresh.clock();
  if v_row.lock_token = p_token and v_row.locked_until > v_now then
    return;
  end if;
  perform pgfresh.refuse('PGF_LOCK_LOST',
    format('the lease of %s with token %s is lost: %s', left(quote_literal(p_name), 60), p_token, case
      when v_row.function_name is null then 'there is no such lease'
      when v_row.lock_token <> p_token then format('it was taken with token %s', v_row.lock_token)
      when v_row.locked_until is null then 'it was given back'
      else format('it ended %s s ago', round(extract(epoch from v_now - v_row.locked_until), 1))
    end), 'Write nothing more under it; the work will be done by who takes the lease next.');
end
$$;
comment on function pgfresh.fence_refresh_lock(text, bigint) is
  'To be called last in a transaction that writes what was done under a lease: '
  'raises if the lease is lost, and lets nobody take it before the commit.';

insert into pgfresh.migrations (kind, name, hash) values ('functions'::text, 'leases'::text, '2f1887b3d2c22e70477e6f4e103e56cbb2ee766287ef311a39cabdc6a95844a6'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- functions ledger
/*
  Every source has a state row, with and without limits. One that was deleted and is added again under its name gets its
  number back: what it has called, used and reserved is the provider's count, and does not begin anew.
*/
create or replace function pgfresh.keep_source_id() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_past pgfresh.source_past;
begin
  if tg_op = 'DELETE' then
    insert into pgfresh.source_past (name, source_id, rated)
    values (old.name, old.id, old.rate_limit_per_minute is not null)
    on conflict (name) do update set source_id = excluded.source_id, rated = excluded.rated;
    return null;
  end if;
  delete from pgfresh.source_past where name = new.name returning * into v_past;
  new.id := coalesce(v_past.source_id, new.id);
  if not v_past.rated and new.rate_limit_per_minute is not null then
    perform pgfresh.count_unknown_calls(new.id, new.api_keys);
  end if;
  return new;
end
$$;
comment on function pgfresh.keep_source_id() is
  'Trigger of sources: one that is added again under the name of one that was deleted gets its number.';

create or replace trigger keep_source_id before insert on pgfresh.sources
  for each row execute function pgfresh.keep_source_id();
create or replace trigger remember_source_id after delete on pgfresh.sources
  for each row execute function pgfresh.keep_source_id();

create or replace function pgfresh.add_source_state() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  insert into pgfresh.source_state (source_id, level_at) values (new.id, pgfresh.clock()) on conflict do nothing;
  return null;
end
$$;
comment on function pgfresh.add_source_state() is 'Trigger of sources: each has a state row.';

create or replace trigger add_source_state after insert on pgfresh.sources
  for each row execute function pgfresh.add_source_state();

/*
  What a source may still use now. The cap is the quota times its buffer. Two limits hold together:
  - the cap itself: what was used in the rolling window, plus what is reserved;
  - the pace: a bucket that drains evenly, so that a window never ends in a blackout. It is one day of the quota deep,
    at most half of it, and drains at what is left of the cap over the window, so that a full bucket and a window of
    draining are together just the cap. A job that is larger than the bucket may start when it is empty, and is paid
    back by waiting.
*/
create or replace function pgfresh.source_budget(p_source_id int)
returns table (
  cap bigint, used bigint, reserved bigint, depth bigint, rate double precision, level double precision,
  free bigint)
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_now timestamptz := pgfresh.clock();
  v_source pgfresh.sources;
  v_state pgfresh.source_state;
  v_seconds double precision;
begin
  select * into v_source from pgfresh.sources where id = p_source_id;
  select * into v_state from pgfresh.source_state where source_id = p_source_id;
  if v_source.quota_bytes is null then
    return;
  end if;
  v_seconds := extract(epoch from v_source.quota_window);
  cap := floor(v_source.quota_bytes * v_source.quota_buffer);
  -- The oldest hour counts whole, so the window is never shorter than the provider's.
  -- A correction of what has left it counts no more.
  select greatest(0, coalesce(sum(bytes), 0))
  into used
  from pgfresh.usage
  where source_id = p_source_id and hour > v_now - v_source.quota_window - interval '1 hour';
  reserved := v_state.reserved;
  depth := floor(cap * least(0.5, 86400 / v_seconds));
  rate := (cap - depth) / v_seconds;
  -- What has left the window has left the bucket too.
  -- A clock that was set back drains nothing; it must not fill the bucket.
  level := least(used + reserved,
    greatest(0, v_state.level - rate * extract(epoch from greatest(v_now - v_state.level_at, interval '0'))));
  free := floor(greatest(0, least(cap - used - reserved, depth - level)));
  return next;
end
$$;
comment on function pgfresh.source_budget(int) is
  'What a source with a quota has used, reserved and free now, in bytes. No row for a source without one.';

create or replace function pgfresh.is_quota_exceeded(p_source text) returns boolean
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select coalesce(
    (select b.used + b.reserved >= b.cap from pgfresh.source_budget((pgfresh.require_source(p_source)).id) as b),
    false)
$$;
comment on function pgfresh.is_quota_exceeded(text) is
  'Whether a source has used or reserved all of its buffered quota in the rolling window. '
  'Planners ask before they queue.';

/*
  A job whose size is not known reserves what its type was last measured at, or the largest of the other types of its
  source. Where nothing was measured yet it is a sixteenth of what may be used at once: so at most sixteen such jobs are
  under way before the first of them tells how large they are.
*/
create or replace function pgfresh.unknown_size(p_source_id int, p_type_id int, p_depth bigint) returns bigint
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select coalesce(
    (select t.estimated_bytes from pgfresh.type_stats as t where t.type_id = p_type_id and t.estimated_bytes > 0),
    (
      select max(t.estimated_bytes)
      from pgfresh.data_type_registry as r
      join pgfresh.type_stats as t on t.type_id = r.type_id
      where r.source_id = p_source_id and t.samples > 0 and t.estimated_bytes > 0
    ),
    greatest(1, p_depth / 16))
$$;
comment on function pgfresh.unknown_size(int, int, bigint) is
  'The bytes that a job of unknown size reserves: what its type or its source was measured at, '
  'or a sixteenth of what the source may use at once.';

/*
  The smallest job of a source, or one of p_bytes, fits when the bucket has drained far enough and, if the cap is
  reached, when enough hours have left the window. What is reserved may turn out to be less; then it is sooner.
*/
create or replace function pgfresh.quota_until(p_source_id int, p_now timestamptz, p_bytes bigint default null)
returns timestamptz
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_budget record;
  v_bytes bigint := p_bytes;
  v_window interval;
  v_until timestamptz := p_now;
begin
  select * into v_budget from pgfresh.source_budget(p_source_id);
  if not found then
    return null;
  end if;
  if coalesce(v_bytes, 0) = 0 then
    select coalesce(min(coalesce(
      nullif(s.estimated_bytes, 0),
      nullif(r.estimated_data_size_bytes, 0),
      pgfresh.unknown_size(p_source_id, r.type_id, v_budget.depth))), 1)
    into v_bytes
    from pgfresh.data_type_registry as r
    left join pgfresh.type_stats as s on s.type_id = r.type_id
    where r.source_id = p_source_id;
  end if;
  if v_budget.used + v_budget.reserved < v_budget.cap and v_bytes <= v_budget.free then
    return null;
  end if;
  -- One that is larger than the bucket starts when it is empty.
  v_until := p_now + make_interval(secs => coalesce(
    greatest(0, v_budget.level - greatest(0, v_budget.depth - v_bytes)) / nullif(v_budget.rate, 0), 0));
  if v_budget.used + v_budget.reserved + v_bytes > v_budget.cap then
    select quota_window into v_window from pgfresh.sources where id = p_source_id;
    select greatest(v_until, min(h.hour) + v_window + interval '1 hour')
    into v_until
    from (
      select u.hour, sum(sum(u.bytes)) over (order by u.hour) as gone
      from pgfresh.usage as u
      where u.source_id = p_source_id and u.hour > p_now - v_window - interval '1 hour'
      group by u.hour
    ) as h
    where v_budget.used + v_budget.reserved + least(v_bytes, v_budget.cap) - h.gone <= v_budget.cap;
  end if;
  -- Whole seconds: the same time whenever it is asked, as long as nothing is used.
  return greatest(date_trunc('second', v_until), p_now) + interval '1 second';
end
$$;
comment on function pgfresh.quota_until(int, timestamptz, bigint) is
  'When the quota of a source lets its smallest job run, or one of so many bytes; null if it does now.';

create or replace function pgfresh.add_usage(p_source_id int, p_bytes bigint, p_calls bigint) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  insert into pgfresh.usage as u (source_id, hour, shard, bytes, calls)
  values (
    p_source_id,
    date_trunc('hour', pgfresh.clock(), 'UTC'),
    -- A source with a quota is summed at every claim and waits for its state row anyway:
    -- one row an hour is right for it.
    case
      when (select quota_bytes from pgfresh.sources where id = p_source_id) is not null then 0
      else pg_backend_pid() % 16
    end,
    p_bytes,
    p_calls)
  on conflict (source_id, hour, shard) do update set bytes = u.bytes + excluded.bytes, calls = u.calls + excluded.calls;
end
$$;
comment on function pgfresh.add_usage(int, bigint, bigint) is 'Adds bytes and calls to the ledger of this hour.';

-- Reservations end with what was really used, and the bucket learns the difference: also when the quota is gone by now,
-- because it may come back. Where there is neither, nothing shared is touched.
create or replace function pgfresh.settle_usage(p_source_id int, p_reserved bigint, p_bytes bigint, p_calls bigint)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if p_reserved > 0
      or (p_bytes <> 0 and (select quota_bytes from pgfresh.sources where id = p_source_id) is not null) then
    update pgfresh.source_state
    set reserved = greatest(0, reserved - p_reserved), level = greatest(0, level + p_bytes - p_reserved)
    where source_id = p_source_id;
  end if;
  if p_bytes <> 0 or p_calls <> 0 then
    perform pgfresh.add_usage(p_source_id, p_bytes, p_calls);
  end if;
end
$$;
comment on function pgfresh.settle_usage(int, bigint, bigint, bigint) is
  'Turns a reservation into what was really used.';

create or replace function pgfresh.count_calls(p_source_id int, p_calls int, p_bytes bigint) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  perform pgfresh.require_range('p_calls', p_calls, 0, 1000000);
  perform pgfresh.require_range('p_bytes', p_bytes, 0, 1e15);
  if not exists (select from pgfresh.sources where id = p_source_id) then
    perform pgfresh.refuse('PGF_SOURCE_UNKNOWN',
      format('there is no source %s', coalesce(p_source_id::text, 'null')),
      'Pass the source_id of the data type.');
  end if;
  perform pgfresh.settle_usage(p_source_id, 0, p_bytes, p_calls);
end
$$;
comment on function pgfresh.count_calls(int, int, bigint) is
  'Adds calls that no job has made, such as that of pgfresh try, to the ledger of a source, '
  'and the bytes that they used. take_call asks for them before.';

create or replace function pgfresh.correct_data_usage(p_source text, p_bytes bigint, p_reason text) returns bigint
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_source pgfresh.sources := pgfresh.require_source(p_source);
  v_id bigint;
begin
  perform pgfresh.require_range('p_bytes', p_bytes, -1e15, 1e15);
  if p_bytes = 0 or coalesce(p_reason, '') = '' or length(p_reason) > 1000 then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      'a correction needs bytes other than 0 and a reason of 1 to 1000 characters',
      'Say where the figure comes from.');
  end if;
  insert into pgfresh.usage_correction (source_id, at, bytes, reason)
  values (v_source.id, pgfresh.clock(), p_bytes, p_reason)
  returning id into v_id;
  -- It tells about the past, so it counts against the cap and not against the pace.
  perform pgfresh.add_usage(v_source.id, p_bytes, 0);
  return v_id;
end
$$;
comment on function pgfresh.correct_data_usage(text, bigint, text) is
  'Adds a signed entry to the ledger of a source, for instance the gap to the provider''s own figure. '
  'Returns its number.';

-- Every completion counts: the first real size replaces what was only estimated,
-- after that 0.9 old + 0.1 new, one size after the other. The same with the calls that it took.
-- Somebody who is just doing the same is not waited for; these sizes are then left out.
create or replace function pgfresh.learn_size(p_type_id int, p_bytes bigint[], p_calls bigint) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_old double precision;
  v_samples bigint;
  v_first int := 1;
  v_count int := cardinality(p_bytes);
begin
  select estimated_bytes, samples
  into v_old, v_samples
  from pgfresh.type_stats
  where type_id = p_type_id
  for update skip locked;
  if not found then
    insert into pgfresh.type_stats (type_id, estimated_bytes)
    select type_id, estimated_data_size_bytes
    from pgfresh.data_type_registry as r
    where r.type_id = p_type_id and not exists (select from pgfresh.type_stats as s where s.type_id = p_type_id)
    on conflict do nothing
    returning estimated_bytes, samples into v_old, v_samples;
    if not found then
      return;
    end if;
  end if;
  if v_samples = 0 or v_old = 0 then
    v_old := p_bytes[1];
    v_first := 2;
  end if;
  -- The weight of what lies more than 60 sizes back is below a fifth of a percent.
  for i in greatest(v_first, v_count - 59)..v_count loop
    v_old := 0.9 * v_old + 0.1 * p_bytes[i];
  end loop;
  update pgfresh.type_stats
  set estimated_bytes = round(v_old), samples = samples + v_count,
    calls = (p_calls::real / v_count) + (calls - p_calls::real / v_count)
      * case when v_samples = 0 then 0 else power(0.9, least(v_count, 60)) end
  where type_id = p_type_id;
end
$$;
comment on function pgfresh.learn_size(int, bigint[], bigint) is
  'Corrects the estimates of a data type by answers that really came: how large they were, and how many calls '
  'all of them took.';

insert into pgfresh.migrations (kind, name, hash) values ('functions'::text, 'ledger'::text, '4a1503235f0aae6a1d0d270ab63155b8bca48253c8524590c109d64e3e19c7d6'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- functions limits
create or replace function pgfresh.source_for(p_source_id int, p_known jsonb) returns pgfresh.sources
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_source pgfresh.sources;
  v_known int;
begin
  select * into v_source from pgfresh.sources as s where s.id = p_source_id;
  v_known := (p_known ->> v_source.name)::int;
  if v_known < v_source.api_keys then
    v_source.api_keys := v_known;
    v_source.denied_keys := array(select k from unnest(v_source.denied_keys) as k where k <= v_known);
  end if;
  return v_source;
end
$$;
comment on function pgfresh.source_for(int, jsonb) is
  'A source as a worker may use it: with no more API keys than the worker knows of. A part of claim_jobs.';

/*
  Picks from one source with limits only what all of them allow: its breaker, its running jobs, its rate, its bytes.
  Claims of one source count one after the other, so two cannot overshoot together; one that comes meanwhile leaves the
  source to the other.

  Whose turn it is goes round, four calls a round, and is kept with the source: the first goes to the viewed pair that
  has been ready longest, and two in all to viewed pairs without a row, the others by band. Where one of these has no
  job, the others take its turn. So of any calls of the source a quarter goes by age alone, and no viewed pair waits for
  longer than all that wait before it take at a quarter of the rate. Background work is last.
*/
create or replace function pgfresh.pick_limited(
  p_source_id int, p_limit int, p_types int[], p_max_bytes bigint, p_known jsonb)
returns table (id bigint, source_id int, band smallint, seq bigint, bytes bigint)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_now timestamptz := pgfresh.clock();
  v_source pgfresh.sources;
  v_state pgfresh.source_state;
  -- How many jobs may be taken, and after how many nobody's work waits.
  v_room int := p_limit;
  v_viewed_only int := p_limit;
  v_running int;
  v_busy text[] := '{}';
  v_lowest smallint := -1;
  v_probes int := 0;
  -- Bytes: the budget; what may be used, and what of it by jobs for which nothing is saved.
  v_budget record;
  v_metered boolean := false;
  v_left bigint := 9223372036854775807;
  v_small bigint := 9223372036854775807;
  v_saved record;
  v_saved_at int;
  -- The lanes in which jobs are ready.
  v_types int[] := p_types; v_lanes smallint[]; v_from bigint[]; v_since timestamptz[]; v_heads bigint[];
  -- The jobs that may be taken, best band and then oldest first.
  v_ids bigint[]; v_bands smallint[]; v_seqs bigint[]; v_sizes bigint[]; v_keys text[]; v_missing boolean[];
  v_kinds int[];
  -- Data types whose jobs have unknown sizes, and what each is taken for.
  v_guessed int[]; v_guesses bigint[];
  -- Their places in four lists: by age, without a row, with one, background. And where each list is, and ends.
  v_lists int[]; v_at int[]; v_end int[];
  v_order int[];
  v_list int;
  v_place int;
  v_first int := 1;
  v_taken boolean[];
  v_picked int[] := '{}';
  v_firsts int[] := '{}';
  v_locked bigint[];
begin
  if not pg_try_advisory_xact_lock(7042, p_source_id) then
    return;
  end if;
  v_source := pgfresh.source_for(p_source_id, p_known);
  if v_source.breaker_opened_at is not null then
    -- Once more: an end may just have opened it again. And before its state is locked, as ends do it.
    perform from pgfresh.sources as s where s.id = p_source_id for no key update skip locked;
    if not found then
      return;
    end if;
    v_source := pgfresh.source_for(p_source_id, p_known);
    if exists (
      select from pgfresh.job as j
      where j.id = v_source.probe_job and j.state = 'x' and j.attempt = v_source.probe_attempt
    ) then
      return;
    end if;
    v_room := 1;
  end if;
  if v_source.paused_until > v_now then
    return;
  end if;
  -- Keys that were refused and may be tried again, each by one job.
  if v_source.denied_keys <> '{}' then
    select count(*)
    into v_probes
    from pgfresh.breaker as b
    where b.source_id = p_source_id and b.api_key = any (v_source.denied_keys) and b.paused_until <= v_now;
    if cardinality(v_source.denied_keys) >= v_source.api_keys then
      v_room := least(v_room, v_probes);
    end if;
  end if;
  if v_source.max_concurrency is not null or v_source.one_key_at_a_time then
    delete from pgfresh.source_place as p
    where p.source_id = p_source_id
      and (select true from pgfresh.job as j where j.id = p.job_id and j.state = 'x' and j.attempt = p.attempt) is null;
    select count(*), case when v_source.one_key_at_a_time then coalesce(array_agg(p.key), '{}') else '{}' end
    into v_running, v_busy
    from pgfresh.source_place as p
    where p.source_id = p_source_id;
    v_room := least(v_room, v_source.max_concurrency - v_running);
  end if;
  if v_source.rate_limit_per_minute is not null then
    select least(v_room, c.viewed + v_probes), greatest(c.background, v_probes)
    into v_room, v_viewed_only
    from pgfresh.free_calls(v_source, v_now) as c;
    v_lowest := case when v_viewed_only > 0 then -1 else 0 end;
  end if;
  if v_room < 1 then
    return;
  end if;
  select * into v_state from pgfresh.source_state as s where s.source_id = p_source_id for update skip locked;
  if not found then
    return;
  end if;

  if v_source.quota_bytes is not null then
    select * into v_budget from pgfresh.source_budget(p_source_id);
    v_metered := true;
    v_left := v_budget.free;
    if v_budget.used + v_budget.reserved >= v_budget.cap then
      return;
    end if;
    -- From 90 % of the cap on, nobody's work waits.
    if v_budget.used + v_budget.reserved >= v_budget.cap * 0.9 then
      v_lowest := 0;
    end if;
    -- Also what this worker does not serve may be what bytes are saved for.
    v_types := array(select r.type_id from pgfresh.data_type_registry as r where r.source_id = p_source_id);
  end if;
  select array_agg(l.type_id), array_agg(l.lane), array_agg(l.seq), array_agg(l.since), array_agg(l.bytes)
  into v_types, v_lanes, v_from, v_since, v_heads
  from pgfresh.ready_lanes(v_types) as l
  where 20 - (l.lane & 31) >= v_lowest;
  if v_types is null then
    return;
  end if;

  /*
    For the job that has been ready longest, once that is ten minutes, half of the pace since then is saved, up to its
    size, so that small ones cannot starve it. Not if it is larger than the cap, or if no worker takes it.
  */
  v_small := v_left;
  if v_metered and v_now - interval '10 minutes' > any (v_since) then
    select l.seq, l.bytes,
      floor(least(v_budget.depth, l.bytes, v_budget.rate / 2 * extract(epoch from v_now - l.since)))::bigint as saved
    into v_saved
    from unnest(v_types, v_from, v_since, v_heads) as l(type_id, seq, since, bytes)
    join pgfresh.data_type_registry as r on r.type_id = l.type_id
    where l.since < v_now - interval '10 minutes' and l.bytes <= v_budget.cap
      and not exists (select from pgfresh.breaker as b where b.type_id = l.type_id and b.paused_until > v_now)
      and pgfresh.worker_obstacle(r, v_now) is null
    order by l.seq
    limit 1;
    if found then
      v_small := greatest(0, v_left - v_saved.saved);
      v_saved_at := 0;
    end if;
  end if;

  with ready as (
    select j.*, row_number() over (
        -- What was tried least tries for all: a pair that is always refused must not keep the source from the others.
        order by case when v_source.breaker_opened_at is null then 0 else j.attempt end, j.band desc, j.seq
      )::int as place
    from unnest(v_types, v_lanes, v_from) as l(type_id, lane, seq)
    cross join lateral (
      select j.id, j.type_id, j.band, j.seq, j.est_bytes, j.key, j.missing, j.attempt
      from pgfresh.job as j
      where j.state = 'r' and j.type_id = l.type_id and j.lane = l.lane and j.seq >= l.seq
        and (p_max_bytes is null or j.est_bytes <= p_max_bytes) and j.key <> all (v_busy)
      order by j.seq
      -- More than there is room for, where some were tried more often than others, or may be too large.
      limit v_room + case
        when v_source.breaker_opened_at is not null then 50
        when v_metered then greatest(10, 50 / cardinality(v_lanes))
        else 0
      end
    ) as j
    where l.type_id = any (p_types)
  )
  select array_agg(r.id order by r.place), array_agg(r.band order by r.place), array_agg(r.seq order by r.place),
    array_agg(r.est_bytes order by r.place), array_agg(r.key order by r.place), array_agg(r.missing order by r.place),
    array_agg(r.type_id order by r.place),
    coalesce(
      array_agg(r.place order by case when v_source.breaker_opened_at is null then r.seq else r.place end)
        filter (where r.band > case when v_source.breaker_opened_at is null then 0 else -1 end), '{}')
      || coalesce(array_agg(r.place order by r.place) filter (where r.band >= 0 and r.missing), '{}')
      || coalesce(array_agg(r.place order by r.place) filter (where r.band >= 0 and not r.missing), '{}')
      || coalesce(array_agg(r.place order by r.place) filter (where r.band < 0), '{}'),
    array[count(*) filter (where r.band > case when v_source.breaker_opened_at is null then 0 else -1 end),
      count(*) filter (where r.band >= 0 and r.missing),
      count(*) filter (where r.band >= 0 and not r.missing), count(*) filter (where r.band < 0)]
  into v_ids, v_bands, v_seqs, v_sizes, v_keys, v_missing, v_kinds, v_lists, v_end
  from ready as r;
  if v_ids is null then
    return;
  end if;
  v_end := array[v_end[1], v_end[1] + v_end[2], v_end[1] + v_end[2] + v_end[3],
    v_end[1] + v_end[2] + v_end[3] + v_end[4]];
  v_at := array[1, v_end[1] + 1, v_end[2] + 1, v_end[3] + 1];
  v_taken := array_fill(false, array[cardinality(v_ids)]);
  if v_metered and 0 = any (v_sizes) then
    -- Measured now, and not when they were enqueued: what was measured meanwhile is a better guess. Once for each data
    -- type: a join would ask for each job.
    select array_agg(t.type_id), array_agg(pgfresh.unknown_size(p_source_id, t.type_id, v_budget.depth))
    into v_guessed, v_guesses
    from (select distinct s.type_id from unnest(v_sizes, v_kinds) as s(bytes, type_id) where s.bytes = 0) as t;
    v_sizes := array(
      select case when s.bytes > 0 then s.bytes else v_guesses[array_position(v_guessed, s.type_id)] end
      from unnest(v_sizes, v_kinds) with ordinality as s(bytes, type_id, place)
      order by s.place);
  end if;
  if v_saved_at = 0 then
    v_saved_at := array_position(v_seqs, v_saved.seq);
    if v_sizes[v_saved_at] <= v_left
        or (v_budget.level = 0 and v_sizes[v_saved_at] <= v_budget.cap - v_budget.used - v_budget.reserved) then
      v_small := least(v_small, greatest(0, v_left - v_sizes[v_saved_at]));
    else
      v_saved_at := null;
    end if;
  end if;

  if cardinality(v_lanes) = 1 and not v_metered and not v_source.one_key_at_a_time then
    -- Of one lane, no one has a share, and all are as good.
    v_picked := array(
      select p
      from generate_series(1, least(
        v_room, cardinality(v_ids), case when v_bands[1] = -1 then v_viewed_only end)) as p);
    v_firsts := v_picked;
    v_room := 0;
  end if;
  while cardinality(v_picked) < v_room loop
    v_place := null;
    if v_saved_at is not null then
      v_place := v_saved_at;
      v_saved_at := null;
    else
      v_order := case
        when v_state.turn = 0 or v_source.breaker_opened_at is not null then array[1, 2, 3, 4]
        when v_state.missing_turns < 2 then array[2, 3, 4]
        else array[3, 2, 4]
      end;
      foreach v_list in array v_order loop
        exit when v_list = 4 and cardinality(v_picked) >= v_viewed_only;
        while v_at[v_list] <= v_end[v_list] loop
          v_place := v_lists[v_at[v_list]];
          v_at[v_list] := v_at[v_list] + 1;
          exit when not v_taken[v_place] and (not v_metered or v_sizes[v_place] <= v_small)
            and v_keys[v_place] <> all (v_busy);
          v_place := null;
        end loop;
        exit when v_place is not null;
      end loop;
      exit when v_place is null;
      if v_metered then
        v_small := v_small - v_sizes[v_place];
      end if;
    end if;
    v_taken[v_place] := true;
    v_picked := v_picked || v_place;
    -- It stands for the best that is left, when this is put in one order with other sources.
    v_firsts := v_firsts || least(v_first, v_place);
    while v_taken[v_first] loop
      v_first := v_first + 1;
    end loop;
    if v_source.one_key_at_a_time then
      v_busy := v_busy || v_keys[v_place];
    end if;
    v_state.missing_turns := case when v_state.turn = 3 then 0 else v_state.missing_turns + v_missing[v_place]::int end;
    v_state.turn := (v_state.turn + 1) % 4;
  end loop;

  -- Others claim nothing of this source now, but who cancels or raises a job may have it.
  v_locked := array(
    select j.id
    from pgfresh.job as j
    where j.id = any (array(select v_ids[p] from unnest(v_picked) as p)) and j.state = 'r'
    order by j.id for update skip locked);
  return query
  select v_ids[p.place], p_source_id, v_bands[p.best], v_seqs[p.best],
    case when v_metered then v_sizes[p.place] else 0 end
  from unnest(v_picked, v_firsts) with ordinality as p(place, best, turn)
  join unnest(v_locked) as l(id) on l.id = v_ids[p.place]
  order by p.turn;
end
$$;
comment on function pgfresh.pick_limited(int, int, int[], bigint, jsonb) is
  'Locks those ready jobs of a source with limits, or with an open breaker, that may run now, in the order in which it '
  'is their turn; band and seq are those of the best job at that turn. A part of claim_jobs.';

/*
  All that a claim of a limited source takes with it, after it was decided which jobs it is: calls, bytes, places, the
  probe. Returns those for which there still was a call.
*/
create or replace function pgfresh.take_limits(
  p_source_id int, p_ids bigint[], p_bytes bigint[], p_known jsonb, p_now timestamptz)
returns table (id bigint, api_key smallint, reserved bigint)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_source pgfresh.sources := pgfresh.source_for(p_source_id, p_known);
  v_ids bigint[] := p_ids;
  v_keys smallint[];
  v_probes smallint[] := '{}';
  v_usable smallint;
  -- How many calls each job takes that tries no refused key.
  v_calls int[];
  v_count int;
  v_reserved bigint[];
  v_state pgfresh.source_state;
  v_missing boolean;
begin
  if v_source.denied_keys <> '{}' then
    v_probes := pgfresh.take_key_probes(v_source, cardinality(v_ids), p_now);
  end if;
  if v_source.rate_limit_per_minute is not null then
    v_keys := v_probes;
    v_calls := array(
      select least(greatest(j.needs, round(coalesce(s.calls, 1))::int), v_source.rate_limit_per_minute)
      from unnest(v_ids) with ordinality as t(id, place)
      join pgfresh.job as j on j.id = t.id
      left join pgfresh.type_stats as s on s.type_id = j.type_id
      where t.place > cardinality(v_probes)
      order by t.place);
    if 1 < any (v_calls) then
      -- Who comes behind one for which there are not enough waits with it, or it would wait for ever.
      foreach v_count in array v_calls loop
        v_usable := pgfresh.take_job_slots(v_source, v_count, p_now);
        exit when v_usable is null;
        v_keys := v_keys || v_usable;
      end loop;
    else
      -- The limit may be another one by now.
      v_keys := v_keys || pgfresh.take_slots(v_source, null, cardinality(v_calls), p_now);
    end if;
    v_ids := v_ids[1:cardinality(v_keys)];
    update pgfresh.job as j
    set calls_left = c.calls - 1
    from unnest(v_ids[cardinality(v_probes) + 1:], v_calls) as c(id, calls)
    where j.id = any (v_ids) and j.id = c.id and c.calls > 1;
  elsif v_source.denied_keys <> '{}' then
    v_usable := (
      select min(k) from generate_series(1, v_source.api_keys) as k where k <> all (v_source.denied_keys)
    );
    v_ids := case when v_usable is null then v_ids[1:cardinality(v_probes)] else v_ids end;
    v_keys := v_probes || array_fill(v_usable, array[cardinality(v_ids) - cardinality(v_probes)]);
  end if;
  if v_ids = '{}' then
    return;
  end if;
  -- The jobs are told what was reserved for them: a quota that is set or removed meanwhile changes nothing about it.
  v_reserved := case
    when v_source.quota_bytes is null then array_fill(0::bigint, array[cardinality(v_ids)])
    else p_bytes[1:cardinality(v_ids)]
  end;
  select * into v_state from pgfresh.source_state as s where s.source_id = p_source_id;
  -- A round of four calls, as pick_limited goes by it.
  for v_missing in
    select j.missing
    from unnest(v_ids) with ordinality as t(id, place)
    join pgfresh.job as j on j.id = t.id
    order by t.place
  loop
    v_state.missing_turns := case when v_state.turn = 3 then 0 else v_state.missing_turns + v_missing::int end;
    v_state.turn := (v_state.turn + 1) % 4;
  end loop;
  if v_source.quota_bytes is not null then
    select b.level into v_state.level from pgfresh.source_budget(p_source_id) as b;
    v_state.level := v_state.level + (select sum(bytes) from unnest(v_reserved) as bytes);
    v_state.level_at := p_now;
    v_state.reserved := v_state.reserved + (select sum(bytes) from unnest(v_reserved) as bytes);
  end if;
  update pgfresh.source_state as s
  set turn = v_state.turn, missing_turns = v_state.missing_turns,
    reserved = v_state.reserved, level = v_state.level, level_at = v_state.level_at
  where s.source_id = p_source_id;
  if v_source.max_concurrency is not null or v_source.one_key_at_a_time then
    insert into pgfresh.source_place as p (source_id, job_id, attempt, key)
    select p_source_id, j.id, j.attempt + 1, j.key from pgfresh.job as j where j.id = any (v_ids)
    on conflict (source_id, job_id) do update set attempt = excluded.attempt;
  end if;
  -- One that has opened since they were picked is paused.
  if v_source.breaker_opened_at is not null and (v_source.paused_until > p_now) is not true then
    update pgfresh.sources as s
    set probe_job = v_ids[1],
      probe_attempt = (select j.attempt + 1 from pgfresh.job as j where j.id = v_ids[1])
    where s.id = p_source_id;
  end if;
  return query select t.id, t.api_key, t.reserved from unnest(v_ids, v_keys, v_reserved) as t(id, api_key, reserved);
end
$$;
comment on function pgfresh.take_limits(int, bigint[], bigint[], jsonb, timestamptz) is
  'Takes calls, bytes, places and turns for jobs of one source that are being claimed. A part of claim_jobs.';

insert into pgfresh.migrations (kind, name, hash) values ('functions'::text, 'limits'::text, '77b3cc4eaac03676b7a7ed99675c4e044f6dc6ee43713919482c1df34e6bdc7d'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- functions looks
do $$ begin
  if to_regtype('pgfresh.looks') is null then
    create type pgfresh.looks as (
      type_id int, rests boolean, keys text[], places tid[], jobs bigint[], next_ask timestamptz[],
      confirmed timestamptz[], rows timestamptz[], due timestamptz[], priorities int[]
    );
  end if;
  if to_regtype('pgfresh.look') is null then
    create type pgfresh.look as (
      type_id int, key text, place tid, job_id bigint, due_at timestamptz, next_at timestamptz, priority int,
      changed boolean, row_at timestamptz, stale_at timestamptz, waits_for text
    );
  end if;
end $$;
comment on type pgfresh.looks is
  'Pairs of one data type as the planner has read them: whether any of them has a job or is to be left alone, '
  'their places if they are locked, when they may be asked for again, when the source confirmed them, '
  'the times of their rows as they were last seen, '
  'their due times as far as anybody looks at them, and the least priorities of their jobs if there are such.';
comment on type pgfresh.look is
  'A pair about which the planner has decided something: when to look again and what it waits for, '
  'or that it gets a job; and whether its row is not as it was known to be, null if nobody looked, and what was seen.';

-- What the source denied is stale when that time is over, however young the row is.
create or replace function pgfresh.confirmed_of(p_pair pgfresh.pairs) returns timestamptz
language sql immutable parallel safe
as $$ select case when p_pair.empty_at is null then p_pair.confirmed_at else '-infinity' end $$;
comment on function pgfresh.confirmed_of(pgfresh.pairs) is
  'When the source last confirmed the row of a pair; -infinity if it has denied it since. A part of the planner.';

-- Nobody knows the time of a row that was written but not looked at yet.
create or replace function pgfresh.row_time_of(p_pair pgfresh.pairs) returns timestamptz
language sql immutable parallel safe
as $$ select case when p_pair.seen then p_pair.row_at else '-infinity' end $$;
comment on function pgfresh.row_time_of(pgfresh.pairs) is
  'The time of the row of a pair as the planner last saw it. A part of the planner.';

create or replace function pgfresh.looks_at(p_type_id int, p_keys text[], p_priorities int[] default null)
returns pgfresh.looks[]
language plpgsql stable
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
as $$
begin
  return array(
    select row(
      p_type_id, true, array_agg(p.key), null, array_agg(p.job_id), array_agg(p.next_ask_at),
      array_agg(pgfresh.confirmed_of(p)), array_agg(pgfresh.row_time_of(p)),
      array_agg(case when p.demanded then p.due_at end),
      case when p_priorities is not null then array_agg(w.priority) end
    )::pgfresh.looks
    from unnest(p_keys, p_priorities) as w(key, priority)
    join pgfresh.pairs as p on p.type_id = p_type_id and p.key = w.key
    having count(*) > 0
  );
end
$$;
comment on function pgfresh.looks_at(int, text[], int[]) is
  'Pairs of one data type, read for the planner. A part of the planner.';

/*
  Here every pair is reached by its key, whatever the statistics say of a table that has just been filled.
  One that somebody has locked, or that has changed since it was read, is left alone.
  The entries of the others go, as those that the tick takes do.
*/
create or replace function pgfresh.lock_looks(p_looks pgfresh.look[]) returns pgfresh.look[]
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
declare
  v_looks pgfresh.look[] := array(
    select row(l.type_id, l.key, coalesce(l.place, p.ctid), l.job_id, l.due_at, l.next_at, l.priority,
      l.changed, l.row_at, l.stale_at, l.waits_for)::pgfresh.look
    from unnest(p_looks) as l
    left join lateral (
      select p.ctid
      from pgfresh.pairs as p
      where l.place is null and p.type_id = l.type_id and p.key = l.key
        and p.job_id is not distinct from l.job_id
        and (p.due_at = l.due_at or l.due_at is null)
      for update skip locked
    ) as p on true
    where l.place is not null or p.ctid is not null
  );
begin
  delete from pgfresh.due as d
  using unnest(v_looks) as l
  where d.due_at = l.due_at and d.type_id = l.type_id and d.key = l.key;
  return v_looks;
end
$$;
comment on function pgfresh.lock_looks(pgfresh.look[]) is
  'Locks pairs that were read without, as far as they are still as they were. A part of the planner.';

create or replace function pgfresh.look_again(p_looks pgfresh.look[]) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
begin
  if p_looks[1].place is null then
    p_looks := pgfresh.lock_looks(p_looks);
  end if;
  -- By their place: they cannot move while they are locked.
  update pgfresh.pairs as p
  set due_at = l.next_at, waits_for = l.waits_for, seen = p.seen or l.changed is not null,
    row_at = case when l.changed then l.row_at else p.row_at end,
    -- What the source confirmed is not this row.
    confirmed_at = case when l.changed and (l.row_at >= p.row_at) is not true then null else p.confirmed_at end,
    stale_at = coalesce(l.stale_at, p.stale_at)
  from unnest(p_looks) as l
  where p.ctid = l.place;
  insert into pgfresh.due (due_at, type_id, key)
  select l.next_at, l.type_id, l.key from unnest(p_looks) as l where l.next_at < 'infinity'
  on conflict do nothing;
end
$$;
comment on function pgfresh.look_again(pgfresh.look[]) is
  'Sets when the planner looks at pairs next, and what it has seen of them. A part of the planner.';

create or replace function pgfresh.note_rows(p_looks pgfresh.look[]) returns pgfresh.look[]
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_mergejoin = off
set jit = off
as $$
declare
  v_looks pgfresh.look[];
begin
  with noted as (
    update pgfresh.pairs as p
    set seen = true, row_at = l.row_at,
      confirmed_at = case when (l.row_at >= p.row_at) is not true then null else p.confirmed_at end
    from unnest(p_looks) as l
    where l.changed and p.ctid = l.place
    returning p.type_id, p.key, p.ctid as place
  )
  select array_agg(row(l.type_id, l.key, coalesce(n.place, l.place), l.job_id, l.due_at, l.next_at, l.priority,
    false, null, l.stale_at, l.waits_for)::pgfresh.look)
  into v_looks
  from unnest(p_looks) as l
  left join noted as n on n.type_id = l.type_id and n.key = l.key;
  return v_looks;
end
$$;
comment on function pgfresh.note_rows(pgfresh.look[]) is
  'Notes the rows of locked pairs that were not as they were known to be. A part of the planner.';

create or replace function pgfresh.open_jobs_for(p_looks pgfresh.look[], p_now timestamptz) returns int
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
  v_count int;
  v_changed boolean;
  v_raised boolean;
begin
  if p_looks[1].place is null then
    p_looks := pgfresh.lock_looks(p_looks);
  end if;
  select bool_or(l.changed), bool_or(l.priority is not null) into v_changed, v_raised from unnest(p_looks) as l;
  if v_changed then
    p_looks := pgfresh.note_rows(p_looks);
  end if;
  with kinds as materialized (
    select r.type_id, r.source_id, r.ui_threshold, r.background_priority, b.bytes
    from pgfresh.data_type_registry as r
    cross join lateral (
      select coalesce(
        (select t.estimated_bytes from pgfresh.type_stats as t where t.type_id = r.type_id),
        r.estimated_data_size_bytes
      ) as bytes
    ) as b
    where r.type_id = any (array(select distinct l.type_id from unnest(p_looks) as l))
  ), opened as (
    -- By their place: they cannot move while they are locked.
    update pgfresh.pairs as p
    set job_id = nextval('pgfresh.job_id'), due_at = 'infinity', next_ask_at = null, waits_for = null,
      stale_at = least(p.stale_at, p_now)
    where p.ctid = any (array(select l.place from unnest(p_looks) as l))
    returning p.type_id, p.key, p.job_id, p.viewers, p.row_at is null and p.seen and p.empty_at is null as missing
  ), ranked as (
    select o.key, o.job_id, o.missing, k.*,
      greatest(
        1,
        case when o.viewers < k.ui_threshold then k.background_priority else o.viewers end,
        case when v_raised then (
          select max(l.priority) from unnest(p_looks) as l where l.type_id = o.type_id and l.key = o.key
        ) end
      ) as priority
    from opened as o
    join kinds as k on k.type_id = o.type_id
  )
  insert into pgfresh.job
    (id, seq, run_at, created_at, est_bytes, type_id, source_id,
      priority, band, lane, missing, state, key)
  select r.job_id, r.job_id, p_now, p_now, r.bytes, r.type_id, r.source_id,
    r.priority, pgfresh.band_of(r.priority), pgfresh.lane_of(pgfresh.band_of(r.priority), r.missing, r.bytes),
    r.missing, 'r', r.key
  from ranked as r;
  get diagnostics v_count = row_count;
  if v_count > 0 then
    perform pgfresh.wake_workers();
  end if;
  return v_count;
end
$$;
comment on function pgfresh.open_jobs_for(pgfresh.look[], timestamptz) is
  'Opens a job for each of these pairs, with the priority of its viewers. A part of the planner.';

insert into pgfresh.migrations (kind, name, hash) values ('functions'::text, 'looks'::text, 'fdd2f30608a821ce9d34218c18b4f3d960efcae974258bf1254c7134bcc99e9d'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- functions lost_rows
create or replace function pgfresh.lapse_pause(p_lapses int, p_ttl interval) returns interval
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
  select case
    when p_lapses <= 1 then interval '0'
    else least(interval '15 seconds' * power(2, least(p_lapses, 20) - 2), p_ttl, interval '24 hours')
  end
$$;
comment on function pgfresh.lapse_pause(int, interval) is
  'How long a pair is left alone whose row was deleted or set back by others so many times in a row: '
  'the first time not at all, then 15 s, doubled each time, at most its TTL and a day.';

-- Also where its check raises, for instance because of another column of the row.
create or replace function pgfresh.has_row(p_type_id int, p_key text) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  return not exists (
    select from pgfresh.ask_keys(
      (select r.missing_sql from pgfresh.type_resolution as r where r.type_id = p_type_id), array[p_key])
  );
exception
  when lock_not_available then
    return null;
  when others then
    -- A key that is not of the type of its column can have none.
    return false;
end
$$;
comment on function pgfresh.has_row(int, text) is
  'Whether a pair has a row; null if that cannot be seen now. A part of the planner.';

/*
  Pairs that are stale for another reason than their age. A row that is gone or older than we left it was changed by
  others: it is fetched again at once, but if that happens again within a TTL the pause doubles, because a trigger that
  deletes what we write must not spend the budget. A row that is stale although it was only just written, or whose
  check raises, would be fetched in a loop: that is done once per TTL.
*/
create or replace function pgfresh.note_lapses(
  p_type pgfresh.data_type_registry, p_looks pgfresh.look[], p_now timestamptz)
returns table (key text, place tid, until timestamptz)
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  v_verdict record;
  v_lost int := 0; v_longest interval; v_early int := 0; v_example text;
begin
  for v_verdict in
    select l.key, l.pair, l.row_at, l.stale_at, l.found, (l.pair).ok_at + p_type.ttl as paced,
      (l.pair).outcome in ('fresh', 'unchanged', 'older_source') as succeeded,
      l.row_at > (l.pair).empty_at as denied_before,
      coalesce(case
        when l.found then l.row_at < (l.pair).row_at
        else not l.found and ((l.pair).row_at is not null or not (l.pair).seen)
      end, false) as lost,
      case
        when (l.pair).lapsed_at + pgfresh.lapse_pause((l.pair).lapses, p_type.ttl) + p_type.ttl > p_now
          then (l.pair).lapses + 1
        else 1
      end as lapses
    from (
      select l.key, l.row_at, l.stale_at, case when l.changed is not null then l.row_at is not null end as found, p.pair
      from unnest(p_looks) as l
      cross join lateral (
        select p as pair
        from pgfresh.pairs as p
        where p.type_id = p_type.type_id and p.key = l.key
        for update skip locked
      ) as p
      offset 0
    ) as l
  loop
    key := v_verdict.key;
    until := case when (v_verdict.pair).next_ask_at > p_now then (v_verdict.pair).next_ask_at end;
    if v_verdict.lost and v_verdict.succeeded then
      until := case
        when v_verdict.lapses > 1 then p_now + pgfresh.lapse_pause(v_verdict.lapses, p_type.ttl)
      end;
      if v_verdict.lapses > 1 then
        v_lost := v_lost + 1;
        v_longest := greatest(v_longest, until - p_now);
        v_example := key;
      end if;
    elsif v_verdict.denied_before then
      -- Others have written a row since the source said that there is nothing.
      until := case when v_verdict.row_at + p_type.ttl > p_now then v_verdict.row_at + p_type.ttl end;
    elsif v_verdict.paced > p_now and (
      v_verdict.found is null or (not (v_verdict.pair).seen and v_verdict.succeeded
        and (v_verdict.stale_at > p_now or (v_verdict.stale_at > (v_verdict.pair).ok_at) is not true))
    ) then
      until := greatest(until, v_verdict.paced);
      if v_verdict.found is not null then
        v_early := v_early + 1;
        v_example := key;
      end if;
    end if;
    update pgfresh.pairs as p
    set seen = p.seen or v_verdict.found is not null,
      row_at = case
        when v_verdict.found is not null then v_verdict.row_at
        when pgfresh.has_row(p.type_id, p.key) then coalesce(p.row_at, '-infinity')
      end,
      confirmed_at = case when not v_verdict.lost then p.confirmed_at end,
      empty_at = case when v_verdict.denied_before is not true then p.empty_at end,
      stale_at = case
        when v_verdict.denied_before then until
        else p_now
      end,
      lapses = case when v_verdict.lost and v_verdict.succeeded then v_verdict.lapses else p.lapses end,
      lapsed_at = case when v_verdict.lost and v_verdict.succeeded then p_now else p.lapsed_at end,
      next_ask_at = case when v_verdict.denied_before is not true then until end
    where p.type_id = p_type.type_id and p.key = v_verdict.key
    returning p.ctid into place;
    return next;
  end loop;
  if v_lost > 0 then
    perform pgfresh.warn('row_lost', p_type.data_type,
      format('Rows of %s, such as that of %s, are gone or set back again and again after a refresh that left them; '
        'the last pause before they are fetched again is %s',
        p_type.table_name, quote_literal(left(v_example, 80)), pgfresh.in_words(v_longest)),
      format('Find what changes them: a trigger, a cleanup job, another writer of %s.', p_type.table_name), v_lost);
  end if;
  if v_early > 0 then
    perform pgfresh.warn('stale_when_written', p_type.data_type,
      format('Rows of %s, such as that of %s, are stale as soon as they are written, so they are fetched once per TTL',
        p_type.table_name, quote_literal(left(v_example, 80))),
      format('See what %s says of a row that was just written, and what is in %s.',
        p_type.staleness_function, p_type.timestamp_column),
      v_early);
  end if;
end
$$;
comment on function pgfresh.note_lapses(
  pgfresh.data_type_registry, pgfresh.look[], timestamptz) is
  'Decides about pairs that are stale although they should not be: until when each is left alone, or null if it is '
  'fetched now. Pairs that somebody else has locked are left out. A part of the planner.';

insert into pgfresh.migrations (kind, name, hash) values ('functions'::text, 'lost_rows'::text, '95bc1d40b702753cdd1dc7b08074200eeda3847f455a52c1807162a38d4d9c62'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- functions maintenance
/*
  Days ahead are made, days behind are dropped. A new day is made apart and then attached, which takes no lock that a
  reader or an end would wait for, as long as the default partition is empty: the server reads all of it under a lock
  that nobody gets past. So it is kept empty. Ends land there when nobody has made their day; then the whole partition
  is set aside, an empty one takes its place, and its rows move to their days in bounded sets, while ends go on.
*/
create or replace function pgfresh.make_history_days(p_tree text, p_days date[]) returns int
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_day date;
  v_name text;
  v_made int := 0;
begin
  foreach v_day in array p_days loop
    v_name := format('%s_%s', p_tree, to_char(v_day, 'YYYYMMDD'));
    continue when to_regclass('pgfresh.' || v_name) is not null;
    execute format('create table pgfresh.%I (like pgfresh.%I including defaults)', v_name, p_tree);
    execute format('alter table pgfresh.%I attach partition pgfresh.%I for values from (%L) to (%L)',
      p_tree, v_name, v_day::text || ' 00:00:00+00', (v_day + 1)::text || ' 00:00:00+00');
    v_made := v_made + 1;
  end loop;
  return v_made;
end
$$;
comment on function pgfresh.make_history_days(text, date[]) is
  'Makes the partitions of these days that one part of the history lacks. A part of maintain_queue_partitions.';

create or replace function pgfresh.history_aside() returns table (tree text, name text)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select left(c.relname, -15), c.relname
  from pg_class as c
  where c.relnamespace = 'pgfresh'::regnamespace and c.relname ~ '^history_[a-z]+_aside_\d{8}$'
$$;
comment on function pgfresh.history_aside() is
  'Tables whose rows were set aside and have yet to move to their days, by the part of the history they belong to.';

create or replace function pgfresh.set_history_aside(p_tree text, p_today date) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_name text := format('%s_aside_%s', p_tree, to_char(p_today, 'YYYYMMDD'));
begin
  -- Twice on one day: the rows of the first time move first.
  if to_regclass('pgfresh.' || v_name) is not null then
    return;
  end if;
  execute format('alter table pgfresh.%I detach partition pgfresh.%I', p_tree, p_tree || '_default');
  execute format('alter table pgfresh.%I rename to %I', p_tree || '_default', v_name);
  execute format('create table pgfresh.%I partition of pgfresh.%I default', p_tree || '_default', p_tree);
end
$$;
comment on function pgfresh.set_history_aside(text, date) is
  'Puts an empty default partition in the place of one that has rows. A part of maintain_queue_partitions.';

create or replace function pgfresh.move_history(
  p_tree text, p_aside text, p_since timestamptz, p_limit int, out moved bigint, out made int)
language plpgsql
set search_path = pg_catalog, pg_temp
-- Rows are deleted by their place. Without statistics all 25000 of a table were read to delete 500.
set enable_seqscan = off
set jit = off
as $$
declare
  v_places tid[];
  v_days date[];
  v_columns text := (
    select string_agg(format('%I', attname), ', ' order by attnum)
    from pg_attribute
    where attrelid = ('pgfresh.' || p_tree)::regclass and attnum > 0 and not attisdropped);
begin
  execute format('select array_agg(ctid), array_agg(distinct (ended_at at time zone ''UTC'')::date) '
    'filter (where ended_at >= $2) from (select ctid, ended_at from pgfresh.%I limit $1) as next', p_aside)
  into v_places, v_days
  using p_limit, p_since;
  made := pgfresh.make_history_days(p_tree, coalesce(v_days, '{}'));
  execute format('with gone as (delete from pgfresh.%1$I where ctid = any ($1) returning *) '
    'insert into pgfresh.%2$I (%3$s) select %3$s from gone where ended_at >= $2', p_aside, p_tree, v_columns)
  using v_places, p_since;
  get diagnostics moved = row_count;
  if coalesce(cardinality(v_places), 0) < p_limit then
    execute format('drop table pgfresh.%I', p_aside);
  end if;
end
$$;
comment on function pgfresh.move_history(text, text, timestamptz, int) is
  'Moves the next rows that were set aside to their days, and forgets older ones. A part of maintain_queue_partitions.';

create or replace function pgfresh.maintain_queue_partitions(
  p_keep_succeeded_days int default 7, p_keep_other_days int default 30)
returns jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '200ms'
as $$
declare
  -- Rows that a call moves of each part: a tenth of a second.
  c_rows constant int := 10000;
  c_few_rows constant int := 500;
  v_today date := (pgfresh.clock() at time zone 'UTC')::date;
  v_ahead date[] := array(select generate_series(v_today, v_today + 3, interval '1 day')::date);
  v_made int := 0; v_dropped int := 0; v_busy int := 0; v_moved bigint := 0;
  v_trees text[] := '{history_succeeded, history_other, history_attempt}';
  v_keeps int[] := array[p_keep_succeeded_days, p_keep_other_days, p_keep_other_days];
  v_filled text[] := '{}';
  v_tree text; v_keep int; v_name text;
  v_move record;
  v_any boolean;
begin
  perform pgfresh.require_range('p_keep_succeeded_days', p_keep_succeeded_days, 1, 3650);
  perform pgfresh.require_range('p_keep_other_days', p_keep_other_days, 1, 3650);
  if not pg_try_advisory_xact_lock(7041, 5) then
    return jsonb_build_object('skipped', 'locked');
  end if;
  -- First what no end waits for.
  for v_tree, v_keep in select * from unnest(v_trees, v_keeps) loop
    execute format('select exists (select from pgfresh.%I)', v_tree || '_default') into v_any;
    if v_any then
      v_filled := v_filled || v_tree;
      continue;
    end if;
    begin
      v_made := v_made + pgfresh.make_history_days(v_tree, v_ahead);
      for v_name in select a.name from pgfresh.history_aside() as a where a.tree = v_tree order by a.name limit 1 loop
        v_move := pgfresh.move_history(
          v_tree, v_name, (v_today - v_keep)::timestamp at time zone 'UTC', c_rows);
        v_moved := v_moved + v_move.moved;
        v_made := v_made + v_move.made;
      end loop;
    exception when lock_not_available then
      v_busy := v_busy + 1;
      raise warning 'partitions of % could not be made now: %', v_tree, sqlerrm;
    end;
  end loop;
  -- Then what ends wait for. Once one lock is had, others are not waited for: ends would wait as long.
  for v_tree, v_keep, v_name in
    select t.tree, t.keep, c.relname
    from unnest(v_trees, v_keeps) as t(tree, keep)
    join pg_inherits as i on i.inhparent = ('pgfresh.' || t.tree)::regclass
    join pg_class as c on c.oid = i.inhrelid
    where c.relname ~ '_\d{8}$' and to_date(right(c.relname, 8), 'YYYYMMDD') < v_today - t.keep
    order by c.relname
  loop
    begin
      execute format('drop table pgfresh.%I', v_name);
      v_dropped := v_dropped + 1;
      perform set_config('lock_timeout', '10ms', true);
    exception when lock_not_available then
      v_busy := v_busy + 1;
      raise warning 'partition % is in use and stays until the next run', v_name;
    end;
  end loop;
  foreach v_tree in array v_filled loop
    begin
      perform pgfresh.set_history_aside(v_tree, v_today);
      v_made := v_made + pgfresh.make_history_days(v_tree, v_ahead);
      perform set_config('lock_timeout', '10ms', true);
      -- Few rows are moved at once: while ends wait, so only as many as a few milliseconds allow.
      for v_name in select a.name from pgfresh.history_aside() as a where a.tree = v_tree order by a.name limit 1 loop
        v_keep := v_keeps[array_position(v_trees, v_tree)];
        v_move := pgfresh.move_history(
          v_tree, v_name, (v_today - v_keep)::timestamp at time zone 'UTC', c_few_rows);
        v_moved := v_moved + v_move.moved;
        v_made := v_made + v_move.made;
      end loop;
    exception when lock_not_available then
      v_busy := v_busy + 1;
      raise warning 'the default partition of % is in use and stays until the next run', v_tree;
    end;
  end loop;
  -- Names that no row of the history has any more.
  delete from pgfresh.worker_name
  where id = any (array(
    select n.id
    from pgfresh.worker_name as n
    where n.last_seen_at
        < pgfresh.clock() - make_interval(days => greatest(p_keep_succeeded_days, p_keep_other_days) + 2)
      and not exists (select from pgfresh.worker as w where w.id = n.id)
    for update of n skip locked));
  return jsonb_build_object(
    'made', v_made, 'dropped', v_dropped, 'busy', v_busy, 'moved', v_moved,
    'aside', (select count(*) from pgfresh.history_aside()));
end
$$;
comment on function pgfresh.maintain_queue_partitions(int, int) is
  'Makes the history''s partitions of today and the next three days and drops those older than the days to keep. '
  'Never waits long for a lock: what is in use is left, with a warning, for the next run. '
  'Rows of days that nobody had made are set aside and moved to their days, at most 10000 of each part a call: '
  'call it again while "aside" is not 0. '
  'Returns {"made", "dropped", "busy", "moved", "aside"}, or {"skipped"} while another call is at it.';

select pgfresh.maintain_queue_partitions();

insert into pgfresh.migrations (kind, name, hash) values ('functions'::text, 'maintenance'::text, '01ac6cbc9416cdba91a7025795dce2ca0a2ade98a690797d690a42a94167ddf9'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- functions names
create or replace function pgfresh.is_valid_identifier(p_identifier text) returns boolean
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$ select coalesce(p_identifier ~ '^[A-Za-z_][A-Za-z0-9_]*$' and octet_length(p_identifier) <= 63, false) $$;
comment on function pgfresh.is_valid_identifier(text) is
  'Whether a text can be the name of a table, column or function in the registry: '
  'letters, digits and underscores, at most 63, no dot.';

create or replace function pgfresh.refuse_registry(p_message text, p_hint text) returns void
language sql
set search_path = pg_catalog, pg_temp
as $$ select pgfresh.refuse('PGF_REGISTRY_INVALID', p_message, p_hint) $$;
comment on function pgfresh.refuse_registry(text, text) is 'Refuses a row of the registry.';

-- Never by the search path: a name has its schema, or one that is the same for everybody.
create or replace function pgfresh.split_name(p_column text, p_name text) returns text[]
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_parts text[] := string_to_array(p_name, '.');
begin
  if cardinality(v_parts) = 1 then
    v_parts := array['public'] || v_parts;
  end if;
  if cardinality(v_parts) is distinct from 2
      or not pgfresh.is_valid_identifier(v_parts[1]) or not pgfresh.is_valid_identifier(v_parts[2])
      or v_parts[1] ~ '^pg_' then
    perform pgfresh.refuse_registry(
      format('%s %s is not a name', p_column, coalesce(left(quote_literal(p_name), 80), 'null')),
      'Expected letters, digits and underscores, at most 63, with the schema and a dot before it if it is not public.');
  end if;
  return v_parts;
end
$$;
comment on function pgfresh.split_name(text, text) is
  'Schema and name of something that the registry names; refuses what cannot be one.';

create or replace function pgfresh.find_table(p_column text, p_name text, p_may_grant boolean) returns oid
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_parts text[] := pgfresh.split_name(p_column, p_name);
  v_table record;
begin
  if v_parts[1] = 'pgfresh' then
    perform pgfresh.refuse_registry(
      format('%s: %I.%I is a table of pgfresh itself', p_column, v_parts[1], v_parts[2]),
      'Name a table of your own.');
  end if;
  select c.oid, c.relrowsecurity, n.oid as schema
  into v_table
  from pg_class as c
  join pg_namespace as n on n.oid = c.relnamespace
  where n.nspname = v_parts[1] and c.relname = v_parts[2] and c.relkind in ('r', 'p', 'v', 'm', 'f');
  if not found then
    perform pgfresh.refuse_registry(
      format('%s: there is no table %I.%I', p_column, v_parts[1], v_parts[2]),
      format('Create it, or correct %s.', p_column));
  end if;
  if not has_schema_privilege('pgfresh_evaluator', v_table.schema, 'usage')
      or not has_table_privilege('pgfresh_evaluator', v_table.oid, 'select') then
    begin
      if p_may_grant then
        execute format('grant usage on schema %I to pgfresh_evaluator', v_parts[1]);
        execute format('grant select on %I.%I to pgfresh_evaluator', v_parts[1], v_parts[2]);
      end if;
    exception when insufficient_privilege then null;
    end;
    -- Granting without the right to only warns.
    if not has_schema_privilege('pgfresh_evaluator', v_table.schema, 'usage')
        or not has_table_privilege('pgfresh_evaluator', v_table.oid, 'select') then
      perform pgfresh.refuse_registry(
        format('%s: the planner may not read %I.%I', p_column, v_parts[1], v_parts[2]),
        format('Run: grant usage on schema %1$I to pgfresh_evaluator; grant select on %1$I.%2$I to pgfresh_evaluator;',
          v_parts[1], v_parts[2]));
    end if;
  end if;
  -- A policy for everybody may show the planner nothing, and all rows would seem to be missing. So it must be one for
  -- the planner.
  if v_table.relrowsecurity
      and not (select rolbypassrls or rolsuper from pg_roles where rolname = 'pgfresh_evaluator')
      and not exists (
        select from pg_policy
        where polrelid = v_table.oid and polpermissive and polcmd in ('r', '*')
          and 'pgfresh_evaluator'::regrole = any (polroles)
      ) then
    perform pgfresh.refuse_registry(
      format('%s: row security hides the rows of %I.%I from the planner', p_column, v_parts[1], v_parts[2]),
      format('Run: create policy pgfresh on %I.%I for select to pgfresh_evaluator using (true);',
        v_parts[1], v_parts[2]));
  end if;
  return v_table.oid;
end
$$;
comment on function pgfresh.find_table(text, text, boolean) is
  'The table that a column of the registry names; refuses one that is not there or that the planner cannot read.';

create or replace function pgfresh.find_column(p_column text, p_table oid, p_name text) returns oid
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_type oid;
begin
  if pgfresh.is_valid_identifier(p_name) then
    select atttypid
    into v_type
    from pg_attribute
    where attrelid = p_table and attname = p_name and attnum > 0 and not attisdropped;
  end if;
  if v_type is null then
    perform pgfresh.refuse_registry(
      format('%s: the table %s has no column %s',
        p_column, p_table::regclass, coalesce(left(quote_literal(p_name), 80), 'null')),
      format('Its columns: %s.', (
        select string_agg(attname, ', ' order by attnum)
        from pg_attribute
        where attrelid = p_table and attnum > 0 and not attisdropped
      )));
  end if;
  return v_type;
end
$$;
comment on function pgfresh.find_column(text, oid, text) is
  'The type of a column that the registry names; refuses one that is not there.';

create or replace function pgfresh.find_function(
  p_column text, p_name text, p_returns regtype, variadic p_signatures text[])
returns oid
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_parts text[] := pgfresh.split_name(p_column, p_name);
  v_function record;
begin
  select f.oid, f.pronamespace as schema
  into v_function
  from unnest(p_signatures) with ordinality as s(arguments, place)
  join pg_proc as f on f.proname = v_parts[2] and oidvectortypes(f.proargtypes) = s.arguments
    and f.prorettype = p_returns and f.prokind = 'f' and not f.proretset
  join pg_namespace as n on n.oid = f.pronamespace
    and (n.nspname = v_parts[1] or (n.nspname = 'pgfresh' and position('.' in p_name) = 0))
  order by n.nspname = 'pgfresh', s.place
  limit 1;
  if not found then
    perform pgfresh.refuse_registry(
      format('%s: there is no function %I.%I (%s) that returns %s',
        p_column, v_parts[1], v_parts[2], array_to_string(p_signatures, ') or ('), p_returns),
      format('Create it, or correct %s.', p_column));
  end if;
  if not has_function_privilege('pgfresh_evaluator', v_function.oid, 'execute')
      or not has_schema_privilege('pgfresh_evaluator', v_function.schema, 'usage') then
    perform pgfresh.refuse_registry(
      format('%s: the planner may not call %s', p_column, v_function.oid::regprocedure),
      format('Run: grant usage on schema %s to pgfresh_evaluator; grant execute on function %s to pgfresh_evaluator;',
        v_function.schema::regnamespace, v_function.oid::regprocedure));
  end if;
  return v_function.oid;
end
$$;
comment on function pgfresh.find_function(text, text, regtype, text[]) is
  'A function that the registry names, by the arguments it may have; refuses one that is not there.';

-- Ours may change with a new version of pgfresh. A user's is the one that was registered, or it is not called.
create or replace function pgfresh.function_mark(p_function oid) returns jsonb
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select jsonb_build_object('signature', oid::regprocedure::text, 'owner', proowner::regrole::text,
    'body', case when pronamespace <> 'pgfresh'::regnamespace then md5(pg_get_functiondef(oid)) end)
  from pg_proc
  where oid = p_function
$$;
comment on function pgfresh.function_mark(oid) is
  'By what a function is recognised: its signature, its owner and a hash of its definition.';

insert into pgfresh.migrations (kind, name, hash) values ('functions'::text, 'names'::text, '0c9ad83474c30f34d6f5ee55a41daa4cccb421e99d17638fb6c6c0d10b98587f'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- functions nodes
create or replace function pgfresh.expire_nodes(p_now timestamptz) returns int
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_nodes bigint[] := array(select id from pgfresh.nodes where lease_until <= p_now order by id for update skip locked);
begin
  if cardinality(v_nodes) > 0 then
    -- Apart from the node, so that the trigger sees them.
    delete from pgfresh.node_demand where node_id = any (v_nodes);
    delete from pgfresh.nodes where id = any (v_nodes);
  end if;
  return cardinality(v_nodes);
end
$$;
comment on function pgfresh.expire_nodes(timestamptz) is
  'Removes nodes whose lease has ended, with their counts. A part of the planner and of the cleanup.';

create or replace function pgfresh.register_node(p_name text) returns bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_id bigint;
begin
  perform pgfresh.require_primary();
  if coalesce(p_name, '') = '' or length(p_name) > 200 or p_name ~ '[[:cntrl:]]' then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      'p_name must have 1 to 200 characters, and no control characters',
      'For instance the host and the process id.');
  end if;
  insert into pgfresh.nodes (name, started_at, lease_until)
  values (p_name, pgfresh.clock(), pgfresh.clock() + interval '30 seconds')
  returning id into v_id;
  return v_id;
end
$$;
comment on function pgfresh.register_node(text) is
  'Begins the lease of a gateway process, 30 s that heartbeat_node renews. Returns its number.';

create or replace function pgfresh.heartbeat_node(p_node bigint) returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  update pgfresh.nodes
  set lease_until = pgfresh.clock() + interval '30 seconds'
  where id = p_node and lease_until > (select pgfresh.clock());
  return found;
end
$$;
comment on function pgfresh.heartbeat_node(bigint) is
  'Renews the lease of a node. '
  'False if it has ended: then its counts are gone, and it must register and send them again.';

create or replace function pgfresh.retire_node(p_node bigint) returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  delete from pgfresh.node_demand where node_id = p_node;
  delete from pgfresh.nodes where id = p_node;
  return found;
end
$$;
comment on function pgfresh.retire_node(bigint) is
  'Ends the lease of a node, and its counts with it: its users have left. Returns whether it was there.';

/*
  One bad entry must not spoil the others, so what is refused is returned. Leaving is never refused: what has become of
  the key and the data type does not matter for it.
*/
create or replace function pgfresh.set_node_demand(p_node bigint, p_types int[], p_keys text[], p_viewers int[])
returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
-- A key table that somebody has locked costs the counts of its own data type, for now.
set lock_timeout = '100ms'
as $$
declare
  v_types int[] := '{}';
  v_keys text[] := '{}';
  v_viewers int[] := '{}';
  v_refused jsonb := '[]';
  v_changed int;
  v_left int;
  v_type record;
  v_judged record;
begin
  perform pgfresh.require_primary();
  if (cardinality(p_types) = cardinality(p_keys) and cardinality(p_keys) = cardinality(p_viewers)
      and cardinality(p_keys) <= 10000) is not true
      or exists (select from unnest(p_viewers) as v(count) where (v.count between 0 and 10000000) is not true) then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      'types, keys and viewers must be three arrays of one length, at most 10000, '
      'and each count from 0 to 10000000',
      'Pass the number of distinct users for each pair, 0 for those who left.');
  end if;
  if not exists (select from pgfresh.nodes where id = p_node and lease_until > (select pgfresh.clock()) for share) then
    perform pgfresh.refuse('PGF_LEASE_LOST',
      format('node %s has no lease', coalesce(p_node::text, 'null')),
      'Register again with register_node and send all counts.');
  end if;
  for v_type in
    select named.type_id, r as registered, named.keys, named.viewers, named.places
    from (
      select w.type_id, array_agg(w.key order by w.place) as keys, array_agg(w.viewers order by w.place) as viewers,
        array_agg(w.place order by w.place) as places
      from unnest(p_types, p_keys, p_viewers) with ordinality as w(type_id, key, viewers, place)
      where w.viewers > 0
      group by w.type_id
    ) as named
    left join pgfresh.data_type_registry as r on r.type_id = named.type_id
    order by named.type_id
  loop
    begin
      if v_type.registered is null then
        perform pgfresh.refuse('PGF_TYPE_UNKNOWN',
          format('there is no data type with the number %s', coalesce(v_type.type_id::text, 'null')),
          'Ask admit_pairs for its number.');
      end if;
      select array_agg(j.key order by j.place) filter (where j.code is null) as keys,
        array_agg(v_type.viewers[j.place] order by j.place) filter (where j.code is null) as viewers,
        jsonb_agg(jsonb_build_object('place', v_type.places[j.place], 'code', j.code, 'problem', j.problem)
          order by j.place) filter (where j.code is not null) as refused
      into v_judged
      from pgfresh.judge_keys(v_type.registered, v_type.keys) as j;
      v_keys := v_keys || v_judged.keys;
      v_viewers := v_viewers || v_judged.viewers;
      v_types := v_types || array_fill(v_type.type_id, array[coalesce(cardinality(v_judged.keys), 0)]);
      v_refused := v_refused || coalesce(v_judged.refused, '[]');
    exception when others then
      -- The data type is gone, or its keys cannot be asked for now. Pairs of other types are none the worse for it.
      v_refused := v_refused || (
        select jsonb_agg(jsonb_build_object(
          'place', p, 'code', coalesce(substring(sqlerrm from '^PGF_\w+'), 'PGF_REGISTRY_INVALID'),
          'problem', regexp_replace(sqlerrm, '^PGF_\w+: ', '')))
        from unnest(v_type.places) as p
      );
      -- The others may have the same key table: all of them together wait hardly longer than one.
      if sqlstate = '55P03' then
        perform set_config('lock_timeout', '1ms', true);
      end if;
    end;
  end loop;
  perform set_config('lock_timeout', '100ms', true);
  with wanted as (
    select w.type_id, w.key, max(w.viewers) as viewers
    from unnest(v_types, v_keys, v_viewers) as w(type_id, key, viewers)
    group by w.type_id, w.key
  )
  insert into pgfresh.node_demand as d (node_id, type_id, key, viewers)
  select p_node, w.type_id, w.key, w.viewers from wanted as w order by w.type_id, w.key
  on conflict (node_id, type_id, key) do update set viewers = excluded.viewers where d.viewers <> excluded.viewers;
  get diagnostics v_changed = row_count;
  -- By arrays of keys and no join: of a node that the statistics do not know, all rows would be compared with all keys.
  for v_type in
    select w.type_id, array_agg(w.key) as keys
    from unnest(p_types, p_keys, p_viewers) as w(type_id, key, viewers)
    where w.viewers = 0
    group by w.type_id
    order by w.type_id
  loop
    delete from pgfresh.node_demand as d
    where d.node_id = p_node and d.type_id = v_type.type_id and d.key = any (v_type.keys);
    get diagnostics v_left = row_count;
    v_changed := v_changed + v_left;
  end loop;
  return jsonb_build_object('changed', v_changed, 'refused', v_refused);
end
$$;
comment on function pgfresh.set_node_demand(bigint, int[], text[], int[]) is
  'Says how many distinct users look at each of these pairs through a node; 0 for pairs that all have left. '
  'Pairs that are not named keep their count. '
  'Returns {"changed", "refused"}: how many changed, and the place, code and problem of each that was not counted. '
  'Leaving is never refused.';

insert into pgfresh.migrations (kind, name, hash) values ('functions'::text, 'nodes'::text, '155a6f67d584d5a27f5479969cc37af2fbce5c4847e96338eb22bdfb54412ac3'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- functions overrides
/*
  The configuration says what a source may cost, and sync writes it. What an operator changes here stays: it is an
  override, with who, when and why, until it is cleared or the configuration itself says something new. Sync names the
  columns that it writes in pgfresh.sync, because it is no other user than an operator may be.
*/
create or replace function pgfresh.source_settings(p_source pgfresh.sources) returns jsonb
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  -- Intervals in seconds: the same time may be written in several ways.
  select jsonb_build_object(
    'enabled', p_source.enabled, 'rate_limit_per_minute', p_source.rate_limit_per_minute,
    'api_keys', p_source.api_keys, 'quota_bytes', p_source.quota_bytes,
    'quota_window', extract(epoch from p_source.quota_window), 'quota_buffer', p_source.quota_buffer,
    'viewed_share', p_source.viewed_share, 'max_concurrency', p_source.max_concurrency,
    'one_key_at_a_time', p_source.one_key_at_a_time, 'breaker_failures', p_source.breaker_failures,
    'breaker_window', extract(epoch from p_source.breaker_window),
    'breaker_pause', extract(epoch from p_source.breaker_pause))
$$;
comment on function pgfresh.source_settings(pgfresh.sources) is
  'What the configuration may say about a source, by column, with intervals in seconds.';

create or replace function pgfresh.keep_overrides() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_synced text[] := string_to_array(nullif(current_setting('pgfresh.sync', true), ''), ',');
  v_now jsonb := pgfresh.source_settings(new);
  v_before jsonb;
  v_column text;
begin
  if new.managed_by <> 'config' then
    new.config := '{}';
    new.overrides := '{}';
    return new;
  end if;
  if tg_op = 'UPDATE' then
    v_before := pgfresh.source_settings(old);
  end if;
  if v_synced is not null then
    new.config := new.config || coalesce(
      (select jsonb_object_agg(s.key, s.value) from jsonb_each(v_now) as s where s.key = any (v_synced)), '{}');
  end if;
  for v_column in select jsonb_object_keys(new.config) loop
    if v_now -> v_column = new.config -> v_column then
      new.overrides := new.overrides - v_column;
    elsif v_now -> v_column is distinct from v_before -> v_column then
      new.overrides := new.overrides || jsonb_build_object(v_column, jsonb_build_object(
        'value', v_now -> v_column, 'config_value', new.config -> v_column,
        'by', session_user, 'at', pgfresh.clock(), 'reason', nullif(current_setting('pgfresh.reason', true), '')));
    end if;
  end loop;
  return new;
end
$$;
comment on function pgfresh.keep_overrides() is
  'Trigger of sources: keeps what the configuration says, and who has set something else.';

create or replace trigger keep_overrides
  before insert or update of managed_by, enabled, rate_limit_per_minute, api_keys, quota_bytes, quota_window,
    quota_buffer, viewed_share, max_concurrency, one_key_at_a_time, breaker_failures, breaker_window, breaker_pause
  on pgfresh.sources
  for each row execute function pgfresh.keep_overrides();

create or replace function pgfresh.set_source_value(p_source pgfresh.sources, p_column text, p_value text) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_known text := (
    select string_agg(k, ', ' order by k) from jsonb_object_keys(pgfresh.source_settings(p_source)) as k
  );
  v_type text;
begin
  select format_type(a.atttypid, a.atttypmod)
  into v_type
  from pg_attribute as a
  where a.attrelid = 'pgfresh.sources'::regclass and a.attname = p_column
    and pgfresh.source_settings(p_source) ? p_column;
  if v_type is null then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      format('a source has no setting %s, only %s', coalesce(left(quote_literal(p_column), 60), 'null'), v_known),
      'Pass the name of a column of pgfresh.sources that the configuration may set.');
  end if;
  execute format('update pgfresh.sources set %I = $1::%s where id = $2', p_column, v_type)
  using p_value, p_source.id;
exception when check_violation or not_null_violation or data_exception then
  perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
    format('%s cannot be %s', p_column, coalesce(left(quote_literal(p_value), 60), 'none')),
    'docs/registry.md says which values it may have.');
end
$$;
comment on function pgfresh.set_source_value(pgfresh.sources, text, text) is
  'Writes one setting of a source. A part of override_source.';

create or replace function pgfresh.override_source(p_source text, p_column text, p_value text, p_reason text)
returns jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_source pgfresh.sources := pgfresh.require_source(p_source);
begin
  perform pgfresh.require_reason('p_reason', p_reason);
  -- Whoever calls this is no sync, whatever the session says.
  perform set_config('pgfresh.sync', '', true);
  perform set_config('pgfresh.reason', p_reason, true);
  perform pgfresh.set_source_value(v_source, p_column, p_value);
  perform set_config('pgfresh.reason', '', true);
  perform pgfresh.wake_workers();
  return (select overrides from pgfresh.sources where id = v_source.id);
end
$$;
comment on function pgfresh.override_source(text, text, text, text) is
  'Sets one setting of a source by its column, for instance rate_limit_per_minute, whatever the configuration says. '
  'It stays until clear_source_override or until the configuration has another value. null is no limit. '
  'Returns all overrides of the source, with who, when and why.';

create or replace function pgfresh.clear_source_override(p_source text, p_column text default null) returns int
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_source pgfresh.sources := pgfresh.require_source(p_source);
  v_column text;
  v_count int := 0;
begin
  if p_column is not null and not pgfresh.source_settings(v_source) ? p_column then
    perform pgfresh.set_source_value(v_source, p_column, null);
  end if;
  for v_column in
    select k from jsonb_object_keys(v_source.overrides) as k where p_column is null or k = p_column order by k
  loop
    perform pgfresh.set_source_value(v_source, v_column,
      (v_source.config ->> v_column) || case
        when v_column in ('quota_window', 'breaker_window', 'breaker_pause') then ' seconds' else ''
      end);
    v_count := v_count + 1;
  end loop;
  perform pgfresh.wake_workers();
  return v_count;
end
$$;
comment on function pgfresh.clear_source_override(text, text) is
  'Gives a source back what the configuration says, of one setting or of all. Returns how many were overridden.';

insert into pgfresh.migrations (kind, name, hash) values ('functions'::text, 'overrides'::text, '4c5ed29587c6125ba863fd8baa6b4f7d30aeb69d1b3e7d090be5095d8b689794'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- functions overview
/*
  What a person wants to see at a glance, in one read. It looks at every pair that is viewed, at the types and at the
  sources, and at nothing that grows with the past: no history, no pair that nobody looks at. Of the queue it counts at
  most 10000 ready jobs a source, and 10000 in all that wait for a time.
*/
create or replace function pgfresh.overview() returns jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
-- Statistics of pairs and jobs are never right, and with the index on what is viewed and ready nothing else is read.
set enable_seqscan = off
set jit = off
as $$
declare
  v_now timestamptz := pgfresh.clock();
  v_most constant int := 10000;
  -- What was taken since then is free again later than this.
  v_minute timestamptz := pgfresh.slot_free_at(pgfresh.use_by_of(v_now - interval '1 minute'));
  v_workers int := (select count(*) from pgfresh.worker as w where w.lease_until > v_now);
  v_freshness jsonb; v_types jsonb; v_sources jsonb; v_problems jsonb;
begin
  with source as materialized (
    select s.id, h.* from pgfresh.source_health as h join pgfresh.sources as s on s.name = h.source
  ), viewed as (
    select p.type_id, p.viewers, p.outcome, p.ok_at, pgfresh.state_of(
        p, null, null, null, coalesce(r.empty_ttl, r.ttl), r.max_source_age, v_now) as state,
      -- What was written but not looked at yet is as old as its refresh.
      extract(epoch from v_now - greatest(
        case
          when p.row_at > v_now + interval '1 day' then null
          when p.row_at is not null or p.seen then nullif(p.row_at, '-infinity')
          else p.ok_at
        end, p.confirmed_at
      )) as age,
      extract(epoch from v_now - p.source_at) as source_age,
      case when p.job_id is null and p.due_at > v_now then p.waits_for end as waits_for,
      p.row_at is not null as has_row
    from pgfresh.pairs as p
    join pgfresh.data_type_registry as r on r.type_id = p.type_id
    where p.demanded and p.viewers > 0
  ), aged as (
    select v.*, a.age as seen_age, case when a.age is null then 0 else v.viewers end as weight,
      -- Where the source says that there is nothing, nothing is what there should be. A row that was kept is not.
      v.state = 'fresh' or (v.state = 'empty' and not v.has_row) as good
    from viewed as v
    cross join lateral (
      select case when v.state in ('fresh', 'stale', 'older_source') or v.has_row then v.age end as age
    ) as a
  ), placed as (
    -- Percentiles of what viewers see, so a pair counts as often as it is looked at.
    select a.*,
      sum(a.weight) over (partition by a.type_id order by a.seen_age rows unbounded preceding) as place,
      sum(a.weight) over (partition by a.type_id) as places,
      sum(a.weight) over (order by a.seen_age rows unbounded preceding) as place_of_all,
      sum(a.weight) over () as places_of_all
    from aged as a
  ), counted as (
    select type_id, count(*) as pairs, coalesce(sum(viewers), 0) as viewers,
      count(*) filter (where state = 'fresh') as fresh, count(*) filter (where state = 'stale') as stale,
      count(*) filter (where state = 'missing') as missing, count(*) filter (where state = 'empty') as empty,
      count(*) filter (where state = 'older_source') as older_source,
      count(*) filter (where state = 'empty' and has_row) as kept,
      count(*) filter (where ok_at > v_now - interval '1 minute') as refreshed,
      round(count(*) filter (where good)::numeric / nullif(count(*), 0), 4) as share,
      round(
        coalesce(sum(viewers) filter (where good), 0)::numeric / nullif(sum(viewers), 0), 4) as viewer_share,
      round((percentile_disc(0.5) within group (order by source_age))::numeric, 1) as source_age_p50,
      round(
        case
          when grouping(type_id) = 0 then min(seen_age) filter (where place >= 0.5 * places)
          else min(seen_age) filter (where place_of_all >= 0.5 * places_of_all)
        end, 1) as age_p50,
      round(
        case
          when grouping(type_id) = 0 then min(seen_age) filter (where place >= 0.95 * places)
          else min(seen_age) filter (where place_of_all >= 0.95 * places_of_all)
        end, 1) as age_p95
    from placed
    group by grouping sets ((type_id), ())
  ), outcomes as (
    select o.type_id, jsonb_object_agg(o.outcome, o.pairs) as outcomes
    from (
      select type_id, outcome, count(*) as pairs from viewed where outcome is not null group by type_id, outcome
    ) as o
    group by o.type_id
  ), waits as (
    select w.type_id, jsonb_object_agg(w.waits_for, w.pairs) as reasons
    from (
      select type_id, waits_for, count(*) as pairs
      from viewed
      where waits_for is not null and state not in ('fresh', 'empty')
      group by type_id, waits_for
    ) as w
    group by w.type_id
  ), open as materialized (
    select j.source_id, j.type_id, 'ready' as state, null as error
    from source as s
    cross join lateral (
      select s.id as source_id, q.type_id
      from pgfresh.data_type_registry as r
      cross join lateral (
        select q.type_id from pgfresh.job as q where q.type_id = r.type_id and q.state = 'r' limit v_most
      ) as q
      where r.source_id = s.id
      limit v_most
    ) as j
    union all
    select j.source_id, j.type_id, 'waiting', j.error
    from (
      select w.source_id, w.type_id, w.error
      from pgfresh.job as w
      where w.state = 'w'
      order by w.run_at
      limit v_most
    ) as j
    union all
    select j.source_id, j.type_id, 'running', null
    from pgfresh.job as j
    where j.id = any (array(select unnest(c.job_ids) from pgfresh.claim as c)) and j.state = 'x'
  ), open_by_type as (
    select type_id,
      count(*) filter (where state = 'ready') as ready, count(*) filter (where state = 'waiting') as waiting,
      count(*) filter (where state = 'running') as running, max(error) as error
    from open
    group by type_id
  ), open_by_source as (
    select source_id,
      count(*) filter (where state = 'ready') as ready, count(*) filter (where state = 'waiting') as waiting,
      count(*) filter (where state = 'running') as running
    from open
    group by source_id
  )
  select
    (select to_jsonb(c) - 'type_id' from counted as c where c.type_id is null),
    (
      select coalesce(jsonb_agg(jsonb_build_object(
        'data_type', r.data_type, 'source', r.source, 'ttl_seconds', extract(epoch from r.ttl),
        'pairs', coalesce(c.pairs, 0), 'viewers', coalesce(c.viewers, 0),
        'fresh', coalesce(c.fresh, 0), 'stale', coalesce(c.stale, 0),
        'missing', coalesce(c.missing, 0), 'empty', coalesce(c.empty, 0),
        'older_source', coalesce(c.older_source, 0), 'kept', coalesce(c.kept, 0),
        'share', c.share, 'viewer_share', c.viewer_share, 'age_p50', c.age_p50, 'age_p95', c.age_p95,
        'source_age_p50', c.source_age_p50, 'waits_for', coalesce(w.reasons, '{}'),
        'refreshed', coalesce(c.refreshed, 0),
        'ready', coalesce(j.ready, 0), 'waiting', coalesce(j.waiting, 0), 'running', coalesce(j.running, 0),
        'outcomes', coalesce(o.outcomes, '{}'), 'error', j.error
      ) order by r.data_type), '[]')
      from pgfresh.data_type_registry as r
      left join counted as c on c.type_id = r.type_id
      left join outcomes as o on o.type_id = r.type_id
      left join waits as w on w.type_id = r.type_id
      left join open_by_type as j on j.type_id = r.type_id
    ),
    (
      select coalesce(jsonb_agg(jsonb_build_object(
        'source', s.source, 'state', s.state, 'paused_until', s.paused_until, 'pause_reason', s.pause_reason,
        'failure_streak', s.failure_streak, 'last_success_at', s.last_success_at,
        'calls_limit', s.rate_limit_per_minute * s.api_keys,
        'calls_minute', case
          when s.rate_limit_per_minute is not null
            then (
              select least(coalesce(sum(t.calls), 0), s.rate_limit_per_minute * s.api_keys)
              from pgfresh.rate_slot as t
              where t.source_id = s.id and t.free_at > v_minute
            )
        end,
        'calls_hour', u.calls, 'bytes_hour', u.bytes,
        'quota_cap', s.quota_cap, 'quota_used', s.quota_used,
        'quota_reserved', s.quota_reserved, 'quota_free', s.quota_free, 'quota_until', s.quota_until,
        'ready', coalesce(j.ready, 0), 'waiting', coalesce(j.waiting, 0), 'running', coalesce(j.running, 0)
      ) order by s.source), '[]')
      from source as s
      left join open_by_source as j on j.source_id = s.id
      cross join lateral (
        select coalesce(sum(u.calls), 0) as calls, coalesce(sum(u.bytes), 0) as bytes
        from pgfresh.usage as u
        where u.source_id = s.id and u.hour = date_trunc('hour', v_now, 'UTC')
      ) as u
    ),
    (
      select coalesce(jsonb_agg(to_jsonb(p) - 'place' order by p.place, p.source, p.data_type, p.api_key), '[]')
      from (
        -- While spending is stopped every source is, and one that is paused is so afterwards.
        select 1 as place, s.source, null::text as data_type, null::smallint as api_key,
          case when s.state = 'stopped' then 'paused' else s.state end as reason,
          coalesce(s.paused_until, s.quota_until) as until, s.pause_reason as message,
          case s.state
            when 'quota' then format('Wait, or raise it with "pgfresh source set %s quota_bytes <bytes>".', s.source)
            when 'off' then format('Switch it on with "pgfresh source set %s enabled true".', s.source)
            when 'held' then 'It is called again by itself then.'
            when 'breaker' then
              format('It is tried by itself then; "pgfresh source resume %s" tries at once.', s.source)
            when 'probing' then null
            -- If its API keys are refused, their own lines say what to do.
            else case when s.paused_by is distinct from 'credentials'
              then format('"pgfresh source resume %s" lets it be called again.', s.source) end
          end as next_step
        from source as s
        where s.state not in ('ok', 'rate', 'stopped') or (s.state = 'stopped' and s.paused_until is not null)
        union all
        select 2, s.source, null, b.api_key, 'refused', b.paused_until, b.reason,
          format('Renew the API key, then run "pgfresh source resume %s".', s.source)
        from source as s
        join pgfresh.breaker as b on b.source_id = s.id and b.api_key = any (s.denied_keys)
        union all
        select 3, s.source, t.data_type, null, 'paused', t.until, t.reason,
          format('It is tried by itself then; "pgfresh source resume %s" tries at once.', s.source)
        from source as s
        cross join lateral jsonb_to_recordset(s.paused_types) as t(data_type text, until timestamptz, reason text)
        union all
        select 3, r.source, r.data_type, null, 'no_worker', null, pgfresh.worker_obstacle(r, v_now), null
        from pgfresh.data_type_registry as r
        left join counted as c on c.type_id = r.type_id
        where v_workers > 0 and (c.pairs > 0 or r.refresh_strategy = 'scheduled')
          and pgfresh.worker_obstacle(r, v_now) is not null
        union all
        select 3, r.source, r.data_type, null, 'quarantined', null,
          format('it has not answered in time since %s (%s: %s)',
            to_char(q.since, 'YYYY-MM-DD HH24:MI:SSOF'), q.last_where, q.last_message),
          format('See what holds it up: a lock on %s, or a function of its registry row. It is probed every second.',
            r.table_name)
        from pgfresh.quarantined_types() as q
        join pgfresh.data_type_registry as r on r.type_id = q.type_id
        union all
        select 3, r.source, r.data_type, null, 'unresolved', null, t.problem, t.next_step
        from pgfresh.data_type_registry as r
        cross join lateral pgfresh.type_problem(r) as t
      ) as p
    )
  into v_freshness, v_types, v_sources, v_problems;
  return jsonb_build_object(
    'at', v_now, 'problems', v_problems, 'freshness', v_freshness, 'types', v_types, 'sources', v_sources,
    'stopped', (select jsonb_build_object('since', s.stopped_at, 'reason', s.reason) from pgfresh.spending_stop as s),
    'workers', v_workers,
    'planning', exists (select from pgfresh.duty as d where d.name = 'planner' and d.lease_until > v_now),
    -- A tick that finds nothing due leaves no record, so what it has left undone is what tells.
    'overdue_seconds', (
      select coalesce(round(extract(epoch from v_now - min(d.due_at)), 1), 0)
      from pgfresh.due as d
      where d.due_at <= v_now
    ),
    'planned_at', (
      select r.last_at from pgfresh.planner_run as r where r.kind = 'tick' order by r.started_at desc limit 1
    ));
end
$$;
comment on function pgfresh.overview() is
  'What pgfresh top shows: how fresh what people look at is, the queue, and what each source has used of its limits. '
  'Reads what is viewed, never what is past. '
  'The states are those of pairs as the planner last saw them; shares count every viewed pair, '
  'and what is empty is as it should be, unless an old row is kept (kept). '
  'waits_for says what keeps stale pairs without a job from getting one. '
  'problems says what is not called or refreshed, why and until when: sources, then API keys, then data types. '
  'planned_at is when a tick last found something due, and overdue_seconds how long what is due has waited for one.';

insert into pgfresh.migrations (kind, name, hash) values ('functions'::text, 'overview'::text, '0e258783c304e76f4f77de12e6b99545895eda8db3d874a70d05a36ebd809319'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- functions own_jobs
/*
  What pgfresh does itself at set times are jobs like any other: their slots are accounted for, and they are seen where
  jobs are seen. Their names begin with "pgfresh.", and what is written here about them comes back if somebody changes
  it; whether they are enabled or paused does not.
*/
create or replace function pgfresh.sync_own_jobs() returns int
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_count int;
  v_gone int;
begin
  perform pgfresh.require_primary();
  with wanted as (
    select 'pgfresh.maintain'::text as name, 'pgfresh.maintain'::text as handler,
      '7 * * * *'::text as schedule, 'UTC'::text as timezone, '{}'::jsonb as params,
      'Makes and drops days of the history; forgets old pairs and usage.'::text as description, interval '0' as jitter
    union all
    select 'pgfresh.sweep', 'pgfresh.sweep', '* * * * *', 'UTC', '{}',
      'Ends silent subscriptions, and asks about everything that somebody looks at.', '0'
    union all
    select 'pgfresh.tidy', 'pgfresh.tidy', '* * * * *', 'UTC', '{}',
      'Forgets old runs, warnings and marks, and sees which data types have a schedule.',
      -- Not when a minute begins: that is when the jobs of most people are due.
      '20 seconds'
    union all
    select 'pgfresh.refresh.' || r.data_type, 'pgfresh.refresh',
      r.refresh_schedule, r.schedule_zone, jsonb_build_object('data_type', r.data_type),
      format('Refreshes all keys of %s.', r.data_type), '0'
    from pgfresh.data_type_registry as r
    where r.refresh_strategy = 'scheduled' and r.refresh_schedule is not null
      -- One that cannot be read must not keep the others from being written.
      and pgfresh.cron_problem(r.refresh_schedule) is null and pgfresh.is_time_zone(r.schedule_zone)
  ), written as (
    insert into pgfresh.scheduled_jobs as j
      (name, kind, function_name, schedule, timezone, params, description, timeout, jitter)
    select name, 'handler', handler, schedule, timezone, params, description, interval '1 minute', jitter from wanted
    on conflict (name) do update
      set schedule = excluded.schedule, timezone = excluded.timezone, params = excluded.params,
        every_min = null, every_max = null, failure_min = null, failure_max = null,
        kind = 'handler', function_name = excluded.function_name,
        description = excluded.description, timeout = excluded.timeout, jitter = excluded.jitter
      where (j.schedule, j.timezone, j.params, j.kind, j.function_name, j.description, j.timeout, j.jitter)
        is distinct from (excluded.schedule, excluded.timezone, excluded.params, excluded.kind, excluded.function_name,
          excluded.description, excluded.timeout, excluded.jitter)
    returning 1
  )
  select count(*) into v_count from written;
  delete from pgfresh.scheduled_jobs as j
  where j.kind = 'handler' and j.function_name = 'pgfresh.refresh' and j.name like 'pgfresh.refresh.%'
    and not exists (
      select from pgfresh.data_type_registry as r
      where r.refresh_strategy = 'scheduled' and r.refresh_schedule is not null
        and 'pgfresh.refresh.' || r.data_type = j.name
    );
  get diagnostics v_gone = row_count;
  return v_count + v_gone;
end
$$;
comment on function pgfresh.sync_own_jobs() is
  'Writes the jobs of pgfresh itself: one for each scheduled data type, which opens its rounds, one for the history, '
  'one that sweeps, and one that tidies up. Returns how many were added, changed or removed.';

insert into pgfresh.migrations (kind, name, hash) values ('functions'::text, 'own_jobs'::text, '9f02b7cb7105805681bcc4d57dcf67ca4a24d1afca440dd32589ee4946d77e88'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- functions pair_states
/*
  The state of a pair has two axes. The data: fresh, stale, missing, empty, older_source. The activity: idle,
  refreshing, or waiting for a reason. These are the only definitions of both; whoever shows a pair calls them.
*/

/*
  Whether there is a row, its time and when it goes stale are passed as they are now. Where it is not known whether
  there is one, it goes by what the planner last saw; what a success says that it wrote is believed until the next tick.
*/
create or replace function pgfresh.state_of(
  p_pair pgfresh.pairs, p_found boolean, p_at timestamptz, p_stale_at timestamptz, p_empty_ttl interval,
  p_max_source_age interval, p_now timestamptz)
returns text
-- Stable, as a time and an interval of days are added in a time zone: called immutable it would not be inlined,
-- and an overview of many pairs take three times as long.
language sql stable parallel safe
as $$
  select case
    -- Others may have written a row since the source said that there is nothing.
    when p_pair.empty_at + p_empty_ttl > p_now
        and ((case when p_found is null then p_pair.row_at else p_at end) > p_pair.empty_at) is not true then 'empty'
    when not coalesce(p_found, p_pair.row_at is not null or (not p_pair.seen and p_pair.outcome <> 'empty'), false)
      then 'missing'
    when (case when p_found is null then p_pair.stale_at else p_stale_at end) > p_now
        and (p_pair.source_at + p_max_source_age <= p_now) is not true then 'fresh'
    when p_pair.outcome = 'older_source' then 'older_source'
    else 'stale'
  end
$$;
comment on function pgfresh.state_of(
  pgfresh.pairs, boolean, timestamptz, timestamptz, interval, interval, timestamptz) is
  'The state of the data of a pair: fresh (younger than its TTL by its own time, or confirmed by the source since), '
  'stale, missing (no row), empty (the source says that there is nothing), '
  'older_source (stale, and the source answers with something older).';

/*
  Whoever reads a row that is gone or older than the planner knows brings its look forward: the next tick then sees
  what the next sweep would.
*/
create or replace function pgfresh.is_row_lost(p_pair pgfresh.pairs, p_found boolean, p_at timestamptz)
returns boolean
language sql immutable parallel safe
as $$
  select coalesce(
    p_pair.demanded and p_pair.seen and p_pair.job_id is null
      and case
        when p_found then coalesce(p_at, '-infinity') < p_pair.row_at
        else not p_found and p_pair.row_at is not null
      end,
    false)
$$;
comment on function pgfresh.is_row_lost(pgfresh.pairs, boolean, timestamptz) is
  'Whether the row of a viewed pair without a job is gone or older than the planner knows. A part of what shows pairs.';

-- Never in the way of who reads: what somebody has locked, or cannot be written here, is left to the sweep.
create or replace function pgfresh.hasten(p_type_id int, p_key text, p_now timestamptz) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
  v_place tid;
begin
  if current_setting('transaction_read_only')::boolean then
    return false;
  end if;
  select p.ctid
  into v_place
  from pgfresh.pairs as p
  where p.type_id = p_type_id and p.key = p_key and p.demanded and p.job_id is null
  for update skip locked;
  if not found then
    return false;
  end if;
  update pgfresh.pairs as p set due_at = p_now where p.ctid = v_place and p.due_at > p_now;
  if found then
    insert into pgfresh.due (due_at, type_id, key) values (p_now, p_type_id, p_key) on conflict do nothing;
  end if;
  return true;
end
$$;
comment on function pgfresh.hasten(int, text, timestamptz) is
  'Lets the next tick look at a pair. Waits for nobody; returns whether it will. A part of what shows pairs.';

/*
  Of several reasons the one that lasts longest is the answer: that a job is tried again in 4 s means nothing while its
  source is left alone for five minutes.
*/
create or replace function pgfresh.activity_of(
  p_pair pgfresh.pairs, p_state text, p_job_state "char", p_run_at timestamptz, p_scheduled boolean,
  p_source_reason text, p_source_until timestamptz, p_now timestamptz, out activity text, out reason text)
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
  select
    case
      when p_job_state = 'x' then 'refreshing'
      when w.reason is null then 'idle'
      else 'waiting'
    end,
    case when p_job_state = 'x' then null else w.reason end
  from (
    select case
      when p_job_state = 'w' then
        case when p_source_until > p_run_at then p_source_reason else 'retry' end
      when p_job_state is not null then coalesce(p_source_reason, 'queued')
      when p_pair.demanded is not true or p_state in ('fresh', 'empty') then null
      when p_pair.next_ask_at > p_now then
        case
          when p_source_until > p_pair.next_ask_at then p_source_reason
          when p_pair.fails > 0 and p_pair.outcome <> 'worker_lost' then 'refused'
          else 'retry'
        end
      when p_scheduled and p_state <> 'missing' then null
      when p_source_reason is not null then p_source_reason
      when p_pair.due_at > p_now and p_pair.waits_for is not null then p_pair.waits_for
      else 'due'
    end as reason
  ) as w
$$;
comment on function pgfresh.activity_of(
  pgfresh.pairs, text, "char", timestamptz, boolean, text, timestamptz, timestamptz) is
  'What happens with a pair: idle, refreshing (a worker has it), or waiting, and then for what.';

-- Nearly always nothing is the matter with a source, and one look says so.
create or replace function pgfresh.source_hindrance(
  p_source_id int, p_now timestamptz, out reason text, out until timestamptz)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if exists (
    select from pgfresh.sources as s
    where s.id = p_source_id
      and (not s.enabled or s.paused_until > p_now or s.quota_bytes is not null
        or exists (select from pgfresh.spending_stop))
  ) then
    -- The planner looks again after a while at what has no end of its own.
    select o.reason,
      case when o.reason = 'stopped' or not s.enabled or s.paused_until = 'infinity' then 'infinity' else o.until end
    into reason, until
    from pgfresh.source_obstacle(p_source_id, p_now) as o
    join pgfresh.sources as s on s.id = p_source_id;
  end if;
end
$$;
comment on function pgfresh.source_hindrance(int, timestamptz) is
  'What keeps a source from being called, and until when; nulls if nothing does. A part of what shows pairs.';

insert into pgfresh.migrations (kind, name, hash) values ('functions'::text, 'pair_states'::text, '774accd70ea71db68a2a22790d8075521cf1d4f2e344f640d46adb4b2c24362e'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- functions planner
create or replace function pgfresh.require_primary() returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  if pg_is_in_recovery() then
    perform pgfresh.refuse('PGF_STANDBY',
      'this is a standby, whose clock and rows are behind',
      'Connect to the primary.');
  end if;
end
$$;
comment on function pgfresh.require_primary() is 'Refuses to decide anything on a standby.';

create or replace function pgfresh.priority_of(p_type pgfresh.data_type_registry, p_viewers int) returns int
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$ select case when p_viewers < p_type.ui_threshold then p_type.background_priority else p_viewers end $$;
comment on function pgfresh.priority_of(pgfresh.data_type_registry, int) is
  'The priority of a pair with so many viewers: '
  'their number, or below the type''s ui_threshold its background_priority.';

create or replace function pgfresh.add_counts(variadic p_counts jsonb[]) returns jsonb
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
  select coalesce(jsonb_object_agg(t.key, t.total), '{}')
  from (
    select e.key, sum(e.value::numeric) as total
    from unnest(p_counts) as c
    cross join lateral jsonb_each_text(c) as e
    group by e.key
  ) as t
$$;
comment on function pgfresh.add_counts(jsonb[]) is 'Objects of counts as one.';

/*
  What keeps whole data types from being planned now, and until when; no row for those that nothing does.
  Nearly always one statement answers for all of them: what a registry row names is looked up again only
  if the catalog has changed.
*/
create or replace function pgfresh.planning_obstacles(p_types int[], p_now timestamptz)
returns table (type_id int, reason text, until timestamptz)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_type record;
  v_problem record;
begin
  for v_type in
    select r as registered, res.stamp = now.stamp as same
    from pgfresh.data_type_registry as r
    join pgfresh.sources as s on s.id = r.source_id
    left join pgfresh.type_resolution as res on res.type_id = r.type_id
    left join pgfresh.catalog_stamps(p_types) as now on now.type_id = r.type_id
    where r.type_id = any (p_types)
      and ((res.stamp = now.stamp) is not true
        or not s.enabled or s.paused_until > p_now or s.quota_bytes is not null
        or exists (select from pgfresh.breaker as b where b.type_id = r.type_id and b.paused_until > p_now)
        or exists (select from pgfresh.type_timeout as t where t.type_id = r.type_id)
        or exists (select from pgfresh.spending_stop))
  loop
    type_id := (v_type.registered).type_id;
    if v_type.same is not true then
      select * into v_problem from pgfresh.type_problem(v_type.registered);
      if found then
        perform pgfresh.warn('type_unresolved', (v_type.registered).data_type, v_problem.problem, v_problem.next_step);
        reason := 'unresolved';
        until := p_now + interval '1 minute';
        return next;
        continue;
      end if;
    end if;
    select o.reason, o.until
    into reason, until
    from pgfresh.type_obstacle((v_type.registered).type_id, (v_type.registered).source_id, p_now) as o;
    if found then
      return next;
    end if;
  end loop;
end
$$;
comment on function pgfresh.planning_obstacles(int[], timestamptz) is
  'What keeps data types from being planned: unresolved, or what type_obstacle says.';

insert into pgfresh.migrations (kind, name, hash) values ('functions'::text, 'planner'::text, '92fc1055b00f775ddafa33db53837090a5a30460afb7f4d3323eb29d28ae8439'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- functions plans
/*
  The one way from a look to a job. Every pair that is looked at gets a time of its next look,
  or a job whose end sets one, so nothing is looked at in a loop.
  Pairs that have a job or are left alone are looked at too, so that what is shown of them is true.
  Each data type is asked by itself; what was decided is written for all of them together.
  Lock order: pairs, then jobs; what somebody else has locked is left to the next look.
*/

create or replace function pgfresh.leave_alone(
  p_pairs pgfresh.looks, p_reason text, p_until timestamptz, p_now timestamptz)
returns pgfresh.look[]
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select array(
    select row(p_pairs.type_id, l.key, l.place, l.job_id, l.due_at, l.next_at, null,
      case when gone.table then true end, null, null, p_reason)::pgfresh.look
    from (
      select not exists (select from pg_class as c where c.oid = r.tables[1]) as table
      from pgfresh.type_resolution as r
      where r.type_id = p_pairs.type_id
    ) as gone
    cross join lateral (
      select l.*,
        case
          when l.job_id is not null then 'infinity'
          when l.next_ask_at > p_now then l.next_ask_at
          else p_until
        end as next_at
      from unnest(p_pairs.keys, p_pairs.places, p_pairs.jobs, p_pairs.next_ask, p_pairs.rows, p_pairs.due)
        as l(key, place, job_id, next_ask_at, row_at, due_at)
    ) as l
    -- Pairs of a type in quarantine are looked at when it ends.
    where (l.due_at <> l.next_at and (p_reason = 'unresolved' or l.due_at <= p_now))
      or (gone.table and l.row_at is not null and l.due_at is not null))
$$;
comment on function pgfresh.leave_alone(pgfresh.looks, text, timestamptz, timestamptz) is
  'Pairs of a data type that cannot be asked: when to look again. What has no table any more has no rows. '
  'A part of the planner.';

/*
  What comes of pairs of one data type: a job (queue), or the time of the next look (later). Of a pair that stays as it
  is, nothing. Asked of users' code, each in a subtransaction: the check, the table of keys and the gate.
*/
create or replace function pgfresh.decide_looks(
  p_type pgfresh.data_type_registry, p_pairs pgfresh.looks, p_gate_sql text,
  p_obstacle text, p_until timestamptz, p_now timestamptz,
  out queue pgfresh.look[], out later pgfresh.look[], out counts jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_next_sweep timestamptz := p_now + interval '1 minute';
  v_scheduled boolean := p_type.refresh_strategy = 'scheduled';
  -- What is known of a pair beside its answer is joined only where there is any such thing.
  v_known pgfresh.looks := case
    when p_pairs.rests or num_nonnulls(p_pairs.places, p_pairs.priorities) > 0 then p_pairs
  end;
  v_awake int := cardinality(p_pairs.keys);
  v_resting record;
  v_asked record;
  v_settled record;
  v_unlisted text[];
begin
  counts := '{}';
  if p_pairs.rests then
    select count(l.job_id)::int as open,
      count(*) filter (where l.job_id is null and l.next_ask_at > p_now)::int as held
    into v_resting
    from unnest(p_pairs.jobs, p_pairs.next_ask) as l(job_id, next_ask_at);
    v_awake := v_awake - v_resting.open - v_resting.held;
    counts := jsonb_build_object(
      'merged', v_resting.open, 'skipped', v_resting.held, 'skipped_held', nullif(v_resting.held, 0));
  end if;
  if p_obstacle in ('unresolved', 'quarantined') then
    if p_obstacle = 'quarantined' then
      perform pgfresh.note_hold(p_type.type_id, p_until, p_obstacle, p_now);
    end if;
    later := pgfresh.leave_alone(p_pairs, p_obstacle, p_until, p_now);
    counts := pgfresh.add_counts(counts, jsonb_build_object('skipped', v_awake, 'skipped_' || p_obstacle, v_awake));
    return;
  end if;

  begin
    select
      array_agg(row(p_type.type_id, c.key, c.place, null, c.due_at, null, c.priority,
        c.changed, c.row_at, p_now, null)::pgfresh.look) filter (where c.turn = 'stale') as stale,
      array_agg(row(p_type.type_id, c.key, c.place, c.job_id, c.due_at, c.next_at, null,
        c.changed, c.row_at, case when c.stale then p_now else c.fresh_until end, null)::pgfresh.look)
        filter (where c.turn = 'later' and (c.due_at <> c.next_at or (c.changed and c.due_at is not null))) as later,
      array_agg(row(p_type.type_id, c.key, c.place, null, c.due_at, null, c.priority,
        c.changed, c.row_at, c.fresh_until, null)::pgfresh.look) filter (where c.turn = 'doubt') as doubt,
      count(*) filter (where c.stale is null)::int as undecided,
      count(*) filter (where c.stale and c.found and c.awake)::int as found_stale,
      count(*) filter (where not c.found and c.awake)::int as found_missing,
      count(c.raised)::int as raised, max(c.raised) as raised_with
    into v_asked
    from (
      select c.*,
        case
          when c.job_id is not null or not c.stale or c.stale is null then 'later'
          when v_scheduled and c.found then 'later'
          when c.doubtful and (c.awake or c.changed) then 'doubt'
          when c.awake then 'stale'
          else 'later'
        end as turn,
        -- Those that are not decided come soon, but behind those of other types.
        case
          when c.job_id is not null then 'infinity'
          when not c.awake then c.next_ask_at
          when c.stale is null then p_now + interval '5 seconds'
          when v_scheduled and c.found then 'infinity'
          when c.ttl_ends > p_now then c.ttl_ends
          else v_next_sweep
        end as next_at
      from (
        select c.key, c.found, c.stale, c.next_at as ttl_ends, c.raised, c.due_at,
          l.place, l.job_id, l.next_ask_at, l.priority,
          l.job_id is null and (l.next_ask_at > p_now) is not true as awake,
          seen.row_at, case when c.found is not null then seen.row_at is distinct from c.row_at end as changed,
          -- What a function calls fresh beyond its TTL is fresh until it has been asked again.
          case
            when not c.stale and (c.next_at > p_now) is not true then v_next_sweep + interval '10 seconds'
            else c.next_at
          end as fresh_until,
          c.found is null or (not c.found and c.row_at is not null)
            or (c.found and (seen.row_at < c.row_at or c.row_at = '-infinity' or (c.next_at <= p_now) is not true))
          as doubtful
        from pgfresh.ask_stale(
          p_type.type_id, p_pairs.keys, p_pairs.confirmed, p_pairs.rows, p_pairs.due, p_type.ttl, p_now
        ) as c
        cross join lateral (
          select case when c.found then coalesce(c.at, '-infinity') end as row_at
        ) as seen
        left join unnest(v_known.keys, v_known.places, v_known.jobs, v_known.next_ask, v_known.priorities)
          as l(key, place, job_id, next_ask_at, priority) on l.key = c.key
      ) as c
    ) as c;
  exception when lock_not_available then
    -- The others go on. These have their turn soon, unless it happens again.
    perform pgfresh.note_type_timeout(p_type.type_id, 'check', sqlerrm);
    later := array(
      select row(p_type.type_id, l.key, l.place, l.job_id, l.due_at, p_now + interval '1 second', null,
        null, null, null, null)::pgfresh.look
      from unnest(p_pairs.keys, p_pairs.places, p_pairs.jobs, p_pairs.due) as l(key, place, job_id, due_at)
      where l.job_id is null and l.due_at <= p_now);
    counts := counts || jsonb_build_object('undecided', v_awake);
    return;
  end;
  queue := v_asked.stale;
  later := v_asked.later;
  counts := counts || jsonb_build_object(
    'checked', v_awake - v_asked.undecided, 'undecided', nullif(v_asked.undecided, 0), 'failed', v_asked.raised,
    'stale', v_asked.found_stale, 'missing', v_asked.found_missing);
  if v_asked.raised > 0 then
    perform pgfresh.warn('check_raised', p_type.data_type, v_asked.raised_with,
      format('Correct the data, or the function %s.', p_type.staleness_function), v_asked.raised);
  end if;
  if v_asked.doubt is not null then
    select
      array_agg(row(l.type_id, l.key, case when l.place is not null then d.place end, null, l.due_at, null,
        l.priority, null, l.row_at, null, null)::pgfresh.look) filter (where d.until is null) as stale,
      array_agg(row(l.type_id, l.key, case when l.place is not null then d.place end, null, l.due_at, d.until,
        null, null, null, null, null)::pgfresh.look) filter (where d.until <> l.due_at) as later
    into v_settled
    from pgfresh.note_lapses(p_type, v_asked.doubt, p_now) as d
    join unnest(v_asked.doubt) as l on l.key = d.key;
    queue := queue || v_settled.stale;
    later := later || v_settled.later;
  end if;
  if queue is null then
    return;
  end if;

  -- What is no key any more is not fetched, whoever still looks. What another type needs is asked for as it says.
  if p_pairs.priorities is null and pgfresh.has_key_rules(p_type) then
    v_unlisted := pgfresh.unlisted_keys(p_type, array(select l.key from unnest(queue) as l));
    if v_unlisted <> '{}' then
      perform pgfresh.revoke_pairs(p_type.type_id, v_unlisted, p_now);
      queue := array(
        select l
        from unnest(queue) as l
        where not exists (select from unnest(v_unlisted) as u where u = l.key));
    end if;
  end if;
  if p_obstacle is not null and cardinality(queue) > 0 then
    perform pgfresh.note_hold(p_type.type_id, p_until, p_obstacle, p_now);
    later := later || array(
      select row(l.type_id, l.key, l.place, null, l.due_at, p_until, null,
        l.changed, l.row_at, p_now, p_obstacle)::pgfresh.look
      from unnest(queue) as l
      where l.due_at <> p_until or (l.changed and l.due_at is not null));
    counts := pgfresh.add_counts(counts, jsonb_build_object(
      'skipped', cardinality(queue), 'skipped_' || p_obstacle, cardinality(queue)));
    queue := null;
  elsif p_gate_sql is not null then
    v_settled := pgfresh.hold_at_gate(p_type, queue, p_gate_sql, p_now);
    queue := v_settled.queue;
    later := later || v_settled.later;
    counts := pgfresh.add_counts(counts, v_settled.counts);
  end if;
end
$$;
comment on function pgfresh.decide_looks(
  pgfresh.data_type_registry, pgfresh.looks, text, text, timestamptz, timestamptz) is
  'Decides about pairs of one data type that were read: which get a job, and when to look at others again. '
  'Prerequisites are not asked for here. A part of the planner.';

-- What is there already waits until the gate opens; what is missing does not.
create or replace function pgfresh.hold_at_gate(
  p_type pgfresh.data_type_registry, p_queue pgfresh.look[], p_gate_sql text, p_now timestamptz,
  out queue pgfresh.look[], out later pgfresh.look[], out counts jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_open_end timestamptz := pgfresh.open_end(p_now);
  v_keys text[] := array(select l.key from unnest(p_queue) as l where l.row_at is not null);
  v_closed text[];
begin
  queue := p_queue;
  counts := '{}';
  if v_keys = '{}' then
    return;
  end if;
  -- Of a pair that is held already nothing is written.
  select array_agg(g.key),
    array_agg(row(
      l.type_id, l.key, l.place, null, l.due_at, g.next_at, null, l.changed, l.row_at, p_now, 'gate'
    )::pgfresh.look) filter (where l.due_at is not null and (l.due_at <> g.next_at or l.changed))
  into v_closed, later
  from (
    select g.key, case when g.opens_at > p_now then g.opens_at else v_open_end end as next_at
    from pgfresh.ask_gate(p_gate_sql, v_keys, p_type.data_type) as g
    where not g.open
  ) as g
  join unnest(p_queue) as l on l.key = g.key;
  if v_closed is not null then
    queue := array(
      select l
      from unnest(p_queue) as l
      left join unnest(v_closed) as c(key) on c.key = l.key
      where c.key is null);
    counts := jsonb_build_object('gated', cardinality(v_closed));
    perform pgfresh.note_hold(p_type.type_id, v_open_end, 'gate', p_now);
  end if;
exception
  when lock_not_available then
    perform pgfresh.note_type_timeout(p_type.type_id, 'gate', sqlerrm);
    queue := null;
    later := array(
      select row(l.type_id, l.key, l.place, null, l.due_at, p_now + interval '1 second', null,
        l.changed, l.row_at, p_now, null)::pgfresh.look
      from unnest(p_queue) as l
      where l.due_at is not null);
    counts := jsonb_build_object('undecided', cardinality(p_queue));
  when others then
    perform pgfresh.warn('gate_raised', p_type.data_type, sqlerrm,
      format('Correct the function %s; until then the gate counts as open.', p_type.gate_function));
    counts := jsonb_build_object('failed', cardinality(v_keys));
end
$$;
comment on function pgfresh.hold_at_gate(
  pgfresh.data_type_registry, pgfresh.look[], text, timestamptz) is
  'Of pairs that would get a job, those whose gate is open; and when to look at the others again. '
  'A part of the planner.';

/*
  Those of its keys that a prerequisite has no row for wait until it has. It is asked for in the same call,
  with the priority of the pair that needs it.
*/
create or replace function pgfresh.hold_for_prerequisites(
  p_type pgfresh.data_type_registry, p_queue pgfresh.look[], p_now timestamptz,
  out queue pgfresh.look[], out waiting pgfresh.look[], out needed pgfresh.look[])
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_needs record;
  v_missing text[];
begin
  queue := p_queue;
  for v_needs in
    select d.needs_id, res.missing_sql
    from pgfresh.type_dependency as d
    join pgfresh.type_resolution as res on res.type_id = d.needs_id
    where d.type_id = p_type.type_id and not pgfresh.is_quarantined(d.needs_id, p_now)
    order by d.needs_id
  loop
    exit when cardinality(queue) = 0;
    begin
      v_missing := array(
        select k
        from pgfresh.ask_keys(v_needs.missing_sql, array(select l.key from unnest(queue) as l)) as k
        order by k collate "C");
    exception
    when lock_not_available then
      perform pgfresh.note_type_timeout(v_needs.needs_id, 'check', sqlerrm);
      continue;
    when others then
      -- It is skipped with a warning of its own; who needs it does not wait for ever.
      continue;
    end;
    continue when v_missing = '{}';
    -- One that another transaction is just adding comes at the next look.
    perform pgfresh.make_pairs(v_needs.needs_id, v_missing);
    needed := needed || array(
      select row(v_needs.needs_id, l.key, null, null, null, null,
        greatest(1, pgfresh.priority_of(p_type, p.viewers), l.priority), null, null, null, null)::pgfresh.look
      from unnest(v_missing) as m(key)
      join unnest(queue) as l on l.key = m.key
      join pgfresh.pairs as p on p.type_id = p_type.type_id and p.key = m.key);
    waiting := waiting || array(
      select l from unnest(queue) as l where exists (select from unnest(v_missing) as m where m = l.key));
    queue := array(
      select l from unnest(queue) as l where not exists (select from unnest(v_missing) as m where m = l.key));
  end loop;
end
$$;
comment on function pgfresh.hold_for_prerequisites(
  pgfresh.data_type_registry, pgfresh.look[], timestamptz) is
  'Of pairs that would get a job, those whose prerequisites are there; the others, and what they need. '
  'A part of the planner.';

create or replace function pgfresh.plan_looks(p_looks pgfresh.looks[], p_now timestamptz) returns jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
-- Or each statement would be planned anew at every call, because it is a little cheaper for the few keys at hand.
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
  v_type record;
  v_decided record;
  v_held record;
  v_queue pgfresh.look[];
  v_later pgfresh.look[];
  v_waiting pgfresh.look[];
  v_needed pgfresh.look[];
  v_needed_before pgfresh.look[] := '{}';
  v_counts jsonb[];
  v_queued int;
  v_prerequisites int := 0;
begin
  -- First the pairs themselves, then what they need, then what that needs.
  for v_depth in 0..100 loop
    v_queue := null;
    v_later := null;
    v_needed := null;
    v_queued := 0;
    for v_type in
      select r as registered, g as pairs, res.gate_sql, o.reason, o.until,
        exists (select from pgfresh.type_dependency as d where d.type_id = r.type_id) as dependent
      from unnest(p_looks) as g
      join pgfresh.data_type_registry as r on r.type_id = g.type_id
      join pgfresh.type_resolution as res on res.type_id = g.type_id
      left join pgfresh.planning_obstacles(array(select distinct g.type_id from unnest(p_looks) as g), p_now) as o
        on o.type_id = g.type_id
      order by g.type_id
    loop
      v_decided := pgfresh.decide_looks(
        v_type.registered, v_type.pairs, v_type.gate_sql, v_type.reason, v_type.until, p_now);
      if v_type.dependent and cardinality(v_decided.queue) > 0 then
        v_held := pgfresh.hold_for_prerequisites(v_type.registered, v_decided.queue, p_now);
        v_decided.queue := v_held.queue;
        v_waiting := v_waiting || v_held.waiting;
        v_needed := v_needed || v_held.needed;
      end if;
      v_queue := v_queue || v_decided.queue;
      v_later := v_later || v_decided.later;
      if v_depth = 0 then
        v_counts := v_counts || v_decided.counts;
      end if;
    end loop;
    if cardinality(v_later) > 0 then
      perform pgfresh.look_again(v_later);
    end if;
    if cardinality(v_queue) > 0 then
      v_queued := pgfresh.open_jobs_for(v_queue, p_now);
    end if;
    if v_depth = 0 then
      v_counts := v_counts || jsonb_build_object('queued', v_queued, 'waiting', cardinality(v_waiting));
    else
      v_prerequisites := v_prerequisites + v_queued;
    end if;
    exit when v_needed is null;
    p_looks := array(
      select l
      from (
        select n.type_id, array_agg(n.key) as keys, array_agg(n.priority) as priorities
        from (
          select n.type_id, n.key, max(n.priority) as priority
          from unnest(v_needed) as n
          left join unnest(v_needed_before) as b on b.type_id = n.type_id and b.key = n.key
          where b.key is null
          group by n.type_id, n.key
        ) as n
        group by n.type_id
      ) as n
      cross join lateral unnest(pgfresh.looks_at(n.type_id, n.keys, n.priorities)) as l);
    v_needed_before := v_needed_before || v_needed;
  end loop;

  if v_waiting is not null then
    v_counts := v_counts || jsonb_build_object('prerequisites', nullif(v_prerequisites, 0));
    v_later := pgfresh.lock_looks(array(
      select distinct on (w.type_id, w.key)
        row(w.type_id, w.key, w.place, null, w.due_at, n.look_at, null,
          w.changed, w.row_at, p_now, 'dependency')::pgfresh.look
      from unnest(v_waiting) as w
      join (
        select d.type_id, n.key,
          pgfresh.prerequisite_look_at(n.type_id, n.key, p_now, p_now + interval '1 minute') as look_at
        from unnest(v_needed_before) as n
        join pgfresh.type_dependency as d on d.needs_id = n.type_id
      ) as n on n.type_id = w.type_id and n.key = w.key
      where w.due_at <> n.look_at
      order by w.type_id, w.key, n.look_at));
    if cardinality(v_later) > 0 then
      perform pgfresh.look_again(v_later);
    end if;
  end if;
  return jsonb_strip_nulls(
    '{"checked": 0, "stale": 0, "missing": 0, "queued": 0, "merged": 0, "gated": 0, "failed": 0, "skipped": 0}'
    || pgfresh.add_counts(variadic v_counts));
end
$$;
comment on function pgfresh.plan_looks(pgfresh.looks[], timestamptz) is
  'Decides about pairs that were read, and queues those that are missing or stale, '
  'within gate, prerequisites and quota. Returns counts. A part of the planner.';

insert into pgfresh.migrations (kind, name, hash) values ('functions'::text, 'plans'::text, 'f29188d4025812a9e5f2b1a0581590d36e40b80c37bb17ef95d6160d61f2d5f1'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- functions prerequisites
/*
  The end of a prerequisite wakes the pairs that wait for it, except those that are being decided about at that moment:
  it cannot see that they wait. So a pair that waits is looked at again by itself, soon and then more and more rarely:
  each time after as long as the job of its prerequisite has been open by then.
*/
create or replace function pgfresh.prerequisite_look_at(
  p_needs_id int, p_key text, p_now timestamptz, p_latest timestamptz)
returns timestamptz
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select least(p_latest, (
    select case
      when p.job_id is not null then p_now + greatest(p_now - j.created_at, interval '1 second')
      -- It has just ended. Without a job for another reason, such as a pause of its source, it can take long.
      when p.ok_at > p_now - interval '5 seconds' then p_now + interval '1 second'
    end
    from pgfresh.pairs as p
    left join pgfresh.job as j on j.id = p.job_id
    where p.type_id = p_needs_id and p.key = p_key collate "C"))
$$;
comment on function pgfresh.prerequisite_look_at(int, text, timestamptz, timestamptz) is
  'When to look again at a pair that waits for its prerequisite, at the latest at p_latest. A part of the planner.';

insert into pgfresh.migrations (kind, name, hash) values ('functions'::text, 'prerequisites'::text, 'aef5b9048284817976f3d9c95f99829d00c5c93add109ef32bac4215e76ebbab'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- functions pruning
/*
  Pairs are remembered for what they say about their row and their last refresh. Once nothing of that counts any more
  and nobody has asked for them in a long time, they are forgotten; asked for again, a pair begins anew. They are
  walked by their key from a cursor, a bounded number at a time, so that no index has to be kept for it.
*/
create or replace function pgfresh.last_use_of(p_pair pgfresh.pairs) returns timestamptz
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
  -- While its row is fresh or its last outcome says not to ask again, it is in use, also if nobody looks.
  select greatest(
    p_pair.unviewed_since, p_pair.ok_at, p_pair.next_ask_at, p_pair.empty_at, p_pair.confirmed_at, p_pair.lapsed_at,
    nullif(p_pair.stale_at, 'infinity'))
$$;
comment on function pgfresh.last_use_of(pgfresh.pairs) is
  'Until when anything that a pair remembers counted; null if it remembers no time.';

create or replace function pgfresh.prune_pairs(p_keep interval default '90 days') returns jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
  -- So many pairs are looked at in a call.
  c_span constant int := 2000;
  v_now timestamptz := pgfresh.clock();
  v_at record;
  v_span record;
  v_deleted int;
begin
  perform pgfresh.require_primary();
  perform pgfresh.require_range('p_keep in seconds', extract(epoch from p_keep), 86400, 315360000);
  -- Another call that does it already is not waited for.
  select type_id, key into v_at from pgfresh.pruning for update skip locked;
  if not found then
    return jsonb_build_object('skipped', 'locked');
  end if;
  select count(*) as count, max(s.type_id) as last_type,
    (array_agg((s.pair).key order by s.place desc))[1] as last_key,
    array_agg(s.type_id order by s.place) filter (where s.is_idle and s.used_at < v_now - p_keep) as old_types,
    array_agg((s.pair).key order by s.place) filter (where s.is_idle and s.used_at < v_now - p_keep) as old_keys,
    array_agg(s.type_id order by s.place) filter (where s.is_idle and s.used_at is null) as new_types,
    array_agg((s.pair).key order by s.place) filter (where s.is_idle and s.used_at is null) as new_keys
  into v_span
  from (
    select p.type_id, p as pair, row_number() over (order by p.type_id, p.key) as place,
      pgfresh.last_use_of(p) as used_at,
      not p.demanded and p.viewers = 0 and p.job_id is null and p.warm_until is null as is_idle
    from pgfresh.pairs as p
    where (p.type_id, p.key) > (v_at.type_id, v_at.key)
    order by p.type_id, p.key
    limit c_span
  ) as s;
  -- Pairs that remember no time are counted from now on.
  update pgfresh.pairs as p
  set unviewed_since = v_now
  from (
    select w.type_id, w.key
    from unnest(v_span.new_types, v_span.new_keys) as n(type_id, key)
    join pgfresh.pairs as w on w.type_id = n.type_id and w.key = n.key
    where not w.demanded and w.job_id is null and pgfresh.last_use_of(w) is null
    order by w.type_id, w.key for update of w skip locked
  ) as n
  where p.type_id = n.type_id and p.key = n.key;
  with locked as (
    select p.type_id, p.key
    from unnest(v_span.old_types, v_span.old_keys) as o(type_id, key)
    join pgfresh.pairs as p on p.type_id = o.type_id and p.key = o.key
    where not p.demanded and p.viewers = 0 and p.job_id is null and p.warm_until is null
      and pgfresh.last_use_of(p) < v_now - p_keep
      -- Whoever evicts rows finds them by their pairs.
      and not exists (
        select from pgfresh.data_type_registry as r
        where r.type_id = p.type_id and r.evict_after is not null and (p.row_at is not null or not p.seen))
      and not exists (select from pgfresh.active_subscriptions as a where a.type_id = p.type_id and a.key = p.key)
      and not exists (select from pgfresh.node_demand as d where d.type_id = p.type_id and d.key = p.key)
      and not exists (select from pgfresh.demand_change as c where c.type_id = p.type_id and c.key = p.key)
      and not exists (select from pgfresh.demand_waiting as c where c.type_id = p.type_id and c.key = p.key)
    order by p.type_id, p.key for update of p skip locked
  ), refused as (
    delete from pgfresh.refused_pair as r using locked as l where r.type_id = l.type_id and r.key = l.key
  )
  delete from pgfresh.pairs as p using locked as l where p.type_id = l.type_id and p.key = l.key;
  get diagnostics v_deleted = row_count;
  update pgfresh.pruning
  set type_id = case when v_span.count < c_span then 0 else v_span.last_type end,
    key = case when v_span.count < c_span then '' else v_span.last_key end;
  return jsonb_build_object('looked_at', v_span.count, 'deleted', v_deleted, 'done', v_span.count < c_span);
end
$$;
comment on function pgfresh.prune_pairs(interval) is
  'Forgets pairs that nobody views, that have no job, and of which nothing has counted for so long: the last view, '
  'the last success, a row that was fresh, a pause after a failure. Looks at the next 2000 pairs. '
  'Where rows are evicted, a pair stays as long as its row. '
  'Returns {"looked_at", "deleted", "done"}: done when all pairs have had their turn.';

create or replace function pgfresh.prune_usage(p_keep interval default '400 days') returns int
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  -- So many rows are deleted in a call.
  c_rows constant int := 10000;
  v_now timestamptz := pgfresh.clock();
  v_before timestamptz;
  v_count int;
begin
  perform pgfresh.require_primary();
  -- The longest window of a quota has 366 days.
  perform pgfresh.require_range('p_keep in days', extract(epoch from p_keep) / 86400, 367, 3650);
  v_before := v_now - p_keep;
  with recursive source (id) as (
    (select source_id from pgfresh.usage order by source_id limit 1)
    union all
    -- From source to source by the index; those that are gone have rows too.
    select (select u.source_id from pgfresh.usage as u where u.source_id > s.id order by u.source_id limit 1)
    from source as s
    where s.id is not null
  )
  delete from pgfresh.usage
  where ctid = any (array(
    select u.ctid
    from source as s
    cross join lateral (
      select ctid from pgfresh.usage as o where o.source_id = s.id and o.hour < v_before for update skip locked
    ) as u
    limit c_rows));
  get diagnostics v_count = row_count;
  -- The number of a source that is gone is kept for its ledger, and for calls that may still come to it.
  with gone as (
    delete from pgfresh.source_past as p
    where not exists (select from pgfresh.usage as u where u.source_id = p.source_id)
      and not exists (select from pgfresh.rate_slot as s where s.source_id = p.source_id and s.free_at > v_now)
      and not exists (select from pgfresh.job as j where j.source_id = p.source_id)
    returning p.source_id
  ), slots as (
    delete from pgfresh.rate_slot as s using gone as g where s.source_id = g.source_id
  )
  delete from pgfresh.source_state as s using gone as g where s.source_id = g.source_id;
  return v_count;
end
$$;
comment on function pgfresh.prune_usage(interval) is
  'Forgets what sources used before so long, at most 10000 rows of the ledger, and deleted sources without any. '
  'Returns how many rows of the ledger.';

insert into pgfresh.migrations (kind, name, hash) values ('functions'::text, 'pruning'::text, 'b0fdf0c7779417c26cd773851530c28646ccf704c2004f2d5559bd36596b3bc3'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- functions quarantine
/*
  One bad type costs only itself. A gate that hangs, a staleness function that loops, a lock on a mirrored table: each
  timeout is noted here. From the second one within a minute on, the type is in quarantine: planner, gateways and
  workers leave it alone, and the planner probes it once per second, for at most 100 ms and on a connection of its own.
  The first probe that gets an answer ends the quarantine. Without a probe for a minute it ends too, so it does not
  outlive the planner.
*/
create or replace function pgfresh.is_quarantined(p_type_id int, p_now timestamptz) returns boolean
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select exists (
    select from pgfresh.type_timeout as t
    where t.type_id = p_type_id and t.timeouts > 1 and t.last_at > p_now - interval '1 minute'
  )
$$;
comment on function pgfresh.is_quarantined(int, timestamptz) is
  'Whether a data type is in quarantine: it has timed out twice within a minute, and no probe has succeeded since.';

create or replace function pgfresh.quarantined_types()
returns table (type_id int, data_type text, since timestamptz, timeouts int, last_where text, last_message text)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select r.type_id, r.data_type, t.since, t.timeouts, t.last_where, t.last_message
  from pgfresh.type_timeout as t
  join pgfresh.data_type_registry as r on r.type_id = t.type_id
  where t.timeouts > 1 and t.last_at > (select pgfresh.clock()) - interval '1 minute'
  order by r.data_type
$$;
comment on function pgfresh.quarantined_types() is
  'The data types that are in quarantine: since when, how often they have timed out, where and with what message.';

create or replace function pgfresh.note_type_timeout(p_type_id int, p_where text, p_message text) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := pgfresh.clock();
  v_timeouts int;
begin
  -- Nothing for a type that is gone, or that an open transaction deletes: its foreign key would wait for that.
  insert into pgfresh.type_timeout as t (type_id, since, last_at, timeouts, last_where, last_message)
  select r.type_id, v_now, v_now, 1, left(p_where, 60), left(p_message, 500)
  from (
    select type_id from pgfresh.data_type_registry where type_id = p_type_id for key share skip locked
  ) as r
  on conflict (type_id) do update
  set since = case when t.last_at > v_now - interval '1 minute' then t.since else v_now end,
    timeouts = case when t.last_at > v_now - interval '1 minute' then t.timeouts + 1 else 1 end,
    last_at = v_now, last_where = excluded.last_where, last_message = excluded.last_message
  returning t.timeouts into v_timeouts;
  if v_timeouts = 2 then
    perform pgfresh.warn('type_quarantined', r.data_type,
      format('%s timed out twice (%s: %s), so it is neither planned nor read; the other data types go on',
        r.data_type, left(p_where, 60), left(p_message, 500)),
      format('See what holds it up: a lock on %s, or a function of its registry row. It is probed every second.',
        r.table_name))
    from pgfresh.data_type_registry as r
    where r.type_id = p_type_id;
  end if;
  return coalesce(v_timeouts > 1, false);
exception when foreign_key_violation or lock_not_available then
  -- It is being deleted at this moment.
  return false;
end
$$;
comment on function pgfresh.note_type_timeout(int, text, text) is
  'Notes that a data type has kept somebody waiting for too long: where (tick, sweep, read, commit …) and with what '
  'message. The second time within a minute puts it into quarantine. Returns whether it is in quarantine.';

-- With whom commits of workers would have to wait. Readers find out by reading.
create or replace function pgfresh.is_write_locked(p_table oid) returns boolean
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  select exists (
    select from pg_locks as l
    where l.locktype = 'relation' and l.relation = p_table and l.pid <> pg_backend_pid()
      and l.database = (select d.oid from pg_database as d where d.datname = current_database())
      and l.mode in ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
  )
$$;
comment on function pgfresh.is_write_locked(oid) is
  'Whether somebody has, or waits for, a lock on a table that keeps others from writing rows. A part of probe_type.';

create or replace function pgfresh.probe_type(p_type_id int) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := pgfresh.clock();
  v_type record;
  v_keys text[] := array(
    select p.key from pgfresh.pairs as p where p.type_id = p_type_id and p.demanded order by p.key limit 100);
  v_none timestamptz[];
begin
  perform pgfresh.require_primary();
  select r.data_type, r.ttl, res.gate_sql, res.unknown_sql, res.keys_sql, res.tables[1] as table_id
  into v_type
  from pgfresh.data_type_registry as r
  join pgfresh.type_resolution as res on res.type_id = r.type_id
  where r.type_id = p_type_id;
  if not found then
    return false;
  end if;
  if pgfresh.is_write_locked(v_type.table_id) then
    perform pgfresh.note_type_timeout(p_type_id, 'probe', 'its table is locked');
    return false;
  end if;
  if v_keys = '{}' then
    v_keys := '{x}';
  end if;
  v_none := array_fill(null::timestamptz, array[cardinality(v_keys)]);
  begin
    perform from pgfresh.ask_stale(p_type_id, v_keys, v_none, v_none, v_none, v_type.ttl, v_now);
    if v_type.gate_sql is not null then
      perform from pgfresh.ask_gate(v_type.gate_sql, v_keys, v_type.data_type);
    end if;
    if v_type.unknown_sql is not null then
      perform from pgfresh.ask_keys(v_type.unknown_sql, v_keys);
      perform from pgfresh.ask_next_keys(v_type.keys_sql, null, 100);
    end if;
  exception
    when lock_not_available then
      perform pgfresh.note_type_timeout(p_type_id, 'probe', sqlerrm);
      return false;
    -- An error is an answer too.
    when others then null;
  end;
  delete from pgfresh.type_timeout where type_id = p_type_id;
  return true;
end
$$;
comment on function pgfresh.probe_type(int) is
  'Asks a data type in quarantine about up to 100 viewed pairs, and ends the quarantine if that works. '
  'Call it once per second with a lock_timeout and a statement_timeout of 100 ms. Returns whether it works again.';

create or replace function pgfresh.quarantine_obstacle(p_type pgfresh.data_type_registry, p_now timestamptz)
returns setof pgfresh.obstacle
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select 'quarantined',
    format('%s has not answered in time %s times, last %s ago (%s: %s); it is probed every second.',
      p_type.data_type, t.timeouts, pgfresh.in_words(p_now - t.last_at), t.last_where, t.last_message),
    t.since, null::timestamptz, p_now + interval '1 minute'
  from pgfresh.type_timeout as t
  where t.type_id = p_type.type_id and pgfresh.is_quarantined(p_type.type_id, p_now)
$$;
comment on function pgfresh.quarantine_obstacle(pgfresh.data_type_registry, timestamptz) is
  'That a data type is left alone because it does not answer in time. A part of explain_pair.';

insert into pgfresh.migrations (kind, name, hash) values ('functions'::text, 'quarantine'::text, '2ebcb32544f180146d0c90acf349c5fec5a109aa799888e3e5a8568fdcf09251'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- functions rates
/*
  Rate. A source may be called N times in any minute with each of its API keys, as the provider counts. A call that is
  handed out must be sent by use_by, or not at all, and counts until a minute after that, plus what the way to the
  provider may differ from call to call. So N + 1 calls are never within a minute where they arrive, whatever became of
  who was to send them. 1.25 s to send, 0.75 s of difference and 1.15 s until the next claim make 285 of 300 calls a
  minute.

  What counts is what was handed out, and not what may be: calls that were handed out together are one row, and the
  limit is only compared with their sum. So a limit that goes down and up again forgets nothing, and a limit of 100,000
  costs no more than one of 10.
*/
create or replace function pgfresh.use_by_of(p_now timestamptz) returns timestamptz
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$ select p_now + interval '1.25 seconds' $$;
comment on function pgfresh.use_by_of(timestamptz) is
  'Until when a call must be sent for which a place in the rate was taken now.';

create or replace function pgfresh.slot_free_at(p_use_by timestamptz) returns timestamptz
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$ select p_use_by + interval '60.75 seconds' $$;
comment on function pgfresh.slot_free_at(timestamptz) is
  'When a call that is sent by then counts no more.';

/*
  How many calls a source with a rate may make now, for people and for nobody. Calls that come together come together
  again a minute later, and in between who begins to look waits. So they are spread: in ten seconds a little more than a
  sixth of the minute's, or ten.
*/
create or replace function pgfresh.free_calls(p_source pgfresh.sources, p_now timestamptz)
returns table (viewed int, background int)
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_total int := p_source.rate_limit_per_minute * (p_source.api_keys - cardinality(p_source.denied_keys));
  v_pace int := greatest(10, ceil(v_total * 0.185));
  -- What counts for longer than this was handed out within the last ten seconds.
  v_lately timestamptz := pgfresh.slot_free_at(pgfresh.use_by_of(p_now - interval '10 seconds'));
  v_free bigint; v_taken bigint;
begin
  select coalesce(sum(greatest(0, p_source.rate_limit_per_minute - coalesce(u.calls, 0))), 0),
    coalesce(sum(u.lately), 0)
  into v_free, v_taken
  from generate_series(1, p_source.api_keys) as k(api_key)
  left join (
    select s.api_key, sum(s.calls) as calls, sum(s.calls) filter (where s.free_at > v_lately) as lately
    from pgfresh.rate_slot as s
    where s.source_id = p_source.id and s.free_at > p_now
    group by s.api_key
  ) as u on u.api_key = k.api_key
  where k.api_key <> all (p_source.denied_keys);
  viewed := greatest(0, least(v_free, v_pace - v_taken));
  background := greatest(0, least(
    v_free - floor(p_source.viewed_share * v_total),
    ceil(v_pace * (1 - p_source.viewed_share)) - v_taken
  ));
  return next;
end
$$;
comment on function pgfresh.free_calls(pgfresh.sources, timestamptz) is
  'How many calls the rate of a source leaves now for what people look at and for the rest. A part of claim_jobs.';

create or replace function pgfresh.calls_now(p_source pgfresh.sources, p_now timestamptz)
returns table (viewed int, background int, next_at timestamptz)
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_rate int := p_source.rate_limit_per_minute;
  v_keys int := p_source.api_keys - cardinality(p_source.denied_keys);
  v_pace int := greatest(10, ceil(v_rate * v_keys * 0.185));
  v_lately timestamptz := pgfresh.slot_free_at(pgfresh.use_by_of(p_now - interval '10 seconds'));
begin
  select c.viewed, c.background into viewed, background from pgfresh.free_calls(p_source, p_now) as c;
  if viewed = 0 then
    -- When a key has made fewer calls than the rate allows, and all of them fewer than the pace.
    select greatest(
      case
        when count(distinct s.api_key) filter (where s.used >= v_rate) = v_keys
          then min(s.free_at) filter (where s.later < v_rate)
      end,
      min(p_now + (s.free_at - v_lately))
        filter (where s.free_at > v_lately and s.all_later < v_pace and s.lately >= v_pace)
    )
    into next_at
    from (
      select s.api_key, s.free_at,
        sum(s.calls) over by_key as used,
        sum(s.calls) over by_key - sum(s.calls) over (by_key order by s.free_at) as later,
        sum(s.calls) filter (where s.free_at > v_lately) over () as lately,
        sum(s.calls) over () - sum(s.calls) over (order by s.free_at) as all_later
      from pgfresh.rate_slot as s
      where s.source_id = p_source.id and s.free_at > p_now
        and s.api_key <= p_source.api_keys and s.api_key <> all (p_source.denied_keys)
      window by_key as (partition by s.api_key)
    ) as s;
  end if;
  return next;
end
$$;
comment on function pgfresh.calls_now(pgfresh.sources, timestamptz) is
  'How many calls the rate of a source leaves now for what people look at and for the rest, '
  'and if none, when the next is free.';

create or replace function pgfresh.count_unknown_calls(p_source_id int, p_api_keys int) returns void
language sql
set search_path = pg_catalog, pg_temp
as $$
  insert into pgfresh.rate_slot (source_id, free_at, api_key, calls)
  select p_source_id, pgfresh.slot_free_at(pgfresh.use_by_of(pgfresh.clock())), k, 100000
  from generate_series(1, p_api_keys) as k
  on conflict (source_id, free_at, api_key) do update set calls = excluded.calls
$$;
comment on function pgfresh.count_unknown_calls(int, int) is
  'Lets a source that had no rate wait for a minute: its calls were not counted, so they may all have been just now.';

create or replace function pgfresh.begin_rate() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  perform pgfresh.count_unknown_calls(new.id, new.api_keys);
  return null;
end
$$;
comment on function pgfresh.begin_rate() is
  'Trigger of sources: a rate on a source that had none begins with a minute of waiting.';

create or replace trigger begin_rate after update of rate_limit_per_minute on pgfresh.sources
  for each row when (old.rate_limit_per_minute is null and new.rate_limit_per_minute is not null)
  execute function pgfresh.begin_rate();

/*
  Deals calls out over the API keys, to those first that have made fewest. Called by one at a time: whoever calls it has
  the advisory lock of the source.
*/
create or replace function pgfresh.take_slots(
  p_source pgfresh.sources, p_api_key smallint, p_count int, p_now timestamptz, p_use_by timestamptz default null)
returns smallint[]
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_keys smallint[];
  -- Tenths of a second, upwards: however many claims there are, no more than 620 rows of a key are to be summed.
  v_free_at timestamptz := date_bin(
    interval '100 ms', pgfresh.slot_free_at(coalesce(p_use_by, pgfresh.use_by_of(p_now))) + interval '99.999 ms',
    timestamptz '2000-01-01 00:00:00+00');
begin
  -- Not at once: another claim may have read the clock before this one, and count them still.
  delete from pgfresh.rate_slot as s where s.source_id = p_source.id and s.free_at <= p_now - interval '1 minute';
  with dealt as (
    select k.api_key::smallint as api_key
    from generate_series(1, p_source.api_keys) as k(api_key)
    left join (
      select s.api_key, sum(s.calls)::int as calls
      from pgfresh.rate_slot as s
      where s.source_id = p_source.id and s.free_at > p_now
      group by s.api_key
    ) as u on u.api_key = k.api_key
    cross join lateral generate_series(
      coalesce(u.calls, 0) + 1,
      least(p_source.rate_limit_per_minute, coalesce(u.calls, 0) + p_count)
    ) as place
    where case when p_api_key is null then k.api_key <> all (p_source.denied_keys) else k.api_key = p_api_key end
    order by place, k.api_key
    limit p_count
  ), noted as (
    insert into pgfresh.rate_slot as s (source_id, free_at, api_key, calls)
    select p_source.id, v_free_at, d.api_key, count(*) from dealt as d group by d.api_key
    on conflict (source_id, free_at, api_key) do update set calls = s.calls + excluded.calls
  )
  select coalesce(array_agg(dealt.api_key), '{}') into v_keys from dealt;
  return v_keys;
end
$$;
comment on function pgfresh.take_slots(pgfresh.sources, smallint, int, timestamptz, timestamptz) is
  'Takes up to so many calls of a source''s rate, of one API key or of any that is not denied, '
  'to be sent by use_by_of now if nothing else is said. '
  'Returns the key of each.';

/*
  A job that takes several calls gets all of them with its claim, of one API key: with one at a time, jobs of a source
  with a small rate would take each other's second call, and none of them would ever be done. The others must be sent
  within 30 s of the claim.
*/
create or replace function pgfresh.take_job_slots(p_source pgfresh.sources, p_calls int, p_now timestamptz)
returns smallint
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_key smallint;
begin
  select k.api_key
  into v_key
  from generate_series(1, p_source.api_keys) as k(api_key)
  left join (
    select s.api_key, sum(s.calls)::int as calls
    from pgfresh.rate_slot as s
    where s.source_id = p_source.id and s.free_at > p_now
    group by s.api_key
  ) as u on u.api_key = k.api_key
  where k.api_key <> all (p_source.denied_keys)
    and coalesce(u.calls, 0) + p_calls <= p_source.rate_limit_per_minute
  order by coalesce(u.calls, 0), k.api_key
  limit 1;
  if v_key is not null then
    perform pgfresh.take_slots(p_source, v_key, 1, p_now);
    if p_calls > 1 then
      perform pgfresh.take_slots(p_source, v_key, p_calls - 1, p_now, pgfresh.calls_until(p_now));
    end if;
  end if;
  return v_key;
end
$$;
comment on function pgfresh.take_job_slots(pgfresh.sources, int, timestamptz) is
  'Takes all calls of one job, of one API key, and returns the key; null if there are not as many now. '
  'A part of take_limits.';

create or replace function pgfresh.calls_until(p_claimed_at timestamptz) returns timestamptz
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$ select p_claimed_at + interval '30 seconds' $$;
comment on function pgfresh.calls_until(timestamptz) is
  'Until when a job must have sent the further calls that were taken with its claim.';

create or replace function pgfresh.take_call(
  p_source_id int, p_api_key smallint default null, p_job_id bigint default null)
returns timestamptz
language plpgsql
set search_path = pg_catalog, pg_temp
-- A claim of the source is done in some milliseconds. A call that waits for longer would come too late anyway.
set lock_timeout = '500ms'
as $$
declare
  v_now timestamptz := pgfresh.clock();
  v_source pgfresh.sources;
  v_until timestamptz;
begin
  select * into v_source from pgfresh.sources where id = p_source_id;
  if not found then
    perform pgfresh.refuse('PGF_SOURCE_UNKNOWN',
      format('there is no source %s', coalesce(p_source_id::text, 'null')),
      'Pass the source_id of the claimed job.');
  end if;
  if p_api_key not between 1 and v_source.api_keys then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      format('p_api_key must be from 1 to %s, got %s', v_source.api_keys, p_api_key),
      'Pass the api_key of the claimed job.');
  end if;
  if exists (select from pgfresh.spending_stop) or not v_source.enabled or v_source.paused_until > v_now then
    return null;
  end if;
  if p_job_id is not null then
    update pgfresh.job as j
    set calls_left = j.calls_left - 1
    where j.id = p_job_id and j.state = 'x' and j.source_id = p_source_id and j.calls_left > 0
      and pgfresh.calls_until(j.claimed_at) > v_now
    returning least(pgfresh.use_by_of(v_now), pgfresh.calls_until(j.claimed_at)) into v_until;
    if found then
      return v_until;
    end if;
  end if;
  if v_source.rate_limit_per_minute is not null then
    perform pg_advisory_xact_lock(7042, p_source_id);
    if cardinality(pgfresh.take_slots(v_source, p_api_key, 1, v_now)) = 0 then
      return null;
    end if;
  end if;
  return pgfresh.use_by_of(v_now);
exception when lock_not_available then
  return null;
end
$$;
comment on function pgfresh.take_call(int, smallint, bigint) is
  'Asks for one more call than the first of a job, for instance for a redirect: '
  'of those that were taken with the claim of the job, if it is named and has some left, or of the rate. '
  'Returns until when it must be sent, or null if it may not be made now.';

insert into pgfresh.migrations (kind, name, hash) values ('functions'::text, 'rates'::text, '62800dfdaf63e03d75b0b00dbba2eceb51dcd1f26bd076ad3c7dd57e70cf9525'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- functions readers
/*
  Rows of data types with row security, as one who looks at them sees them. They are read by a function that belongs to
  his role, and not after "set role": what policies call could reset that, and would go on with the rights of whoever is
  connected.

  Everything is read in a subtransaction that is rolled back, and what was read is kept in variables, which are not. So
  nothing that a policy sets, declares or listens to is there when the next one looks.
*/
create or replace function pgfresh.viewer_role_problem(p_role text) returns table (problem text, next_step text)
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_owner oid := (select nspowner from pg_namespace where nspname = 'pgfresh');
  v_role record;
begin
  select r.oid, r.rolname, r.rolsuper, r.rolbypassrls into v_role from pg_roles as r where r.rolname = p_role;
  if not found then
    problem := format('there is no role %s', coalesce(left(quote_literal(p_role), 80), 'null'));
    next_step := coalesce(
      'Those that viewers may have: ' || (
        select string_agg(r.rolname, ', ' order by r.rolname)
        from pg_roles as r
        where pg_has_role(r.oid, 'pgfresh_viewer', 'member') and not r.rolsuper and not r.rolbypassrls
          and r.rolname <> 'pgfresh_viewer'
      ) || '.',
      'Create it, or correct gateway.rls of the configuration.');
  elsif v_role.rolsuper or v_role.rolbypassrls or pgfresh.can_act_as(v_role.oid, v_owner) then
    problem := format('row security does not hold for the role %I', v_role.rolname);
    next_step := format('Use a role that is no superuser, has no BYPASSRLS and is no member of %s.', v_owner::regrole);
  elsif not pg_has_role(v_role.oid, 'pgfresh_viewer', 'member') then
    problem := format('the role %I is not one of viewers', v_role.rolname);
    next_step := format('Run: grant pgfresh_viewer to %I;', v_role.rolname);
  elsif not (pg_has_role(v_owner, v_role.oid, 'usage') and pgfresh.can_act_as(v_owner, v_role.oid)) then
    problem := format('pgfresh may not read as the role %I', v_role.rolname);
    next_step := format('Run as an administrator: grant %I to %s;', v_role.rolname, v_owner::regrole);
  else
    return;
  end if;
  return next;
end
$$;
comment on function pgfresh.viewer_role_problem(text) is
  'Why nobody can look as a role, and what to do; no row if one can.';

create or replace function pgfresh.has_reader(p_role oid) returns boolean
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  -- Its owner may have altered it.
  select exists (
    select from pg_proc
    where oid = to_regprocedure(format('pgfresh.read_as_%s(text, text[])', p_role))
      and proowner = p_role and prosecdef and not proisstrict and provolatile = 's'
      and proconfig = array['search_path=pg_catalog, public, pg_temp', 'plan_cache_mode=auto', 'enable_seqscan=on']
      and has_function_privilege(current_user, oid, 'execute')
  )
$$;
comment on function pgfresh.has_reader(oid) is
  'Whether the function that reads as a role is there, and as it was made.';

create or replace function pgfresh.admit_viewer_role(p_role text) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_role oid := (select oid from pg_roles where rolname = p_role);
  v_signature text := format('pgfresh.read_as_%s(text, text[])', v_role);
  v_lends boolean := not has_schema_privilege(v_role, 'pgfresh', 'create')
    and not (select rolsuper from pg_roles where rolname = current_user);
begin
  perform pgfresh.require_primary();
  perform pgfresh.refuse('PGF_LIVE_ROLE', p.problem, p.next_step) from pgfresh.viewer_role_problem(p_role) as p;
  for v_turn in 1..2 loop
    if pgfresh.has_reader(v_role) then
      return;
    end if;
    -- Whoever else makes one is waited for, and looked at again.
    lock table pgfresh.change_epoch in share update exclusive mode;
  end loop;
  execute format('drop function if exists %s', v_signature);
  execute format($create$
    create function pgfresh.read_as_%1$s(p_sql text, p_keys text[])
    returns table (key text, rows text, fetched_at timestamptz, ttl interval)
    language plpgsql stable security definer
    set search_path = pg_catalog, public, pg_temp
    set plan_cache_mode = auto
    set enable_seqscan = on
    as $read$
    #variable_conflict use_column
    begin
      if pg_catalog.to_regrole(pg_catalog.quote_ident(current_user))::pg_catalog.oid
          operator(pg_catalog.<>) %1$s::pg_catalog.oid then
        raise exception using errcode = '42501',
          message = 'this function was altered, and does not run as its owner any more';
      end if;
      return query execute p_sql using p_keys;
    end
    $read$ $create$, v_role);
  execute format('comment on function %s is %L', v_signature,
    'Reads rows as one role of viewers. Written when the first of them looks.');
  execute format('revoke all on function %s from public', v_signature);
  -- The new owner must be allowed to create here for the moment in which it becomes one.
  if v_lends then
    execute format('grant create on schema pgfresh to %I', p_role);
  end if;
  execute format('alter function %s owner to %I', v_signature, p_role);
  if v_lends then
    execute format('revoke create on schema pgfresh from %I', p_role);
  end if;
  execute format('revoke all on function %s from public', v_signature);
  execute format('grant execute on function %s to %I', v_signature, current_user);
end
$$;
comment on function pgfresh.admit_viewer_role(text) is
  'Prepares that rows are read as a role, which must be a member of pgfresh_viewer; '
  'refuses one as which nobody can look.';

create or replace function pgfresh.ask_rows_as(p_role oid, p_user_id text, p_claims text, p_sql text, p_keys text[])
returns table (key text, rows text, fetched_at timestamptz, ttl interval)
-- Stable, so that it reads by the snapshot of the statement that calls it.
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_keys text[]; v_rows text[]; v_at timestamptz[]; v_ttl interval[];
begin
  begin
    perform set_config('transaction_read_only', 'on', true),
      set_config('pgfresh.user_id', p_user_id, true), set_config('request.jwt.claims', p_claims, true),
      -- What older versions of PostgREST set, and what nobody must find here.
      set_config('request.jwt.claim.sub', '', true), set_config('request.jwt.claim.role', '', true);
    execute format(
        'select array_agg(r.key), array_agg(r.rows), array_agg(r.fetched_at), array_agg(r.ttl) '
        'from pgfresh.read_as_%s($1, $2) as r', p_role)
      into v_keys, v_rows, v_at, v_ttl using p_sql, p_keys;
    raise exception using errcode = 'PGF00', message = 'this is undone';
  exception
    when sqlstate 'PGF00' then
      if v_keys is null and cardinality(p_keys) > 0 then
        raise;
      end if;
    -- He may not read the table, or something that its policies call. To him it is as if there were nothing.
    when insufficient_privilege then
      v_keys := p_keys;
  end;
  -- The only thing of a session that a rollback leaves.
  perform pg_advisory_unlock_all();
  return query select r.* from unnest(v_keys, v_rows, v_at, v_ttl) as r;
end
$$;
comment on function pgfresh.ask_rows_as(oid, text, text, text, text[]) is
  'Reads rows as a viewer, and leaves nothing of that behind. A part of read_pairs_as.';

create or replace function pgfresh.read_pairs_as(
  p_role text, p_user_id text, p_claims jsonb, p_type_id int, p_keys text[])
returns table (
  version text, snapshot text, key text, rows text, fetched_at timestamptz, stale_at timestamptz,
  source_at timestamptz, state text, activity text, reason text, failing boolean, as_of timestamptz
)
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
-- Times in the rows are written the same way whoever reads them.
set timezone = 'UTC'
as $$
#variable_conflict use_column
declare
  v_type pgfresh.data_type_registry := pgfresh.require_readable(p_type_id, p_keys);
  v_role oid := (select oid from pg_roles where rolname = p_role);
  v_sql text;
begin
  if v_type.visibility <> 'rls' then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      format('the rows of %s are the same for everybody', v_type.data_type),
      'Read them with read_pairs.');
  end if;
  if p_user_id is null or p_claims is null or jsonb_typeof(p_claims) <> 'object' then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      format('p_user_id must not be null and p_claims must be an object, got %s',
        coalesce(jsonb_typeof(p_claims), 'null')),
      'Pass who looks, and what his token says.');
  end if;
  perform pgfresh.refuse('PGF_LIVE_ROLE', p.problem, p.next_step) from pgfresh.viewer_role_problem(p_role) as p;
  if not pgfresh.has_reader(v_role) then
    perform pgfresh.admit_viewer_role(p_role);
  end if;
  v_sql := (select r.rows_sql from pgfresh.type_resolution as r where r.type_id = p_type_id);
  -- As in read_pairs. Who sees no row is told nothing of when it was fetched and how, and nobody why it waits.
  return query
    select s.version, s.snapshot, a.key, '[' || coalesce(a.rows, '') || ']', a.fetched_at,
      case when t.state = 'empty' then (p.pair).empty_at + coalesce(v_type.empty_ttl, v_type.ttl) else t.stale_at end,
      case when a.rows is not null then (p.pair).source_at end, t.state,
      case when j.state = 'x' then 'refreshing' when j.state is not null then 'waiting' else 'idle' end,
      case when j.state in ('r', 'w') then 'queued' end,
      coalesce((p.pair).fails > 0 or j.retries > 0, false), s.as_of
    from (
      select pgfresh.clock() as as_of, pgfresh.version_of(pg_current_snapshot()) as version,
        pg_current_snapshot()::text as snapshot
      offset 0
    ) as s
    cross join pgfresh.ask_rows_as(v_role, p_user_id, p_claims::text, v_sql, p_keys) as a
    cross join lateral (
      select (select p from pgfresh.pairs as p where p.type_id = p_type_id and p.key = a.key collate "C") as pair
      offset 0
    ) as p
    left join lateral (
      select j.state, j.retries from pgfresh.job as j where j.id = (p.pair).job_id
    ) as j on true
    cross join lateral (
      select u.stale_at,
        case
          when a.rows is null then 'missing'
          else pgfresh.state_of(p.pair, true, a.fetched_at, u.stale_at,
            coalesce(v_type.empty_ttl, v_type.ttl), v_type.max_source_age, s.as_of)
        end as state
      from (
        select case
          when a.rows is null then null
          -- He may see only some of the rows, so this goes by what the planner knows of all of them.
          when (p.pair).row_at is not null then (p.pair).stale_at
          when a.fetched_at is not null then least(a.fetched_at, '9999-12-31') + coalesce(a.ttl, v_type.ttl)
        end as stale_at
      ) as u
      offset 0
    ) as t;
  -- Again, by a later snapshot: the role may have become one that sees everything between the look at it and the read.
  perform pgfresh.refuse('PGF_LIVE_ROLE', p.problem, p.next_step) from pgfresh.viewer_role_problem(p_role) as p;
end
$$;
comment on function pgfresh.read_pairs_as(text, text, jsonb, int, text[]) is
  'The rows and the state of pairs of a data type with row security, as a user sees them: '
  'read with the rights of a role that is a member of pgfresh_viewer, with the user in the setting pgfresh.user_id '
  'and what his token says in request.jwt.claims. Where he sees no row, it says nothing of one. '
  'Versions are those of read_pairs. Advisory locks of the session are released.';

insert into pgfresh.migrations (kind, name, hash) values ('functions'::text, 'readers'::text, '0e126971a3e64a911f9bbb36c91d62bb43726b4a8e930e92899deb3ba403f9cc'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- functions ready
/*
  The lanes of these data types in which jobs are ready, each with its first job: a loose scan of the ready index, one
  probe for each lane that exists. Where the caller remembers a floor, the lane is entered there, so that entries which
  are dead but cannot be removed yet, because of an old snapshot, are not walked over again by every claim; the gaps
  between the lanes with floors are scanned loosely.
*/
create or replace function pgfresh.ready_lanes(
  p_types int[], p_floor_types int[] default '{}', p_floor_lanes smallint[] default '{}',
  p_floor_ids bigint[] default '{}')
returns table (type_id int, lane smallint, seq bigint, since timestamptz, bytes bigint)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  if cardinality(p_floor_types) = 0 then
    return query
    with recursive found as (
      select t.type_id, j.lane, j.seq, j.run_at, j.est_bytes
      from unnest(p_types) as t(type_id)
      cross join lateral (
        select j.lane, j.seq, j.run_at, j.est_bytes
        from pgfresh.job as j
        where j.state = 'r' and j.type_id = t.type_id
        order by j.lane, j.seq
        limit 1
      ) as j
      union all
      select f.type_id, j.lane, j.seq, j.run_at, j.est_bytes
      from found as f
      cross join lateral (
        select j.lane, j.seq, j.run_at, j.est_bytes
        from pgfresh.job as j
        where j.state = 'r' and j.type_id = f.type_id and j.lane > f.lane
        order by j.lane, j.seq
        limit 1
      ) as j
    )
    select * from found;
    return;
  end if;
  return query
  with recursive floors as materialized (
    select f.type_id, f.lane, f.seq
    from unnest(p_floor_types, p_floor_lanes, p_floor_ids) as f(type_id, lane, seq)
    where f.type_id = any (p_types)
  ), gaps as materialized (
    select f.type_id, coalesce(lag(f.lane) over (partition by f.type_id order by f.lane), -1::smallint) as above, f.lane
    from floors as f
    union all
    select t.type_id, coalesce((select max(f.lane) from floors as f where f.type_id = t.type_id), -1::smallint), 127
    from unnest(p_types) as t(type_id)
  ), found as (
    select g.type_id, j.lane, j.seq, j.run_at, j.est_bytes, g.lane as below
    from gaps as g
    cross join lateral (
      select j.lane, j.seq, j.run_at, j.est_bytes
      from pgfresh.job as j
      where j.state = 'r' and j.type_id = g.type_id and j.lane > g.above and j.lane < g.lane
      order by j.lane, j.seq
      limit 1
    ) as j
    union all
    select f.type_id, j.lane, j.seq, j.run_at, j.est_bytes, f.below
    from found as f
    cross join lateral (
      select j.lane, j.seq, j.run_at, j.est_bytes
      from pgfresh.job as j
      where j.state = 'r' and j.type_id = f.type_id and j.lane > f.lane and j.lane < f.below
      order by j.lane, j.seq
      limit 1
    ) as j
  )
  select f.type_id, f.lane, f.seq, f.run_at, f.est_bytes from found as f
  union all
  select f.type_id, f.lane, j.seq, j.run_at, j.est_bytes
  from floors as f
  cross join lateral (
    select j.seq, j.run_at, j.est_bytes
    from pgfresh.job as j
    where j.state = 'r' and j.type_id = f.type_id and j.lane = f.lane and j.seq >= f.seq
    order by j.seq
    limit 1
  ) as j;
end
$$;
comment on function pgfresh.ready_lanes(int[], int[], smallint[], bigint[]) is
  'The lanes of these data types that have ready jobs: the first job of each, since when it has been ready, '
  'and its bytes. A part of claim_jobs.';

/*
  Of several lanes the oldest jobs, without locking more than are taken: first it is found out how far the oldest reach,
  and then each lane is locked up to there. As many of the lane that begins first would do, so no lane is read further
  than that. Only where others have locked some of the oldest is more locked than taken.
*/
create or replace function pgfresh.lock_ready(
  p_types int[], p_lanes smallint[], p_from bigint[], p_limit int, p_max_bytes bigint, p_taken bigint[])
returns bigint[]
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_ids bigint[];
  v_last bigint;
begin
  if cardinality(p_types) = 1 then
    return array(
      select j.id
      from pgfresh.job as j
      where j.state = 'r' and j.type_id = p_types[1] and j.lane = p_lanes[1] and j.seq >= p_from[1]
        and (p_max_bytes is null or j.est_bytes <= p_max_bytes) and j.id <> all (p_taken)
      order by j.seq
      limit p_limit for update skip locked);
  end if;
  v_last := (
    select (
        select j.seq
        from pgfresh.job as j
        where j.state = 'r' and j.type_id = l.type_id and j.lane = l.lane and j.seq >= l.seq
          and (p_max_bytes is null or j.est_bytes <= p_max_bytes) and j.id <> all (p_taken)
        order by j.seq
        offset p_limit - 1
        limit 1
      )
    from unnest(p_types, p_lanes, p_from) as l(type_id, lane, seq)
    order by l.seq
    limit 1
  );
  v_last := (
    select j.seq
    from unnest(p_types, p_lanes, p_from) as l(type_id, lane, seq)
    cross join lateral (
      select j.seq
      from pgfresh.job as j
      where j.state = 'r' and j.type_id = l.type_id and j.lane = l.lane
        and j.seq between l.seq and coalesce(v_last, 9223372036854775807)
        and (p_max_bytes is null or j.est_bytes <= p_max_bytes) and j.id <> all (p_taken)
      order by j.seq
      limit p_limit
    ) as j
    order by j.seq
    offset p_limit - 1
    limit 1
  );
  v_ids := array(
    select j.id
    from unnest(p_types, p_lanes, p_from) as l(type_id, lane, seq)
    cross join lateral (
      select j.id
      from pgfresh.job as j
      where j.state = 'r' and j.type_id = l.type_id and j.lane = l.lane
        and j.seq between l.seq and coalesce(v_last, 9223372036854775807)
        and (p_max_bytes is null or j.est_bytes <= p_max_bytes) and j.id <> all (p_taken)
      order by j.seq
      limit p_limit for update skip locked
    ) as j
    limit p_limit);
  if v_last is not null and cardinality(v_ids) < p_limit then
    v_ids := v_ids || array(
      select j.id
      from unnest(p_types, p_lanes, p_from) as l(type_id, lane, seq)
      cross join lateral (
        select j.id, j.seq
        from pgfresh.job as j
        where j.state = 'r' and j.type_id = l.type_id and j.lane = l.lane and j.seq > greatest(l.seq - 1, v_last)
          and (p_max_bytes is null or j.est_bytes <= p_max_bytes) and j.id <> all (p_taken)
        order by j.seq
        limit p_limit - cardinality(v_ids) for update skip locked
      ) as j
      order by j.seq
      limit p_limit - cardinality(v_ids));
  end if;
  return v_ids;
end
$$;
comment on function pgfresh.lock_ready(int[], smallint[], bigint[], int, bigint, bigint[]) is
  'Locks the oldest ready jobs of these lanes, each from an id on, except those that are taken. A part of claim_jobs.';

/*
  Picks from sources without limits: by band, the oldest first, whatever their source. What they wait for, if they wait,
  are workers. Then nothing is written down about whose turn it is, so each claim keeps the shares by itself: a quarter
  of it for what has been ready longest, once that is more than ten seconds, and half for viewed pairs without a row.
  What is left of a share is a chance, so claims of one job keep them too.
*/
create or replace function pgfresh.pick_free(
  p_limit int, p_types int[], p_lanes smallint[], p_from bigint[], p_waits boolean, p_max_bytes bigint,
  out ids bigint[], out shared int)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  -- Whether viewed pairs with and without a row wait.
  v_both boolean;
  v_chance double precision;
  v_group record;
  v_most int;
  -- Of the lanes, the first and the last one of a group.
  v_first int := 1;
  v_last int;
begin
  ids := '{}';
  v_both := (
    select count(distinct l.lane & 32) = 2 from unnest(p_lanes) as l(lane) where l.lane & 31 < 21
  );
  if p_waits or v_both then
    v_chance := random();
  end if;
  v_most := case when p_waits then floor(p_limit / 4.0 + v_chance) else 0 end;
  if v_most > 0 then
    select pgfresh.lock_ready(
      array_agg(l.type_id), array_agg(l.lane), array_agg(l.seq), v_most, p_max_bytes, '{}')
    into ids
    from unnest(p_types, p_lanes, p_from) as l(type_id, lane, seq)
    where l.lane & 31 < 20;
  end if;
  if v_both then
    v_most := least(p_limit, cardinality(ids) + floor(p_limit / 2.0 + v_chance)::int
      - (select count(*)::int from pgfresh.job as j where j.id = any (ids) and j.missing));
    for v_group in
      select array_agg(l.type_id) as types, array_agg(l.lane) as lanes, array_agg(l.seq) as from_ids
      from unnest(p_types, p_lanes, p_from) as l(type_id, lane, seq)
      where l.lane & 32 = 0 and l.lane & 31 < 21
      group by l.lane & 31
      order by l.lane & 31
    loop
      exit when cardinality(ids) >= v_most;
      ids := ids || pgfresh.lock_ready(
        v_group.types, v_group.lanes, v_group.from_ids, v_most - cardinality(ids), p_max_bytes, ids);
    end loop;
  end if;
  shared := cardinality(ids);
  -- The rest by band; where both wait, what is missing has had its share, and background work is last.
  select array_agg(l.type_id), array_agg(l.lane), array_agg(l.seq)
  into p_types, p_lanes, p_from
  from (
    select l.*
    from unnest(p_types, p_lanes, p_from) as l(type_id, lane, seq)
    order by v_both and l.lane & 31 = 21, v_both and l.lane & 32 = 0, l.lane & 31
  ) as l;
  while v_first <= cardinality(p_types) and cardinality(ids) < p_limit loop
    v_last := v_first;
    while p_lanes[v_last + 1] & 31 = p_lanes[v_first] & 31
      and (not v_both or p_lanes[v_last + 1] & 32 = p_lanes[v_first] & 32)
    loop
      v_last := v_last + 1;
    end loop;
    ids := ids || pgfresh.lock_ready(
      p_types[v_first:v_last], p_lanes[v_first:v_last], p_from[v_first:v_last], p_limit - cardinality(ids), p_max_bytes,
      ids);
    v_first := v_last + 1;
  end loop;
end
$$;
comment on function pgfresh.pick_free(int, int[], smallint[], bigint[], boolean, bigint) is
  'Locks the next ready jobs of these lanes of sources without limits. '
  'p_waits: one has waited for more than ten seconds. '
  'The first ones, shared, have a share of the claim. A part of claim_jobs.';

insert into pgfresh.migrations (kind, name, hash) values ('functions'::text, 'ready'::text, 'c5c66f36c35d207721f97cb75a9faa926ee681ee5755535367efbb93efa7074f'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- functions recover
create or replace function pgfresh.register_worker(p_name text) returns bigint
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := pgfresh.clock();
  v_id bigint;
begin
  perform pgfresh.require_worker_name('p_name', p_name);
  insert into pgfresh.worker_name (name, has_lease, last_seen_at) values (p_name, true, v_now) returning id into v_id;
  insert into pgfresh.worker (id, name, started_at, renewed_at, lease_until)
  values (v_id, p_name, v_now, v_now, v_now + interval '12 seconds');
  return v_id;
end
$$;
comment on function pgfresh.register_worker(text) is
  'Begins an incarnation of a worker process: its number, with a lease of 12 s that heartbeat_worker renews. '
  'Its name is kept as long as the history of its jobs.';

/*
  A claim whose answer was lost on its way is known to us and not to the worker. So the worker says which claims it
  knows, and is told of those that it has not named. It puts them back itself: what it named may be older than what it
  holds by now.
*/
create or replace function pgfresh.heartbeat_worker(p_worker bigint, p_known uuid[]) returns jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := pgfresh.clock();
begin
  -- Null would read as "knows of none".
  if p_known is null or array_position(p_known, null) is not null then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      'p_known must not be null, and no claim in it',
      'Pass every claim with jobs that have not ended, or an empty array.');
  end if;
  update pgfresh.worker
  set renewed_at = v_now, lease_until = v_now + interval '12 seconds'
  where id = p_worker and lease_until > v_now;
  if not found then
    return jsonb_build_object('alive', false);
  end if;
  delete from pgfresh.claim as c
  where c.worker = p_worker and not c.request = any (p_known) and c.claimed_at < v_now - interval '5 seconds'
    and not exists (
      select from unnest(c.job_ids) as job(id)
      join pgfresh.job as j on j.id = job.id and j.request = c.request
    );
  return jsonb_build_object('alive', true, 'stranded', (
    select coalesce(jsonb_agg(c.request), '[]')
    from pgfresh.claim as c
    where c.worker = p_worker and not c.request = any (p_known) and c.claimed_at < v_now - interval '5 seconds'
  ));
end
$$;
comment on function pgfresh.heartbeat_worker(bigint, uuid[]) is
  'Renews the lease of a worker that knows of these claims. Answers {"alive", "stranded"}: whether it still has the '
  'lease, without which nothing that it holds is its own any more, and the claims that it was given five seconds ago '
  'or more and has not named; release_claim puts back what they hold.';

create or replace function pgfresh.retire_worker(p_worker bigint) returns int
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_count int;
begin
  v_count := pgfresh.take_back(p_worker, false, null);
  delete from pgfresh.worker where id = p_worker and not exists (select from pgfresh.claim where worker = p_worker);
  -- What somebody has locked this moment was left out, and is left to recovery.
  update pgfresh.worker set lease_until = least(lease_until, pgfresh.clock()), idle = false where id = p_worker;
  update pgfresh.worker_name set last_seen_at = pgfresh.clock() where id = p_worker and has_lease;
  return v_count;
end
$$;
comment on function pgfresh.retire_worker(bigint) is
  'Ends an incarnation: what it still holds is ready again at once, and returned is how many jobs that were. '
  'What somebody has locked this moment is taken back by recovery.';

create or replace function pgfresh.worker_called(p_worker bigint) returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select coalesce((select name from pgfresh.worker_name where id = p_worker), 'number ' || p_worker, 'an SQL client')
$$;
comment on function pgfresh.worker_called(bigint) is 'The name of a worker or SQL client, also when it is gone.';

create or replace function pgfresh.take_back(p_worker bigint, p_lost boolean, p_error text) returns int
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_held jsonb;
begin
  select jsonb_agg(jsonb_build_object('id', held.id, 'attempt', held.attempt, 'error', p_error))
  into v_held
  from (
    select j.id, j.attempt
    from pgfresh.claim as c
    cross join unnest(c.job_ids) as job(id)
    join pgfresh.job as j on j.id = job.id and j.request = c.request
    where c.worker = p_worker and j.state = 'x'
    order by j.id
    limit 10000 for update of j skip locked
  ) as held;
  if v_held is not null then
    perform pgfresh.put_back_jobs(v_held, p_lost);
  end if;
  perform from pgfresh.worker where id = p_worker for update;
  delete from pgfresh.claim as c
  where c.worker = p_worker
    and not exists (
      select from unnest(c.job_ids) as job(id)
      join pgfresh.job as j on j.id = job.id and j.request = c.request
    );
  return coalesce(jsonb_array_length(v_held), 0);
end
$$;
comment on function pgfresh.take_back(bigint, boolean, text) is
  'Takes back what a worker holds, except what is being ended this moment. A part of recovery.';

create or replace function pgfresh.heartbeat_jobs(p_job_ids bigint[], p_attempts int[] default null) returns bigint[]
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_alive bigint[];
begin
  if p_job_ids is null or cardinality(p_job_ids) > 10000 or cardinality(p_attempts) <> cardinality(p_job_ids) then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      'p_job_ids must be an array of at most 10000 ids, and p_attempts as long as it',
      'Pass the ids that the claim returned.');
  end if;
  with alive as (
    update pgfresh.job
    set progress_at = pgfresh.clock()
    -- In the order of ids, as every end locks them.
    where id = any (array(
      select j.id
      from pgfresh.job as j
      join unnest(p_job_ids, p_attempts) as b(id, attempt) on j.id = b.id
      where j.state = 'x' and j.attempt = coalesce(b.attempt, j.attempt)
      order by j.id for update of j))
    returning id
  )
  select coalesce(array_agg(id), '{}') into v_alive from alive;
  return v_alive;
end
$$;
comment on function pgfresh.heartbeat_jobs(bigint[], int[]) is
  'Reports progress of running jobs, so that they are not taken back as silent. '
  'Returns those that still run; stop working on the others.';

create or replace function pgfresh.recover_silent_jobs(p_limit int) returns int
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := pgfresh.clock();
  v_shortest interval := (select min(max_run) from pgfresh.data_type_registry);
  v_silent record;
  v_count int := 0;
begin
  if not exists (select from pgfresh.claim where claimed_at < v_now - v_shortest) then
    return 0;
  end if;
  -- Each holder is settled by itself, so the ledgers are taken before,
  -- in the order in which ends of several sources take them.
  perform from pgfresh.source_state order by source_id for update;
  for v_silent in
    select jsonb_agg(jsonb_build_object('id', held.id, 'attempt', held.attempt, 'error',
      format('no progress for its maximum, held by %s', pgfresh.worker_called(held.worker)))) as ends
    from (
      select j.id, j.attempt, j.worker
      from pgfresh.claim as c
      cross join unnest(c.job_ids) as job(id)
      join pgfresh.job as j on j.id = job.id and j.request = c.request
      join pgfresh.data_type_registry as r on r.type_id = j.type_id
      where c.claimed_at < v_now - v_shortest and j.state = 'x' and j.progress_at < v_now - r.max_run
      order by j.id
      limit p_limit for update of j skip locked
    ) as held
    group by held.worker
  loop
    perform pgfresh.put_back_jobs(v_silent.ends, true);
    v_count := v_count + jsonb_array_length(v_silent.ends);
  end loop;
  return v_count;
end
$$;
comment on function pgfresh.recover_silent_jobs(int) is
  'Takes back running jobs without progress for their type''s max_run, at most p_limit. A part of recovery.';

/*
  One at a time, and it waits for nobody. After a pause of the database every lease has run out although every worker
  lives; a gap since the last run, or a server that has just started, tells that, and then leases are not believed for
  one more lease.
*/
create or replace function pgfresh.recover_stuck_jobs(
  p_expected_gap interval default '90 seconds', p_limit int default 500)
returns jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := pgfresh.clock();
  v_recovery pgfresh.recovery;
  v_worker record;
  v_retired bigint[];
  v_id bigint;
  v_lost int := 0;
  v_workers int := 0;
  v_silent int;
  v_strays boolean;
begin
  perform pgfresh.require_range('p_limit', p_limit, 1, 10000);
  perform pgfresh.require_range('p_expected_gap in seconds', extract(epoch from p_expected_gap), 1, 86400);
  select * into v_recovery from pgfresh.recovery for update skip locked;
  if not found then
    return jsonb_build_object('skipped', true, 'reason', 'locked');
  end if;
  if (v_recovery.ran_at > '-infinity' and v_recovery.ran_at < v_now - p_expected_gap)
      or v_now - pg_postmaster_start_time() between interval '0' and interval '15 seconds' then
    v_recovery.trust_leases_from := v_now + interval '15 seconds';
  end if;
  v_strays := v_recovery.strays_at <= v_now - interval '1 minute' or v_recovery.strays_at > v_now;
  update pgfresh.recovery
  set ran_at = v_now, trust_leases_from = v_recovery.trust_leases_from,
    strays_at = case when v_strays then v_now else strays_at end;
  -- One that has retired while a claim of it was on its way has no row any more.
  v_retired := array(
    select distinct c.worker
    from pgfresh.claim as c
    where c.worker is not null and not exists (select from pgfresh.worker as w where w.id = c.worker)
  );
  if v_now >= v_recovery.trust_leases_from
      and (v_retired <> '{}' or exists (select from pgfresh.worker where lease_until <= v_now)) then
    -- Each worker is settled by itself, so the ledgers of all sources are taken before, in their order:
    -- ends take them so too.
    perform from pgfresh.source_state order by source_id for update;
    for v_worker in
      select id, name from pgfresh.worker where lease_until <= v_now order by id limit 100 for update skip locked
    loop
      v_lost := v_lost + pgfresh.take_back(v_worker.id, true, format('worker %s is gone', v_worker.name));
      update pgfresh.worker_name set last_seen_at = v_now where id = v_worker.id;
      delete from pgfresh.worker
      where id = v_worker.id and not exists (select from pgfresh.claim where worker = v_worker.id);
      v_workers := v_workers + 1;
    end loop;
    foreach v_id in array v_retired loop
      v_lost := v_lost + pgfresh.take_back(v_id, true, format('worker %s has retired', pgfresh.worker_called(v_id)));
    end loop;
  end if;
  v_silent := pgfresh.recover_silent_jobs(p_limit);
  if v_strays or exists (select from pgfresh.registry_change) then
    perform pgfresh.follow_changes(v_now, v_strays);
  end if;
  -- Claims of SQL clients have no worker whose heartbeat would tidy them up.
  delete from pgfresh.claim as c
  where c.worker is null and c.claimed_at < v_now - interval '1 minute'
    and not exists (
      select from unnest(c.job_ids) as job(id)
      join pgfresh.job as j on j.id = job.id and j.request = c.request
    );
  return jsonb_build_object(
    'skipped', false, 'dead_workers', v_workers, 'lost', v_lost, 'silent', v_silent,
    'leases_trusted', v_now >= v_recovery.trust_leases_from);
end
$$;
comment on function pgfresh.recover_stuck_jobs(interval, int) is
  'Takes back the jobs of workers whose lease has ended and jobs without progress, '
  'and brings changes of the registry to jobs that were locked then. '
  'Run it every few seconds, or every minute from cron; '
  'p_expected_gap is how long the pause between two runs may be before it is taken for a pause of the database.';

insert into pgfresh.migrations (kind, name, hash) values ('functions'::text, 'recover'::text, 'b30ef86a7a54e466abc31e4ca41d71edbc92c6137e2c5c8a85b3bd999f5549c3'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- functions refresh
/*
  The first statement of a commit of ends: locks the jobs that still run in the given attempt, in the order in which
  every end locks them. Of the others it tells which have ended, so that a commit which was never confirmed is
  recognised when it is run again. Rows of a data type that was changed since the claim are not written: they may be of
  another source, or for another table.
*/
create or replace function pgfresh.fence_jobs(
  p_type_id int, p_ids bigint[], p_attempts int[], p_keys text[], p_requests uuid[] default null)
returns table (ours bigint[], done bigint[], outdated bigint[], now timestamptz)
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_bitmapscan = off
as $$
begin
  perform pgfresh.require_ends(
    p_ids, p_attempts, array_fill(0::bigint, array[coalesce(cardinality(p_ids), 0)]), p_requests);
  if p_type_id is null or p_keys is null
      or cardinality(p_keys) <> cardinality(p_ids) or array_position(p_keys, null) is not null then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      'p_type_id must not be null, and p_keys as long as p_ids with no null in it',
      'Pass the type, and for each job its key.');
  end if;
  now := pgfresh.clock();
  -- The end marks the pairs; the triggers need not do it for the rows.
  perform set_config('pgfresh.ending', p_type_id::text, true);
  select coalesce(array_agg(j.id) filter (where not j.is_outdated), '{}'),
    coalesce(array_agg(j.id) filter (where j.is_outdated), '{}')
  into ours, outdated
  from (
    select j.id,
      j.definition is distinct from coalesce(
        (select r.definition from pgfresh.data_type_registry as r where r.type_id = p_type_id), 0)
        and j.definition is not null as is_outdated
    from pgfresh.job as j
    where j.id = any (p_ids) and j.state = 'x'
      and pgfresh.token_of(j.id, j.attempt, case when p_requests is not null then j.request end) = any (array(
        select pgfresh.token_of(e.id, e.attempt, e.request)
        from unnest(p_ids, p_attempts, p_requests) as e(id, attempt, request)
      ))
    order by j.id for update
  ) as j;
  done := '{}';
  if cardinality(ours) + cardinality(outdated) < cardinality(p_ids) then
    done := array(
      select e.id
      from unnest(p_ids, p_keys) as e(id, key)
      cross join lateral (
        select p.last_job from pgfresh.pairs as p where p.type_id = p_type_id and p.key = e.key
      ) as p
      where p.last_job >= e.id and not e.id = any (ours));
  end if;
  return next;
end
$$;
comment on function pgfresh.fence_jobs(int, bigint[], int[], text[], uuid[]) is
  'Locks jobs of one data type that still run in the given attempt, under the given claims if they are said, '
  'and returns their ids, the ids of those that have ended already, '
  'the ids of those whose data type has another definition now, which must be put back, and the time. '
  'Call it first in the transaction that writes their rows and ends them.';

create or replace function pgfresh.keep_refused_answer(
  p_type_id int, p_key text, p_job_id bigint, p_outcome text, p_error text, p_status int, p_content_type text,
  p_size bigint, p_body bytea, p_metadata jsonb default null)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  perform pgfresh.require_outcome(p_outcome);
  if p_type_id is null or p_key is null or p_error is null or p_size is null or p_body is null then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      'a refused answer needs a type, a key, an error, a size and a body',
      'Pass all of them.');
  end if;
  perform pgfresh.require_key(p_key);
  perform pgfresh.require_range('p_size', p_size, 0, 1e15);
  if not exists (select from pgfresh.data_type_registry where type_id = p_type_id) then
    perform pgfresh.refuse('PGF_TYPE_UNKNOWN',
      format('there is no data type with the number %s', p_type_id),
      'Pass the type of the claimed job.');
  end if;
  insert into pgfresh.refused_answer (
    type_id, key, job_id, at, outcome, error,
    status, content_type, size, body, metadata)
  values (
    p_type_id, p_key, p_job_id, pgfresh.clock(), p_outcome, left(p_error, 4000),
    p_status, left(p_content_type, 200), p_size, substring(p_body for 65536), p_metadata);
  -- The newest 50 of a type, and of those what fits into a megabyte.
  -- Who deletes the same at this moment is not waited for.
  delete from pgfresh.refused_answer
  where id in (
    select old.id
    from pgfresh.refused_answer as old
    where old.id in (
      select kept.id
      from (
        select r.id, row_number() over newest as place, sum(octet_length(r.body)) over newest as bytes
        from pgfresh.refused_answer as r
        where r.type_id = p_type_id
        window newest as (order by r.id desc)
      ) as kept
      where kept.place > 50 or (kept.bytes > 1048576 and kept.place > 1)
    ) for update skip locked
  );
end
$$;
comment on function pgfresh.keep_refused_answer(
  int, text, bigint, text, text, int, text, bigint, bytea, jsonb) is
  'Keeps an answer that was refused, at most its first 65536 bytes, '
  'and of its data type at most the newest 50 and a megabyte.';

create or replace function pgfresh.release_claim(p_worker bigint, p_request uuid) returns int
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_held jsonb;
begin
  if p_worker is null or p_request is null then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      'p_worker and p_request must not be null',
      'Pass the worker, and the name of the claim whose answer did not come.');
  end if;
  select jsonb_agg(jsonb_build_object('id', held.id, 'attempt', held.attempt))
  into v_held
  from (
    select j.id, j.attempt
    from pgfresh.claim as c
    cross join unnest(c.job_ids) as job(id)
    join pgfresh.job as j on j.id = job.id and j.request = c.request
    where c.request = p_request and c.worker = p_worker and j.state = 'x'
    order by j.id for update of j skip locked
  ) as held;
  if v_held is not null then
    perform pgfresh.put_back_jobs(v_held);
  end if;
  return coalesce(jsonb_array_length(v_held), 0);
end
$$;
comment on function pgfresh.release_claim(bigint, uuid) is
  'Puts back what a worker has claimed but was never told of, because the answer was lost on its way. '
  'Returns how many jobs that were.';

/*
  What answers have taken away of a data type, within a day or within its TTL where that is longer: in one TTL every key
  that is viewed is asked for about once, so a provider that lies about all of them is counted whole. While answers are
  refused for it the count does not begin anew, because refused keys are asked for more and more rarely, and a lie that
  goes on would then take the rest bit by bit.
*/
create or replace function pgfresh.count_losses(p_type_id int, p_lost bigint) returns bigint
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := pgfresh.clock();
  v_window interval;
  v_lost bigint;
begin
  perform pgfresh.require_range('p_lost', p_lost, 0, 1e15);
  select greatest(r.ttl, interval '1 day')
  into v_window
  from pgfresh.data_type_registry as r
  where r.type_id = p_type_id;
  if not found then
    perform pgfresh.refuse('PGF_TYPE_UNKNOWN',
      format('there is no data type with the number %s', coalesce(p_type_id::text, 'null')),
      'Pass the type of the claimed job.');
  end if;
  insert into pgfresh.type_losses as l (type_id, since, lost)
  values (p_type_id, v_now, p_lost)
  on conflict (type_id) do update
    set (since, lost, refused_at) = (
      select
        case when o.is_over then excluded.since else l.since end,
        case when o.is_over then 0 else l.lost end + excluded.lost,
        case when not o.is_over then l.refused_at end
      from (
        select v_now >= l.since + v_window and coalesce(v_now >= l.refused_at + 2 * v_window, true) as is_over
      ) as o
    )
  returning l.lost into v_lost;
  return v_lost - p_lost;
end
$$;
comment on function pgfresh.count_losses(int, bigint) is
  'Adds rows that answers take away to the count of their data type, and returns what it was before: '
  'within a day, or within the TTL where that is longer. A part of the end of jobs.';

create or replace function pgfresh.note_suspicion(p_type_id int, p_message text, p_count int, p_of_type boolean)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_type pgfresh.data_type_registry;
begin
  perform pgfresh.require_range('p_count', p_count, 1, 1000000);
  select * into v_type from pgfresh.data_type_registry where type_id = p_type_id;
  if not found or p_message is null or p_of_type is null then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      'a suspicion needs the number of a data type, a message, and whether it is about the whole type',
      'Pass all of them.');
  end if;
  if p_of_type then
    insert into pgfresh.type_losses as l (type_id, since, lost, refused_at)
    values (p_type_id, pgfresh.clock(), 0, pgfresh.clock())
    on conflict (type_id) do update set refused_at = excluded.refused_at;
  end if;
  perform pgfresh.warn('suspicious_answers', v_type.data_type, left(p_message, 1000),
    format('See "pgfresh refused list %1$s". If it is true, accept one with "pgfresh refused replay <id> --write", '
      'which begins the count anew, or raise max_deletes of %1$s; '
      'then: select pgfresh.retry_failed_jobs(p_data_type => %2$L);',
      v_type.data_type, v_type.data_type),
    p_count);
end
$$;
comment on function pgfresh.note_suspicion(int, text, int, boolean) is
  'Warns of answers that were refused because too many rows would go at once. A part of the end of jobs.';

create or replace function pgfresh.accept_refused_answer(p_id bigint, p_outcome text, p_row_at timestamptz)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := pgfresh.clock();
  v_answer pgfresh.refused_answer;
  v_type pgfresh.data_type_registry;
begin
  if p_outcome is null or p_outcome not in ('fresh', 'unchanged', 'empty') then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      format('p_outcome must be fresh, unchanged or empty, got %s',
        coalesce(left(quote_literal(p_outcome), 60), 'null')),
      'Pass what came of writing the answer.');
  end if;
  delete from pgfresh.refused_answer where id = p_id returning * into v_answer;
  if not found then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      format('there is no refused answer %s', coalesce(p_id::text, 'null')),
      'The known ones: select id from pgfresh.refused_answer.');
  end if;
  select * into v_type from pgfresh.data_type_registry where type_id = v_answer.type_id;
  -- An operator has vouched for the source: the count of what may go begins anew.
  delete from pgfresh.type_losses where type_id = v_answer.type_id;
  with accepted as (
    update pgfresh.pairs as p
    set outcome = p_outcome, fails = 0, ok_at = greatest(p.ok_at, v_answer.at), waits_for = null,
      confirmed_at = case when p_outcome = 'unchanged' then v_answer.at end,
      empty_at = case when p_outcome = 'empty' then v_answer.at end,
      next_ask_at = case when p_outcome = 'empty' then v_answer.at + coalesce(v_type.empty_ttl, v_type.ttl) end,
      -- What is true of the row the planner sees at its next look.
      row_at = p_row_at, stale_at = v_answer.at + v_type.ttl, seen = false,
      due_at = case when p.demanded and p.job_id is null then v_now else p.due_at end
    where p.type_id = v_answer.type_id and p.key = v_answer.key
    returning p.demanded and p.job_id is null as is_looked_at
  )
  insert into pgfresh.due (due_at, type_id, key)
  select v_now, v_answer.type_id, v_answer.key from accepted as a where a.is_looked_at
  on conflict do nothing;
  perform pgfresh.mark_pairs(v_answer.type_id, array[v_answer.key]);
end
$$;
comment on function pgfresh.accept_refused_answer(bigint, text, timestamptz) is
  'Notes that a refused answer was written after all, and forgets it; what the data type has lost is counted anew. '
  'Call it in the transaction that has written the rows, with the time of the newest of them.';

insert into pgfresh.migrations (kind, name, hash) values ('functions'::text, 'refresh'::text, '325e69ad79c61da82118cd7286577129b75232f7e3ba0dfff7f44d6dce8c13f0'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- functions registry
create or replace function pgfresh.complete_registry_row() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  -- By name or by number; the name decides if both are there and differ.
  if new.source is null or (tg_op = 'UPDATE' and new.source_id is distinct from old.source_id
      and new.source is not distinct from old.source) then
    select name into new.source from pgfresh.sources where id = new.source_id;
  else
    select id into new.source_id from pgfresh.sources where name = new.source;
  end if;
  if new.source_id is null then
    perform pgfresh.refuse_registry(
      format('source: there is no source %s', coalesce(left(quote_literal(new.source), 80), 'null')),
      coalesce(
        'The known ones: ' || (select string_agg(name, ', ' order by name) from pgfresh.sources) || '.',
        'Insert one into pgfresh.sources first.'));
  end if;
  new.fetcher := coalesce(new.fetcher, new.data_type);
  new.definition := case
    when tg_op = 'INSERT' then 1
    else old.definition + (
      row(old.source_id, old.fetcher, old.table_name, old.key_columns, old.timestamp_column,
        old.source_timestamp_field, old.normalise, old.empty_rows)
      is distinct from row(new.source_id, new.fetcher, new.table_name, new.key_columns, new.timestamp_column,
        new.source_timestamp_field, new.normalise, new.empty_rows))::int
  end;
  return new;
end
$$;
comment on function pgfresh.complete_registry_row() is
  'Trigger of the registry: a source is given by its name, '
  'and the definition grows with each change of what a fetch or a write depends on.';

/*
  Whether pairs are stale is asked all the time, so each data type has a function of its own for it, whose plan is kept.
  It is made by the schema's owner, whoever writes the row, and runs with the rights of its caller,
  who is the evaluator.
*/
create or replace function pgfresh.write_check(p_type_id int, p_sql text, p_calls_users boolean) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_signature text := format(
    'pgfresh.check_%s(text[], timestamptz[], timestamptz[], timestamptz[], interval, timestamptz)', p_type_id);
begin
  if p_sql is null then
    execute format('drop function if exists %s', v_signature);
    return;
  end if;
  execute format('create or replace function %s '
    'returns table (key text, found boolean, stale boolean, next_at timestamptz, at timestamptz, '
    'row_at timestamptz, due_at timestamptz) '
    'language plpgsql %s as %L',
    v_signature,
    -- Planned once, for the index and a hash. What users' functions do is not to be planned like that.
    case when not p_calls_users then
      'set plan_cache_mode = force_generic_plan '
      'set enable_seqscan = off set enable_nestloop = off set enable_mergejoin = off set jit = off'
    else '' end,
    format(E'#variable_conflict use_column\nbegin\n  return query %s;\nend', p_sql));
  execute format('comment on function %s is %L',
    v_signature, 'Whether pairs of a data type are stale. Written by the registry.');
  execute format('revoke all on function %s from public', v_signature);
  execute format('grant execute on function %s to pgfresh_evaluator', v_signature);
end
$$;
comment on function pgfresh.write_check(int, text, boolean) is
  'Makes the function that asks whether pairs of a data type are stale, or drops it. A part of the registry.';

create or replace function pgfresh.calls_users(p_resolution pgfresh.type_resolution) returns boolean
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
  select (p_resolution).fingerprint #>> '{staleness_function,signature}'
    <> 'pgfresh.is_data_stale(timestamp with time zone,interval)'
$$;
comment on function pgfresh.calls_users(pgfresh.type_resolution) is
  'Whether a user''s function says whether pairs of a data type are stale. A part of the registry.';

create or replace function pgfresh.keep_resolution() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_resolution pgfresh.type_resolution := pgfresh.resolve_type(new, true);
  v_unknown text;
begin
  delete from pgfresh.type_resolution where type_id = new.type_id;
  insert into pgfresh.type_resolution select (v_resolution).*;
  perform pgfresh.write_check(new.type_id, v_resolution.check_sql, pgfresh.calls_users(v_resolution));
  -- Before the stamp, because the first trigger of a table changes its row in the catalog.
  perform pgfresh.keep_change_triggers(new);
  update pgfresh.type_resolution as r
  set stamp = s.stamp
  from pgfresh.catalog_stamps(array[new.type_id]) as s
  where r.type_id = new.type_id;

  select name
  into v_unknown
  from unnest(new.depends_on) as name
  where not exists (select from pgfresh.data_type_registry as r where r.data_type = name) or name = new.data_type;
  if found then
    perform pgfresh.refuse_registry(
      format('depends_on: there is no other data type %s', coalesce(left(quote_literal(v_unknown), 80), 'null')),
      'Add the data types that it needs first.');
  end if;
  delete from pgfresh.type_dependency where type_id = new.type_id;
  insert into pgfresh.type_dependency (type_id, needs_id)
  select distinct new.type_id, r.type_id
  from unnest(new.depends_on) as name
  join pgfresh.data_type_registry as r on r.data_type = name;
  -- Those that name it, though it was deleted or had another name for a while.
  with returned as (
    insert into pgfresh.type_dependency (type_id, needs_id)
    select r.type_id, new.type_id
    from pgfresh.data_type_registry as r
    where new.data_type = any (r.depends_on) and r.type_id <> new.type_id
    on conflict do nothing
    returning type_id
  ), released as (
    -- Their pairs that failed without it.
    update pgfresh.pairs as p
    set next_ask_at = null, due_at = case when p.demanded then pgfresh.clock() else p.due_at end
    from returned as d
    where p.type_id = d.type_id and p.outcome = 'dependency' and p.job_id is null
    returning p.type_id, p.key, p.demanded, p.due_at
  )
  insert into pgfresh.due (due_at, type_id, key)
  select r.due_at, r.type_id, r.key from released as r where r.demanded
  on conflict do nothing;
  if exists (
    with recursive needed (type_id) as (
      select needs_id from pgfresh.type_dependency where type_id = new.type_id
      union
      select d.needs_id from needed as n join pgfresh.type_dependency as d on d.type_id = n.type_id
    )
    select from needed where type_id = new.type_id
  ) then
    perform pgfresh.refuse_registry(
      format('depends_on: %s needs itself by way of another', new.data_type),
      'Break the circle.');
  end if;
  return null;
end
$$;
comment on function pgfresh.keep_resolution() is
  'Trigger of the registry: looks up what a row names and refuses what does not resolve.';

-- Its demand, pairs and jobs follow when the transaction commits.
create or replace function pgfresh.forget_type() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform pgfresh.write_check(old.type_id, null, false);
  delete from pgfresh.watched_type where type_id = old.type_id;
  perform pgfresh.drop_change_functions(old.type_id);
  return old;
end
$$;
comment on function pgfresh.forget_type() is
  'Trigger of the registry: drops the functions and triggers that were made for a data type.';

-- Its data types would have no source any more, and no foreign key tells which they are.
create or replace function pgfresh.refuse_used_source() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_types text := (
    select string_agg(data_type, ', ' order by data_type) from pgfresh.data_type_registry where source_id = old.id);
begin
  if v_types is not null then
    perform pgfresh.refuse_registry(
      format('the source %s has data types: %s', old.name, left(v_types, 200)),
      'Give them another source, or delete them, before it is deleted.');
  end if;
  return old;
end
$$;
comment on function pgfresh.refuse_used_source() is
  'Trigger of sources: one that has data types cannot be deleted.';
create or replace trigger refuse_used_source before delete on pgfresh.sources
  for each row execute function pgfresh.refuse_used_source();

create or replace trigger forget_type before delete on pgfresh.data_type_registry
  for each row execute function pgfresh.forget_type();
create or replace trigger complete_registry_row before insert or update on pgfresh.data_type_registry
  for each row execute function pgfresh.complete_registry_row();
-- After what completes the row, by its name.
create or replace trigger refuse_broken_rules before insert or update on pgfresh.data_type_registry
  for each row execute function pgfresh.refuse_broken_rules('PGF_REGISTRY_INVALID');
-- Only of the columns that people write: the others change with every failure and pause.
create or replace trigger refuse_broken_rules before insert or update
  of name, enabled, rate_limit_per_minute, api_keys, quota_bytes, quota_window, quota_buffer,
    viewed_share, max_concurrency, one_key_at_a_time
  on pgfresh.sources
  for each row execute function pgfresh.refuse_broken_rules('PGF_REGISTRY_INVALID');
create or replace trigger keep_resolution after insert or update on pgfresh.data_type_registry
  for each row execute function pgfresh.keep_resolution();

create or replace function pgfresh.admit_keys(p_type pgfresh.data_type_registry, p_keys text[]) returns text[]
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_keys text[] := p_keys;
  v_parts int := cardinality(p_type.key_columns) - 1;
  v_outside text;
begin
  perform pgfresh.require_key(bad.key)
  from unnest(p_keys) as bad(key)
  where bad.key is null or bad.key = '' or octet_length(bad.key) > 512 or bad.key ~ '[[:cntrl:]]';
  if p_type.normalise <> 'none' then
    v_keys := array(
      select pgfresh.canonical_key(k.key, p_type.normalise)
      from unnest(p_keys) with ordinality as k(key, place)
      order by k.place
    );
  end if;
  if v_parts > 0 then
    select k.key
    into v_outside
    from unnest(v_keys) as k(key)
    where length(k.key) - length(replace(k.key, '|', '')) <> v_parts
    limit 1;
  end if;
  if v_outside is null and p_type.key_pattern is not null then
    select k.key into v_outside from unnest(v_keys) as k(key) where k.key !~ p_type.key_pattern limit 1;
  end if;
  if v_outside is null and p_type.key_table is not null then
    begin
      select k.key
      into v_outside
      from pgfresh.ask_keys(
        (select unknown_sql from pgfresh.type_resolution where type_id = p_type.type_id), v_keys
      ) as k(key)
      limit 1;
    exception
      when data_exception then
        -- A key that is not even of the column's type.
        perform pgfresh.admit_keys(p_type, array[k.key]) from unnest(v_keys) as k(key) where cardinality(v_keys) > 1;
        v_outside := v_keys[1];
      when others then
        perform pgfresh.refuse_registry(t.problem, t.next_step) from pgfresh.type_problem(p_type) as t;
        raise;
    end;
  end if;
  if v_outside is not null then
    perform pgfresh.refuse('PGF_KEY_UNKNOWN',
      format('%s is not a key of %s', left(quote_literal(v_outside), 80), p_type.data_type),
      case
        when v_parts > 0 and p_type.key_pattern is null and p_type.key_table is null then
          format('It has %s parts, with | between them.', v_parts + 1)
        when p_type.key_pattern is not null then format('Its keys match %s.', p_type.key_pattern)
        else format('Its keys are those of %s.', p_type.key_table)
      end);
  end if;
  return v_keys;
end
$$;
comment on function pgfresh.admit_keys(pgfresh.data_type_registry, text[]) is
  'Keys as the data type writes them; refuses those that it cannot have.';

insert into pgfresh.migrations (kind, name, hash) values ('functions'::text, 'registry'::text, '73605d1e13afc7295c83abbfedd7cb2669a1b680534634f8f90ea9f54aaf5df3'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- functions registry_changes
/*
  What a change of the registry means for pairs and jobs. It happens when the transaction commits, so that one that
  stays open keeps nobody waiting, and after the locks on users' tables: ends have those before they have pairs.
  It waits for nobody either. What others have locked follows later, see follow_changes.
*/
create or replace function pgfresh.follow_registry() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := pgfresh.clock();
  v_type pgfresh.data_type_registry;
  v_effect text;
  v_locked text[];
begin
  select * into v_type from pgfresh.data_type_registry where type_id = old.type_id;
  if not found then
    perform pgfresh.clear_type(old.type_id);
    insert into pgfresh.registry_change (type_id, changed_at, effect) values (old.type_id, v_now, 'clear');
    return null;
  end if;
  v_effect := case
    when row(old.table_name, old.key_columns, old.timestamp_column)
      is distinct from row(v_type.table_name, v_type.key_columns, v_type.timestamp_column) then 'forget'
    when old.definition <> v_type.definition then 'ask'
    else 'plan'
  end;
  if v_type.refresh_strategy <> 'scheduled' and old.refresh_strategy = 'scheduled' then
    update pgfresh.refresh_cycle set done_at = v_now where ctid = any (array(
      select ctid
      from pgfresh.refresh_cycle
      where type_id = v_type.type_id and done_at is null
      for update skip locked));
  end if;
  perform pgfresh.move_jobs(v_type.type_id, v_type.source_id);
  v_locked := pgfresh.replan_pairs(v_type, v_effect, null, v_now);
  if v_effect <> 'plan' or v_locked <> '{}' then
    insert into pgfresh.registry_change (type_id, changed_at, effect, keys)
    values (v_type.type_id, v_now, v_effect, v_locked);
  end if;
  return null;
end
$$;
comment on function pgfresh.follow_registry() is
  'Trigger of the registry: jobs follow their data type to its source, pairs are planned anew or forget what they '
  'know, and what is open of a deleted data type is cancelled.';

drop trigger if exists follow_registry on pgfresh.data_type_registry;
create constraint trigger follow_registry after update or delete on pgfresh.data_type_registry
  deferrable initially deferred
  for each row execute function pgfresh.follow_registry();

-- One that runs is settled on the source that it was claimed for, and its end is refused.
create or replace function pgfresh.move_jobs(p_type_id int, p_source_id int) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  update pgfresh.job
  set source_id = p_source_id
  where id = any (array(
    select id
    from pgfresh.job
    where type_id = p_type_id and source_id <> p_source_id and state <> 'x'
    order by id for update skip locked));
  if found then
    perform pgfresh.wake_workers();
  end if;
end
$$;
comment on function pgfresh.move_jobs(int, int) is
  'Gives waiting and ready jobs of a data type the source that it has now. A part of the registry.';

/*
  The effects:
    plan    rules have changed: demanded pairs are looked at by the next tick, and times that a TTL has said follow it
    ask     another fetcher or source: what earlier answers said about when to ask again does not hold
    forget  another table: nothing is known of its rows
*/
create or replace function pgfresh.replan_pairs(
  p_type pgfresh.data_type_registry, p_effect text, p_keys text[], p_now timestamptz)
returns text[]
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_free text[] := array(
    select p.key
    from pgfresh.pairs as p
    where p.type_id = p_type.type_id and (p_keys is null or p.key = any (p_keys))
      and (p_effect <> 'plan' or (p.job_id is null and (p.demanded or p.next_ask_at > p_now)))
    order by p.key for update skip locked);
  v_forgets boolean := p_effect = 'forget';
begin
  with told as (
    update pgfresh.pairs as p
    set next_ask_at = n.next_ask_at,
      fails = case when p_effect = 'plan' then p.fails else 0 end,
      outcome = case when not v_forgets then p.outcome end,
      row_at = case when not v_forgets then p.row_at end,
      confirmed_at = case when not v_forgets then p.confirmed_at end,
      stale_at = case when not v_forgets then p.stale_at end,
      empty_at = case when not v_forgets then p.empty_at end,
      source_at = case when not v_forgets then p.source_at end,
      seen = v_forgets or p.seen,
      lapses = case when v_forgets then 0 else p.lapses end,
      lapsed_at = case when not v_forgets then p.lapsed_at end,
      due_at = case when p.demanded and p.job_id is null then greatest(p_now, n.next_ask_at) else p.due_at end
    from (
      select w.key,
        case
          when p_effect <> 'plan' then null
          when w.next_ask_at > p_now and w.job_id is null then
            case w.outcome
              when 'empty' then w.empty_at + coalesce(p_type.empty_ttl, p_type.ttl)
              when 'older_source' then w.ok_at + p_type.ttl
              when 'fresh' then least(w.next_ask_at, w.ok_at + p_type.ttl)
              when 'unchanged' then least(w.next_ask_at, w.ok_at + p_type.ttl)
              else w.next_ask_at
            end
          else w.next_ask_at
        end as next_ask_at
      from pgfresh.pairs as w
      where w.type_id = p_type.type_id and w.key = any (v_free)
    ) as n
    where p.type_id = p_type.type_id and p.key = n.key
    returning p.key, p.due_at, p.demanded and p.job_id is null as is_due
  )
  insert into pgfresh.due (due_at, type_id, key)
  select t.due_at, p_type.type_id, t.key from told as t where t.is_due
  on conflict do nothing;
  if v_forgets then
    -- Their rows are others now.
    perform pgfresh.mark_pairs(p_type.type_id, v_free);
  end if;
  return array(
    select p.key
    from pgfresh.pairs as p
    where p.type_id = p_type.type_id and (p_keys is null or p.key = any (p_keys))
      and (p_effect <> 'plan' or (p.job_id is null and (p.demanded or p.next_ask_at > p_now)))
    except
    select free.key from unnest(v_free) as free(key));
end
$$;
comment on function pgfresh.replan_pairs(pgfresh.data_type_registry, text, text[], timestamptz) is
  'Brings a change of a data type to its pairs, or to these of them; returns those that were locked. '
  'A part of the registry.';

/*
  What nobody can name any more is not fetched any more either; what its calls have cost stays in the ledger. Ends may
  hold any of these rows while they wait for the ledger of a source, so nothing is waited for once that is taken.
*/
create or replace function pgfresh.clear_type(p_type_id int) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_jobs bigint[] := array(
    select id from pgfresh.job where type_id = p_type_id order by id for update skip locked);
  v_table text;
begin
  -- Several data types may go in one transaction, and each settles what runs: so all ledgers are taken the first time,
  -- in the order in which ends take them.
  if exists (select from pgfresh.job where id = any (v_jobs) and state = 'x') then
    perform from pgfresh.source_state order by source_id for update;
  end if;
  perform pgfresh.cancel_jobs(v_jobs);
  -- After that wait: the tick and gateways would wait for these rows with it. Changes of demand without their pairs
  -- would be taken by no one, and be in the way of others.
  foreach v_table in array array[
    'active_subscriptions', 'node_demand', 'demand_change', 'demand_waiting', 'hold', 'breaker', 'type_losses',
    'type_stats', 'refused_answer', 'refused_pair'
  ] loop
    execute format(
      'delete from pgfresh.%1$I where ctid = any (array('
      'select ctid from pgfresh.%1$I where type_id = $1 for update skip locked))', v_table)
    using p_type_id;
  end loop;
  -- A job that is just being ended needs its pair.
  delete from pgfresh.pairs where type_id = p_type_id and key = any (array(
    select key from pgfresh.pairs where type_id = p_type_id order by key for update skip locked));
  -- Whoever has a pair may be adding its entry, and would wait for this transaction, perhaps with the ledgers.
  delete from pgfresh.due where ctid = any (array(
    select d.ctid
    from pgfresh.due as d
    where d.type_id = p_type_id
      and not exists (select from pgfresh.pairs as p where p.type_id = d.type_id and p.key = d.key)
    for update of d skip locked));
  return not exists (select from pgfresh.active_subscriptions where type_id = p_type_id)
    and not exists (select from pgfresh.node_demand where type_id = p_type_id)
    and not exists (select from pgfresh.pairs where type_id = p_type_id)
    and not exists (select from pgfresh.job where type_id = p_type_id);
end
$$;
comment on function pgfresh.clear_type(int) is
  'Cancels what is open of a data type that is gone and forgets its pairs, except what is locked. '
  'Returns whether nothing is left. A part of the registry.';

/*
  A transaction that has read the registry before a change may add pairs and jobs after it. So for a minute each change
  is brought to what is there then. Once a minute all jobs are looked at, for transactions that take even longer.
*/
create or replace function pgfresh.follow_changes(p_now timestamptz, p_look_for_strays boolean) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_change pgfresh.registry_change;
  v_type pgfresh.data_type_registry;
  v_locked text[];
  v_done boolean;
begin
  if p_look_for_strays then
    insert into pgfresh.registry_change (type_id, changed_at, effect)
    select stray.type_id, p_now - interval '1 minute', 'clear'
    from (
      select j.type_id
      from pgfresh.job as j
      left join pgfresh.data_type_registry as r on r.type_id = j.type_id
      where r.type_id is null or (j.source_id <> r.source_id and j.state <> 'x')
      union
      -- One look at the index for each data type.
      select p.type_id
      from (
        with recursive known (type_id) as (
          select min(type_id) from pgfresh.pairs
          union all
          select (select min(p.type_id) from pgfresh.pairs as p where p.type_id > k.type_id)
          from known as k
          where k.type_id is not null
        )
        select type_id from known
      ) as p
      where p.type_id is not null
        and not exists (select from pgfresh.data_type_registry as r where r.type_id = p.type_id)
    ) as stray;
  end if;
  if not exists (select from pgfresh.registry_change) then
    return;
  end if;
  for v_change in select * from pgfresh.registry_change order by id for update skip locked loop
    v_locked := '{}';
    v_done := true;
    select * into v_type from pgfresh.data_type_registry where type_id = v_change.type_id;
    if not found then
      v_done := pgfresh.clear_type(v_change.type_id);
    else
      perform pgfresh.move_jobs(v_type.type_id, v_type.source_id);
      if v_change.keys <> '{}' then
        v_locked := pgfresh.replan_pairs(v_type, v_change.effect, v_change.keys, p_now);
      end if;
    end if;
    if v_done and v_locked = '{}' and v_change.changed_at <= p_now - interval '1 minute' then
      delete from pgfresh.registry_change where id = v_change.id;
    elsif v_locked <> v_change.keys then
      update pgfresh.registry_change set keys = v_locked where id = v_change.id;
    end if;
  end loop;
end
$$;
comment on function pgfresh.follow_changes(timestamptz, boolean) is
  'Brings changes of the registry to pairs and jobs that were locked or not there yet at that moment. '
  'A part of recovery.';

insert into pgfresh.migrations (kind, name, hash) values ('functions'::text, 'registry_changes'::text, '858b3c90d965afd7c8487aaedb1643115b0952ff1392e6cea76e808fed326a61'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- functions resolution
/*
  What the names of a registry row mean now, and the statements that are made of them;
  refuses a row with which that does not work.
  Every name in a statement was looked up in the catalog before and is quoted.
*/
create or replace function pgfresh.resolve_type(p_type pgfresh.data_type_registry, p_may_grant boolean)
returns pgfresh.type_resolution
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_resolution pgfresh.type_resolution;
  v_table oid := pgfresh.find_table('table_name', p_type.table_name, p_may_grant);
  v_from text := v_table::regclass::text;
  v_types text[] := '{}';
  v_type oid;
  v_is_key text;
  v_ttl text := '$5';
  v_function oid := pgfresh.find_function('staleness_function', p_type.staleness_function, 'boolean',
    'timestamp with time zone, interval', 'timestamp with time zone, integer');
  v_by_minutes boolean := (select proargtypes[1] = 'integer'::regtype from pg_proc where oid = v_function);
  v_own boolean;
  v_text boolean;
  v_stale text;
  /*
    The time by which a row is judged: its own, or that at which the source confirmed it, where that is later. A
    confirmation is of the row that was there then, so one that is older than we left it is judged by its own time.
    Confirmed at -infinity says that the source has denied the row. A time more than a day ahead is none: by it the row
    would be fresh for as long.
  */
  v_known text := 'case when k.confirmed_at > %1$s and (%1$s < k.row_at) is not true then k.confirmed_at '
    'when k.confirmed_at = ''-infinity'' then null when %1$s > $6 + interval ''1 day'' then k.confirmed_at '
    'else %1$s end';
  v_asked text := '(select unnest($1) as key, unnest($2) as confirmed_at, unnest($3) as row_at, unnest($4) as due_at)';
  v_newest text;
  v_marks jsonb := jsonb_build_object('staleness_function', pgfresh.function_mark(v_function));
  v_column text;
  v_gate oid;
  v_keys oid;
  v_key_type oid;
  v_active text := '';
begin
  foreach v_column in array p_type.key_columns loop
    -- With -1, because char and bit without a length have the length 1.
    v_types := v_types || format_type(pgfresh.find_column('key_columns', v_table, v_column), -1);
  end loop;
  if cardinality(p_type.key_columns) <> (select count(distinct name) from unnest(p_type.key_columns) as name) then
    perform pgfresh.refuse_registry('key_columns names a column twice', 'Name each column of the key once.');
  end if;
  select string_agg(
    format('x.%I = %s::%s', k.name,
      case when cardinality(v_types) = 1 then 'k.key' else format('split_part(k.key, ''|'', %s)', k.place) end,
      v_types[k.place]),
    ' and ' order by k.place)
  into v_is_key
  from unnest(p_type.key_columns) with ordinality as k(name, place);

  v_type := pgfresh.find_column('timestamp_column', v_table, p_type.timestamp_column);
  if v_type <> 'timestamptz'::regtype then
    perform pgfresh.refuse_registry(
      format('timestamp_column: %I of %s is %s, expected timestamp with time zone',
        p_type.timestamp_column, v_from, format_type(v_type, null)),
      format('Run: alter table %s alter column %I type timestamptz;', v_from, p_type.timestamp_column));
  end if;
  if p_type.source_timestamp_field is not null then
    v_type := pgfresh.find_column('source_timestamp_field', v_table, p_type.source_timestamp_field);
    if v_type <> 'timestamptz'::regtype then
      perform pgfresh.refuse_registry(
        format('source_timestamp_field: %I of %s is %s, expected timestamp with time zone',
          p_type.source_timestamp_field, v_from, format_type(v_type, null)),
        format('Run: alter table %s alter column %I type timestamptz;', v_from, p_type.source_timestamp_field));
    end if;
    if p_type.source_timestamp_field = any (p_type.key_columns || p_type.timestamp_column) then
      perform pgfresh.refuse_registry(
        format('source_timestamp_field: %I is a column of the key or the timestamp_column',
          p_type.source_timestamp_field),
        'Name the column that says how old the data is at its source.');
    end if;
  end if;
  if p_type.ttl_column is not null then
    v_type := pgfresh.find_column('ttl_column', v_table, p_type.ttl_column);
    if v_type = 'interval'::regtype then
      v_ttl := format('coalesce(x.%I, $5)', p_type.ttl_column);
    elsif v_type in ('smallint'::regtype, 'integer'::regtype, 'bigint'::regtype) then
      v_ttl := format('coalesce(make_interval(mins => x.%I::int), $5)', p_type.ttl_column);
    else
      perform pgfresh.refuse_registry(
        format('ttl_column: %I of %s is %s, expected interval or integer (minutes)',
          p_type.ttl_column, v_from, format_type(v_type, null)),
        'Use another column, or change its type.');
    end if;
    v_types := v_types || format_type(v_type, null);
  end if;
  if v_by_minutes and p_type.ttl <> date_trunc('minute', p_type.ttl) then
    perform pgfresh.refuse_registry(
      format('ttl: %s counts whole minutes, got %s', v_function::regprocedure, p_type.ttl),
      'Give the function an interval as its second argument, or round the ttl.');
  end if;
  v_own := v_function = 'pgfresh.is_data_stale(timestamptz, interval)'::regprocedure;
  v_stale := case
    -- The type's own TTL is positive, by the registry's check, so the time at which it ends says it.
    when v_own and p_type.ttl_column is null then null
    when v_own then
      'case when t.ttl > interval ''0'' then t.known + t.ttl <= $6 else pgfresh.is_data_stale(t.known, t.ttl) end'
    -- A single row's TTL of 0 or less is refused whoever is asked;
    -- less than a minute is one for those who count minutes.
    else
      format('case when t.ttl > interval ''0'' then %s(t.known, %s) else pgfresh.is_data_stale(t.known, t.ttl) end',
        v_function::regproc,
        case when v_by_minutes then 'ceil(extract(epoch from t.ttl) / 60)::int' else 't.ttl' end)
  end;
  v_text := cardinality(v_types) = 1 and v_types[1] in ('text', 'character varying');
  /*
    Texts are looked up all at once, for half of what it costs one by one; other types of keys have several spellings
    of one value. Where the plan is ours to choose, see write_check, and a key has one row, that row is joined to it.
    Else they are put together without a join: planned for any number of keys, that could be a loop over both sides.
  */
  v_newest := case
    when v_text and v_own and exists (
      select from pg_index as i
      join pg_attribute as a on a.attrelid = i.indrelid and a.attnum = i.indkey[0]
      where i.indrelid = v_table and i.indisunique and i.indisvalid and i.indimmediate
        and i.indnkeyatts = 1 and i.indpred is null and a.attname = p_type.key_columns[1]
    ) then
      format('select k.key, x.%1$I is not null as found, x.%2$I as at, %4$s as known, k.row_at, k.due_at, $5 as ttl '
        'from %5$s as k '
        'left join (select x.%1$I, x.%2$I from %3$s as x where x.%1$I = any ($1)) as x on x.%1$I = k.key',
        p_type.key_columns[1], p_type.timestamp_column, v_from,
        format(v_known, format('x.%I', p_type.timestamp_column)), v_asked)
    when v_text then
      format('select k.key, k.found, k.at, %4$s as known, k.row_at, k.due_at, $5 as ttl from ('
        'select n.key, bool_or(n.found) as found, max(n.at) as at, '
        'max(n.confirmed_at) as confirmed_at, max(n.row_at) as row_at, max(n.due_at) as due_at from ('
        'select k.key collate "C" as key, false as found, null::timestamptz as at, '
        'k.confirmed_at, k.row_at, k.due_at from %5$s as k '
        'union all '
        'select x.%1$I::text collate "C", true, x.%2$I, null, null, null from %3$s as x where x.%1$I = any ($1)'
        ') as n group by n.key) as k',
        p_type.key_columns[1], p_type.timestamp_column, v_from, format(v_known, 'k.at'), v_asked)
    else
      format('select k.key, r.found is true as found, r.at, %5$s as known, k.row_at, k.due_at, '
        'coalesce(r.ttl, $5) as ttl '
        'from %6$s as k '
        'left join lateral (select true as found, x.%1$I as at, %2$s as ttl from %3$s as x where %4$s '
        'order by x.%1$I desc nulls last limit 1) as r on true',
        p_type.timestamp_column, v_ttl, v_from, v_is_key, format(v_known, 'r.at'), v_asked)
  end;
  -- Most are fresh, as old as they were known to be, and due when they were said to be. Nobody need hear of those.
  -- The end of the TTL is worked out once and compared with the clock: twice would cost a sweep 10 % more.
  v_resolution.check_sql := format('select c.key, c.found, %1$s as stale, c.next_at, c.at, c.row_at, c.due_at from ('
    'select t.key, t.found, %2$s t.known + t.ttl as next_at, t.at, t.row_at, t.due_at '
    'from (%3$s) as t offset 0) as c '
    'where %1$s or c.next_at is distinct from c.due_at or c.at is distinct from c.row_at%4$s',
    case when v_stale is null then '(c.next_at > $6) is not true' else 'c.stale' end,
    't.known is null or coalesce(' || v_stale || ', true) as stale,',
    v_newest,
    -- A user's function may call fresh what is older than its TTL.
    -- Somebody must hear of that too, or it is shown as stale.
    case when not v_own then ' or c.next_at <= $6' else '' end);
  -- A subquery for each key and no join: a few keys are looked up by the index, whatever the statistics say.
  v_resolution.missing_sql := format('select k.key from unnest($1::text[]) as k(key) '
    'where (select true from %s as x where %s limit 1) is null',
    v_from, v_is_key);

  if p_type.gate_function is not null then
    v_gate := pgfresh.find_function('gate_function', p_type.gate_function, 'boolean', 'text, text');
    v_marks := v_marks || jsonb_build_object('gate_function', pgfresh.function_mark(v_gate));
    v_resolution.gate_sql := format('select k.key, %s(k.key, $2), null::timestamptz from unnest($1::text[]) as k(key)',
      v_gate::regproc);
    if p_type.gate_opens_function is not null then
      v_function := pgfresh.find_function('gate_opens_function', p_type.gate_opens_function,
        'timestamptz', 'text, text');
      v_marks := v_marks || jsonb_build_object('gate_opens_function', pgfresh.function_mark(v_function));
      v_resolution.gate_sql := format('select k.key, g.open, case when not g.open then %s(k.key, $2) end '
        'from unnest($1::text[]) as k(key) cross join lateral (select %s(k.key, $2) as open) as g',
        v_function::regproc, v_gate::regproc);
    end if;
  end if;

  if p_type.key_table is not null then
    v_keys := pgfresh.find_table('key_table', p_type.key_table, p_may_grant);
    v_key_type := pgfresh.find_column('key_table_column', v_keys, p_type.key_table_column);
    if p_type.key_active_column is not null then
      v_type := pgfresh.find_column('key_active_column', v_keys, p_type.key_active_column);
      if v_type <> 'boolean'::regtype then
        perform pgfresh.refuse_registry(
          format('key_active_column: %I of %s is %s, expected boolean',
            p_type.key_active_column, v_keys::regclass, format_type(v_type, null)),
          'Use a boolean column, or leave it out.');
      end if;
      v_active := format(' and x.%I', p_type.key_active_column);
    end if;
    v_resolution.keys_sql := format('select x.%1$I::text from %2$s as x '
      'where (case when $1 is null then x.%1$I is not null else x.%1$I > $1::%3$s end)%4$s '
      'order by x.%1$I limit $2',
      p_type.key_table_column, v_keys::regclass, format_type(v_key_type, -1), v_active);
    -- As text too: 7 and 007 are one number but would be two pairs, and be paid twice.
    v_resolution.unknown_sql := format('select k.key from unnest($1::text[]) as k(key) '
      'where (select true from %2$s as x where x.%1$I = k.key::%3$s and x.%1$I::text = k.key%4$s limit 1) is null',
      p_type.key_table_column, v_keys::regclass, format_type(v_key_type, -1), v_active);
    v_types := v_types || format_type(v_key_type, -1);
  end if;
  if p_type.key_pattern is not null then
    begin
      perform '' ~ p_type.key_pattern;
    exception when invalid_regular_expression then
      perform pgfresh.refuse_registry(
        format('key_pattern %s is not a regular expression: %s', left(quote_literal(p_type.key_pattern), 80), sqlerrm),
        'Correct the pattern, for instance ^[A-Z]{1,5}$.');
    end;
  end if;

  v_resolution.type_id := p_type.type_id;
  v_resolution.tables := array_remove(array[v_table, v_keys], null);
  v_resolution.columns := array_remove(
    p_type.key_columns
      || array[
        p_type.timestamp_column, p_type.source_timestamp_field, p_type.ttl_column,
        p_type.key_table_column, p_type.key_active_column],
    null);
  v_resolution.functions := array(
    select reverse(split_part(reverse(f), '.', 1))::name
    from unnest(array[p_type.staleness_function, p_type.gate_function, p_type.gate_opens_function]) as f
    where f is not null
  );
  v_resolution.fingerprint := v_marks
    || jsonb_build_object('table_name', v_table, 'key_table', v_keys, 'columns', v_types);
  return v_resolution;
end
$$;
comment on function pgfresh.resolve_type(pgfresh.data_type_registry, boolean) is
  'Looks up what a registry row names; refuses it if that is missing or does not fit.';

/*
  Which versions of which rows of the catalog resolutions were made of, and what the evaluator may do with them.
  As long as these are the same, resolving again gives the same.
  Null where row security is on, because what that hides depends on more than these rows.
*/
create or replace function pgfresh.catalog_stamps(p_types int[]) returns table (type_id int, stamp text)
language plpgsql stable
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
begin
  return query select res.type_id, (
    select case when not bool_or(c.relrowsecurity) then
      string_agg(
        concat_ws(' ', c.oid, c.xmin, c.ctid, n.xmin, n.ctid,
          has_table_privilege('pgfresh_evaluator', c.oid, 'select'),
          has_schema_privilege('pgfresh_evaluator', n.oid, 'usage')),
        ',' order by c.oid)
    end
    from pg_class as c
    join pg_namespace as n on n.oid = c.relnamespace
    where c.oid = any (res.tables)
  ) || ';' || (
    select string_agg(concat_ws(' ', a.attrelid, a.xmin, a.ctid), ',' order by a.attrelid, a.attnum)
    from pg_attribute as a
    where a.attrelid = any (res.tables) and a.attname = any (res.columns)
  ) || ';' || (
    -- By name: one that is new may be meant from now on.
    select string_agg(
      concat_ws(' ', f.oid, f.xmin, f.ctid,
        has_function_privilege('pgfresh_evaluator', f.oid, 'execute'),
        has_schema_privilege('pgfresh_evaluator', f.pronamespace, 'usage')),
      ',' order by f.oid)
    from pg_proc as f
    where f.proname = any (res.functions)
  )
  from pgfresh.type_resolution as res
  where res.type_id = any (p_types);
end
$$;
comment on function pgfresh.catalog_stamps(int[]) is
  'By what it is seen, for less than resolving costs, that what registry rows name has not changed.';

/*
  What was registered is compared with what is there now:
  a table may have been dropped, a function replaced by another body.
  Then the type is left alone, and the row says what to do, until it is written again.
*/
create or replace function pgfresh.type_problem(p_type pgfresh.data_type_registry)
returns table (problem text, next_step text)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_known pgfresh.type_resolution;
  v_stamp text := (select s.stamp from pgfresh.catalog_stamps(array[p_type.type_id]) as s);
  v_resolution pgfresh.type_resolution;
  v_now jsonb;
begin
  select * into v_known from pgfresh.type_resolution where type_id = p_type.type_id;
  if v_stamp = v_known.stamp then
    return;
  end if;
  begin
    v_resolution := pgfresh.resolve_type(p_type, false);
    v_now := v_resolution.fingerprint;
  exception when sqlstate 'PGF01' then
    get stacked diagnostics problem = message_text, next_step = pg_exception_hint;
    problem := regexp_replace(problem, '^PGF_\w+: ', '');
    return next;
    return;
  end;
  if v_now is distinct from v_known.fingerprint then
    problem := coalesce(
      (
        select format('%s is not what was registered',
          string_agg(coalesce(a.key, b.key), ', ' order by coalesce(a.key, b.key)))
        from jsonb_each(v_known.fingerprint) as a
        full join jsonb_each(v_now) as b on a.key = b.key
        where a.value is distinct from b.value
      ),
      'it was never resolved');
    next_step := format('See whether the change is meant, then accept it: '
      'update pgfresh.data_type_registry set data_type = data_type where data_type = %L;', p_type.data_type);
    return next;
  elsif v_stamp is not null and current_setting('transaction_read_only') = 'off' then
    -- Changed, and means the same all the same: a right that was given, a comment of the catalog's own.
    perform from pgfresh.type_resolution where type_id = p_type.type_id for update skip locked;
    if found then
      update pgfresh.type_resolution
      set stamp = v_stamp, check_sql = v_resolution.check_sql
      where type_id = p_type.type_id;
      -- An upgrade has left out what did not resolve.
      if v_known.check_sql <> v_resolution.check_sql then
        perform pgfresh.write_check(p_type.type_id, v_resolution.check_sql, pgfresh.calls_users(v_resolution));
      end if;
    end if;
  end if;
end
$$;
comment on function pgfresh.type_problem(pgfresh.data_type_registry) is
  'Why a data type cannot be planned now, and what to do; no row if it can.';

create or replace function pgfresh.type_problems() returns table (data_type text, problem text, next_step text)
language sql
set search_path = pg_catalog, pg_temp
as $$
  select r.data_type, p.problem, p.next_step
  from pgfresh.data_type_registry as r
  cross join lateral pgfresh.type_problem(r) as p
  order by r.data_type
$$;
comment on function pgfresh.type_problems() is 'The data types that cannot be planned now: why, and what to do.';

-- What is registered already gets the check of this version. What does not resolve is left alone until it does.
do $$
declare
  v_type pgfresh.data_type_registry;
  v_resolution pgfresh.type_resolution;
begin
  for v_type in select * from pgfresh.data_type_registry loop
    begin
      v_resolution := pgfresh.resolve_type(v_type, false);
      update pgfresh.type_resolution set check_sql = v_resolution.check_sql where type_id = v_type.type_id;
      perform pgfresh.write_check(v_type.type_id, v_resolution.check_sql, pgfresh.calls_users(v_resolution));
    exception when sqlstate 'PGF01' then null;
    end;
  end loop;
end
$$;

insert into pgfresh.migrations (kind, name, hash) values ('functions'::text, 'resolution'::text, 'ee579881d5e180b68675895bdd41df5b05e85c388a37d4cd9db053b79aef08b6'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- functions run_requests
/*
  What people ask of jobs. Whether they may is a question to whoever asks, and inside of a function with other rights
  nobody can tell who that is. So the request is a row of a view: one trigger looks at it as the one who asks, the next
  one does it.
*/
create or replace view pgfresh.job_request as
select null::text as asks, null::text as job_name, null::jsonb as params, null::bigint as run_id,
  null::timestamptz[] as slots, null::int as per_minute, null::text as requested_by, null::jsonb as answer
where false;
comment on view pgfresh.job_request is
  'Where trigger_scheduled_job, cancel_scheduled_run and backfill_scheduled_job put what they were asked for; '
  'it has no rows.';

create or replace function pgfresh.job_of_run(p_run_id bigint) returns text
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_name text;
begin
  select j.name
  into v_name
  from pgfresh.scheduled_job_runs as r
  join pgfresh.scheduled_jobs as j on j.id = r.job_id
  where r.id = p_run_id;
  if not found then
    perform pgfresh.refuse('PGF_RUN_UNKNOWN',
      format('there is no run %s', coalesce(p_run_id::text, 'null')),
      'The open ones: select id from pgfresh.scheduled_job_runs where completed_at is null.');
  end if;
  return v_name;
end
$$;
comment on function pgfresh.job_of_run(bigint) is 'The job of a run; refuses one that is not there.';

create or replace function pgfresh.check_job_request() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if new.asks = 'cancel' then
    new.job_name := pgfresh.job_of_run(new.run_id);
  end if;
  perform pgfresh.require_job_right(new.job_name);
  new.requested_by := current_user;
  return new;
end
$$;
comment on function pgfresh.check_job_request() is 'Refuses what whoever asks has no right to.';

create or replace function pgfresh.do_job_request() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  new.answer := case new.asks
    when 'run' then pgfresh.start_requested_run(new.job_name, new.params, new.requested_by)
    when 'cancel' then pgfresh.cancel_requested_run(new.run_id, new.requested_by)
    when 'backfill' then pgfresh.queue_requested_slots(new.job_name, new.slots, new.per_minute, new.requested_by) end;
  return new;
end
$$;
comment on function pgfresh.do_job_request() is 'Does what was asked for and was not refused.';
create or replace trigger a_check instead of insert on pgfresh.job_request
  for each row execute function pgfresh.check_job_request();
create or replace trigger b_do instead of insert on pgfresh.job_request
  for each row execute function pgfresh.do_job_request();

create or replace function pgfresh.trigger_scheduled_job(p_name text, p_params jsonb default null) returns jsonb
language sql
set search_path = pg_catalog, pg_temp
as $$ insert into pgfresh.job_request (asks, job_name, params) values ('run', p_name, p_params) returning answer $$;
comment on function pgfresh.trigger_scheduled_job(text, jsonb) is
  'Runs a job now, besides its schedule, with its own parameters or these. '
  'Returns {"success", "run_id", "job_name", …} once the run is written down; '
  'success is false if another run is under way and its overlap says skip. '
  'Disabled and paused jobs run too: who asks by hand means it.';

create or replace function pgfresh.cancel_scheduled_run(p_run_id bigint) returns jsonb
language sql
set search_path = pg_catalog, pg_temp
as $$ insert into pgfresh.job_request (asks, run_id) values ('cancel', p_run_id) returning answer $$;
comment on function pgfresh.cancel_scheduled_run(bigint) is
  'Cancels a run: one that waits never begins, one that runs is stopped, and neither is tried again. '
  'Returns {"success", "run_id", "job_name", "state", "message"}.';

create or replace function pgfresh.backfill_scheduled_job(
  p_name text, p_slots timestamptz[], p_per_minute int default 60)
returns jsonb
language sql
set search_path = pg_catalog, pg_temp
as $$
  insert into pgfresh.job_request (asks, job_name, slots, per_minute)
  values ('backfill', p_name, p_slots, p_per_minute)
  returning answer
$$;
comment on function pgfresh.backfill_scheduled_job(text, timestamptz[], int) is
  'Runs slots of the past, one after the other, at most so many a minute; slots that come meanwhile go first. '
  'What has succeeded, is open or is about to run is left alone, and so are slots whose runs were forgotten since: '
  'they may have succeeded. Returns {"success", "job_name", "queued", "skipped", "forgotten"}.';

create or replace function pgfresh.hold_job(p_job pgfresh.scheduled_jobs) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  -- The job before its cursor, as everyone takes them: a new run refers to the job.
  perform from pgfresh.scheduled_jobs where id = p_job.id for key share;
  perform from pgfresh.job_cursor where job_id = p_job.id for update;
  if not found then
    perform pgfresh.refuse('PGF_JOB_UNKNOWN',
      format('the job %s was deleted this moment', p_job.name),
      'The known ones: select name from pgfresh.scheduled_jobs.');
  end if;
end
$$;
comment on function pgfresh.hold_job(pgfresh.scheduled_jobs) is
  'Keeps others from opening a run of a job until the transaction ends; refuses a job that was deleted.';

create or replace function pgfresh.start_requested_run(p_name text, p_params jsonb, p_by text) returns jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := pgfresh.clock();
  v_job pgfresh.scheduled_jobs;
  v_active record;
  v_queued boolean;
  v_id bigint;
  v_schedulers int;
begin
  perform pgfresh.require_primary();
  v_job := pgfresh.require_job(p_name);
  if p_params is not null and (jsonb_typeof(p_params) <> 'object' or octet_length(p_params::text) > 65536) then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      format('p_params must be an object of at most 64 kB, got %s', left(p_params::text, 40)),
      'Leave it out to run with the job''s own.');
  end if;
  if v_job.kind = 'sql' and p_params <> '{}' then
    v_job.params := p_params;
    if not pgfresh.is_job_as_registered(v_job) then
      perform pgfresh.resolve_job(v_job);
    end if;
  end if;
  perform pgfresh.hold_job(v_job);
  select * into v_active from pgfresh.active_run(v_job.id);
  v_queued := v_active.id is not null;
  if v_queued and (v_active.queued > 0 or (v_job.overlap = 'skip' and v_active.triggered_by <> 'backfill')) then
    return jsonb_build_object('success', false, 'reason', 'overlap', 'run_id', v_active.id, 'job_name', v_job.name,
      'message', case
        when v_job.overlap = 'queue' then 'a run of it is under way, and another one waits already'
        when (select r.started_at is null from pgfresh.scheduled_job_runs as r where r.id = v_active.id) then
          'a run of it waits already'
        else 'a run of it is under way'
      end);
  end if;
  insert into pgfresh.scheduled_job_runs (job_id, state, triggered_by, scheduled_for, run_at, params, requested_by)
  values (v_job.id, case when v_queued then 'queued' else 'waiting' end, 'manual', v_now,
    case when not v_queued then v_now end, p_params, p_by)
  returning id into v_id;
  perform pg_notify('pgfresh_schedule', '');
  v_schedulers := (
    select count(*)
    from pgfresh.scheduler
    where lease_until > v_now and (v_job.kind = 'sql' or v_job.function_name = any (handlers))
  );
  return jsonb_build_object('success', true, 'run_id', v_id, 'job_name', v_job.name,
    'state', case when v_queued then 'queued' else 'waiting' end, 'queued', v_queued, 'schedulers', v_schedulers,
    'message', case
      when v_schedulers = 0 and v_job.kind = 'sql' then
        'accepted, but no scheduler runs now: it starts when one does'
      when v_schedulers = 0 then
        format('accepted, but no scheduler with the handler %s runs now: it starts when one does', v_job.function_name)
      when v_queued then 'accepted; it starts when the run that is under way has ended'
      else 'accepted'
    end);
end
$$;
comment on function pgfresh.start_requested_run(text, jsonb, text) is 'Does what trigger_scheduled_job was asked for.';

/*
  A queued run is let go by whoever holds the cursor of its job, so here too the cursor comes first. Whoever ends or
  begins a run has the run before the cursor: while this one holds the cursor it waits for no run.
*/
create or replace function pgfresh.cancel_requested_run(p_run_id bigint, p_by text) returns jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_run pgfresh.scheduled_job_runs;
  v_job pgfresh.scheduled_jobs;
  v_is_held boolean := false;
begin
  perform pgfresh.require_primary();
  select * into v_run from pgfresh.scheduled_job_runs where id = p_run_id;
  select * into v_job from pgfresh.scheduled_jobs where id = v_run.job_id;
  if v_run.state in ('queued', 'waiting') then
    begin
      perform pgfresh.hold_job(v_job);
      select * into v_run from pgfresh.scheduled_job_runs where id = p_run_id for no key update nowait;
      v_is_held := true;
    exception when lock_not_available then
      -- It begins this moment. What was held is not held any more.
      null;
    end;
  end if;
  if not v_is_held then
    -- Not the lock that a run under way would keep us waiting for.
    select * into v_run from pgfresh.scheduled_job_runs where id = p_run_id for no key update;
  end if;
  if v_run.state in ('queued', 'waiting') and v_is_held then
    v_run.cancel_asked := true;
    perform pgfresh.close_run(v_run, 'cancelled', format('cancelled by %s', p_by), null);
    return jsonb_build_object('success', true, 'run_id', p_run_id, 'job_name', v_job.name,
      'state', 'cancelled', 'message', 'it had not begun');
  elsif v_run.state in ('queued', 'waiting') then
    return jsonb_build_object('success', false, 'run_id', p_run_id, 'job_name', v_job.name,
      'state', v_run.state, 'message', 'a scheduler was about to begin it and put it off; cancel it again');
  elsif v_run.state = 'running' then
    update pgfresh.scheduled_job_runs set cancel_asked = true where id = p_run_id;
    perform pg_notify('pgfresh_schedule', 'cancel');
    return jsonb_build_object('success', true, 'run_id', p_run_id, 'job_name', v_job.name,
      'state', 'cancelling', 'message', 'its scheduler is told to stop it');
  end if;
  return jsonb_build_object('success', false, 'run_id', p_run_id, 'job_name', v_job.name,
    'state', v_run.state, 'message', 'it has ended already');
end
$$;
comment on function pgfresh.cancel_requested_run(bigint, text) is 'Does what cancel_scheduled_run was asked for.';

create or replace function pgfresh.queue_requested_slots(
  p_name text, p_slots timestamptz[], p_per_minute int, p_by text)
returns jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := pgfresh.clock();
  v_job pgfresh.scheduled_jobs;
  v_queued int;
  v_forgotten int;
  v_forgotten_until timestamptz;
  v_next timestamptz;
begin
  perform pgfresh.require_primary();
  v_job := pgfresh.require_job(p_name);
  perform pgfresh.require_range('p_per_minute', p_per_minute, 1, 6000);
  if p_slots is null or cardinality(p_slots) not between 1 and 10000 or array_position(p_slots, null) is not null then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      'p_slots must be an array of 1 to 10000 slots',
      'Backfill a longer time in several calls.');
  end if;
  if exists (select from unnest(p_slots) as s where not isfinite(s) or s > v_now or s <> date_trunc('minute', s)) then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      'a slot of p_slots is to come, or not on a whole minute',
      'Pass slots of the past, as "pgfresh cron next" prints them.');
  end if;
  perform pgfresh.hold_job(v_job);
  -- Slots that have come and are not settled yet are run by the scheduler; those of a pause are not.
  select c.forgotten_until, case
    when v_job.enabled
      and (v_job.paused_at <= v_now and coalesce(v_job.paused_until > v_now, true)) is not true then c.slot
  end
  into v_forgotten_until, v_next
  from pgfresh.job_cursor as c
  where c.job_id = v_job.id;
  v_forgotten := (
    select count(distinct s.slot)
    from unnest(p_slots) as s(slot)
    where s.slot <= v_forgotten_until and not exists (
      select from pgfresh.scheduled_job_runs as r
      where r.job_id = v_job.id and r.scheduled_for = s.slot and r.triggered_by <> 'manual' and r.state <> 'skipped'
    )
  );
  with wanted as (
    select s.slot, coalesce(max(r.attempt), 0) as attempts
    from (select distinct unnest(p_slots) as slot) as s
    left join pgfresh.scheduled_job_runs as r on r.job_id = v_job.id and r.scheduled_for = s.slot
      and r.triggered_by <> 'manual' and r.state <> 'skipped'
    where (s.slot >= v_next) is not true
    group by s.slot
    having not coalesce(bool_or(r.state in ('succeeded', 'queued', 'waiting', 'running')), false)
      -- One without a run may have succeeded before that was forgotten.
      and (count(r.id) > 0 or (s.slot <= v_forgotten_until) is not true)
  )
  insert into pgfresh.scheduled_job_runs
    (job_id, state, triggered_by, scheduled_for, attempt, earlier, requested_by, pause)
  select v_job.id, 'queued', 'backfill', slot, attempts + 1, attempts, p_by,
    make_interval(secs => 60.0 / p_per_minute)
  from wanted
  order by slot;
  get diagnostics v_queued = row_count;
  -- One at a time: the end of a run lets the next one go.
  if not exists (
    select from pgfresh.scheduled_job_runs where job_id = v_job.id and state in ('waiting', 'running')
  ) then
    update pgfresh.scheduled_job_runs
    set state = 'waiting', run_at = v_now
    where id = (
      select id
      from pgfresh.scheduled_job_runs
      where job_id = v_job.id and state = 'queued'
      order by scheduled_for
      limit 1
    );
  end if;
  perform pg_notify('pgfresh_schedule', '');
  return jsonb_build_object('success', true, 'job_name', v_job.name, 'queued', v_queued,
    'skipped', (select count(distinct s) from unnest(p_slots) as s) - v_queued - v_forgotten,
    'forgotten', v_forgotten);
end
$$;
comment on function pgfresh.queue_requested_slots(text, timestamptz[], int, text) is
  'Does what backfill_scheduled_job was asked for.';

insert into pgfresh.migrations (kind, name, hash) values ('functions'::text, 'run_requests'::text, 'e2409ee666dc32a5f8e3aabe85b7e22f9a2f36a3d6d5bbbae07c7d5d4cfbb8c6'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- functions runs
create or replace function pgfresh.require_scheduler(p_scheduler bigint) returns text
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_name text;
begin
  -- Held, so that it is not taken for dead in the middle of what it does.
  select name into v_name from pgfresh.scheduler where id = p_scheduler and lease_until > '-infinity' for key share;
  if not found then
    perform pgfresh.refuse('PGF_LEASE_LOST',
      format('scheduler %s is not registered any more', coalesce(p_scheduler::text, 'null')),
      'Register it again.');
  end if;
  return v_name;
end
$$;
comment on function pgfresh.require_scheduler(bigint) is
  'The name of a scheduler; refuses one whose lease is lost. A part of the scheduler.';

create or replace function pgfresh.require_request(p_request uuid) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if p_request is null then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      'p_request must not be null',
      'Pass a new uuid for each request, and list it in heartbeat_scheduler until its runs have ended.');
  end if;
end
$$;
comment on function pgfresh.require_request(uuid) is
  'Refuses a request for runs that has no name of its own. A part of the scheduler.';

-- Not in SQL, whose functions are planned anew for each call before PostgreSQL 18.
create or replace function pgfresh.active_run(p_job_id int, out id bigint, out triggered_by text, out queued bigint)
language plpgsql stable
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
-- A plan is kept for as long as its session, and may have been made when the table was empty.
set enable_seqscan = off
set jit = off
as $$
declare
  v_running bigint;
  v_waiting bigint;
begin
  select min(r.id) filter (where r.state = 'running'), min(r.id) filter (where r.state = 'waiting'),
    count(*) filter (where r.state = 'queued')
  into v_running, v_waiting, queued
  from pgfresh.scheduled_job_runs as r
  where r.job_id = p_job_id and r.state in ('queued', 'waiting', 'running')
    and (r.triggered_by <> 'backfill' or r.state = 'running');
  id := coalesce(v_running, v_waiting);
  triggered_by := (select r.triggered_by from pgfresh.scheduled_job_runs as r where r.id = active_run.id);
end
$$;
comment on function pgfresh.active_run(int) is
  'The run of a job that is under way, or waits for its next attempt, and how many wait for its end. '
  'A part of the scheduler.';

/*
  Every run that ends goes through here. After the run come the job and its cursor, which have waited for nobody by then
  who waits for this run; then whoever waited for the end of it.
*/
create or replace function pgfresh.close_run(
  p_run pgfresh.scheduled_job_runs, p_verdict text, p_message text, p_details jsonb)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
  v_now timestamptz := pgfresh.clock();
  v_job pgfresh.scheduled_jobs;
  v_again timestamptz;
  v_failures int := p_run.attempt - p_run.lost - p_run.earlier;
  v_low interval;
  v_high interval;
  v_slot timestamptz;
begin
  if p_run.started_at is null then
    select * into v_job from pgfresh.scheduled_jobs where id = p_run.job_id for key share;
  else
    update pgfresh.scheduled_jobs set last_run_at = p_run.started_at where id = p_run.job_id returning * into v_job;
  end if;
  -- The job was deleted meanwhile, and its history with it.
  if not found then
    delete from pgfresh.scheduled_job_runs where id = p_run.id;
    return;
  end if;
  update pgfresh.scheduled_job_runs
  set completed_at = v_now, duration_ms = 1000 * extract(epoch from v_now - p_run.started_at),
    success = p_verdict = 'succeeded', state = case p_verdict when 'lost' then 'failed' else p_verdict end,
    message = left(p_message, 4000), scheduler = null, request = null, run_at = null,
    details = case
      when p_details = 'null' then null
      when octet_length(p_details::text) <= 65536 then p_details
      when p_details is not null then jsonb_build_object('left_out', 'more than 64 kB')
    end
  where id = p_run.id;
  if not p_run.cancel_asked and v_job.enabled then
    if p_verdict = 'failed' and v_failures <= v_job.retries then
      -- Beyond 2 ^ 20 it is a day for every base, and far beyond that no interval.
      v_again := v_now + least(v_job.retry_base * 2 ^ least(v_failures - 1, 20), interval '24 hours');
    elsif p_verdict = 'lost' and p_run.lost < 3 then
      -- At once when its process is gone. What is lost again has another cause, such as a server that is full.
      v_again := v_now + case
        when p_run.lost = 0 then interval '0'
        else interval '5 seconds' * 5 ^ (p_run.lost - 1)
      end;
    end if;
  end if;
  if v_again is not null then
    insert into pgfresh.scheduled_job_runs
      (job_id, state, triggered_by, scheduled_for, attempt, lost, earlier, run_at, params, requested_by, pause)
    values (p_run.job_id, 'waiting', p_run.triggered_by, p_run.scheduled_for, p_run.attempt + 1,
      p_run.lost + (p_verdict = 'lost')::int, p_run.earlier, v_again, p_run.params, p_run.requested_by, p_run.pause);
  end if;
  if v_again is null and v_job.every_min is not null and p_run.triggered_by in ('scheduler', 'catchup') then
    v_low := case
      when p_verdict = 'succeeded' then v_job.every_min
      else coalesce(v_job.failure_min, v_job.every_min)
    end;
    v_high := case
      when p_verdict = 'succeeded' then v_job.every_max
      else coalesce(v_job.failure_max, v_job.every_max)
    end;
    -- By a number of this run's own. In milliseconds, which is all that schedulers can see.
    v_slot := date_trunc('milliseconds',
      v_now + v_low + (v_high - v_low) * ((hashint8extended(p_run.id, p_run.job_id) & 1048575) / 1048575.0));
  end if;
  update pgfresh.job_cursor
  set runs = runs + (p_run.started_at is not null)::int, successes = successes + (p_verdict = 'succeeded')::int,
    failures_in_a_row = case
      when p_verdict = 'succeeded' then 0
      when p_verdict = 'failed' or (p_verdict = 'lost' and v_again is null) then failures_in_a_row + 1
      else failures_in_a_row
    end,
    last_run_at = coalesce(p_run.started_at, last_run_at),
    last_run_success = case when p_run.started_at is null then last_run_success else p_verdict = 'succeeded' end,
    last_success_at = case when p_verdict = 'succeeded' then v_now else last_success_at end,
    -- Unless the job was changed meanwhile: then it has a slot already, or a scheduler gives it one.
    slot = case when due_at = 'infinity' and slot is null then v_slot else slot end,
    due_at = case when due_at = 'infinity' and slot is null then coalesce(v_slot, due_at) else due_at end
  where job_id = p_run.job_id;
  -- One that is queued is let go, unless another one runs or waits for its next attempt; the next attempt of a backfill
  -- keeps no one else waiting.
  if (select a.id from pgfresh.active_run(p_run.job_id) as a) is null then
    update pgfresh.scheduled_job_runs as r
    set state = 'waiting', run_at = greatest(
      v_now,
      case when r.triggered_by = 'backfill' and p_run.triggered_by = 'backfill' then p_run.started_at + r.pause end
    )
    where r.id = (
      select w.id
      from pgfresh.scheduled_job_runs as w
      where w.job_id = p_run.job_id and w.state = 'queued'
        -- One of a backfill at a time, or there would be no rate.
        and (w.triggered_by <> 'backfill' or not exists (
          select from pgfresh.scheduled_job_runs as o
          where o.job_id = w.job_id and o.state = 'waiting'
        ))
      order by w.triggered_by = 'backfill', w.scheduled_for, w.id
      limit 1
    );
  end if;
end
$$;
comment on function pgfresh.close_run(pgfresh.scheduled_job_runs, text, text, jsonb) is
  'Ends a run as succeeded, failed, lost or cancelled: '
  'starts its next attempt, or plans the next slot and lets go what waited for the end. A part of the scheduler.';

create or replace function pgfresh.take_waiting_runs(
  p_scheduler bigint, p_request uuid, p_handlers text[], p_functions boolean, p_limit int)
returns setof pgfresh.taken_run
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
  v_now timestamptz := pgfresh.clock();
  v_worker text;
  v_run pgfresh.scheduled_job_runs;
  v_job pgfresh.scheduled_jobs;
  v_late bigint;
begin
  v_worker := pgfresh.require_scheduler(p_scheduler);
  perform pgfresh.require_request(p_request);
  for v_run in
    select r.*
    from pgfresh.scheduled_job_runs as r
    join pgfresh.job_cursor as c on c.job_id = r.job_id
    where r.state = 'waiting' and r.run_at <= v_now
      and (c.handler = any (p_handlers) or (c.handler is null and p_functions))
    order by r.run_at
    limit least(p_limit, 1000) for update of r skip locked
  loop
    select * into v_job from pgfresh.scheduled_jobs where id = v_run.job_id;
    if v_run.triggered_by in ('scheduler', 'catchup')
        and (not v_job.enabled or (v_job.paused_at <= v_now and coalesce(v_job.paused_until > v_now, true))) then
      perform pgfresh.close_run(v_run, 'cancelled', case
        when v_job.enabled then 'the job was paused before it came to this run'
        else 'the job was disabled before it came to this run'
      end, null);
      continue;
    end if;
    if v_run.triggered_by = 'backfill' then
      -- It never runs beside another one; the end of that one lets it go.
      perform from pgfresh.job_cursor where job_id = v_run.job_id for update skip locked;
      continue when not found;
      if (select a.id from pgfresh.active_run(v_run.job_id) as a) is not null then
        update pgfresh.scheduled_job_runs set state = 'queued', run_at = null where id = v_run.id;
        continue;
      end if;
    end if;
    v_late := 1000 * extract(epoch from v_now - v_run.run_at);
    update pgfresh.scheduled_job_runs
    set state = 'running', started_at = v_now, lateness_ms = v_late,
      scheduler = p_scheduler, request = p_request, worker = v_worker, run_at = null
    where id = v_run.id;
    return next row(v_run.id, v_run.job_id, v_job.name, v_job.kind, v_job.function_name,
      coalesce(v_run.params, v_job.params), 1000 * extract(epoch from v_job.timeout)::float8,
      case when v_run.triggered_by <> 'manual' then v_run.scheduled_for end, v_run.attempt, v_run.triggered_by,
      v_late, null, 1)::pgfresh.taken_run;
  end loop;
  -- Mostly there is nothing, and nothing has to be on disk.
  if not found then
    perform set_config('synchronous_commit', 'off', true);
  end if;
end
$$;
comment on function pgfresh.take_waiting_runs(bigint, uuid, text[], boolean, int) is
  'Starts runs whose wait is over: asked for by hand, queued, or the next attempt. '
  'Returns them. A part of the scheduler.';

create or replace function pgfresh.end_run(
  p_run_id bigint, p_job_id int, p_scheduler bigint, p_verdict text, p_message text, p_details jsonb default null)
returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
  v_run pgfresh.scheduled_job_runs;
begin
  if p_verdict is null or p_verdict not in ('succeeded', 'failed', 'lost', 'cancelled') then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      format('p_verdict must be succeeded, failed, lost or cancelled, got %s',
        coalesce(left(quote_literal(p_verdict), 40), 'null')),
      'Pass one of them.');
  end if;
  -- Waits for a transaction whose commit was never confirmed.
  -- In words that leave no index but that of the number: the others are full of what has ended.
  -- By its job too: when a crash has taken back a start, its number may be that of another run.
  select *
  into v_run
  from pgfresh.scheduled_job_runs
  where id = p_run_id and (job_id, scheduler, state) is not distinct from (p_job_id, p_scheduler, 'running')
  for update;
  if not found then
    return false;
  end if;
  perform pgfresh.close_run(v_run, p_verdict, p_message, p_details);
  return true;
end
$$;
comment on function pgfresh.end_run(bigint, int, bigint, text, text, jsonb) is
  'Ends a run of a job by a scheduler. False if it is not its own any more: then nothing was changed.';

create or replace function pgfresh.fence_run(p_run_id bigint, p_scheduler bigint, out job_id int, out params jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
begin
  -- Weak enough to let the wish to cancel it be written, and strong enough to keep everybody from taking it over.
  select r.job_id, coalesce(r.params, j.params)
  into job_id, params
  from pgfresh.scheduled_job_runs as r
  join pgfresh.scheduled_jobs as j on j.id = r.job_id
  where r.id = p_run_id and (r.scheduler, r.state) is not distinct from (p_scheduler, 'running')
  for key share of r;
end
$$;
comment on function pgfresh.fence_run(bigint, bigint) is
  'The job of a run that is still the scheduler''s, and its parameters; '
  'then nobody takes it over before the transaction ends. A part of do_run.';

/*
  That the run is ours, what the function does and what it returns stand or fall together, and take one way to the
  server.
  Without the settings that our other functions have for their plans: the function of the job would run with them.
*/
create or replace function pgfresh.do_run(p_run_id bigint, p_scheduler bigint) returns jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_run record;
  v_result jsonb;
begin
  v_run := pgfresh.fence_run(p_run_id, p_scheduler);
  if v_run.job_id is null then
    return null;
  end if;
  v_result := pgfresh.call_job_function(v_run.job_id, v_run.params);
  -- The function may have set it for the whole session.
  set local search_path = pg_catalog, pg_temp;
  if not pgfresh.end_run(p_run_id, v_run.job_id, p_scheduler,
      case when (v_result -> 'success')::boolean then 'succeeded' else 'failed' end,
      v_result ->> 'message', v_result -> 'details') then
    return null;
  end if;
  return v_result;
end
$$;
comment on function pgfresh.do_run(bigint, bigint) is
  'Runs the function of a run as its job''s owner, and ends the run as the function says. '
  'Returns the result, or null if the run is not the scheduler''s any more, which is to be rolled back. '
  'To be called as call_job_function is.';

create or replace function pgfresh.prune_scheduled_runs(
  p_keep interval default '30 days', p_keep_runs int default 1000, p_jobs int default 100)
returns jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := pgfresh.clock();
  v_job int;
  v_last int;
  v_jobs int := 0;
  v_runs bigint[];
  v_count int;
  v_slot timestamptz;
  v_deleted int := 0;
begin
  perform pgfresh.require_range('p_keep in seconds', extract(epoch from p_keep), 60, 315360000);
  perform pgfresh.require_range('p_keep_runs', p_keep_runs, 1, 1000000);
  perform pgfresh.require_range('p_jobs', p_jobs, 1, 10000);
  select pruned_job into v_last from pgfresh.schedule_state for update skip locked;
  if not found then
    return jsonb_build_object('skipped', 'locked');
  end if;
  for v_job in select id from pgfresh.scheduled_jobs where id > v_last order by id limit p_jobs loop
    v_jobs := v_jobs + 1;
    v_last := v_job;
    -- The oldest of the job, and not many at a time: what is left has its turn in the next round.
    v_runs := array(
      select o.id
      from (select id, completed_at from pgfresh.scheduled_job_runs where job_id = v_job order by id limit 1000) as o
      where o.completed_at < v_now - p_keep
        or (o.completed_at is not null and o.id <= (
          select id from pgfresh.scheduled_job_runs where job_id = v_job order by id desc offset p_keep_runs limit 1
        ))
    );
    continue when v_runs = '{}';
    -- Whoever settles slots has the cursor before the runs. It is not waited for: that may be someone who waits for the
    -- cursor of another job that was pruned just now.
    perform from pgfresh.job_cursor where job_id = v_job for update skip locked;
    continue when not found;
    with gone as (
      -- Unless more slots that were skipped went into it meanwhile.
      delete from pgfresh.scheduled_job_runs
      where id = any (v_runs) and completed_at <= v_now
      returning triggered_by, scheduled_for, scheduled_to
    )
    select count(*), max(coalesce(scheduled_to, scheduled_for)) filter (where triggered_by <> 'manual')
    into v_count, v_slot
    from gone;
    if v_slot is not null then
      update pgfresh.job_cursor set forgotten_until = greatest(forgotten_until, v_slot) where job_id = v_job;
    end if;
    v_deleted := v_deleted + v_count;
  end loop;
  update pgfresh.schedule_state set pruned_job = case when v_jobs < p_jobs then 0 else v_last end;
  return jsonb_build_object('jobs', v_jobs, 'deleted', v_deleted, 'done', v_jobs < p_jobs);
end
$$;
comment on function pgfresh.prune_scheduled_runs(interval, int, int) is
  'Forgets runs that ended so long ago, and all but the newest of each job; at most 1000 rows of each '
  'of the next p_jobs jobs. Returns {"jobs", "deleted", "done"}: done when all jobs have had their turn.';

insert into pgfresh.migrations (kind, name, hash) values ('functions'::text, 'runs'::text, '4bdc1198e3880308e8f598ba86d46048ecccf0d1a3e1d6fcfdee30ba70a3af50'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- functions schedulers
create or replace function pgfresh.register_scheduler(p_name text, p_handlers text[], p_zone_data text) returns bigint
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := pgfresh.clock();
  v_id bigint;
begin
  perform pgfresh.require_primary();
  perform pgfresh.require_worker_name('p_name', p_name);
  if p_handlers is null or array_position(p_handlers, null) is not null or cardinality(p_handlers) > 10000 then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      'p_handlers must be an array of at most 10000 names',
      'Pass the handlers that this process can run, or an empty array.');
  end if;
  if coalesce(p_zone_data, '') !~ '^\d{4}[a-z]{1,3}$' then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      format('p_zone_data must be a version of the time zone data, got %s',
        coalesce(left(quote_literal(p_zone_data), 40), 'null')),
      'For instance 2026a; Node.js has it as process.versions.tz.');
  end if;
  insert into pgfresh.scheduler (name, started_at, steady_since, lease_until, handlers, zone_data)
  values (p_name, v_now, v_now, v_now + interval '12 seconds', p_handlers, p_zone_data)
  returning id into v_id;
  -- Slots that have come stay what they were; those to come are computed again by newer data, and never again by older.
  update pgfresh.schedule_state
  set zone_data = p_zone_data
  where zone_data is null or zone_data < p_zone_data collate "C";
  if found then
    update pgfresh.job_cursor as c
    set revision = revision + 1, slot = null, due_at = '-infinity'
    from pgfresh.scheduled_jobs as j
    where j.id = c.job_id and j.schedule is not null and (c.slot > v_now or c.slot is null);
  end if;
  return v_id;
end
$$;
comment on function pgfresh.register_scheduler(text, text[], text) is
  'Begins an incarnation of a scheduler process: its number, with a lease of 12 s that heartbeat_scheduler renews. '
  'Newer time zone data has future slots computed again.';

/*
  A late renewal is as good as one in time while nobody has taken over: the runs are fenced by themselves. After a pause
  of the database everybody is late, and nobody is taken for dead before he has had a whole lease to say so.
*/
create or replace function pgfresh.heartbeat_scheduler(p_scheduler bigint, p_held uuid[]) returns jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := pgfresh.clock();
  v_steady boolean;
begin
  -- Null would read as "holds nothing", and everything that the scheduler runs would be started again.
  if p_held is null or array_position(p_held, null) is not null then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      'p_held must not be null, and no request in it',
      'Pass every request with runs that have not ended, or an empty array.');
  end if;
  update pgfresh.scheduler
  -- The clock may have been set back since; less than what others are judged by, so that who judges has noticed first.
  set steady_since = case
      when lease_until < v_now or lease_until > v_now + interval '30 seconds' then v_now
      else steady_since
    end,
    lease_until = v_now + interval '12 seconds'
  where id = p_scheduler and lease_until > '-infinity'
  returning steady_since <= v_now - interval '12 seconds' into v_steady;
  if not found then
    return jsonb_build_object('alive', false);
  end if;
  return jsonb_build_object('alive', true,
    'dead', case
      when v_steady then (
        select count(*)
        from pgfresh.scheduler
        where lease_until <= v_now or lease_until > v_now + interval '1 minute'
      )
      else 0
    end,
    'cancel', (
      select coalesce(jsonb_agg(r.id), '[]')
      from pgfresh.scheduled_job_runs as r
      where r.scheduler = p_scheduler and r.state = 'running'
        and (r.cancel_asked or not exists (select from pgfresh.scheduled_jobs as j where j.id = r.job_id))
    ),
    -- Not ended here: that may wait for whoever edits the job, and this must not wait.
    'stranded', (
      select coalesce(jsonb_agg(jsonb_build_object('run', r.id, 'job', r.job_id, 'request', r.request)), '[]')
      from pgfresh.scheduled_job_runs as r
      where r.scheduler = p_scheduler and r.state = 'running' and not coalesce(r.request = any (p_held), false)
        and r.started_at < v_now - interval '5 seconds'
    ));
end
$$;
comment on function pgfresh.heartbeat_scheduler(bigint, uuid[]) is
  'Renews the lease of a scheduler that holds these requests. Answers {"alive", "dead", "cancel", "stranded"}: '
  'whether it still has it, how many others have lost theirs, which of its runs are to be cancelled, '
  'and which it was given five seconds ago or more and does not hold.';

create or replace function pgfresh.retire_scheduler(p_scheduler bigint) returns int
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_run pgfresh.scheduled_job_runs;
  v_count int := 0;
begin
  perform from pgfresh.scheduler where id = p_scheduler for update;
  for v_run in
    select *
    from pgfresh.scheduled_job_runs
    where scheduler = p_scheduler and state = 'running'
    order by id
    for update skip locked
  loop
    perform pgfresh.close_run(v_run, 'lost', 'its scheduler has stopped', null);
    v_count := v_count + 1;
  end loop;
  -- What is being ended this moment is ended, or taken over when the lease would have run out.
  update pgfresh.scheduler set lease_until = '-infinity' where id = p_scheduler;
  delete from pgfresh.scheduler
  where id = p_scheduler
    and not exists (select from pgfresh.scheduled_job_runs where scheduler = p_scheduler and state = 'running');
  if v_count > 0 then
    perform pg_notify('pgfresh_schedule', '');
  end if;
  return v_count;
end
$$;
comment on function pgfresh.retire_scheduler(bigint) is
  'Ends an incarnation: the next attempt of what it still runs starts elsewhere. Returns how many runs that were.';

create or replace function pgfresh.recover_scheduled_runs(p_scheduler bigint) returns int
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := pgfresh.clock();
  v_dead record;
  v_run pgfresh.scheduled_job_runs;
  v_count int := 0;
begin
  perform from pgfresh.scheduler
  where id = p_scheduler and lease_until > v_now and steady_since <= v_now - interval '12 seconds';
  if not found then
    return 0;
  end if;
  for v_dead in
    select id, name
    from pgfresh.scheduler
    -- No lease is that long: it is from before the clock was set back, and who lives has renewed his since.
    where (lease_until <= v_now or lease_until > v_now + interval '1 minute') and id <> p_scheduler
    order by id
    for update skip locked
  loop
    -- A function that the dead process has left running holds its row; it is taken over when it has ended.
    for v_run in
      select *
      from pgfresh.scheduled_job_runs
      where scheduler = v_dead.id and state = 'running'
      order by id
      for update skip locked
    loop
      perform pgfresh.close_run(v_run, 'lost', format('scheduler %s (%s) is gone', v_dead.id, v_dead.name), null);
      v_count := v_count + 1;
    end loop;
    update pgfresh.scheduler set lease_until = '-infinity' where id = v_dead.id;
    delete from pgfresh.scheduler
    where id = v_dead.id
      and not exists (select from pgfresh.scheduled_job_runs where scheduler = v_dead.id and state = 'running');
  end loop;
  return v_count;
end
$$;
comment on function pgfresh.recover_scheduled_runs(bigint) is
  'Closes the runs of schedulers whose lease has ended and starts the next attempts of their slots. '
  'For a scheduler that has itself been steady for a whole lease. Returns how many runs.';

insert into pgfresh.migrations (kind, name, hash) values ('functions'::text, 'schedulers'::text, '30b8c650ad52ea79f14aca323848321bc33a103c77cc976d06fdcfc171381658'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- functions slot_status
create or replace view pgfresh.scheduled_job_status with (security_invoker = true) as
select j.id as job_id, j.name, j.description, j.kind, j.enabled, j.managed_by,
  h.state,
  case h.state
    when 'problem' then p.problem
    when 'late' then late.late
    when 'failing' then
      case c.failures_in_a_row
        when 1 then 'its last run has failed'
        else format('its last %s runs have failed', c.failures_in_a_row)
      end || coalesce(': ' || nullif(f.message, ''), '')
  end as problem,
  case h.state
    when 'problem' then p.next_step
    when 'late' then late.next_step
    when 'failing' then
      format('See what it said: pgfresh jobs history %s --state failed. With --json it has the details.', j.name)
  end collate "default" as next_step,
  -- A slot before the end of a pause is skipped, and what comes then is not known here.
  case
    when j.enabled and isfinite(c.due_at) and (not k.paused or c.slot >= j.paused_until) then c.due_at
  end as next_run_at,
  c.slot as next_slot, o.running_since, o.waiting,
  c.last_run_at, c.last_run_success, l.message as last_message, c.last_success_at, c.runs as total_runs,
  round(100.0 * c.successes / nullif(c.runs, 0), 1) as success_rate_percent,
  case when k.counted then t.success_rate_percent_7d else w.success_rate_percent_7d end as success_rate_percent_7d,
  case when k.counted then t.p50_ms else w.p50_ms end as p50_ms,
  case when k.counted then t.p95_ms else w.p95_ms end as p95_ms,
  case when k.counted then t.lateness_p95_ms else w.lateness_p95_ms end as lateness_p95_ms,
  l.lateness_ms as last_lateness_ms, c.failures_in_a_row
from pgfresh.scheduled_jobs as j
join pgfresh.job_cursor as c on c.job_id = j.id
left join pgfresh.job_statistics as t on t.job_id = j.id
cross join lateral (
  select j.paused_at is not null and coalesce(j.paused_until > (select pgfresh.clock()), true) as paused,
    c.runs = coalesce(t.runs, 0) as counted
) as k
left join lateral (
  select q.problem, q.next_step from pgfresh.job_problem(j) as q
  union all
  select j.problem, 'Correct the job; "pgfresh jobs show" says more.' where j.problem is not null
  union all
  select format('no scheduler that runs has the handler %s', j.function_name),
    'Start one with a configuration that has it.'
  -- One that is disabled needs none.
  where j.kind = 'handler' and j.enabled and not exists (
    select from pgfresh.scheduler as s
    where s.lease_until > (select pgfresh.clock()) and j.function_name = any (s.handlers)
  )
  limit 1
) as p on true
cross join lateral (
  select max(r.started_at) filter (where r.state = 'running') as running_since,
    count(*) filter (where r.state <> 'running') as waiting, min(r.run_at) as waiting_since
  from pgfresh.scheduled_job_runs as r
  where r.job_id = j.id and r.state in ('queued', 'waiting', 'running')
) as o
-- What is late by more than a minute. Cron has no shorter period.
cross join lateral (
  select case
      when c.due_at = '-infinity' then
        case when j.updated_at < now.now - interval '1 minute' then 'no scheduler has looked at it yet' end
      when c.due_at < now.now - interval '1 minute' then
        format('no scheduler has come to its slot, which is %s late', date_trunc('second', now.now - c.due_at))
      when o.waiting_since < now.now - interval '1 minute' then
        format('no scheduler has begun its run, which is %s late', date_trunc('second', now.now - o.waiting_since))
      when o.running_since < now.now - j.timeout - interval '1 minute' then
        format('its run has not ended for %s, and its time limit is %s',
          date_trunc('second', now.now - o.running_since), j.timeout)
    end as late,
    case
      when o.running_since < now.now - j.timeout - interval '1 minute' then
        format('Cancel it: pgfresh jobs cancel %s', j.name)
      else 'Start a scheduler: pgfresh run --roles scheduler. If one runs, give it a larger schedulerConcurrency.'
    end as next_step
  from (select pgfresh.clock() as now) as now
) as late
-- The one definition of how a job is: everything that tells it reads it here.
cross join lateral (
  select case
      when p.problem is not null then 'problem'
      when not j.enabled then 'disabled'
      when k.paused then 'paused'
      when late.late is not null then 'late'
      when c.failures_in_a_row > 0 then 'failing'
      when o.running_since is not null then 'running'
      when o.waiting > 0 then 'waiting'
      else 'ok'
    end as state
) as h
left join lateral (
  select r.message, r.lateness_ms
  from pgfresh.scheduled_job_runs as r
  where r.job_id = j.id and r.started_at is not null and r.completed_at is not null
  order by r.id desc
  limit 1
) as l on true
-- Since the last failure runs may have been cancelled.
left join lateral (
  select r.message
  from pgfresh.scheduled_job_runs as r
  where r.job_id = j.id and r.state = 'failed'
  order by r.id desc
  limit 1
) as f on c.failures_in_a_row > 0
cross join lateral (
  select round(100.0 * count(*) filter (where r.success) / nullif(count(*), 0), 1) as success_rate_percent_7d,
    percentile_cont(0.5) within group (order by r.duration_ms) as p50_ms,
    percentile_cont(0.95) within group (order by r.duration_ms) as p95_ms,
    percentile_cont(0.95) within group (order by r.lateness_ms)
      filter (where r.triggered_by = 'scheduler' and r.attempt = 1) as lateness_p95_ms
  from (select * from pgfresh.scheduled_job_runs as n where n.job_id = j.id order by n.id desc limit 1000) as r
  where not k.counted and r.started_at > (select pgfresh.clock()) - interval '7 days' and r.completed_at is not null
) as w;
comment on view pgfresh.scheduled_job_status is
  'Each job at a glance: its state (problem, disabled, paused, late, failing, running, waiting or ok), '
  'when it runs next, what came of it last and ever, '
  'and how long and how late its runs of the last 7 days were, of the newest 1000.';

create or replace function pgfresh.count_job_statistics(p_jobs int default 2000) returns int
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := pgfresh.clock();
  v_count int;
begin
  perform pgfresh.require_range('p_jobs', p_jobs, 1, 10000);
  -- Of a job that has not run since, runs have left the seven days.
  delete from pgfresh.job_statistics
  where job_id in (
    select t.job_id
    from pgfresh.job_statistics as t
    where t.counted_at < v_now - interval '1 day' and t.p50_ms is not null
    limit p_jobs
  );
  insert into pgfresh.job_statistics as t
    (job_id, runs, counted_at, success_rate_percent_7d, p50_ms, p95_ms, lateness_p95_ms)
  select s.job_id, s.total_runs, v_now, s.success_rate_percent_7d, s.p50_ms, s.p95_ms, s.lateness_p95_ms
  from pgfresh.scheduled_job_status as s
  where s.job_id = any (array(
    select c.job_id
    from pgfresh.job_cursor as c
    left join pgfresh.job_statistics as t on t.job_id = c.job_id
    where c.runs <> coalesce(t.runs, 0)
    limit p_jobs
  ))
  on conflict (job_id) do update
  set runs = excluded.runs, counted_at = excluded.counted_at,
    success_rate_percent_7d = excluded.success_rate_percent_7d,
    p50_ms = excluded.p50_ms, p95_ms = excluded.p95_ms, lateness_p95_ms = excluded.lateness_p95_ms;
  get diagnostics v_count = row_count;
  return v_count;
-- A job that was removed this moment: the others have their turn the next time.
exception when foreign_key_violation then
  return 0;
end
$$;
comment on function pgfresh.count_job_statistics(int) is
  'Counts how the newest runs of jobs went that have run since they were last counted, of at most p_jobs. '
  'Returns of how many. A part of pgfresh.tidy.';

create or replace function pgfresh.check_cron_job_health(p_critical_jobs text[] default null)
returns table (jobname text, last_run timestamptz, last_success timestamptz, healthy boolean, problem text)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select named.name, s.last_run_at, s.last_success_at, v.problem is null, v.problem
  from (
    select j.name::text as name from pgfresh.scheduled_jobs as j where p_critical_jobs is null and j.enabled
    union select n from unnest(p_critical_jobs) as n
  ) as named
  left join pgfresh.scheduled_job_status as s on s.name = named.name collate "C"
  cross join lateral (
    select case
      when s.name is null then 'there is no such job'
      when s.state = 'disabled' then 'it is disabled'
      when s.state = 'paused' then 'it is paused'
      else s.problem
    end as problem
  ) as v
  order by named.name
$$;
comment on function pgfresh.check_cron_job_health(text[]) is
  'Whether these jobs, or all that are enabled, are well: when each last ran and succeeded, and what is wrong. '
  'For a monitor that asks from outside, because nothing inside notices that nothing runs.';

insert into pgfresh.migrations (kind, name, hash) values ('functions'::text, 'slot_status'::text, 'f905087a316b29c69e7cc8481f33b8cf44af830b39ec1f73bee4fe988d94875d'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- functions slots
/*
  A job that is new, or whose times have changed, has no past: its first slot is the next one after now, which a
  scheduler computes. One that was disabled or paused until now keeps its place, so that the slots in between are
  accounted for.
*/
create or replace function pgfresh.follow_job_changes() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_times boolean;
begin
  if tg_op = 'INSERT' then
    insert into pgfresh.job_cursor (job_id, due_at, handler)
    select id, '-infinity', case when kind = 'handler' then function_name end from changed;
  else
    v_times := (new.schedule, new.timezone, new.every_min, new.every_max)
      is distinct from (old.schedule, old.timezone, old.every_min, old.every_max);
    update pgfresh.job_cursor as c
    -- The end of its run plans the next slot of a job without a schedule; nobody else may.
    set revision = revision + 1,
      due_at = case when c.due_at = 'infinity' and not v_times then c.due_at else '-infinity' end,
      handler = case when new.kind = 'handler' then new.function_name end,
      slot = case when v_times then null else c.slot end,
      behind = case
        when v_times then null
        when new.enabled and not old.enabled then 'disabled'
        -- A pause that is over has let its slots go already.
        when old.paused_at is not null and new.paused_at is null
          and coalesce(old.paused_until > pgfresh.clock(), true) then coalesce(c.behind, 'paused')
        else c.behind
      end
    where c.job_id = new.id;
  end if;
  perform pg_notify('pgfresh_schedule', '');
  return null;
end
$$;
comment on function pgfresh.follow_job_changes() is
  'Has schedulers look at jobs that were added or changed. A part of the scheduler.';
create or replace trigger follow_insert after insert on pgfresh.scheduled_jobs
  referencing new table as changed
  for each statement execute function pgfresh.follow_job_changes();
-- Of these columns, because the end of every run writes when it began, and must not pay for this.
create or replace trigger follow_update
  after update of schedule, timezone, every_min, every_max, enabled, kind, function_name,
    jitter, blackout_dates, paused_at, paused_until on pgfresh.scheduled_jobs
  for each row
  when ((new.schedule, new.timezone, new.every_min, new.every_max, new.enabled, new.kind, new.function_name,
      new.jitter, new.blackout_dates, new.paused_at, new.paused_until)
    is distinct from (old.schedule, old.timezone, old.every_min, old.every_max, old.enabled, old.kind,
      old.function_name, old.jitter, old.blackout_dates, old.paused_at, old.paused_until))
  execute function pgfresh.follow_job_changes();

create or replace function pgfresh.due_slots(p_handlers text[], p_functions boolean, p_zone_data text, p_limit int)
returns table (
  job_id int, revision int, slot timestamptz, behind text, schedule text, timezone text,
  every_min_ms float8, every_max_ms float8, enabled boolean,
  paused_at timestamptz, paused_until timestamptz, blackout_dates text[],
  catch_up text, catch_up_window_ms float8, catch_up_max int, jitter_ms float8, now timestamptz
)
language plpgsql stable
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
-- What is due is little beside all jobs, which the planner of the database cannot know.
set enable_hashjoin = off
set enable_mergejoin = off
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  v_now timestamptz := pgfresh.clock();
  v_older boolean := exists (
    select from pgfresh.scheduler as s where s.lease_until > v_now and s.zone_data > p_zone_data collate "C");
  v_theirs text[];
begin
  if v_older then
    v_theirs := array(
      select distinct unnest(s.handlers)
      from pgfresh.scheduler as s
      where s.lease_until > v_now and s.zone_data > p_zone_data collate "C"
    );
  end if;
  return query
  select c.job_id, c.revision, c.slot, c.behind, j.schedule, j.timezone,
    1000 * extract(epoch from j.every_min)::float8, 1000 * extract(epoch from j.every_max)::float8, j.enabled,
    j.paused_at, j.paused_until, j.blackout_dates::text[],
    j.catch_up, 1000 * extract(epoch from j.catch_up_window)::float8, j.catch_up_max,
    1000 * extract(epoch from j.jitter)::float8, v_now
  from (
    select *
    from pgfresh.job_cursor as c
    where c.due_at <= v_now and (c.handler = any (p_handlers) or (c.handler is null and p_functions))
    order by c.due_at
    limit least(p_limit, 1000)
  ) as c
  join pgfresh.scheduled_jobs as j on j.id = c.job_id
  -- A scheduler with newer time zone data knows better, if it runs the job and knows the zone at all.
  where not v_older or j.schedule is null or j.timezone = 'UTC'
    or (c.handler is not null and c.handler <> all (v_theirs)) or j.problem is not null
  order by c.due_at, c.job_id;
end
$$;
comment on function pgfresh.due_slots(text[], boolean, text, int) is
  'Jobs whose next slot has come or is not known, the longest due first: those of these handlers, '
  'and of SQL functions if p_functions. Those in time zones only for the newest time zone data of those who run them. '
  'A part of the scheduler.';

create or replace function pgfresh.schedule_pause(p_handlers text[], p_functions boolean) returns float8
language plpgsql stable
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
  v_now timestamptz := pgfresh.clock();
  v_next timestamptz := least(
    (
      select c.due_at
      from pgfresh.job_cursor as c
      where c.due_at < 'infinity' and (c.handler = any (p_handlers) or (c.handler is null and p_functions))
      order by c.due_at
      limit 1
    ),
    (
      select r.run_at
      from pgfresh.scheduled_job_runs as r
      join pgfresh.job_cursor as c on c.job_id = r.job_id
      where r.state = 'waiting'
        and (c.handler = any (p_handlers) or (c.handler is null and p_functions))
      order by r.run_at
      limit 1
    )
  );
begin
  -- What has no time yet is due at minus infinity, from which nothing can be subtracted before PostgreSQL 17.
  return case when v_next <= v_now then 0 else 1000 * extract(epoch from v_next - v_now) end;
end
$$;
comment on function pgfresh.schedule_pause(text[], boolean) is
  'Milliseconds until something is due of these handlers, and of SQL functions if p_functions; '
  'null if nothing ever is. '
  'A part of the scheduler.';

create or replace function pgfresh.skip_slots(
  p_job_id int, p_reason text, p_from timestamptz, p_to timestamptz, p_count int, p_by text)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  update pgfresh.scheduled_job_runs
  set scheduled_to = p_to, occurrences = occurrences + p_count, completed_at = pgfresh.clock()
  where id = (select id from pgfresh.scheduled_job_runs where job_id = p_job_id order by id desc limit 1)
    and state = 'skipped' and reason = p_reason and scheduled_to < p_from;
  if not found then
    insert into pgfresh.scheduled_job_runs
      (job_id, state, triggered_by, scheduled_for, scheduled_to, occurrences, completed_at, reason)
    values (p_job_id, 'skipped', p_by, p_from, p_to, p_count, pgfresh.clock(), p_reason);
  end if;
end
$$;
comment on function pgfresh.skip_slots(int, text, timestamptz, timestamptz, int, text) is
  'Records slots that did not run; those that follow others of the same reason go into their row. '
  'A part of the scheduler.';

/*
  What a scheduler has decided about slots that it had read, each unless somebody was faster: cursor and run rows commit
  together, before anything runs. Whether another run is open is seen here, where nobody else can open one.
*/
create or replace function pgfresh.settle_slots(p_scheduler bigint, p_request uuid, p_plans jsonb, p_room int)
returns setof pgfresh.taken_run
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
-- Plans are few beside jobs, which the planner of the database cannot know.
set enable_hashjoin = off
set enable_mergejoin = off
set enable_seqscan = off
set jit = off
as $$
declare
  v_now timestamptz := pgfresh.clock();
  v_worker text;
  v_plan record;
  v_skip record;
  v_run record;
  v_active record;
  v_id bigint;
  v_late bigint;
  v_opened boolean;
  v_room int := p_room;
  v_handlers boolean := false;
begin
  v_worker := pgfresh.require_scheduler(p_scheduler);
  perform pgfresh.require_request(p_request);
  if jsonb_typeof(p_plans) is distinct from 'array' or jsonb_array_length(p_plans) > 1000 then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      'p_plans must be an array of at most 1000 plans',
      'See src/schedule/slot-plan.ts.');
  end if;
  for v_plan in
    select c.job_id, c.due_at, p.next, coalesce(p.due, v_now + interval '1 hour') as due, p.skips, p.runs, p.problem,
      j.schedule is null as chained, j.overlap, j.catch_up, j.catch_up_max, j.problem as had_problem,
      j.name, j.kind, j.function_name, j.params, 1000 * extract(epoch from j.timeout)::float8 as timeout_ms
    from jsonb_to_recordset(p_plans) as p(
      job int, revision int, slot timestamptz, next timestamptz, due timestamptz,
      skips jsonb, runs jsonb, problem text
    )
    join pgfresh.job_cursor as c on c.job_id = p.job and c.revision = p.revision
      and c.slot is not distinct from p.slot and c.due_at <= v_now
    join pgfresh.scheduled_jobs as j on j.id = c.job_id
    order by c.job_id for update of c skip locked
  loop
    -- What has no room to run stays due, for this scheduler or for others.
    continue when v_room <= 0 and v_plan.runs <> '[]';
    if v_plan.problem is distinct from v_plan.had_problem then
      -- Everyone else locks the job before its cursor: what they hold is looked at again in a moment.
      update pgfresh.scheduled_jobs
      set problem = v_plan.problem
      where id = (select id from pgfresh.scheduled_jobs where id = v_plan.job_id for no key update skip locked);
      continue when not found;
    end if;
    -- Asked first, because most plans have none, and reading an empty list is a statement too.
    if v_plan.skips <> '[]' then
      for v_skip in
        select *
        from jsonb_to_recordset(v_plan.skips)
          as s(reason text, "from" timestamptz, "to" timestamptz, count int, cause text)
      loop
        perform pgfresh.skip_slots(
          v_plan.job_id, v_skip.reason, v_skip."from", v_skip."to", v_skip.count, v_skip.cause
        );
        return next row(null, v_plan.job_id, v_plan.name, v_plan.kind, null, null, null,
          v_skip."from", null, v_skip.cause, null, v_skip.reason, v_skip.count)::pgfresh.taken_run;
      end loop;
    end if;
    v_opened := false;
    for v_run in select * from jsonb_to_recordset(v_plan.runs) as r(slot timestamptz, cause text) loop
      select * into v_active from pgfresh.active_run(v_plan.job_id);
      if v_active.id is null then
        -- Late is what comes after its time and its jitter. What was due first may be an earlier slot that was missed.
        v_late := 1000 * extract(epoch from v_now - case
          when v_run.cause = 'scheduler' then greatest(v_plan.due_at, v_run.slot)
          else v_run.slot
        end);
        insert into pgfresh.scheduled_job_runs
          (job_id, state, triggered_by, scheduled_for, started_at, lateness_ms, scheduler, request, worker)
        values (v_plan.job_id, 'running', v_run.cause, v_run.slot, v_now, v_late, p_scheduler, p_request, v_worker)
        returning id into v_id;
        return next row(v_id, v_plan.job_id, v_plan.name, v_plan.kind, v_plan.function_name, v_plan.params,
          v_plan.timeout_ms, v_run.slot, 1, v_run.cause, v_late, null, 1)::pgfresh.taken_run;
        v_opened := true;
        v_room := v_room - 1;
        v_handlers := v_handlers or v_plan.kind = 'handler';
      -- A backfill has to wait for slots, and not they for it; of all that is caught up, each has its turn.
      elsif v_active.queued = 0 and (v_plan.overlap = 'queue' or v_active.triggered_by = 'backfill')
          or v_plan.catch_up = 'all' and (v_active.triggered_by = 'catchup' or v_run.cause = 'catchup')
          and v_active.queued < v_plan.catch_up_max then
        insert into pgfresh.scheduled_job_runs (job_id, state, triggered_by, scheduled_for)
        values (v_plan.job_id, 'queued', v_run.cause, v_run.slot);
        v_opened := true;
      else
        perform pgfresh.skip_slots(v_plan.job_id, 'overlap', v_run.slot, v_run.slot, 1, v_run.cause);
        return next row(null, v_plan.job_id, v_plan.name, v_plan.kind, null, null, null,
          v_run.slot, null, v_run.cause, null, 'overlap', 1)::pgfresh.taken_run;
      end if;
    end loop;
    update pgfresh.job_cursor
    set slot = case when v_plan.chained and v_opened then null else v_plan.next end,
      due_at = case when v_plan.chained and v_opened then 'infinity' else v_plan.due end,
      behind = null
    where job_id = v_plan.job_id;
  end loop;
  -- What a function does is in the log behind its start, and cannot outlive it: after a crash the slot is due again,
  -- and nothing was done. Handlers do things elsewhere.
  if not v_handlers then
    perform set_config('synchronous_commit', 'off', true);
  end if;
end
$$;
comment on function pgfresh.settle_slots(bigint, uuid, jsonb, int) is
  'Accounts for slots as a scheduler has decided, and starts their runs, at most p_room. '
  'Returns the runs that the scheduler has to do now. A part of the scheduler.';

insert into pgfresh.migrations (kind, name, hash) values ('functions'::text, 'slots'::text, '651224d971544253ce4f11c01a8627767b5b1e9c11b169940ef71ff41cc42243'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- functions sources
create or replace function pgfresh.require_reason(p_name text, p_reason text) returns void
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  if coalesce(p_reason, '') = '' or length(p_reason) > 1000 then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      format('%s must have 1 to 1000 characters, got %s', p_name, coalesce(left(quote_literal(p_reason), 60), 'null')),
      'Say why, in a sentence that others understand.');
  end if;
end
$$;
comment on function pgfresh.require_reason(text, text) is 'Refuses what is no reason.';

create or replace function pgfresh.hold_source(p_source_id int, p_until timestamptz, p_reason text) returns timestamptz
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := pgfresh.clock();
  -- A header is not a reason to stand still for a year.
  v_until timestamptz := least(p_until, v_now + interval '1 day');
  v_source pgfresh.sources;
begin
  perform pgfresh.require_reason('p_reason', p_reason);
  select * into v_source from pgfresh.sources where id = p_source_id for no key update;
  if not found then
    perform pgfresh.refuse('PGF_SOURCE_UNKNOWN',
      format('there is no source %s', coalesce(p_source_id::text, 'null')),
      'Pass the source_id of the claimed job.');
  end if;
  if p_until is null then
    -- What comes back while it is held was called before, and says the same thing once.
    if v_source.paused_until > v_now then
      return v_source.paused_until;
    end if;
    v_until := v_now + least(interval '1 hour', interval '10 seconds' * power(2, least(v_source.unhinted_holds, 12)))
      * (0.75 + random() / 4);
    perform pgfresh.warn('limit_without_hint', v_source.name,
      format('The provider of %s refuses calls as too many and does not say for how long: left alone for %s, '
        'longer each time.', v_source.name, pgfresh.in_words(date_trunc('second', v_until - v_now))),
      'Set rate_limit_per_minute of the source to what the provider allows.');
  end if;
  if v_until > greatest(v_now, v_source.paused_until) then
    update pgfresh.sources
    set paused_until = v_until, paused_by = 'provider', pause_reason = p_reason,
      unhinted_holds = case when p_until is null then least(unhinted_holds + 1, 100) else unhinted_holds end
    where id = p_source_id
    returning paused_until into v_source.paused_until;
  end if;
  return v_source.paused_until;
end
$$;
comment on function pgfresh.hold_source(int, timestamptz, text) is
  'The provider asked to be left alone until then (Retry-After, x-ratelimit): nobody calls the source earlier. '
  'Null if it did not say until when: then for 10 s, doubled each time until a call succeeds, at most an hour. '
  'At most a day from now; never shortens a pause. Returns until when it is paused.';

create or replace function pgfresh.pause_source(
  p_source text, p_until timestamptz default 'infinity', p_reason text default 'paused by hand')
returns timestamptz
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_source pgfresh.sources := pgfresh.require_source(p_source);
begin
  perform pgfresh.require_reason('p_reason', p_reason);
  if (p_until > pgfresh.clock()) is not true then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      format('p_until must be in the future, got %s', coalesce(p_until::text, 'null')),
      'Leave it out to pause the source until resume_source.');
  end if;
  update pgfresh.sources
  set paused_until = p_until, paused_by = 'person', pause_reason = p_reason
  where id = v_source.id;
  return p_until;
end
$$;
comment on function pgfresh.pause_source(text, timestamptz, text) is
  'Claims nothing of a source until then, or until resume_source. What runs goes on.';

create or replace function pgfresh.resume_source(p_source text) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_source pgfresh.sources := pgfresh.require_source(p_source);
  v_parts boolean;
begin
  perform from pgfresh.sources where id = v_source.id for no key update;
  update pgfresh.sources
  set paused_until = null, paused_by = null, pause_reason = null,
    breaker_opened_at = null, probe_job = null, failure_streak = 0, streak_since = null, unhinted_holds = 0,
    recent_retries = '{}', denied_keys = '{}'
  where id = v_source.id
    and (paused_until is not null or breaker_opened_at is not null or failure_streak > 0 or unhinted_holds > 0
      or recent_retries <> '{}' or denied_keys <> '{}');
  with parts as (
    delete from pgfresh.breaker
    where source_id = v_source.id
      or type_id in (select r.type_id from pgfresh.data_type_registry as r where r.source_id = v_source.id)
    returning opened_at
  )
  select exists (select from parts where opened_at is not null) into v_parts;
  -- The next tick asks for what was refused.
  insert into pgfresh.hold (type_id, until, reason, asked_at)
  select r.type_id, 'infinity', 'resumed', pgfresh.clock()
  from pgfresh.data_type_registry as r
  where r.source_id = v_source.id and exists (select from pgfresh.refused_pair as p where p.type_id = r.type_id)
  order by r.type_id
  on conflict (type_id, until) do update set reason = excluded.reason;
  perform pgfresh.wake_workers();
  return coalesce(v_source.paused_until > pgfresh.clock(), false) or v_source.breaker_opened_at is not null or v_parts;
end
$$;
comment on function pgfresh.resume_source(text) is
  'Lets a source be called again at once, with all of its API keys and data types, whoever has paused it: '
  'a person, the provider or a breaker, whose count starts anew. Pairs that are left alone because their answers were '
  'refused are asked for again. Returns whether anything was paused.';

create or replace function pgfresh.stop_spending(p_reason text) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  perform pgfresh.require_reason('p_reason', p_reason);
  insert into pgfresh.spending_stop (stopped_at, reason) values (pgfresh.clock(), p_reason) on conflict do nothing;
  return found;
end
$$;
comment on function pgfresh.stop_spending(text) is
  'Spends nothing from now on: no source is claimed from or planned for. '
  'What runs goes on. False if it was stopped already.';

create or replace function pgfresh.resume_spending() returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  delete from pgfresh.spending_stop;
  if found then
    perform pgfresh.wake_workers();
    return true;
  end if;
  return false;
end
$$;
comment on function pgfresh.resume_spending() is 'Undoes stop_spending. False if nothing was stopped.';

create or replace function pgfresh.calibrate_source(
  p_source text, p_used_bytes bigint, p_since timestamptz default null,
  p_reason text default 'the provider''s own figure', p_dry_run boolean default false)
returns jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_source pgfresh.sources := pgfresh.require_source(p_source);
  v_now timestamptz := pgfresh.clock();
  v_since timestamptz := coalesce(p_since, v_now - v_source.quota_window);
  v_ledger bigint;
  v_entry bigint;
begin
  perform pgfresh.require_range('p_used_bytes', p_used_bytes, 0, 1e15);
  perform pgfresh.require_reason('p_reason', p_reason);
  if p_dry_run is null or v_since >= v_now or v_since < v_now - interval '366 days' then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      'p_since must lie in the past, at most 366 days, and p_dry_run be true or false',
      'Pass when the provider began to count, or leave it out for the window of the quota.');
  end if;
  select coalesce(sum(u.bytes), 0)
  into v_ledger
  from pgfresh.usage as u
  where u.source_id = v_source.id and u.hour > v_since - interval '1 hour';
  if not p_dry_run and p_used_bytes <> v_ledger then
    v_entry := pgfresh.correct_data_usage(p_source, p_used_bytes - v_ledger, p_reason);
  end if;
  return jsonb_build_object('source', v_source.name, 'since', v_since, 'provider_bytes', p_used_bytes,
    'ledger_bytes', v_ledger, 'gap_bytes', p_used_bytes - v_ledger, 'correction', v_entry);
end
$$;
comment on function pgfresh.calibrate_source(text, bigint, timestamptz, text, boolean) is
  'Compares the ledger of a source with what the provider says was used since a time '
  '(the window of its quota if left out), and enters the gap as a signed correction. '
  'With p_dry_run only says what the gap is.';

-- The same time for all that is held in an hour: it is found together when the obstacle ends, and what is held already
-- is not written again. Each tick sees whether the obstacle has ended, and each sweep whether a gate has opened.
create or replace function pgfresh.open_end(p_now timestamptz) returns timestamptz
language sql stable parallel safe
set search_path = pg_catalog, pg_temp
as $$ select date_trunc('hour', p_now, 'UTC') + interval '2 hours' $$;
comment on function pgfresh.open_end(timestamptz) is
  'When a pair is looked at again at the latest that an obstacle without an end keeps from being planned.';

create or replace function pgfresh.source_obstacle(p_source_id int, p_now timestamptz)
returns table (reason text, until timestamptz)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_source pgfresh.sources;
  v_until timestamptz;
begin
  select * into v_source from pgfresh.sources where id = p_source_id;
  if exists (select from pgfresh.spending_stop) then
    return query select 'stopped', pgfresh.open_end(p_now);
  elsif not v_source.enabled then
    return query select 'paused', pgfresh.open_end(p_now);
  elsif v_source.paused_until > p_now then
    return query
    select case v_source.paused_by when 'breaker' then 'breaker' when 'provider' then 'rate' else 'paused' end,
      case when isfinite(v_source.paused_until) then v_source.paused_until else pgfresh.open_end(p_now) end;
  elsif v_source.quota_bytes is not null then
    v_until := pgfresh.quota_until(p_source_id, p_now);
    if v_until is not null then
      return query select 'quota', v_until;
    end if;
  end if;
end
$$;
comment on function pgfresh.source_obstacle(int, timestamptz) is
  'What keeps a source from being planned for, and until when: stopped, paused, breaker, rate or quota. '
  'No row if nothing does.';

create or replace function pgfresh.type_obstacle(p_type_id int, p_source_id int, p_now timestamptz)
returns table (reason text, until timestamptz)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  -- First: a type in quarantine is not even asked what is stale.
  if pgfresh.is_quarantined(p_type_id, p_now) then
    return query select 'quarantined', pgfresh.open_end(p_now);
    return;
  end if;
  return query select o.reason, o.until from pgfresh.source_obstacle(p_source_id, p_now) as o;
  if not found then
    return query
    select 'paused', b.paused_until
    from pgfresh.breaker as b
    where b.type_id = p_type_id and b.paused_until > p_now;
  end if;
end
$$;
comment on function pgfresh.type_obstacle(int, int, timestamptz) is
  'What keeps a data type from being planned for: its quarantine, what source_obstacle says of its source, '
  'or its own pause.';

insert into pgfresh.migrations (kind, name, hash) values ('functions'::text, 'sources'::text, 'abf9cfe6701d8b189c51ec8945ce91e8391e3fbd6f152670fa02645c0bcd271f'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- functions staleness
create or replace function pgfresh.is_data_stale(p_fetched_at timestamptz, p_ttl interval) returns boolean
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  if p_ttl is null or p_ttl <= interval '0' then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      format('a TTL must be positive, got %s', coalesce(p_ttl::text, 'null')),
      'Pass the TTL of the registry.');
  end if;
  return p_fetched_at is null or p_fetched_at + p_ttl <= pgfresh.clock();
end
$$;
comment on function pgfresh.is_data_stale(timestamptz, interval) is
  'Whether data of that time is older than its TTL. No time at all is stale. '
  'The TTL has no default and must be positive.';

create or replace function pgfresh.is_data_stale(p_fetched_at timestamptz, p_ttl_minutes int) returns boolean
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  if p_ttl_minutes is null or p_ttl_minutes <= 0 then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      format('a TTL must be positive, got %s', coalesce(p_ttl_minutes::text, 'null')),
      'Pass the TTL of the registry.');
  end if;
  return pgfresh.is_data_stale(p_fetched_at, make_interval(mins => p_ttl_minutes));
end
$$;
comment on function pgfresh.is_data_stale(timestamptz, int) is 'The same with the TTL in minutes.';

/*
  What a user's function leaves behind must not work for it. A cursor "with hold" is read to its end by the commit,
  as whoever commits and in a transaction that may write. A search path that was set without "local" outlives
  the function that has one of its own, and would be that of the planner's next statement;
  so this is called with names that have their schema, and sets another one in the same way.
*/
create or replace function pgfresh.clear_leftovers(p_search_path text) returns void
language plpgsql
as $$
declare
  v_name pg_catalog.text;
begin
  if p_search_path operator(pg_catalog.<>) 'pg_catalog, public, pg_temp' then
    perform pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false);
  end if;
  for v_name in
    select name
    from pg_catalog.pg_cursors
    where is_holdable and creation_time operator(pg_catalog.>=) pg_catalog.statement_timestamp()
  loop
    execute pg_catalog.format('close %I', v_name);
  end loop;
end
$$;
comment on function pgfresh.clear_leftovers(text) is
  'Undoes what a user''s function has left in the session by which it could act as another role.';

/*
  The statements of type_resolution run as pgfresh_evaluator and with no other rights:
  what users' functions do, they do as this role.
  The search path is for the bodies of those functions; the names in the statements themselves have their schema.
  Read-only, because what runs as the owner of these four functions could otherwise drop them,
  or alter them to run with all rights.
  PostgreSQL 15 still lets a function reset that; later ones do not.
  What the planner has set for its own statements is not meant for users' tables.
*/
create or replace function pgfresh.ask_stale(
  p_type_id int, p_keys text[], p_confirmed timestamptz[], p_rows timestamptz[], p_due timestamptz[], p_ttl interval,
  p_now timestamptz)
returns table (
  key text, found boolean, stale boolean, next_at timestamptz, at timestamptz, row_at timestamptz, due_at timestamptz,
  raised text
)
language plpgsql security definer
set search_path = pg_catalog, public, pg_temp
set plan_cache_mode = auto
set enable_seqscan = on
-- Viewed rows are in memory: a few dozen are found by the index and not by reading the table.
set random_page_cost = 1.1
as $$
declare
  v_check text := format('select c.*, null::text from pgfresh.check_%s($1, $2, $3, $4, $5, $6) as c', p_type_id);
  v_count int := cardinality(p_keys);
  v_from int := 1;
  v_size int := v_count;
begin
  -- In halves where that raises, until it is known whose fault it is.
  for v_try in 1..50 loop
    exit when v_from > v_count;
    -- A subtransaction, at whose end the transaction may write again.
    begin
      perform set_config('transaction_read_only', 'on', true);
      if v_size >= v_count then
        return query execute v_check using p_keys, p_confirmed, p_rows, p_due, p_ttl, p_now;
      else
        return query execute v_check using
          p_keys[v_from:v_from + v_size - 1],
          p_confirmed[v_from:v_from + v_size - 1],
          p_rows[v_from:v_from + v_size - 1],
          p_due[v_from:v_from + v_size - 1],
          p_ttl, p_now;
      end if;
      perform pgfresh.clear_leftovers(pg_catalog.current_setting('search_path'));
      v_from := v_from + v_size;
      v_size := v_size * 2;
    -- It answers only when it has asked about all of them, so one that raises has answered about none.
    exception
    -- Nobody's row is at fault. Asking again in halves would wait as long each time.
    when lock_not_available then
      raise;
    when others then
      if v_size > 1 then
        v_size := greatest(least(v_size, v_count - v_from + 1) / 2, 1);
      else
        return query select
          p_keys[v_from], null::boolean, true, null::timestamptz, null::timestamptz, p_rows[v_from], p_due[v_from],
          sqlerrm;
        v_from := v_from + 1;
      end if;
    end;
  end loop;
  return query
    select k.key, null::boolean, null::boolean, null::timestamptz, null::timestamptz, k.row_at, k.due_at, null::text
    from unnest(p_keys[v_from:], p_rows[v_from:], p_due[v_from:]) as k(key, row_at, due_at)
    where v_from <= v_count;
end
$$;
comment on function pgfresh.ask_stale(
  int, text[], timestamptz[], timestamptz[], timestamptz[], interval, timestamptz) is
  'Asks as the evaluator whether pairs of a data type are stale, by the time of their row or by the time at which '
  'the source confirmed it. Says nothing of those that are fresh and as they were known to be. '
  'A pair whose check raises counts as stale; a lock that is not free in time is raised. '
  'At most 50 subtransactions a call; of what is not decided by then it says neither.';

create or replace function pgfresh.ask_gate(p_sql text, p_keys text[], p_data_type text)
returns table (key text, open boolean, opens_at timestamptz)
language plpgsql security definer
set search_path = pg_catalog, public, pg_temp
set plan_cache_mode = auto
set enable_seqscan = on
as $$
begin
  perform set_config('transaction_read_only', 'on', true);
  return query execute p_sql using p_keys, p_data_type;
  perform pgfresh.clear_leftovers(pg_catalog.current_setting('search_path'));
-- Never raised. It makes this a subtransaction, at whose end the transaction may write again.
exception when sqlstate 'PGF00' then raise;
end
$$;
comment on function pgfresh.ask_gate(text, text[], text) is 'Runs gate_sql of a data type as the evaluator.';

create or replace function pgfresh.ask_keys(p_sql text, p_keys text[]) returns setof text
language plpgsql security definer
set search_path = pg_catalog, public, pg_temp
set plan_cache_mode = auto
set enable_seqscan = on
as $$
begin
  perform set_config('transaction_read_only', 'on', true);
  return query execute p_sql using p_keys;
  perform pgfresh.clear_leftovers(pg_catalog.current_setting('search_path'));
-- Never raised. It makes this a subtransaction, at whose end the transaction may write again.
exception when sqlstate 'PGF00' then raise;
end
$$;
comment on function pgfresh.ask_keys(text, text[]) is
  'Runs missing_sql or unknown_sql of a data type as the evaluator: those of the keys that it returns.';

create or replace function pgfresh.ask_next_keys(p_sql text, p_after text, p_limit int) returns setof text
language plpgsql security definer
set search_path = pg_catalog, public, pg_temp
set plan_cache_mode = auto
set enable_seqscan = on
as $$
begin
  perform set_config('transaction_read_only', 'on', true);
  return query execute p_sql using p_after, p_limit;
  perform pgfresh.clear_leftovers(pg_catalog.current_setting('search_path'));
-- Never raised. It makes this a subtransaction, at whose end the transaction may write again.
exception when sqlstate 'PGF00' then raise;
end
$$;
comment on function pgfresh.ask_next_keys(text, text, int) is
  'Runs keys_sql of a data type as the evaluator: the next keys after one.';

insert into pgfresh.migrations (kind, name, hash) values ('functions'::text, 'staleness'::text, '604b482c4919796147a5720066be4c0c726803b1a7476135e0c72a287d4b6abb'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- functions subscribe
/*
  What subscribing asks of users' tables. Whoever subscribes by SQL has a connection of an application, and does not
  wait with it for a table that someone has locked, as ALTER TABLE does: the planner looks at the pair a second later.
*/
create or replace function pgfresh.admit_new_keys(p_type pgfresh.data_type_registry, p_keys text[]) returns text[]
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '100ms'
as $$
begin
  return pgfresh.admit_keys(p_type, p_keys);
end
$$;
comment on function pgfresh.admit_new_keys(pgfresh.data_type_registry, text[]) is
  'As admit_keys, but waits at most 100 ms for a lock on the table of keys. A part of subscribing.';

create or replace function pgfresh.plan_new_looks(p_type_id int, p_keys text[], p_now timestamptz) returns jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '100ms'
as $$
declare
  -- Those with a job are neither planned nor locked: their ends must not wait for the transaction of a stranger.
  v_open text[] := array(
    select p.key
    from pgfresh.pairs as p
    where p.type_id = p_type_id and p.key = any (p_keys) and p.job_id is not null);
  v_counts jsonb := pgfresh.plan_looks(
    pgfresh.looks_at(p_type_id, array(select k from unnest(p_keys) as k where k <> all (v_open))), p_now);
begin
  return v_counts || jsonb_build_object('merged', (v_counts ->> 'merged')::int + cardinality(v_open));
end
$$;
comment on function pgfresh.plan_new_looks(int, text[], timestamptz) is
  'Looks at pairs of a data type that someone has just begun to view. Leaves them to the planner if their table is '
  'locked for more than 100 ms. A part of subscribing.';

insert into pgfresh.migrations (kind, name, hash) values ('functions'::text, 'subscribe'::text, '7c300aba0f8d0bb5a4129335975373ae2b9f318665fe1dc674fc7ba5272aa07c'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- functions sweeps
/*
  What has just timed out is left to the next sweep. So after a timeout is noted the sweep goes on behind that type.
*/
create or replace function pgfresh.types_left_out(p_now timestamptz) returns int[]
language sql stable
set search_path = pg_catalog, pg_temp
as $$ select array(select t.type_id from pgfresh.type_timeout as t where t.last_at > p_now - interval '1 minute') $$;
comment on function pgfresh.types_left_out(timestamptz) is
  'Data types that have timed out within a minute, which the sweep leaves out. A part of the planner.';

create or replace function pgfresh.next_swept_type() returns int
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select p.type_id
  from pgfresh.pairs as p
  cross join pgfresh.planner_state as s
  where p.demanded and (p.type_id, p.key) > (s.sweep_type, s.sweep_key)
    and not p.type_id = any (pgfresh.types_left_out(pgfresh.clock()))
  order by p.type_id, p.key
  limit 1
$$;
comment on function pgfresh.next_swept_type() is
  'The data type with whose pairs the next chunk of the sweep begins; null at its end.';

create or replace function pgfresh.check_and_queue_stale_data(p_limit int default 10000, p_alone boolean default false)
returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
  v_began timestamptz := clock_timestamp();
  v_now timestamptz := pgfresh.clock();
  v_state pgfresh.planner_state;
  v_counts jsonb;
  v_looks pgfresh.looks[];
  v_last_type int;
  v_last_key text;
  v_read int;
  v_done boolean;
  v_emptied jsonb;
  v_left_out int[] := pgfresh.types_left_out(v_now);
  v_alone int := case when p_alone then pgfresh.next_swept_type() end;
begin
  perform pgfresh.require_primary();
  perform pgfresh.require_range('p_limit', p_limit, 1, 10000);
  if not pg_try_advisory_xact_lock(7041, 1) then
    return jsonb_build_object('skipped', 'locked', 'done', false);
  end if;
  perform pgfresh.limit_lock_waits();
  perform pgfresh.fold_demand(v_now);
  perform pgfresh.cool_down(v_now);
  select * into v_state from pgfresh.planner_state;
  select
    coalesce(array_agg(
      row(t.type_id, t.rests, t.keys, null, t.jobs, t.next_ask, t.confirmed, t.rows, t.due, null)::pgfresh.looks
      order by t.type_id
    ) filter (where not t.type_id = any (v_left_out)), '{}'),
    coalesce(sum(t.count), 0), max(t.type_id), (array_agg(t.keys[cardinality(t.keys)] order by t.type_id desc))[1],
    -- As with deletions, a few are nothing to speak of.
    jsonb_object_agg(t.type_id, jsonb_build_array(t.emptied, t.viewed))
      filter (where t.emptied > greatest(10, 0.25 * t.viewed))
  into v_looks, v_read, v_last_type, v_last_key, v_emptied
  from (
    select p.type_id, count(*)::int as count, bool_or(p.job_id is not null or p.next_ask_at > v_now) as rests,
      array_agg(p.key) as keys, array_agg(p.job_id) as jobs, array_agg(p.next_ask_at) as next_ask,
      array_agg(p.confirmed) as confirmed, array_agg(p.row_time) as rows, array_agg(p.due_at) as due,
      count(*) filter (where p.viewers > 0) as viewed, count(*) filter (where p.viewers > 0 and p.emptied) as emptied
    from (
      select p.type_id, p.key, p.job_id, p.next_ask_at, p.due_at, p.viewers,
        p.row_at <= p.empty_at and p.empty_at > v_now - interval '5 minutes' as emptied,
        pgfresh.confirmed_of(p) as confirmed, pgfresh.row_time_of(p) as row_time
      from pgfresh.pairs as p
      where p.demanded and (p.type_id, p.key) > (v_state.sweep_type, v_state.sweep_key)
      order by p.type_id, p.key
      limit p_limit
    ) as p
    where v_alone is null or p.type_id <= v_alone
    group by p.type_id
  ) as t;
  v_done := v_read < p_limit and v_alone is null;
  v_counts := pgfresh.plan_looks(v_looks, v_now);
  perform pgfresh.record_run('sweep', coalesce(v_state.sweep_started_at, v_now),
    1000 * extract(epoch from clock_timestamp() - v_began), v_counts);
  update pgfresh.planner_state
  set sweep_started_at = case when not v_done then coalesce(v_state.sweep_started_at, v_now) end,
    sweep_type = case when v_done then 0 else coalesce(v_last_type, sweep_type) end,
    sweep_key = case when v_done then '' else coalesce(v_last_key, sweep_key) end;
  if v_emptied is not null then
    perform pgfresh.warn('many_empty', r.data_type,
      format('Within five minutes the source %s has said of %s of %s viewed keys of %s that there is nothing, '
        'where there are rows; the rows are kept', r.source, e.value ->> 0, e.value ->> 1, r.data_type),
      'See whether the provider has lost its data. If the answers are true, let the data type say '
      'empty: { rows: ''delete'' }.')
    from jsonb_each(v_emptied) as e
    join pgfresh.data_type_registry as r on r.type_id = e.key::int;
  end if;
  return v_counts || jsonb_build_object('done', v_done);
end
$$;
comment on function pgfresh.check_and_queue_stale_data(int, boolean) is
  'The sweep: asks the staleness functions about the next p_limit demanded pairs, with p_alone of one data type only, '
  'so that rows which others wrote are seen, and queues what is missing or stale. '
  'Goes on where the last call stopped; {"done": true} says that all have had their turn. '
  'Returns how many were checked, stale, missing, queued, merged, gated, failed and skipped, and why.';

insert into pgfresh.migrations (kind, name, hash) values ('functions'::text, 'sweeps'::text, 'a511fc6247852c1f126feb05248a41f0f379c94cda0c63a47df14f303a6d7ad4'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- functions ticks
create or replace function pgfresh.record_run(
  p_kind text, p_started_at timestamptz, p_ms double precision, p_counts jsonb)
returns void
language sql
set search_path = pg_catalog, pg_temp
as $$
  insert into pgfresh.planner_run as r (kind, started_at, last_at, calls, ms, counts)
  values (p_kind, p_started_at, pgfresh.clock(), 1, p_ms, p_counts)
  on conflict (kind, started_at) do update
  set last_at = excluded.last_at, calls = r.calls + 1, ms = r.ms + excluded.ms,
    counts = pgfresh.add_counts(r.counts, excluded.counts)
$$;
comment on function pgfresh.record_run(text, timestamptz, double precision, jsonb) is
  'Adds a call of the planner to its record.';

/*
  Pairs that somebody else has locked keep their entries, and do not take the place of others: then it reads on.
  An entry whose pair is not due is taken away too, and means nothing.
  Pairs are read by the keys of a data type, because one walk of the index finds many.
*/
create or replace function pgfresh.take_due(
  p_now timestamptz, p_limit int, p_types int[], out looks pgfresh.looks[], out taken int)
language plpgsql
set search_path = pg_catalog, pg_temp
-- Planned once for any number of entries: by the index, and what was read is put together by a hash.
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_nestloop = off
set enable_mergejoin = off
set jit = off
as $$
declare
  v_read record;
  v_locked record;
  v_after timestamptz := '-infinity'; v_after_type int := 0; v_after_key text := '';
begin
  looks := '{}';
  taken := 0;
  loop
    select array_agg(d.ctid) as entries, array_agg(d.type_id) as types, array_agg(d.key) as keys,
      max(d.due_at) as last, count(*)::int as count
    into v_read
    from (
      select d.ctid, d.*
      from pgfresh.due as d
      where d.due_at <= p_now and (d.due_at, d.type_id, d.key) > (v_after, v_after_type, v_after_key)
        and (p_types is null or d.type_id = any (p_types))
      order by d.due_at, d.type_id, d.key
      limit p_limit - taken
    ) as d;
    exit when v_read.count = 0;
    with locked as materialized (
      select p.*
      from (
        select t.type_id, array_agg(t.key) as keys
        from unnest(v_read.types, v_read.keys) as t(type_id, key)
        group by t.type_id
      ) as t
      cross join lateral (
        select p.type_id, p.key, p.job_id, p.next_ask_at, p.due_at, p.ctid as place,
          pgfresh.confirmed_of(p) as confirmed, pgfresh.row_time_of(p) as row_time,
          p.demanded and p.due_at <= p_now as is_due
        from pgfresh.pairs as p
        where p.type_id = t.type_id and p.key = any (t.keys)
        for update skip locked
      ) as p
    ), entries as materialized (
      -- Nearly always no one has locked any of them, and all of what was read goes.
      select case
        when (select count(*) from locked) = v_read.count then v_read.entries
        else array(
          select d.entry
          from unnest(v_read.entries, v_read.types, v_read.keys) as d(entry, type_id, key)
          join locked as l on l.type_id = d.type_id and l.key = d.key)
      end as places
    ), gone as (
      delete from pgfresh.due where ctid = any ((select e.places from entries as e)::tid[])
    )
    select (select cardinality(e.places) from entries as e) as count,
      array(
        select row(
          l.type_id, bool_or(l.job_id is not null or l.next_ask_at > p_now), array_agg(l.key), array_agg(l.place),
          array_agg(l.job_id), array_agg(l.next_ask_at), array_agg(l.confirmed), array_agg(l.row_time),
          array_agg(l.due_at), null
        )::pgfresh.looks
        from locked as l
        where l.is_due
        group by l.type_id
      ) as looks
    into v_locked;
    looks := looks || v_locked.looks;
    taken := taken + v_locked.count;
    exit when v_read.count = v_locked.count or taken >= p_limit;
    v_after := v_read.last;
    v_after_type := v_read.types[v_read.count];
    v_after_key := v_read.keys[v_read.count];
  end loop;
end
$$;
comment on function pgfresh.take_due(timestamptz, int, int[]) is
  'Takes the entries that are due, and locks and reads their pairs. A part of the tick.';

-- Processes of pgfresh come with a limit of their own. Others must not wait for a lock of a stranger either.
create or replace function pgfresh.limit_lock_waits() returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if current_setting('lock_timeout') = '0' then
    perform set_config('lock_timeout', '100ms', true);
  end if;
end
$$;
comment on function pgfresh.limit_lock_waits() is
  'Sets lock_timeout to 100 ms until the end of the transaction, if it has none. A part of the planner.';

create or replace function pgfresh.types_to_ask() returns table (type_id int, data_type text)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select r.type_id, r.data_type
  from pgfresh.data_type_registry as r
  left join pgfresh.type_timeout as t on t.type_id = r.type_id
  where not pgfresh.is_quarantined(r.type_id, (select pgfresh.clock()))
  order by t.last_at nulls first, r.type_id
$$;
comment on function pgfresh.types_to_ask() is
  'The data types that are not in quarantine; those that have timed out lately come last.';

create or replace function pgfresh.plan_due_pairs(p_limit int default 2000, p_data_types text[] default null)
returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_began timestamptz := clock_timestamp();
  v_now timestamptz := pgfresh.clock();
  v_types int[];
  v_quarantined int[] := '{}';
  v_counts jsonb := '{}';
  v_todo record;
  v_due record;
  v_folded int := 0;
begin
  perform pgfresh.require_primary();
  perform pgfresh.require_range('p_limit', p_limit, 1, 10000);
  if not pg_try_advisory_xact_lock(7041, 1) then
    return jsonb_build_object('skipped', 'locked');
  end if;
  perform pgfresh.limit_lock_waits();
  if p_data_types is not null then
    v_types := array(select r.type_id from pgfresh.data_type_registry as r where r.data_type = any (p_data_types));
  end if;
  -- What there is to do, in one statement, because each costs more to begin than to run. Each answer is the first entry
  -- of an index: without the order, all pairs would be read to find out that none of them is meant.
  select
    (select true from pgfresh.nodes as n where n.lease_until <= v_now limit 1) as nodes,
    (select true from pgfresh.demand_change as c order by c.id limit 1) as changes,
    (select true from pgfresh.demand_waiting as w order by w.next_at limit 1) as waiting,
    (select true from pgfresh.pairs as p where p.warm_until <= v_now order by p.warm_until limit 1) as cold,
    (
      select true
      from pgfresh.pairs as p
      where p.unlisted_at <= v_now - interval '5 seconds'
      order by p.unlisted_at
      limit 1
    ) as unlisted,
    (select true from pgfresh.hold as h limit 1) as held
  into v_todo;
  -- Not for some types: what takes long here is no fault of theirs.
  if coalesce(p_data_types, '{}') = '{}' then
    if v_todo.nodes and not pgfresh.is_loss_held(v_now) then
      perform pgfresh.expire_nodes(v_now);
    end if;
    if v_todo.changes or v_todo.waiting or v_todo.nodes then
      v_folded := pgfresh.fold_demand(v_now);
    end if;
    if v_todo.cold then
      perform pgfresh.cool_down(v_now);
    end if;
  end if;
  if v_todo.unlisted then
    perform pgfresh.list_again(v_now, v_types);
  end if;
  if v_todo.held then
    perform pgfresh.release_held(v_now, p_limit, v_types);
  end if;
  select * into v_due from pgfresh.take_due(v_now, p_limit, v_types);
  if v_due.looks <> '{}' then
    v_counts := pgfresh.plan_looks(v_due.looks, v_now);
  end if;
  if v_due.looks <> '{}' or v_folded > 0 then
    perform pgfresh.record_run('tick', date_trunc('minute', v_now),
      1000 * extract(epoch from clock_timestamp() - v_began), v_counts);
  end if;
  if exists (select from pgfresh.type_timeout) then
    v_quarantined := array(select q.type_id from pgfresh.quarantined_types() as q);
  end if;
  return v_counts || jsonb_build_object('more', v_due.taken = p_limit)
    || case when v_quarantined = '{}' then '{}' else jsonb_build_object('quarantined', v_quarantined) end;
end
$$;
comment on function pgfresh.plan_due_pairs(int, text[]) is
  'The tick: takes note of who came and went, and looks at the demanded pairs that are due, at most p_limit. '
  'With data types it only looks at their pairs; with none of them ({}) it only takes note. '
  'Call it every second, and again at once while it says {"more": true}. '
  'Waits at most 100 ms for a lock on a table, if lock_timeout is not set. '
  '"quarantined" has the numbers of the data types that are to be probed; see probe_type.';

create or replace function pgfresh.check_and_queue_stale_batch(p_key text, p_data_types text[]) returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_user text := pgfresh.require_viewer(null);
  v_type record;
  v_keys text[];
  v_answer jsonb;
  v_counts jsonb := '{}';
begin
  perform pgfresh.require_primary();
  perform pgfresh.count_call(v_user);
  perform pgfresh.require_key(p_key);
  if p_data_types is null or cardinality(p_data_types) not between 1 and 50 then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      'p_data_types must name 1 to 50 data types',
      'Pass the data types that are on the screen.');
  end if;
  for v_type in
    select pgfresh.require_type(named.data_type) as registered
    from (select distinct data_type from unnest(p_data_types) as data_type order by data_type) as named
  loop
    begin
      v_keys := pgfresh.admit_new_keys(v_type.registered, array[p_key]);
      perform pgfresh.make_pairs((v_type.registered).type_id, v_keys);
      v_answer := pgfresh.plan_new_looks((v_type.registered).type_id, v_keys, pgfresh.clock());
    exception when lock_not_available then
      -- Its table of keys is locked. The other types do not wait for it.
      v_answer := jsonb_build_object('skipped', 'locked');
    end;
    v_counts := v_counts || jsonb_build_object((v_type.registered).data_type, v_answer);
  end loop;
  return v_counts;
end
$$;
comment on function pgfresh.check_and_queue_stale_batch(text, text[]) is
  'Looks at one key in several data types at once and queues what is missing or stale: for the moment of subscribing. '
  'A data type whose table is locked is left to the planner. '
  'The priority is that of the viewers; the caller cannot choose it.';

create or replace function pgfresh.clear_planner_runs(p_keep interval default '7 days') returns int
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_count int;
begin
  perform pgfresh.require_range('p_keep in seconds', extract(epoch from p_keep), 60, 315360000);
  delete from pgfresh.planner_run where started_at < (select pgfresh.clock()) - p_keep;
  get diagnostics v_count = row_count;
  return v_count;
end
$$;
comment on function pgfresh.clear_planner_runs(interval) is
  'Forgets the planner''s runs that are older than this. Returns how many.';

insert into pgfresh.migrations (kind, name, hash) values ('functions'::text, 'ticks'::text, '4ebf435ff224345ae11c179199b1930f808befebc804366f69ea60386723dad8'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- functions turn_back
create or replace function pgfresh.longest_retry_delay(p_retries int, p_priority int) returns interval
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
  select least(
    interval '24 hours',
    (case when p_priority > 0 then interval '15 seconds' else interval '1 minute' end) * power(2, least(p_retries, 20)))
$$;
comment on function pgfresh.longest_retry_delay(int, int) is
  'How long a job waits before its next try at the most: base * 2^retries (15 s viewed, 1 min background), '
  'at most 24 h.';

-- Full jitter: anything up to the doubled base, so that what failed together does not come back together.
create or replace function pgfresh.retry_delay(p_retries int, p_priority int) returns interval
language sql volatile
set search_path = pg_catalog, pg_temp
as $$ select random() * pgfresh.longest_retry_delay(p_retries, p_priority) $$;
comment on function pgfresh.retry_delay(int, int) is
  'How long a job waits before its next try: anything up to its longest_retry_delay.';

create or replace function pgfresh.failure_hold(p_ttl interval, p_fails int) returns interval
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
  select least(
    interval '24 hours',
    greatest(p_ttl, interval '1 minute') * power(2, least(greatest(p_fails, 1), 12) - 1))
$$;
comment on function pgfresh.failure_hold(interval, int) is
  'How long a pair that failed for good is left alone: its TTL, at least a minute, '
  'doubled by each failure in a row, at most 24 h.';

create or replace function pgfresh.is_refused_answer(p_outcome text) returns boolean
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
  select p_outcome in ('schema', 'sanity', 'wrong_key', 'too_large', 'write_conflict', 'suspicious', 'config') is true
$$;
comment on function pgfresh.is_refused_answer(text) is
  'Whether an outcome says that answers of a data type cannot be used as it is defined, though the source answers.';

/*
  A pair that the provider refuses must not stop its whole source. It is refused alone if the source has answered others
  since it was refused before, by this job or by the last one: then it says nothing about the API key.
*/
create or replace function pgfresh.refused_alone(p_ids bigint[]) returns bigint[]
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select coalesce(array_agg(j.id), '{}')
  from pgfresh.job as j
  join pgfresh.sources as s on s.id = j.source_id
  join pgfresh.pairs as p on p.type_id = j.type_id and p.key = j.key
  cross join lateral (
    select h.ended_at from pgfresh.history_attempt as h
    where h.id = j.id and h.outcome in ('unauthorized', 'forbidden')
    union all
    select h.ended_at from pgfresh.history_other as h
    where h.id = p.last_job and h.outcome in ('unauthorized', 'forbidden')
    order by 1 desc
    limit 1
  ) as before
  where j.id = any (p_ids) and before.ended_at <= s.last_success_at
$$;
comment on function pgfresh.refused_alone(bigint[]) is
  'Those of these jobs whose pair the provider refuses while it answers others. A part of fail_jobs.';

/*
  How a job ends other than by success, and how it comes back into the queue:
    fail_jobs       it has failed: it waits and tries again, or is failed for good
    put_back_jobs   it is not to blame: it is ready again at once, or after some times counted as a retry
    cancel_jobs     it is not wanted any more; the only one that also ends jobs that wait
  Each locks its jobs first, in the order of their ids, then decides about each, then writes.
*/
do $$ begin
  if to_regtype('pgfresh.job_end') is null then
    create type pgfresh.job_end as (
      -- What the caller says.
      id bigint, attempt int, request uuid, bytes bigint, calls int, needs int, fetch_ms int, validate_ms int,
      outcome text, error text, permanent boolean, counts boolean,
      -- What the job is.
      type_id int, key text, source_id int, api_key smallint, priority int, claimed_at timestamptz, reserved bigint,
      retries int, max_retries int, lost int, put_backs int, rerun boolean,
      -- What becomes of it.
      status text, next_at timestamptz);
  end if;
end $$;
comment on type pgfresh.job_end is
  'The end of a job other than by success. '
  'fail_jobs and put_back_jobs take its first fields as a JSON array of objects, and decide about the rest.';

create or replace function pgfresh.require_job_ends(p_ends jsonb) returns void
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  if jsonb_typeof(p_ends) is distinct from 'array' or jsonb_array_length(p_ends) > 10000
      or exists (select from jsonb_array_elements(p_ends) as e(said) where jsonb_typeof(e.said) <> 'object') then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      'p_ends must be a JSON array of at most 10000 objects',
      'Pass {"id", "attempt", "bytes", ...} for each job.');
  end if;
  -- A larger id has no token.
  if exists (
    select from jsonb_populate_recordset(null::pgfresh.job_end, p_ends) as e
    where (
      e.id between 1 and 8796093022207 and e.attempt >= 0
      and coalesce(e.bytes, 0) between 0 and 1000000000000000 and coalesce(e.calls, 0) between 0 and 1000000
      and coalesce(e.needs, 1) between 1 and 1000
      and coalesce(e.fetch_ms, 0) >= 0 and coalesce(e.validate_ms, 0) >= 0
    ) is not true
  ) then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      'each end needs an id from 1 to 8796093022207 and an attempt; bytes are from 0 to 1e15, calls from 0 to 1000000, '
      'needs from 1 to 1000, and no time is negative',
      'Pass id and attempt as the claim returned them, and what the call has cost.');
  end if;
  perform pgfresh.require_outcome(said.outcome)
  from (
    select distinct e.outcome
    from jsonb_populate_recordset(null::pgfresh.job_end, p_ends) as e
    where e.outcome is not null
  ) as said;
end
$$;
comment on function pgfresh.require_job_ends(jsonb) is 'Refuses what does not describe ends of jobs.';

-- Fence first: only a job that still runs in the given attempt, and under the given claim, is ended.
create or replace function pgfresh.lock_ends(p_ends jsonb) returns pgfresh.job_end[]
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_ids bigint[];
  v_ends pgfresh.job_end[];
begin
  perform pgfresh.require_job_ends(p_ends);
  v_ids := array(select e.id from jsonb_populate_recordset(null::pgfresh.job_end, p_ends) as e);
  select coalesce(array_agg(row(
    t.id, t.attempt, t.request, coalesce(t.bytes, 0), coalesce(t.calls, (t.bytes > 0)::int, 0), coalesce(t.needs, 1),
    t.fetch_ms, t.validate_ms, t.outcome, left(t.error, 4000), coalesce(t.permanent, false), coalesce(t.counts, false),
    t.type_id, t.key, t.source_id, coalesce(t.api_key, 1::smallint), t.priority, t.claimed_at, t.reserved,
    t.retries, t.max_retries, t.lost, t.put_backs, t.rerun,
    null, null)::pgfresh.job_end order by t.id), '{}')
  into v_ends
  from (
    select e.id, e.attempt, e.request, e.bytes, e.calls, e.needs, e.fetch_ms, e.validate_ms, e.outcome, e.error,
      e.permanent, e.counts, j.type_id, j.key, j.source_id, j.api_key, j.priority, j.claimed_at, j.reserved,
      j.retries, coalesce(r.max_retries, 0) as max_retries, j.lost, j.put_backs, j.rerun
    from pgfresh.job as j
    join jsonb_populate_recordset(null::pgfresh.job_end, p_ends) as e on e.id = j.id
    -- What is left of a data type that is gone can be ended too.
    left join pgfresh.data_type_registry as r on r.type_id = j.type_id
    where j.id = any (v_ids) and j.state = 'x' and j.attempt = e.attempt and j.request = coalesce(e.request, j.request)
    order by j.id for update of j
  ) as t;
  if cardinality(v_ends) <> (select count(distinct e.id) from unnest(v_ends) as e) then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID', 'one job twice', 'Name each job once.');
  end if;
  return v_ends;
end
$$;
comment on function pgfresh.lock_ends(jsonb) is
  'Locks the jobs that still run in the given attempts, and returns their ends with what is known of them. '
  'A part of fail_jobs and put_back_jobs.';

create or replace function pgfresh.requeue_ends(p_ends pgfresh.job_end[], p_now timestamptz) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_ids bigint[] := array(select e.id from unnest(p_ends) as e where e.status in ('retryable', 'pending'));
begin
  if v_ids = '{}' then
    return;
  end if;
  insert into pgfresh.history_attempt (
    id, ended_at, created_at, claimed_at, bytes, calls, worker, type_id, source_id, priority,
    attempt, retries, lost, fetch_ms, validate_ms, status, outcome, key, error, metadata)
  select
    j.id, p_now, j.created_at, j.claimed_at, e.bytes, e.calls, j.worker, j.type_id, j.source_id, j.priority,
    j.attempt, j.retries, j.lost, e.fetch_ms, e.validate_ms, e.status, e.outcome, j.key, e.error, j.metadata
  from pgfresh.job as j
  join unnest(p_ends) as e on e.id = j.id
  where j.id = any (v_ids);
  update pgfresh.job as j
  set state = case when e.status = 'retryable' then 'w' else 'r' end::"char", run_at = e.next_at,
    worker = null, request = null, claimed_at = null, progress_at = null, reserved = 0, api_key = null,
    -- A retry is the run that was asked for while this one ran.
    rerun = j.rerun and e.status = 'pending',
    -- It has settled with the source that it was claimed for, and goes on with the one that its data type has now.
    source_id = coalesce(
      (select r.source_id from pgfresh.data_type_registry as r where r.type_id = j.type_id), j.source_id),
    retries = j.retries + (e.status = 'retryable')::int, lost = e.lost, put_backs = e.put_backs,
    needs = greatest(j.needs, e.needs), calls_left = 0,
    error = coalesce(e.error, j.error)
  from unnest(p_ends) as e
  where j.id = any (v_ids) and j.id = e.id;
  if exists (select from unnest(p_ends) as e where e.status = 'pending') then
    perform pgfresh.wake_workers();
  end if;
end
$$;
comment on function pgfresh.requeue_ends(pgfresh.job_end[], timestamptz) is
  'Puts jobs back into the queue whose status is pending or retryable, and keeps their attempt. '
  'A part of fail_jobs and put_back_jobs.';

create or replace function pgfresh.close_ends(p_ends pgfresh.job_end[], p_now timestamptz) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_ids bigint[] := array(select e.id from unnest(p_ends) as e where e.status in ('failed', 'cancelled'));
  v_again bigint[];
  v_type record;
begin
  if v_ids = '{}' then
    return;
  end if;
  with gone as (
    delete from pgfresh.job as j
    using unnest(p_ends) as e
    where j.id = any (v_ids) and j.id = e.id
    returning j.id, j.created_at, j.claimed_at, j.worker, j.type_id, j.source_id, j.priority, j.attempt, j.retries,
      j.key, j.metadata, e.bytes, e.calls, e.lost, e.fetch_ms, e.validate_ms, e.status, e.outcome,
      coalesce(e.error, j.error) as error
  )
  insert into pgfresh.history_other (
    id, ended_at, created_at, claimed_at, bytes, calls, worker, type_id, source_id, priority,
    attempt, retries, lost, fetch_ms, validate_ms, status, outcome, key, error, metadata)
  select
    id, p_now, created_at, claimed_at, bytes, calls, worker, type_id, source_id, priority,
    attempt, retries, lost, fetch_ms, validate_ms, status, outcome, key, error, metadata
  from gone;
  for v_type in
    select e.type_id, array_agg(e.key) as keys
    from unnest(p_ends) as e
    where e.id = any (v_ids)
    group by e.type_id
    order by e.type_id
  loop
    with freed as (
      update pgfresh.pairs as p
      set last_job = p.job_id, job_id = null, fails = p.fails + (hold.status = 'failed')::int,
        outcome = hold.outcome, next_ask_at = hold.until, waits_for = null,
        due_at = case when p.demanded then least(p.due_at, hold.until) else p.due_at end
      from (
        select h.key, e.status, e.outcome,
          p_now + case
            when e.status = 'cancelled' then least(r.ttl, interval '24 hours')
            else pgfresh.failure_hold(r.ttl, h.fails + 1)
          end as until
        from pgfresh.pairs as h
        join unnest(p_ends) as e on e.type_id = h.type_id and e.key = h.key
        join pgfresh.data_type_registry as r on r.type_id = h.type_id
        where h.type_id = v_type.type_id and h.key = any (v_type.keys)
      ) as hold
      where p.type_id = v_type.type_id and p.key = any (v_type.keys) and p.key = hold.key
      returning p.key, p.demanded, p.due_at, hold.until, hold.outcome
    ), refused as (
      insert into pgfresh.refused_pair (type_id, key)
      select v_type.type_id, f.key from freed as f where pgfresh.is_refused_answer(f.outcome) order by f.key
      on conflict do nothing
    )
    insert into pgfresh.due (due_at, type_id, key)
    select f.until, v_type.type_id, f.key from freed as f where f.demanded and f.due_at = f.until
    on conflict do nothing;
  end loop;
  v_again := array(select e.id from unnest(p_ends) as e where e.status = 'failed' and e.rerun);
  if v_again <> '{}' then
    perform pgfresh.run_again(v_again, p_now);
  end if;
end
$$;
comment on function pgfresh.close_ends(pgfresh.job_end[], timestamptz) is
  'Moves jobs to the history whose status is failed or cancelled, and sets when their pairs are asked for again. '
  'A part of fail_jobs, put_back_jobs and cancel_jobs.';

-- After the rows of the sources, if those are needed at all: who needs both takes them in this order.
create or replace function pgfresh.settle_ends(p_ends pgfresh.job_end[]) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_total record;
begin
  for v_total in
    select e.source_id, sum(e.reserved)::bigint as reserved, sum(e.bytes)::bigint as bytes,
      sum(e.calls)::bigint as calls
    from unnest(p_ends) as e
    group by e.source_id
    order by e.source_id
  loop
    perform pgfresh.settle_usage(v_total.source_id, v_total.reserved, v_total.bytes, v_total.calls);
  end loop;
end
$$;
comment on function pgfresh.settle_ends(pgfresh.job_end[]) is
  'Books what jobs have cost, source by source in their order. A part of fail_jobs, put_back_jobs and cancel_jobs.';

create or replace function pgfresh.mark_ends(p_ends pgfresh.job_end[]) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  perform pgfresh.mark_pairs(e.type_id, array_agg(e.key)) from unnest(p_ends) as e group by e.type_id;
end
$$;
comment on function pgfresh.mark_ends(pgfresh.job_end[]) is
  'Tells those who watch the pairs that their state has changed. A part of fail_jobs, put_back_jobs and cancel_jobs.';

-- Each time may have cost a call, so it does not go on without a bound, whoever puts it back and why.
create or replace function pgfresh.put_back_end(p_end pgfresh.job_end, p_now timestamptz) returns pgfresh.job_end
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  p_end.next_at := p_now;
  if p_end.put_backs < 5 then
    p_end.put_backs := p_end.put_backs + 1;
    p_end.status := 'pending';
  elsif p_end.retries >= p_end.max_retries then
    p_end.status := 'failed';
  else
    p_end.status := 'retryable';
    if not p_end.rerun then
      p_end.next_at := p_now + pgfresh.retry_delay(p_end.retries, p_end.priority);
    end if;
  end if;
  return p_end;
end
$$;
comment on function pgfresh.put_back_end(pgfresh.job_end, timestamptz) is
  'Decides about a job that is put back: ready at once, or after the fifth time as if it had failed. '
  'A part of fail_jobs and put_back_jobs.';

/*
  What the provider refuses because of an API key has not failed: it waits for a key that is accepted. But one that
  tried a refused key has used up one of its retries, and comes after others: it may be this pair that is refused, and
  then the source would wait for it for ever.
*/
create or replace function pgfresh.judge_denials(p_ends pgfresh.job_end[], p_now timestamptz)
returns pgfresh.job_end[]
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_ends pgfresh.job_end[] := p_ends;
  v_end pgfresh.job_end;
  v_denied bigint[] := array(select e.id from unnest(p_ends) as e where e.outcome in ('unauthorized', 'forbidden'));
  v_alone bigint[];
  v_key record;
  v_opened_at timestamptz;
  v_until timestamptz;
begin
  if v_denied = '{}' then
    return v_ends;
  end if;
  v_alone := pgfresh.refused_alone(v_denied);
  for i in 1..cardinality(v_ends) loop
    v_end := v_ends[i];
    continue when v_end.id <> all (v_alone);
    v_end.status := 'failed';
    v_ends[i] := v_end;
  end loop;
  for v_key in
    select e.source_id, e.api_key, e.outcome, array_agg(e.type_id || ' ' || e.key) as names,
      max(e.claimed_at) as claimed_at, min(e.error) as error
    from unnest(p_ends) as e
    where e.id = any (v_denied) and e.id <> all (v_alone)
    group by e.source_id, e.api_key, e.outcome
    order by e.source_id, e.api_key, e.outcome
  loop
    select b.opened_at
    into v_opened_at
    from pgfresh.breaker as b
    where b.source_id = v_key.source_id and b.api_key = v_key.api_key;
    continue when not pgfresh.note_trouble(
      v_key.source_id, v_key.api_key, null, 'denied', v_key.names,
      case when v_key.outcome = 'unauthorized' then 1 else 3 end, v_key.claimed_at, v_key.error, p_now);
    select b.paused_until + interval '30 seconds'
    into v_until
    from pgfresh.breaker as b
    where b.source_id = v_key.source_id and b.api_key = v_key.api_key;
    for i in 1..cardinality(v_ends) loop
      v_end := v_ends[i];
      continue when v_end.source_id <> v_key.source_id or v_end.api_key <> v_key.api_key
        or v_end.outcome <> v_key.outcome or v_end.id = any (v_alone);
      if v_end.claimed_at >= v_opened_at then
        v_end.status := case when v_end.retries >= v_end.max_retries then 'failed' else 'retryable' end;
        v_end.next_at := v_until;
      else
        v_end := pgfresh.put_back_end(v_end, p_now);
      end if;
      v_ends[i] := v_end;
    end loop;
  end loop;
  return v_ends;
end
$$;
comment on function pgfresh.judge_denials(pgfresh.job_end[], timestamptz) is
  'Decides about ends of which the provider does not accept the API key, and counts them for the key. '
  'A part of fail_jobs.';

-- The data type of refused answers is left alone where they are too many in a row.
create or replace function pgfresh.note_refusals(p_ends pgfresh.job_end[], p_now timestamptz) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_type record;
begin
  for v_type in
    select e.type_id, r.source_id, s.breaker_failures, s.breaker_pause, array_agg(e.type_id || ' ' || e.key) as names,
      max(e.claimed_at) as claimed_at, min(e.error) as error, min(e.key) filter (where e.status = 'failed') as probe
    from unnest(p_ends) as e
    join pgfresh.data_type_registry as r on r.type_id = e.type_id
    join pgfresh.sources as s on s.id = r.source_id
    where pgfresh.is_refused_answer(e.outcome)
    group by e.type_id, r.source_id, s.breaker_failures, s.breaker_pause
    order by e.type_id
  loop
    perform pgfresh.note_trouble(
      v_type.source_id, null, v_type.type_id, 'refused', v_type.names, v_type.breaker_failures, v_type.claimed_at,
      v_type.error, p_now);
    -- One of them tries when the pause ends, after those that wait already: or none would, if all are held.
    with pause as (
      select b.paused_until + interval '30 seconds' as until
      from pgfresh.breaker as b
      -- Paused just now, and not by those before it.
      where b.type_id = v_type.type_id and b.paused_until = p_now + v_type.breaker_pause
    ), probe as (
      update pgfresh.pairs as p
      set next_ask_at = pause.until, due_at = case when p.demanded then pause.until else p.due_at end
      from pause
      where p.type_id = v_type.type_id and p.key = v_type.probe and p.job_id is null and p.next_ask_at > pause.until
      returning p.demanded, pause.until
    )
    insert into pgfresh.due (due_at, type_id, key)
    select p.until, v_type.type_id, v_type.probe from probe as p where p.demanded
    on conflict do nothing;
  end loop;
end
$$;
comment on function pgfresh.note_refusals(pgfresh.job_end[], timestamptz) is
  'Counts refused answers for their data types. A part of fail_jobs.';

create or replace function pgfresh.note_failures(p_ends pgfresh.job_end[], p_now timestamptz) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  perform pgfresh.note_failure(f.source_id, f.ids, f.retries, f.claimed_at, f.error, p_now)
  from (
    select e.source_id, array_agg(e.id) as ids, count(*) filter (where e.status = 'retryable')::int as retries,
      max(e.claimed_at) as claimed_at, min(e.error) as error
    from unnest(p_ends) as e
    where e.counts
    group by e.source_id
    order by e.source_id
  ) as f;
end
$$;
comment on function pgfresh.note_failures(pgfresh.job_end[], timestamptz) is
  'Counts failures of sources for their breakers. A part of fail_jobs.';

/*
  A table that refuses a row because what it refers to is missing says what the planner could not know: the row of a
  prerequisite has gone since the job was opened. Trying again is in vain unless that row is fetched first.
*/
create or replace function pgfresh.queue_lost_prerequisites(p_ends pgfresh.job_end[]) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '100ms'
as $$
declare
  v_needs record;
begin
  for v_needs in
    select r.data_type, res.missing_sql, array_agg(e.key) as keys, greatest(0, max(e.priority)) as priority
    from unnest(p_ends) as e
    join pgfresh.type_dependency as d on d.type_id = e.type_id
    join pgfresh.data_type_registry as r on r.type_id = d.needs_id
    join pgfresh.type_resolution as res on res.type_id = d.needs_id
    where e.outcome = 'dependency'
    group by r.type_id, r.data_type, res.missing_sql
    order by r.type_id
  loop
    begin
      perform pgfresh.queue_refreshes(
        v_needs.data_type, array(select pgfresh.ask_keys(v_needs.missing_sql, v_needs.keys)), v_needs.priority);
    exception when others then
      -- The end must not fail by it. The planner asks again when the job has failed for good.
      null;
    end;
  end loop;
end
$$;
comment on function pgfresh.queue_lost_prerequisites(pgfresh.job_end[]) is
  'Queues the missing prerequisites of jobs that ended with the outcome dependency. A part of fail_jobs.';

create or replace function pgfresh.fail_jobs(p_ends jsonb)
returns table (id bigint, status text, next_retry_at timestamptz)
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_nestloop = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
  v_now timestamptz := pgfresh.clock();
  v_ends pgfresh.job_end[] := pgfresh.lock_ends(p_ends);
  v_end pgfresh.job_end;
begin
  if v_ends = '{}' then
    return;
  end if;
  for i in 1..cardinality(v_ends) loop
    v_end := v_ends[i];
    v_end.outcome := coalesce(v_end.outcome, 'failed');
    v_end.status := case when v_end.permanent or v_end.retries >= v_end.max_retries then 'failed' else 'retryable' end;
    -- A refresh that was forced while it ran does not wait.
    v_end.next_at := case
      when v_end.rerun then v_now
      else v_now + pgfresh.retry_delay(v_end.retries, v_end.priority)
    end;
    v_ends[i] := v_end;
  end loop;
  -- Before the rows and ledgers of the sources: it reads users' tables, and others would wait with it.
  if exists (select from unnest(v_ends) as e where e.outcome = 'dependency') then
    perform pgfresh.queue_lost_prerequisites(v_ends);
  end if;
  -- The rows of the sources, each once and in their order, before anything of their ledgers.
  perform
  from pgfresh.sources as s
  where s.id = any (array(
    select e.source_id
    from unnest(v_ends) as e
    where e.counts or e.outcome in ('unauthorized', 'forbidden') or pgfresh.is_refused_answer(e.outcome)
    union all
    -- A data type that has moved is counted by the breaker of the source that it has now.
    select r.source_id
    from unnest(v_ends) as e
    join pgfresh.data_type_registry as r on r.type_id = e.type_id
    where pgfresh.is_refused_answer(e.outcome)
  ))
  order by s.id for no key update;
  v_ends := pgfresh.judge_denials(v_ends, v_now);
  perform pgfresh.mark_ends(v_ends);
  perform pgfresh.requeue_ends(v_ends, v_now);
  perform pgfresh.close_ends(v_ends, v_now);
  perform pgfresh.note_refusals(v_ends, v_now);
  perform pgfresh.note_failures(v_ends, v_now);
  perform pgfresh.settle_ends(v_ends);
  return query
    select e.id, e.status, case when e.status = 'retryable' then e.next_at end from unnest(v_ends) as e;
end
$$;
comment on function pgfresh.fail_jobs(jsonb) is
  'Ends attempts that have failed. p_ends is a JSON array with an object for each: id and attempt as the claim '
  'returned them, and if they are known request (the name of its claim, required when claiming with p_alone), bytes, '
  'calls (how often the provider was called; once where bytes were used, if nothing is said), '
  'needs (how many calls it takes, if that is known to be more), fetch_ms, validate_ms, '
  'outcome and error; permanent: true if another try changes nothing; '
  'counts: true if it is a failure of the source, which its breaker counts. '
  'What is not permanent waits and is tried again up to the type''s max_retries. '
  'Returns what became of each that was still running in the given attempt.';

create or replace function pgfresh.put_back_jobs(p_ends jsonb, p_lost boolean default false)
returns table (id bigint, status text, next_retry_at timestamptz)
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_nestloop = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
  v_now timestamptz := pgfresh.clock();
  v_ends pgfresh.job_end[];
  v_end pgfresh.job_end;
begin
  if p_lost is null then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      'p_lost must be true or false',
      'Pass true only where the holder of the jobs is gone.');
  end if;
  v_ends := pgfresh.lock_ends(p_ends);
  if v_ends = '{}' then
    return;
  end if;
  for i in 1..cardinality(v_ends) loop
    v_end := v_ends[i];
    v_end.outcome := coalesce(v_end.outcome, case when p_lost then 'worker_lost' else 'interrupted' end);
    if p_lost then
      -- Nobody knows whether a lost call was made and what it has cost, so it counts as it was reserved.
      v_end.bytes := v_end.reserved;
      v_end.calls := 1;
      v_end.lost := v_end.lost + 1;
      v_end.status := case when v_end.lost >= 3 then 'failed' else 'pending' end;
      v_end.next_at := v_now;
    else
      v_end := pgfresh.put_back_end(v_end, v_now);
    end if;
    v_ends[i] := v_end;
  end loop;
  if p_lost or exists (select from unnest(v_ends) as e where e.status <> 'pending') then
    perform pgfresh.mark_ends(v_ends);
  end if;
  perform pgfresh.requeue_ends(v_ends, v_now);
  perform pgfresh.close_ends(v_ends, v_now);
  perform pgfresh.settle_ends(v_ends);
  return query
    select e.id, e.status, case when e.status = 'retryable' then e.next_at end from unnest(v_ends) as e;
end
$$;
comment on function pgfresh.put_back_jobs(jsonb, boolean) is
  'Makes running jobs ready again at once, without counting a retry: the job is not to blame. '
  'That happens to a job five times at most; from then on it counts as a retry and waits like one. '
  'p_ends is as for fail_jobs, without permanent and counts. '
  'p_lost says that their holder is gone: what they have cost is booked as it was reserved, '
  'and at the third time the job fails. '
  'Returns what became of each that was still running in the given attempt.';

create or replace function pgfresh.cancel_jobs(p_ids bigint[]) returns bigint
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_nestloop = off
set enable_mergejoin = off
as $$
declare
  v_now timestamptz := pgfresh.clock();
  v_ids bigint[];
  v_ends pgfresh.job_end[];
begin
  if p_ids is null or array_position(p_ids, null) is not null then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      'p_ids must be an array of ids without a null',
      'Pass the jobs to cancel.');
  end if;
  -- All of them first: the ledger, which is settled below, is locked after jobs by everybody.
  v_ids := array(select j.id from pgfresh.job as j where j.id = any (p_ids) order by j.id for update);
  for v_first in 1..cardinality(v_ids) by 10000 loop
    select array_agg(row(
      j.id, j.attempt, j.request,
      -- Nobody knows what a cancelled call has cost, so it counts as it was reserved.
      j.reserved, (j.state = 'x')::int, 1,
      null, null, 'cancelled', null, false, false,
      j.type_id, j.key, j.source_id, coalesce(j.api_key, 1::smallint), j.priority, j.claimed_at, j.reserved,
      j.retries, 0, j.lost, j.put_backs, j.rerun,
      'cancelled', v_now)::pgfresh.job_end order by j.id)
    into v_ends
    from pgfresh.job as j
    where j.id = any (v_ids[v_first:v_first + 9999]);
    perform pgfresh.mark_ends(v_ends);
    perform pgfresh.close_ends(v_ends, v_now);
    perform pgfresh.settle_ends(v_ends);
  end loop;
  return cardinality(v_ids);
end
$$;
comment on function pgfresh.cancel_jobs(bigint[]) is
  'Cancels open jobs, whatever their state, and returns how many there were. '
  'What a running one does afterwards has no effect; what it has cost is booked as it was reserved.';

insert into pgfresh.migrations (kind, name, hash) values ('functions'::text, 'turn_back'::text, 'e4f1f7b6dde4b0bcf674d77311174a011b2fda4f93c509d5c2292e3197608726'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- functions viewer_counts
/*
  How demand reaches pairs and their jobs: the counts of viewers are added up, pairs that nobody views any more cool
  down, and what only they wanted is cancelled. Parts of the tick. Nothing here waits: a pair or a job that is locked is
  left to a later tick.
*/
create or replace function pgfresh.fold_demand(p_now timestamptz) returns int
language plpgsql
set search_path = pg_catalog, pg_temp
-- Pairs and changes are reached by their keys, whatever the statistics say:
-- both tables may have been filled a moment ago.
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
declare
  v_began timestamptz := clock_timestamp();
  v_waiting boolean := exists (select from pgfresh.demand_waiting);
  v_noted record;
  v_locked record;
  v_new record;
  v_types int[] := '{}'; v_keys text[] := '{}'; v_deltas bigint[] := '{}';
  v_folded record;
begin
  if not v_waiting and not exists (select from pgfresh.demand_change) then
    return 0;
  end if;
  with taken as (
    delete from pgfresh.demand_change as c
    where c.id = any (array(select c.id from pgfresh.demand_change as c order by c.id limit 5000))
    returning c.type_id, c.key, c.delta
  )
  select array_agg(t.type_id) as types, array_agg(t.key) as keys, array_agg(t.delta) as deltas,
    array_agg(t.tries) as tries
  into v_noted
  from (select t.type_id, t.key, sum(t.delta) as delta, 0 as tries from taken as t group by t.type_id, t.key) as t;
  if v_waiting then
    with again as (
      delete from pgfresh.demand_waiting as w
      using (
        (
          select n.type_id, n.key
          from pgfresh.demand_waiting as n
          where n.next_at <= p_now
          order by n.next_at
          limit 1000
        )
        union
        -- All of a pair at once: viewers must not leave before they came.
        select n.type_id, n.key from unnest(v_noted.types, v_noted.keys) as n(type_id, key)
      ) as n
      where w.type_id = n.type_id and w.key = n.key
      returning w.type_id, w.key, w.delta, w.tries
    )
    select array_agg(t.type_id) as types, array_agg(t.key) as keys, array_agg(t.delta) as deltas,
      array_agg(t.tries) as tries
    into v_noted
    from (
      select t.type_id, t.key, sum(t.delta)::bigint as delta, max(t.tries) as tries
      from (
        select a.type_id, a.key, a.delta, a.tries from again as a
        union all
        select n.type_id, n.key, n.delta, n.tries
        from unnest(v_noted.types, v_noted.keys, v_noted.deltas, v_noted.tries) as n(type_id, key, delta, tries)
      ) as t
      group by t.type_id, t.key
    ) as t;
  end if;
  -- Those that are not there are added, and then locked too.
  for v_round in 1..2 loop
    exit when v_noted.types is null;
    with locked as (
      select n.*, p.is_ours
      from unnest(v_noted.types, v_noted.keys, v_noted.deltas, v_noted.tries) as n(type_id, key, delta, tries)
      left join lateral (
        select true as is_ours
        from pgfresh.pairs as p
        where p.type_id = n.type_id and p.key = n.key
        for update skip locked
      ) as p on true
    )
    select array_agg(l.type_id) filter (where l.is_ours) as types, array_agg(l.key) filter (where l.is_ours) as keys,
      array_agg(l.delta) filter (where l.is_ours) as deltas,
      array_agg(l.type_id) filter (where l.is_ours is null) as left_types,
      array_agg(l.key) filter (where l.is_ours is null) as left_keys,
      array_agg(l.delta) filter (where l.is_ours is null) as left_deltas,
      array_agg(l.tries) filter (where l.is_ours is null) as left_tries
    into v_locked
    from locked as l;
    v_types := v_types || v_locked.types;
    v_keys := v_keys || v_locked.keys;
    v_deltas := v_deltas || v_locked.deltas;
    select v_locked.left_types as types, v_locked.left_keys as keys, v_locked.left_deltas as deltas,
      v_locked.left_tries as tries
    into v_noted;
    exit when v_round = 2;
    -- Few before many: a type of which many are locked does not delay the others.
    for v_new in
      select n.type_id, array_agg(n.key) as keys
      from unnest(v_noted.types, v_noted.keys, v_noted.deltas) as n(type_id, key, delta)
      where n.delta > 0
        and (select true from pgfresh.pairs as p where p.type_id = n.type_id and p.key = n.key) is null
      group by n.type_id
      order by count(*), random()
    loop
      perform pgfresh.make_pairs(v_new.type_id, v_new.keys);
      exit when clock_timestamp() > v_began + interval '100 milliseconds';
    end loop;
  end loop;
  insert into pgfresh.demand_waiting (type_id, key, delta, tries, next_at)
  select n.type_id, n.key, n.delta, n.tries + 1, p_now + interval '1 second' * least(n.tries + 1, 5)
  from unnest(v_noted.types, v_noted.keys, v_noted.deltas, v_noted.tries) as n(type_id, key, delta, tries)
  where (select true from pgfresh.data_type_registry as r where r.type_id = n.type_id)
    and (n.delta > 0
      -- Nobody has come to a pair that is not there, so nobody can leave it.
      or (n.delta < 0 and (select true from pgfresh.pairs as p where p.type_id = n.type_id and p.key = n.key)));
  with folded as (
    update pgfresh.pairs as p
    set viewers = least(greatest(p.viewers + net.delta, 0), 2147483647),
      demanded = p.demanded or (p.viewers + net.delta > 0 and p.unlisted_at is null),
      unlisted_at = case when p.viewers + net.delta > 0 then p.unlisted_at end,
      warm_until = case
        when p.viewers + net.delta > 0 then null
        when p.viewers > 0 then p_now + interval '15 seconds'
        else p.warm_until
      end,
      due_at = case
        when not p.demanded and p.viewers + net.delta > 0 and p.unlisted_at is null and p.job_id is null then p_now
        else p.due_at
      end
    from unnest(v_types, v_keys, v_deltas) as net(type_id, key, delta)
    where p.type_id = net.type_id and p.key = net.key
    returning p.type_id, p.key, p.job_id, p.viewers, p.demanded, p.due_at, net.delta,
      case when p.row_at is not null and p.stale_at > p_now then p.stale_at else p_now end as stale_at
  ), wanted as (
    insert into pgfresh.due (due_at, type_id, key)
    select p_now, f.type_id, f.key from folded as f where f.demanded and f.due_at = p_now
    on conflict do nothing
  )
  select count(*)::int as count,
    array_agg(f.job_id order by f.job_id) filter (where f.raises) as jobs,
    array_agg(pgfresh.priority_of(r, f.viewers) order by f.job_id) filter (where f.raises) as priorities,
    array_agg(f.stale_at order by f.job_id) filter (where f.raises) as wanted_at
  into v_folded
  from (select f.*, f.job_id is not null and f.delta > 0 and f.demanded as raises from folded as f) as f
  join pgfresh.data_type_registry as r on r.type_id = f.type_id;
  if v_folded.jobs is not null then
    perform pgfresh.raise_jobs(v_folded.jobs, v_folded.priorities, v_folded.wanted_at, p_now);
  end if;
  return v_folded.count;
end
$$;
comment on function pgfresh.fold_demand(timestamptz) is
  'Adds the changes of demand to the pairs, at most those of 5000 entries, and of 1000 pairs that were locked before. '
  'A part of the planner.';

/*
  A job that waits for a time which nobody's demand has set: viewers do not wait for it longer than for a job of their
  own. One that was never tried runs when its row is stale. One that failed runs after the delay that viewed jobs have;
  a longer one is cut once, so that viewers who come and go do not shorten it again and again. One that was put back
  waits for what it waits for.
*/
create or replace function pgfresh.raise_jobs(
  p_ids bigint[], p_priorities int[], p_wanted_at timestamptz[], p_now timestamptz)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
declare
  v_ready boolean;
begin
  with raised as (
    update pgfresh.job as j
    set priority = w.priority, band = w.band, missing = w.missing, run_at = w.run_at,
      lane = pgfresh.lane_of(w.band, w.missing, j.est_bytes),
      state = case when w.run_at <= p_now then 'r' else j.state end
    from (
      select waiting.id, greatest(waiting.priority, raised.priority) as priority,
        pgfresh.band_of(greatest(waiting.priority, raised.priority)) as band,
        case
          when waiting.state = 'r' then waiting.run_at
          when waiting.attempt = 0 then least(waiting.run_at, raised.wanted_at)
          when waiting.retries > 0 and waiting.run_at > p_now + waiting.viewed_delay
            then p_now + waiting.viewed_delay * (0.5 + random() / 2)
          else waiting.run_at
        end as run_at,
        waiting.missing
      from unnest(p_ids, p_priorities, p_wanted_at) as raised(id, priority, wanted_at)
      cross join lateral (
        select j.id, j.priority, j.state, j.attempt, j.retries, j.run_at,
          pgfresh.longest_retry_delay(greatest(j.retries - 1, 0), 1) as viewed_delay, m.missing
        from pgfresh.job as j
        -- It may have been queued while no one looked, and then it was not missed.
        cross join lateral (
          select j.missing or coalesce((
            select p.demanded and p.row_at is null and p.seen and p.empty_at is null
            from pgfresh.pairs as p
            where p.type_id = j.type_id and p.key = j.key
          ), false) as missing
        ) as m
        where j.id = raised.id and j.state <> 'x'
          and (j.priority < raised.priority or j.state = 'w' or m.missing <> j.missing)
        for update of j skip locked
      ) as waiting
    ) as w
    where j.id = w.id and (j.priority <> w.priority or j.run_at <> w.run_at or j.missing <> w.missing)
    returning j.state = 'r' as is_ready
  )
  select bool_or(r.is_ready) into v_ready from raised as r;
  if v_ready then
    perform pgfresh.wake_workers();
  end if;
end
$$;
comment on function pgfresh.raise_jobs(bigint[], int[], timestamptz[], timestamptz) is
  'Gives jobs that wait the priority and the lane of viewed ones, and ends waits that viewers would not have. '
  'A part of fold_demand.';

create or replace function pgfresh.cool_down(p_now timestamptz) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
declare
  v_cooled record;
begin
  with cooled as (
    update pgfresh.pairs as p
    set demanded = false, warm_until = null, due_at = 'infinity',
      unviewed_since = case when cold.demanded then p_now else p.unviewed_since end
    from (
      select type_id, key, due_at, demanded
      from pgfresh.pairs
      where warm_until <= p_now
      order by warm_until
      limit 2000 for update skip locked
    ) as cold
    where p.type_id = cold.type_id and p.key = cold.key
    returning cold.due_at, cold.type_id, cold.key, p.job_id
  ), gone as (
    delete from pgfresh.due as d using cooled as c where d.due_at = c.due_at and d.type_id = c.type_id and d.key = c.key
  )
  select array_agg(c.type_id) as types, array_agg(c.key) as keys
  into v_cooled
  from cooled as c
  where c.job_id is not null or exists (select from pgfresh.type_dependency as d where d.type_id = c.type_id);
  if v_cooled.types is not null then
    perform pgfresh.drop_unviewed_jobs(v_cooled.types, v_cooled.keys, p_now);
  end if;
end
$$;
comment on function pgfresh.cool_down(timestamptz) is
  'Lets go of pairs at which nobody has looked for 15 s, and of the jobs that only their viewers wanted. '
  'A part of the planner.';

/*
  A job that a schedule, an application or an operator has asked for stays, with the priority that was asked for. So
  does one that a viewed pair of another data type needs. What such a pair has needed goes with it.
  One that runs is not stopped; its pair comes back here, in case the job has to be tried again.
*/
create or replace function pgfresh.drop_unviewed_jobs(p_types int[], p_keys text[], p_now timestamptz) returns int
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
declare
  v_jobs record;
begin
  with recursive left_pair (type_id, key) as (
    select p.type_id, p.key from unnest(p_types, p_keys) as p(type_id, key)
    union
    select d.needs_id, l.key from left_pair as l join pgfresh.type_dependency as d on d.type_id = l.type_id
  ), unviewed as (
    select l.type_id, l.key, p.job_id
    from left_pair as l
    cross join lateral (
      select p.job_id
      from pgfresh.pairs as p
      where p.type_id = l.type_id and p.key = l.key and p.job_id is not null and not p.demanded
      for update skip locked
    ) as p
    where not exists (
      with recursive dependent (type_id) as (
        select d.type_id from pgfresh.type_dependency as d where d.needs_id = l.type_id
        union
        select d.type_id from dependent as n join pgfresh.type_dependency as d on d.needs_id = n.type_id
      )
      select from dependent as n
      join pgfresh.pairs as p on p.type_id = n.type_id and p.key = l.key
      where p.demanded
    )
  ), waiting as (
    select u.type_id, u.key, j.id, j.asked
    from unviewed as u
    left join lateral (
      select j.id, j.asked from pgfresh.job as j where j.id = u.job_id and j.state <> 'x' for update skip locked
    ) as j on true
  ), lowered as (
    update pgfresh.job as j
    set priority = w.asked, band = pgfresh.band_of(w.asked), missing = false,
      lane = pgfresh.lane_of(pgfresh.band_of(w.asked), false, j.est_bytes)
    from waiting as w
    where j.id = w.id and (j.priority > w.asked or (j.missing and w.asked is not null))
  )
  select array_agg(w.id) filter (where w.id is not null and w.asked is null) as unwanted,
    array_agg(w.type_id) filter (where w.id is null) as busy_types,
    array_agg(w.key) filter (where w.id is null) as busy_keys
  into v_jobs
  from waiting as w;
  update pgfresh.pairs as p
  set warm_until = p_now + interval '15 seconds'
  from unnest(v_jobs.busy_types, v_jobs.busy_keys) as b(type_id, key)
  where p.type_id = b.type_id and p.key = b.key;
  return pgfresh.drop_waiting_jobs(v_jobs.unwanted, 'no viewer is left', p_now);
end
$$;
comment on function pgfresh.drop_unviewed_jobs(int[], text[], timestamptz) is
  'Cancels waiting jobs of pairs whose viewers have left, as far as only they wanted them. Returns how many. '
  'A part of cool_down.';

/*
  Unlike a job that an operator cancels, these say nothing about the pair: it is not left alone for a TTL, and a viewer
  who comes back is served at once. Only the wait after a failure goes on. None of them runs, so nothing is settled.
*/
create or replace function pgfresh.drop_waiting_jobs(p_ids bigint[], p_reason text, p_now timestamptz) returns int
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
declare
  v_count int;
begin
  if coalesce(cardinality(p_ids), 0) = 0 then
    return 0;
  end if;
  with gone as (
    delete from pgfresh.job as j where j.id = any (p_ids) and j.state <> 'x' returning j.*
  ), history as (
    insert into pgfresh.history_other (
      id, ended_at, created_at, bytes, calls, type_id, source_id, priority, attempt, retries, lost,
      status, outcome, key, error, metadata)
    select
      id, p_now, created_at, 0, 0, type_id, source_id, priority, attempt, retries, lost,
      'cancelled', 'cancelled', key, concat_ws('; before: ', p_reason, error), metadata
    from gone
  ), freed as (
    update pgfresh.pairs as p
    set last_job = g.id, job_id = null, next_ask_at = case when g.retries > 0 and g.state = 'w' then g.run_at end
    from gone as g
    where p.type_id = g.type_id and p.key = g.key and p.job_id = g.id
  )
  select count(*) into v_count from gone;
  return v_count;
end
$$;
comment on function pgfresh.drop_waiting_jobs(bigint[], text, timestamptz) is
  'Cancels jobs that wait and that nobody wants any more; their pairs must be locked. Returns how many.';

/*
  What is no key any more is not demanded, however many look: its subscriptions and counts stay, so that leaving works
  as ever, and the pair is demanded again if the key comes back while somebody still looks.
*/
create or replace function pgfresh.revoke_pairs(p_type_id int, p_keys text[], p_now timestamptz) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
declare
  v_jobs bigint[];
begin
  with revoked as (
    update pgfresh.pairs as p
    set demanded = false, warm_until = null, due_at = 'infinity', waits_for = null,
      unlisted_at = case when p.viewers > 0 then p_now end,
      unviewed_since = coalesce(p.unviewed_since, p_now)
    from (
      select l.key, l.due_at
      from pgfresh.pairs as l
      where l.type_id = p_type_id and l.key = any (p_keys)
      for update skip locked
    ) as l
    where p.type_id = p_type_id and p.key = l.key
    returning l.due_at, p.key, p.job_id
  ), gone as (
    delete from pgfresh.due as d using revoked as r
    where d.due_at = r.due_at and d.type_id = p_type_id and d.key = r.key
  )
  select array_agg(j.id)
  into v_jobs
  from revoked as r
  cross join lateral (
    select j.id from pgfresh.job as j where j.id = r.job_id and j.state <> 'x' for update skip locked
  ) as j;
  perform pgfresh.drop_waiting_jobs(v_jobs, 'its key is not listed any more', p_now);
end
$$;
comment on function pgfresh.revoke_pairs(int, text[], timestamptz) is
  'Ends the demand of pairs whose keys are gone, and cancels their waiting jobs. A part of the planner.';

create or replace function pgfresh.list_again(p_now timestamptz, p_types int[]) returns int
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
declare
  v_type record;
  v_count int := 0;
  v_back text[];
  v_quarantined int[] := array(select q.type_id from pgfresh.quarantined_types() as q);
begin
  for v_type in
    select r as registered, array_agg(u.key) as keys
    from (
      select p.type_id, p.key
      from pgfresh.pairs as p
      where p.unlisted_at <= p_now - interval '5 seconds'
        and (p_types is null or p.type_id = any (p_types)) and p.type_id <> all (v_quarantined)
      order by p.unlisted_at
      limit 500
      for update skip locked
    ) as u
    join pgfresh.data_type_registry as r on r.type_id = u.type_id
    group by r
  loop
    v_back := pgfresh.admitted_keys(v_type.registered, v_type.keys);
    with listed as (
      update pgfresh.pairs as p
      set unlisted_at = null, demanded = true, unviewed_since = null,
        due_at = case when p.job_id is null then p_now else p.due_at end
      where p.type_id = (v_type.registered).type_id and p.key = any (v_type.keys) and p.key = any (v_back)
      returning p.type_id, p.key, p.due_at
    )
    insert into pgfresh.due (due_at, type_id, key)
    select p_now, l.type_id, l.key from listed as l where l.due_at = p_now
    on conflict do nothing;
    v_count := v_count + cardinality(v_back);
    update pgfresh.pairs as p
    set unlisted_at = p_now
    where p.type_id = (v_type.registered).type_id and p.key = any (v_type.keys) and p.unlisted_at is not null;
  end loop;
  return v_count;
end
$$;
comment on function pgfresh.list_again(timestamptz, int[]) is
  'Asks every five seconds whether keys that were gone are back, as long as somebody looks at them: keys of all data '
  'types (null) or of some, and of none in quarantine. '
  'A part of the planner.';

/*
  Jobs that wait for long, for instance for their source, are claimed without another look at their pair. And one that
  was locked when its viewers came was not brought forward then. A table of keys that takes all the time of the
  statement costs only its own type, and comes last the next time.
*/
create or replace function pgfresh.review_open_jobs(p_now timestamptz, p_limit int default 20000) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
declare
  v_after bigint := (select reviewed_job from pgfresh.planner_state);
  v_last bigint := v_after;
  v_read int := 0;
  v_type record;
  v_keys text[];
  v_raised record;
  v_timed_out boolean := false;
  v_quarantined int[] := array(select q.type_id from pgfresh.quarantined_types() as q);
begin
  for v_type in
    select r as registered, t.keys, t.last, t.count
    from (
      select j.type_id, array_agg(j.key) filter (where j.state <> 'x') as keys, max(j.id) as last,
        count(*)::int as count
      from (
        select j.id, j.type_id, j.key, j.state from pgfresh.job as j where j.id > v_after order by j.id limit p_limit
      ) as j
      group by j.type_id
    ) as t
    left join pgfresh.data_type_registry as r on r.type_id = t.type_id
    left join pgfresh.type_timeout as o on o.type_id = t.type_id
    order by o.last_at nulls first
  loop
    v_last := greatest(v_last, v_type.last);
    v_read := v_read + v_type.count;
    -- After a timeout nothing limits the statement any more.
    continue when v_timed_out or v_type.registered is null or v_type.keys is null
      or (v_type.registered).type_id = any (v_quarantined);
    begin
      v_keys := pgfresh.unlisted_keys(v_type.registered, v_type.keys);
    exception when query_canceled then
      v_timed_out := true;
      perform pgfresh.note_type_timeout((v_type.registered).type_id, 'cleanup', sqlerrm);
      continue;
    end;
    if v_keys <> '{}' then
      perform pgfresh.revoke_pairs((v_type.registered).type_id, v_keys, p_now);
    end if;
  end loop;
  select array_agg(w.id) as jobs, array_agg(pgfresh.priority_of(r, w.viewers)) as priorities,
    array_agg(w.stale_at) as wanted_at
  into v_raised
  from (
    select j.id, p.type_id, p.viewers, p.stale_at
    from pgfresh.job as j
    cross join lateral (
      select p.type_id, p.viewers,
        case when p.row_at is not null and p.stale_at > p_now then p.stale_at else p_now end as stale_at
      from pgfresh.pairs as p
      where p.type_id = j.type_id and p.key = j.key and p.demanded
    ) as p
    where j.id > v_after and j.id <= v_last and j.state = 'w' and j.run_at > p_now
  ) as w
  join pgfresh.data_type_registry as r on r.type_id = w.type_id;
  if v_raised.jobs is not null then
    perform pgfresh.raise_jobs(v_raised.jobs, v_raised.priorities, v_raised.wanted_at, p_now);
  end if;
  v_last := case when v_read < p_limit then 0 else v_last end;
  update pgfresh.planner_state set reviewed_job = v_last where reviewed_job <> v_last;
end
$$;
comment on function pgfresh.review_open_jobs(timestamptz, int) is
  'Looks at the next open jobs: cancels those whose keys are gone, and brings forward those that wait '
  'while somebody looks. A part of the cleanup.';

insert into pgfresh.migrations (kind, name, hash) values ('functions'::text, 'viewer_counts'::text, '1a47a9d49dc2fc302119c3b359626bb7af20abddfc14933a7fa4a12e29b1758b'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- functions viewers
/*
  What a gateway asks on behalf of those who are connected to it. It asks in sets, gathered from all connections, so one
  bad pair must not spoil the others: where admit_keys raises for the first, judge_keys says of each what it is.
*/
create or replace function pgfresh.judge_keys(
  p_type pgfresh.data_type_registry, p_keys text[], p_listed boolean default false)
returns table (place bigint, key text, code text, problem text)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_parts int := cardinality(p_type.key_columns) - 1;
  v_unknown_sql text;
  v_spell_sql text;
  v_invalid boolean[];
  v_keys text[];
  v_outside boolean[];
  -- Where those stand that are asked about in users' tables and types, and what is asked.
  v_places int[];
  v_asked text[];
  v_unknown text[];
  v_count int; v_from int := 1; v_size int;
begin
  select array_agg(k.invalid order by k.place), array_agg(k.key order by k.place),
    array_agg(
      k.invalid
        or length(k.key) - length(replace(k.key, '|', '')) <> v_parts and v_parts > 0
        or coalesce(k.key !~ p_type.key_pattern, false)
      order by k.place)
  into v_invalid, v_keys, v_outside
  from (
    select
      pgfresh.canonical_key(k.key, p_type.normalise) as key,
      k.place,
      (k.key <> '' and octet_length(k.key) <= 512 and k.key !~ '[[:cntrl:]]') is not true as invalid
    from unnest(p_keys) with ordinality as k(key, place)
  ) as k;
  select case when not p_listed then r.unknown_sql end,
    -- Numbers, dates and the like have several spellings of one value. A row has one.
    case
      when bool_or(a.atttypid not in ('text'::regtype, 'varchar'::regtype)) then
        format('select %s from unnest($1::text[]) with ordinality as k(key, place) order by k.place',
          string_agg(
            format('%s::%s::text',
              case when v_parts = 0 then 'k.key' else format('split_part(k.key, ''|'', %s)', c.place) end,
              format_type(a.atttypid, -1)),
            ' || ''|'' || ' order by c.place))
    end
  into v_unknown_sql, v_spell_sql
  from pgfresh.type_resolution as r
  cross join unnest(p_type.key_columns) with ordinality as c(name, place)
  join pg_attribute as a on a.attrelid = r.tables[1] and a.attname = c.name
  where r.type_id = p_type.type_id
  group by r.unknown_sql;
  if v_unknown_sql is not null or v_spell_sql is not null then
    v_places := array(select n from generate_subscripts(v_keys, 1) as n where not v_outside[n]);
    v_count := cardinality(v_places);
    v_size := v_count;
    -- A key that is not even of the column's type raises for all that are asked with it. Then in halves, until it is
    -- known which. Nothing is written, so these subtransactions get no numbers, and there may be many of them.
    while v_from <= v_count loop
      v_asked := array(
        select v_keys[n]
        from unnest(v_places[v_from:v_from + v_size - 1]) with ordinality as p(n, place)
        order by p.place
      );
      begin
        if v_spell_sql is not null then
          v_asked := array(select pgfresh.ask_keys(v_spell_sql, v_asked));
        end if;
        v_unknown := case
          when v_unknown_sql is null then '{}'
          else array(select pgfresh.ask_keys(v_unknown_sql, v_asked))
        end;
        for i in 1..cardinality(v_asked) loop
          v_keys[v_places[v_from + i - 1]] := v_asked[i];
          v_outside[v_places[v_from + i - 1]] := v_asked[i] = any (v_unknown);
        end loop;
        v_from := v_from + v_size;
      exception
        when data_exception then
          if v_size > 1 then
            v_size := greatest(least(v_size, v_count - v_from + 1) / 2, 1);
          else
            v_outside[v_places[v_from]] := true;
            v_from := v_from + 1;
          end if;
        when others then
          perform pgfresh.refuse_registry(t.problem, t.next_step) from pgfresh.type_problem(p_type) as t;
          raise;
      end;
    end loop;
  end if;
  return query
    select n::bigint, v_keys[n],
      case when v_invalid[n] then 'PGF_KEY_INVALID' when v_outside[n] then 'PGF_KEY_UNKNOWN' end,
      -- What was passed is quoted, and the message must stay one line all the same.
      regexp_replace(
        case
          when v_invalid[n] then
            format('a key has 1 to 512 bytes and no control characters, got %s',
              coalesce(left(quote_literal(v_keys[n]), 60), 'null'))
          when v_outside[n] then
            format('%s is not a key of %s', left(quote_literal(v_keys[n]), 80), p_type.data_type)
        end,
        '[[:cntrl:]]', '?', 'g')
    from generate_subscripts(v_keys, 1) as n;
end
$$;
comment on function pgfresh.judge_keys(pgfresh.data_type_registry, text[], boolean) is
  'Keys as the data type spells them, and for those that it cannot have, why. '
  'p_listed: they were just read from its key table and are not looked up there. A part of admit_pairs.';

create or replace function pgfresh.admit_pairs(p_data_types text[], p_keys text[])
returns table (place bigint, type_id int, visibility text, key text, known boolean, code text, problem text)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_type record;
begin
  perform pgfresh.require_primary();
  if (cardinality(p_data_types) = cardinality(p_keys) and cardinality(p_keys) <= 10000) is not true then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      'p_data_types and p_keys must be arrays of one length, at most 10000',
      'Pass a data type for each key.');
  end if;
  for v_type in
    select r as registered, named.data_type,
      array_agg(named.key order by named.place) as keys, array_agg(named.place order by named.place) as places
    from unnest(p_data_types, p_keys) with ordinality as named(data_type, key, place)
    left join pgfresh.data_type_registry as r using (data_type)
    group by r, named.data_type
  loop
    if (v_type.registered).type_id is null then
      return query
        select p, null::int, null, null, null::boolean, 'PGF_TYPE_UNKNOWN',
          regexp_replace(
            format('there is no data type %s', coalesce(left(quote_literal(v_type.data_type), 80), 'null')),
            '[[:cntrl:]]', '?', 'g')
        from unnest(v_type.places) as p;
      continue;
    end if;
    begin
      return query
        select v_type.places[j.place], (v_type.registered).type_id, (v_type.registered).visibility,
          case when j.code is null then j.key end,
          j.code is null and exists (
            select from pgfresh.pairs as p
            where p.type_id = (v_type.registered).type_id and p.key = j.key collate "C"
          ),
          j.code, j.problem
        from pgfresh.judge_keys(v_type.registered, v_type.keys) as j;
    exception when sqlstate 'PGF01' then
      -- Its registry row does not resolve any more. The pairs of other types are none the worse for it.
      return query
        select p, null::int, null, null, null::boolean, 'PGF_REGISTRY_INVALID',
          regexp_replace(sqlerrm, '^PGF_\w+: ', '')
        from unnest(v_type.places) as p;
    end;
  end loop;
end
$$;
comment on function pgfresh.admit_pairs(text[], text[]) is
  'Pairs as the registry spells them: for each, the number of its data type, who may see it, its key, '
  'and whether anybody ever asked for it; or the code of an error and what is wrong. Writes nothing.';

create or replace function pgfresh.check_pairs(p_data_types text[], p_keys text[]) returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := pgfresh.clock();
  v_type record;
  v_keys text[];
  v_looks pgfresh.looks[];
begin
  perform pgfresh.require_primary();
  if (cardinality(p_data_types) = cardinality(p_keys) and cardinality(p_keys) <= 10000) is not true then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      'data types and keys must be two arrays of one length, at most 10000',
      'Pass a key for each data type.');
  end if;
  -- By type and key, as everybody else locks them. What is no pair any more is left out: the others count.
  for v_type in
    select r as registered, named.keys
    from (
      select data_type, array_agg(key) as keys
      from unnest(p_data_types, p_keys) as named(data_type, key)
      group by data_type
    ) as named
    join pgfresh.data_type_registry as r using (data_type)
    order by r.type_id
  loop
    v_keys := pgfresh.admitted_keys(v_type.registered, v_type.keys);
    perform pgfresh.make_pairs((v_type.registered).type_id, v_keys);
    -- Those at which somebody looks already have a time. One that is locked is left to the planner's next tick.
    v_keys := array(
      select p.key
      from pgfresh.pairs as p
      where p.type_id = (v_type.registered).type_id and p.key = any (v_keys) and not p.demanded
      order by p.key
      for update skip locked
    );
    continue when cardinality(v_keys) = 0;
    update pgfresh.pairs
    set demanded = true, unlisted_at = null, warm_until = v_now + interval '15 seconds',
      due_at = case when job_id is null then v_now else due_at end
    where type_id = (v_type.registered).type_id and key = any (v_keys);
    v_looks := v_looks || pgfresh.looks_at((v_type.registered).type_id, v_keys);
  end loop;
  return case when v_looks is null then '{}' else pgfresh.plan_looks(v_looks, v_now) end;
end
$$;
comment on function pgfresh.check_pairs(text[], text[]) is
  'For the moment in which a gateway''s users begin to look: '
  'queues those of the pairs that are missing or stale at once, '
  'and keeps them for 15 s until the gateway has said how many look. Returns counts.';

create or replace function pgfresh.refresh_pair(p_data_type text, p_key text) returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_type pgfresh.data_type_registry := pgfresh.require_type(p_data_type);
  v_key text := (pgfresh.admit_keys(v_type, array[p_key]))[1];
  v_pair pgfresh.pairs;
begin
  perform pgfresh.require_primary();
  select * into v_pair from pgfresh.pairs where type_id = v_type.type_id and key = v_key collate "C";
  return pgfresh.queue_refresh_if_not_exists(
    v_key, p_data_type, greatest(1, pgfresh.priority_of(v_type, coalesce(v_pair.viewers, 1))),
    -- One that failed is tried now; one that runs is not run once more.
    p_force => exists (select from pgfresh.job where id = v_pair.job_id and state = 'w'));
end
$$;
comment on function pgfresh.refresh_pair(text, text) is
  'Queues a pair although it may be fresh, with the priority of its viewers. Ends the wait of a job that failed. '
  'Returns {"job_id", "result"}; see queue_refreshes for the results.';

create or replace function pgfresh.count_viewers(p_types int[], p_keys text[]) returns int[]
language plpgsql stable
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
begin
  if (cardinality(p_types) = cardinality(p_keys) and cardinality(p_keys) <= 10000) is not true then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      'p_types and p_keys must be arrays of one length, at most 10000',
      'Pass the number of a data type for each key.');
  end if;
  return array(
    select coalesce((
      select p.viewers from pgfresh.pairs as p where p.type_id = w.type_id and p.key = w.key collate "C"
    ), 0)
    from unnest(p_types, p_keys) with ordinality as w(type_id, key, place)
    order by w.place
  );
end
$$;
comment on function pgfresh.count_viewers(int[], text[]) is
  'How many look at each of these pairs, through all gateways and from SQL, as of the planner''s last tick.';

insert into pgfresh.migrations (kind, name, hash) values ('functions'::text, 'viewers'::text, 'e54ffba2387c8a6cfd6bd1b0938051f15618f5cfdb3d1a6a9604d0077e898815'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- functions views
create or replace view pgfresh.open_jobs with (security_invoker = true) as
select j.id, j.key, r.data_type, s.name as source,
  case j.state
    when 'x' then 'running'
    when 'r' then 'pending'
    else case when j.retries > 0 then 'retryable' else 'pending' end
  end as status,
  j.priority, j.est_bytes as estimated_data_size_bytes,
  j.created_at, j.claimed_at as processed_at, null::timestamptz as completed_at,
  j.retries as retry_count, j.attempt as attempts, j.lost, j.error as error_message, j.metadata,
  n.name as locked_by, j.claimed_at as locked_at, greatest(j.progress_at, w.renewed_at) as heartbeat_at,
  case when j.state = 'w' then j.run_at end as next_retry_at,
  null::text as outcome, null::bigint as data_size_bytes,
  -- A worker that has no row any more has ended.
  least(case when n.has_lease then coalesce(w.lease_until, n.last_seen_at) end, j.progress_at + r.max_run)
    as lease_until
from pgfresh.job as j
join pgfresh.data_type_registry as r on r.type_id = j.type_id
join pgfresh.sources as s on s.id = j.source_id
left join pgfresh.worker_name as n on n.id = j.worker
left join pgfresh.worker as w on w.id = j.worker;
comment on view pgfresh.open_jobs is
  'Jobs that wait or run. heartbeat_at is the last sign of life: of the worker''s lease, or of the job itself. '
  'At lease_until the job is taken back if nothing more is heard: when the worker''s lease ends, '
  'or when the job has made no progress for the max_run of its data type, whichever comes first.';

create or replace view pgfresh.api_call_queue with (security_invoker = true) as
select id, key, data_type, status, priority, estimated_data_size_bytes, created_at, processed_at, completed_at,
  retry_count, attempts, error_message, metadata, locked_by, locked_at, heartbeat_at, next_retry_at,
  source, outcome, data_size_bytes
from pgfresh.open_jobs
union all
select h.id, h.key, r.data_type, h.status, h.priority, h.bytes, h.created_at, h.claimed_at, h.ended_at,
  h.retries, h.attempt, h.error, h.metadata, coalesce(n.name, 'worker ' || h.worker), h.claimed_at, null, null,
  s.name, h.outcome, h.bytes
from (
  select id, key, type_id, source_id, status, priority, bytes, created_at, claimed_at, ended_at,
    retries, attempt, error, metadata, worker, outcome
  from pgfresh.history_succeeded
  union all
  select id, key, type_id, source_id, status, priority, bytes, created_at, claimed_at, ended_at,
    retries, attempt, error, metadata, worker, outcome
  from pgfresh.history_other
) as h
join pgfresh.data_type_registry as r on r.type_id = h.type_id
join pgfresh.sources as s on s.id = h.source_id
left join pgfresh.worker_name as n on n.id = h.worker;
comment on view pgfresh.api_call_queue is
  'Every job, open or ended, as the one table that it looks like from outside. '
  'locked_by is the name of the worker or SQL client that has it, or that had it last.';

create or replace view pgfresh.job_attempts with (security_invoker = true) as
select h.id, h.attempt as attempts, h.key, r.data_type, s.name as source, h.status, h.outcome, h.error as error_message,
  h.calls, h.bytes as data_size_bytes, h.claimed_at as processed_at, h.ended_at as completed_at,
  h.fetch_ms, h.validate_ms, h.commit_ms, h.retries as retry_count, h.lost, h.metadata
from (
  select id, attempt, key, type_id, source_id, status, outcome, error, calls, bytes, claimed_at, ended_at,
    fetch_ms, validate_ms, commit_ms, retries, lost, metadata
  from pgfresh.history_succeeded
  union all
  select id, attempt, key, type_id, source_id, status, outcome, error, calls, bytes, claimed_at, ended_at,
    fetch_ms, validate_ms, commit_ms, retries, lost, metadata
  from pgfresh.history_other
  union all
  select id, attempt, key, type_id, source_id, status, outcome, error, calls, bytes, claimed_at, ended_at,
    fetch_ms, validate_ms, commit_ms, retries, lost, metadata
  from pgfresh.history_attempt
) as h
join pgfresh.data_type_registry as r on r.type_id = h.type_id
join pgfresh.sources as s on s.id = h.source_id;
comment on view pgfresh.job_attempts is
  'Every attempt that has ended, with its outcome, calls and bytes; status is what became of its job by it. '
  'A job that was tried three times has three rows.';

create or replace view pgfresh.failed_jobs with (security_invoker = true) as
select h.id, h.key, r.data_type, s.name as source, h.outcome, h.error as error_message,
  h.attempt as attempts, h.retries as retry_count, h.lost, h.priority, h.metadata,
  h.created_at, h.ended_at, h.redriven_at
from pgfresh.history_other as h
join pgfresh.data_type_registry as r on r.type_id = h.type_id
join pgfresh.sources as s on s.id = h.source_id
where h.status = 'failed';
comment on view pgfresh.failed_jobs is
  'The dead letters: what failed for good, and whether it was enqueued again by retry_failed_jobs.';

create or replace view pgfresh.stuck_jobs with (security_invoker = true) as
select q.*,
  -- Of a worker that lives and a job that does not get on, the job's own.
  c.now - case when w.lease_until > c.now then j.progress_at else q.heartbeat_at end as time_since_heartbeat
from pgfresh.open_jobs as q
join pgfresh.job as j on j.id = q.id
left join pgfresh.worker as w on w.id = j.worker
cross join (select pgfresh.clock() as now) as c
where j.state = 'x' and (q.lease_until < c.now or w.lease_until <= c.now);
comment on view pgfresh.stuck_jobs is
  'Running jobs that recovery would take back: silent for their maximum, or held by a worker whose lease has ended. '
  'time_since_heartbeat is how long the sign of life that counts has been missing.';

create or replace view pgfresh.job_status with (security_invoker = true) as
select data_type, source, status, count(*) as jobs, min(created_at) as oldest, max(priority) as highest_priority
from pgfresh.open_jobs
group by data_type, source, status;
comment on view pgfresh.job_status is 'How many jobs wait and run, by data type and state.';

create or replace view pgfresh.api_data_usage with (security_invoker = true) as
select s.name as source, u.hour, sum(u.bytes)::bigint as data_size_bytes, sum(u.calls)::bigint as calls
from pgfresh.usage as u
join pgfresh.sources as s on s.id = u.source_id
group by s.name, u.hour;
comment on view pgfresh.api_data_usage is 'The ledger: bytes and calls by source and hour, corrections included.';

create or replace view pgfresh.source_health with (security_invoker = true) as
select s.name as source,
  case
    when exists (select from pgfresh.spending_stop) then 'stopped'
    when not s.enabled then 'off'
    when s.paused_until > c.now then
      case s.paused_by when 'breaker' then 'breaker' when 'provider' then 'held' else 'paused' end
    when s.breaker_opened_at is not null then 'probing'
    when quota.until is not null then 'quota'
    when s.rate_limit_per_minute is not null and calls.viewed = 0 then 'rate'
    else 'ok'
  end as state,
  s.enabled, s.failure_streak, s.last_success_at, s.last_failure_at,
  -- A pause that has ended is none.
  case when s.paused_until > c.now then s.paused_until end as paused_until,
  case when s.paused_until > c.now then s.paused_by end as paused_by,
  case when s.paused_until > c.now then s.pause_reason end as pause_reason,
  -- A source all of whose API keys are refused is tried as with a breaker, but has not failed.
  case when cardinality(s.denied_keys) < s.api_keys then s.breaker_opened_at end as breaker_opened_at,
  s.rate_limit_per_minute, s.api_keys, calls.viewed as calls_free, calls.next_at as next_call_at,
  s.max_concurrency, s.one_key_at_a_time,
  b.cap as quota_cap, b.used as quota_used, b.reserved as quota_reserved, b.free as quota_free,
  quota.until as quota_until,
  s.denied_keys,
  (
    select coalesce(
      jsonb_agg(
        jsonb_build_object(
          'data_type', r.data_type, 'kind', p.kind, 'until', p.paused_until, 'reason', p.reason)
        order by r.data_type),
      '[]')
    from pgfresh.breaker as p
    join pgfresh.data_type_registry as r on r.type_id = p.type_id
    where r.source_id = s.id and p.opened_at is not null
  ) as paused_types,
  s.breaker_failures, s.breaker_window, s.breaker_pause, s.managed_by, s.overrides, b.rate as quota_pace
from pgfresh.sources as s
cross join (select pgfresh.clock() as now) as c
left join lateral pgfresh.calls_now(s, c.now) as calls on s.rate_limit_per_minute is not null
left join lateral pgfresh.source_budget(s.id) as b on true
cross join lateral (
  select case when s.quota_bytes is not null then pgfresh.quota_until(s.id, c.now) end as until
) as quota;
comment on view pgfresh.source_health is
  'How each source is: ok, or why it is not called now (stopped, off, paused, held by the provider, '
  'breaker, probing, quota, rate), with its last success and failure, the calls and bytes that are free now, '
  'and what of it is left alone: API keys, data types.';

insert into pgfresh.migrations (kind, name, hash) values ('functions'::text, 'views'::text, '38a55c10c0ed216bcaca8e5b7087375b677b88cbe71b7e47f836f051e204c7e1'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- functions warnings
create or replace function pgfresh.warn(
  p_code text, p_subject text, p_message text, p_next_step text, p_count int default 1)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if coalesce(p_code, '') !~ '^[a-z][a-z0-9_]{0,59}$' or p_subject is null or p_message is null
      or p_next_step is null or p_count is null or p_count < 1 then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      'a warning needs a code in lower case, a subject, a message, a next step and a count',
      'Pass all of them.');
  end if;
  insert into pgfresh.warnings as w (code, subject, message, next_step, first_at, last_at, count)
  values (p_code, left(p_subject, 200), left(p_message, 1000), left(p_next_step, 1000),
    pgfresh.clock(), pgfresh.clock(), p_count)
  on conflict (code, subject) do update
  set message = excluded.message, next_step = excluded.next_step, last_at = excluded.last_at,
    count = w.count + excluded.count;
end
$$;
comment on function pgfresh.warn(text, text, text, text, int) is
  'Records a warning: one row for each code and subject, with a count.';

create or replace function pgfresh.clear_old_warnings(p_keep interval default '30 days') returns int
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_count int;
begin
  perform pgfresh.require_range('p_keep in seconds', extract(epoch from p_keep), 60, 315360000);
  delete from pgfresh.warnings where last_at < (select pgfresh.clock()) - p_keep;
  get diagnostics v_count = row_count;
  return v_count;
end
$$;
comment on function pgfresh.clear_old_warnings(interval) is
  'Forgets warnings that have not come again for so long. Returns how many.';

insert into pgfresh.migrations (kind, name, hash) values ('functions'::text, 'warnings'::text, '8d1e3d827b2640d53880022ee4fd5434ab503f53727be571c0aec93046d6b83c'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- functions workers
create or replace function pgfresh.serve_types(
  p_worker bigint, p_types int[], p_fetchers text[], p_limited_to text[] default null, p_api_keys jsonb default '{}')
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if p_types is null or p_fetchers is null or array_position(p_types, null) is not null
      or array_position(p_fetchers, null) is not null or array_position(p_limited_to, null) is not null then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      'p_types and p_fetchers must be arrays, with no null in them',
      'Pass the numbers of the data types that the worker refreshes, and the names of its fetchers.');
  end if;
  if (jsonb_typeof(p_api_keys) = 'object' and not jsonb_path_exists(p_api_keys, '$.* ? (!(@ >= 1 && @ <= 100))'))
      is not true then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      'p_api_keys must be an object of numbers from 1 to 100',
      'Pass how many API keys the worker has, by the name of the source: {"market": 2}.');
  end if;
  insert into pgfresh.worker_service as s (worker, types, fetchers, limited_to, api_keys)
  select w.id, p_types, p_fetchers, p_limited_to, p_api_keys from pgfresh.worker as w where w.id = p_worker
  on conflict (worker) do update
  set types = excluded.types, fetchers = excluded.fetchers, limited_to = excluded.limited_to,
    api_keys = excluded.api_keys
  where (s.types, s.fetchers, s.limited_to, s.api_keys)
    is distinct from (excluded.types, excluded.fetchers, excluded.limited_to, excluded.api_keys);
end
$$;
comment on function pgfresh.serve_types(bigint, int[], text[], text[], jsonb) is
  'Says which data types a worker refreshes, by which fetchers, to which data types it is limited, '
  'and how many API keys it has, by source: it claims no job for another key. '
  'Called when that changes, so that explain_pair knows of a job which no worker takes.';

-- By the number of letters to change, add or leave out. Few short names, so this need not be fast.
create or replace function pgfresh.near_miss(p_word text, p_names text[]) returns text
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_name text;
  v_best text;
  v_least int := greatest(2, length(p_word) / 3) + 1;
  v_before int[];
  v_row int[];
begin
  foreach v_name in array p_names loop
    continue when abs(length(v_name) - length(p_word)) >= v_least;
    v_before := array(select i from generate_series(0, length(v_name)) as i);
    for i in 1..length(p_word) loop
      v_row := array[i];
      for j in 1..length(v_name) loop
        v_row := v_row || least(
          v_before[j + 1] + 1, v_row[j] + 1,
          v_before[j] + (lower(substr(p_word, i, 1)) <> lower(substr(v_name, j, 1)))::int);
      end loop;
      v_before := v_row;
    end loop;
    if v_before[length(v_name) + 1] < v_least then
      v_least := v_before[length(v_name) + 1];
      v_best := v_name;
    end if;
  end loop;
  return v_best;
end
$$;
comment on function pgfresh.near_miss(text, text[]) is
  'The name that a mistyped word most likely meant; null if none is close enough.';

create or replace function pgfresh.worker_obstacle(p_type pgfresh.data_type_registry, p_now timestamptz) returns text
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_refused text;
begin
  -- SQL clients that claim by themselves do not say what they serve.
  if exists (
      select from pgfresh.worker as w
      left join pgfresh.worker_service as s on s.worker = w.id
      where w.lease_until > p_now and (s.worker is null or p_type.type_id = any (s.types))
    ) or exists (
      select from pgfresh.worker_name as n where not n.has_lease and n.last_seen_at > p_now - interval '2 hours'
    ) then
    return null;
  end if;
  if not exists (select from pgfresh.worker as w where w.lease_until > p_now) then
    return 'No worker is running: start one with "pgfresh run --roles worker".';
  end if;
  if exists (
    select from pgfresh.worker as w
    join pgfresh.worker_service as s on s.worker = w.id
    where w.lease_until > p_now and p_type.fetcher = any (s.fetchers)
      and (s.limited_to is null or p_type.data_type = any (s.limited_to))
  ) then
    v_refused := (
      select w.message from pgfresh.warnings as w where w.code = 'type_unwritable' and w.subject = p_type.data_type);
    -- Without a reason the worker has not read the registry since the row was written, which takes some seconds.
    -- The reason begins with the name of the data type.
    return 'The workers that run do not serve ' || rtrim(v_refused, '.') || '.';
  end if;
  if exists (
    select from pgfresh.worker as w
    join pgfresh.worker_service as s on s.worker = w.id
    where w.lease_until > p_now and p_type.fetcher = any (s.fetchers)
  ) then
    return format('The workers that run are limited to other data types than %s: '
      'start one with "pgfresh run --roles worker --types %1$s".', p_type.data_type);
  end if;
  return format('No worker that runs has the fetcher %s%s',
    p_type.fetcher,
    coalesce(
      '; did you mean ' || pgfresh.near_miss(p_type.fetcher, array(
        select distinct f
        from pgfresh.worker as w
        join pgfresh.worker_service as s on s.worker = w.id
        cross join unnest(s.fetchers) as f
        where w.lease_until > p_now
        order by f
      )) || '?',
      '.'));
end
$$;
comment on function pgfresh.worker_obstacle(pgfresh.data_type_registry, timestamptz) is
  'Why no worker takes the jobs of a data type, as a sentence; null if one does. A part of explain_pair.';

create or replace function pgfresh.unserved_types()
returns table (data_type text, problem text, workers boolean, wanted boolean)
language sql
set search_path = pg_catalog, pg_temp
as $$
  select u.data_type, u.problem,
    exists (select from pgfresh.worker as w where w.lease_until > u.now),
    u.refresh_strategy = 'scheduled'
      or exists (select from pgfresh.pairs as p where p.type_id = u.type_id and p.demanded)
  from (
    select r.type_id, r.data_type, r.refresh_strategy, pgfresh.worker_obstacle(r, c.now) as problem, c.now
    from pgfresh.data_type_registry as r
    cross join (select pgfresh.clock() as now) as c
  ) as u
  where u.problem is not null
  order by u.data_type
$$;
comment on function pgfresh.unserved_types() is
  'Data types whose jobs no worker takes, and why; whether any worker runs, '
  'and whether people look at the type or a schedule refreshes it.';

create or replace function pgfresh.warn_of_unserved_types() returns int
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_type record;
  v_count int := 0;
begin
  for v_type in select * from pgfresh.unserved_types() as u where u.wanted loop
    v_count := v_count + 1;
    if not v_type.workers then
      perform pgfresh.warn('no_worker', 'all data types', v_type.problem,
        'Start a worker with "pgfresh run --roles worker"; until then nothing is refreshed.');
      exit;
    end if;
    perform pgfresh.warn('no_worker', v_type.data_type, v_type.problem,
      'Correct the fetcher of the data type, or start a worker whose configuration has it.');
  end loop;
  return v_count;
end
$$;
comment on function pgfresh.warn_of_unserved_types() is
  'Warns of data types that people look at, or that have a schedule, and that no worker refreshes. '
  'A part of the sweep.';

insert into pgfresh.migrations (kind, name, hash) values ('functions'::text, 'workers'::text, 'd4a4ad14bb224267fedbc6d8eb7722a25476aa8f63a4b20ba6ed68a81587a5fc'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


-- functions zz_rights
/*
  Loaded last by its name, and again after every change of another file, because a new function is for everybody until
  it is said otherwise. Nothing is for everybody; what is for whom is said here, by name, and nowhere else.

  Rights are given by function. Each one that is given runs with the rights of the schema's owner and a search path of
  its own, and what it calls is given to nobody. The ask_ functions run as pgfresh_evaluator instead, which may read
  users' tables and nothing of ours.
*/
do $$
declare
  v_kind text;
begin
  -- What an earlier version gave is not given any more. Not to the evaluator: each data type gives it a function.
  foreach v_kind in array array['tables', 'functions', 'sequences'] loop
    execute format('revoke all on all %s in schema pgfresh from public, pgfresh_worker, pgfresh_planner, '
      'pgfresh_gateway, pgfresh_monitor, pgfresh_operator, pgfresh_scheduler, pgfresh_viewer', v_kind);
  end loop;
end
$$;

grant usage on schema pgfresh to
  pgfresh_worker, pgfresh_planner, pgfresh_gateway, pgfresh_monitor, pgfresh_operator,
  pgfresh_scheduler, pgfresh_viewer, pgfresh_evaluator;
-- What every process reads when it starts, and what "pgfresh check" reads.
grant select on
  pgfresh.migrations, pgfresh.sources, pgfresh.data_type_registry, pgfresh.warnings, pgfresh.source_health,
  pgfresh.spending_stop, pgfresh.breaker,
  pgfresh.scheduled_jobs, pgfresh.scheduled_job_status, pgfresh.scheduled_job_runs,
  pgfresh.job_cursor, pgfresh.job_statistics, pgfresh.scheduler
to pgfresh_worker, pgfresh_planner, pgfresh_gateway;
grant select on pgfresh.refused_answer to pgfresh_worker;
grant select on pgfresh.planner_run, pgfresh.refresh_schedule to pgfresh_planner;
grant select on all tables in schema pgfresh to pgfresh_monitor, pgfresh_operator;

do $$
declare
  v_given record;
  v_asking text;
begin
  for v_given in
    select f.oid::regprocedure::text as signature, role
    from (values
      -- Every process warns, and examines itself.
      ('{pgfresh_worker, pgfresh_planner, pgfresh_gateway, pgfresh_monitor, pgfresh_operator}'::text[], array[
        'warn', 'type_problems', 'unserved_types', 'job_problem', 'viewer_role_problem', 'check_cron_job_health',
        'is_quota_exceeded', 'calls_now', 'source_budget', 'quota_until', 'explain_pair', 'get_active_subscriptions',
        'quarantined_types']),
      ('{pgfresh_worker, pgfresh_planner, pgfresh_gateway}', array['note_type_timeout']),
      ('{pgfresh_viewer, pgfresh_gateway, pgfresh_worker}', array[
        'upsert_active_subscription', 'remove_active_subscription', 'check_and_queue_stale_batch']),
      ('{pgfresh_gateway}', array[
        'register_node', 'heartbeat_node', 'retire_node', 'set_node_demand',
        'check_pairs', 'refresh_pair', 'count_viewers',
        'admit_pairs', 'watch_changes', 'read_pairs', 'read_pairs_as', 'admit_viewer_role',
        'pump_changes', 'settle_changes']),
      ('{pgfresh_gateway, pgfresh_planner}', array['hold_duty', 'release_duty']),
      ('{pgfresh_worker}', array[
        'get_queue_batch', 'claim_next_pending_job', 'claim_jobs', 'release_claim',
        'fence_jobs', 'complete_jobs', 'complete_queue_job', 'fail_jobs', 'put_back_jobs', 'fail_queue_job',
        'heartbeat_jobs',
        'register_worker', 'serve_types', 'heartbeat_worker', 'retire_worker',
        'take_call', 'count_calls', 'hold_source', 'keep_refused_answer', 'count_losses', 'note_suspicion',
        'lock_evictable', 'note_evicted']),
      ('{pgfresh_planner}', array[
        'cleanup_stale_subscriptions', 'warn_of_unserved_types', 'plan_due_pairs', 'probe_type',
        'types_to_ask', 'next_swept_type',
        'open_refresh_cycle', 'queue_scheduled_refreshes',
        'clear_planner_runs', 'clear_old_warnings', 'clear_unwatched_changes',
        'call_job_function', 'register_scheduler', 'heartbeat_scheduler', 'retire_scheduler', 'recover_scheduled_runs',
        'due_slots', 'settle_slots', 'take_waiting_runs', 'schedule_pause', 'do_run', 'end_run',
        'prune_scheduled_runs', 'count_job_statistics', 'sync_own_jobs', 'prune_pairs', 'prune_usage']),
      ('{pgfresh_worker, pgfresh_planner, pgfresh_operator}', array[
        'queue_refreshes', 'queue_refresh_if_not_exists', 'recover_stuck_jobs']),
      ('{pgfresh_planner, pgfresh_operator}', array['check_and_queue_stale_data', 'maintain_queue_partitions']),
      ('{pgfresh_worker, pgfresh_operator}', array['reset_job_immediate', 'admit_pairs', 'accept_refused_answer']),
      ('{pgfresh_monitor, pgfresh_operator}', array['overview']),
      ('{pgfresh_operator}', array[
        'cancel_queue_jobs', 'retry_failed_jobs', 'pause_source', 'resume_source',
        'override_source', 'clear_source_override',
        'stop_spending', 'resume_spending', 'calibrate_source', 'correct_data_usage']),
      ('{pgfresh_scheduler}', array['check_cron_job_health', 'job_problem']),
      ('{pgfresh_scheduler, pgfresh_operator}', array['job_of_run']),
      ('{pgfresh_scheduler, pgfresh_worker, pgfresh_planner}', array[
        'acquire_refresh_lock', 'renew_refresh_lock', 'release_refresh_lock', 'fence_refresh_lock'])
    ) as given(roles, names)
    cross join unnest(given.roles) as role
    cross join unnest(given.names) as name
    join pg_proc as f on f.proname = name and f.pronamespace = 'pgfresh'::regnamespace
  loop
    execute format('alter function %s security definer', v_given.signature);
    execute format('grant execute on function %s to %I', v_given.signature, v_given.role);
  end loop;

  -- The new owner must be allowed to create here for the moment in which it becomes one.
  grant create on schema pgfresh to pgfresh_evaluator;
  for v_asking in
    select oid::regprocedure::text
    from pg_proc
    where pronamespace = 'pgfresh'::regnamespace
      and proname in ('ask_stale', 'ask_gate', 'ask_keys', 'ask_next_keys', 'ask_rows')
  loop
    execute format('alter function %s owner to pgfresh_evaluator', v_asking);
    execute format('grant execute on function %s to %I', v_asking, current_user);
  end loop;
  revoke create on schema pgfresh from pgfresh_evaluator;

  -- On Supabase, everybody who uses the API is a viewer.
  for v_given in
    select rolname
    from pg_roles
    where rolname in ('anon', 'authenticated') and not pg_has_role(rolname, 'pgfresh_viewer', 'member')
  loop
    execute format('grant pgfresh_viewer to %I', v_given.rolname);
  end loop;
end
$$;
-- Their own statements ask for the time.
grant execute on function pgfresh.clock() to
  pgfresh_worker, pgfresh_planner, pgfresh_gateway, pgfresh_monitor, pgfresh_operator, pgfresh_scheduler;
-- What users' staleness functions may be made of.
grant execute on function
  pgfresh.is_data_stale(timestamptz, interval), pgfresh.is_data_stale(timestamptz, int), pgfresh.clock(),
  pgfresh.refuse(text, text, text), pgfresh.clear_leftovers(text)
to pgfresh_evaluator;

/*
  Jobs are registered by plain inserts. Whose they may be is decided by a trigger, which must run with the rights of the
  writer to know them; so do the functions that pause them, and what all of these call. Operators pause all of them, and
  write nothing else of them.
*/
grant select, delete on pgfresh.scheduled_jobs to pgfresh_scheduler;
do $$
declare
  v_columns text := (
    select string_agg(quote_ident(attname), ', ')
    from pg_attribute
    where attrelid = 'pgfresh.scheduled_jobs'::regclass and attnum > 0 and not attisdropped
      and attname not in ('id', 'resolution', 'problem', 'last_run_at', 'created_at', 'updated_at')
  );
begin
  execute format('grant insert (%1$s), update (%1$s) on pgfresh.scheduled_jobs to pgfresh_scheduler', v_columns);
end
$$;
grant update (enabled, paused_at, paused_by, paused_reason, paused_until) on pgfresh.scheduled_jobs to pgfresh_operator;
-- Whoever asks for a run is known to the first trigger of the view only as long as
-- nothing before it runs with other rights.
grant select on
  pgfresh.scheduled_job_runs, pgfresh.scheduled_job_status, pgfresh.job_cursor, pgfresh.job_statistics,
  pgfresh.scheduler
to pgfresh_scheduler;
grant select, insert on pgfresh.job_request to pgfresh_scheduler, pgfresh_operator;
grant execute on function
  pgfresh.trigger_scheduled_job(text, jsonb), pgfresh.cancel_scheduled_run(bigint),
  pgfresh.backfill_scheduled_job(text, timestamptz[], int),
  pgfresh.pause_scheduled_job(text, text, timestamptz), pgfresh.resume_scheduled_job(text),
  pgfresh.require_job(text), pgfresh.require_job_right(text), pgfresh.can_act_as(oid, oid),
  pgfresh.refuse(text, text, text)
to pgfresh_scheduler, pgfresh_operator;

insert into pgfresh.migrations (kind, name, hash) values ('functions'::text, 'zz_rights'::text, 'fab7ac73faba9fca5dea821c895d1b93150337ef25402cae510cacd46efa4c0f'::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp();


commit;


