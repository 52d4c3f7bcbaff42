create or replace function pgfresh_engine.serve_jobs(p_scheduler bigint, p_handlers text[], p_zone_data text)
returns bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform pgfresh_engine.require_scheduler(p_scheduler);
  if p_handlers is null or array_position(p_handlers, null) is not null or cardinality(p_handlers) > 10000 then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      'p_handlers must be an array of at most 10000 names',
      'Pass the handlers that this process can run, or an empty array.');
  end if;
  if coalesce(p_zone_data, '') !~ '^[0-9]{4}[a-z]{1,3}$' then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      format('p_zone_data must be a version of the time zone data, got %s',
        coalesce(left(quote_literal(p_zone_data), 40), 'null')),
      'For instance 2026a; Node.js has it as process.versions.tz.');
  end if;
  insert into pgfresh_engine.scheduler_service (scheduler, handlers, zone_data)
  values (p_scheduler, p_handlers, p_zone_data)
  on conflict (scheduler) do update set handlers = excluded.handlers, zone_data = excluded.zone_data;
  -- Due slots stay; coming ones are recomputed with newer time zone data, and never with older.
  update pgfresh_engine.schedule_state
  set zone_data = p_zone_data
  where zone_data is null or zone_data < p_zone_data collate "C";
  if found then
    update pgfresh_engine.job_cursor as c
    set revision = revision + 1, slot = null, due_at = '-infinity'
    from pgfresh.scheduled_jobs as j
    where j.id = c.job_id and j.schedule is not null and (c.slot > (select pgfresh.clock()) or c.slot is null);
  end if;
  return p_scheduler;
end
$$;
comment on function pgfresh_engine.serve_jobs(bigint, text[], text) is
  'Says which handlers a scheduler can run, and by which time zone data it computes slots. '
  'Newer time zone data has future slots computed again. Returns the number of the scheduler.';
grant execute on function pgfresh_engine.serve_jobs(bigint, text[], text) to pgfresh_planner;

create or replace function pgfresh_engine.close_runs_of(p_scheduler bigint, p_message text) returns int
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_run pgfresh.scheduled_job_runs;
  v_count int := 0;
begin
  -- Before its runs, so that it takes no more meanwhile.
  perform from pgfresh_engine.process where id = p_scheduler for update;
  -- A function that a dead process left running holds its row; the run is taken over when it ends.
  for v_run in
    select *
    from pgfresh.scheduled_job_runs
    where scheduler = p_scheduler and state = 'running'
    order by id
    for update skip locked
  loop
    perform pgfresh_engine.close_run(v_run, 'lost', p_message, null);
    v_count := v_count + 1;
  end loop;
  return v_count;
end
$$;
comment on function pgfresh_engine.close_runs_of(bigint, text) is
  'Closes the runs of a scheduler that has ended, except what is being ended this moment, '
  'and starts their next attempts. Returns how many. A part of the scheduler.';

create or replace function pgfresh_engine.recover_scheduled_runs(p_scheduler bigint) returns int
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := pgfresh.clock();
  v_dead record;
  v_count int := 0;
begin
  perform from pgfresh_engine.process
  where id = p_scheduler and kind = 'scheduler' and lease_until > v_now and steady_since <= v_now - lease;
  if not found then
    return 0;
  end if;
  for v_dead in
    select id, name
    from pgfresh_engine.process
    -- No lease is that long: it is from before the clock was set back, and live schedulers have renewed theirs since.
    where kind = 'scheduler' and (lease_until <= v_now or lease_until > v_now + interval '1 minute')
      and id <> p_scheduler
    order by id
    for update skip locked
  loop
    v_count := v_count
      + pgfresh_engine.close_runs_of(v_dead.id, format('scheduler %s (%s) is gone', v_dead.id, v_dead.name));
    perform pgfresh_engine.forget_process(v_dead.id);
  end loop;
  return v_count;
end
$$;
comment on function pgfresh_engine.recover_scheduled_runs(bigint) is
  'Closes the runs of schedulers whose lease has ended and starts the next attempts of their slots. '
  'For a scheduler that has itself been steady for a whole lease. Returns how many runs.';
grant execute on function pgfresh_engine.recover_scheduled_runs(bigint) to pgfresh_planner;
