-- Requests about jobs. A request has its caller (request.sql), whose right is checked first.
create or replace function pgfresh_engine.hold_job(p_job pgfresh.scheduled_jobs) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  -- The job before its cursor, as everywhere: a new run refers to the job.
  perform from pgfresh.scheduled_jobs where id = p_job.id for key share;
  perform from pgfresh_engine.job_cursor where job_id = p_job.id for update;
  if not found then
    perform pgfresh_engine.refuse('PGF_JOB_UNKNOWN',
      format('the job %s was deleted this moment', p_job.name),
      'The known ones: select name from pgfresh.scheduled_jobs.');
  end if;
end
$$;
comment on function pgfresh_engine.hold_job(pgfresh.scheduled_jobs) is
  'Keeps others from opening a run of a job until the transaction ends; refuses a job that was deleted.';

create or replace function pgfresh_engine.start_requested_run(p_name text, p_params jsonb, p_caller name) returns jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := pgfresh.clock();
  v_job pgfresh.scheduled_jobs := pgfresh_engine.require_job_right(p_name, p_caller);
  v_active record;
  v_queued boolean;
  v_id bigint;
  v_schedulers int;
begin
  perform pgfresh_engine.require_primary();
  if p_params is not null and (jsonb_typeof(p_params) <> 'object' or octet_length(p_params::text) > 65536) then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      format('p_params must be an object of at most 64 kB, got %s', left(p_params::text, 40)),
      'Leave it out to run with the job''s own.');
  end if;
  if v_job.kind = 'sql' and p_params <> '{}' then
    v_job.params := p_params;
    perform pgfresh_engine.resolve_job(v_job);
  end if;
  perform pgfresh_engine.hold_job(v_job);
  select * into v_active from pgfresh_engine.active_run(v_job.id);
  v_queued := v_active.id is not null;
  if v_queued and (v_active.queued > 0 or (v_job.overlap = 'skip' and v_active.triggered_by <> 'backfill')) then
    return jsonb_build_object('success', false, 'reason', 'overlap', 'run_id', v_active.id, 'job_name', v_job.name,
      'message', case
        when v_job.overlap = 'queue' then 'a run of it is under way, and another one waits already'
        when (select r.started_at is null from pgfresh.scheduled_job_runs as r where r.id = v_active.id) then
          'a run of it waits already'
        else 'a run of it is under way'
      end);
  end if;
  insert into pgfresh.scheduled_job_runs (job_id, state, triggered_by, scheduled_for, run_at, params, requested_by)
  values (v_job.id, case when v_queued then 'queued' else 'waiting' end, 'manual', v_now,
    case when not v_queued then v_now end, p_params, p_caller)
  returning id into v_id;
  perform pg_notify('pgfresh_schedule', '');
  v_schedulers := (
    select count(*)
    from pgfresh_engine.process as p
    left join pgfresh_engine.scheduler_service as s on s.scheduler = p.id
    where p.kind = 'scheduler' and p.lease_until > v_now
      and (v_job.kind = 'sql' or v_job.function_name = any (s.handlers))
  );
  return jsonb_build_object('success', true, 'run_id', v_id, 'job_name', v_job.name,
    'state', case when v_queued then 'queued' else 'waiting' end, 'queued', v_queued, 'schedulers', v_schedulers,
    'message', case
      when v_schedulers = 0 and v_job.kind = 'sql' then
        'accepted, but no scheduler runs now: it starts when one does'
      when v_schedulers = 0 then
        format('accepted, but no scheduler with the handler %s runs now: it starts when one does', v_job.function_name)
      when v_queued then 'accepted; it starts when the run that is under way has ended'
      else 'accepted'
    end);
end
$$;
comment on function pgfresh_engine.start_requested_run(text, jsonb, name) is
  'Does what trigger_scheduled_job was asked for.';

/*
  The holder of a job's cursor starts its queued runs, so here too the cursor comes first. A transaction that ends or
  begins a run locks the run before the cursor: so while holding the cursor, this one never waits for a run.
*/
create or replace function pgfresh_engine.cancel_requested_run(p_run_id bigint, p_caller name) returns jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_run pgfresh.scheduled_job_runs;
  v_job pgfresh.scheduled_jobs;
  v_is_held boolean := false;
