/*
  Loaded last by its name, and again after every change of another file, because a new function is for everybody until
  it is said otherwise. Nothing is for everybody; what is for whom is said here, by name, and nowhere else.

  Rights are given by function. Each one that is given runs with the rights of the schema's owner and a search path of
  its own, and what it calls is given to nobody. The ask_ functions run as pgfresh_evaluator instead, which may read
  users' tables and nothing of ours.
*/
do $$
declare
  v_kind text;
begin
  -- What an earlier version gave is not given any more. Not to the evaluator: each data type gives it a function.
  foreach v_kind in array array['tables', 'functions', 'sequences'] loop
    execute format('revoke all on all %s in schema pgfresh from public, pgfresh_worker, pgfresh_planner, '
      'pgfresh_gateway, pgfresh_monitor, pgfresh_operator, pgfresh_scheduler, pgfresh_viewer', v_kind);
  end loop;
end
$$;

grant usage on schema pgfresh to
  pgfresh_worker, pgfresh_planner, pgfresh_gateway, pgfresh_monitor, pgfresh_operator,
  pgfresh_scheduler, pgfresh_viewer, pgfresh_evaluator;
-- What every process reads when it starts, and what "pgfresh check" reads.
grant select on
  pgfresh.migrations, pgfresh.sources, pgfresh.data_type_registry, pgfresh.warnings, pgfresh.source_health,
  pgfresh.spending_stop, pgfresh.breaker,
  pgfresh.scheduled_jobs, pgfresh.scheduled_job_status, pgfresh.scheduled_job_runs,
  pgfresh.job_cursor, pgfresh.job_statistics, pgfresh.scheduler
to pgfresh_worker, pgfresh_planner, pgfresh_gateway;
grant select on pgfresh.refused_answer to pgfresh_worker;
grant select on pgfresh.planner_run, pgfresh.refresh_schedule to pgfresh_planner;
grant select on all tables in schema pgfresh to pgfresh_monitor, pgfresh_operator;

do $$
declare
  v_given record;
  v_asking text;
begin
  for v_given in
    select f.oid::regprocedure::text as signature, role
    from (values
      -- Every process warns, and examines itself.
      ('{pgfresh_worker, pgfresh_planner, pgfresh_gateway, pgfresh_monitor, pgfresh_operator}'::text[], array[
        'warn', 'type_problems', 'unserved_types', 'job_problem', 'viewer_role_problem', 'check_cron_job_health',
        'is_quota_exceeded', 'calls_now', 'source_budget', 'quota_until', 'explain_pair', 'get_active_subscriptions',
        'quarantined_types']),
      ('{pgfresh_worker, pgfresh_planner, pgfresh_gateway}', array['note_type_timeout']),
      ('{pgfresh_viewer, pgfresh_gateway, pgfresh_worker}', array[
        'upsert_active_subscription', 'remove_active_subscription', 'check_and_queue_stale_batch']),
      ('{pgfresh_gateway}', array[
        'register_node', 'heartbeat_node', 'retire_node', 'set_node_demand',
        'check_pairs', 'refresh_pair', 'count_viewers',
        'admit_pairs', 'watch_changes', 'read_pairs', 'read_pairs_as', 'admit_viewer_role',
        'pump_changes', 'settle_changes']),
      ('{pgfresh_gateway, pgfresh_planner}', array['hold_duty', 'release_duty']),
      ('{pgfresh_worker}', array[
        'get_queue_batch', 'claim_next_pending_job', 'claim_jobs', 'release_claim',
        'fence_jobs', 'complete_jobs', 'complete_queue_job', 'fail_jobs', 'put_back_jobs', 'fail_queue_job',
        'heartbeat_jobs',
        'register_worker', 'serve_types', 'heartbeat_worker', 'retire_worker',
        'take_call', 'count_calls', 'hold_source', 'keep_refused_answer', 'count_losses', 'note_suspicion',
        'lock_evictable', 'note_evicted']),
      ('{pgfresh_planner}', array[
        'cleanup_stale_subscriptions', 'warn_of_unserved_types', 'plan_due_pairs', 'probe_type',
        'types_to_ask', 'next_swept_type',
        'open_refresh_cycle', 'queue_scheduled_refreshes',
        'clear_planner_runs', 'clear_old_warnings', 'clear_unwatched_changes',
        'call_job_function', 'register_scheduler', 'heartbeat_scheduler', 'retire_scheduler', 'recover_scheduled_runs',
        'due_slots', 'settle_slots', 'take_waiting_runs', 'schedule_pause', 'do_run', 'end_run',
        'prune_scheduled_runs', 'count_job_statistics', 'sync_own_jobs', 'prune_pairs', 'prune_usage']),
      ('{pgfresh_worker, pgfresh_planner, pgfresh_operator}', array[
        'queue_refreshes', 'queue_refresh_if_not_exists', 'recover_stuck_jobs']),
      ('{pgfresh_planner, pgfresh_operator}', array['check_and_queue_stale_data', 'maintain_queue_partitions']),
      ('{pgfresh_worker, pgfresh_operator}', array['reset_job_immediate', 'admit_pairs', 'accept_refused_answer']),
      ('{pgfresh_monitor, pgfresh_operator}', array['overview']),
      ('{pgfresh_operator}', array[
        'cancel_queue_jobs', 'retry_failed_jobs', 'pause_source', 'resume_source',
        'override_source', 'clear_source_override',
        'stop_spending', 'resume_spending', 'calibrate_source', 'correct_data_usage']),
      ('{pgfresh_scheduler}', array['check_cron_job_health', 'job_problem']),
      ('{pgfresh_scheduler, pgfresh_operator}', array['job_of_run']),
      ('{pgfresh_scheduler, pgfresh_worker, pgfresh_planner}', array[
        'acquire_refresh_lock', 'renew_refresh_lock', 'release_refresh_lock', 'fence_refresh_lock'])
    ) as given(roles, names)
    cross join unnest(given.roles) as role
    cross join unnest(given.names) as name
    join pg_proc as f on f.proname = name and f.pronamespace = 'pgfresh'::regnamespace
  loop
    execute format('alter function %s security definer', v_given.signature);
    execute format('grant execute on function %s to %I', v_given.signature, v_given.role);
  end loop;

  -- The new owner must be allowed to create here for the moment in which it becomes one.
  grant create on schema pgfresh to pgfresh_evaluator;
  for v_asking in
    select oid::regprocedure::text
    from pg_proc
    where pronamespace = 'pgfresh'::regnamespace
      and proname in ('ask_stale', 'ask_gate', 'ask_keys', 'ask_next_keys', 'ask_rows')
  loop
    execute format('alter function %s owner to pgfresh_evaluator', v_asking);
    execute format('grant execute on function %s to %I', v_asking, current_user);
  end loop;
  revoke create on schema pgfresh from pgfresh_evaluator;

  -- On Supabase, everybody who uses the API is a viewer.
  for v_given in
    select rolname
    from pg_roles
    where rolname in ('anon', 'authenticated') and not pg_has_role(rolname, 'pgfresh_viewer', 'member')
  loop
    execute format('grant pgfresh_viewer to %I', v_given.rolname);
  end loop;
