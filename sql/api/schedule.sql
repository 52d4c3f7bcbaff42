create or replace function pgfresh.trigger_scheduled_job(p_name text, p_params jsonb default null) returns jsonb
language sql
set search_path = pg_catalog, pg_temp
begin atomic
  select pgfresh_engine.require_primary() where pg_is_in_recovery();
  insert into pgfresh_engine.request (verb, args)
  -- Parameters that are the null of JSON are refused, those that are not given are the job's own.
  values ('trigger', jsonb_build_object('name', p_name)
    || case when p_params is null then '{}' else jsonb_build_object('params', p_params) end)
  returning answer;
end;
comment on function pgfresh.trigger_scheduled_job(text, jsonb) is
  'Runs a job now, besides its schedule, with its own parameters or these. Returns {"success", "run_id", '
  '"job_name", …} once the run is recorded; success is false if another run is under way and its overlap is skip. '
  'Disabled and paused jobs run too.';
grant execute on function pgfresh.trigger_scheduled_job(text, jsonb) to pgfresh_scheduler, pgfresh_operator;

create or replace function pgfresh.cancel_scheduled_run(p_run_id bigint) returns jsonb
language sql
set search_path = pg_catalog, pg_temp
begin atomic
  select pgfresh_engine.require_primary() where pg_is_in_recovery();
  insert into pgfresh_engine.request (verb, args) values ('cancel', jsonb_build_object('run_id', p_run_id))
  returning answer;
end;
comment on function pgfresh.cancel_scheduled_run(bigint) is
  'Cancels a run: a waiting one never begins, a running one is stopped, and neither is retried. Returns {"success", '
  '"run_id", "job_name", "state", "message"}.';
grant execute on function pgfresh.cancel_scheduled_run(bigint) to pgfresh_scheduler, pgfresh_operator;

create or replace function pgfresh.backfill_scheduled_job(
  p_name text, p_slots timestamptz[], p_per_minute int default 60)
returns jsonb
language sql
set search_path = pg_catalog, pg_temp
begin atomic
  select pgfresh_engine.require_primary() where pg_is_in_recovery();
  insert into pgfresh_engine.request (verb, args)
  values ('backfill', jsonb_build_object('name', p_name, 'slots', p_slots, 'per_minute', p_per_minute))
  returning answer;
end;
comment on function pgfresh.backfill_scheduled_job(text, timestamptz[], int) is
  'Runs slots of the past, one after another, at most p_per_minute; new slots go first. Slots that succeeded, are '
  'open or are about to run are skipped, and so are slots whose runs were deleted since: they may have succeeded. '
  'Returns {"success", "job_name", "queued", "skipped", "forgotten"}.';
grant execute on function pgfresh.backfill_scheduled_job(text, timestamptz[], int) to
  pgfresh_scheduler, pgfresh_operator;

create or replace function pgfresh.check_cron_job_health(p_critical_jobs text[] default null)
returns table (jobname text, last_run timestamptz, last_success timestamptz, healthy boolean, problem text)
language sql stable security definer
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
  'Whether these jobs, or all enabled ones, are healthy: when each last ran and succeeded, and what is wrong. For a '
  'monitor outside of pgfresh, which notices when nothing runs at all.';
grant execute on function pgfresh.check_cron_job_health(text[]) to
  pgfresh_worker, pgfresh_planner, pgfresh_gateway, pgfresh_monitor, pgfresh_operator, pgfresh_scheduler;
