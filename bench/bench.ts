import type { Outcome } from './report.ts';
import type { Scope } from './scope.ts';

export interface Bench {
  readonly about: string;
  readonly load: () => Promise<{ readonly run: (run: Run) => Promise<Outcome> }>;
}

/** What a bench gets: its options, the scope of the run, and where its progress goes. */
export interface Run {
  readonly quick: boolean;
  /** Names from `--only`; empty means all. */
  readonly only: readonly string[];
  readonly scope: Scope;
  readonly progress: (line: string) => void;
}
