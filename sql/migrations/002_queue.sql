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
comment on table pgfresh.source_state is 'What each source with a quota has reserved and how full its paced allowance is.';

create table pgfresh.data_type_registry (
  type_id int generated always as identity unique,
  data_type text primary key check (data_type ~ '^[a-z][a-z0-9_-]{0,62}$'),
  source_id int not null references pgfresh.sources,
  estimated_data_size_bytes bigint not null default 0 check (estimated_data_size_bytes between 0 and 1000000000000000),
  max_retries int not null default 3 check (max_retries between 0 and 100),
  -- A job without progress for so long is taken back. Bounded, because recovery subtracts it from the time for all types at once.
  max_run interval not null default '300 seconds' check (max_run > '0' and max_run <= '30 days'),
  created_at timestamptz not null default clock_timestamp()
);
create index on pgfresh.data_type_registry (source_id);
comment on table pgfresh.data_type_registry is 'One row a data type: how it is fetched and what it may cost.';

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
  primary key (type_id, key)
-- Room for a second version of every row: pairs that were asked for together are ended together, and stay on their page.
) with (fillfactor = 50);
comment on table pgfresh.pairs is 'Every (data type, key) that was ever asked for, with its open job and its last outcome.';

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
  -- The id once more, for the ready index alone: an order that the primary key had too would tempt the planner to walk that.
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
comment on table pgfresh.usage_correction is 'Signed entries by which the ledger was brought in line with the provider.';

-- When recovery last ran, to tell dead workers from a database that was away.
create table pgfresh.recovery (
  single boolean primary key default true check (single),
  ran_at timestamptz not null,
  trust_leases_from timestamptz not null
);
insert into pgfresh.recovery (ran_at, trust_leases_from) values ('-infinity', '-infinity');
comment on table pgfresh.recovery is 'When recovery last ran, and from when on it believes leases again.';
