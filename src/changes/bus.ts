/** What has changed of one data type. */
export interface Change {
  readonly type: number;
  /** As the registry spells them; undefined where every key of the type may have changed. */
  readonly keys: readonly string[] | undefined;
  /** The transactions by which; undefined if they are not known. What has seen all of them need not be read again. */
  readonly xids?: readonly number[] | undefined;
}

/** Changes, or that some may not have come. */
export type Heard = readonly Change[] | 'missed';

/**
 * Tells every process of changes. What is published while a subscriber is connected reaches it at least once, in any
 * order; one that was not connected is told `missed` when it is again.
 */
export interface Bus {
  start(): Promise<void>;
  stop(): Promise<void>;
  /** Settles when the bus has taken the changes; then they may be forgotten. */
  publish(changes: readonly Change[]): Promise<void>;
  /** Calls the listener until the returned function is called. */
  subscribe(listener: (heard: Heard) => void): () => void;
}
