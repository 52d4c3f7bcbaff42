import { Listener, type Queryable } from '../../database/index.ts';
import type { Events } from '../../events/index.ts';
import { Service } from '../../lifecycle/index.ts';
import type { Bus, Change, ChangeNotice } from '../bus.ts';
import { decodePayload, encodePayloads } from './payload.ts';

export interface PostgresBusOptions {
  readonly db: Queryable;
  /** A connection on which LISTEN works. Without it the bus receives nothing, and subscribers have to poll. */
  readonly listenUrl: string | undefined;
  readonly events: Events;
}

const channel = 'pgfresh_change';

/** A bus that needs only the database: NOTIFY, and one connection that listens. */
export class PostgresBus extends Service implements Bus {
  readonly name = 'bus';
  readonly #db: Queryable;
  readonly #listener: Listener | undefined;
  readonly #subscribers = new Set<(notice: ChangeNotice) => void>();

  constructor({ db, listenUrl, events }: PostgresBusOptions) {
    super();
    this.#db = db;
    if (listenUrl === undefined) return;
    this.#listener = new Listener({
      url: listenUrl,
      channel,
      events,
      onNotification: (payload) => this.#notify(decodePayload(payload)),
      onReconnect: () => this.#notify('missed'),
    });
  }

  async publish(changes: readonly Change[]): Promise<void> {
    const payloads = encodePayloads(changes);
    if (payloads.length === 0) return;
    // One statement, so that either all payloads are sent or none.
    await this.#db.query(notify, [payloads]);
  }

  subscribe(listener: (notice: ChangeNotice) => void): () => void {
    this.#subscribers.add(listener);
    return () => void this.#subscribers.delete(listener);
  }

  protected async onStart(): Promise<void> {
    await this.#listener?.start();
  }

  protected async onStop(): Promise<void> {
    await this.#listener?.stop();
  }

  #notify(notice: ChangeNotice): void {
    if (notice.length > 0) for (const subscriber of this.#subscribers) subscriber(notice);
  }
}

const notify = {
  name: 'pgfresh.notify_changes',
  text: `select count(pg_notify('${channel}', payload)) from unnest($1::text[]) as payload`,
};
