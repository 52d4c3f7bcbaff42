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
