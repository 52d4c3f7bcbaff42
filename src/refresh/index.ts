export { type DataType } from '../registry/index.ts';
export { readCatalog, type Catalog } from './catalog.ts';
export { Commits, type EndedJob, type ReadyJob } from './commit.ts';
export { examineFetchers } from './examination.ts';
export { outcomes, type OutcomeName, type OutcomeRule } from './outcomes.ts';
export { type RefreshType } from './refresh-type.ts';
export { Refresher, type Fetched } from './refresher.ts';
export { listRefused, readRefused, replayRefused, type RefusedEntry } from './refused.ts';
export { tryPair, type RowChange, type Trial } from './trial.ts';
