/** Raw response headers. Most callers read only a few, which is cheaper than building a `Headers` object. */
export class AnswerHeaders {
  /** Alternating names and values. */
  readonly #raw: readonly string[];

  constructor(raw: readonly string[]) {
    this.#raw = raw;
  }

  /** The value of a header, by its lower-case name; repeated headers are joined as in `Headers`. */
  get(name: string): string | null {
    let found: string | null = null;
    for (let place = 0; place + 1 < this.#raw.length; place += 2) {
      const one = this.#raw[place]!;
      if (one.length !== name.length || one.toLowerCase() !== name) continue;
      const value = this.#raw[place + 1]!.trim();
      found = found === null ? value : `${found}, ${value}`;
    }
    return found;
  }

  /** All headers as a new `Headers` object. */
  toHeaders(): Headers {
    const headers = new Headers();
    for (let place = 0; place + 1 < this.#raw.length; place += 2) {
      headers.append(this.#raw[place]!, this.#raw[place + 1]!);
    }
    return headers;
  }
}
