/** The headers of an answer as they came. Most answers are asked for a few of them; a `Headers` object costs more than that. */
export class AnswerHeaders {
  /** Names and values by turns. */
  readonly #raw: readonly string[];

  constructor(raw: readonly string[]) {
    this.#raw = raw;
  }

  /** The value of a header by its name in lower case, as `Headers` has it. */
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

  /** All of them, as an object of its own. */
  toHeaders(): Headers {
    const headers = new Headers();
    for (let place = 0; place + 1 < this.#raw.length; place += 2) {
      headers.append(this.#raw[place]!, this.#raw[place + 1]!);
    }
    return headers;
  }
}
