/** The sizes of a run. */
export interface Plan {
  readonly types: number;
  readonly rowsAType: number;
  /** Maximum number of viewed keys; the mirrored tables have more. */
  readonly keys: number;
  readonly staleShare: number;
  readonly sizes: readonly Size[];
  /** Between these two sizes, the cost of the sweep must not grow faster than the number of pairs. */
  readonly growth: { readonly from: number; readonly to: number };
  readonly idleTicks: number;
  /** On the largest size. The first minute after a checkpoint writes whole pages, the next ones do not. */
  readonly heartbeat: { readonly clients: number; readonly connections: number; readonly minutes: number };
  readonly coldPairs: { readonly warmUp: number; readonly samples: number };
}

export interface Size {
  readonly subscriptions: number;
  readonly rounds: number;
  /** In how many of the rounds the loop runs too, which is by far the slowest. */
  readonly loops: number;
}

export const fullPlan: Plan = {
  types: 10,
  rowsAType: 50_000,
  keys: 10_000,
  staleShare: 0.1,
  sizes: [
    { subscriptions: 10_000, rounds: 7, loops: 3 },
    { subscriptions: 30_000, rounds: 7, loops: 1 },
    { subscriptions: 100_000, rounds: 5, loops: 1 },
    { subscriptions: 300_000, rounds: 5, loops: 1 },
  ],
  growth: { from: 30_000, to: 300_000 },
  idleTicks: 100,
  heartbeat: { clients: 10_000, connections: 4, minutes: 5 },
  coldPairs: { warmUp: 20, samples: 300 },
};

export const quickPlan: Plan = {
  types: 10,
  rowsAType: 10_000,
  keys: 5000,
  staleShare: 0.1,
  sizes: [
    { subscriptions: 10_000, rounds: 3, loops: 1 },
    { subscriptions: 100_000, rounds: 3, loops: 0 },
  ],
  growth: { from: 10_000, to: 100_000 },
  idleTicks: 30,
  heartbeat: { clients: 10_000, connections: 4, minutes: 2 },
  coldPairs: { warmUp: 10, samples: 50 },
};
