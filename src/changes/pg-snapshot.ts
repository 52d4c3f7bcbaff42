/** A PostgreSQL snapshot (pg_snapshot): `end` is its xmax, `running` the transactions in progress below it. */
export interface PgSnapshot {
  readonly end: number;
  readonly running: readonly number[];
}

export function parseSnapshot(text: string): PgSnapshot {
  const [, end, running = ''] = text.split(':');
  return { end: Number(end), running: running.split(',').filter(Boolean).map(Number) };
}

/** The transactions with an xid below `limit` that were in progress in the snapshot. All those xids are assigned. */
export function inProgressBelow({ end, running }: PgSnapshot, limit: number): number[] {
  const later = Array.from({ length: Math.max(0, limit - end) }, (_, index) => end + index);
  return [...running.filter((xid) => xid < limit), ...later];
}

/** Whether a transaction had ended when the snapshot was taken. */
export function hasEnded({ end, running }: PgSnapshot, xid: number): boolean {
  return xid < end && !running.includes(xid);
}
