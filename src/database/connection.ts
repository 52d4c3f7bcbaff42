import { performance } from 'node:perf_hooks';
import { resolve } from 'node:path';
import type { Settings } from '../config/index.ts';
import type { Events } from '../events/index.ts';
import { Service } from '../lifecycle/index.ts';
import { Database } from './database.ts';
import { EmbeddedServer, runningEmbedded } from './embedded/index.ts';
import { readServerFacts, requireFit, type ServerFacts } from './server-facts.ts';

export interface ConnectionOptions {
  readonly settings: Pick<Settings, 'databaseUrl' | 'dataDir' | 'poolSize' | 'statementTimeout'>;
  readonly events: Events;
  /** The purpose of this process, shown in pg_stat_activity as "pgfresh <duty>". */
  readonly duty: string;
  /** Whether to join the embedded server of a running pgfresh: for commands, not for long-running processes. */
  readonly share?: boolean;
}

/** A process's database: yours by its URL, or the embedded one, started and stopped with us. */
export class Connection extends Service {
  readonly name = 'database';
  readonly #options: ConnectionOptions;
  #server: EmbeddedServer | undefined;
  #database: Database | undefined;
  #facts: ServerFacts | undefined;
  #url: string | undefined;

  constructor(options: ConnectionOptions) {
    super();
    this.#options = options;
  }

  get database(): Database {
    return started(this.#database);
  }

  /** The URL, for callers that need a connection of their own. */
  get url(): string {
    return started(this.#url);
  }

  get facts(): ServerFacts {
    return started(this.#facts);
  }

  protected async onStart(): Promise<void> {
    const { settings, events, duty } = this.#options;
    const since = performance.now();
    const url = settings.databaseUrl ?? (await this.#embeddedUrl());
    this.#url = url;
    this.#facts = await readServerFacts(url);
    requireFit(this.#facts);
    if (this.#facts.transactionPooler) warnOfPooler(events, this.#facts.address);
    this.#database = new Database({
      url,
      events,
      applicationName: `pgfresh ${duty}`,
      poolSize: settings.poolSize,
      statementTimeoutMs: settings.statementTimeout,
    });
    const kind = settings.databaseUrl === undefined ? 'embedded' : 'external';
    events.emit({
      type: 'database.ready',
      kind,
      address: this.#facts.address,
      version: this.#facts.version,
      ms: performance.now() - since,
    });
  }

  protected async onStop(): Promise<void> {
    await this.#database?.close();
    await this.#server?.stop();
  }

  override abandon(): void {
    this.#server?.abandon();
  }

  async #embeddedUrl(): Promise<string> {
    const { settings, events, share } = this.#options;
    const dataDir = resolve(settings.dataDir);
    const running = share ? await runningEmbedded(dataDir) : undefined;
    if (running !== undefined) return running;
    this.#server = new EmbeddedServer({ dataDir, events });
    await this.#server.start();
    return this.#server.url;
  }
}

function warnOfPooler(events: Events, address: string): void {
  events.emit({
    type: 'warning',
    code: 'transaction_pooler',
    message: `A transaction pooler is in front of PostgreSQL at ${address}; LISTEN and session settings do not work through it.`,
    next: 'Point DATABASE_URL at the server itself or at a session pool.',
  });
}

function started<T>(part: T | undefined): T {
  if (part === undefined) throw new Error('the database connection has not started');
  return part;
}
