import type { IncomingMessage } from 'node:http';
import type { GatewaySettings } from '../../config/index.ts';
import { PgfreshError } from '../../errors/index.ts';
import { within } from '../../lifecycle/index.ts';
import type { AuthenticatedUser } from '../auth/authenticator.ts';
import type { UserUsage } from '../auth/usage-limits.ts';
import { clientAddress, type ClientAddress } from '../http/client-address.ts';
import { requireAllowedOrigin } from '../http/origin-check.ts';
import { clientToken } from '../http/token.ts';
import type { SessionParts } from './session-parts.ts';
import { Session } from './session.ts';
import type { Transport } from './transport.ts';

/** A client that may connect. */
export interface AcceptedClient extends ClientAddress {
  readonly authenticated: AuthenticatedUser;
  readonly usage: UserUsage;
}

export interface SessionRegistryOptions {
  readonly parts: SessionParts;
  readonly settings: GatewaySettings;
}

/** All open sessions. Every request, of every transport, is authenticated here. */
export class SessionRegistry {
  readonly sessions = new Set<Session>();
  readonly #options: SessionRegistryOptions;
  #isClosed = false;
  #onEmpty: (() => void) | undefined;

  constructor(options: SessionRegistryOptions) {
    this.#options = options;
  }

  /** Checks origin, connection limits and token of a request; throws if the client may not connect. */
  async accept(request: IncomingMessage): Promise<AcceptedClient> {
    const { parts, settings } = this.#options;
    const { usageLimits, authenticator } = parts;
    if (this.#isClosed) throw new PgfreshError('PGF_LIVE_STOPPING', {});
    const { address, isLocal } = clientAddress(request, settings.trustProxy);
    requireAllowedOrigin(request, settings.origins);
    usageLimits.requireRoom(address);
    const authenticated = await authenticator.authenticate(clientToken(request), isLocal);
    return { address, isLocal, authenticated, usage: usageLimits.usageOf(authenticated.user, address) };
  }

  open({ address, isLocal, authenticated, usage }: AcceptedClient, transport: Transport, streamId?: string): Session {
    const { parts } = this.#options;
    if (this.#isClosed) throw new PgfreshError('PGF_LIVE_STOPPING', {});
    parts.usageLimits.addConnection(usage, authenticated.user, address);
    const connection = { transport, usage, address, isLocal, ...(streamId === undefined ? {} : { streamId }) };
    const session = new Session(parts, connection, authenticated);
    this.sessions.add(session);
    parts.events.emit({ type: 'gateway.opened', transport: streamId === undefined ? 'websocket' : 'events' });
    return session;
  }

  /** Removes a session whose connection is closed. */
  remove(session: Session): void {
    if (!this.sessions.delete(session)) return;
    const { parts } = this.#options;
    const { usage, address, streamId } = session.connection;
    session.closed();
    parts.usageLimits.removeConnection(usage, address);
    parts.events.emit({ type: 'gateway.closed', transport: streamId === undefined ? 'websocket' : 'events' });
    if (this.sessions.size === 0) this.#onEmpty?.();
  }

  /** Accepts no more clients, and tells all to reconnect elsewhere. After the timeout it terminates those that are left. */
  async close(timeoutMs: number): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    if (this.sessions.size === 0) return;
    const empty = new Promise<void>((resolve) => (this.#onEmpty = resolve));
    for (const session of this.sessions) session.sendReconnect();
    await within(timeoutMs, empty, () => this.sessions.forEach((session) => session.connection.transport.terminate()));
    await empty;
  }
}
