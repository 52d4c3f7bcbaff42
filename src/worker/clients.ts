import type { Queryable } from '../database/index.ts';
import type { Events } from '../events/index.ts';
import { SourceClient, takeCall } from '../sources/index.ts';

export type Source = ConstructorParameters<typeof SourceClient>[0];

interface ClientsOptions {
  readonly db: Queryable;
  readonly events: Events;
  /** The database's time. */
  readonly now: () => Date;
}

/** The source clients of a process, one per source. */
export class Clients {
  readonly #sources: ReadonlyMap<string, Source>;
  readonly #options: ClientsOptions;
  readonly #clients = new Map<string, SourceClient>();

  constructor(sources: readonly Source[], options: ClientsOptions) {
    this.#sources = new Map(sources.map((source) => [source.name, source]));
    this.#options = options;
  }

  of({ source, sourceId }: { readonly source: string; readonly sourceId: number }): SourceClient {
    // By id and name: a source may be deleted and added again, or renamed.
    const place = `${sourceId} ${source}`;
    const known = this.#clients.get(place);
    if (known) return known;
    const { db, events, now } = this.#options;
    const client = new SourceClient(this.#sources.get(source)!, {
      events,
      now: () => now().getTime(),
      // The queue counts API keys from 1, the client from 0.
      takeCall: (apiKey, job) => takeCall(db, sourceId, apiKey + 1, job),
    });
    this.#clients.set(place, client);
    return client;
  }

  async close(): Promise<void> {
    await Promise.all([...this.#clients.values()].map((client) => client.close()));
  }
}
