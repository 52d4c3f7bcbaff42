import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import type { Meter, MeteredCall } from '../../../examples/market/provider/meter.ts';
import { Provider, type ProviderOptions } from '../../../examples/market/provider/provider.ts';
import type { Database } from '../../../src/database/index.ts';
import config from '../../../examples/market/pgfresh.config.ts';
import { resolveConfig } from '../../../src/config/index.ts';
import { grantStatements, parseGrants } from '../../../src/cli/grants.ts';
import { atEnd, createDatabase, openDatabase } from '../../harness/database.ts';
import { createLogin } from '../../harness/login.ts';

export const apiKey = 'key-of-a-test';

/** A provider with a clock of the test's, which stops when the file ends. */
export class ProviderScene {
  readonly url: string;
  readonly provider: Provider;
  /** What time it is for the provider, in milliseconds. */
  readonly time: { now: number };

  private constructor(url: string, provider: Provider, time: { now: number }) {
    this.url = url;
    this.provider = provider;
    this.time = time;
  }

  static async open(options: Partial<ProviderOptions> = {}): Promise<ProviderScene> {
    const time = { now: Date.parse('2026-11-16T15:30:00Z') };
    const now = () => time.now;
    const provider = new Provider({
      port: 0,
      seed: 1,
      keys: [apiKey],
      limit: undefined,
      latencyMs: 0,
      now,
      uptime: now,
      ...options,
    });
    atEnd(() => provider.stop());
    return new ProviderScene(await provider.start(), provider, time);
  }

  get(path: string, { key = apiKey, ...headers }: Record<string, string> = {}): Promise<Response> {
    return fetch(this.url + path, { headers: { 'x-api-key': key, ...headers } });
  }

  async json(path: string): Promise<Record<string, unknown>> {
    return (await (await this.get(path)).json()) as Record<string, unknown>;
  }

  async admin(
    method: string,
    path: string,
    body?: unknown,
  ): Promise<{ status: number; body: Record<string, unknown> }> {
    const sent = body === undefined ? {} : { body: JSON.stringify(body) };
    const response = await fetch(`${this.url}/admin${path}`, { method, ...sent });
    return { status: response.status, body: (await response.json()) as Record<string, unknown> };
  }

  /** Every call, as the provider has seen it. */
  async calls(): Promise<MeteredCall[]> {
    return (await this.admin('GET', '/meter/calls')).body['calls'] as MeteredCall[];
  }

  async report(): Promise<ReturnType<Meter['report']>> {
    return (await this.admin('GET', '/meter')).body as unknown as ReturnType<Meter['report']>;
  }

  /** Sends a request by hand and reads all that comes until the other side ends the connection. */
  async raw(path: string, headers: readonly string[] = [], method = 'GET'): Promise<string> {
    const socket = connect(Number(new URL(this.url).port), '127.0.0.1');
    socket.setEncoding('latin1');
    socket.write(
      [
        `${method} ${path} HTTP/1.1`,
        'host: provider',
        `x-api-key: ${apiKey}`,
        'connection: close',
        ...headers,
        '',
        '',
      ].join('\r\n'),
    );
    const [read] = await Promise.all([text(socket), once(socket, 'close')]);
    return read;
  }
}

/** A new login with what "pgfresh migrate --grants" gives it, and nothing else; `wants` names it by `$`. */
export async function grantedLogin(
  { url, db }: { url: string; db: Database },
  wants: string,
): Promise<{ name: string; url: string }> {
  const login = await createLogin(url);
  const grants = await grantStatements(db, parseGrants(wants.replaceAll('$', login.name)), resolveConfig({ config }));
  for (const grant of grants) await db.query(grant);
  return login;
}

/** A database with the tables of the example. */
export async function openMarket(): Promise<{ url: string; db: Database }> {
  const url = await createDatabase();
  const db = openDatabase(url);
  await db.query(await readFile('examples/market/schema.sql', 'utf8'));
  return { url, db };
}
