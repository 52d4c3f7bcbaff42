import type { LimitSettings } from '../../config/index.ts';
import { PgfreshError } from '../../errors/index.ts';
import type { Events } from '../../events/index.ts';
import type { Subscription } from '../pairs/watched-pair.ts';
import { encodeMessage } from '../protocol.ts';
import type { SlowClients } from './slow-clients.ts';
import type { Transport } from './transport.ts';

export interface SendQueueOptions {
  readonly transport: Transport;
  readonly limits: LimitSettings;
  readonly events: Events;
  readonly slowClients: SlowClients;
  /** Called once the client has not read for too long. */
  readonly onTooSlow: (error: PgfreshError) => void;
}

/** A slow client that is sent this many times `bufferBytes` of answers is disconnected. */
const maxUnreadBuffers = 4;

/**
 * Sends messages to one client. While the client is slow, newer states of pairs are held back, and it gets only the
 * newest state of each when it has caught up.
 */
export class SendQueue {
  readonly #options: SendQueueOptions;
  #isOpen = true;
  /** While the client is slow: the subscriptions whose newest state it lacks. */
  #behind: Set<Subscription> | undefined;
  #skipped = 0;
  #slowSince = 0;
  /** Bytes sent since then. */
  #unreadBytes = 0;

  constructor(options: SendQueueOptions) {
    this.#options = options;
  }

  get isSlow(): boolean {
    return this.#behind !== undefined;
  }

  send(message: Parameters<typeof encodeMessage>[0]): void {
    if (!this.#isOpen) return;
    this.#write(encodeMessage(message));
    // A client that keeps sending requests and never reads the answers.
    if (this.#behind && this.#unreadBytes > maxUnreadBuffers * this.#options.limits.bufferBytes) this.#giveUp();
  }

  /** Sends the status of a pair if it is newer than the client's, now or when a slow client has caught up. */
  offer(subscription: Subscription): void {
    const { pair } = subscription;
    if (!pair.status || pair.status.version <= subscription.version) return;
    if (this.#behind) {
      if (this.#behind.has(subscription)) this.#skipped += 1;
      this.#behind.add(subscription);
    } else this.#sendStatus(subscription);
  }

  /** Forgets a subscription that has ended. */
  remove(subscription: Subscription): void {
    this.#behind?.delete(subscription);
  }

  /** Continues once a slow client has read enough, and gives up if it has not for too long. */
  checkProgress(now = performance.now()): void {
    const { transport, limits, events, slowClients } = this.#options;
    const behind = this.#behind!;
    if (transport.bufferedBytes > limits.bufferBytes / 2) {
      if (now - this.#slowSince > limits.slowFor) this.#giveUp();
      return;
    }
    this.#behind = undefined;
    slowClients.delete(this);
    if (this.#skipped > 0) {
      events.emit({ type: 'gateway.slow', skipped: this.#skipped });
      this.send({ type: 'resync', skipped: this.#skipped });
      this.#skipped = 0;
    }
    for (const subscription of behind) this.offer(subscription);
  }

  close(): void {
    this.#isOpen = false;
    this.#options.slowClients.delete(this);
  }

  #sendStatus(subscription: Subscription): void {
    const { pair, digest, isNew } = subscription;
    const status = pair.status!;
    subscription.version = status.version;
    subscription.digest = status.digest;
    subscription.isNew = false;
    this.#write(pair.message(isNew ? 'snapshot' : 'change', status.digest !== digest));
  }

  #write(message: Buffer): void {
    const { transport, limits, slowClients } = this.#options;
    transport.send(message);
    if (transport.bufferedBytes <= limits.bufferBytes) return;
    if (!this.#behind) {
      this.#behind = new Set();
      this.#slowSince = performance.now();
      this.#unreadBytes = 0;
      slowClients.add(this);
    }
    this.#unreadBytes += message.length;
  }

  #giveUp(): void {
    const seconds = Math.round((performance.now() - this.#slowSince) / 1_000);
    this.#unreadBytes = 0;
    this.#options.onTooSlow(new PgfreshError('PGF_LIVE_SLOW', { seconds }));
  }
}
