import type { Token } from '../config/index.ts';

// A token that expires while its request is under way would be rejected.
const margin = 5_000;

interface Held {
  readonly token: string;
  readonly until: number;
}

/** The tokens of a source, one per API key. Concurrent callers share one fetch. */
export class Tokens {
  readonly #held = new Map<number, Held>();
  readonly #coming = new Map<number, Promise<string>>();

  /** The token of this API key; calls `fetch` only if there is none. */
  get(apiKey: number, fetch: () => Promise<Token>): string | Promise<string> {
    const held = this.#held.get(apiKey);
    if (held && performance.now() < held.until) return held.token;
    const coming = this.#coming.get(apiKey) ?? this.#fetch(apiKey, fetch);
    this.#coming.set(apiKey, coming);
    return coming;
  }

  /** Drops a token that the source has rejected. */
  refuse(apiKey: number, token: string): void {
    // Another call may have fetched a new one by now.
    if (this.#held.get(apiKey)?.token === token) this.#held.delete(apiKey);
  }

  async #fetch(apiKey: number, fetch: () => Promise<Token>): Promise<string> {
    try {
      const { token, expiresInMs = 0 } = await fetch();
      // Without a valid lifetime, keep it until it is rejected instead of fetching one per call.
      const lasts = expiresInMs > 0 ? Math.max(expiresInMs - margin, expiresInMs / 2) : Infinity;
      this.#held.set(apiKey, { token, until: performance.now() + lasts });
      return token;
    } finally {
      this.#coming.delete(apiKey);
    }
  }
}
