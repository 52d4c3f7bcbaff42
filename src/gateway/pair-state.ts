/** The newest known state of a pair. Read once a change in this process, and shared by all who look at it. */
export interface PairState {
  /** Grows: plain comparison orders two of them. */
  readonly version: string;
  /** Equal rows have equal digests, on every gateway. */
  readonly digest: string;
  /** The rows as JSON, as they came from PostgreSQL. */
  readonly rows: string;
  readonly fetchedAt: string | null;
  readonly dueAt: string | null;
  readonly state: 'fresh' | 'stale' | 'missing' | 'refreshing' | 'failing';
  readonly reason: string;
  readonly words: string;
}

export interface Watch {
  readonly state: PairState | undefined;
  close(): void;
}

/** What keeps the newest state of the pairs that this process watches. */
export interface PairMirror {
  watch(dataType: string, key: string, onState: (state: PairState) => void): Watch;
}
