create or replace function pgfresh_engine.require_scheduler(p_scheduler bigint) returns text
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_name text;
begin
  -- Locked, so that it is not declared dead meanwhile.
  select name
  into v_name
  from pgfresh_engine.process
  where id = p_scheduler and kind = 'scheduler' and lease_until > '-infinity'
  for key share;
  if not found then
    perform pgfresh_engine.refuse('PGF_LEASE_LOST',
      format('scheduler %s is not registered any more', coalesce(p_scheduler::text, 'null')),
      'Register it again.');
  end if;
  return v_name;
end
$$;
comment on function pgfresh_engine.require_scheduler(bigint) is
  'The name of a scheduler; refuses one whose lease is lost. A part of the scheduler.';

create or replace function pgfresh_engine.require_request(p_request uuid) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if p_request is null then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      'p_request must not be null',
      'Pass a new uuid for each request, and list it in heartbeat_process until its runs have ended.');
  end if;
end
$$;
comment on function pgfresh_engine.require_request(uuid) is
  'Refuses a request for runs that has no name of its own. A part of the scheduler.';

-- Not in SQL: before PostgreSQL 18, such functions are planned anew for each call.
create or replace function pgfresh_engine.active_run(p_job_id int, out id bigint, out triggered_by text,
  out queued bigint)
language plpgsql stable
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
-- A plan lives as long as its session, and may date from when the table was empty.
set enable_seqscan = off
set jit = off
as $$
declare
  v_running bigint;
  v_waiting bigint;
begin
  select min(r.id) filter (where r.state = 'running'), min(r.id) filter (where r.state = 'waiting'),
    count(*) filter (where r.state = 'queued')
  into v_running, v_waiting, queued
  from pgfresh.scheduled_job_runs as r
  where r.job_id = p_job_id and r.state in ('queued', 'waiting', 'running')
    and (r.triggered_by <> 'backfill' or r.state = 'running');
  id := coalesce(v_running, v_waiting);
  triggered_by := (select r.triggered_by from pgfresh.scheduled_job_runs as r where r.id = active_run.id);
end
$$;
comment on function pgfresh_engine.active_run(int) is
  'The run of a job that is under way, or waits for its next attempt, and how many wait for its end. '
  'A part of the scheduler.';

/*
  Every run ends through here. Lock order: the run, its job, the cursor of the job, then the queued run that
  starts next. No transaction that holds the job or the cursor waits for this run.
*/
create or replace function pgfresh_engine.close_run(
  p_run pgfresh.scheduled_job_runs, p_verdict text, p_message text, p_details jsonb)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
  v_now timestamptz := pgfresh.clock();
  v_job pgfresh.scheduled_jobs;
  v_again timestamptz;
  v_failures int := p_run.attempt - p_run.lost - p_run.earlier;
  v_low interval;
  v_high interval;
  v_slot timestamptz;
