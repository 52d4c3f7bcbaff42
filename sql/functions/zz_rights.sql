/*
  Loaded last by its name, and again after every change of another file, because a new function is for everybody until
  it is said otherwise. Nothing is for everybody; what is for whom is said here, by name, and nowhere else.

  Rights are given by function. Each one that is given runs with the rights of the schema's owner and a search path of
  its own, and what it calls is given to nobody. The ask_ functions run as pgfresh_evaluator instead, which may read
  users' tables and nothing of ours.
*/
revoke all on all tables in schema pgfresh from public;
revoke all on all functions in schema pgfresh from public;
revoke all on all sequences in schema pgfresh from public;

grant usage on schema pgfresh to pgfresh_worker, pgfresh_gateway, pgfresh_scheduler, pgfresh_viewer, pgfresh_evaluator;
grant select on
  pgfresh.sources, pgfresh.data_type_registry, pgfresh.warnings, pgfresh.planner_run, pgfresh.refused_answer,
  pgfresh.source_health, pgfresh.spending_stop, pgfresh.scheduled_jobs, pgfresh.refresh_schedule
to pgfresh_worker;

do $$
declare
  v_given record;
  v_asking text;
begin
  for v_given in
    select f.oid::regprocedure::text as signature, given.role
    from (values
      ('pgfresh_viewer', array[
        'upsert_active_subscription', 'remove_active_subscription', 'check_and_queue_stale_batch']),
      ('pgfresh_gateway', array[
        'upsert_active_subscription', 'remove_active_subscription', 'check_and_queue_stale_batch',
        'register_node', 'heartbeat_node', 'retire_node', 'set_node_demand',
        'check_pairs', 'refresh_pair', 'count_viewers', 'get_active_subscriptions', 'explain_pair',
        'hold_duty', 'release_duty',
        'admit_pairs', 'watch_changes', 'read_pairs', 'read_pairs_as', 'admit_viewer_role', 'viewer_role_problem',
        'pump_changes', 'settle_changes']),
      ('pgfresh_worker', array[
        'upsert_active_subscription', 'remove_active_subscription', 'check_and_queue_stale_batch',
        'get_active_subscriptions', 'cleanup_stale_subscriptions', 'explain_pair', 'overview',
        'plan_due_pairs', 'check_and_queue_stale_data', 'open_refresh_cycle', 'queue_scheduled_refreshes',
        'hold_duty', 'release_duty',
        'clear_planner_runs', 'clear_old_warnings', 'clear_unwatched_changes', 'warn',
        'queue_refreshes', 'queue_refresh_if_not_exists', 'get_queue_batch', 'claim_next_pending_job', 'claim_jobs',
        'complete_jobs', 'complete_queue_job', 'turn_back_jobs', 'fail_queue_job',
        'reset_job_immediate', 'cancel_queue_jobs', 'retry_failed_jobs', 'heartbeat_jobs',
        'register_worker', 'heartbeat_worker', 'retire_worker', 'recover_stuck_jobs', 'maintain_queue_partitions',
        'is_quota_exceeded', 'correct_data_usage', 'take_call', 'count_calls',
        'hold_source', 'pause_source', 'resume_source', 'calibrate_source', 'stop_spending', 'resume_spending',
        'calls_now', 'source_budget',
        'fence_jobs', 'release_claim', 'keep_refused_answer', 'call_job_function',
        'register_scheduler', 'heartbeat_scheduler', 'retire_scheduler', 'recover_scheduled_runs',
        'due_slots', 'settle_slots', 'take_waiting_runs', 'schedule_pause', 'do_run', 'end_run',
        'prune_scheduled_runs', 'count_job_statistics', 'check_cron_job_health',
        'job_problem', 'job_of_run', 'sync_own_jobs',
        'acquire_refresh_lock', 'renew_refresh_lock', 'release_refresh_lock', 'fence_refresh_lock']),
      ('pgfresh_scheduler', array[
        'check_cron_job_health', 'job_problem', 'job_of_run',
        'acquire_refresh_lock', 'renew_refresh_lock', 'release_refresh_lock', 'fence_refresh_lock'])
    ) as given(role, names)
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
-- How much time a claimed call has left is asked in the worker's own statement.
grant execute on function pgfresh.clock() to pgfresh_worker;
-- What users' staleness functions may be made of.
grant execute on function
  pgfresh.is_data_stale(timestamptz, interval), pgfresh.is_data_stale(timestamptz, int), pgfresh.clock(),
  pgfresh.refuse(text, text, text), pgfresh.clear_leftovers(text)
to pgfresh_evaluator;

/*
  Jobs are registered by plain inserts. Whose they may be is decided by a trigger, which must run with the rights of the
  writer to know him; so do the functions that pause them, and what all of these call.
*/
grant select, delete on pgfresh.scheduled_jobs to pgfresh_scheduler;
do $$
declare
  v_columns text := (
    select string_agg(quote_ident(attname), ', ')
    from pg_attribute
    where attrelid = 'pgfresh.scheduled_jobs'::regclass and attnum > 0 and not attisdropped
      and attname not in ('id', 'resolution', 'problem', 'created_at', 'updated_at')
  );
begin
  execute format('grant insert (%1$s), update (%1$s) on pgfresh.scheduled_jobs to pgfresh_scheduler', v_columns);
end
$$;
grant execute on function
  pgfresh.pause_scheduled_job(text, text, timestamptz), pgfresh.resume_scheduled_job(text),
  pgfresh.require_job(text), pgfresh.require_job_right(text), pgfresh.can_act_as(oid, oid),
  pgfresh.clock(), pgfresh.refuse(text, text, text)
to pgfresh_scheduler;
-- Whoever asks for a run is known to the first trigger of the view only as long as
-- nothing before it runs with other rights.
grant select on
  pgfresh.scheduled_job_runs, pgfresh.scheduled_job_status, pgfresh.job_cursor, pgfresh.job_statistics,
  pgfresh.scheduler
to pgfresh_worker, pgfresh_scheduler;
grant select, insert on pgfresh.job_request to pgfresh_worker, pgfresh_scheduler;
grant execute on function
  pgfresh.trigger_scheduled_job(text, jsonb), pgfresh.cancel_scheduled_run(bigint),
  pgfresh.backfill_scheduled_job(text, timestamptz[], int)
to pgfresh_worker, pgfresh_scheduler;
grant execute on function
  pgfresh.require_job(text), pgfresh.require_job_right(text), pgfresh.can_act_as(oid, oid),
  pgfresh.refuse(text, text, text)
to pgfresh_worker;
