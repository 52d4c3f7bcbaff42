export { CallFailed, type CallOutcome } from './call-failed.ts';
export { SourceClient, type CallOptions, type ClientOptions } from './client.ts';
export { type HttpAnswer } from './http-answer.ts';
export { calibrateSource, type Calibration } from './calibration.ts';
export { listSources, notesOf, showSource, type SourceHealth } from './health.ts';
export { clearOverride, overrideSource } from './overrides.ts';
export { holdSource, pauseSource, resumeSource, takeCall } from './pause.ts';
export { countCalls, takeSingleCall } from './single-call.ts';
export { examineApiKeys, examineSources, resumeSpending, stopSpending } from './spending.ts';
