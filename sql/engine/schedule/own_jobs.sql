/*
  pgfresh's own scheduled work runs as ordinary jobs: their slots are accounted for, and they are listed with the
  others. Their names begin with "pgfresh.". Columns written here are restored if a user changes
  them; enabled and paused are the user's.
*/
create or replace function pgfresh_engine.sync_own_jobs() returns int
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_count int;
  v_gone int;
begin
  perform pgfresh_engine.require_primary();
  with wanted as (
    select 'pgfresh.maintain'::text as name, 'pgfresh.maintain'::text as handler,
      '7 * * * *'::text as schedule, 'UTC'::text as timezone, '{}'::jsonb as params,
      'Makes and drops days of the history; forgets old pairs and usage.'::text as description, interval '0' as jitter
    union all
    select 'pgfresh.sweep', 'pgfresh.sweep', '* * * * *', 'UTC', '{}',
      'Ends silent subscriptions, and checks every viewed pair.', '0'
    union all
    select 'pgfresh.tidy', 'pgfresh.tidy', '* * * * *', 'UTC', '{}',
      'Forgets old runs, warnings and marks, and sees which data types have a schedule.',
      -- Not at the start of a minute, when most users' jobs are due.
      '20 seconds'
    union all
    select 'pgfresh.refresh.' || r.data_type, 'pgfresh.refresh',
      r.refresh_schedule, r.schedule_zone, jsonb_build_object('data_type', r.data_type),
      format('Refreshes all keys of %s.', r.data_type), '0'
    from pgfresh.data_type_registry as r
    where r.refresh_strategy = 'scheduled' and r.refresh_schedule is not null
      -- One that cannot be read must not block the others.
      and pgfresh_engine.cron_problem(r.refresh_schedule) is null and pgfresh_engine.is_time_zone(r.schedule_zone)
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
comment on function pgfresh_engine.sync_own_jobs() is
  'Writes the jobs of pgfresh itself: one for each scheduled data type, which opens its rounds, one for the history, '
  'one that sweeps, and one that tidies up. Returns how many were added, changed or removed.';
grant execute on function pgfresh_engine.sync_own_jobs() to pgfresh_planner;
