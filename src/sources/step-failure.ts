import type { CallOutcome } from './call-failed.ts';

interface Details {
  readonly status?: number;
  readonly retryAfterMs?: number | undefined;
  readonly needs?: number;
  readonly body?: Uint8Array;
  readonly isStale?: boolean;
}

/** Why a step of a call failed. The client turns it into a `CallFailed` with the cost of the call. */
export class StepFailure extends Error {
  override readonly name = 'StepFailure';
  readonly outcome: CallOutcome;
  readonly details: Details;

  constructor(outcome: CallOutcome, reason: string, details: Details = {}) {
    super(reason);
    this.outcome = outcome;
    this.details = details;
  }
}
