import type { Change } from './bus.ts';

/** Marks as the database's functions tell them: of each type, the keys or null for all, and the last transaction if it is known. */
export interface MarkedChanges {
  readonly snapshot: string;
  readonly changes: readonly (readonly [type: number, keys: readonly string[] | null, xid: number | null])[];
}

export function asChanges({ changes }: MarkedChanges): Change[] {
  return changes.map(([type, keys, xid]) => ({ type, keys: keys ?? undefined, xid: xid ?? undefined }));
}
