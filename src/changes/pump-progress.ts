import { Settling } from './unmarked-writers.ts';

const clearEveryMs = 1_000;
/** Those who poll read marks for so long after they were published. */
const keepMs = 10_000;

/** How far a pump has read since it has the duty, and which marks may be forgotten. */
export class PumpDuty {
  readonly settling = new Settling();
  /** Up to where marks were published. */
  since: string | undefined;
  #cleared: string | undefined;
  #clearedAt: number;
  #published: { readonly snapshot: string; readonly at: number }[] = [];

  constructor(now: number) {
    this.#clearedAt = now;
  }

  /** All marks up to a snapshot are published, if there were any. */
  note(snapshot: string, anything: boolean, now: number): void {
    this.since = snapshot;
    if (anything) this.#published.push({ snapshot, at: now });
  }

  /** Between which snapshots marks are old enough to be forgotten; each is told once. */
  takeOld(now: number): { readonly from: string | undefined; readonly to: string } | undefined {
    if (now - this.#clearedAt < clearEveryMs) return undefined;
    const old = this.#published.filter(({ at }) => now - at >= keepMs).length;
    const to = this.#published[old - 1]?.snapshot;
    if (to === undefined) return undefined;
    const from = this.#cleared;
    this.#published = this.#published.slice(old);
    this.#cleared = to;
    this.#clearedAt = now;
    return { from, to };
  }
}
