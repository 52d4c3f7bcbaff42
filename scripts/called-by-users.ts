/**
 * The functions of the schema that users call, from SQL or through the library. The others are parts of these.
 * The page of the SQL functions shows these first, and the tests call each of them with everything that makes no sense.
 */
export const calledByUsers = [
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
  'turn_back_jobs',
  'cancel_queue_jobs',
  'retry_failed_jobs',
  'register_worker',
  'heartbeat_worker',
  'retire_worker',
  'recover_stuck_jobs',
  'is_quota_exceeded',
  'correct_data_usage',
  'maintain_queue_partitions',
  'clock',
] as const;
