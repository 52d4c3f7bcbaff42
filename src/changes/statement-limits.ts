import type { StatementLimits } from '../database/index.ts';

/** What a statement about one data type may take. */
export const usualLimits: StatementLimits = { lockTimeoutMs: 100, statementTimeoutMs: 500 };

/** What a probe may take of a data type that has not answered in time. */
export const probeLimits: StatementLimits = { lockTimeoutMs: 100, statementTimeoutMs: 100 };
