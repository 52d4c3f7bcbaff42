import type pg from 'pg';

export type System = 'pgfresh' | 'pg-boss' | 'graphile-worker';

/** Where a worker finds its work. */
export interface Place {
  readonly url: string;
  /** The address of the provider. */
  readonly provider: string;
  /** Calls per minute; default: no limit. */
  readonly limit?: number | undefined;
}

/** How many jobs a worker has ended, and what it had ended when the first of them did. */
export interface Ended {
  readonly jobs: number;
  readonly first: { readonly at: number; readonly jobs: number };
}

/** A system that refreshes quotes: one job per key, with one fetch, one validation and one upsert. */
export interface Contender {
  readonly name: string;
  readonly system: System;
  /** The settings in words, for the reader of the figures. */
  readonly settings: string;
  /** Makes the schema of its queue, beside the table of quotes. Nothing may stay connected: it becomes a template. */
  setup(place: Place): Promise<void>;
  load(url: string, keys: readonly string[]): Promise<void>;
  /** Called in a process of its own. */
  worker(place: Place, onEnd: (jobs: number) => void): Promise<Worker>;
  hasOpenJobs(client: pg.Client): Promise<boolean>;
}

export interface Worker {
  start(): Promise<void>;
  /** Means over the jobs so far, in milliseconds, of what it measures by itself. */
  steps?(): Readonly<Record<string, number>>;
}
