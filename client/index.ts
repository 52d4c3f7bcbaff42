export { createClient, type ClientOptions, type FreshClient } from './client.ts';
export type { Status } from './connection-state.ts';
export type { DataTypeLike, JsonRow, NameOf, Register, RegisteredTypes, RowOf } from './data-types.ts';
export { FreshError } from './fresh-error.ts';
export type { Activity, DataState, Fresh, Refusal } from './fresh.ts';
export type { RefreshResult } from './protocol.ts';
