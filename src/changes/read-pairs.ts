import type { LimitedQueryable, StatementLimits } from '../database/index.ts';
import type { Activity, DataState, Reason } from '../planner/index.ts';
import type { Reader } from './reader.ts';
import { probeLimits, usualLimits } from './statement-limits.ts';

/** A pair as the registry spells it. */
export interface Pair {
  readonly type: number;
  readonly key: string;
}

/** The rows and the state of a pair, as one statement has read them. */
export interface PairState {
  /** Compares as a text. Grows with every state of the pair that differs from the one before, and never goes back. */
  readonly version: string;
  /** The rows as a JSON array, newest first. */
  readonly rows: string;
  /** When the newest row was fetched. */
  readonly fetchedAt: Date | null;
  /** When what is there goes stale; null if nothing is there. */
  readonly staleAt: Date | null;
  /** Of which time the data is at the source, if its data type tells. */
  readonly sourceAt: Date | null;
  readonly state: DataState;
  readonly activity: Activity;
  /** Why it waits; null if it does not. */
  readonly reason: Reason | null;
  /** Whether its last refresh has failed, or is being tried again. */
  readonly failing: boolean;
  /** When it was read, by the database's clock. */
  readonly asOf: Date;
}

export interface PairReading extends PairState {
  readonly key: string;
  /** Of the statement, and so the same for all pairs that were read by it. */
  readonly snapshot: string;
}

export interface Reading {
  /** As whom it is read; for everybody if it is left out. */
  readonly reader?: Reader | undefined;
  /** Whether it may take only as long as a probe. */
  readonly isShort?: boolean;
}

/** Reads pairs of one data type, all in one statement. */
export type ReadPairs = (type: number, keys: readonly string[], reading: Reading) => Promise<PairReading[]>;

// What no clock will show is no time.
const columns = `version, snapshot, key, rows, case when isfinite(fetched_at) then fetched_at end as "fetchedAt", case when isfinite(stale_at) then stale_at end as "staleAt",
  case when isfinite(source_at) then source_at end as "sourceAt", state, activity, reason, failing, as_of as "asOf"`;

const read = {
  name: 'pgfresh.read_pairs',
  text: `select ${columns} from pgfresh_engine.read_pairs($1::int, $2::text[])`,
};

// Without a name: policies may call what prepares a statement of its own under it, and would have us run that.
const readAs = `select ${columns} from pgfresh_engine.read_pairs_as($1::text, $2::text, $3::jsonb, $4::int, $5::text[])`;

interface Pools {
  readonly readers: LimitedQueryable;
  /** For data types with row security. */
  readonly guests: LimitedQueryable;
  readonly limits?: StatementLimits | undefined;
  /** What policies may take to decide. */
  readonly policyTimeoutMs?: number | undefined;
}

/** How pairs are read: each statement by a pool that is only for this, and within limits. */
export function readPairs({ readers, guests, limits = usualLimits, policyTimeoutMs }: Pools): ReadPairs {
  const guestLimits = { ...limits, statementTimeoutMs: policyTimeoutMs ?? limits.statementTimeoutMs };
  return (type, keys, { reader, isShort = false }) => {
    if (!reader) return readers.query<PairReading>(read, [type, keys], isShort ? probeLimits : limits);
    const values = [reader.role, reader.user, reader.claims, type, keys];
    return guests.query<PairReading>(readAs, values, isShort ? probeLimits : guestLimits);
  };
}

/** Whether two states show the same. */
export function isSame(one: PairState, other: PairState): boolean {
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

// By Object.is, because a year that is too large for a Date is the same as itself too.
function isSameTime(one: Date | null, other: Date | null): boolean {
  return Object.is(one?.getTime(), other?.getTime());
}
