export { Backoff } from './backoff.ts';
export { BatchSize, halves } from './bisection.ts';
export { every } from './every.ts';
export { failpoint, hasFailpoints, workerFailpoints, type FailpointName } from './failpoint.ts';
export { pause } from './pause.ts';
export { Service, stopAll, thenStop } from './service.ts';
export { TokenBucket } from './token-bucket.ts';
export { Wake } from './wake.ts';
export { within } from './within.ts';
