/** The sizes and windows of a run. */
export interface Plan {
  /** Data types without faults. */
  readonly types: number;
  /** Pairs of each type that are viewed all the time, and so are refreshed once per TTL. */
  readonly pairs: number;
  readonly ttlSeconds: number;
  /** Viewers that stay connected, and each view one more pair now and then. */
  readonly stayers: number;
  /** Requests for never-requested pairs, by new viewers and by those that stay. */
  readonly wishesPerSecond: number;
  /** Requests for pairs of the two faulty types. */
  readonly harmedPerSecond: number;
  readonly seconds: { readonly warmUp: number; readonly quiet: number; readonly harm: number };
}

const sizes = { types: 4, pairs: 50, ttlSeconds: 5, stayers: 40, wishesPerSecond: 20, harmedPerSecond: 2 };

export const fullPlan: Plan = { ...sizes, seconds: { warmUp: 10, quiet: 60, harm: 60 } };

export const quickPlan: Plan = { ...sizes, seconds: { warmUp: 5, quiet: 20, harm: 20 } };
