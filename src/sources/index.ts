export { CallFailed, type CallOutcome } from './call-failed.ts';
export { SourceClient, type HttpAnswer } from './source-client.ts';
