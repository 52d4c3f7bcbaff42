import { createHash, timingSafeEqual } from 'node:crypto';
import { isIP } from 'node:net';
import type { Context, MiddlewareHandler } from 'hono';
import { isLoopback } from '../config/index.ts';
import { PgfreshError } from '../errors/index.ts';
import type { Events } from '../events/index.ts';
import { leadsTo, type Door } from './door.ts';

export interface GuardOptions {
  readonly host: string;
  readonly allowedHosts: readonly string[];
  readonly token: string;
  readonly events: Events;
  /** What asks by itself who comes. */
  readonly doors?: readonly Pick<Door, 'path'>[];
}

const ourNames = ['localhost', '127.0.0.1', '::1'];
const reading = new Set(['GET', 'HEAD', 'OPTIONS']);
// What a load balancer asks, and what tells nothing to a stranger.
const open = new Set(['/livez', '/readyz']);

/**
 * Refuses a Host that is not ours, so that a web page cannot reach us under a name of its own (DNS rebinding),
 * and everything that writes without the token. Where others can reach the server, by its address or through a proxy,
 * reading needs the token too.
 */
export function guard({ host, allowedHosts, token, events, doors = [] }: GuardOptions): MiddlewareHandler {
  const isOurs = hostCheck(host, allowedHosts);
  const refuse = (context: Context, status: 401 | 403, error: PgfreshError): Response => {
    events.emit({ type: 'http.refused', status, reason: error.message, path: context.req.path });
    return context.json({ error }, status);
  };
  return async (context, next) => {
    const name = hostName(context.req.header('host'));
    if (!isOurs(name)) return refuse(context, 403, foreignHost(name));
    if (doors.some((door) => leadsTo(door, context.req.path))) return next();
    const local = isLocal(host, context.req.raw);
    const health = open.has(context.req.path) && context.req.query('verbose') === undefined;
    const free = reading.has(context.req.method) && (local || health);
    if (!free && !hasToken(context.req.header('authorization'), token)) {
      context.header('www-authenticate', 'Bearer');
      return refuse(context, 401, new PgfreshError('PGF_HTTP_TOKEN', {}));
    }
    return next();
  };
}

/** Whether a name is one of this server's. */
export function hostCheck(host: string, allowedHosts: readonly string[]): (name: string) => boolean {
  const hosts = new Set([...ourNames, ...allowedHosts, host].map((name) => name.toLowerCase()));
  // Rebinding needs a name, so an address is as good as one of ours where others may come.
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
  // Digests are equally long, which the comparison needs, and hide the length of the token.
  return timingSafeEqual(digest(given), digest(token));
}

function digest(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}
