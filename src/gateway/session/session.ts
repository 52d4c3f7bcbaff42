import type { GatewayUser } from '../../config/index.ts';
import { PgfreshError } from '../../errors/index.ts';
import { TokenBucket } from '../../lifecycle/index.ts';
import type { AuthenticatedUser } from '../auth/authenticator.ts';
import type { UserUsage } from '../auth/usage-limits.ts';
import { closeCode, errorResponse } from '../http/error-response.ts';
import { parseMessage, protocolVersion, type ParsedMessage } from '../protocol.ts';
import { SendQueue } from './send-queue.ts';
import type { SessionParts } from './session-parts.ts';
import { Subscriptions } from './subscriptions.ts';
import type { Transport } from './transport.ts';

export interface ClientConnection {
  readonly transport: Transport;
  readonly usage: UserUsage;
  readonly address: string;
  readonly isLocal: boolean;
  /** The id of an event stream, to which the client sends its messages. */
  readonly streamId?: string;
}

const maxReconnectDelayMs = 2_000;
// Together with the time limit of `authorize` and one round, a right that was withdrawn ends within ten seconds.
const recheckEveryMs = 4_000;

/** One connection of one user: reads the client's messages and answers them one after another. */
export class Session {
  readonly connection: ClientConnection;
  readonly #parts: SessionParts;
  readonly #messages: TokenBucket;
  readonly #queue: SendQueue;
  readonly #subscriptions: Subscriptions;
  /** Random offset that spreads pings over rounds. */
  readonly pingOffset = Math.floor(Math.random() * 1_000);
  /** When to ask `authorize` about all pairs again. */
  recheckAt = performance.now() + recheckEveryMs;
  #authenticated: AuthenticatedUser;
  #isGreeted = false;
  #isOpen = true;
  /** Settles when all messages so far are answered. */
  #answering: Promise<void> | undefined;

  constructor(parts: SessionParts, connection: ClientConnection, authenticated: AuthenticatedUser) {
    const { limits, events, slowClients } = parts;
    const { transport, usage } = connection;
    this.#parts = parts;
    this.connection = connection;
    this.#authenticated = authenticated;
    this.#messages = new TokenBucket(limits.messagesPerSecond, limits.messagesPerSecond * 2);
    this.#queue = new SendQueue({ transport, limits, events, slowClients, onTooSlow: (error) => this.end(error) });
    this.#subscriptions = new Subscriptions({ parts, usage, queue: this.#queue, user: () => this.user });
  }

  get user(): GatewayUser {
    return this.#authenticated.user;
  }

  get expiresAt(): number {
    return this.#authenticated.expiresAt;
  }

  get isOpen(): boolean {
    return this.#isOpen;
  }

  /** Sends the welcome if the client speaks our protocol version; ends the session otherwise. */
  greet(version: unknown): void {
    if (version !== protocolVersion) {
      const got = version === undefined ? 'has not said which' : `speaks ${JSON.stringify(version)?.slice(0, 40)}`;
      return this.end(new PgfreshError('PGF_LIVE_PROTOCOL', { known: protocolVersion, got }));
    }
    this.#isGreeted = true;
    const { streamId } = this.connection;
    const { pairsPerConnection: pairs, messageBytes } = this.#parts.limits;
    this.#queue.send({
      type: 'welcome',
      protocol: protocolVersion,
      ...(streamId === undefined ? {} : { session: streamId }),
      user: this.user.id,
      expires_at: this.#expiry(),
      now: new Date().toISOString(),
      limits: { pairs, message_bytes: messageBytes },
    });
  }

  /** Takes a message. Throws if it is malformed, before any of it is done; later errors are sent to the client. */
  receive(text: string): void {
    const { limits } = this.#parts;
    if (!this.#messages.take())
      return this.end(new PgfreshError('PGF_LIVE_TOO_FAST', { limit: limits.messagesPerSecond }));
    const message = parseMessage(text, limits.messageDepth);
    // Sends an answer together with the snapshots that follow it.
    this.connection.transport.cork();
    if (message.type === 'hello') {
      this.#subscriptions.wantsViewerCounts = message.viewers === true;
      return this.greet(message.protocol);
    }
    if (!this.#isGreeted) return this.greet(undefined);
    const answering = (this.#answering ?? Promise.resolve()).then(async () => {
      if (!this.#isOpen) return;
      await this.#answer(message).catch((error: unknown) => this.sendError(error));
      if (this.#answering === answering) this.#answering = undefined;
    });
    this.#answering = answering;
  }

  sendError(error: unknown): void {
    const { code, message, next } = errorResponse(error, this.#parts.events);
    this.#queue.send({ type: 'error', code, message, next });
  }

  /** Asks `authorize` about all pairs again. Must not be called while it is running. */
  async recheck(): Promise<void> {
    await this.#subscriptions.recheck();
    this.recheckAt = performance.now() + recheckEveryMs;
  }

  /** Sends an error and closes the connection. */
  end(error: PgfreshError): void {
    const { status, code, message, next } = errorResponse(error, this.#parts.events);
    this.#queue.send({ type: 'error', code, message, next });
    this.connection.transport.close(closeCode(status), code);
    this.closed();
  }

  /** Tells the client to reconnect, to another gateway. */
  sendReconnect(): void {
    // A random delay, so that not all clients reconnect at the same moment.
    this.#queue.send({ type: 'reconnect', after_ms: Math.round(Math.random() * maxReconnectDelayMs) });
    this.connection.transport.close(1012, 'PGF_LIVE_STOPPING');
    this.closed();
  }

  /** The connection is closed. */
  closed(): void {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    this.#queue.close();
    this.#subscriptions.close();
  }

  async #answer(message: Exclude<ParsedMessage, { type: 'hello' }>): Promise<void> {
    switch (message.type) {
      case 'want':
        return this.#subscriptions.set(message.pairs);
      case 'add':
        return this.#subscriptions.add(message.pairs);
      case 'drop':
        return this.#subscriptions.drop(message.pairs);
      case 'refresh':
        return this.#subscriptions.refresh(message.pair);
      case 'auth':
        return this.#authenticate(message.token);
      case 'ping':
        return this.#queue.send({ type: 'pong', now: new Date().toISOString() });
    }
  }

  async #authenticate(token: string): Promise<void> {
    const authenticated = await this.#parts.authenticator
      .authenticate(token, this.connection.isLocal)
      .catch((error: unknown) => error as PgfreshError);
    if (authenticated instanceof Error) return this.end(authenticated);
    // The usage was counted for the first user, so a session cannot change its user.
    if (authenticated.user.id !== this.user.id)
      return this.end(new PgfreshError('PGF_LIVE_TOKEN', { problem: 'it is that of another user' }));
    this.#authenticated = authenticated;
    this.#queue.send({ type: 'authenticated', expires_at: this.#expiry() });
    await this.#subscriptions.resubscribe();
    return this.recheck();
  }

  #expiry(): string | null {
    return Number.isFinite(this.expiresAt) ? new Date(this.expiresAt).toISOString() : null;
  }
}
