/** The sizes and windows of a run. */
export interface Plan {
  readonly rate: {
    readonly limit: number;
    readonly processes: readonly number[];
    /** Before the window begins: the first minute has no calls behind it that would hold it back. */
    readonly warmUpSeconds: number;
    readonly seconds: number;
    /** In which stretch of time the provider's record is searched for too many calls, and how many there may be. */
    readonly most: { readonly seconds: number; readonly calls: number };
  };
  readonly coldPairs: { readonly warmUp: number; readonly samples: number; readonly latencyMs: number };
  readonly drain: { readonly jobs: number; readonly repeats: number };
  readonly heap: { readonly first: number; readonly last: number };
}

export const fullPlan: Plan = {
  rate: {
    limit: 300,
    processes: [1, 4],
    warmUpSeconds: 65,
    seconds: 300,
    most: { seconds: 60, calls: 300 },
  },
  coldPairs: { warmUp: 20, samples: 300, latencyMs: 20 },
  drain: { jobs: 20_000, repeats: 5 },
  heap: { first: 10_000, last: 100_000 },
};

/**
 * No whole minute fits into a quick run, and the limit is one of a minute. It sees that the first calls come fast
 * enough and in time; that the limit is kept, only the full run can tell.
 */
export const quickPlan: Plan = {
  rate: {
    limit: 1200,
    processes: [1, 4],
    warmUpSeconds: 0,
    seconds: 20,
    most: { seconds: 60, calls: 1200 },
  },
  coldPairs: { warmUp: 5, samples: 50, latencyMs: 20 },
  // Fewer would mostly measure how fast Node.js compiles.
  drain: { jobs: 9000, repeats: 1 },
  heap: { first: 1000, last: 10_000 },
};
