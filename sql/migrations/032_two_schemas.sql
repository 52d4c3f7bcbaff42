-- drops: view job_status
/*
  pgfresh has what people touch, pgfresh_engine everything else. What is moved keeps its identity: views of users,
  triggers on their tables and references between our own stay as they are.
*/
comment on schema pgfresh_engine is
  'The inside of pgfresh. It may change with every version; what is for people is in the schema pgfresh.';
revoke all on schema pgfresh_engine from public;

do $$
declare
  v_name text;
  v_object record;
begin
  -- Tables with what belongs to them, and sequences.
  foreach v_name in array array[
    'breaker', 'change', 'change_epoch', 'claim', 'demand_change', 'demand_waiting', 'due', 'duty', 'eviction',
    'former_type_name', 'history_attempt', 'history_attempt_default', 'history_other', 'history_other_default',
    'history_succeeded', 'history_succeeded_default', 'hold', 'job', 'job_cursor', 'job_statistics', 'node_demand',
    'nodes', 'pairs', 'planner_run', 'planner_state', 'pruning', 'rate_slot', 'recovery', 'refresh_cycle',
    'refused_answer', 'refused_pair', 'registry_change', 'schedule_state', 'scheduler', 'source_past',
    'source_place', 'source_state', 'type_dependency', 'type_losses', 'type_resolution', 'type_stats',
    'type_timeout', 'usage', 'usage_correction', 'viewer_calls', 'watched_type', 'worker', 'worker_name',
    'worker_service'
  ] loop
    execute format('alter table pgfresh.%I set schema pgfresh_engine', v_name);
  end loop;
  -- The days of the history.
  for v_object in
    select c.relname
    from pg_class as c
    where c.relnamespace = 'pgfresh'::regnamespace and c.relkind = 'r'
      and c.relname ~ '^history_(attempt|other|succeeded)_(\d{8}|aside_\d{8})$'
  loop
    execute format('alter table pgfresh.%I set schema pgfresh_engine', v_object.relname);
  end loop;
  foreach v_name in array array['job_id', 'lock_token'] loop
    execute format('alter sequence pgfresh.%I set schema pgfresh_engine', v_name);
  end loop;
  drop view if exists pgfresh.job_status;
  foreach v_name in array array['open_jobs', 'job_request'] loop
    execute format('alter view if exists pgfresh.%I set schema pgfresh_engine', v_name);
  end loop;
  foreach v_name in array array['claimed_job', 'job_end', 'look', 'looks', 'obstacle', 'taken_run'] loop
    if to_regtype('pgfresh.' || v_name) is not null then
      execute format('alter type pgfresh.%I set schema pgfresh_engine', v_name);
    end if;
  end loop;
  -- Made again for each role when it is needed. Theirs cannot be moved by somebody else, but dropped.
  for v_object in
    select oid::regprocedure::text as signature
    from pg_proc
    where pronamespace = 'pgfresh'::regnamespace and proname ~ '^(read|run)_as_\d+$'
      and oidvectortypes(proargtypes) = case when proname ~ '^read' then 'text, text[]' else 'text, text, jsonb' end
  loop
    execute format('drop function %s', v_object.signature);
  end loop;
  -- By name and arguments: a function that users have added under one of these names stays where it is.
  for v_object in
    select oid::regprocedure::text as signature
    from pg_proc
    where pronamespace = 'pgfresh'::regnamespace
      and (proname ~ '^(mark|rows|check)_\d+$' and oidvectortypes(proargtypes) = case substring(proname from '^[a-z]+')
        when 'mark' then ''
        when 'rows' then 'text[]'
        else 'text[], timestamp with time zone[], timestamp with time zone[], timestamp with time zone[], '
          'interval, timestamp with time zone'
      end or oid in (
        select objid from pgfresh_engine.manifest where ours and classid = 'pg_proc'::regclass
      ) and proname = any (array[
        'accept_job', 'accept_refused_answer', 'active_run', 'activity_of', 'add_counts', 'add_pairs',
        'add_source_state', 'add_usage', 'admit_keys', 'admit_new_keys', 'admit_pairs', 'admit_viewer_role',
        'admitted_keys', 'ask_gate', 'ask_keys', 'ask_next_keys', 'ask_rows', 'ask_rows_as', 'ask_stale', 'band_of',
        'begin_rate', 'breaker_obstacle', 'call_job_function', 'calls_now', 'calls_until', 'calls_users',
        'can_act_as', 'cancel_jobs', 'cancel_requested_run', 'canonical_key', 'catalog_stamps', 'changes_since',
        'check_job_request', 'check_job_right', 'check_job_schedule', 'check_pairs', 'claim_jobs', 'clear_leftovers',
        'clear_old_warnings', 'clear_planner_runs', 'clear_source_override', 'clear_type', 'clear_unwatched_changes',
        'client_number', 'close_ends', 'close_run', 'complete_job', 'complete_jobs', 'complete_registry_row',
        'confirmed_of', 'cool_down', 'count_call', 'count_calls', 'count_job_statistics', 'count_losses',
        'count_unknown_calls', 'count_viewers', 'cron_problem', 'decide_looks', 'deny_key', 'do_job_request',
        'do_run', 'drop_change_functions', 'drop_unviewed_jobs', 'drop_waiting_jobs', 'due_answer', 'due_slots',
        'end_job_runs', 'end_run', 'expire_nodes', 'explained_key', 'explanation_of', 'fail_jobs', 'failure_hold',
        'fence_jobs', 'fence_run', 'find_column', 'find_function', 'find_table', 'fold_demand', 'follow_changes',
        'follow_job_changes', 'follow_registry', 'forget_job', 'forget_type', 'free_calls', 'function_mark',
        'has_key_rules', 'has_reader', 'has_row', 'hasten', 'heartbeat_node', 'heartbeat_scheduler',
        'heartbeat_worker', 'history_aside', 'hold_at_gate', 'hold_duty', 'hold_for_prerequisites', 'hold_job',
        'hold_source', 'hold_words', 'in_words', 'is_gate_open', 'is_job_as_registered', 'is_loss_held',
        'is_quarantined', 'is_refused_answer', 'is_row_lost', 'is_time_zone', 'is_write_locked', 'job_change',
        'job_of_run', 'job_problem', 'job_result', 'judge_denials', 'judge_keys', 'keep_change_triggers',
        'keep_former_name', 'keep_overrides', 'keep_refused_answer', 'keep_resolution', 'keep_source_id',
        'key_expression', 'lane_of', 'lapse_pause', 'last_use_of', 'learn_size', 'leave_alone', 'limit_lock_waits',
        'list_again', 'lock_ends', 'lock_evictable', 'lock_lease', 'lock_looks', 'lock_ready', 'longest_retry_delay',
        'longest_silence', 'look_again', 'looks_at', 'make_history_days', 'make_job_runner', 'make_pairs',
        'mark_ends', 'mark_pairs', 'move_history', 'move_jobs', 'near_miss', 'next_swept_type', 'note_answers',
        'note_demand', 'note_evicted', 'note_failure', 'note_failures', 'note_hold', 'note_lapses', 'note_refusals',
        'note_rows', 'note_success', 'note_suspicion', 'note_trouble', 'note_type_timeout', 'one_of_each',
        'open_end', 'open_jobs_for', 'open_refresh_cycle', 'override_source', 'overview', 'pair_obstacles',
        'pick_free', 'pick_limited', 'plan_due_pairs', 'plan_looks', 'plan_new_looks', 'planning_obstacles',
        'prerequisite_look_at', 'priority_of', 'probe_type', 'promote_jobs', 'prune_pairs', 'prune_scheduled_runs',
        'prune_usage', 'pump_changes', 'put_back_end', 'put_back_jobs', 'quarantine_obstacle', 'quarantined_types',
        'queue_cycle_keys', 'queue_lost_prerequisites', 'queue_refreshes', 'queue_requested_slots', 'quota_until',
        'raise_jobs', 'read_cron_field', 'read_cron_value', 'read_pairs', 'read_pairs_as', 'ready_lanes',
        'record_run', 'recover_scheduled_runs', 'recover_silent_jobs', 'refresh_pair', 'refuse',
        'refuse_broken_rules', 'refuse_job', 'refuse_registry', 'refuse_used_source', 'refused_alone',
        'register_node', 'register_scheduler', 'register_worker', 'release_claim', 'release_duty', 'release_held',
        'release_refused', 'replan_pairs', 'requeue_ends', 'require_ends', 'require_job', 'require_job_ends',
        'require_job_right', 'require_key', 'require_label', 'require_lease', 'require_measures', 'require_outcome',
        'require_primary', 'require_range', 'require_readable', 'require_reason', 'require_request',
        'require_scheduler', 'require_source', 'require_type', 'require_viewer', 'require_worker_name',
        'resolve_job', 'resolve_type', 'retire_node', 'retire_scheduler', 'retire_worker', 'retry_delay',
        'review_open_jobs', 'revoke_pairs', 'row_time_of', 'run_again', 'running_attempt', 'schedule_pause',
        'serve_types', 'set_history_aside', 'set_node_demand', 'set_source_value', 'settle_changes', 'settle_ends',
        'settle_slots', 'settle_usage', 'skip_slots', 'slot_free_at', 'source_budget', 'source_for',
        'source_hindrance', 'source_obstacle', 'source_obstacles', 'source_settings', 'split_name',
        'start_requested_run', 'state_of', 'sync_own_jobs', 'take_back', 'take_call', 'take_due', 'take_job_slots',
        'take_key_probes', 'take_limits', 'take_slots', 'take_waiting_runs', 'token_of', 'type_obstacle',
        'type_probes', 'type_problem', 'type_problems', 'types_left_out', 'types_to_ask', 'unknown_size',
        'unlisted_keys', 'unserved_types', 'use_by_of', 'version_of', 'viewer_role_problem', 'wake_workers', 'warn',
        'warn_of_unserved_types', 'watch_changes', 'why_not_now', 'worker_called', 'worker_obstacle',
        'write_change_functions', 'write_check'
      ]))
  loop
    execute format('alter function %s set schema pgfresh_engine', v_object.signature);
  end loop;
end
$$;
