import type { ClaimProbe } from './claim-cost.ts';

export type System = 'pgfresh' | 'minimum' | 'pg-boss' | 'graphile-worker';

/**
 * A queue with one choice of settings. The bench makes and drops its databases; a contender only fills them.
 *
 * All but `worker` is called in the process of the bench. A job carries nothing but its number.
 */
export interface Contender {
  readonly name: string;
  readonly system: System;
  /** The settings in words, for the reader of the figures. */
  readonly settings: string;
  /** Whether these are the defaults. */
  readonly isDefault?: boolean;
  /** Set where a waiting job is found by polling alone: jobs then arrive at a random point of the interval. */
  readonly pollsEveryMs?: number;

  /** Makes the schema in an empty database. Nothing may stay connected: the database becomes a template. */
  setup(url: string): Promise<void>;
  enqueuer(url: string, connections: number): Promise<Enqueuer>;
  /** Called in a child process, which the bench kills when it has seen enough. */
  worker(url: string): Promise<Worker>;
  /** Whether any job is not finished yet, as cheap as can be: it is asked every millisecond at the end of a drain. */
  hasOpenJobs(query: Query): Promise<boolean>;
  /** What only pgfresh is measured for. */
  claimProbe?(url: string): Promise<ClaimProbe>;
}

export interface Enqueuer {
  /** Resolves as soon as the commit is answered. What a contender does after it, such as a wake-up, is not waited for. */
  one(id: number): Promise<void>;
  /** All in one transaction. */
  set(ids: readonly number[]): Promise<void>;
  close(): Promise<void>;
}

export interface Worker {
  /** Begins to work. What can be made ready before (connections, caches) is made ready by then. */
  start(onJob: (id: number) => void): Promise<void>;
}

export type Query = (text: string) => Promise<Record<string, unknown>[]>;
