/** The sizes and windows of a run. */
export interface Plan {
  /** Data types that nothing happens to. */
  readonly types: number;
  /** Pairs of each type that are viewed all the time, and so are refreshed once per TTL. */
  readonly pairs: number;
  readonly ttlSeconds: number;
  /** Viewers who stay connected, and each look at one more pair now and then. */
  readonly stayers: number;
  /** Wishes for pairs that nobody has seen yet, of those who come and of those who stay. */
  readonly wishesPerSecond: number;
  /** Wishes for pairs of the two types to which something happens. */
  readonly harmedPerSecond: number;
  readonly seconds: { readonly warmUp: number; readonly quiet: number; readonly harm: number };
}

const sizes = { types: 4, pairs: 50, ttlSeconds: 5, stayers: 40, wishesPerSecond: 20, harmedPerSecond: 2 };

export const fullPlan: Plan = { ...sizes, seconds: { warmUp: 10, quiet: 60, harm: 60 } };

export const quickPlan: Plan = { ...sizes, seconds: { warmUp: 5, quiet: 20, harm: 20 } };
