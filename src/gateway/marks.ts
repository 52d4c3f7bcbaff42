import type { Change } from './bus.ts';

/** Marks as the database's functions tell them: of each type, the keys or null for all, and the transactions if they are known. */
export interface MarkedChanges {
  readonly snapshot: string;
  readonly changes: readonly (readonly [
    type: number,
    keys: readonly string[] | null,
    xids: readonly number[] | null,
  ])[];
}

export function asChanges({ changes }: MarkedChanges): Change[] {
  return changes.map(([type, keys, xids]) => ({ type, keys: keys ?? undefined, xids: xids ?? undefined }));
}
