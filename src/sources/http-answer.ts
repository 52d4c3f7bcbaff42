import type { AnswerHeaders } from './answer-headers.ts';

interface AnswerFacts {
  /** Bytes of headers and bodies before decompression, for all calls of this answer. */
  readonly wireBytes: number;
  /** Requests sent, including redirects and tokens; 0 from the cache. */
  readonly calls: number;
  readonly fromCache: boolean;
  /** Time since it was fetched, on a monotonic clock. A row's time is the database's clock minus this. */
  readonly ageMs: number;
  readonly ms: number;
  /** How long not to call the source: this answer was the last one allowed for now. */
  readonly retryAfterMs: number | undefined;
}

interface Received {
  readonly status: number;
  readonly headers: AnswerHeaders;
  readonly body: Uint8Array;
}

/** An answer whose body was read completely, within all limits. */
export class HttpAnswer implements AnswerFacts {
  /** Below 400. */
  readonly status: number;
  readonly contentType: string | null;
  /** Decompressed. */
  readonly body: Uint8Array;
  readonly wireBytes: number;
  readonly calls: number;
  readonly fromCache: boolean;
  readonly ageMs: number;
  readonly ms: number;
  readonly retryAfterMs: number | undefined;
  readonly #received: AnswerHeaders;
  #headers: Headers | undefined;

  constructor({ status, headers, body }: Received, facts: AnswerFacts) {
    this.status = status;
    this.contentType = headers.get('content-type');
    this.body = body;
    this.wireBytes = facts.wireBytes;
    this.calls = facts.calls;
    this.fromCache = facts.fromCache;
    this.ageMs = facts.ageMs;
    this.ms = facts.ms;
    this.retryAfterMs = facts.retryAfterMs;
    this.#received = headers;
  }

  /** A copy per answer, so that changing it does not change the cache. */
  get headers(): Headers {
    return (this.#headers ??= this.#received.toHeaders());
  }
}
