/** A change to one data type. */
export interface Change {
  readonly type: number;
  /** Keys as the registry spells them; undefined if any key of the type may have changed. */
  readonly keys: readonly string[] | undefined;
  /** The transactions that made the change, if known. A read that included all of them need not be repeated. */
  readonly xids?: readonly number[] | undefined;
}

/** Changes, or `missed` if some changes may have been lost. */
export type ChangeNotice = readonly Change[] | 'missed';

/**
 * Tells every process about changes. A connected subscriber receives what is published at least once, in any order.
 * A subscriber that lost its connection receives `missed` when it is connected again.
 */
export interface Bus {
  start(): Promise<void>;
  stop(): Promise<void>;
  /** Resolves once the bus has accepted the changes; the caller may then forget them. */
  publish(changes: readonly Change[]): Promise<void>;
  /** Calls the listener until the returned function is called. */
  subscribe(listener: (notice: ChangeNotice) => void): () => void;
}
