/** A snapshot as PostgreSQL writes it: the first transaction that may run, the first that had not ended, and those between that ran. */
export interface Snapshot {
  readonly end: number;
  readonly running: readonly number[];
}

export function parseSnapshot(text: string): Snapshot {
  const [, end, running = ''] = text.split(':');
  return { end: Number(end), running: running.split(',').filter(Boolean).map(Number) };
}

/** The transactions below a number that had not ended in a snapshot; all numbers below it have been given out. */
export function unfinished({ end, running }: Snapshot, below: number): number[] {
  const later = Array.from({ length: Math.max(0, below - end) }, (_, index) => end + index);
  return [...running.filter((xid) => xid < below), ...later];
}

export function hasEnded({ end, running }: Snapshot, xid: number): boolean {
  return xid < end && !running.includes(xid);
}
