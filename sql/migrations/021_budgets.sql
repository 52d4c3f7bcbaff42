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
