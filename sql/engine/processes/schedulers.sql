create or replace function pgfresh_engine.register_scheduler(p_name text, p_handlers text[], p_zone_data text)
returns bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := pgfresh.clock();
  v_id bigint;
begin
  perform pgfresh_engine.require_primary();
  perform pgfresh_engine.require_worker_name('p_name', p_name);
  if p_handlers is null or array_position(p_handlers, null) is not null or cardinality(p_handlers) > 10000 then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      'p_handlers must be an array of at most 10000 names',
      'Pass the handlers that this process can run, or an empty array.');
  end if;
  if coalesce(p_zone_data, '') !~ '^\d{4}[a-z]{1,3}$' then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      format('p_zone_data must be a version of the time zone data, got %s',
        coalesce(left(quote_literal(p_zone_data), 40), 'null')),
      'For instance 2026a; Node.js has it as process.versions.tz.');
  end if;
  perform pgfresh_engine.follow_restore();
  insert into pgfresh_engine.scheduler (name, started_at, steady_since, lease_until, handlers, zone_data)
  values (p_name, v_now, v_now, v_now + interval '12 seconds', p_handlers, p_zone_data)
  returning id into v_id;
  -- Slots that have come stay what they were; those to come are computed again by newer data, and never again by older.
  update pgfresh_engine.schedule_state
  set zone_data = p_zone_data
  where zone_data is null or zone_data < p_zone_data collate "C";
  if found then
    update pgfresh_engine.job_cursor as c
    set revision = revision + 1, slot = null, due_at = '-infinity'
    from pgfresh.scheduled_jobs as j
    where j.id = c.job_id and j.schedule is not null and (c.slot > v_now or c.slot is null);
  end if;
  return v_id;
end
$$;
comment on function pgfresh_engine.register_scheduler(text, text[], text) is
  'Begins an incarnation of a scheduler process: its number, with a lease of 12 s that heartbeat_scheduler renews. '
  'Newer time zone data has future slots computed again.';
grant execute on function pgfresh_engine.register_scheduler(text, text[], text) to pgfresh_planner;

/*
  A late renewal is as good as one in time while nobody has taken over: the runs are fenced by themselves. After a pause
  of the database everybody is late, and nobody is taken for dead before he has had a whole lease to say so.
*/
create or replace function pgfresh_engine.heartbeat_scheduler(p_scheduler bigint, p_held uuid[]) returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := pgfresh.clock();
  v_steady boolean;
begin
  -- Null would read as "holds nothing", and everything that the scheduler runs would be started again.
  if p_held is null or array_position(p_held, null) is not null then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      'p_held must not be null, and no request in it',
      'Pass every request with runs that have not ended, or an empty array.');
  end if;
  update pgfresh_engine.scheduler
  -- The clock may have been set back since; less than what others are judged by, so that who judges has noticed first.
  set steady_since = case
      when lease_until < v_now or lease_until > v_now + interval '30 seconds' then v_now
      else steady_since
    end,
    lease_until = v_now + interval '12 seconds'
  where id = p_scheduler and lease_until > '-infinity'
  returning steady_since <= v_now - interval '12 seconds' into v_steady;
  if not found then
    return jsonb_build_object('alive', false);
  end if;
  return jsonb_build_object('alive', true,
    'dead', case
      when v_steady then (
        select count(*)
        from pgfresh_engine.scheduler
        where lease_until <= v_now or lease_until > v_now + interval '1 minute'
      )
      else 0
    end,
    'cancel', (
      select coalesce(jsonb_agg(r.id), '[]')
      from pgfresh.scheduled_job_runs as r
      where r.scheduler = p_scheduler and r.state = 'running'
        and (r.cancel_asked or not exists (select from pgfresh.scheduled_jobs as j where j.id = r.job_id))
    ),
    -- Not ended here: that may wait for whoever edits the job, and this must not wait.
    'stranded', (
      select coalesce(jsonb_agg(jsonb_build_object('run', r.id, 'job', r.job_id, 'request', r.request)), '[]')
      from pgfresh.scheduled_job_runs as r
      where r.scheduler = p_scheduler and r.state = 'running' and not coalesce(r.request = any (p_held), false)
        and r.started_at < v_now - interval '5 seconds'
    ));
