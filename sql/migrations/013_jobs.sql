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
