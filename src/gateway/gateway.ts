import { hostname } from 'node:os';
import type { GatewaySettings } from '../config/index.ts';
import { Database, type LimitedQueryable, type StatementLimits } from '../database/index.ts';
import { NodeDemand } from '../demand/index.ts';
import { PgfreshError, problemOf } from '../errors/index.ts';
import type { Events } from '../events/index.ts';
import type { Door } from '../http/index.ts';
import { every, Service, within } from '../lifecycle/index.ts';
import { Changes, noteTimeout, readsAtOnce, usualLimits } from '../changes/index.ts';
import { doorOf } from './http/routes.ts';
import { EventStreams } from './http/sse.ts';
import { Identity } from './auth/authenticator.ts';
import { Lanes, probesAtOnce, statementsAtOnce } from './pairs/type-statements.ts';
import { Permission } from './auth/authorizer.ts';
import { PlainReads } from './http/plain-read.ts';
import { Questions } from './pairs/pair-queries.ts';
import { Readers } from './auth/rls-readers.ts';
import { Reception } from './session/session-registry.ts';
import { Relief } from './session/slow-sessions.ts';
import type { Session, SessionParts } from './session/session.ts';
import { Tally } from './auth/usage-limits.ts';
import { Viewings } from './pairs/watched-pairs.ts';
import { WebSockets } from './http/websocket.ts';

export interface GatewayOptions {
  readonly db: LimitedQueryable;
  readonly url: string;
  readonly events: Events;
  readonly settings: GatewaySettings;
  /** Where LISTEN works; undefined behind a transaction pooler. */
  readonly listenUrl: string | undefined;
  /** What a statement about one data type may take. */
  readonly typeLimits?: StatementLimits | undefined;
}

const roundMs = 1_000;
const patienceMs = 1_000;
/** How often each thing is done, in rounds. */
const rounds = { count: 2, readmit: 5, beat: 25, forget: 60 } as const;

/** What clients talk to. It looks at pairs on their behalf, and sends them what is there and what changes. */
export class Gateway extends Service {
  readonly name = 'gateway';
  readonly door: Door;
  readonly #changes: Changes;
  readonly #demand: NodeDemand;
  /** Where users' tables and functions are asked, each type in a lane of its own. */
  readonly #readers: Database;
  /** Where it is read as users, with what their policies call. */
  readonly #guests: Database;
  readonly #lanes: Lanes;
  readonly #parts: SessionParts;
  readonly #tally: Tally;
  readonly #reception: Reception;
  #loop: Promise<void> | undefined;
  readonly #underWay = new Set<string>();
  #round = 0;

  constructor(options: GatewayOptions) {
    super();
    const { db, url, listenUrl, events, settings, typeLimits = usualLimits } = options;
    const { limits } = settings;
    this.#readers = new Database({
      url,
      events,
      applicationName: 'pgfresh gateway, data types',
      poolSize: readsAtOnce + statementsAtOnce + probesAtOnce,
      pipelined: true,
    });
    this.#guests = new Database({
      url,
      events,
      applicationName: 'pgfresh gateway, as users',
      poolSize: readsAtOnce,
      pipelined: true,
    });
    this.#changes = new Changes({
      db,
      readers: this.#readers,
      guests: this.#guests,
      typeLimits,
      policyTimeoutMs: settings.rls?.timeout,
      listenUrl,
      events,
    });
    this.#lanes = new Lanes({
      db: this.#readers,
      limits: typeLimits,
      onTimeout: (dataType, topic, problem) => void noteTimeout(db, { dataType, where: topic, problem }),
    });
    this.#demand = new NodeDemand({ db, events, nodeName: `${hostname()} ${process.pid}` });
    this.#tally = new Tally(limits);
    const questions = new Questions(db, this.#lanes, this.#demand);
    const { mirror } = this.#changes;
    this.#parts = {
      limits,
      identity: new Identity(settings),
      permission: new Permission(settings.authorize),
      questions,
      readers: new Readers(settings.rls, db),
      viewings: new Viewings({ mirror, questions, demand: this.#demand, events }),
      events,
      tally: this.#tally,
      relief: new Relief(),
    };
    this.#reception = new Reception({ parts: this.#parts, settings });
    this.door = doorOf({
      reception: this.#reception,
      webSockets: new WebSockets(this.#reception, events, limits.messageBytes),
      eventStreams: new EventStreams(this.#reception, limits.messageBytes),
      plainReads: new PlainReads(this.#reception, this.#parts),
      origins: settings.origins,
      events,
    });
  }

  protected async onStart(): Promise<void> {
    await this.#parts.identity.open();
    await this.#changes.start();
    await this.#demand.start();
    this.#loop = every(roundMs, async () => this.#goRound(), {
      signal: this.stopSignal,
      failed: (error) => this.#parts.events.emit({ type: 'gateway.failed', step: 'round', problem: problemOf(error) }),
    });
  }

  protected async onStop(): Promise<void> {
    this.#lanes.stop();
    await this.door.drain();
    await this.#loop;
    this.#parts.viewings.close();
    // If the database says nothing more, the counts end with their lease.
    const ended = Promise.all([this.#changes.stop(), this.#demand.stop()]).catch((error: unknown) =>
      this.#parts.events.emit({ type: 'demand.failed', problem: problemOf(error) }),
    );
    await within(patienceMs, ended);
    await Promise.all([this.#readers.close(), this.#guests.close()]);
  }

  #goRound(): void {
    this.#round += 1;
    const { viewings } = this.#parts;
    for (const session of this.#reception.sessions) if (session.isOpen) this.#look(session);
    viewings.tidy();
    if (this.#round % rounds.count === 0) this.#meanwhile('count', () => viewings.count());
    if (this.#round % rounds.readmit === 0) viewings.readmit();
    if (this.#round % rounds.forget === 0) this.#tally.forgetIdle();
  }

  #look(session: Session): void {
    if (session.expiresAt <= Date.now()) session.end(new PgfreshError('PGF_LIVE_TOKEN', { problem: 'it has expired' }));
    else if ((this.#round + session.turn) % rounds.beat === 0 && !session.client.outlet.beat())
      session.client.outlet.cut();
    else if (this.#parts.permission.isAsked && session.recheckAt <= performance.now()) {
      // It sets its next time when it has ended.
      session.recheckAt = Infinity;
      void session.recheck();
    }
  }

  // What takes longer than it should is not begun a second time.
  #meanwhile(name: string, work: () => Promise<void>): void {
    if (this.#underWay.has(name)) return;
    this.#underWay.add(name);
    void work().finally(() => this.#underWay.delete(name));
  }
}
