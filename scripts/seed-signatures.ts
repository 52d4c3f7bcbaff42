interface SeedSignature {
  /** Which of the designs that pgfresh grew from: 001 is the master architecture, 002 the worker system. */
  readonly seed: '001' | '002';
  readonly theirs: string;
  /** Functions, views or tables of the schema that serve its purpose; none where another part of pgfresh does. */
  readonly ours: readonly string[];
  readonly differs: string;
}

/** The queue of the designs, signature by signature, and where each is found here. */
export const seedSignatures: readonly SeedSignature[] = [
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
      'The limit is a budget per source and not one figure for all, and a batch that is too large is claimed in part instead of not at all. Bytes are reserved in the claim. Each job carries its `attempt`. Can be limited to sources, data types and a size. Which code fetches a data type is not a matter of the queue, so no function name is returned. `claim_jobs` is the same for workers with a lease.',
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
    ours: ['fail_queue_job', 'turn_back_jobs'],
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
      'Dead workers are known by a lease of 15 s, silent jobs by the `max_run` of their data type, so no timeout is passed. A loss is counted apart from retries, and the third one fails the job as `worker_lost`. After a pause of the database leases are not believed at once. The arguments are the longest pause between two runs and the most jobs of one run.',
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
      'Nobody has to be called: workers wait for the notification `pgfresh_job` and claim by themselves. Taking back what is stuck is `recover_stuck_jobs`. A source that keeps failing is not claimed from until its `paused_until`; the others go on.',
  },
  {
    seed: '002',
    theirs: 'claim_next_pending_job()',
    ours: ['claim_next_pending_job'],
    differs:
      'Also takes over jobs that have been silent for their maximum, but in the same way as recovery, so that the loss is counted. Can be limited to sources and data types. Null if there is nothing.',
  },
  {
    seed: '002',
    theirs: 'heartbeat: heartbeat_at written every 20 s',
    ours: ['heartbeat_jobs', 'heartbeat_worker'],
    differs:
      'One call for all jobs that somebody holds; it returns those that are still theirs. A worker process has a lease of its own, so a dead one is noticed after 15 s and not after five minutes.',
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
    differs: 'The same columns in the view.',
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
    ours: ['sources'],
    differs:
      'The same columns, and the quota in bytes with its window and buffer. A pause or `enabled = false` keeps every claim away.',
  },
];