end
$$;
-- Their own statements ask for the time.
grant execute on function pgfresh.clock() to
  pgfresh_worker, pgfresh_planner, pgfresh_gateway, pgfresh_monitor, pgfresh_operator, pgfresh_scheduler;
-- What users' staleness functions may be made of.
grant execute on function
  pgfresh.is_data_stale(timestamptz, interval), pgfresh.is_data_stale(timestamptz, int), pgfresh.clock(),
  pgfresh.refuse(text, text, text), pgfresh.clear_leftovers(text)
to pgfresh_evaluator;

/*
  Jobs are registered by plain inserts. Whose they may be is decided by a trigger, which must run with the rights of the
  writer to know them; so do the functions that pause them, and what all of these call. Operators pause all of them, and
  write nothing else of them.
*/
grant select, delete on pgfresh.scheduled_jobs to pgfresh_scheduler;
do $$
declare
  v_columns text := (
    select string_agg(quote_ident(attname), ', ')
    from pg_attribute
    where attrelid = 'pgfresh.scheduled_jobs'::regclass and attnum > 0 and not attisdropped
      and attname not in ('id', 'resolution', 'problem', 'last_run_at', 'created_at', 'updated_at')
  );
begin
  execute format('grant insert (%1$s), update (%1$s) on pgfresh.scheduled_jobs to pgfresh_scheduler', v_columns);
end
$$;
grant update (enabled, paused_at, paused_by, paused_reason, paused_until) on pgfresh.scheduled_jobs to pgfresh_operator;
-- Whoever asks for a run is known to the first trigger of the view only as long as
-- nothing before it runs with other rights.
grant select on
  pgfresh.scheduled_job_runs, pgfresh.scheduled_job_status, pgfresh.job_cursor, pgfresh.job_statistics,
  pgfresh.scheduler
to pgfresh_scheduler;
grant select, insert on pgfresh.job_request to pgfresh_scheduler, pgfresh_operator;
grant execute on function
  pgfresh.trigger_scheduled_job(text, jsonb), pgfresh.cancel_scheduled_run(bigint),
  pgfresh.backfill_scheduled_job(text, timestamptz[], int),
  pgfresh.pause_scheduled_job(text, text, timestamptz), pgfresh.resume_scheduled_job(text),
  pgfresh.require_job(text), pgfresh.require_job_right(text), pgfresh.can_act_as(oid, oid),
  pgfresh.refuse(text, text, text)
to pgfresh_scheduler, pgfresh_operator;
