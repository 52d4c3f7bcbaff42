import type { AnswerHeaders } from './answer-headers.ts';

interface AnswerFacts {
  /** Headers and bodies as they came, before unpacking, of all calls of this answer. */
  readonly wireBytes: number;
  /** Requests that were sent, redirects and tokens too; 0 from the cache. */
  readonly calls: number;
  readonly fromCache: boolean;
  /** How long ago it was fetched, also from the cache, whatever clocks say: the database's clock less this is the time of a row. */
  readonly ageMs: number;
  readonly ms: number;
  /** The source may not be called before: this answer was the last that it allows for now. */
  readonly retryAfterMs: number | undefined;
}

interface Received {
  readonly status: number;
  readonly headers: AnswerHeaders;
  readonly body: Uint8Array;
}

/** An answer whose body was read whole within all limits. */
export class HttpAnswer implements AnswerFacts {
  /** Below 400. */
  readonly status: number;
  readonly contentType: string | null;
  /** Unpacked. */
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

  /** Each answer has its own, so that a change of them is none of what the cache keeps. */
  get headers(): Headers {
    return (this.#headers ??= this.#received.toHeaders());
  }
}
