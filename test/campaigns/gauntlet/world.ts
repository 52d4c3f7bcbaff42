import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import pg from 'pg';
import { Proxy } from '../../harness/proxy.ts';
import { seededRandom } from '../../harness/random.ts';
import { allowances } from './allowances.ts';
import { bystander, registration, schema, types, type VariantName } from './cast.ts';
import type { Journal } from './journal.ts';
import { deploy, freePort, RunningProcess, type Deployment, type ProcessPlan } from './processes.ts';
import { Provider } from './provider.ts';
import { Stall } from './stall.ts';
import { WriteStatements } from './write-statements.ts';
import { Page, SqlViewers } from './viewers.ts';
import { Wants } from './wants.ts';

export const processNames = ['main', 'second', 'edge'] as const;
export type ProcessName = (typeof processNames)[number];

const roles: Record<ProcessName, string> = {
  // The scheduler beside a worker: when they stop, one must not go on while the other drains.
  main: 'planner,worker,scheduler',
  second: 'worker,gateway',
  edge: 'planner,gateway',
};
/** Gateways, and how many pages each has. */
const pagesOf: Partial<Record<ProcessName, number>> = { second: 2, edge: 2 };

const hurtEveryMs = 120_000;

/** Something that takes a part of the system away for a while, so that what depends on it is not judged. */
interface Outage {
  readonly from: number;
  to: number;
}

/** Everything that runs: the database's clients, the provider, processes, viewers. */
export class World {
  readonly db: pg.Pool;
  readonly url: string;
  readonly provider: Provider;
  readonly wants = new Wants();
  readonly journal: Journal;
  readonly random: () => number;
  readonly sql: SqlViewers;
  readonly pages: Page[] = [];
  readonly processes = new Map<ProcessName, RunningProcess>();
  readonly ended: RunningProcess[] = [];
  readonly proxies = new Map<ProcessName, Proxy>();
  readonly outages: Outage[] = [];
  /** Calls of sources that are paused by hand are violations from then on. */
  readonly pausedSince = new Map<string, number>();
  /** Data types whose own functions do not return: their own viewers may wait for them, and no one else. */
  readonly hanging = new Set<string>();
  /** Lines of the log whose code is to be explained. */
  readonly codes = new Map<string, string>();
  readonly losses: number[] = [];
  readonly ledgerFrom = new Map<string, number>();
  readonly #hurtAt = new Map<string, number>();
  readonly #plans = new Map<ProcessName, ProcessPlan>();
  #count = 0;
  readonly #idleDb: pg.Pool;
  readonly stall: Stall;
  readonly writeStatements = new WriteStatements();

