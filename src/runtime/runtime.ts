import type { ResolvedConfig } from '../config/index.ts';
import {
  Connection,
  migrate,
  pendingMigrations,
  readSqlFiles,
  requireListening,
  requireLoginRoles,
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
import { bringRole, type Brought } from './roles.ts';
import { SchemaWatch } from './schema-watch.ts';
import { version } from './version.ts';

export interface RuntimeOptions {
  readonly config: ResolvedConfig;
  readonly roles: readonly Role[];
  readonly events: Events;
  /** Migrates the database first; without it, a database that is not migrated is refused. */
  readonly migrate?: boolean;
  /** Also starts the `dev` function of the configuration. */
  readonly dev?: boolean;
  /** The data types that a worker is limited to; without it, all that it can fetch. */
  readonly types?: readonly string[] | undefined;
  /** Without an HTTP server if false. */
  readonly listen?: boolean;
}

/** How long an upgrade waits for jobs of old workers. */
const drainMs = 60_000;

/** How long a stop may take beyond the time for draining. */
const stopPatienceMs = 10_000;

/** Roles of pgfresh on one database, behind one HTTP server. It knows nothing of signals or of the terminal. */
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
    // Not everybody who runs this waits for it.
    this.#replaced.promise.catch(() => {});
    this.#metrics = new Metrics(events);
    this.#connection = new Connection({ settings: config.settings, events, duty: roles.join(',') });
  }

  /** For instance http://127.0.0.1:4400, once started; undefined without an HTTP server. */
  get address(): string | undefined {
    return this.#http?.url;
  }

  /** Rejects when an upgrade has taken away what this process calls; then it has to be stopped. */
  get replaced(): Promise<never> {
    return this.#replaced.promise;
  }

  get databaseUrl(): string {
    return this.#connection.url;
  }

  /** What the `dev` function tells its user. */
  get notes(): Readonly<Record<string, string>> {
    return this.#supporter?.notes ?? {};
  }

  /** Stops. When the limit is over, which begins with the signal, what still runs is abandoned, and this rejects. */
  async stopInTime(begin: AbortSignal = AbortSignal.abort()): Promise<void> {
    const limitMs = this.#options.config.settings.drainTimeout + stopPatienceMs;
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
    // A stop does not wait for the end of the start: what runs already may be what the start hangs on.
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
    const brought = await this.#bringRoles(config, health);
    for (const { service } of brought) if (service) await this.#run(service);
    if (listen) {
      this.#http = new HttpServer({
        settings: config.settings,
        events,
        health,
        metrics: this.#metrics,
        routes: (app) => brought.forEach(({ routes }) => routes?.(app)),
        doors: brought.flatMap(({ door }) => door ?? []),
      });
      await this.#run(this.#http);
    }
    await this.#run(new SchemaWatch({ db: connection.database, files, onReplaced: this.#replaced.reject }));
    await this.#supporter?.ready();
    events.emit({ type: 'process.started', version, roles });
  }

  /** Reports what failed in a stop that began during the start too. */
  protected async onStop(): Promise<void> {
    await stopAll(this.#services);
    this.#options.events.emit({ type: 'process.stopped' });
  }

  async #run(service: Service): Promise<void> {
    // The stop does not know of what is added later, which would begin work while the others end theirs.
    this.stopSignal.throwIfAborted();
    this.#services.push(service);
    await service.start();
  }

  /** Returns what fails when the database is no longer migrated. */
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
    return requireMigrated;
  }

  async #bringRoles(config: ResolvedConfig, health: Health): Promise<Brought[]> {
    const { roles, events, types } = this.#options;
    const { database, url, facts } = this.#connection;
    const { listenUrl: chosen } = config.settings;
    // The others poll while they cannot listen, and try again.
    if (chosen !== undefined && roles.includes('gateway')) await requireListening(database, chosen);
    const listenUrl = chosen ?? (facts.transactionPooler ? undefined : url);
    const status = async () => ({ version, roles, database: facts.address, health: await health.report() });
    if (types) await requireTypes(database, types);
    const overview = shared(() => readOverview(database));
    // Where the overview is shown anyway: not every login may read it, and once per system is enough.
    if (roles.includes('console')) this.#metrics.showPairs(overview);
    const page = this.#supporter?.page;
    const context = { database, url, listenUrl, events, config, types, status, overview, page };
    return roles.map((role) => bringRole(role, context));
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
