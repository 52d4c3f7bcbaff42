import type { ClaimSizes } from './claim-cost.ts';
import type { EnqueueSizes } from './enqueue.ts';
import type { HeldSizes } from './held-transaction.ts';
import type { LatencySizes } from './latency.ts';

/** The sizes and windows of a run. */
export interface Plan {
  readonly repeats: number;
  /**
   * Whether the peers are measured at their defaults in all that they can do, or only in the one thing in which
   * defaults can win: the latency of who does not poll.
   */
  readonly defaults: 'all' | 'latency';
  readonly enqueue: EnqueueSizes;
  readonly drain: {
    readonly jobs: readonly number[];
    readonly processes: readonly number[];
    /** Ends a drain that would take minutes or hours, as with the defaults of both peers. */
    readonly maxSeconds: number;
  };
  readonly latency: LatencySizes;
  readonly claim: ClaimSizes;
  readonly held: HeldSizes;
}

export const fullPlan: Plan = {
  repeats: 3,
  defaults: 'all',
  enqueue: { oneByOne: { connections: [1, 10], seconds: 3 }, sets: 100 },
  drain: { jobs: [20_000, 100_000], processes: [1, 2], maxSeconds: 10 },
  latency: { idle: { warmUp: 30, samples: 1000, maxSeconds: 30 }, busy: { perSecond: 500, seconds: 10 } },
  claim: { few: 1000, many: 1_000_000, finished: 1_000_000, blocked: 100_000, batch: 100, rounds: 60, claimsARound: 5 },
  held: { seconds: 60, backlog: 50_000, rounds: 3 },
};

export const quickPlan: Plan = {
  repeats: 1,
  defaults: 'latency',
  enqueue: { oneByOne: { connections: [1, 10], seconds: 0.3 }, sets: 10 },
  drain: { jobs: [2000, 10_000], processes: [1, 2], maxSeconds: 10 },
  latency: { idle: { warmUp: 10, samples: 30, maxSeconds: 5 }, busy: { perSecond: 500, seconds: 0.8 } },
  claim: { few: 1000, many: 30_000, finished: 30_000, blocked: 10_000, batch: 100, rounds: 10, claimsARound: 5 },
  held: { seconds: 3, backlog: 20_000, rounds: 1 },
};
