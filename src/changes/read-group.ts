import type { PgfreshError } from '../errors/index.ts';
import { BatchSize } from '../lifecycle/index.ts';
import { isSame, type PairReading, type PairState } from './read-pairs.ts';
import type { Reader } from './reader.ts';
import { hasEnded, parseSnapshot, type Snapshot } from './pg-snapshot.ts';

/** Why nothing more comes: there is no such data type any more, row security does not say what its reader may see, or he cannot read. */
export type Loss = 'gone' | 'undecided' | PgfreshError;

/** Somebody who watches a pair. None of the functions may throw. */
export interface Watcher {
  /** Every state that is newer than the last one; states may be skipped, the newest always comes. */
  readonly onState: (state: PairState) => void;
  /** Its data type does not answer, so there is nothing newer to tell; the next state ends that. */
  readonly onHeld: () => void;
  readonly onGone: (why: Loss) => void;
}

export interface WatchedPair {
  readonly key: string;
  readonly shelf: Shelf;
  readonly watchers: Set<Watcher>;
  state: PairState | undefined;
  /** Which transactions are in the state; undefined if it is not known what their numbers mean. */
  snapshot: Snapshot | undefined;
  /** How often in a row it could not be read. */
  failures: number;
  /** Whether its watchers know that its data type does not answer. */
  isHeld: boolean;
}

const largestRead = 500;
/** Beyond this many xids, stop tracking them. */
const mostXids = 100;

/** The pairs of one data type that are read together: those that all see alike, or those of one reader. */
export class Shelf {
  readonly type: number;
  readonly reader: Reader | undefined;
  /** How many pairs it has. */
  size = 0;
  /** Never read yet: somebody waits for these, so they are first. */
  readonly cold = new Set<WatchedPair>();
  /** May have changed since they were read, each with the transactions by which; undefined if they are not known. */
  readonly dirty = new Map<WatchedPair, readonly number[] | undefined>();
  /** Whether somebody reads it, or rests after a failure. */
  isBusy = false;
  /** How long to rest. */
  pauseMs = 0;
  /** How many pairs to read at once: fewer after a failure, so that one bad row does not keep back the others. */
  readonly batch = new BatchSize(largestRead);

  constructor(type: number, reader: Reader | undefined) {
    this.type = type;
    this.reader = reader;
  }

  /** The pair is to be read again, unless a read that is under way has all of these transactions in it. */
  soil(pair: WatchedPair, xids: readonly number[] | undefined): void {
    const before = this.dirty.has(pair) ? this.dirty.get(pair) : [];
    const all = before && xids && [...before, ...xids];
    this.dirty.set(pair, all && all.length <= mostXids ? all : undefined);
  }

  /** Takes pairs to read, first those that were never read. From here on they can become dirty again. */
  take(most: number): WatchedPair[] {
    const batch: WatchedPair[] = [];
    for (const pairs of [this.cold, this.dirty]) {
      for (const pair of pairs.keys()) {
        if (batch.length >= most) return batch;
        pairs.delete(pair);
        batch.push(pair);
      }
    }
    return batch;
  }

  putBack(batch: readonly WatchedPair[]): void {
    for (const pair of batch) {
      if (pair.watchers.size === 0) continue;
      if (pair.state) this.dirty.set(pair, undefined);
      else this.cold.add(pair);
    }
  }
}

/** Tells those who watch what is new to them. Whoever has left meanwhile is not there any more. */
export function apply(batch: readonly WatchedPair[], readings: readonly PairReading[]): void {
  const byKey = new Map(readings.map((reading) => [reading.key, reading]));
  const snapshot = readings[0] && parseSnapshot(readings[0].snapshot);
  for (const pair of batch) {
    const { key, snapshot: _, ...state } = byKey.get(pair.key)!;
    const had = pair.state;
    if (had && state.version < had.version) {
      throw new Error(
        `the database has gone back: ${key} was read in version ${had.version}, and now in ${state.version}`,
      );
    }
    pair.snapshot = snapshot;
    pair.failures = 0;
    // What was told during the read may be in it already.
    if (snapshot && pair.shelf.dirty.get(pair)?.every((xid) => hasEnded(snapshot, xid))) pair.shelf.dirty.delete(pair);
    // The version stays that of the first read which has shown this, so that who has it has missed nothing.
    if (had && isSame(had, state) && !pair.isHeld) continue;
    pair.isHeld = false;
    pair.state = state;
    for (const watcher of pair.watchers) watcher.onState(state);
  }
}
