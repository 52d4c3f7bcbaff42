import type { LimitedQueryable, StatementLimits } from '../database/index.ts';
import type { Activity, DataState, Reason } from '../planner/index.ts';
import type { RlsReader } from './rls-reader.ts';
import { defaultLimits, probeLimits } from './statement-limits.ts';

/** A pair as the database identifies it: the number of its data type, and the key as the registry spells it. */
export interface PairId {
  readonly type: number;
  readonly key: string;
}

/** The rows and the state of a pair, as one statement read them. */
export interface PairState {
  /** Compared as text. Grows with every different state of the pair, and never goes back. */
  readonly version: string;
  /** The rows as a JSON array, newest first. */
  readonly rows: string;
  /** When the newest row was fetched. */
  readonly fetchedAt: Date | null;
  /** When the data goes stale; null if there is none. */
  readonly staleAt: Date | null;
  /** The time of the data at the source, if its data type reports one. */
  readonly sourceAt: Date | null;
  readonly state: DataState;
  readonly activity: Activity;
  /** Why it waits; null if it does not. */
  readonly reason: Reason | null;
  /** Whether its last refresh failed, or is being retried. */
  readonly failing: boolean;
  /** When it was read, by the database's clock. */
  readonly asOf: Date;
}

export interface PairReading extends PairState {
  readonly key: string;
  /** The snapshot of the statement, the same for all pairs that it read. */
  readonly snapshot: string;
}

export interface ReadOptions {
  /** Reads under row security as this reader; without one, reads rows that everyone may see. */
  readonly reader?: RlsReader | undefined;
  /** Whether the read is a probe with a short time limit. */
  readonly isShortProbe?: boolean;
}

/** Reads pairs of one data type in one statement. */
export type ReadPairs = (type: number, keys: readonly string[], options: ReadOptions) => Promise<PairReading[]>;

// Infinite timestamps become null.
const columns = `version, snapshot, key, rows, case when isfinite(fetched_at) then fetched_at end as "fetchedAt", case when isfinite(stale_at) then stale_at end as "staleAt",
  case when isfinite(source_at) then source_at end as "sourceAt", state, activity, reason, failing, as_of as "asOf"`;

const read = {
  name: 'pgfresh.read_pairs',
  text: `select ${columns} from pgfresh_engine.read_pairs($1::int, $2::text[])`,
};

// Not a named prepared statement: a policy may call a function that prepares its own statement under our name.
const readAs = `select ${columns} from pgfresh_engine.read_pairs_as($1::text, $2::text, $3::jsonb, $4::int, $5::text[])`;

interface PairReaderOptions {
  /** Pool for rows that everyone may see. */
  readonly dataDb: LimitedQueryable;
  /** Pool for data types with row security. */
  readonly rlsDb: LimitedQueryable;
  readonly limits?: StatementLimits | undefined;
  /** Time limit of a read under row security. */
  readonly policyTimeoutMs?: number | undefined;
}

/** Returns the function that reads pairs, on pools of their own and within time limits. */
export function pairReader({ dataDb, rlsDb, limits = defaultLimits, policyTimeoutMs }: PairReaderOptions): ReadPairs {
  const rlsLimits = { ...limits, statementTimeoutMs: policyTimeoutMs ?? limits.statementTimeoutMs };
  return (type, keys, { reader, isShortProbe = false }) => {
    if (!reader) return dataDb.query<PairReading>(read, [type, keys], isShortProbe ? probeLimits : limits);
    const values = [reader.role, reader.user, reader.claims, type, keys];
    return rlsDb.query<PairReading>(readAs, values, isShortProbe ? probeLimits : rlsLimits);
  };
}

/** Whether two states show the same to viewers. */
export function isSameState(one: PairState, other: PairState): boolean {
  return (
    one.rows === other.rows &&
    isSameTime(one.fetchedAt, other.fetchedAt) &&
    isSameTime(one.staleAt, other.staleAt) &&
    isSameTime(one.sourceAt, other.sourceAt) &&
    one.state === other.state &&
    one.activity === other.activity &&
    one.reason === other.reason &&
    one.failing === other.failing
  );
}

// Object.is, because a year beyond the range of Date is NaN, which must equal itself.
function isSameTime(one: Date | null, other: Date | null): boolean {
  return Object.is(one?.getTime(), other?.getTime());
}
