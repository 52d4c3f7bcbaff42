/** The sizes and windows of a run. */
export interface Plan {
  /** Processes that the viewers are in. */
  readonly crowds: number;
  /** Viewers of the one pair whose row changes. */
  readonly together: number;
  /** Viewers of the other pairs, evenly. */
  readonly apart: number;
  readonly pairs: number;
  readonly fanOut: { readonly warmUp: number; readonly rounds: number };
  readonly joins: {
    /** Viewers per second that start to view one more pair; as many leave one. */
    readonly perSecond: number;
    readonly warmUpSeconds: number;
    readonly seconds: number;
    readonly idlePerSecond: number;
    readonly idleSeconds: number;
    /** One in this many requests a pair without viewers. */
    readonly newOneIn: number;
  };
  readonly coldPairs: { readonly warmUp: number; readonly samples: number; readonly latencyMs: number };
}

const sizes = { crowds: 3, together: 10_000, apart: 5_000, pairs: 100 };

export const fullPlan: Plan = {
  ...sizes,
  fanOut: { warmUp: 10, rounds: 100 },
  joins: { perSecond: 2_000, warmUpSeconds: 5, seconds: 20, idlePerSecond: 50, idleSeconds: 20, newOneIn: 20 },
  coldPairs: { warmUp: 10, samples: 100, latencyMs: 20 },
};

/** Not fewer viewers: a pump and a read take as long for one as for ten thousand. */
export const quickPlan: Plan = {
  ...sizes,
  fanOut: { warmUp: 3, rounds: 20 },
  joins: { perSecond: 2_000, warmUpSeconds: 1, seconds: 5, idlePerSecond: 50, idleSeconds: 5, newOneIn: 20 },
  coldPairs: { warmUp: 3, samples: 15, latencyMs: 20 },
};
