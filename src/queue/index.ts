export {
  Queue,
  type Claim,
  type ClaimedJob,
  type ClaimOptions,
  type Enqueued,
  type EnqueueResult,
  type EnqueueOptions,
  type JobEnd,
  type JobSuccess,
  type FailureReason,
  type PutBackReason,
  type Unfinished,
} from './queue.ts';
export { workerRegistration, type WorkerAnswer } from './worker-lease.ts';
export { jobEvents, jobStates, transitions, type JobEvent, type JobState } from './states.ts';
