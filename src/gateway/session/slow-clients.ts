interface SlowClient {
  checkProgress(): void;
}

const checkEveryMs = 20;

/** Checks the progress of clients that read more slowly than they are sent to. Has a timer only while there are any. */
export class SlowClients {
  readonly #clients = new Set<SlowClient>();
  #timer: NodeJS.Timeout | undefined;

  add(client: SlowClient): void {
    this.#clients.add(client);
    this.#timer ??= setInterval(() => this.#clients.forEach((slow) => slow.checkProgress()), checkEveryMs);
  }

  delete(client: SlowClient): void {
    this.#clients.delete(client);
    if (this.#clients.size > 0) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
  }
}
