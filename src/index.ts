export {
  defineConfig,
  defineDataType,
  defineSource,
  type Config,
  type DataTypeDefinition,
  type RowSchema,
  type SourceDefinition,
} from './config/index.ts';
export { PgfreshError, type ErrorCode, type ErrorValues } from './errors/index.ts';
export type { EventOf, EventType, PgfreshEvent, WarningCode } from './events/index.ts';
export type { Queryable, Statement } from './database/index.ts';
export {
  Queue,
  type Claim,
  type ClaimedJob,
  type ClaimOptions,
  type Enqueued,
  type EnqueueOptions,
  type EnqueueResult,
  type JobEnd,
  type JobSuccess,
  type TurnBackReason,
  type TurnedBack,
  type Verdict,
} from './queue/index.ts';
export {
  calibrateSource,
  holdSource,
  listSources,
  pauseSource,
  resumeSource,
  resumeSpending,
  showSource,
  stopSpending,
  takeCall,
  type Calibration,
  type SourceHealth,
} from './sources/index.ts';