begin
  if p_run.started_at is null then
    select * into v_job from pgfresh.scheduled_jobs where id = p_run.job_id for key share;
  else
    update pgfresh.scheduled_jobs set last_run_at = p_run.started_at where id = p_run.job_id returning * into v_job;
  end if;
  -- The job was deleted meanwhile, with its history.
  if not found then
    delete from pgfresh.scheduled_job_runs where id = p_run.id;
    return;
  end if;
  update pgfresh.scheduled_job_runs
  set completed_at = v_now, duration_ms = 1000 * extract(epoch from v_now - p_run.started_at),
    success = p_verdict = 'succeeded', state = case p_verdict when 'lost' then 'failed' else p_verdict end,
    message = left(p_message, 4000), scheduler = null, request = null, run_at = null,
    details = case
      when p_details = 'null' then null
      when octet_length(p_details::text) <= 65536 then p_details
      when p_details is not null then jsonb_build_object('left_out', 'more than 64 kB')
    end
  where id = p_run.id;
  if not p_run.cancel_asked and v_job.enabled then
    if p_verdict = 'failed' and v_failures <= v_job.retries then
      -- Beyond 2 ^ 20 every base exceeds a day, and far beyond that the interval overflows.
      v_again := v_now + least(v_job.retry_base * 2 ^ least(v_failures - 1, 20), interval '24 hours');
    elsif p_verdict = 'lost' and p_run.lost < 3 then
      -- At once if its process died. Repeated losses have another cause, such as a full server.
      v_again := v_now + case
        when p_run.lost = 0 then interval '0'
        else interval '5 seconds' * 5 ^ (p_run.lost - 1)
      end;
    end if;
  end if;
  if v_again is not null then
    insert into pgfresh.scheduled_job_runs
      (job_id, state, triggered_by, scheduled_for, attempt, lost, earlier, run_at, params, requested_by, pause)
    values (p_run.job_id, 'waiting', p_run.triggered_by, p_run.scheduled_for, p_run.attempt + 1,
      p_run.lost + (p_verdict = 'lost')::int, p_run.earlier, v_again, p_run.params, p_run.requested_by, p_run.pause);
  end if;
  if v_again is null and v_job.every_min is not null and p_run.triggered_by in ('scheduler', 'catchup') then
    v_low := case
      when p_verdict = 'succeeded' then v_job.every_min
      else coalesce(v_job.failure_min, v_job.every_min)
    end;
    v_high := case
      when p_verdict = 'succeeded' then v_job.every_max
      else coalesce(v_job.failure_max, v_job.every_max)
    end;
    -- Pseudo-random by the run's id. In milliseconds, the resolution of schedulers.
    v_slot := date_trunc('milliseconds',
      v_now + v_low + (v_high - v_low) * ((hashint8extended(p_run.id, p_run.job_id) & 1048575) / 1048575.0));
  end if;
  update pgfresh_engine.job_cursor
  set runs = runs + (p_run.started_at is not null)::int, successes = successes + (p_verdict = 'succeeded')::int,
    failures_in_a_row = case
      when p_verdict = 'succeeded' then 0
      when p_verdict = 'failed' or (p_verdict = 'lost' and v_again is null) then failures_in_a_row + 1
      else failures_in_a_row
    end,
    last_run_at = coalesce(p_run.started_at, last_run_at),
    last_run_success = case when p_run.started_at is null then last_run_success else p_verdict = 'succeeded' end,
    last_success_at = case when p_verdict = 'succeeded' then v_now else last_success_at end,
    -- Unless the job was changed meanwhile: then it has a slot already, or a scheduler computes one.
    slot = case when due_at = 'infinity' and slot is null then v_slot else slot end,
    due_at = case when due_at = 'infinity' and slot is null then coalesce(v_slot, due_at) else due_at end
  where job_id = p_run.job_id;
  -- Start a queued run, unless another one runs or waits for its next attempt; the next attempt of a backfill
  -- blocks no other.
  if (select a.id from pgfresh_engine.active_run(p_run.job_id) as a) is null then
    update pgfresh.scheduled_job_runs as r
    set state = 'waiting', run_at = greatest(
      v_now,
      case when r.triggered_by = 'backfill' and p_run.triggered_by = 'backfill' then p_run.started_at + r.pause end
    )
    where r.id = (
      select w.id
      from pgfresh.scheduled_job_runs as w
      where w.job_id = p_run.job_id and w.state = 'queued'
        -- One backfill run at a time, or its rate would not hold.
        and (w.triggered_by <> 'backfill' or not exists (
          select from pgfresh.scheduled_job_runs as o
          where o.job_id = w.job_id and o.state = 'waiting'
        ))
      order by w.triggered_by = 'backfill', w.scheduled_for, w.id
      limit 1
    );
  end if;
end
$$;
comment on function pgfresh_engine.close_run(pgfresh.scheduled_job_runs, text, text, jsonb) is
  'Ends a run as succeeded, failed, lost or cancelled: '
  'starts its next attempt, or plans the next slot and lets go what waited for the end. A part of the scheduler.';

create or replace function pgfresh_engine.take_waiting_runs(
  p_scheduler bigint, p_request uuid, p_handlers text[], p_functions boolean, p_limit int)
returns setof pgfresh_engine.taken_run
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
  v_now timestamptz := pgfresh.clock();
  v_worker text;
  v_run pgfresh.scheduled_job_runs;
  v_job pgfresh.scheduled_jobs;
  v_late bigint;
