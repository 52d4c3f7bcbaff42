import type { ResolvedConfig } from '../config/index.ts';
import {
  Connection,
  findReplacement,
  migrate,
  pendingMigrations,
  readSqlFiles,
  requireListening,
  requireLoginRoles,
  version,
  type SqlFiles,
} from '../database/index.ts';
import { PgfreshError } from '../errors/index.ts';
import type { Events } from '../events/index.ts';
import { HttpServer } from '../http/index.ts';
import { Service, stopAll, within } from '../lifecycle/index.ts';
import { requireTypes, syncRegistry } from '../registry/index.ts';
import { syncJobs } from '../schedule/index.ts';
import { Health, Metrics, readOverview, recordWarnings, shared, warnOfMisspelt } from '../watch/index.ts';
import { DevSupporter } from './dev-supporter.ts';
import type { Role } from './role-names.ts';
import { createRole, type RoleParts } from './roles.ts';
import { SchemaWatch } from './schema-watch.ts';

export interface RuntimeOptions {
  readonly config: ResolvedConfig;
  readonly roles: readonly Role[];
  readonly events: Events;
  /** Migrates the database first. Without it, the start fails if migrations are pending. */
  readonly migrate?: boolean;
  /** Also starts the `dev` function of the configuration. */
  readonly dev?: boolean;
  /** Limits a worker to these data types. */
  readonly types?: readonly string[] | undefined;
  /** False starts no HTTP server. */
  readonly listen?: boolean;
}

/** How long an upgrade waits for running jobs of old workers. */
const drainMs = 60_000;

/** How long a stop may take beyond the drain timeout. */
const stopTimeoutMs = 10_000;

/** Roles of pgfresh on one database, behind one HTTP server. Signals and the terminal are left to the CLI. */
export class Runtime extends Service {
  readonly name = 'runtime';
  readonly #options: RuntimeOptions;
  /** In the order of their start. */
  readonly #services: Service[] = [];
  readonly #connection: Connection;
  readonly #metrics: Metrics;
  readonly #replaced = Promise.withResolvers<never>();
  #supporter: DevSupporter | undefined;
  #http: HttpServer | undefined;

  constructor(options: RuntimeOptions) {
    super();
    this.#options = options;
    const { config, roles, events } = options;
    // Callers need not handle it.
    this.#replaced.promise.catch(() => {});
    this.#metrics = new Metrics(events);
    this.#connection = new Connection({ settings: config.settings, events, duty: roles.join(',') });
  }

  /** For instance http://127.0.0.1:4400, once started; undefined without an HTTP server. */
  get address(): string | undefined {
    return this.#http?.url;
  }

  /** Rejects when an upgrade removed functions that this process calls; it then has to be stopped. */
  get replaced(): Promise<never> {
    return this.#replaced.promise;
  }

  get databaseUrl(): string {
    return this.#connection.url;
  }

  /** The notes of the `dev` function for its user. */
  get notes(): Readonly<Record<string, string>> {
    return this.#supporter?.notes ?? {};
  }

  /** Stops. Once the time limit, which starts with the signal, is over, abandons what still runs and rejects. */
  async stopInTime(begin: AbortSignal = AbortSignal.abort()): Promise<void> {
    const limitMs = this.#options.config.settings.drainTimeout + stopTimeoutMs;
    const stopped = this.stop();
    const limited = (): Promise<void> =>
      within(limitMs, stopped, () => {
        this.abandon();
        throw new PgfreshError('PGF_STOP_TIMEOUT', { seconds: limitMs / 1000 });
      });
    if (begin.aborted) return limited();
    const begun = Promise.withResolvers<void>();
    const onBegin = (): void => begun.resolve(limited());
    begin.addEventListener('abort', onBegin, { once: true });
    await Promise.race([stopped, begun.promise]).finally(() => begin.removeEventListener('abort', onBegin));
  }

