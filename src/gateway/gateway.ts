import { randomUUID } from 'node:crypto';
import { hostname } from 'node:os';
import { Changes, defaultLimits, maxReads, reportTimeout } from '../changes/index.ts';
import type { GatewaySettings } from '../config/index.ts';
import { Database, type LimitedQueryable, type StatementLimits } from '../database/index.ts';
import { NodeDemand } from '../demand/index.ts';
import { PgfreshError, problemOf } from '../errors/index.ts';
import type { Events } from '../events/index.ts';
import type { Mount } from '../http/index.ts';
import { every, Service, within } from '../lifecycle/index.ts';
import { Authenticator } from './auth/authenticator.ts';
import { Authorizer } from './auth/authorizer.ts';
import { RlsReaders } from './auth/rls-readers.ts';
import { UsageLimits } from './auth/usage-limits.ts';
import { PlainReads } from './http/plain-read.ts';
import { liveRoutes } from './http/routes.ts';
import { EventStreams } from './http/sse.ts';
import { WebSockets } from './http/websocket.ts';
import { PairQueries } from './pairs/pair-queries.ts';
import { maxProbes, maxStatements, TypeStatements } from './pairs/type-statements.ts';
import { WatchedPairs } from './pairs/watched-pairs.ts';
import type { SessionParts } from './session/session-parts.ts';
import { SessionRegistry } from './session/session-registry.ts';
import type { Session } from './session/session.ts';
import { SlowClients } from './session/slow-clients.ts';

export interface GatewayOptions {
  readonly db: LimitedQueryable;
  readonly url: string;
  readonly events: Events;
  readonly settings: GatewaySettings;
  /** A connection on which LISTEN works; undefined behind a transaction pooler. */
  readonly listenUrl: string | undefined;
  /** Limits of a statement about one data type. */
  readonly typeLimits?: StatementLimits | undefined;
}

const roundMs = 1_000;
const stopTimeoutMs = 1_000;
/** How often each task runs, in rounds. */
const everyRounds = { countViewers: 2, recheck: 5, ping: 25, forgetIdle: 60 } as const;

/** Serves clients: watches pairs on their behalf, and sends them a snapshot and then every change. */
export class Gateway extends Service {
  readonly name = 'gateway';
  readonly mount: Mount;
  readonly #changes: Changes;
  readonly #demand: NodeDemand;
  /** Pool for users' tables and functions, of which each data type gets only a part. */
  readonly #dataDb: Database;
  /** Pool for reads under row security, and the functions that policies call. */
  readonly #rlsDb: Database;
  readonly #statements: TypeStatements;
  readonly #parts: SessionParts;
  readonly #registry: SessionRegistry;
  #loop: Promise<void> | undefined;
  readonly #running = new Set<string>();
  #round = 0;

  constructor(options: GatewayOptions) {
    super();
    const { db, url, listenUrl, events, settings, typeLimits = defaultLimits } = options;
    const { limits } = settings;
    this.#dataDb = new Database({
      url,
      events,
      applicationName: 'pgfresh gateway, data types',
      poolSize: maxReads + maxStatements + maxProbes,
      pipelined: true,
    });
    this.#rlsDb = new Database({
      url,
      events,
      applicationName: 'pgfresh gateway, as users',
      poolSize: maxReads,
      pipelined: true,
    });
    const holder = randomUUID();
    this.#changes = new Changes({
      db,
      holder,
      dataDb: this.#dataDb,
      rlsDb: this.#rlsDb,
      typeLimits,
      policyTimeoutMs: settings.rls?.timeout,
      listenUrl,
      events,
    });
    this.#statements = new TypeStatements({
      db: this.#dataDb,
      limits: typeLimits,
      onTimeout: (dataType, topic, problem) => void reportTimeout(db, { dataType, where: topic, problem }),
    });
    this.#demand = new NodeDemand({ db, events, nodeName: `${hostname()} ${process.pid}`, holder });
    const queries = new PairQueries(db, this.#statements, this.#demand);
    const { cache } = this.#changes;
    this.#parts = {
      limits,
      authenticator: new Authenticator(settings),
      authorizer: new Authorizer(settings.authorize),
      queries,
      rlsReaders: new RlsReaders(settings.rls, db),
      watchedPairs: new WatchedPairs({ cache, queries, demand: this.#demand, events }),
      events,
      usageLimits: new UsageLimits(limits),
      slowClients: new SlowClients(),
    };
    this.#registry = new SessionRegistry({ parts: this.#parts, settings });
    this.mount = liveRoutes({
      registry: this.#registry,
      webSockets: new WebSockets(this.#registry, events, limits.messageBytes),
      eventStreams: new EventStreams(this.#registry, limits.messageBytes),
      plainReads: new PlainReads(this.#registry, this.#parts),
      origins: settings.origins,
      events,
    });
  }

  protected async onStart(): Promise<void> {
    await this.#parts.authenticator.loadKey();
    await this.#changes.start();
    await this.#demand.start();
    this.#loop = every(roundMs, async () => this.#runRound(), {
      signal: this.stopSignal,
      failed: (error) => this.#parts.events.emit({ type: 'gateway.failed', step: 'round', problem: problemOf(error) }),
    });
  }

  protected async onStop(): Promise<void> {
    this.#statements.stop();
    await this.mount.drain();
    await this.#loop;
    this.#parts.watchedPairs.close();
    // If the database does not answer, the counts expire with their lease.
    const ended = Promise.all([this.#changes.stop(), this.#demand.stop()]).catch((error: unknown) =>
      this.#parts.events.emit({ type: 'demand.failed', problem: problemOf(error) }),
    );
    await within(stopTimeoutMs, ended);
    await Promise.all([this.#dataDb.close(), this.#rlsDb.close()]);
  }

  #runRound(): void {
    this.#round += 1;
    const { watchedPairs, usageLimits } = this.#parts;
    for (const session of this.#registry.sessions) if (session.isOpen) this.#checkSession(session);
    watchedPairs.tidy();
    if (this.#round % everyRounds.countViewers === 0)
      this.#runInBackground('count', () => watchedPairs.sendViewerCounts());
    if (this.#round % everyRounds.recheck === 0) watchedPairs.recheck();
    if (this.#round % everyRounds.forgetIdle === 0) usageLimits.forgetIdle();
  }

  #checkSession(session: Session): void {
    const { transport } = session.connection;
    if (session.expiresAt <= Date.now()) session.end(new PgfreshError('PGF_LIVE_TOKEN', { problem: 'it has expired' }));
    else if ((this.#round + session.pingOffset) % everyRounds.ping === 0 && !transport.ping()) transport.terminate();
    else if (this.#parts.authorizer.isConfigured && session.recheckAt <= performance.now()) {
      // The recheck sets its next time when it has ended.
      session.recheckAt = Infinity;
      void session.recheck();
    }
  }

  // Skips a task whose last run is still going.
  #runInBackground(name: string, task: () => Promise<void>): void {
    if (this.#running.has(name)) return;
    this.#running.add(name);
    void task().finally(() => this.#running.delete(name));
  }
}
