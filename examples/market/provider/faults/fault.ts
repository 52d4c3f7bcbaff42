import type { ServerResponse } from 'node:http';
import type { Document, Route } from '../answers.ts';
import type { Reply } from '../reply.ts';

/** How a refresh ends. Each fault declares the one that pgfresh must come to. */
export type Outcome =
  | 'fresh'
  | 'unchanged'
  | 'empty'
  | 'older_source'
  | 'schema'
  | 'sanity'
  | 'wrong_key'
  | 'suspicious'
  | 'not_json'
  | 'too_large'
  | 'timeout'
  | 'unauthorized'
  | 'forbidden'
  | 'http_4xx'
  | 'http_5xx'
  | 'rate_limited'
  | 'network'
  | 'config';

/** What a fault can ask about the call that it spoils. */
export interface SpoiltCall {
  readonly route: Route;
  readonly symbol: string;
  readonly now: number;
  /** When the last good answer to the same question was given; now, if there was none. */
  readonly lastAt: number;
  /** The duration given with the order of the fault. */
  readonly seconds: number | undefined;
  /** An honest answer to any question. */
  honest(about?: { route?: Route; symbol?: string; at?: number }): Document;
  /** The same question at an address that is never spoilt, or one that always leads to itself. */
  address(kind: 'moved' | 'loop'): string;
}

/** The response as it stands before anything was written, and timers that end with it. */
export interface Wire {
  readonly response: ServerResponse;
  readonly reply: Reply;
  every(seconds: number, act: () => void): void;
}

interface Described {
  readonly what: string;
  readonly outcome: Outcome;
  /** All, if it is left out. */
  readonly routes?: readonly Route[];
}

/** A way to lie. It spoils the document, or the HTTP answer made of it, or takes the wire over. */
export type Fault = Described &
  (
    | { readonly document: (call: SpoiltCall) => unknown }
    | { readonly reply: (honest: Reply, call: SpoiltCall) => Reply }
    | { readonly wire: (wire: Wire, call: SpoiltCall) => void }
  );