begin
  v_worker := pgfresh_engine.require_scheduler(p_scheduler);
  perform pgfresh_engine.require_request(p_request);
  for v_run in
    select r.*
    from pgfresh.scheduled_job_runs as r
    join pgfresh_engine.job_cursor as c on c.job_id = r.job_id
    where r.state = 'waiting' and r.run_at <= v_now
      and (c.handler = any (p_handlers) or (c.handler is null and p_functions))
    order by r.run_at
    limit least(p_limit, 1000) for update of r skip locked
  loop
    select * into v_job from pgfresh.scheduled_jobs where id = v_run.job_id;
    if v_run.triggered_by in ('scheduler', 'catchup')
        and (not v_job.enabled or (v_job.paused_at <= v_now and v_job.paused_until > v_now)) then
      perform pgfresh_engine.close_run(v_run, 'cancelled', case
        when v_job.enabled then 'the job was paused before it came to this run'
        else 'the job was disabled before it came to this run'
      end, null);
      continue;
    end if;
    if v_run.triggered_by = 'backfill' then
      -- It never runs beside another one, whose end starts it.
      perform from pgfresh_engine.job_cursor where job_id = v_run.job_id for update skip locked;
      continue when not found;
      if (select a.id from pgfresh_engine.active_run(v_run.job_id) as a) is not null then
        update pgfresh.scheduled_job_runs set state = 'queued', run_at = null where id = v_run.id;
        continue;
      end if;
    end if;
    v_late := 1000 * extract(epoch from v_now - v_run.run_at);
    update pgfresh.scheduled_job_runs
    set state = 'running', started_at = v_now, lateness_ms = v_late,
      scheduler = p_scheduler, request = p_request, worker = v_worker, run_at = null
    where id = v_run.id;
    return next row(v_run.id, v_run.job_id, v_job.name, v_job.kind, v_job.function_name,
      coalesce(v_run.params, v_job.params), 1000 * extract(epoch from v_job.timeout)::float8,
      case when v_run.triggered_by <> 'manual' then v_run.scheduled_for end, v_run.attempt, v_run.triggered_by,
      v_late, null, 1)::pgfresh_engine.taken_run;
  end loop;
  -- Usually there is nothing to do, and nothing to flush.
  if not found then
    perform set_config('synchronous_commit', 'off', true);
  end if;
end
$$;
comment on function pgfresh_engine.take_waiting_runs(bigint, uuid, text[], boolean, int) is
  'Starts runs whose wait is over: asked for by hand, queued, or the next attempt. '
  'Returns them. A part of the scheduler.';
grant execute on function pgfresh_engine.take_waiting_runs(bigint, uuid, text[], boolean, int) to pgfresh_planner;

create or replace function pgfresh_engine.end_run(
  p_run_id bigint, p_job_id int, p_scheduler bigint, p_verdict text, p_message text, p_details jsonb default null)
returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
  v_run pgfresh.scheduled_job_runs;
begin
  if p_verdict is null or p_verdict not in ('succeeded', 'failed', 'lost', 'cancelled') then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      format('p_verdict must be succeeded, failed, lost or cancelled, got %s',
        coalesce(left(quote_literal(p_verdict), 40), 'null')),
      'Pass one of them.');
  end if;
  -- Waits for a transaction whose commit was never confirmed.
  -- Written so that only the index on the id fits: the others are full of ended runs.
  -- Also by its job: if a crash undid a start, another run may have the same id.
  select *
  into v_run
  from pgfresh.scheduled_job_runs
  where id = p_run_id and (job_id, scheduler, state) is not distinct from (p_job_id, p_scheduler, 'running')
  for update;
  if not found then
    return false;
  end if;
  perform pgfresh_engine.close_run(v_run, p_verdict, p_message, p_details);
  return true;
end
$$;
comment on function pgfresh_engine.end_run(bigint, int, bigint, text, text, jsonb) is
  'Ends a run of a job by a scheduler. False if it is not its own any more: then nothing was changed.';
grant execute on function pgfresh_engine.end_run(bigint, int, bigint, text, text, jsonb) to pgfresh_planner;

