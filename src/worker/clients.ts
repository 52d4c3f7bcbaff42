import type { Events } from '../events/index.ts';
import { SourceClient } from '../sources/index.ts';

export type Source = ConstructorParameters<typeof SourceClient>[0];

/** The clients of a process, one a source. */
export class Clients {
  readonly #sources: ReadonlyMap<string, Source>;
  readonly #events: Events;
  readonly #clients = new Map<string, SourceClient>();

  constructor(sources: readonly Source[], events: Events) {
    this.#sources = new Map(sources.map((source) => [source.name, source]));
    this.#events = events;
  }

  of(name: string): SourceClient {
    const client = this.#clients.get(name) ?? new SourceClient(this.#sources.get(name)!, { events: this.#events });
    this.#clients.set(name, client);
    return client;
  }

  async close(): Promise<void> {
    await Promise.all([...this.#clients.values()].map((client) => client.close()));
  }
}