  private constructor(url: string, provider: Provider, journal: Journal, seed: number) {
    this.url = url;
    this.provider = provider;
    this.journal = journal;
    this.random = seededRandom(seed);
    // As the docs advise for callers of users' functions by SQL.
    const timeouts = { statement_timeout: 15_000 };
    this.db = new pg.Pool({ connectionString: url, max: 16, application_name: 'gauntlet', ...timeouts });
    this.db.on('error', () => {});
    this.sql = new SqlViewers(this);
    this.#idleDb = new pg.Pool({ connectionString: url, max: 1, application_name: 'gauntlet stall' });
    this.#idleDb.on('error', () => {});
    this.stall = new Stall(this.#idleDb);
  }

  static async open(url: string, folder: string, journal: Journal, seed: number): Promise<World> {
    const provider = await Provider.start(seededRandom(seed + 1));
    const world = new World(url, provider, journal, seed);
    await world.db.query(schema);
    for (const name of processNames) {
      const { proxy, url: proxied } = await Proxy.before(url);
      world.proxies.set(name, proxy);
      proxy.listen = (chunk) => world.writeStatements.listen(name, chunk);
      const own = join(folder, name);
      await mkdir(own, { recursive: true });
      const port = await freePort();
      world.#plans.set(name, { name, roles: roles[name], url: proxied, provider: provider.url, folder: own, port });
    }
    // The first brings the sources, which the data types name.
    await world.start('main', 'blue');
    for (const type of types) await world.db.query(registration(type));
    await world.db.query(registration({ ...bystander, more: { key_pattern: `'^look-'` } }));
    await Promise.all([world.start('second', 'blue'), world.start('edge', 'blue')]);
    for (const name of processNames)
      for (let n = 1; n <= (pagesOf[name] ?? 0); n++)
        world.pages.push(new Page(`${name}-${n}`, `http://127.0.0.1:${world.#plans.get(name)!.port}`, world));
    return world;
  }

  async close(): Promise<void> {
    for (const page of this.pages) page.close();
    await Promise.all([...this.processes.values()].map((running) => running.kill()));
    for (const proxy of this.proxies.values()) await proxy.close();
    await this.provider.stop();
    await Promise.all([this.db.end(), this.#idleDb.end()]);
  }

  /** Brings the configuration of a variant to the registry, beside the processes that run. */
  async deploy(variant: VariantName): Promise<Deployment> {
    return deploy(this.#plans.get('main')!, variant);
  }

  /** A page of a gateway process. */
  pageOf(name: ProcessName): Page {
    return this.pages.find((page) => page.name.startsWith(name))!;
  }

  /** Starts a process, or one in the place of another. */
  async start(name: ProcessName, variant: VariantName): Promise<void> {
    const running = new RunningProcess(this.#plans.get(name)!, variant, ++this.#count, ({ code, msg }) => {
      if (typeof code === 'string') this.codes.set(code, msg);
      for (const [found] of msg?.matchAll(/PGF_[A-Z_]+/g) ?? []) this.codes.set(found, msg);
    });
    this.processes.set(name, running);
    this.writeStatements.begin(name);
    await Promise.race([running.ready, wait(allowances.start, undefined, { ref: false })]);
    if (running.readyAt === undefined)
      this.journal.violated(
        'processes start',
        {},
        `${running.tag} (${running.plan.roles}) ${running.problem ?? `is not ready after ${allowances.start / 1000} s`}: ${running.lastWords}`,
      );
  }

  /** Ends a process and starts it again, perhaps with another configuration. */
  async replace(name: ProcessName, variant: VariantName, how: 'stop' | 'kill'): Promise<void> {
    const before = this.processes.get(name)!;
    const outage = this.beginOutage();
    await before[how]();
    if (how === 'kill') this.#lostGateway(name);
    this.ended.push(before);
    await this.start(name, variant);
    // Leases of the one that is gone end, and clients find the new one.
    outage.to = Date.now() + allowances.lostWorker;
  }

  beginOutage(): Outage {
    const outage = { from: Date.now(), to: Infinity };
    this.outages.push(outage);
    return outage;
  }

  /** Whether all parts were there from that time on. */
  wasWhole(since: number): boolean {
    return this.outages.every(({ to }) => to < since);
  }

  /** Viewers on a killed gateway count until its lease ends. */
  #lostGateway(name: ProcessName): void {
    for (const page of this.pages.filter((one) => one.name.startsWith(name)))
      for (const { type, key } of page.looks) this.wants.queued(type, key, allowances.lostGateway);
  }

  /** The process is without its database for a while. */
  cutOff(name: ProcessName, ms: number): void {
    this.noteLoss();
    this.#lostGateway(name);
    this.outages.push({ from: Date.now(), to: Date.now() + ms + allowances.lostWorker });
  }

  /** Running jobs may end now without their worker: what they have called counts as one call each. */
  noteLoss(): void {
    this.losses.push(Date.now());
  }

  /** The ledger of a source goes with it. */
  forgetLedger(source: string): void {
    this.ledgerFrom.set(source, Date.now());
  }

  /** Whether others may delete or age a row again: pgfresh answers to those who do it often by longer and longer pauses. */
  mayHurt(type: string, key: string): boolean {
    const name = `${type} ${key}`;
    if (Date.now() - (this.#hurtAt.get(name) ?? 0) < hurtEveryMs) return false;
    this.#hurtAt.set(name, Date.now());
    return true;
  }

  /** As an operator does after an outage. What is retried is wanted. */
  async retryFailed(): Promise<void> {
    const { rows } = await this.db.query<{ type: string; key: string }>(
      'select distinct data_type as type, key from pgfresh.failed_jobs where redriven_at is null',
    );
    for (const { type, key } of rows) this.wants.queued(type, key);
    try {
      await this.db.query(`select pgfresh.retry_failed_jobs(p_since => '-infinity')`);
    } catch (error) {
      this.journal.violated('operators are not refused', {}, `retry_failed_jobs(): ${(error as Error).message}`);
    }
  }

  /** By how many milliseconds the machine was slow in the last half minute. */
  get lag(): number {
    return this.stall.recent;
  }

  pick<Item>(items: readonly Item[]): Item {
    return items[Math.floor(this.random() * items.length)]!;
  }

  between(from: number, to: number): number {
    return from + this.random() * (to - from);
  }
}
