import type { AnswerHeaders } from './answer-headers.ts';

/** A cached answer. */
export interface Kept {
  readonly status: number;
  readonly headers: AnswerHeaders;
  readonly body: Uint8Array;
  /** When it was fetched, by `performance.now()`. */
  readonly since: number;
  /** The pairs that have received it. */
  readonly givenTo: Set<string>;
}

/** Maximum bytes of a source's cached answers in a process. */
const mostBytes = 64e6;

/**
 * Answers by request; evicts the least recently used.
 * Concurrent equal requests are not merged: a pair has only one job, so they are rare, and both answers are valid.
 */
export class ResponseCache {
  readonly #kept = new Map<string, Kept>();
  readonly #mostEntries: number;
  #bytes = 0;

  constructor(mostEntries: number) {
    this.#mostEntries = mostEntries;
  }

  /** The answer to an equal request, if it is younger than `maxAge`. */
  get(key: string, maxAge: number): Kept | undefined {
    const kept = this.#kept.get(key);
    if (!kept || performance.now() - kept.since >= maxAge) return undefined;
    this.#kept.delete(key);
    this.#kept.set(key, kept);
    return kept;
  }

  set(key: string, kept: Kept): void {
    this.delete(key);
    // One answer must not evict all others.
    if (this.#mostEntries === 0 || sizeOf(kept) > mostBytes / 8) return;
    this.#kept.set(key, kept);
    this.#bytes += sizeOf(kept);
    for (const oldest of this.#kept.keys()) {
      if (this.#kept.size <= this.#mostEntries && this.#bytes <= mostBytes) break;
      this.delete(oldest);
    }
  }

  delete(key: string): void {
    const kept = this.#kept.get(key);
    if (kept && this.#kept.delete(key)) this.#bytes -= sizeOf(kept);
  }
}

function sizeOf({ body }: Kept): number {
  // An estimate for headers and the entry itself.
  return body.byteLength + 1_000;
}
