export { BatchSize, halves } from './bisection.ts';
export { failpoint, workerFailpoints, type FailpointName } from './failpoint.ts';
export { Service, stopAll, thenStop } from './service.ts';
export { Wake } from './wake.ts';
export { within } from './within.ts';
