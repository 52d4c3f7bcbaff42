import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import pg from 'pg';
import { Proxy } from '../../harness/proxy.ts';
import { seededRandom } from '../../harness/random.ts';
import type { Journal } from '../gauntlet/journal.ts';
import { Stall } from '../gauntlet/stall.ts';
import { registration, schema, type Line } from './cast.ts';

const child = fileURLToPath(new URL('./scheduler-process.ts', import.meta.url));

/** A handler's work, as the handler itself says. */
export interface Span {
  readonly job: string;
  readonly process: string;
  readonly from: number;
  to: number | undefined;
}

/** One life of a scheduler process. */
export class SchedulerProcess {
  readonly name: string;
  readonly #child: ChildProcess;
  readonly #open = new Map<number, Span>();
  readonly started: Promise<unknown>;
  readonly #exit: Promise<unknown>;
  readonly lastWords: string[] = [];
  isAsked = false;
  exitedAt: number | undefined;

  constructor(name: string, url: string, onSpan: (span: Span) => void, onEvent: (name: string) => void) {
    this.name = name;
    const env = { ...process.env, NODE_OPTIONS: '' };
    this.#child = spawn(process.execPath, [child, url, name], { env, stdio: ['ignore', 'pipe', 'pipe'] });
    // A campaign that breaks off leaves nothing running.
    const end = (): void => void this.#child.kill('SIGKILL');
    process.once('exit', end);
    this.#exit = once(this.#child, 'close').then(() => {
      process.off('exit', end);
      this.exitedAt = Date.now();
      for (const span of this.#open.values()) span.to = this.exitedAt;
    });
    const started = Promise.withResolvers<void>();
    this.started = Promise.race([started.promise, this.#exit]);
    createInterface(this.#child.stdout!).on('line', (text) => {
      const line = JSON.parse(text) as Line;
      if (line.type === 'started') started.resolve();
      if (line.type === 'event') onEvent(line.name);
      if (line.type === 'begin') {
        const span = { job: line.job, process: name, from: line.at, to: undefined };
        this.#open.set(line.span, span);
        onSpan(span);
      }
      if (line.type === 'end') {
        this.#open.get(line.span)!.to = line.at;
        this.#open.delete(line.span);
      }
    });
    createInterface(this.#child.stderr!).on('line', (line) => {
      this.lastWords.push(line.slice(0, 300));
      if (this.lastWords.length > 6) this.lastWords.shift();
    });
  }

  async end(signal: 'SIGKILL' | 'SIGTERM'): Promise<void> {
    this.isAsked = true;
    this.#child.kill(signal);
    await this.#exit;
  }
}

/** A place for a scheduler process: the proxy stays when the process is replaced. */
export interface Seat {
  readonly name: string;
  readonly proxy: Proxy;
  readonly url: string;
  process: SchedulerProcess;
  /** When its way to the database was disturbed; `to` is undefined while it is. */
  readonly troubles: { readonly from: number; to: number | undefined }[];
  /** Connections of which every byte is held back, for good. */
  readonly dropped: Set<number>;
  isCutOff: boolean;
  /** Whether it is heard, and hears nothing. */
  isDeaf: boolean;
  isBusy: boolean;
}

export class World {
  readonly began = Date.now();
  readonly db: pg.Pool;
  readonly stall: Stall;
  readonly journal: Journal;
  readonly random: () => number;
  readonly seats: Seat[] = [];
  readonly processes: SchedulerProcess[] = [];
  readonly spans: Span[] = [];
  readonly events: Record<string, number> = {};
  /** Whether one process is to be cut off for long, and nothing else may happen to either. */
  isReserved = false;

  private constructor(url: string, journal: Journal, seed: number) {
    this.db = new pg.Pool({ connectionString: url, max: 8, application_name: 'campaign', statement_timeout: 15_000 });
    this.db.on('error', () => {});
    this.stall = new Stall(this.db);
    this.journal = journal;
    this.random = seededRandom(seed);
  }

  static async open(url: string, journal: Journal, seed: number): Promise<World> {
    const world = new World(url, journal, seed);
    await world.db.query(schema);
    await world.db.query(registration);
    for (const name of ['a', 'b']) {
      const { proxy, url: proxied } = await Proxy.before(url);
      const rest = { troubles: [], dropped: new Set<number>(), isCutOff: false, isDeaf: false, isBusy: false };
      const seat: Seat = { name, proxy, url: proxied, process: world.#newProcess(name, proxied), ...rest };
      proxy.judge = (_chunk, way, connection) =>
        seat.isCutOff || seat.dropped.has(connection) || (seat.isDeaf && way === 'to client') ? 'hold' : 'pass';
      world.seats.push(seat);
    }
    await Promise.all(world.seats.map(({ process }) => process.started));
    return world;
  }

  async close(): Promise<void> {
    await Promise.all(this.seats.map(({ process }) => process.end('SIGKILL')));
    for (const { proxy } of this.seats) await proxy.close();
    await this.db.end();
  }

  async restart(seat: Seat): Promise<void> {
    seat.process = this.#newProcess(seat.name, seat.url);
    await seat.process.started;
  }

  async query<Row extends object>(text: string, values: unknown[] = []): Promise<Row[]> {
    return (await this.db.query<Row>(text, values)).rows;
  }

  pick<T>(list: readonly T[]): T | undefined {
    return list[Math.floor(this.random() * list.length)];
  }

  /** The process that a session of the database belongs to. */
  seatOf(port: number): Seat | undefined {
    return this.seats.find(({ proxy }) => proxy.connections.some((one) => one.port === port));
  }

  /** Whether the process of this name lives, and its way to the database was free since then. */
  wasWhole(process: string, since: number): boolean {
    const seat = this.seats.find((one) => one.process.name === process);
    if (!seat || seat.process.isAsked) return false;
    // A lost lease takes its time, and so does a new connection.
    return seat.troubles.every(({ to = Infinity }) => to + 15_000 < since);
  }

  /** For how long a process has been able to take over what others have lost: both may be disturbed all the time. */
  get calmMs(): number {
    const since = this.seats.map(({ troubles }) => Math.max(this.began, ...troubles.map(({ to = Infinity }) => to)));
    return Date.now() - Math.min(...since);
  }

  #newProcess(seat: string, url: string): SchedulerProcess {
    const name = `${seat}.${this.processes.length}`;
    const process = new SchedulerProcess(
      name,
      url,
      (span) => this.spans.push(span),
      (event) => (this.events[event] = (this.events[event] ?? 0) + 1),
    );
    this.processes.push(process);
    return process;
  }
}
