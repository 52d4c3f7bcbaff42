/** How long the planner waits for users' tables and functions. */
export interface Limits {
  /** Per statement, whether it checks all data types or one. */
  readonly statementMs: number;
  /** Per table lock. */
  readonly lockMs: number;
}

export const usualLimits: Limits = { statementMs: 500, lockMs: 100 };
/** Limits for probing a data type in quarantine. */
export const probeLimits: Limits = { statementMs: 100, lockMs: 100 };
