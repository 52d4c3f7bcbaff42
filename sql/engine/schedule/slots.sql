/*
  A new job, or one whose schedule has changed, has no past: its first slot is the next one after now, which a
  scheduler computes. One that was disabled or paused keeps its cursor, so that the slots in between are
  accounted for.
*/
create or replace function pgfresh_engine.follow_job_changes() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_times boolean;
begin
  if tg_op = 'INSERT' then
    insert into pgfresh_engine.job_cursor (job_id, due_at, handler)
    select id, '-infinity', case when kind = 'handler' then function_name end from changed;
  else
    v_times := (new.schedule, new.timezone, new.every_min, new.every_max)
      is distinct from (old.schedule, old.timezone, old.every_min, old.every_max);
    update pgfresh_engine.job_cursor as c
    -- Only the end of its run plans the next slot of a job without a schedule.
    set revision = revision + 1,
      due_at = case when c.due_at = 'infinity' and not v_times then c.due_at else '-infinity' end,
      handler = case when new.kind = 'handler' then new.function_name end,
      slot = case when v_times then null else c.slot end,
      behind = case
        when v_times then null
        when new.enabled and not old.enabled then 'disabled'
        -- A pause that is over no longer holds its slots.
        when old.paused_until > pgfresh.clock() and new.paused_until is null then coalesce(c.behind, 'paused')
        else c.behind
      end
    where c.job_id = new.id;
  end if;
  perform pg_notify('pgfresh_schedule', '');
  return null;
end
$$;
comment on function pgfresh_engine.follow_job_changes() is
  'Has schedulers look at jobs that were added or changed. A part of the scheduler.';
create or replace trigger follow_insert after insert on pgfresh.scheduled_jobs
  referencing new table as changed
  for each statement execute function pgfresh_engine.follow_job_changes();
-- Only these columns: the end of every run writes when it began, and must not pay for this.
create or replace trigger follow_update
  after update of schedule, timezone, every_min, every_max, enabled, kind, function_name,
    jitter, blackout_dates, paused_at, paused_until on pgfresh.scheduled_jobs
  for each row
  when ((new.schedule, new.timezone, new.every_min, new.every_max, new.enabled, new.kind, new.function_name,
      new.jitter, new.blackout_dates, new.paused_at, new.paused_until)
    is distinct from (old.schedule, old.timezone, old.every_min, old.every_max, old.enabled, old.kind,
      old.function_name, old.jitter, old.blackout_dates, old.paused_at, old.paused_until))
  execute function pgfresh_engine.follow_job_changes();

create or replace function pgfresh_engine.due_slots(p_handlers text[], p_functions boolean, p_zone_data text,
  p_limit int)
returns table (
  job_id int, revision int, slot timestamptz, behind text, schedule text, timezone text,
  every_min_ms float8, every_max_ms float8, enabled boolean,
  paused_at timestamptz, paused_until timestamptz, blackout_dates text[],
  catch_up text, catch_up_window_ms float8, catch_up_max int, jitter_ms float8, now timestamptz
)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
-- Few of all jobs are due, which the query planner cannot know.
set enable_hashjoin = off
set enable_mergejoin = off
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  v_now timestamptz := pgfresh.clock();
  v_older boolean := exists (
    select from pgfresh_engine.scheduler_service as s
    join pgfresh_engine.process as p on p.id = s.scheduler
    where p.lease_until > v_now and s.zone_data > p_zone_data collate "C"
  );
  v_theirs text[];
begin
  if v_older then
    v_theirs := array(
      select distinct unnest(s.handlers)
      from pgfresh_engine.scheduler_service as s
      join pgfresh_engine.process as p on p.id = s.scheduler
      where p.lease_until > v_now and s.zone_data > p_zone_data collate "C"
    );
  end if;
  return query
  select c.job_id, c.revision, c.slot, c.behind, j.schedule, j.timezone,
    1000 * extract(epoch from j.every_min)::float8, 1000 * extract(epoch from j.every_max)::float8, j.enabled,
    j.paused_at, j.paused_until, j.blackout_dates::text[],
    j.catch_up, 1000 * extract(epoch from j.catch_up_window)::float8, j.catch_up_max,
    1000 * extract(epoch from j.jitter)::float8, v_now
  from (
    select *
    from pgfresh_engine.job_cursor as c
    where c.due_at <= v_now and (c.handler = any (p_handlers) or (c.handler is null and p_functions))
    order by c.due_at
    limit least(p_limit, 1000)
  ) as c
  join pgfresh.scheduled_jobs as j on j.id = c.job_id
  -- Leave it to a scheduler with newer time zone data, if that one runs the job and knows the zone.
  where not v_older or j.schedule is null or j.timezone = 'UTC'
    or (c.handler is not null and c.handler <> all (v_theirs)) or j.problem is not null
  order by c.due_at, c.job_id;
