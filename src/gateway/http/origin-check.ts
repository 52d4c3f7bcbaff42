import type { IncomingMessage } from 'node:http';
import { PgfreshError } from '../../errors/index.ts';

/** Throws if a browser sends the request from a page that is neither of this server's origin nor of an allowed one. */
export function requireAllowedOrigin({ headers: { origin, host } }: IncomingMessage, allowed: readonly string[]): void {
  if (origin === undefined || allowed.includes(origin)) return;
  if (host !== undefined && URL.parse(origin)?.host === host.toLowerCase()) return;
  throw new PgfreshError('PGF_LIVE_ORIGIN', { origin: JSON.stringify(origin.slice(0, 100)) });
}
