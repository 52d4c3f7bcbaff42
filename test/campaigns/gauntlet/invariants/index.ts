export { judgeCall } from './calls.ts';
export { continuous } from './continuous.ts';
export type { Invariant } from './invariant.ts';
export { whenQuiet } from './quiet.ts';
export { atRest } from './rest.ts';