create or replace function pgfresh_engine.fence_run(p_run_id bigint, p_scheduler bigint, out job_id int,
  out params jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
begin
  -- Weak enough to let cancel_asked be written, and strong enough to keep schedulers from taking the run over.
  select r.job_id, coalesce(r.params, j.params)
  into job_id, params
  from pgfresh.scheduled_job_runs as r
  join pgfresh.scheduled_jobs as j on j.id = r.job_id
  where r.id = p_run_id and (r.scheduler, r.state) is not distinct from (p_scheduler, 'running')
  for key share of r;
end
$$;
comment on function pgfresh_engine.fence_run(bigint, bigint) is
  'The job of a run that is still the scheduler''s, and its parameters; '
  'no other scheduler can take it over before the transaction ends. A part of do_run.';

/*
  The ownership check, the function and the record of its result are one transaction, in one round
  trip.
  Without the planner settings of our other functions, which the job's function would inherit.
*/
create or replace function pgfresh_engine.do_run(p_run_id bigint, p_scheduler bigint) returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_run record;
  v_result jsonb;
begin
  v_run := pgfresh_engine.fence_run(p_run_id, p_scheduler);
  if v_run.job_id is null then
    return null;
  end if;
  v_result := pgfresh_engine.call_job_function(v_run.job_id, v_run.params);
  -- The function may have set it for the whole session.
  set local search_path = pg_catalog, pg_temp;
  if not pgfresh_engine.end_run(p_run_id, v_run.job_id, p_scheduler,
      case when (v_result -> 'success')::boolean then 'succeeded' else 'failed' end,
      v_result ->> 'message', v_result -> 'details') then
    return null;
  end if;
  return v_result;
end
$$;
comment on function pgfresh_engine.do_run(bigint, bigint) is
  'Runs the function of a run as its job''s owner, and ends the run as the function says. '
  'Returns the result, or null if the run is not the scheduler''s any more, which is to be rolled back. '
  'To be called as call_job_function is.';
grant execute on function pgfresh_engine.do_run(bigint, bigint) to pgfresh_planner;

create or replace function pgfresh_engine.prune_scheduled_runs(
  p_keep interval default '30 days', p_keep_runs int default 1000, p_jobs int default 100)
returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := pgfresh.clock();
  v_job int;
  v_last int;
  v_jobs int := 0;
  v_runs bigint[];
  v_count int;
  v_slot timestamptz;
  v_deleted int := 0;
begin
  perform pgfresh_engine.require_range('p_keep in seconds', extract(epoch from p_keep), 60, 315360000);
  perform pgfresh_engine.require_range('p_keep_runs', p_keep_runs, 1, 1000000);
  perform pgfresh_engine.require_range('p_jobs', p_jobs, 1, 10000);
  select pruned_job into v_last from pgfresh_engine.schedule_state for update skip locked;
  if not found then
    return jsonb_build_object('skipped', 'locked');
  end if;
  for v_job in select id from pgfresh.scheduled_jobs where id > v_last order by id limit p_jobs loop
    v_jobs := v_jobs + 1;
    v_last := v_job;
    -- The job's oldest, and only some: the rest follows in the next round.
    v_runs := array(
      select o.id
      from (select id, completed_at from pgfresh.scheduled_job_runs where job_id = v_job order by id limit 1000) as o
      where o.completed_at < v_now - p_keep
        or (o.completed_at is not null and o.id <= (
          select id from pgfresh.scheduled_job_runs where job_id = v_job order by id desc offset p_keep_runs limit 1
        ))
    );
    continue when v_runs = '{}';
    -- Settling locks the cursor before the runs, so do not wait here: the holder may be waiting for the
    -- cursor of another job that was just pruned.
    perform from pgfresh_engine.job_cursor where job_id = v_job for update skip locked;
    continue when not found;
    with gone as (
      -- Unless more skipped slots were merged into it meanwhile.
      delete from pgfresh.scheduled_job_runs
      where id = any (v_runs) and completed_at <= v_now
      returning triggered_by, scheduled_for, scheduled_to
    )
    select count(*), max(coalesce(scheduled_to, scheduled_for)) filter (where triggered_by <> 'manual')
    into v_count, v_slot
    from gone;
    if v_slot is not null then
      update pgfresh_engine.job_cursor set forgotten_until = greatest(forgotten_until, v_slot) where job_id = v_job;
    end if;
    v_deleted := v_deleted + v_count;
  end loop;
  update pgfresh_engine.schedule_state set pruned_job = case when v_jobs < p_jobs then 0 else v_last end;
  return jsonb_build_object('jobs', v_jobs, 'deleted', v_deleted, 'done', v_jobs < p_jobs);
end
$$;
comment on function pgfresh_engine.prune_scheduled_runs(interval, int, int) is
  'Forgets runs that ended so long ago, and all but the newest of each job; at most 1000 rows of each '
  'of the next p_jobs jobs. Returns {"jobs", "deleted", "done"}: done when all jobs have had their turn.';
grant execute on function pgfresh_engine.prune_scheduled_runs(interval, int, int) to pgfresh_planner;
