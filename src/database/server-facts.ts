import pg from 'pg';
import { PgfreshError, problemOf } from '../errors/index.ts';
import { clientConfig, shownAddress } from './address.ts';
import { codeOf, failureOf } from './failure.ts';

/** Facts about a server that pgfresh needs before it uses it. */
export interface ServerFacts {
  address: string;
  /** For instance "18.4". */
  version: string;
  major: number;
  standby: boolean;
  user: string;
  /** A transaction pooler: no LISTEN, no session settings. */
  transactionPooler: boolean;
}

const oldestMajor = 15;

/** Connects once, queries, and disconnects. */
export async function readServerFacts(url: string, patience = 10_000): Promise<ServerFacts> {
  const client = await connect(url, patience);
  try {
    const { rows } = await client.query<Omit<ServerFacts, 'address' | 'transactionPooler'>>(`
      select split_part(current_setting('server_version'), ' ', 1) as version,
        current_setting('server_version_num')::int / 10000 as major,
        pg_is_in_recovery() as standby,
        current_user as "user"`);
    return {
      ...rows[0]!,
      address: shownAddress(url),
      transactionPooler: await behindTransactionPooler(client, () => connect(url, patience)),
    };
  } catch (error) {
    throw failureOf(error) === 'connection' ? refusal(error, shownAddress(url)) : error;
  } finally {
    await client.end();
  }
}

/** Throws if the server is unfit for pgfresh. */
export function requireFit(facts: ServerFacts): void {
  const { address, major, version, standby } = facts;
  if (major < oldestMajor) throw new PgfreshError('PGF_DATABASE_TOO_OLD', { address, found: version });
  if (standby) throw new PgfreshError('PGF_DATABASE_STANDBY', { address });
}

async function connect(url: string, patience: number): Promise<pg.Client> {
  const client = newClient(url, patience);
  client.on('error', () => {});
  try {
    await client.connect();
    return client;
  } catch (error) {
    await client.end().catch(() => {});
    throw refusal(error, shownAddress(url));
  }
}

function newClient(url: string, patience: number): pg.Client {
  const config = { ...clientConfig(url, 'pgfresh check'), connectionTimeoutMillis: patience, query_timeout: patience };
  try {
    return new pg.Client(config);
  } catch (error) {
    const problem = problemOf(error);
    // This reads the certificates at once.
    if (/[?&]ssl/.test(url)) {
      throw new PgfreshError('PGF_DATABASE_TLS', { address: shownAddress(url), problem }, { cause: error });
    }
    throw new PgfreshError('PGF_DATABASE_URL_INVALID', { problem }, { cause: error });
  }
}

function refusal(error: unknown, address: string): PgfreshError {
  const problem = problemOf(error);
  const options = { cause: error };
  if (isAboutTls(error, problem)) return new PgfreshError('PGF_DATABASE_TLS', { address, problem }, options);
  if (failureOf(error) === 'login') return new PgfreshError('PGF_DATABASE_LOGIN', { address, problem }, options);
  return new PgfreshError('PGF_DATABASE_UNREACHABLE', { address, problem }, options);
}

function isAboutTls(error: unknown, problem: string): boolean {
  if (/does not support SSL|no encryption|SSL off|SSL connection is required|certificate/i.test(problem)) return true;
  return /^(ERR_TLS|ERR_SSL|CERT_|DEPTH_ZERO|SELF_SIGNED|UNABLE_TO_VERIFY)/.test(codeOf(error) ?? '');
}

/**
 * A pooler reports process ids of its own; only then is a second client used. With transaction pooling
 * it gets the session that the first has just released, or the first does not get its own back.
 */
async function behindTransactionPooler(first: pg.Client, another: () => Promise<pg.Client>): Promise<boolean> {
  const mine = await backendPid(first);
  if (mine === (first as { processID?: number | null }).processID) return false;
  const second = await another();
  try {
    return (await backendPid(second)) === mine || (await backendPid(first)) !== mine;
  } finally {
    await second.end();
  }
}

async function backendPid(client: pg.Client): Promise<number> {
  const { rows } = await client.query<{ pid: number }>('select pg_backend_pid() as pid');
  return rows[0]!.pid;
}
