import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pg from 'pg';
import { Events } from '../src/events/index.ts';
import { sleep } from './clock.ts';
import { Problem } from './problem.ts';
import type { Scope } from './scope.ts';

/** What a piece of work cost the server. CPU is only known when the server runs on this machine. */
export interface Cost {
  readonly walBytes: number;
  readonly cpuMs: number | null;
}

interface Embedded {
  start(): Promise<void>;
  stop(): Promise<void>;
  readonly url: string;
  readonly pid: number | undefined;
}

interface EmbeddedModule {
  EmbeddedServer: new (options: { dataDir: string; events: Events; fsync?: boolean }) => Embedded;
}

/**
 * The PostgreSQL of a run: the one that `BENCH_DATABASE_URL` names, else an embedded one that lives as long as the
 * run. Every contender gets databases of its own, cloned from the one that its setup has made.
 */
export class BenchServer {
  readonly #url: URL;
  readonly #admin: pg.Pool;
  readonly #postmaster: number | undefined;
  readonly #scope: Scope;
  #databases = 0;

  private constructor(url: string, admin: pg.Pool, postmaster: number | undefined, scope: Scope) {
    this.#url = new URL(url);
    this.#admin = admin;
    this.#postmaster = postmaster;
    this.#scope = scope;
  }

  static async start(scope: Scope, progress: (line: string) => void): Promise<BenchServer> {
    const given = process.env['BENCH_DATABASE_URL'];
    const { url, pid } = given ? { url: given, pid: undefined } : await startEmbedded(scope, progress);
    // One connection: a drop that an interrupt sends then waits for the creation that it has overtaken.
    const admin = new pg.Pool({ connectionString: url, max: 1 });
    admin.on('error', () => {});
    scope.defer(() => admin.end());
    await refuseUnsafe(admin);
    return new BenchServer(url, admin, pid ?? (await localPostmaster(url, admin)), scope);
  }

  /** A new database, dropped at the end of the run at the latest. `template` is the URL of another of ours. */
  async createDatabase(scope: Scope = this.#scope, template?: string): Promise<string> {
    const name = `pgfresh_bench_${process.pid}_${++this.#databases}`;
    const source = template === undefined ? '' : ` template ${new URL(template).pathname.slice(1)}`;
    scope.defer(() => this.#dropDatabase(name));
    if (template !== undefined) await forgetIdentity(template);
    await this.#admin.query(`create database ${name}${source}`);
    const url = new URL(this.#url);
    url.pathname = `/${name}`;
    return url.href;
  }

  /**
   * Writes out what earlier measures left dirty, before a measure begins. Without it a checkpoint falls into some
   * measures and not into others, and with it the full page images that it makes the next writes carry.
   */
  async settle(): Promise<void> {
    await this.#admin.query('checkpoint');
  }

  async measure<Result>(work: () => Promise<Result>): Promise<{ result: Result; cost: Cost }> {
    const lsn = await this.#walPosition();
    const cpu = this.#cpuMs();
    const result = await work();
    const cpuMs = cpu === null ? null : this.#cpuMs()! - cpu;
    const wal = await this.#admin.query<{ bytes: string }>(
      'select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), $1::pg_lsn)::text as bytes',
      [lsn],
    );
    return { result, cost: { walBytes: Number(wal.rows[0]!.bytes), cpuMs } };
  }

  async describe(): Promise<Record<string, unknown>> {
    const names = [
      'server_version',
      'fsync',
      'synchronous_commit',
      'shared_buffers',
      'max_wal_size',
      'full_page_writes',
    ];
    const { rows } = await this.#admin.query<{ name: string; setting: string }>(
      'select name, current_setting(name) as setting from unnest($1::text[]) as name',
      [names],
    );
    return Object.fromEntries(rows.map(({ name, setting }) => [name, setting]));
  }

  // Closed connections take a moment to disappear. Terminated earlier, they would fail in pools without listeners.
  async #dropDatabase(name: string): Promise<void> {
    const connected = `select 1 from pg_stat_activity where datname = '${name}' and backend_type = 'client backend'`;
    for (let tries = 0; tries < 100 && (await this.#admin.query(connected)).rows.length > 0; tries++) await sleep(10);
    await this.#admin.query(`drop database if exists ${name} with (force)`);
  }

  async #walPosition(): Promise<string> {
    const { rows } = await this.#admin.query<{ lsn: string }>('select pg_current_wal_insert_lsn()::text as lsn');
    return rows[0]!.lsn;
  }

