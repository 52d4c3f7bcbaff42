export { Health, type HealthReport } from './health.ts';
export { logEvents } from './log.ts';
export { Metrics } from './metrics.ts';
export {
  countedStates,
  readOverview,
  shared,
  type Freshness,
  type Overview,
  type OverviewProblem,
  type SourceOverview,
  type TypeOverview,
} from './overview.ts';
export { warnOfMisspelt } from './misspelt.ts';
export { problemSentence } from './problem-sentence.ts';
export { sentenceOf } from './sentence.ts';
export { examine, type Finding } from './doctor.ts';
export { isUncreated } from './uncreated.ts';
export { recordWarnings } from './warning-log.ts';
