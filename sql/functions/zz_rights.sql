/*
  Loaded last by its name, and again after every change of another file, because a new function is for everybody until it is said
  otherwise. Nothing is for everybody; what is for whom is said here, by name, and nowhere else.

  Rights are given by function. Each one that is given runs with the rights of the schema's owner and a search path of its own, and
  what it calls is given to nobody. The ask_ functions run as pgfresh_evaluator instead, which may read users' tables and nothing of ours.
*/
revoke all on all tables in schema pgfresh from public;
revoke all on all functions in schema pgfresh from public;
revoke all on all sequences in schema pgfresh from public;

grant usage on schema pgfresh to pgfresh_worker, pgfresh_gateway, pgfresh_viewer, pgfresh_evaluator;
grant select on pgfresh.sources, pgfresh.data_type_registry, pgfresh.warnings, pgfresh.planner_run, pgfresh.refused_answer to pgfresh_worker;

do $$
declare
  v_given record;
  v_asking text;
begin
  for v_given in
    select f.oid::regprocedure::text as signature, given.role from (values
      ('pgfresh_viewer', array['upsert_active_subscription', 'remove_active_subscription', 'check_and_queue_stale_batch']),
      ('pgfresh_gateway', array['upsert_active_subscription', 'remove_active_subscription', 'check_and_queue_stale_batch', 'register_node', 'heartbeat_node', 'retire_node', 'set_node_demand', 'check_pairs', 'refresh_pair', 'count_viewers', 'get_active_subscriptions', 'explain_pair', 'hold_duty', 'release_duty',
        'admit_pairs', 'watch_changes', 'read_pairs', 'pump_changes', 'settle_changes']),
      ('pgfresh_worker', array[
        'upsert_active_subscription', 'remove_active_subscription', 'check_and_queue_stale_batch', 'get_active_subscriptions', 'cleanup_stale_subscriptions', 'explain_pair', 'overview',
        'plan_due_pairs', 'check_and_queue_stale_data', 'open_refresh_cycle', 'queue_scheduled_refreshes', 'hold_duty', 'release_duty', 'clear_planner_runs', 'clear_old_warnings', 'clear_unwatched_changes', 'warn',
        'queue_refreshes', 'queue_refresh_if_not_exists', 'get_queue_batch', 'claim_next_pending_job', 'claim_jobs', 'complete_jobs', 'complete_queue_job', 'turn_back_jobs', 'fail_queue_job',
        'reset_job_immediate', 'cancel_queue_jobs', 'retry_failed_jobs', 'heartbeat_jobs', 'register_worker', 'heartbeat_worker', 'retire_worker', 'recover_stuck_jobs', 'maintain_queue_partitions',
        'is_quota_exceeded', 'correct_data_usage', 'take_call', 'hold_source', 'pause_source', 'resume_source', 'calibrate_source', 'stop_spending', 'resume_spending',
        'fence_jobs', 'release_claim', 'keep_refused_answer'])
    ) as given(role, names)
    cross join unnest(given.names) as name join pg_proc as f on f.proname = name and f.pronamespace = 'pgfresh'::regnamespace
  loop
    execute format('alter function %s security definer', v_given.signature);
    execute format('grant execute on function %s to %I', v_given.signature, v_given.role);
  end loop;

  -- The new owner must be allowed to create here for the moment in which it becomes one.
  grant create on schema pgfresh to pgfresh_evaluator;
  for v_asking in select oid::regprocedure::text from pg_proc where pronamespace = 'pgfresh'::regnamespace and proname in ('ask_stale', 'ask_gate', 'ask_keys', 'ask_next_keys', 'ask_rows') loop
    execute format('alter function %s owner to pgfresh_evaluator', v_asking);
    execute format('grant execute on function %s to %I', v_asking, current_user);
  end loop;
  revoke create on schema pgfresh from pgfresh_evaluator;

  -- On Supabase, everybody who uses the API is a viewer.
  for v_given in select rolname from pg_roles where rolname in ('anon', 'authenticated') and not pg_has_role(rolname, 'pgfresh_viewer', 'member') loop
    execute format('grant pgfresh_viewer to %I', v_given.rolname);
  end loop;
end
$$;
-- How much time a claimed call has left is asked in the worker's own statement.
grant execute on function pgfresh.clock() to pgfresh_worker;
-- What users' staleness functions may be made of.
grant execute on function pgfresh.is_data_stale(timestamptz, interval), pgfresh.is_data_stale(timestamptz, int), pgfresh.clock(), pgfresh.refuse(text, text, text) to pgfresh_evaluator;
