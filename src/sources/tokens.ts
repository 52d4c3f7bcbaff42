import type { Token } from '../config/index.ts';

// A token that ends while its request is under way would be refused.
const margin = 5_000;

interface Held {
  readonly token: string;
  readonly until: number;
}

/** The tokens of a source, one for each of its API keys. Whoever needs one that is being fetched waits for it. */
export class Tokens {
  readonly #held = new Map<number, Held>();
  readonly #coming = new Map<number, Promise<string>>();

  /** The token of this API key; `fetch` is called only if there is none. */
  get(apiKey: number, fetch: () => Promise<Token>): string | Promise<string> {
    const held = this.#held.get(apiKey);
    if (held && performance.now() < held.until) return held.token;
    const coming = this.#coming.get(apiKey) ?? this.#fetch(apiKey, fetch);
    this.#coming.set(apiKey, coming);
    return coming;
  }

  /** The source does not take this token any more. */
  refuse(apiKey: number, token: string): void {
    // Others may have fetched a new one by now.
    if (this.#held.get(apiKey)?.token === token) this.#held.delete(apiKey);
  }

  async #fetch(apiKey: number, fetch: () => Promise<Token>): Promise<string> {
    try {
      const { token, expiresInMs = 0 } = await fetch();
      // Without a time that makes sense it is good until it is refused, and not fetched for each call.
      const lasts = expiresInMs > 0 ? Math.max(expiresInMs - margin, expiresInMs / 2) : Infinity;
      this.#held.set(apiKey, { token, until: performance.now() + lasts });
      return token;
    } finally {
      this.#coming.delete(apiKey);
    }
  }
}
