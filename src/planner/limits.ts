/** How long the planner waits for users' tables and functions. */
export interface Limits {
  /** For a statement that asks all data types, or one of them. */
  readonly statementMs: number;
  /** For a lock on a table. */
  readonly lockMs: number;
}

export const usualLimits: Limits = { statementMs: 500, lockMs: 100 };
/** What a probe of a data type in quarantine may take. */
export const probeLimits: Limits = { statementMs: 100, lockMs: 100 };
