/** Registry, demand and planner. */
export const planningFunctions = [
  'upsert_active_subscription',
  'upsert_active_subscriptions',
  'remove_active_subscription',
  'cleanup_stale_subscriptions',
  'get_active_subscriptions',
  'set_node_demand',
  'refresh_pair',
  'count_viewers',
  'check_and_queue_stale_data',
  'check_and_queue_stale_batch',
  'plan_due_pairs',
  'open_refresh_cycle',
  'queue_scheduled_refreshes',
  'explain_pair',
  'overview',
  'is_data_stale',
  'is_valid_identifier',
  'warn',
  'clear_old_warnings',
  'clear_planner_runs',
  'hold_duty',
  'release_duty',
] as const;

/** The queue and its ledger. */
export const queueFunctions = [
  'queue_refresh_if_not_exists',
  'queue_refreshes',
  'get_queue_batch',
  'claim_next_pending_job',
  'claim_jobs',
  'heartbeat_jobs',
  'complete_queue_job',
  'complete_jobs',
  'fail_queue_job',
  'reset_job_immediate',
  'fail_jobs',
  'put_back_jobs',
  'cancel_queue_jobs',
  'retry_failed_jobs',
  'register_process',
  'heartbeat_process',
  'retire_process',
  'recover_stuck_jobs',
  'is_quota_exceeded',
  'maintain_queue_partitions',
  'clock',
] as const;

/** Sources and their limits. */
export const sourceFunctions = [
  'take_call',
  'count_calls',
  'hold_source',
  'pause_source',
  'resume_source',
  'override_source',
  'clear_source_override',
] as const;

/** Called by a gateway. */
export const changeFunctions = [
  'want_pairs',
  'watch_changes',
  'read_pairs',
  'read_pairs_as',
  'admit_viewer_role',
  'viewer_role_problem',
  'pump_changes',
  'settle_changes',
  'clear_unwatched_changes',
] as const;

/** Also called by a worker. */
export const refreshFunctions = ['fence_jobs', 'release_claim', 'keep_refused_answer'] as const;

/** Leases, and the work done under them. */
export const leaseFunctions = [
  'acquire_refresh_lock',
  'renew_refresh_lock',
  'release_refresh_lock',
  'fence_refresh_lock',
] as const;
/** Scheduled jobs. */
export const jobFunctions = ['call_job_function', 'cron_problem', 'is_time_zone'] as const;

/** Slots and runs of scheduled jobs. */
export const scheduleFunctions = [
  'trigger_scheduled_job',
  'cancel_scheduled_run',
  'backfill_scheduled_job',
  'check_cron_job_health',
  'prune_pairs',
  'prune_scheduled_runs',
  'prune_usage',
  'count_job_statistics',
  'sync_own_jobs',
  'serve_jobs',
  'recover_scheduled_runs',
  'due_slots',
  'settle_slots',
  'take_waiting_runs',
  'schedule_pause',
  'do_run',
  'end_run',
] as const;

/** The functions that users call, from SQL or through a process. The tests call each with invalid arguments. */
export const calledByUsers = [
  ...planningFunctions,
  ...queueFunctions,
  ...sourceFunctions,
  ...refreshFunctions,
  ...leaseFunctions,
  ...jobFunctions,
  ...scheduleFunctions,
  ...changeFunctions,
] as const;
