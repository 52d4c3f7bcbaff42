import type { IncomingMessage } from 'node:http';
import { isIPv4 } from 'node:net';
import { PgfreshError } from '../../errors/index.ts';

/** What a request says about whoever makes it. */
export interface Visitor {
  readonly address: string;
  /** Whether it comes from this machine, and not by way of a proxy on it. */
  readonly isLocal: boolean;
  readonly token: string | undefined;
  readonly origin: string | undefined;
}

/** The WebSocket protocol that clients name, and before their token. */
export const subprotocol = 'pgfresh.v1';
const tokenPrefix = 'pgfresh.token.';

export function visitorOf(request: IncomingMessage, trustProxy: boolean): Visitor {
  const { headers } = request;
  const peer = withoutMapping(request.socket.remoteAddress ?? '');
  const forwarded = [headers['x-forwarded-for']].flat().join(',').split(',').at(-1)?.trim();
  const isForwarded = Object.keys(headers).some((name) => /^(forwarded$|x-forwarded-)/.test(name));
  return {
    address: trustProxy && forwarded ? withoutMapping(forwarded) : peer,
    isLocal: !isForwarded && (peer === '::1' || (isIPv4(peer) && peer.startsWith('127.'))),
    token: tokenOf(headers.authorization, headers['sec-websocket-protocol']),
    origin: headers.origin,
  };
}

/** Refuses pages of other sites than this server's own and those that are allowed. */
export function requireOrigin({ origin }: Visitor, host: string | undefined, allowed: readonly string[]): void {
  if (origin === undefined || allowed.includes(origin)) return;
  if (host !== undefined && URL.parse(origin)?.host === host.toLowerCase()) return;
  throw new PgfreshError('PGF_LIVE_ORIGIN', { origin: JSON.stringify(origin.slice(0, 100)) });
}

// A browser cannot set headers of a WebSocket, but it can name protocols.
function tokenOf(authorization: string | undefined, protocols: string | undefined): string | undefined {
  const bearer = /^Bearer (\S+)$/i.exec(authorization ?? '')?.[1];
  if (bearer !== undefined) return bearer;
  const named = protocols?.split(',').map((name) => name.trim());
  return named?.find((name) => name.startsWith(tokenPrefix))?.slice(tokenPrefix.length);
}

function withoutMapping(address: string): string {
  return address.startsWith('::ffff:') ? address.slice(7) : address;
}
