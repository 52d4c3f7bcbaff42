interface Slow {
  relieve(): void;
}

const everyMs = 20;

/** Looks after those who read more slowly than they are sent to, as long as there are any. */
export class Relief {
  readonly #slow = new Set<Slow>();
  #timer: NodeJS.Timeout | undefined;

  add(session: Slow): void {
    this.#slow.add(session);
    this.#timer ??= setInterval(() => this.#slow.forEach((slow) => slow.relieve()), everyMs);
  }

  delete(session: Slow): void {
    this.#slow.delete(session);
    if (this.#slow.size > 0) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
  }
}
