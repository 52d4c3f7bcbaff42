import { UnmarkedWriters } from './unmarked-writers.ts';

const expireEveryMs = 1_000;
/** Published marks are kept for processes that poll the outbox. */
const keepMs = 10_000;

/** How far a pump has published since it got the lease, and which marks may be deleted. */
export class PumpProgress {
  readonly unmarkedWriters = new UnmarkedWriters();
  /** The snapshot up to which marks were published. */
  since: string | undefined;
  #expired: string | undefined;
  #expiredAt: number;
  #published: { readonly snapshot: string; readonly at: number }[] = [];

  constructor(now: number) {
    this.#expiredAt = now;
  }

  /** All marks up to a snapshot are published; `hadMarks` tells whether there were any. */
  published(snapshot: string, hadMarks: boolean, now: number): void {
    this.since = snapshot;
    if (hadMarks) this.#published.push({ snapshot, at: now });
  }

  /** The range of snapshots whose marks are old enough to delete. Each range is returned once. */
  takeExpired(now: number): { readonly from: string | undefined; readonly to: string } | undefined {
    if (now - this.#expiredAt < expireEveryMs) return undefined;
    const count = this.#published.filter(({ at }) => now - at >= keepMs).length;
    const to = this.#published[count - 1]?.snapshot;
    if (to === undefined) return undefined;
    const from = this.#expired;
    this.#published = this.#published.slice(count);
    this.#expired = to;
    this.#expiredAt = now;
    return { from, to };
  }
}