end
$$;
comment on function pgfresh_engine.heartbeat_scheduler(bigint, uuid[]) is
  'Renews the lease of a scheduler that holds these requests. Answers {"alive", "dead", "cancel", "stranded"}: '
  'whether it still has it, how many others have lost theirs, which of its runs are to be cancelled, '
  'and which it was given five seconds ago or more and does not hold.';
grant execute on function pgfresh_engine.heartbeat_scheduler(bigint, uuid[]) to pgfresh_planner;

create or replace function pgfresh_engine.retire_scheduler(p_scheduler bigint) returns int
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_run pgfresh.scheduled_job_runs;
  v_count int := 0;
begin
  perform from pgfresh_engine.scheduler where id = p_scheduler for update;
  for v_run in
    select *
    from pgfresh.scheduled_job_runs
    where scheduler = p_scheduler and state = 'running'
    order by id
    for update skip locked
  loop
    perform pgfresh_engine.close_run(v_run, 'lost', 'its scheduler has stopped', null);
    v_count := v_count + 1;
  end loop;
  -- What is being ended this moment is ended, or taken over when the lease would have run out.
  update pgfresh_engine.scheduler set lease_until = '-infinity' where id = p_scheduler;
  delete from pgfresh_engine.scheduler
  where id = p_scheduler
    and not exists (select from pgfresh.scheduled_job_runs where scheduler = p_scheduler and state = 'running');
  if v_count > 0 then
    perform pg_notify('pgfresh_schedule', '');
  end if;
  return v_count;
end
$$;
comment on function pgfresh_engine.retire_scheduler(bigint) is
  'Ends an incarnation: the next attempt of what it still runs starts elsewhere. Returns how many runs that were.';
grant execute on function pgfresh_engine.retire_scheduler(bigint) to pgfresh_planner;

create or replace function pgfresh_engine.recover_scheduled_runs(p_scheduler bigint) returns int
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := pgfresh.clock();
  v_dead record;
  v_run pgfresh.scheduled_job_runs;
  v_count int := 0;
begin
  perform from pgfresh_engine.scheduler
  where id = p_scheduler and lease_until > v_now and steady_since <= v_now - interval '12 seconds';
  if not found then
    return 0;
  end if;
  for v_dead in
    select id, name
    from pgfresh_engine.scheduler
    -- No lease is that long: it is from before the clock was set back, and who lives has renewed his since.
    where (lease_until <= v_now or lease_until > v_now + interval '1 minute') and id <> p_scheduler
    order by id
    for update skip locked
  loop
    -- A function that the dead process has left running holds its row; it is taken over when it has ended.
    for v_run in
      select *
      from pgfresh.scheduled_job_runs
      where scheduler = v_dead.id and state = 'running'
      order by id
      for update skip locked
    loop
      perform pgfresh_engine.close_run(v_run, 'lost', format('scheduler %s (%s) is gone', v_dead.id, v_dead.name),
        null);
      v_count := v_count + 1;
    end loop;
    update pgfresh_engine.scheduler set lease_until = '-infinity' where id = v_dead.id;
    delete from pgfresh_engine.scheduler
    where id = v_dead.id
      and not exists (select from pgfresh.scheduled_job_runs where scheduler = v_dead.id and state = 'running');
  end loop;
  return v_count;
end
$$;
comment on function pgfresh_engine.recover_scheduled_runs(bigint) is
  'Closes the runs of schedulers whose lease has ended and starts the next attempts of their slots. '
  'For a scheduler that has itself been steady for a whole lease. Returns how many runs.';
grant execute on function pgfresh_engine.recover_scheduled_runs(bigint) to pgfresh_planner;
