/** Why a call has no usable answer. */
export type CallOutcome =
  /** Not complete within the timeout. */
  | 'timeout'
  /** No connection, or the response is not valid HTTP. */
  | 'network'
  /** More bytes than the source allows, on the wire or decompressed. */
  | 'too_large'
  /** The source asked to wait. */
  | 'rate_limited'
  /** The rate limit leaves no call for a redirect or a token. */
  | 'no_slot'
  | 'http_4xx'
  | 'http_5xx'
  /** The configuration is wrong; a retry would fail the same way. */
  | 'config'
  /** The rate slot expired before the request could be sent. Nothing was spent. */
  | 'unsent'
  /** Cancelled by the caller. */
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

/** A call without a usable answer, with its cost. Contains no secrets. */
export class CallFailed extends Error {
  override readonly name = 'CallFailed';
  readonly outcome: CallOutcome;
  readonly wireBytes: number;
  readonly calls: number;
  readonly ms: number;
  readonly status: number | undefined;
  /** How long not to call the source. */
  readonly retryAfterMs: number | undefined;
  /** The minimum number of calls needed, if more than it could get. */
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
