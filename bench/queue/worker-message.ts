/** What the bench tells a worker process, and what it hears from it. */
export type Command = { type: 'start'; report: 'counts' | 'jobs' };

export type Report =
  | { type: 'ready' }
  | { type: 'counts'; counts: Counts }
  | { type: 'jobs'; jobs: readonly StartedJob[] }
  | { type: 'failed'; problem: string };

/** How many jobs a process has started, and when it started the first and the latest of them. */
export interface Counts {
  readonly started: number;
  readonly first: number;
  readonly last: number;
}

export type StartedJob = readonly [id: number, at: number];