end
$$;
comment on function pgfresh_engine.due_slots(text[], boolean, text, int) is
  'Jobs whose next slot has come or is not known, the longest due first: those of these handlers, '
  'and of SQL functions if p_functions. Those in time zones only for the newest time zone data of those who run them. '
  'A part of the scheduler.';
grant execute on function pgfresh_engine.due_slots(text[], boolean, text, int) to pgfresh_planner;

create or replace function pgfresh_engine.schedule_pause(p_handlers text[], p_functions boolean) returns float8
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
  v_now timestamptz := pgfresh.clock();
  v_next timestamptz := least(
    (
      select c.due_at
      from pgfresh_engine.job_cursor as c
      where c.due_at < 'infinity' and (c.handler = any (p_handlers) or (c.handler is null and p_functions))
      order by c.due_at
      limit 1
    ),
    (
      select r.run_at
      from pgfresh.scheduled_job_runs as r
      join pgfresh_engine.job_cursor as c on c.job_id = r.job_id
      where r.state = 'waiting'
        and (c.handler = any (p_handlers) or (c.handler is null and p_functions))
      order by r.run_at
      limit 1
    )
  );
begin
  -- A job without a time is due at minus infinity, from which PostgreSQL before 17 cannot subtract.
  return case when v_next <= v_now then 0 else 1000 * extract(epoch from v_next - v_now) end;
end
$$;
comment on function pgfresh_engine.schedule_pause(text[], boolean) is
  'Milliseconds until something is due of these handlers, and of SQL functions if p_functions; '
  'null if nothing ever is. '
  'A part of the scheduler.';
grant execute on function pgfresh_engine.schedule_pause(text[], boolean) to pgfresh_planner;

create or replace function pgfresh_engine.skip_slots(
  p_job_id int, p_reason text, p_from timestamptz, p_to timestamptz, p_count int, p_by text)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  update pgfresh.scheduled_job_runs
  set scheduled_to = p_to, occurrences = occurrences + p_count, completed_at = pgfresh.clock()
  where id = (select id from pgfresh.scheduled_job_runs where job_id = p_job_id order by id desc limit 1)
    and state = 'skipped' and reason = p_reason and scheduled_to < p_from;
  if not found then
    insert into pgfresh.scheduled_job_runs
      (job_id, state, triggered_by, scheduled_for, scheduled_to, occurrences, completed_at, reason)
    values (p_job_id, 'skipped', p_by, p_from, p_to, p_count, pgfresh.clock(), p_reason);
  end if;
end
$$;
comment on function pgfresh_engine.skip_slots(int, text, timestamptz, timestamptz, int, text) is
  'Records slots that did not run; those that follow others of the same reason go into their row. '
  'A part of the scheduler.';

/*
  Applies a scheduler's decisions about slots, each unless another scheduler was faster. Cursor and run
  rows commit together, before anything runs. The check for an open run is here, where the cursor is locked and no other
  transaction can open one.
*/
create or replace function pgfresh_engine.settle_slots(p_scheduler bigint, p_request uuid, p_plans jsonb, p_room int)
returns setof pgfresh_engine.taken_run
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
-- Plans are few compared to jobs, which the query planner cannot know.
set enable_hashjoin = off
set enable_mergejoin = off
set enable_seqscan = off
set jit = off
as $$
declare
  v_now timestamptz := pgfresh.clock();
  v_worker text;
  v_plan record;
  v_skip record;
  v_run record;
  v_active record;
  v_id bigint;
  v_late bigint;
  v_opened boolean;
  v_room int := p_room;
  v_handlers boolean := false;
