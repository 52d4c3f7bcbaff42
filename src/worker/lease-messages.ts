/** What the thread of the lease is started with. */
export interface LeaseData {
  readonly url: string;
  readonly name: string;
}

/** What the worker tells the thread. */
export type ToLease =
  | { readonly type: 'hold'; readonly request: string; readonly jobs: number }
  | { readonly type: 'ended'; readonly request: string; readonly jobs: number }
  | { readonly type: 'lost' }
  | { readonly type: 'stop' };

/** What the thread tells the worker. */
export type FromLease =
  | { readonly type: 'registered'; readonly worker: number }
  | { readonly type: 'failed'; readonly problem: string }
  | { readonly type: 'lost' };
