import { setTimeout as wait } from 'node:timers/promises';
import pg from 'pg';
import { problemOf } from '../errors/index.ts';
import type { Events } from '../events/index.ts';
import { Service } from '../lifecycle/index.ts';
import { clientConfig } from './address.ts';

export interface ListenerOptions {
  readonly url: string;
  readonly channel: string;
  readonly events: Events;
  readonly onNotification: (payload: string) => void;
  /** Called after a reconnect, because notifications may have been missed; if it is left out, that counts as an empty one. */
  readonly onReconnect?: () => void;
}

const pingEveryMs = 10_000;

/** One connection that listens, is asked now and then whether it still lives, and is made anew when it does not. */
export class Listener extends Service {
  readonly name = 'listener';
  readonly #options: ListenerOptions;
  #client: pg.Client | undefined;
  #loop: Promise<void> | undefined;

  constructor(options: ListenerOptions) {
    super();
    this.#options = options;
  }

  protected async onStart(): Promise<void> {
    const lost = await this.#connect();
    this.#loop = this.#stayConnected(lost);
  }

  protected async onStop(): Promise<void> {
    await this.#client?.end().catch(() => {});
    await this.#loop;
  }

  /** Connects, and settles with a promise that settles when the connection is lost. */
  async #connect(): Promise<{ lost: Promise<unknown> }> {
    const { url, channel, onNotification } = this.#options;
    const client = new pg.Client({
      ...clientConfig(url, 'pgfresh listen'),
      connectionTimeoutMillis: 10_000,
      query_timeout: pingEveryMs,
    });
    const lost = new Promise<unknown>((resolve) =>
      client.on('error', resolve).on('end', () => resolve('the connection ended')),
    );
    client.on('notification', ({ payload }) => onNotification(payload ?? ''));
    this.#client = client;
    await client.connect();
    await client.query(`listen ${pg.escapeIdentifier(channel)}`);
    return { lost };
  }

  async #stayConnected({ lost }: { lost: Promise<unknown> }): Promise<void> {
    while (!this.stopSignal.aborted) {
      const problem = await Promise.race([lost, this.#pingUntilDead()]);
      await this.#client?.end().catch(() => {});
      if (this.stopSignal.aborted) return;
      this.#options.events.emit({ type: 'database.connection_lost', problem: problemOf(problem) });
      ({ lost } = await this.#reconnect());
      const { onReconnect = () => this.#options.onNotification('') } = this.#options;
      if (!this.stopSignal.aborted) onReconnect();
    }
  }

  // A connection can die without a word; only a question finds that out.
  async #pingUntilDead(): Promise<unknown> {
    const client = this.#client;
    while (client === this.#client) {
      try {
        await wait(pingEveryMs, undefined, { signal: this.stopSignal });
        await client?.query('select 1');
      } catch (error) {
        return error;
      }
    }
    return undefined;
  }

  async #reconnect(): Promise<{ lost: Promise<unknown> }> {
    for (let pause = 100; !this.stopSignal.aborted; pause = Math.min(pause * 2, 5_000)) {
      try {
        return await this.#connect();
      } catch {
        await wait(pause, undefined, { signal: this.stopSignal }).catch(() => {});
      }
    }
    return { lost: Promise.resolve('stopped') };
  }
}
