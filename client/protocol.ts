import type { JsonRow } from './data-types.ts';
import type { Activity, DataState, Fresh, Refusal } from './fresh.ts';

// The gateway imports these types as `#protocol`, so that both sides agree.

/** The version of the protocol between clients and the gateway; docs/reference/protocol.md describes it. */
export const protocol = 1;

export type PairName = readonly [type: string, key: string];
/** A pair that a client requests, with the version that it has, if any. */
export type WantedPair = PairName | readonly [type: string, key: string, version: string];

/** A message of a client. */
export type ClientMessage =
  | { readonly type: 'hello'; readonly protocol: number; readonly viewers?: boolean }
  | { readonly type: 'want' | 'add'; readonly pairs: readonly WantedPair[] }
  | { readonly type: 'drop'; readonly pairs: readonly PairName[] }
  | { readonly type: 'refresh'; readonly pair: PairName }
  | { readonly type: 'auth'; readonly token: string }
  | { readonly type: 'ping' };

export interface StateMessage {
  readonly type: 'snapshot' | 'change';
  readonly pair: PairName;
  readonly version: string;
  readonly status: Fresh['status'];
  readonly state: DataState;
  readonly activity: Activity;
  readonly reason: string | null;
  readonly words: string;
  readonly until: string | null;
  readonly error: Refusal | null;
  readonly fetched_at: string | null;
  readonly stale_at: string | null;
  readonly source_at: string | null;
  readonly rows?: readonly JsonRow[];
}

/** The pair has no state yet, or no newer one. */
export interface WaitingMessage {
  readonly type: 'waiting';
  readonly pair: PairName;
  readonly activity: 'waiting';
  readonly reason: string;
  readonly words: string;
}

/** The answer to a requested pair. `key` is the key as the registry spells it, if that differs. */
export type PairAnswer =
  | { readonly pair: PairName; readonly result: 'accepted'; readonly key?: string }
  | ({ readonly pair: PairName; readonly result: 'refused' } & Refusal);

/** The answer to a requested refresh. */
export type RefreshResult = 'queued' | 'merged' | 'running' | 'busy' | 'recent';

export interface WelcomeMessage {
  readonly type: 'welcome';
  readonly protocol: number;
  readonly session?: string;
  readonly user: string;
  readonly expires_at: string | null;
  readonly now: string;
  readonly limits: { readonly pairs: number; readonly message_bytes: number };
}

/** A message of the gateway. */
export type ServerMessage =
  | WelcomeMessage
  | StateMessage
  | WaitingMessage
  | { readonly type: 'answer'; readonly pairs: readonly PairAnswer[] }
  | ({ readonly type: 'revoked'; readonly pair: PairName } & Refusal)
  | { readonly type: 'refresh'; readonly pair: PairName; readonly result: RefreshResult }
  | ({ readonly type: 'refresh'; readonly pair: PairName; readonly result: 'refused' } & Refusal)
  | { readonly type: 'authenticated'; readonly expires_at: string | null }
  | { readonly type: 'viewers'; readonly pair: PairName; readonly viewers: number }
  | { readonly type: 'reconnect'; readonly after_ms: number }
  | { readonly type: 'pong'; readonly now: string }
  | { readonly type: 'resync'; readonly skipped: number }
  | ({ readonly type: 'error' } & Refusal);
