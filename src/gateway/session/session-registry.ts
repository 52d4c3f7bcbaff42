import type { IncomingMessage } from 'node:http';
import type { GatewaySettings } from '../../config/index.ts';
import { PgfreshError } from '../../errors/index.ts';
import { within } from '../../lifecycle/index.ts';
import type { Identified } from '../auth/authenticator.ts';
import { Session, type Outlet, type SessionParts } from './session.ts';
import type { Account } from '../auth/usage-limits.ts';
import { requireOrigin, visitorOf, type Visitor } from '../http/client-request.ts';

/** Somebody who may come in. */
export interface Guest {
  readonly visitor: Visitor;
  readonly identified: Identified;
  readonly account: Account;
}

export interface ReceptionOptions {
  readonly parts: SessionParts;
  readonly settings: GatewaySettings;
}

/** Where all come in, whatever they speak: who they are, whether there is room for them, and who is there now. */
export class Reception {
  readonly sessions = new Set<Session>();
  readonly #options: ReceptionOptions;
  #isClosed = false;
  #emptied: (() => void) | undefined;

  constructor(options: ReceptionOptions) {
    this.#options = options;
  }

  /** Refuses who may not connect. */
  async receive(request: IncomingMessage): Promise<Guest> {
    const { parts, settings } = this.#options;
    const { tally } = parts;
    if (this.#isClosed) throw new PgfreshError('PGF_LIVE_STOPPING', {});
    const visitor = visitorOf(request, settings.trustProxy);
    requireOrigin(visitor, request.headers.host, settings.origins);
    tally.requireRoom(visitor.address);
    const identified = await parts.identity.of(visitor.token, visitor.isLocal);
    return { visitor, identified, account: tally.account(identified.user, visitor.address) };
  }

  open({ visitor, identified, account }: Guest, outlet: Outlet, stream?: string): Session {
    const { parts } = this.#options;
    const { tally } = parts;
    if (this.#isClosed) throw new PgfreshError('PGF_LIVE_STOPPING', {});
    tally.enter(account, identified.user, visitor.address);
    const { address, isLocal } = visitor;
    const client = { outlet, account, address, isLocal, ...(stream === undefined ? {} : { stream }) };
    const session = new Session(parts, client, identified);
    this.sessions.add(session);
    parts.events.emit({ type: 'gateway.opened', transport: stream === undefined ? 'websocket' : 'events' });
    return session;
  }

  /** The connection has ended, whoever ended it. */
  closed(session: Session): void {
    if (!this.sessions.delete(session)) return;
    session.closed();
    this.#options.parts.tally.leave(session.client.account, session.client.address);
    const transport = session.client.stream === undefined ? 'websocket' : 'events';
    this.#options.parts.events.emit({ type: 'gateway.closed', transport });
    if (this.sessions.size === 0) this.#emptied?.();
  }

  /** Sends everybody away, and lets nobody in any more. Settles when all have gone, of themselves or not. */
  async close(patienceMs: number): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    if (this.sessions.size === 0) return;
    const emptied = new Promise<void>((resolve) => (this.#emptied = resolve));
    for (const session of this.sessions) session.sendAway();
    await within(patienceMs, emptied, () => this.sessions.forEach((session) => session.client.outlet.cut()));
    await emptied;
  }
}
