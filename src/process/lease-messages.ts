import type { LeaseAnswer, Registration } from './renewal.ts';

/** What the thread of the lease is started with. */
export interface LeaseData {
  readonly url: string;
  readonly registration: Registration;
}

/** What the process tells the thread. */
export type ToLease =
  | { readonly type: 'hold'; readonly request: string; readonly pieces: number }
  | { readonly type: 'ended'; readonly request: string; readonly pieces: number }
  | { readonly type: 'hurry' }
  | { readonly type: 'lost' }
  | { readonly type: 'stop' };

/** What the thread tells the process. */
export type FromLease =
  | { readonly type: 'registered'; readonly id: number }
  | { readonly type: 'failed'; readonly problem: string }
  | { readonly type: 'answered'; readonly answer: LeaseAnswer }
  | { readonly type: 'lost' };
