import type { PgfreshError } from '../errors/index.ts';
import { BatchSize } from '../lifecycle/index.ts';
import { hasEnded, parseSnapshot, type PgSnapshot } from './pg-snapshot.ts';
import { isSameState, type PairReading, type PairState } from './read-pairs.ts';
import type { RlsReader } from './rls-reader.ts';

/** Why a watch ends: the data type is gone, its policies do not decide what the reader may see, or reading failed for good. */
export type LossReason = 'gone' | 'undecided' | PgfreshError;

/** Callbacks of a watcher of one pair. None of them may throw. */
export interface PairWatcher {
  /** Receives newer states. States may be skipped, but the newest always arrives. */
  readonly onState: (state: PairState) => void;
  /** The data type does not answer, so no newer state is available. The next state ends this. */
  readonly onUnresponsive: () => void;
  readonly onGone: (why: LossReason) => void;
}

export interface CachedPair {
  readonly key: string;
  readonly group: ReadGroup;
  readonly watchers: Set<PairWatcher>;
  state: PairState | undefined;
  /** The snapshot of the state; undefined if xids may have been reused since. */
  snapshot: PgSnapshot | undefined;
  /** Reads that failed in a row. */
  failures: number;
  /** Whether the watchers were told that the data type does not answer. */
  isUnresponsive: boolean;
}

const maxBatch = 500;
/** Beyond this many xids, stop tracking them. */
const maxXids = 100;

/** The pairs of one data type that are read together: those that everyone sees alike, or those of one reader. */
export class ReadGroup {
  readonly type: number;
  readonly reader: RlsReader | undefined;
  /** How many pairs it has. */
  size = 0;
  /** Pairs that were never read. Viewers wait for these, so they are read first. */
  readonly unread = new Set<CachedPair>();
  /** Pairs that may have changed since they were read, with the transactions that changed them, if known. */
  readonly dirty = new Map<CachedPair, readonly number[] | undefined>();
  /** Whether a read is running, or the group backs off after a failure. */
  isBusy = false;
  /** How long to back off. */
  backoffMs = 0;
  /** How many pairs to read at once: fewer after a failure, so that one bad row does not hold up the others. */
  readonly batchSize = new BatchSize(maxBatch);

  constructor(type: number, reader: RlsReader | undefined) {
    this.type = type;
    this.reader = reader;
  }

  /** Marks a pair to be read again, unless the read that is running turns out to include all of these transactions. */
  markDirty(pair: CachedPair, xids: readonly number[] | undefined): void {
    const before = this.dirty.has(pair) ? this.dirty.get(pair) : [];
    const all = before && xids && [...before, ...xids];
    this.dirty.set(pair, all && all.length <= maxXids ? all : undefined);
  }

  /** Takes up to `limit` pairs to read, unread ones first. Changes from now on make them dirty again. */
  take(limit: number): CachedPair[] {
    const batch: CachedPair[] = [];
    for (const pairs of [this.unread, this.dirty]) {
      for (const pair of pairs.keys()) {
        if (batch.length >= limit) return batch;
        pairs.delete(pair);
        batch.push(pair);
      }
    }
    return batch;
  }

  putBack(batch: readonly CachedPair[]): void {
    for (const pair of batch) {
      if (pair.watchers.size === 0) continue;
      if (pair.state) this.dirty.set(pair, undefined);
      else this.unread.add(pair);
    }
  }
}

/** Stores what was read, and passes new states to the watchers that are still there. */
export function applyReadings(batch: readonly CachedPair[], readings: readonly PairReading[]): void {
  const byKey = new Map(readings.map((reading) => [reading.key, reading]));
  const snapshot = readings[0] && parseSnapshot(readings[0].snapshot);
  for (const pair of batch) {
    const { key, snapshot: _, ...state } = byKey.get(pair.key)!;
    const before = pair.state;
    if (before && state.version < before.version) {
      throw new Error(
        `the database went back in time: ${key} was read at version ${before.version}, and now at ${state.version}`,
      );
    }
    pair.snapshot = snapshot;
    pair.failures = 0;
    // A change reported during the read may be included in it.
    if (snapshot && pair.group.dirty.get(pair)?.every((xid) => hasEnded(snapshot, xid))) pair.group.dirty.delete(pair);
    // Keep the version of the first read with this content, so that clients that have that version are up to date.
    if (before && isSameState(before, state) && !pair.isUnresponsive) continue;
    pair.isUnresponsive = false;
    pair.state = state;
    for (const watcher of pair.watchers) watcher.onState(state);
  }
}
