import type { IncomingMessage } from 'node:http';
import { isIPv4, isIPv6 } from 'node:net';

export interface ClientAddress {
  readonly address: string;
  /** Whether the request comes from this machine, and not through a proxy on it. */
  readonly isLocal: boolean;
}

/** The client's address: that of the connection, or the last one in X-Forwarded-For if the proxy is trusted. */
export function clientAddress({ headers, socket }: IncomingMessage, trustProxy: boolean): ClientAddress {
  const peer = withoutMapping(socket.remoteAddress ?? '');
  const forwarded = [headers['x-forwarded-for']].flat().join(',').split(',').at(-1)?.trim();
  const isForwarded = Object.keys(headers).some((name) => /^(forwarded$|x-forwarded-)/.test(name));
  return {
    address: trustProxy && forwarded ? withoutMapping(forwarded) : peer,
    isLocal: !isForwarded && (peer === '::1' || (isIPv4(peer) && peer.startsWith('127.'))),
  };
}

/** The address for IPv4, and the /64 network for IPv6, because one IPv6 client has 2^64 addresses. */
export function networkOf(address: string): string {
  if (!isIPv6(address) || address.startsWith('::ffff:')) return address;
  const [head = '', tail] = address.split('::');
  const groups = head === '' ? [] : head.split(':');
  const missing = tail === undefined ? 0 : 8 - groups.length - (tail === '' ? 0 : tail.split(':').length);
  return [...groups, ...Array.from({ length: missing }, () => '0')].slice(0, 4).join(':');
}

// IPv4 addresses arrive as ::ffff:192.0.2.1 on a dual-stack socket.
function withoutMapping(address: string): string {
  return address.startsWith('::ffff:') ? address.slice(7) : address;
}
