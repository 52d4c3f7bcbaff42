import { createHash, timingSafeEqual } from 'node:crypto';
import { isIP } from 'node:net';
import type { Context, MiddlewareHandler } from 'hono';
import { isLoopback } from '../config/index.ts';
import { PgfreshError } from '../errors/index.ts';
import type { Events } from '../events/index.ts';
import { contains, type Mount } from './mount.ts';

export interface GuardOptions {
  readonly host: string;
  readonly allowedHosts: readonly string[];
  readonly token: string;
  readonly events: Events;
  /** Parts that authenticate their clients themselves. */
  readonly mounts?: readonly Pick<Mount, 'path'>[];
}

const loopbackNames = ['localhost', '127.0.0.1', '::1'];
const readMethods = new Set(['GET', 'HEAD', 'OPTIONS']);
// Probes of load balancers, which reveal nothing.
const publicPaths = new Set(['/livez', '/readyz']);

/**
 * Refuses requests with a foreign Host header, so that a web page cannot reach the server under its own name (DNS
 * rebinding), and writes without the token. If the server is reachable from other machines, directly or through a proxy,
 * reads need the token too.
 */
export function guard({ host, allowedHosts, token, events, mounts = [] }: GuardOptions): MiddlewareHandler {
  const isOwnHost = hostCheck(host, allowedHosts);
  const refuse = (context: Context, status: 401 | 403, error: PgfreshError): Response => {
    events.emit({ type: 'http.refused', status, reason: error.message, path: context.req.path });
    return context.json({ error }, status);
  };
  return async (context, next) => {
    const name = hostName(context.req.header('host'));
    if (!isOwnHost(name)) return refuse(context, 403, foreignHost(name));
    if (mounts.some((mount) => contains(mount, context.req.path))) return next();
    const local = isLocal(host, context.req.raw);
    const isProbe = publicPaths.has(context.req.path) && context.req.query('verbose') === undefined;
    const isFree = readMethods.has(context.req.method) && (local || isProbe);
    if (!isFree && !hasToken(context.req.header('authorization'), token)) {
      context.header('www-authenticate', 'Bearer');
      return refuse(context, 401, new PgfreshError('PGF_HTTP_TOKEN', {}));
    }
    return next();
  };
}

/** Returns a function that checks whether a host name is one of this server's. */
export function hostCheck(host: string, allowedHosts: readonly string[]): (name: string) => boolean {
  const hosts = new Set([...loopbackNames, ...allowedHosts, host].map((name) => name.toLowerCase()));
  // DNS rebinding needs a name, so a public server accepts any IP address.
  return (name) => hosts.has(name) || (!isLoopback(host) && isIP(name) !== 0);
}

export function foreignHost(host: string): PgfreshError {
  return new PgfreshError('PGF_HTTP_HOST', { host });
}

export function hostName(header: string | undefined): string {
  return (header ?? '')
    .toLowerCase()
    .replace(/:\d+$/, '')
    .replace(/^\[(.*)\]$/, '$1');
}

/** Whether a request to a server at `host` comes from its own machine, and not through a proxy. */
export function isLocal(host: string, { headers }: Request): boolean {
  const isForwarded = [...headers.keys()].some((name) => /^(forwarded$|x-forwarded-)/.test(name));
  return isLoopback(host) && isLoopback(hostName(headers.get('host') ?? undefined)) && !isForwarded;
}

function hasToken(header: string | undefined, token: string): boolean {
  const given = /^Bearer (.+)$/i.exec(header ?? '')?.[1] ?? '';
  if (given === '') return false;
  // Digests have equal lengths, as the comparison requires, and hide the length of the token.
  return timingSafeEqual(digest(given), digest(token));
}

function digest(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}
