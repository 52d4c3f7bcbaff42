interface SeedSignature {
  /** Which of the designs that pgfresh grew from: 000 is the staleness checker, 001 the master architecture, 002 the worker system, 003 jobs at set times, 004 the lease locks. */
  readonly seed: '000' | '001' | '002' | '003' | '004';
  readonly theirs: string;
  /** Functions, views or tables of the schema that serve its purpose; none where another part of pgfresh does. */
  readonly ours: readonly string[];
  readonly differs: string;
}

/** The designs, signature by signature, and where each is found here. */
export const seedSignatures: readonly SeedSignature[] = [
  {
    seed: '000',
    theirs: 'check_and_queue_stale_data_from_presence() → void',
    ours: ['check_and_queue_stale_data', 'plan_due_pairs'],
    differs:
      'One bounded chunk a call, from a stored cursor, and set by set instead of pair by pair; says what it did, and whether all have had their turn. Between two sweeps, `plan_due_pairs` looks every second at what is due, because pgfresh itself wrote when that is. The lock is of the transaction, so nothing has to be released.',
  },
  {
    seed: '000',
    theirs: 'is_exchange_open_for_symbol(symbol, data type) → boolean',
    ours: ['data_type_registry'],
    differs:
      'Any function of that shape is a gate: `gate_function`, and `gate_opens_function` says when it opens again. The rule that missing data is fetched all the same is the planner’s, for every gate.',
  },
  {
    seed: '001',
    theirs: 'table data_type_registry',
    ours: ['data_type_registry', 'sources'],
    differs:
      'A TTL is an interval, `ttl`, so that it may be seconds. `key_columns` stands for `symbol_column`, and may be several. Names are looked up when the row is written. The priority rule of one data type is columns here: `background_priority` and `ui_threshold`.',
  },
  {
    seed: '001',
    theirs: 'is_valid_identifier(text) → boolean',
    ours: ['is_valid_identifier'],
    differs:
      'Also refuses what is longer than 63 bytes or begins with a digit. It is one of three walls: names are looked up in the catalog, and quoted, too.',
  },
  {
    seed: '001',
    theirs: 'is_data_stale(timestamp, minutes) → boolean',
    ours: ['is_data_stale'],
    differs: 'The same, and with an interval. No time at all is stale.',
  },
  {
    seed: '001',
    theirs: 'upsert_active_subscription(user, symbol, data type)',
    ours: ['upsert_active_subscription', 'remove_active_subscription', 'active_subscriptions'],
    differs:
      'The user is taken from the session. Clients have no right on the table, so leaving is a function too. A pair at which nobody looked before is checked at once.',
  },
  {
    seed: '001',
    theirs: 'cleanup of subscriptions, every minute',
    ours: ['cleanup_stale_subscriptions'],
    differs:
      'Only removes. If everybody falls silent at once it waits for 120 s, because that is a tracker that restarts.',
  },
  {
    seed: '001',
    theirs: 'check_and_queue_stale_batch(symbol, data types, priority) → void',
    ours: ['check_and_queue_stale_batch'],
    differs: 'The priority is that of the viewers. Says for each data type what it found.',
  },
  {
    seed: '001',
    theirs: 'queue_scheduled_refreshes() → void',
    ours: ['queue_scheduled_refreshes', 'open_refresh_cycle'],
    differs:
      'Walks over all keys by a cursor instead of taking a sample, so that every key has its turn. What is due is a cycle, opened by its slot.',
  },
  {
    seed: '001',
    theirs: 'queue_refresh_if_not_exists(symbol, data type, priority, estimate) → void',
    ours: ['queue_refresh_if_not_exists', 'queue_refreshes'],
    differs:
      'Says what came of it. One open job a pair is held by the row of the pair, not by a look beforehand that two callers can pass together. A job that waits takes over a higher priority and an earlier time. Estimate and priority may be left out; metadata, a run time and a forced second run can be added. `queue_refreshes` takes many keys at once.',
  },
  {
    seed: '001',
    theirs: 'get_queue_batch(batch size) → jsonb',
    ours: ['get_queue_batch', 'claim_jobs'],
    differs:
      'The limit is a budget per source and not one figure for all, and a batch that is too large is claimed in part instead of not at all. Bytes are reserved in the claim. Each job carries its `attempt`. Can be limited to sources, data types and a size, and takes the name of the worker. Which code fetches a data type is not a matter of the queue, so no function name is returned. `claim_jobs` is the same for workers with a lease.',
  },
  {
    seed: '001',
    theirs: 'complete_queue_job(job, bytes) → void',
    ours: ['complete_queue_job', 'complete_jobs'],
    differs:
      'The job moves to the history in the same transaction. The `attempt` is a fencing token, so a late call has no effect; the answer says whether there was one. An outcome can be named. Every completion corrects the estimate, not one in a hundred. `complete_jobs` ends many of one data type.',
  },
  {
    seed: '001',
    theirs: 'fail_queue_job(job, message) → void',
    ours: ['fail_queue_job', 'fail_jobs'],
    differs:
      'A transient failure waits before it is tried again, longer each time; a permanent one is said to be so and is not tried again. Bytes that the failed call has cost are counted. The number of retries is the data type’s. Returns the new state and the time of the next try.',
  },
  {
    seed: '001',
    theirs: 'reset_job_immediate(job) → void',
    ours: ['reset_job_immediate'],
    differs: 'Takes the attempt as fencing token, gives the reserved bytes back, and says whether it had an effect.',
  },
  {
    seed: '001',
    theirs: 'recover_stuck_jobs(timeout in minutes, most retries) → void',
    ours: ['recover_stuck_jobs', 'heartbeat_worker'],
    differs:
      'Dead workers are known by a lease of 12 s, silent jobs by the `max_run` of their data type, so no timeout is passed. A loss is counted apart from retries, and the third one fails the job as `worker_lost`. After a pause of the database leases are not believed at once. The arguments are the longest pause between two runs and the most jobs of one run.',
  },
  {
    seed: '001',
    theirs: 'is_quota_exceeded(gigabytes, days, buffer) → boolean',
    ours: ['is_quota_exceeded', 'correct_data_usage'],
    differs:
      'Asks for one source, whose quota, window and buffer are columns of `sources`. Open reservations count as used. `correct_data_usage` brings the ledger in line with the provider’s own figure.',
  },
  {
    seed: '001',
    theirs: 'maintain_queue_partitions() → void',
    ours: ['maintain_queue_partitions'],
    differs:
      'The history is partitioned by day and whole days are dropped by age; nothing is emptied at once. Days to keep are arguments, one for successes and one for the rest. Partitions are made three days ahead. The last success of a pair stays in `pairs`.',
  },
  {
    seed: '001',
    theirs: 'table api_call_queue, partitioned by status',
    ours: ['api_call_queue', 'open_jobs', 'failed_jobs'],
    differs:
      'A view. Open jobs are in one small table, ended ones in a history by day, so an end is a delete and an insert and never a move between partitions. The id is a `bigint` that grows, not a `uuid`; `key` stands for `symbol`. The states are those of the worker system: `running` for `processing`, `succeeded` for `completed`, and `retryable` and `cancelled` besides.',
  },
  {
    seed: '001',
    theirs: 'table api_data_usage, one row a job',
    ours: ['api_data_usage', 'usage_correction'],
    differs:
      'A view of totals by source and hour. What one job has used is in its history; corrections are rows of their own.',
  },
  {
    seed: '001',
    theirs: 'invoke_processor_if_healthy() → void',
    ours: [],
    differs:
      'Nobody has to be called: workers wait for the notification `pgfresh_job` and claim by themselves. Taking back what is stuck is `recover_stuck_jobs`. A source that keeps failing is not claimed from until its `paused_until`, and then tried with one job; the others go on.',
  },
  {
    seed: '002',
    theirs: 'claim_next_pending_job()',
    ours: ['claim_next_pending_job'],
    differs:
      'Also takes over jobs that have been silent for their maximum, but in the same way as recovery, so that the loss is counted. Takes the name of the worker. Can be limited to sources and data types. Null if there is nothing.',
  },
  {
    seed: '002',
    theirs: 'heartbeat: heartbeat_at written every 20 s',
    ours: ['heartbeat_jobs', 'heartbeat_worker'],
    differs:
      'One call for all jobs that somebody holds; it returns those that are still theirs. A worker process has a lease of its own, so a dead one is noticed within 15 s and not after five minutes.',
  },
  {
    seed: '002',
    theirs: 'lock timeout of 300 s for all jobs',
    ours: ['data_type_registry'],
    differs: 'The column `max_run` of each data type, 300 s by default.',
  },
  {
    seed: '002',
    theirs: 'backoff: base · 2^retries minutes, at most 24 h',
    ours: ['retry_delay'],
    differs:
      'Any time up to that, chosen at random, so that what failed together does not come back together. The base is 15 s where somebody is looking and 1 min for background work.',
  },
  {
    seed: '002',
    theirs: 'table scrape_jobs (locked_by, locked_at, heartbeat_at, attempts, next_retry_at)',
    ours: ['api_call_queue'],
    differs:
      'The same columns in the view. `locked_by` stays when the job has ended; `heartbeat_at` is the later of the two signs of life, that of the worker and that of the job.',
  },
  {
    seed: '002',
    theirs: 'queries for recent and stuck jobs',
    ours: ['job_status', 'stuck_jobs', 'failed_jobs'],
    differs: 'Views. `stuck_jobs` shows what recovery would take back now, by lease as well as by silence.',
  },
  {
    seed: '002',
    theirs: 'table sources (rate, failure streak, pause)',
    ours: ['sources', 'source_health', 'rate_slot'],
    differs:
      'The same columns, and the quota in bytes with its window and buffer. The rate is counted inside the claim for all workers together, so nobody waits with a job in his hand. After a pause, one probe decides. `enabled = false` keeps every claim away.',
  },
  {
    seed: '003',
    theirs: 'table scheduled_jobs (name, function_name, schedule, timezone, enabled)',
    ours: ['scheduled_jobs'],
    differs:
      'The same columns and the same insert. The function may take its `params` as jsonb, and runs as the role `owner`. What is wrong is refused by the insert. When a job ran last is in its runs.',
  },
  {
    seed: '003',
    theirs: 'function contract: jsonb with success, message, details',
    ours: ['job_result'],
    differs: 'Anything else is a failure that says what was expected. What a function that failed has done is undone.',
  },
  {
    seed: '004',
    theirs: 'acquire_refresh_lock() → boolean',
    ours: ['acquire_refresh_lock'],
    differs:
      'Of any work, by its name, and with who takes it. Says why not instead of false, and has a token with which everything else is done. The first call makes the row. Waits for nobody.',
  },
  {
    seed: '004',
    theirs: 'lock of 5 minutes, for a run of any length',
    ours: ['renew_refresh_lock', 'fence_refresh_lock'],
    differs:
      'The same 5 minutes, but renewed while the work runs; who was too slow to renew can not commit what he did. `withLease` in TypeScript does both.',
  },
  {
    seed: '004',
    theirs: 'release: columns set to null by the function that ran',
    ours: ['release_refresh_lock'],
    differs:
      'One call with the token. It records success or failure and plans the next run; one that comes too late changes nothing and says so. Without a success it only gives the lease back.',
  },
  {
    seed: '004',
    theirs: 'table refresh_schedule (next_run_at, last_run_at, last_status, locked_until, locked_by)',
    ours: ['refresh_schedule'],
    differs:
      'The same columns, one row for each work, with its token, how long to wait after a success and after a failure, and a switch. No index on `locked_until`: rows are found by name, and a renewal rewrites none.',
  },
  {
    seed: '004',
    theirs: 'trigger preserve_first_seen_at',
    ours: ['preserve_first_seen_at', 'attach_first_seen_at'],
    differs: 'For any table, by one call.',
  },
];
