/** An answer whose body was read whole within all limits. */
export interface HttpAnswer {
  /** Below 400. */
  readonly status: number;
  readonly headers: Headers;
  /** Unpacked. */
  readonly body: Uint8Array;
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
