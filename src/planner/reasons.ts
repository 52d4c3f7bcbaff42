/** Why a pair is or is not being refreshed now. `explain_pair` answers with one of these and never with anything else. */
export const reasons = {
  running: 'a worker is fetching it',
  retry: 'its job waits for a time: it failed and is tried again, or it was asked for later',
  queued: 'its job waits for a worker',
  unresolved: 'its registry row names something that is not there or is not what was registered',
  not_viewed: 'nobody looks at it',
  held: 'its last outcome says that there is no sense in asking already',
  fresh: 'it is not stale',
  schedule: 'it is there, and refreshed by its schedule only',
  stopped: 'nothing is spent now',
  paused: 'its source is switched off or paused',
  breaker: 'its source failed too often and is left alone for a while',
  rate: 'its source may not be called more often now',
  quota: 'its source has no bytes left now',
  concurrency: 'as many jobs of its source run as may at once',
  same_key: 'another job of the same key runs, and its source takes one at a time',
  gate: 'its gate is closed',
  dependency: 'it needs another data type of the same key first',
  due: 'the next tick queues it',
} as const;

export type Reason = keyof typeof reasons;