  override abandon(): void {
    for (const service of this.#services) service.abandon();
  }

  protected async onStart(): Promise<void> {
    // A stop does not wait for the start to finish: a service that already runs may be what the start hangs on.
    this.stopSignal.addEventListener('abort', () => void stopAll(this.#services).catch(() => {}), { once: true });
    const { config: configured, roles, events, dev = false, listen = true } = this.#options;
    const connection = this.#connection;
    await this.#run(connection);
    const files = await readSqlFiles();
    const requireMigrated = await this.#prepareDatabase(files);
    recordWarnings(events, connection.database);
    warnOfMisspelt(events, configured.misspelt);
    if (dev && configured.dev) {
      this.#supporter = new DevSupporter(configured, configured.dev, connection.url);
      await this.#run(this.#supporter);
    }
    const config = this.#supporter?.config ?? configured;
    await syncRegistry(connection.database, config, events, { skipRefused: true });
    await syncJobs(connection.database, config, events);
    const health = healthOf(connection, requireMigrated);
    const parts = await this.#createRoles(config, health);
    for (const { service } of parts) if (service) await this.#run(service);
    if (listen) {
      this.#http = new HttpServer({
        settings: config.settings,
        events,
        health,
        metrics: this.#metrics,
        routes: (app) => parts.forEach(({ routes }) => routes?.(app)),
        mounts: parts.flatMap(({ mount }) => mount ?? []),
      });
      await this.#run(this.#http);
    }
    await this.#run(new SchemaWatch({ db: connection.database, events, files, onReplaced: this.#replaced.reject }));
    await this.#supporter?.ready();
    events.emit({ type: 'process.started', version, roles });
  }

  /** Also reports failures of a stop that began during the start. */
  protected async onStop(): Promise<void> {
    await stopAll(this.#services);
    this.#options.events.emit({ type: 'process.stopped' });
  }

  async #run(service: Service): Promise<void> {
    // A stop that has begun would miss a service that is added now.
    this.stopSignal.throwIfAborted();
    this.#services.push(service);
    await service.start();
  }

  /** Returns a check that fails when migrations are pending. */
  async #prepareDatabase(files: SqlFiles): Promise<() => Promise<void>> {
    const { roles, events } = this.#options;
    const { database } = this.#connection;
    const requireMigrated = async (): Promise<void> => {
      const { length: count } = await pendingMigrations(database, files);
      if (count > 0) throw new PgfreshError('PGF_MIGRATION_PENDING', { count });
    };
    if (this.#options.migrate) await migrate(database, { files, events, drainMs });
    else {
      await requireLoginRoles(database, roles);
      await requireMigrated();
    }
    const replaced = await findReplacement(database, files);
    if (replaced) throw replaced;
    return requireMigrated;
  }

  async #createRoles(config: ResolvedConfig, health: Health): Promise<RoleParts[]> {
    const { roles, events, types } = this.#options;
    const { database, url, facts } = this.#connection;
    const { listenUrl: chosen } = config.settings;
    // Other roles poll while they cannot listen, and try again.
    if (chosen !== undefined && roles.includes('gateway')) await requireListening(database, chosen);
    const listenUrl = chosen ?? (facts.transactionPooler ? undefined : url);
    const status = async () => ({ version, roles, database: facts.address, health: await health.report() });
    if (types) await requireTypes(database, types);
    const overview = shared(() => readOverview(database));
    // Only with the console, which reads the overview anyway: not every login may, and once per system is enough.
    if (roles.includes('console')) this.#metrics.showPairs(overview);
    const page = this.#supporter?.page;
    const context = { database, url, listenUrl, events, config, types, status, overview, page };
    return roles.map((role) => createRole(role, context));
  }
}

function healthOf({ database, facts }: Connection, requireMigrated: () => Promise<void>): Health {
  const health = new Health();
  health.add('database', async () => {
    const [row] = await database.query<{ standby: boolean }>('select pg_is_in_recovery() as standby');
    if (row?.standby) throw new PgfreshError('PGF_DATABASE_STANDBY', { address: facts.address });
    return `PostgreSQL ${facts.version} answers`;
  });
  health.add('migrations', async () => {
    await requireMigrated();
    return 'all applied';
  });
  return health;
}
