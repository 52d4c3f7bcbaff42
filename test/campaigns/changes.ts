import pg from 'pg';
import { Database, type Queryable, type Statement } from '../../src/database/index.ts';
import { Events } from '../../src/events/index.ts';
import { OutboxFeed, OutboxPump, pairReader, PostgresBus, ReadCache, type PairState } from '../../src/changes/index.ts';
import { shiftClock } from '../harness/clock.ts';
import { Proxy } from '../harness/proxy.ts';
import { seededRandom } from '../harness/random.ts';
import type { Campaign } from './campaign.ts';
import { inLanes } from './lanes.ts';

const stepsBetweenChecks = 500;
const stepsOfALane = 50_000;
const mostLanes = 4;
const keysOfAType = 12;
const tables = ['item', 'part'] as const;
const patienceMs = 20_000;

/**
 * Writers whose transactions stay open while others commit, viewers that come and go on three gateways, and faults in
 * everything between them. No viewer ever sees a version go back, and whenever the writers pause, each soon has the newest
 * state of every pair that it wants.
 */
export const changes: Campaign = {
  about: 'late commits, lost connections, dead pumps, slow reads and crashes between writers and viewers',
  steps: 1_000_000,
  testSteps: 10_000,
  mustMeet: [
    'late commits',
    'frozen snapshots',
    'whole tables',
    'viewers',
    'states',
    'cuts',
    'pumps killed',
    'pumps stopped',
    'slow reads',
    'lapses',
    'crashes',
    'checks',
  ],
  async run({ url, seed, steps, progress }) {
    const tally: Record<string, number> = {};
    // Most of the time is spent waiting, so a long run has several houses.
    const lanes = steps < stepsOfALane ? 1 : mostLanes;
    let done = 0;
    const failed = new AbortController();
    await inLanes(url, lanes, async (laneUrl, lane) => {
      const house = await House.build(laneUrl, seededRandom(seed + lane * 1_000));
      const ofThis = Math.ceil(steps / lanes);
      try {
        for (let step = 1; step <= ofThis && !failed.signal.aborted; step++) {
          await house.step();
          if (step % stepsBetweenChecks > 0 && step < ofThis) continue;
          await house.check();
          progress((done += stepsBetweenChecks));
        }
      } catch (error) {
        // The first failure ends the run for all.
        failed.abort();
        throw error;
      } finally {
        await house.close();
        for (const [what, times] of Object.entries(house.tally)) tally[what] = (tally[what] ?? 0) + times;
      }
    });
    return tally;
  },
};

class House {
  readonly tally: Record<string, number> = {};
  readonly #random: () => number;
  readonly #db: Database;
  readonly #clock: Awaited<ReturnType<typeof shiftClock>>;
  readonly #types: readonly number[];
  readonly #writers: readonly Writer[];
  readonly #gateways: readonly Side[];
  readonly #viewers: Viewer[] = [];
  readonly #problems: string[] = [];
  #value = 0;

  private constructor(
    random: () => number,
    db: Database,
    clock: Awaited<ReturnType<typeof shiftClock>>,
    types: readonly number[],
    writers: readonly Writer[],
    gateways: readonly Side[],
  ) {
    this.#random = random;
    this.#db = db;
    this.#clock = clock;
    this.#types = types;
    this.#writers = writers;
    this.#gateways = gateways;
  }

  static async build(url: string, random: () => number): Promise<House> {
    const db = new Database({ url, events: new Events(), applicationName: 'pgfresh campaign', poolSize: 12 });
    const clock = await shiftClock(db);
    await db.query(`insert into pgfresh.sources (name) values ('market')`);
    const types: number[] = [];
    for (const table of tables) {
      const [columns, key] =
        table === 'item' ? ['key text primary key', '{key}'] : ['a text, b int, primary key (a, b)', '{a,b}'];
      await db.query(`create table public.${table} (${columns}, value int, fetched_at timestamptz)`);
      const [row] = await db.query<{ id: number }>(
        `insert into pgfresh.data_type_registry (data_type, source, table_name, key_columns, timestamp_column, ttl)
         values ($1::text, 'market', $1::text, $2::text[], 'fetched_at', '1 minute') returning type_id as id`,
        [table, key],
      );
      types.push(row!.id);
    }
    const writers = await Promise.all(Array.from({ length: 5 }, () => Writer.open(url)));
    // The last one cannot listen, as behind a pooler.
    const gateways = await Promise.all([true, true, false].map((listens) => Side.open(db, url, listens, random)));
    return new House(random, db, clock, types, writers, gateways);
  }

