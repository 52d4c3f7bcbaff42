import type { AnswerHeaders } from './answer-headers.ts';

/** An answer as it is kept. */
export interface Kept {
  readonly status: number;
  readonly headers: AnswerHeaders;
  readonly body: Uint8Array;
  /** When it was fetched by the clock that never jumps. */
  readonly since: number;
  /** The pairs that have had it. */
  readonly givenTo: Set<string>;
}

/** What all answers of a source may take in a process. */
const mostBytes = 64e6;

/**
 * Answers by request, the longest unused out first.
 * Equal requests at the same moment are not joined: a pair has one job, so they are rare, and a second answer is right too.
 */
export class ResponseCache {
  readonly #kept = new Map<string, Kept>();
  readonly #mostEntries: number;
  #bytes = 0;

  constructor(mostEntries: number) {
    this.#mostEntries = mostEntries;
  }

  /** The answer to the same request, if it is younger than this. */
  get(key: string, maxAge: number): Kept | undefined {
    const kept = this.#kept.get(key);
    if (!kept || performance.now() - kept.since >= maxAge) return undefined;
    this.#kept.delete(key);
    this.#kept.set(key, kept);
    return kept;
  }

  set(key: string, kept: Kept): void {
    this.delete(key);
    // One answer may not push out all others.
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
  // Headers and the entry itself weigh something too.
  return body.byteLength + 1_000;
}
