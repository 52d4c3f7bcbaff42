import type { Change } from './bus.ts';

/**
 * Marks as the database's functions return them: per type, the keys or null for all, the transactions if they are known, and
 * whether every gateway was told when the transaction committed.
 */
export interface MarkedChanges {
  readonly snapshot: string;
  readonly changes: readonly (readonly [
    type: number,
    keys: readonly string[] | null,
    xids: readonly number[] | null,
    isTold?: true,
  ])[];
}

export function asChanges(marks: MarkedChanges['changes']): Change[] {
  return marks.map(([type, keys, xids]) => ({ type, keys: keys ?? undefined, xids: xids ?? undefined }));
}
