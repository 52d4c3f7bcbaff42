/** Why a call has no usable answer. */
export type CallOutcome =
  /** Not whole within the timeout. */
  | 'timeout'
  /** No connection, or what came through it is not HTTP as it should be. */
  | 'network'
  /** More bytes, or more bytes unpacked, than the source allows. */
  | 'too_large'
  /** The source says wait. */
  | 'rate_limited'
  /** There is no call left for a redirect or a token. */
  | 'no_slot'
  | 'http_4xx'
  | 'http_5xx'
  /** It cannot be called as it is configured; another try changes nothing. */
  | 'config'
  /** The rate slot had run out before the request could be sent. Nothing was spent. */
  | 'unsent'
  /** Whoever asked for it does not want it any more. */
  | 'aborted';

interface Circumstances {
  readonly outcome: CallOutcome;
  readonly wireBytes: number;
  readonly calls: number;
  readonly ms: number;
  readonly status?: number | undefined;
  readonly retryAfterMs?: number | undefined;
  readonly needs?: number | undefined;
  readonly answer?: Uint8Array | undefined;
}

/** A call that has no usable answer; what it has cost is known all the same. Says nothing that is secret. */
export class CallFailed extends Error {
  override readonly name = 'CallFailed';
  readonly outcome: CallOutcome;
  readonly wireBytes: number;
  readonly calls: number;
  readonly ms: number;
  readonly status: number | undefined;
  /** The source may not be called before. */
  readonly retryAfterMs: number | undefined;
  /** How many calls it takes at least, if that is more than it could get. */
  readonly needs: number | undefined;
  /** The start of the answer's body, without secrets. */
  readonly answer: Uint8Array | undefined;

  constructor(message: string, circumstances: Circumstances) {
    super(message);
    this.outcome = circumstances.outcome;
    this.wireBytes = circumstances.wireBytes;
    this.calls = circumstances.calls;
    this.ms = circumstances.ms;
    this.status = circumstances.status;
    this.retryAfterMs = circumstances.retryAfterMs;
    this.needs = circumstances.needs;
    this.answer = circumstances.answer;
  }
}
