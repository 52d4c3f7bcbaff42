import type { StatementLimits } from '../database/index.ts';

/** Limits of a statement about one data type. */
export const defaultLimits: StatementLimits = { lockTimeoutMs: 100, statementTimeoutMs: 500 };

/** Limits of a probe of an unresponsive data type. */
export const probeLimits: StatementLimits = { lockTimeoutMs: 100, statementTimeoutMs: 100 };
