import type { Refusal } from './fresh.ts';

/** The error that the client throws and rejects with. */
export class FreshError extends Error implements Refusal {
  override readonly name = 'FreshError';
  readonly code: string;
  readonly next: string;

  constructor({ code, message, next }: Refusal) {
    super(message);
    this.code = code;
    this.next = next;
  }
}
