import type { LeaseAnswer, Registration } from './renewal.ts';

/** The start data of the lease thread. */
export interface LeaseData {
  readonly url: string;
  readonly registration: Registration;
}

/** Messages to the lease thread. */
export type ToLease =
  | { readonly type: 'hold'; readonly request: string; readonly pieces: number }
  | { readonly type: 'ended'; readonly request: string; readonly pieces: number }
  | { readonly type: 'hurry' }
  | { readonly type: 'lost' }
  | { readonly type: 'stop' };

/** Messages from the lease thread. */
export type FromLease =
  | { readonly type: 'registered'; readonly id: number }
  | { readonly type: 'failed'; readonly problem: string }
  | { readonly type: 'answered'; readonly answer: LeaseAnswer }
  | { readonly type: 'lost' };
