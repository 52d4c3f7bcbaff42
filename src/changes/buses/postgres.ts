import { Listener, type Queryable } from '../../database/index.ts';
import type { Events } from '../../events/index.ts';
import { Service } from '../../lifecycle/index.ts';
import type { Bus, Change, Heard } from '../bus.ts';
import { changesOf, payloadsOf } from './payload.ts';

export interface PostgresBusOptions {
  readonly db: Queryable;
  /** Where LISTEN works; without it nothing is heard, and whoever subscribes has to poll. */
  readonly listenUrl: string | undefined;
  readonly events: Events;
}

const channel = 'pgfresh_change';

/** The bus that needs nothing but the database: NOTIFY, and one connection that listens. */
export class PostgresBus extends Service implements Bus {
  readonly name = 'bus';
  readonly #db: Queryable;
  readonly #listener: Listener | undefined;
  readonly #subscribers = new Set<(heard: Heard) => void>();

  constructor({ db, listenUrl, events }: PostgresBusOptions) {
    super();
    this.#db = db;
    if (listenUrl === undefined) return;
    this.#listener = new Listener({
      url: listenUrl,
      channel,
      events,
      onNotification: (payload) => this.#tell(changesOf(payload)),
      onReconnect: () => this.#tell('missed'),
    });
  }

  async publish(changes: readonly Change[]): Promise<void> {
    const payloads = payloadsOf(changes);
    if (payloads.length === 0) return;
    // All of them in one transaction, and so in one piece.
    await this.#db.query(notify, [payloads]);
  }

  subscribe(listener: (heard: Heard) => void): () => void {
    this.#subscribers.add(listener);
    return () => void this.#subscribers.delete(listener);
  }

  protected async onStart(): Promise<void> {
    await this.#listener?.start();
  }

  protected async onStop(): Promise<void> {
    await this.#listener?.stop();
  }

  #tell(heard: Heard): void {
    if (heard.length > 0) for (const listener of this.#subscribers) listener(heard);
  }
}

const notify = {
  name: 'pgfresh.notify_changes',
  text: `select count(pg_notify('${channel}', payload)) from unnest($1::text[]) as payload`,
};
