export { CallFailed, type CallOutcome } from './call-failed.ts';
export { SourceClient, type CallOptions, type ClientOptions } from './client.ts';
export { type HttpAnswer } from './http-answer.ts';
