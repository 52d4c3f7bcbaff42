import type { Change } from './bus.ts';

/** Marks as the database's functions tell them: of each type, the keys or null for all, and the last transaction. */
export interface MarkedChanges {
  readonly snapshot: string;
  readonly changes: readonly (readonly [type: number, keys: readonly string[] | null, xid: number])[];
}

export function asChanges({ changes }: MarkedChanges): Change[] {
  return changes.map(([type, keys, xid]) => ({ type, keys: keys ?? undefined, xid }));
}
