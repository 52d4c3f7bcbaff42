/** The states of a job as users see them. The last three are final: the job is then in the history. */
export const jobStates = ['pending', 'running', 'retryable', 'succeeded', 'failed', 'cancelled'] as const;
export type JobState = (typeof jobStates)[number];

/** What can happen to a job. */
export const jobEvents = [
  'claimed',
  'completed',
  'failed_transiently',
  'retries_used_up',
  'failed_permanently',
  'put_back',
  'put_back_too_often',
  'lost',
  'lost_three_times',
  'due',
  'cancelled',
] as const;
export type JobEvent = (typeof jobEvents)[number];

const ended: Record<JobEvent, undefined> = {
  claimed: undefined,
  completed: undefined,
  failed_transiently: undefined,
  retries_used_up: undefined,
  failed_permanently: undefined,
  put_back: undefined,
  put_back_too_often: undefined,
  lost: undefined,
  lost_three_times: undefined,
  due: undefined,
  cancelled: undefined,
};

/**
 * The state machine of a job: where each event leads from each state; `undefined` where it has no effect.
 * The SQL functions implement it; the tests check every cell on a real database.
 */
export const transitions: Record<JobState, Record<JobEvent, JobState | undefined>> = {
  pending: { ...ended, claimed: 'running', cancelled: 'cancelled' },
  retryable: { ...ended, due: 'pending', cancelled: 'cancelled' },
  running: {
    claimed: undefined,
    completed: 'succeeded',
    failed_transiently: 'retryable',
    retries_used_up: 'failed',
    failed_permanently: 'failed',
    put_back: 'pending',
    put_back_too_often: 'retryable',
    lost: 'pending',
    lost_three_times: 'failed',
    due: undefined,
    cancelled: 'cancelled',
  },
  succeeded: ended,
  failed: ended,
  cancelled: ended,
};
