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
