import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import pg from 'pg';
import { PgfreshError, problemOf } from '../errors/index.ts';
import { clientConfig, shownAddress } from './address.ts';
import type { Queryable } from './query.ts';

const patienceMs = 5_000;

/** Throws if notifications of the database do not arrive at the URL: it is wrong, a pooler or another database. */
export async function requireListening(database: Queryable, url: string): Promise<void> {
  const channel = `pgfresh_check_${randomBytes(8).toString('hex')}`;
  let client: pg.Client | undefined;
  try {
    client = new pg.Client({
      ...clientConfig(url, 'pgfresh check'),
      connectionTimeoutMillis: patienceMs,
      query_timeout: patienceMs,
    });
    client.on('error', () => {});
    await client.connect();
    await client.query(`listen ${channel}`);
    const arrived = once(client, 'notification', { signal: AbortSignal.timeout(patienceMs) });
    arrived.catch(() => {});
    await database.query('select pg_notify($1::text, $2::text)', [channel, '']);
    await arrived;
  } catch (error) {
    const isSilent = (error as Error).name === 'AbortError';
    const problem = isSilent
      ? `nothing arrives at ${shownAddress(url)}, which is another database or behind a transaction pooler`
      : problemOf(error).replace('DATABASE_URL', 'it');
    throw new PgfreshError('PGF_LISTEN_URL', { problem }, { cause: error });
  } finally {
    await client?.end().catch(() => {});
  }
}
