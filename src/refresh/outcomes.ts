/** How a refresh can end, and what follows from it. */
export interface OutcomeRule {
  /**
   * What happens to the job. `complete`: it succeeded. The others are the queue's: `retry` waits and tries again,
   * `fail` is final, `put_back` counts as no failure.
   */
  readonly verdict: 'complete' | 'retry' | 'fail' | 'put_back' | 'lost' | 'cancel';
  /** Whether the source's breaker counts it as a failure. */
  readonly breaker: boolean;
  /** When the pair is checked next. For docs/reference/errors.md: SQL sets the times; code reads `source` and `key`. */
  readonly nextLook: 'ttl' | 'emptyTtl' | 'backoff' | 'hold' | 'at once' | 'source' | 'key';
  /** Whether the answer is stored for inspection and replay. */
  readonly keepsAnswer: boolean;
  readonly says: string;
}

const done = { verdict: 'complete', breaker: false, keepsAnswer: false } as const;
const later = { verdict: 'retry', nextLook: 'backoff' } as const;
const final = { verdict: 'fail', breaker: false, nextLook: 'hold' } as const;

/**
 * Every outcome; no job can end in another way. Some SQL functions know outcomes by name. Success:
 * `complete_jobs`, `accept_refused_answer`, `state_of`, `note_lapses`, `follow_type`, `obstacles_of`.
 * Unusable answer: `is_refused_answer`.
 */
export const outcomes = {
  fresh: { ...done, nextLook: 'ttl', says: 'New rows were written.' },
  unchanged: { ...done, nextLook: 'ttl', says: 'The provider has nothing newer, and the content is the same.' },
  empty: { ...done, nextLook: 'emptyTtl', says: 'The provider has nothing for this key.' },
  older_source: {
    ...done,
    nextLook: 'ttl',
    says: 'The provider answered with different data that is not newer than the stored data.',
  },
  schema: { ...final, keepsAnswer: true, says: 'The answer, or a row made from it, does not match its schema.' },
  sanity: { ...later, breaker: false, keepsAnswer: true, says: 'A value is out of bounds.' },
  wrong_key: { ...later, breaker: false, keepsAnswer: true, says: 'The answer is for another key.' },
  suspicious: {
    ...final,
    keepsAnswer: true,
    says: 'The answer would delete more rows at once than the data type allows.',
  },
  not_json: { ...later, breaker: true, keepsAnswer: true, says: 'The answer is not JSON.' },
  too_large: { ...final, keepsAnswer: false, says: 'The answer is larger than the source allows.' },
  timeout: {
    ...later,
    breaker: true,
    keepsAnswer: false,
    says: 'The whole answer did not arrive within the time limit.',
  },
  http_4xx: { ...final, keepsAnswer: true, says: 'The provider rejected the request (4xx).' },
  unauthorized: {
    verdict: 'put_back',
    breaker: false,
    nextLook: 'key',
    keepsAnswer: true,
    says: 'The provider rejected the API key (401), which is paused.',
  },
  forbidden: {
    ...final,
    keepsAnswer: true,
    says: 'The provider rejected the request (403). At the third pair in a row, the job is put back and the API key is paused.',
  },
  http_5xx: { ...later, breaker: true, keepsAnswer: true, says: 'The provider failed (5xx).' },
  rate_limited: {
    verdict: 'put_back',
    breaker: false,
    nextLook: 'source',
    keepsAnswer: false,
    says: 'The provider asked for a pause, and the whole source is paused.',
  },
  no_slot: {
    verdict: 'put_back',
    breaker: false,
    nextLook: 'at once',
    keepsAnswer: false,
    says: 'It needs more calls than its source had left. It is tried again when there are enough.',
  },
  network: {
    ...later,
    breaker: true,
    keepsAnswer: false,
    says: 'The provider could not be reached, or the connection broke.',
  },
  config: {
    ...final,
    keepsAnswer: true,
    says: 'The data type cannot be fetched as defined: its request or rows function failed, or its table does not match.',
  },
  write_conflict: { ...final, keepsAnswer: true, says: 'The table rejected the rows.' },
  busy: {
    ...later,
    breaker: false,
    keepsAnswer: false,
    says: 'The table was locked, or the database was too slow, for longer than a commit waits.',
  },
  dependency: {
    ...later,
    breaker: false,
    keepsAnswer: false,
    says: 'A row that the new rows refer to is missing, or a row to be deleted is still referred to.',
  },
  interrupted: {
    verdict: 'put_back',
    breaker: false,
    nextLook: 'at once',
    keepsAnswer: false,
    says: 'The worker stopped, was too late to make its call, or its commit conflicted with another one.',
  },
  redefined: {
    verdict: 'put_back',
    breaker: false,
    nextLook: 'at once',
    keepsAnswer: false,
    says: 'The data type changed while the job ran, so its answer was not written.',
  },
  worker_lost: {
    verdict: 'lost',
    breaker: false,
    nextLook: 'at once',
    keepsAnswer: false,
    says: 'The worker died or was silent for too long. At the third time, the job fails.',
  },
  cancelled: {
    verdict: 'cancel',
    breaker: false,
    nextLook: 'ttl',
    keepsAnswer: false,
    says: 'The job was cancelled.',
  },
} as const satisfies Record<string, OutcomeRule>;

export type OutcomeName = keyof typeof outcomes;
type With<Verdict> = {
  [Name in OutcomeName]: (typeof outcomes)[Name]['verdict'] extends Verdict ? Name : never;
}[OutcomeName];
/** Outcomes of jobs that succeed. */
export type SuccessName = With<'complete'>;
/** Outcomes with which a worker fails a job or puts it back. */
export type RefusalName = With<'retry' | 'fail' | 'put_back'>;

/** Why an answer, or a step towards it, is not good enough to be written. */
export class Refusal extends Error {
  override readonly name = 'Refusal';
  readonly outcome: RefusalName;

  constructor(outcome: RefusalName, message: string, options?: { cause?: unknown }) {
    super(message, options);
    this.outcome = outcome;
  }
}
