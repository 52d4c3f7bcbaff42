export {
  defineConfig,
  defineDataType,
  defineSource,
  mergeWhenGreater,
  type AnswerContext,
  type ApiKeyPlace,
  type Authorization,
  type AuthorizeContext,
  type Bounds,
  type Config,
  type DataTypeDefinition,
  type HttpRequest,
  type MergeWhenGreater,
  type PreparedRequest,
  type RequestContext,
  type RowSchema,
  type SourceDefinition,
  type Token,
  type TokenAnswer,
  type TokenContext,
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
