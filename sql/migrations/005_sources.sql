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
