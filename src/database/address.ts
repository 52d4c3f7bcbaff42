import type pg from 'pg';
import { PgfreshError, problemOf } from '../errors/index.ts';

/** Settings of one connection to the given address. */
export function clientConfig(url: string, applicationName: string): pg.ClientConfig {
  return {
    connectionString: withLibpqTls(parsed(url)),
    application_name: applicationName,
    keepAlive: true,
    // Without it the operating system probes a silent peer only after two hours.
    keepAliveInitialDelayMillis: 10_000,
  };
}

/** The address without the password, for people and logs. */
export function shownAddress(url: string): string {
  const { host, pathname, searchParams } = parsed(url);
  return `${host || searchParams.get('host') || 'localhost'}${pathname}`;
}

function parsed(url: string): URL {
  const address = parseUrl(url);
  if (!/^postgres(ql)?:$/.test(address.protocol)) {
    throw new PgfreshError('PGF_DATABASE_URL_INVALID', { problem: `it starts with "${address.protocol}//"` });
  }
  return address;
}

function parseUrl(url: string): URL {
  try {
    return new URL(url);
  } catch (error) {
    // The text itself stays out of the message: it may hold a password.
    throw new PgfreshError('PGF_DATABASE_URL_INVALID', { problem: problemOf(error) });
  }
}

// pg also verifies the certificate for sslmode=require; psql, which users have in mind, does not.
function withLibpqTls(url: URL): string {
  if (url.searchParams.has('sslmode') && !url.searchParams.has('uselibpqcompat')) {
    url.searchParams.set('uselibpqcompat', 'true');
  }
  return url.href;
}
