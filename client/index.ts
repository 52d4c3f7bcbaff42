export { createClient, type ClientOptions, type FreshClient, type Status } from './client.ts';
export type { DataTypeLike, JsonRow, NameOf, Register, RegisteredTypes, RowOf } from './data-types.ts';
export { FreshError } from './fresh-error.ts';
export type { Fresh, Refusal } from './fresh.ts';
export type { RefreshResult } from './protocol.ts';
