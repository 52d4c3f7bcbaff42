import type { Change } from './bus.ts';

/**
 * Rows of the outbox (change marks) as the database's functions return them, per data type: the keys, or null for all;
 * the transactions, if known; and whether the gateways were already notified when the transaction committed.
 */
export interface MarkedChanges {
  readonly snapshot: string;
  readonly changes: readonly (readonly [
    type: number,
    keys: readonly string[] | null,
    xids: readonly number[] | null,
    isNotified?: true,
  ])[];
}

export function changesOfMarks(marks: MarkedChanges['changes']): Change[] {
  return marks.map(([type, keys, xids]) => ({ type, keys: keys ?? undefined, xids: xids ?? undefined }));
}