begin
  v_worker := pgfresh_engine.require_scheduler(p_scheduler);
  perform pgfresh_engine.require_request(p_request);
  if jsonb_typeof(p_plans) is distinct from 'array' or jsonb_array_length(p_plans) > 1000 then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      'p_plans must be an array of at most 1000 plans',
      'See src/schedule/slot-plan.ts.');
  end if;
  for v_plan in
    select c.job_id, c.due_at, p.next, coalesce(p.due, v_now + interval '1 hour') as due, p.skips, p.runs, p.problem,
      j.schedule is null as chained, j.overlap, j.catch_up, j.catch_up_max, j.problem as had_problem,
      j.name, j.kind, j.function_name, j.params, 1000 * extract(epoch from j.timeout)::float8 as timeout_ms
    from jsonb_to_recordset(p_plans) as p(
      job int, revision int, slot timestamptz, next timestamptz, due timestamptz,
      skips jsonb, runs jsonb, problem text
    )
    join pgfresh_engine.job_cursor as c on c.job_id = p.job and c.revision = p.revision
      and c.slot is not distinct from p.slot and c.due_at <= v_now
    join pgfresh.scheduled_jobs as j on j.id = c.job_id
    order by c.job_id for update of c skip locked
  loop
    -- Without room to run it stays due, for this scheduler or another.
    continue when v_room <= 0 and v_plan.runs <> '[]';
    if v_plan.problem is distinct from v_plan.had_problem then
      -- Elsewhere the job is locked before its cursor, so skip a locked job until the next look.
      update pgfresh.scheduled_jobs
      set problem = v_plan.problem
      where id = (select id from pgfresh.scheduled_jobs where id = v_plan.job_id for no key update skip locked);
      continue when not found;
    end if;
    -- Checked first: most plans have none, and reading an empty list costs a statement too.
    if v_plan.skips <> '[]' then
      for v_skip in
        select *
        from jsonb_to_recordset(v_plan.skips)
          as s(reason text, "from" timestamptz, "to" timestamptz, count int, cause text)
      loop
        perform pgfresh_engine.skip_slots(
          v_plan.job_id, v_skip.reason, v_skip."from", v_skip."to", v_skip.count, v_skip.cause
        );
        return next row(null, v_plan.job_id, v_plan.name, v_plan.kind, null, null, null,
          v_skip."from", null, v_skip.cause, null, v_skip.reason, v_skip.count)::pgfresh_engine.taken_run;
      end loop;
    end if;
    v_opened := false;
    for v_run in select * from jsonb_to_recordset(v_plan.runs) as r(slot timestamptz, cause text) loop
      select * into v_active from pgfresh_engine.active_run(v_plan.job_id);
      if v_active.id is null then
        -- Late means after its time and its jitter. An earlier, missed slot may have been due first.
        v_late := 1000 * extract(epoch from v_now - case
          when v_run.cause = 'scheduler' then greatest(v_plan.due_at, v_run.slot)
          else v_run.slot
        end);
        insert into pgfresh.scheduled_job_runs
          (job_id, state, triggered_by, scheduled_for, started_at, lateness_ms, scheduler, request, worker)
        values (v_plan.job_id, 'running', v_run.cause, v_run.slot, v_now, v_late, p_scheduler, p_request, v_worker)
        returning id into v_id;
        return next row(v_id, v_plan.job_id, v_plan.name, v_plan.kind, v_plan.function_name, v_plan.params,
          v_plan.timeout_ms, v_run.slot, 1, v_run.cause, v_late, null, 1)::pgfresh_engine.taken_run;
        v_opened := true;
        v_room := v_room - 1;
        v_handlers := v_handlers or v_plan.kind = 'handler';
      -- A backfill waits for slots, never the reverse; slots that are caught up run one by one.
      elsif v_active.queued = 0 and (v_plan.overlap = 'queue' or v_active.triggered_by = 'backfill')
          or v_plan.catch_up = 'all' and (v_active.triggered_by = 'catchup' or v_run.cause = 'catchup')
          and v_active.queued < v_plan.catch_up_max then
        insert into pgfresh.scheduled_job_runs (job_id, state, triggered_by, scheduled_for)
        values (v_plan.job_id, 'queued', v_run.cause, v_run.slot);
        v_opened := true;
      else
        perform pgfresh_engine.skip_slots(v_plan.job_id, 'overlap', v_run.slot, v_run.slot, 1, v_run.cause);
        return next row(null, v_plan.job_id, v_plan.name, v_plan.kind, null, null, null,
          v_run.slot, null, v_run.cause, null, 'overlap', 1)::pgfresh_engine.taken_run;
      end if;
    end loop;
    update pgfresh_engine.job_cursor
    set slot = case when v_plan.chained and v_opened then null else v_plan.next end,
      due_at = case when v_plan.chained and v_opened then 'infinity' else v_plan.due end,
      behind = null
    where job_id = v_plan.job_id;
  end loop;
  -- A function's writes follow its start in the WAL and cannot outlive it: after a crash the slot is due again,
  -- and nothing was done. Handlers have effects elsewhere.
  if not v_handlers then
    perform set_config('synchronous_commit', 'off', true);
  end if;
end
$$;
comment on function pgfresh_engine.settle_slots(bigint, uuid, jsonb, int) is
  'Accounts for slots as a scheduler has decided, and starts their runs, at most p_room. '
  'Returns the runs that the scheduler has to do now. A part of the scheduler.';
grant execute on function pgfresh_engine.settle_slots(bigint, uuid, jsonb, int) to pgfresh_planner;
