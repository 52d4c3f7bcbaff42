export {
  defineConfig,
  defineDataType,
  defineSource,
  type ApiKeyPlace,
  type Authorization,
  type AuthorizeContext,
  type Config,
  type DataTypeDefinition,
  type HttpRequest,
  type PreparedRequest,
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
  type TurnedBack,
  type Verdict,
} from './queue/index.ts';