begin
  perform pgfresh_engine.require_primary();
  select * into v_run from pgfresh.scheduled_job_runs where id = p_run_id;
  select * into v_job from pgfresh.scheduled_jobs where id = v_run.job_id;
  if not found then
    perform pgfresh_engine.refuse('PGF_RUN_UNKNOWN',
      format('there is no run %s', coalesce(p_run_id::text, 'null')),
      'The open ones: select id from pgfresh.scheduled_job_runs where completed_at is null.');
  end if;
  perform pgfresh_engine.require_job_right(v_job.name, p_caller);
  if v_run.state in ('queued', 'waiting') then
    begin
      perform pgfresh_engine.hold_job(v_job);
      select * into v_run from pgfresh.scheduled_job_runs where id = p_run_id for no key update nowait;
      v_is_held := true;
    exception when lock_not_available then
      -- It is just starting. The exception has released the lock on the job.
      null;
    end;
  end if;
  if not v_is_held then
    -- Not FOR UPDATE, which would wait for a run under way.
    select * into v_run from pgfresh.scheduled_job_runs where id = p_run_id for no key update;
  end if;
  if v_run.state in ('queued', 'waiting') and v_is_held then
    v_run.cancel_asked := true;
    perform pgfresh_engine.close_run(v_run, 'cancelled', format('cancelled by %s', p_caller), null);
    return jsonb_build_object('success', true, 'run_id', p_run_id, 'job_name', v_job.name,
      'state', 'cancelled', 'message', 'it had not begun');
  elsif v_run.state in ('queued', 'waiting') then
    return jsonb_build_object('success', false, 'run_id', p_run_id, 'job_name', v_job.name,
      'state', v_run.state, 'message', 'a scheduler was about to begin it and put it off; cancel it again');
  elsif v_run.state = 'running' then
    update pgfresh.scheduled_job_runs set cancel_asked = true where id = p_run_id;
    perform pg_notify('pgfresh_schedule', 'cancel');
    return jsonb_build_object('success', true, 'run_id', p_run_id, 'job_name', v_job.name,
      'state', 'cancelling', 'message', 'its scheduler is told to stop it');
  end if;
  return jsonb_build_object('success', false, 'run_id', p_run_id, 'job_name', v_job.name,
    'state', v_run.state, 'message', 'it has ended already');
end
$$;
comment on function pgfresh_engine.cancel_requested_run(bigint, name) is
  'Does what cancel_scheduled_run was asked for.';

create or replace function pgfresh_engine.queue_requested_slots(
  p_name text, p_slots timestamptz[], p_per_minute int, p_caller name)
returns jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := pgfresh.clock();
  v_job pgfresh.scheduled_jobs := pgfresh_engine.require_job_right(p_name, p_caller);
  v_queued int;
  v_forgotten int;
  v_forgotten_until timestamptz;
  v_next timestamptz;
begin
  perform pgfresh_engine.require_primary();
  perform pgfresh_engine.require_range('p_per_minute', p_per_minute, 1, 6000);
  if p_slots is null or cardinality(p_slots) not between 1 and 10000 or array_position(p_slots, null) is not null then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      'p_slots must be an array of 1 to 10000 slots',
      'Backfill a longer time in several calls.');
  end if;
  if exists (select from unnest(p_slots) as s where not isfinite(s) or s > v_now or s <> date_trunc('minute', s)) then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      'a slot of p_slots is to come, or not on a whole minute',
      'Pass slots of the past, as "pgfresh cron next" prints them.');
  end if;
  perform pgfresh_engine.hold_job(v_job);
  -- The scheduler runs due slots that are not settled yet, but not those of a pause.
  select c.forgotten_until, case
    when v_job.enabled
      and (v_job.paused_at <= v_now and v_job.paused_until > v_now) is not true then c.slot
  end
  into v_forgotten_until, v_next
  from pgfresh_engine.job_cursor as c
  where c.job_id = v_job.id;
  v_forgotten := (
    select count(distinct s.slot)
    from unnest(p_slots) as s(slot)
    where s.slot <= v_forgotten_until and not exists (
      select from pgfresh.scheduled_job_runs as r
      where r.job_id = v_job.id and r.scheduled_for = s.slot and r.triggered_by <> 'manual' and r.state <> 'skipped'
    )
  );
  with wanted as (
    select s.slot, coalesce(max(r.attempt), 0) as attempts
    from (select distinct unnest(p_slots) as slot) as s
    left join pgfresh.scheduled_job_runs as r on r.job_id = v_job.id and r.scheduled_for = s.slot
      and r.triggered_by <> 'manual' and r.state <> 'skipped'
    where (s.slot >= v_next) is not true
    group by s.slot
    having not coalesce(bool_or(r.state in ('succeeded', 'queued', 'waiting', 'running')), false)
      -- A slot without a run may have succeeded before its history was pruned.
      and (count(r.id) > 0 or (s.slot <= v_forgotten_until) is not true)
  )
  insert into pgfresh.scheduled_job_runs
    (job_id, state, triggered_by, scheduled_for, attempt, earlier, requested_by, pause)
  select v_job.id, 'queued', 'backfill', slot, attempts + 1, attempts, p_caller,
    make_interval(secs => 60.0 / p_per_minute)
  from wanted
  order by slot;
  get diagnostics v_queued = row_count;
  -- One at a time: the end of a run starts the next one.
  if not exists (
    select from pgfresh.scheduled_job_runs where job_id = v_job.id and state in ('waiting', 'running')
  ) then
    update pgfresh.scheduled_job_runs
    set state = 'waiting', run_at = v_now
    where id = (
      select id
      from pgfresh.scheduled_job_runs
      where job_id = v_job.id and state = 'queued'
      order by scheduled_for
      limit 1
    );
  end if;
  perform pg_notify('pgfresh_schedule', '');
  return jsonb_build_object('success', true, 'job_name', v_job.name, 'queued', v_queued,
    'skipped', (select count(distinct s) from unnest(p_slots) as s) - v_queued - v_forgotten,
    'forgotten', v_forgotten);
end
$$;
comment on function pgfresh_engine.queue_requested_slots(text, timestamptz[], int, name) is
  'Does what backfill_scheduled_job was asked for.';
