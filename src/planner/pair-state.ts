/**
 * The state of a pair has two axes, with the same words in SQL, code, CLI, metrics, protocol and client. In SQL,
 * `pgfresh_engine.state_of` and `pgfresh_engine.activity_of` define them.
 */

/** The state of its data. */
export const dataStates = {
  fresh: 'younger than its TTL, by the time of its row or by the time at which the source confirmed it',
  stale: 'there is a row, and it is older than that',
  missing: 'there is no row',
  empty: 'the source says that there is nothing',
  older_source: 'past its TTL, and the source answers with something older than what is here',
} as const;
export type DataState = keyof typeof dataStates;

/** What is being done about it. */
export const activities = {
  idle: 'nothing is to be done',
  refreshing: 'a worker is fetching it',
  waiting: 'it is to be refreshed, and waits for a reason',
} as const;
export type Activity = keyof typeof activities;

/**
 * Why a pair waits; of several reasons, the one that lasts longest. Operators get a detailed sentence, written only by
 * `pgfresh_engine.obstacles_of` and `explanation_of`; viewers get a fixed one from the gateway.
 */
export const reasons = {
  queued: 'its job waits for a worker',
  retry: 'it is tried again at a known time',
  refused: 'its last refresh failed for good; the source is asked again at a known time',
  due: 'the next tick queues it',
  gate: 'its gate is closed',
  dependency: 'it needs another data type of the same key first',
  rate: 'its source may not be called more often now',
  quota: 'its source has no bytes left now',
  breaker: 'its source failed too often and is left alone for a while',
  paused: 'its source is switched off or paused',
  stopped: 'nothing is spent now',
  concurrency: 'as many jobs of its source run as may at once',
  same_key: 'another job of the same key runs, and its source takes one at a time',
  no_worker: 'no worker that runs can fetch it',
  quarantined: 'its table or a function of its data type does not answer in time; it is probed every second',
  unresolved: 'its registry row names something that is not there or is not what was registered',
} as const;
export type Reason = keyof typeof reasons;