  #cpuMs(): number | null {
    return this.#postmaster === undefined ? null : serverCpuMs(this.#postmaster);
  }
}

/** A connection that ends with the scope. */
export async function connect(url: string, scope: Scope): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: url });
  // A run that is stopped drops the database under its connections.
  client.on('error', () => {});
  await client.connect();
  scope.defer(() => client.end());
  return client;
}

async function startEmbedded(
  scope: Scope,
  progress: (line: string) => void,
): Promise<{ url: string; pid: number | undefined }> {
  progress('starting an embedded PostgreSQL; set BENCH_DATABASE_URL to use another');
  const { EmbeddedServer } = await loadEmbedded();
  // The usual temporary folder is often in memory, where fsync costs nothing.
  const dataDir = join(existsSync('/var/tmp') ? '/var/tmp' : tmpdir(), `pgfresh-bench-${process.pid}`);
  scope.defer(() => rm(dataDir, { recursive: true, force: true }));
  const server = new EmbeddedServer({ dataDir, events: new Events(), fsync: true });
  scope.defer(() => server.stop());
  await server.start();
  return { url: server.url, pid: server.pid };
}

async function loadEmbedded(): Promise<EmbeddedModule> {
  const file = new URL('../src/database/embedded/index.ts', import.meta.url);
  if (!existsSync(file)) {
    throw new Problem(
      'This checkout has no embedded PostgreSQL. Set BENCH_DATABASE_URL to a server that may be loaded.',
    );
  }
  return (await import(file.href)) as EmbeddedModule;
}

async function refuseUnsafe(admin: pg.Pool): Promise<void> {
  const { rows } = await admin.query<{ fsync: string; commit: string }>(
    `select current_setting('fsync') as fsync, current_setting('synchronous_commit') as commit`,
  );
  const { fsync, commit } = rows[0]!;
  if (fsync === 'on' && commit === 'on') return;
  throw new Problem(
    `The figures would say nothing: fsync is ${fsync} and synchronous_commit is ${commit}, both must be on. ` +
      'Correct the server, or unset BENCH_DATABASE_URL to use the embedded one.',
  );
}

async function localPostmaster(url: string, admin: pg.Pool): Promise<number | undefined> {
  const host = new URL(url).hostname;
  if (!['', 'localhost', '127.0.0.1', '[::1]'].includes(host)) return undefined;
  try {
    const { rows } = await admin.query<{ pid: string }>(
      `select split_part(pg_read_file('postmaster.pid'), E'\\n', 1) as pid`,
    );
    const pid = Number(rows[0]!.pid);
    // The number may be of another process namespace, such as a container's.
    return readFileSync(`/proc/${pid}/comm`, 'utf8').startsWith('postgres') ? pid : undefined;
  } catch {
    return undefined;
  }
}

// Linux counts in ticks of 10 ms on every platform that Node.js supports.
const tickMs = 10;

/**
 * The CPU time of the postmaster and of all that it has forked. A backend that has ended is counted by the
 * postmaster's time of waited-for children, so the sum never falls.
 */
function serverCpuMs(postmaster: number): number | null {
  const own = readStat(postmaster);
  if (!own) return null;
  let ticks = own.ticks + own.reapedTicks;
  for (const entry of readdirSync('/proc')) {
    const stat = /^\d+$/.test(entry) ? readStat(Number(entry)) : undefined;
    if (stat?.parent === postmaster) ticks += stat.ticks;
  }
  return ticks * tickMs;
}

function readStat(pid: number): { parent: number; ticks: number; reapedTicks: number } | undefined {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'utf8');
    // The name before it is in parentheses and may itself contain spaces and parentheses.
    const fields = text
      .slice(text.lastIndexOf(')') + 2)
      .split(' ')
      .map(Number);
    return { parent: fields[1]!, ticks: fields[11]! + fields[12]!, reapedTicks: fields[13]! + fields[14]! };
  } catch {
    return undefined;
  }
}

/** Clones are part of the measurement, and must not be treated as restored databases. */
async function forgetIdentity(template: string): Promise<void> {
  const client = new pg.Client(template);
  await client.connect();
  try {
    // Databases of peers have none.
    const { rows } = await client.query(`select from pg_class where relname = 'database_identity'`);
    if (rows.length > 0) await client.query(`update pgfresh_engine.database_identity set identity = ''`);
  } finally {
    await client.end();
  }
}
