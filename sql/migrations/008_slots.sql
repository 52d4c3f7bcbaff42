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
