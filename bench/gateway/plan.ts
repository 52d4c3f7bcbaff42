/** The sizes and windows of a run. */
export interface Plan {
  /** Processes that the viewers are in. */
  readonly crowds: number;
  /** Those who look at the one pair whose row changes. */
  readonly together: number;
  /** Those who look at the other pairs, evenly. */
  readonly apart: number;
  readonly pairs: number;
  readonly fanOut: { readonly warmUp: number; readonly rounds: number };
  readonly joins: {
    /** So many viewers begin to look at one more pair in a second, and as many leave one. */
    readonly perSecond: number;
    readonly warmUpSeconds: number;
    readonly seconds: number;
    readonly idlePerSecond: number;
    readonly idleSeconds: number;
    /** One of so many wants a pair at which nobody looks. */
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

/** Not fewer viewers: what a pump and a read take is the same for one as for ten thousand. */
export const quickPlan: Plan = {
  ...sizes,
  fanOut: { warmUp: 3, rounds: 20 },
  joins: { perSecond: 2_000, warmUpSeconds: 1, seconds: 5, idlePerSecond: 50, idleSeconds: 5, newOneIn: 20 },
  coldPairs: { warmUp: 3, samples: 15, latencyMs: 20 },
};
