export { bytes, type Bytes } from './bytes.ts';
export { isFreeHeader, type ClientDefinition } from './client-options.ts';
export { defineDataType, type DataType, type DataTypeDefinition, type DefinedDataType } from './data-type.ts';
export { type AnswerContext, type Bounds, type Empty, type RequestContext } from './fetching.ts';
export { readDevSupport, type Dev, type DevContext, type DevSupport } from './dev.ts';
export { type Definitions } from './definitions.ts';
export { duration, durationBetween, durationText, type Duration } from './duration.ts';
export type {
  GatewayDefinition,
  GatewayLimits,
  GatewaySettings,
  GatewayPair,
  GatewayUser,
  JwtDefinition,
  JwtSettings,
  LimitSettings,
  RlsSettings,
} from './gateway.ts';
export type {
  ApiKeyPlace,
  Authorization,
  AuthorizeContext,
  HttpRequest,
  PreparedRequest,
  Token,
  TokenAnswer,
  TokenContext,
} from './http-request.ts';
export { hintFor, invalid } from './invalid.ts';
export { defineJob, type Job, type JobContext, type JobDefinition, type JobHandler, type JobResult } from './job.ts';
export { configFilesBelow, defineConfig, findConfigFile, loadConfig, type LoadOptions } from './load.ts';
export { isLoopback } from './loopback.ts';
export { type MisspeltVariable } from './misspelt.ts';
export { nearMiss } from './near-miss.ts';
export { resolveConfig, type Config, type Origin, type ResolvedConfig } from './resolve.ts';
export { isPromiseLike } from './promise-like.ts';
export { isZone } from './schedule.ts';
export { settingNames, settings, type SettingName, type Settings } from './settings.ts';
export { defineSource, type Source, type SourceDefinition } from './source.ts';
export { sizeText } from './size-text.ts';
export { timeText } from './time-text.ts';
export { validated, type RowSchema } from './standard-schema.ts';