  async step(): Promise<void> {
    const dice = this.#random() * 1_000;
    if (dice < 620) return this.#write();
    if (dice < 800) return this.#look();
    if (dice < 920) return this.#leave();
    if (dice < 970) return this.#pick(this.#gateways).hurry();
    if (dice < 980) return this.#met('cuts', () => this.#pick(this.#gateways).cut());
    if (dice < 988) return this.#met('pumps killed', () => this.#pick(this.#gateways).killPump());
    if (dice < 993) return this.#met('pumps stopped', () => this.#pick(this.#gateways).restartPump());
    if (dice < 998) return this.#met('leases ended', () => this.#clock.advance('4 seconds'));
    if (dice < 999.2) return this.#met('lapses', () => this.#clock.advance('40 seconds'));
    return this.#crash();
  }

  /** With writers paused, every viewer converges to the stored state. */
  async check(): Promise<void> {
    for (const writer of this.#writers) await this.#end(writer, 'commit');
    for (const gateway of this.#gateways) gateway.hurry();
    // The successor of a killed pump waits for its lease.
    await this.#clock.advance('4 seconds');
    const truth = new Map<string, string>();
    for (const [index, type] of this.#types.entries()) {
      const rows = await this.#db.query<{ key: string; value: number }>(
        `select ${tables[index] === 'item' ? 'key' : `a || '|' || b`} as key, value from ${tables[index]!}`,
      );
      for (const { key, value } of rows) truth.set(`${type} ${key}`, String(value));
    }
    const deadline = performance.now() + patienceMs;
    for (const viewer of this.#viewers) {
      const expected = truth.get(viewer.name) ?? 'nothing';
      while (viewer.value !== expected) {
        if (performance.now() > deadline)
          throw new Error(`a viewer of ${viewer.name} sees ${viewer.value} and not ${expected}`);
        for (const gateway of this.#gateways) gateway.hurry();
        await new Promise(setImmediate);
      }
      this.#count('states', viewer.take());
    }
    if (this.#problems.length > 0) throw new Error(this.#problems.join('; '));
    this.#count(
      'slow reads',
      this.#gateways.reduce((sum, gateway) => sum + gateway.takeSlow(), 0),
    );
    this.#count('checks');
  }

  async close(): Promise<void> {
    for (const gateway of this.#gateways) await gateway.close();
    for (const writer of this.#writers) await writer.client.end();
    await this.#db.close();
  }

  async #write(): Promise<void> {
    const writer = this.#pick(this.#writers);
    const chance = this.#random();
    if (writer.isOpen && chance < 0.5) return this.#end(writer, chance < 0.4 ? 'commit' : 'rollback');
    if (!writer.isOpen && chance < 0.5) {
      const isFrozen = this.#random() < 0.3;
      await writer.begin(isFrozen);
      writer.since = this.#value;
      if (isFrozen) this.#count('frozen snapshots');
    }
    const others = this.#writers.filter((one) => one !== writer && one.isOpen);
    const isFree = (name: string): boolean => !others.some(({ held }) => held.has(name) || held.has('all'));
    const table = this.#pick(tables);
    const value = ++this.#value;
    if (this.#random() < 0.02 && others.every(({ held }) => held.size === 0) && !writer.isFrozen) {
      const statement = this.#pick([
        `update ${table} set value = ${value}`,
        `delete from ${table}`,
        `truncate ${table}`,
      ]);
      this.#count('whole tables');
      return writer.run(statement, 'all');
    }
    const n = Math.floor(this.#random() * keysOfAType);
    const name = `${table} ${n}`;
    // A frozen snapshot may not write to what was written since.
    if (!isFree(name) || (writer.isFrozen && !writer.held.has(name) && writer.held.size > 0)) return;
    await writer.run(writeOf(table, n, value, this.#random()), name);
  }

  async #end(writer: Writer, how: 'commit' | 'rollback'): Promise<void> {
    if (writer.isOpen && this.#value - writer.since > 5) this.#count('late commits');
    await writer.end(how);
  }

  #look(): void {
    const type = this.#pick(this.#types);
    const n = Math.floor(this.#random() * keysOfAType);
    const key = type === this.#types[0] ? `K${n}` : `P|${n}`;
    this.#viewers.push(new Viewer(this.#pick(this.#gateways).cache, type, key, this.#problems));
    this.#count('viewers');
  }

  #leave(): void {
    const [viewer] = this.#viewers.splice(Math.floor(this.#random() * this.#viewers.length), 1);
    viewer?.stop();
  }

  // Imitates a server crash: all sessions are closed, and unlogged tables are empty.
  async #crash(): Promise<void> {
    for (const writer of this.#writers) await writer.end('rollback');
    // Gateways lock these tables in another order, as nothing but this empties them together.
    const empty = 'truncate pgfresh_engine.change, pgfresh_engine.watched_type, pgfresh_engine.change_epoch';
    await this.#db.transact('crash', (tx) => tx.query(empty), { attempts: 10 });
    for (const gateway of this.#gateways) gateway.cut();
    this.#count('crashes');
  }

  async #met(what: string, harm: () => unknown): Promise<void> {
    await harm();
    this.#count(what);
  }

  #pick<T>(list: readonly T[]): T {
    return list[Math.floor(this.#random() * list.length)]!;
  }

  #count(what: string, by = 1): void {
    this.tally[what] = (this.tally[what] ?? 0) + by;
  }
}

function writeOf(table: (typeof tables)[number], n: number, value: number, chance: number): string {
  const [into, key, where] =
    table === 'item'
      ? ['(key, value)', `'K${n}'`, `key = 'K${n}'`]
      : ['(a, b, value)', `'P', ${n}`, `a = 'P' and b = ${n}`];
  if (chance < 0.2) return `delete from ${table} where ${where}`;
  if (chance < 0.5) return `update ${table} set value = ${value} where ${where}`;
  return `insert into ${table} ${into} values (${key}, ${value}) on conflict (${table === 'item' ? 'key' : 'a, b'}) do update set value = excluded.value`;
}

/** A connection that writes, in transactions or without. Locked rows are its own, so no writer waits. */
class Writer {
  readonly client: pg.Client;
  readonly held = new Set<string>();
  isOpen = false;
  isFrozen = false;
  since = 0;

  private constructor(client: pg.Client) {
    this.client = client;
  }

  static async open(url: string): Promise<Writer> {
    const client = new pg.Client({ connectionString: url, application_name: 'pgfresh campaign' });
    await client.connect();
    // With a frozen snapshot, others may have been faster.
    await client.query(`set lock_timeout = '1s'`);
    return new Writer(client);
  }

  async begin(isFrozen: boolean): Promise<void> {
    await this.client.query(isFrozen ? 'begin isolation level repeatable read; select 1' : 'begin');
    this.isOpen = true;
    this.isFrozen = isFrozen;
  }

  async run(statement: string, name: string): Promise<void> {
    try {
      await this.client.query(statement);
      if (this.isOpen) this.held.add(name);
    } catch (error) {
      if (!this.isFrozen || (error as { code?: string }).code !== '40001') throw error;
      await this.end('rollback');
    }
  }

  async end(how: 'commit' | 'rollback'): Promise<void> {
    if (this.isOpen) await this.client.query(how);
    this.isOpen = this.isFrozen = false;
    this.held.clear();
  }
}

/** One gateway: its ends of everything, each of which can be harmed. */
class Side {
  readonly cache: ReadCache;
  readonly #bus: PostgresBus;
  readonly #feed: OutboxFeed;
  readonly #db: Database;
  readonly #proxy: Proxy;
  readonly #random: () => number;
  #pump!: OutboxPump;
  #mortal!: Mortal;
  #slow: (() => void)[] = [];
  #slowReads = 0;

  private constructor(db: Database, proxy: Proxy, listenUrl: string | undefined, random: () => number) {
    const events = new Events();
    this.#db = db;
    this.#proxy = proxy;
    this.#random = random;
    this.#bus = new PostgresBus({ db, listenUrl, events });
    this.#feed = new OutboxFeed({
      db,
      bus: this.#bus,
      events,
      pollMs: listenUrl === undefined ? 20 : 200,
      onWatching: () => this.#pump.wake(),
    });
    const read = pairReader({ dataDb: db, rlsDb: db });
    this.cache = new ReadCache({
      feed: this.#feed,
      events,
      read: async (type, keys, options) => {
        await this.#dawdle();
        const readings = await read(type, keys, options);
        await this.#dawdle();
        return readings;
      },
    });
  }

  static async open(db: Database, url: string, listens: boolean, random: () => number): Promise<Side> {
    const { proxy, url: far } = await Proxy.before(url);
    const side = new Side(db, proxy, listens ? far : undefined, random);
    await side.#bus.start();
    await side.#feed.start();
    await side.#startPump();
    await side.cache.start();
    return side;
  }

  /** Resumes slow reads. */
  hurry(): void {
    for (const goOn of this.#slow.splice(0)) goOn();
  }

  cut(): void {
    this.#proxy.cut();
  }

  takeSlow(): number {
    const count = this.#slowReads;
    this.#slowReads = 0;
    return count;
  }

  /** Dies before or after one of its next statements, and releases nothing. */
  async killPump(): Promise<void> {
    this.#mortal.callsLeft = Math.floor(this.#random() * 4);
    this.#mortal.isLastHeard = this.#random() < 0.5;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#mortal.onDeath = resolve;
    // It may have nothing to say for long.
    await Promise.race([promise, new Promise((later) => setTimeout(later, 50))]);
    this.#mortal.callsLeft = 0;
    await this.#pump.stop();
    await this.#startPump();
  }

  async restartPump(): Promise<void> {
    await this.#pump.stop();
    await this.#startPump();
  }

  async close(): Promise<void> {
    for (const part of [this.cache, this.#pump, this.#feed, this.#bus]) {
      // A slow read may begin after all were told to hurry.
      const hurrying = setInterval(() => this.hurry(), 10);
      await part.stop();
      clearInterval(hurrying);
    }
    await this.#proxy.close();
  }

  async #startPump(): Promise<void> {
    this.#mortal = new Mortal(this.#db);
    const bus = {
      publish: (list: Parameters<PostgresBus['publish']>[0]) =>
        new PostgresBus({ db: this.#mortal, listenUrl: undefined, events: new Events() }).publish(list),
    };
    this.#pump = new OutboxPump({ db: this.#mortal, bus, events: new Events(), isNeeded: () => this.#feed.isWatching });
    await this.#pump.start();
  }

  async #dawdle(): Promise<void> {
    if (this.#random() > 0.2) return;
    this.#slowReads++;
    await new Promise<void>((resolve) => this.#slow.push(resolve));
  }
}

/** A database connection that dies after this many statements. */
class Mortal implements Queryable {
  readonly #db: Database;
  callsLeft = Infinity;
  isLastHeard = false;
  onDeath: () => void = () => {};

  constructor(db: Database) {
    this.#db = db;
  }

  async query<Row extends object>(statement: Statement, values?: readonly unknown[]): Promise<Row[]> {
    if (this.callsLeft-- > 0) return this.#db.query<Row>(statement, values);
    if (this.isLastHeard) await this.#db.query(statement, values);
    this.isLastHeard = false;
    this.onDeath();
    throw new Error('killed');
  }
}

/** A viewer of a pair that accepts only newer versions. */
class Viewer {
  readonly name: string;
  readonly stop: () => void;
  value: string | undefined;
  readonly #problems: string[];
  #version = '';
  #states = 0;

  constructor(cache: ReadCache, type: number, key: string, problems: string[]) {
    this.name = `${type} ${key}`;
    this.#problems = problems;
    this.stop = cache.watch(
      { type, key },
      { onState: (state) => this.#see(state), onUnresponsive: () => {}, onGone: () => {} },
    );
  }

  take(): number {
    const count = this.#states;
    this.#states = 0;
    return count;
  }

  #see({ version, rows }: PairState): void {
    if (version <= this.#version) this.#problems.push(`${this.name}: version ${version} after ${this.#version}`);
    this.#version = version;
    this.#states++;
    const [row] = JSON.parse(rows) as { value: number }[];
    this.value = row ? String(row.value) : 'nothing';
  }
}
