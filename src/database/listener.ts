import { Socket } from 'node:net';
import pg from 'pg';
import { problemOf } from '../errors/index.ts';
import type { Events } from '../events/index.ts';
import { Backoff, pause, Service, within } from '../lifecycle/index.ts';
import { clientConfig } from './address.ts';

export interface ListenerOptions {
  readonly url: string;
  readonly channel: string;
  readonly events: Events;
  readonly onNotification: (payload: string) => void;
  /** Called after a reconnect, because notifications may have been missed; default: an empty notification. */
  readonly onReconnect?: () => void;
  /** Whether it is optional: then a failed first connection is retried later, like a lost one. */
  readonly isOptional?: boolean;
}

interface Connected {
  /** Resolves when the connection is lost. */
  readonly lost: Promise<unknown>;
}

const pingEveryMs = 10_000;
/** How long a start waits for an optional listener. */
const patienceMs = 1_500;

/** One listening connection, which is pinged and reopened when it dies. */
export class Listener extends Service {
  readonly name = 'listener';
  readonly #options: ListenerOptions;
  #client: pg.Client | undefined;
  #socket: Socket | undefined;
  #isConnected = false;
  #loop: Promise<void> | undefined;

  constructor(options: ListenerOptions) {
    super();
    this.#options = options;
  }

  /** Whether it is listening, as far as is known. */
  get isConnected(): boolean {
    return this.#isConnected;
  }

  protected async onStart(): Promise<void> {
    const first = this.#connect();
    if (!this.#options.isOptional) await first;
    this.#loop = this.#stayConnected(first);
    const tried = first.catch(() => {});
    await within(patienceMs, tried);
  }

  protected async onStop(): Promise<void> {
    // Nothing to close while it is still connecting.
    if (this.#isConnected) await this.#client?.end().catch(() => {});
    else this.#socket?.destroy();
    await this.#loop;
  }

  async #connect(): Promise<Connected> {
    const { url, channel, onNotification } = this.#options;
    const client = new pg.Client({
      ...clientConfig(url, 'pgfresh listen'),
      connectionTimeoutMillis: 10_000,
      query_timeout: pingEveryMs,
      stream: () => (this.#socket = new Socket()),
    });
    const lost = new Promise<unknown>((resolve) =>
      client.on('error', resolve).on('end', () => resolve('the connection ended')),
    );
    client.on('notification', ({ payload }) => onNotification(payload ?? ''));
    this.#client = client;
    try {
      await client.connect();
      await client.query(`listen ${pg.escapeIdentifier(channel)}`);
    } catch (error) {
      // A read-only server accepts the connection, but not LISTEN.
      this.#socket?.destroy();
      throw error;
    }
    this.#isConnected = true;
    return { lost };
  }

  async #stayConnected(first: Promise<Connected>): Promise<void> {
    let { lost } = await first.catch((problem: unknown) => this.#reconnect(problem));
    while (!this.stopSignal.aborted) {
      const problem = await Promise.race([lost, this.#pingUntilDead()]);
      this.#isConnected = false;
      await this.#client?.end().catch(() => {});
      ({ lost } = await this.#reconnect(problem));
    }
  }

  // A connection can die silently; only a ping reveals it.
  async #pingUntilDead(): Promise<unknown> {
    const client = this.#client;
    while (client === this.#client) {
      await pause(pingEveryMs, this.stopSignal);
      if (this.stopSignal.aborted) return undefined;
      try {
        await client?.query('select 1');
      } catch (error) {
        return error;
      }
    }
    return undefined;
  }

  async #reconnect(problem: unknown): Promise<Connected> {
    const { events, onNotification, onReconnect = () => onNotification('') } = this.#options;
    if (!this.stopSignal.aborted) events.emit({ type: 'database.connection_lost', problem: problemOf(problem) });
    for (const backoff = new Backoff(100, 5_000); !this.stopSignal.aborted; await backoff.pause(this.stopSignal)) {
      const connected = await this.#connect().catch(() => undefined);
      if (!connected) continue;
      onReconnect();
      return connected;
    }
    return { lost: Promise.resolve('stopped') };
  }
}
