import { setTimeout as wait } from 'node:timers/promises';
import { listings } from '../../examples/market/provider/listings.ts';
import { Provider } from '../../examples/market/provider/provider.ts';
import { Database } from '../../src/database/index.ts';
import { Events } from '../../src/events/index.ts';
import { Planner } from '../../src/planner/index.ts';
import { syncRegistry } from '../../src/registry/index.ts';
import { PlainClient } from '../harness/plain-client.ts';
import { Program } from '../harness/program.ts';
import { apiKey, killConfig, killTables, refused, unanswered } from '../worker/kill-types.ts';
import type { Campaign } from './campaign.ts';

const clientsOfTheFullRun = 5_000;
const consistentWithinMs = 10_000;
const patienceMs = 60_000;
const connectingAtOnce = 200;
/** So that jobs run when the gateway dies. */
const latencyMs = 1_000;
const many = 1_000_000;
const limits = { connectionsPerAddress: many, pairsPerUser: many, newPairsPerMinute: many };

/**
 * All clients of a killed gateway reconnect to another one at once, each with the versions that it has. Meanwhile rows
 * were written, and pairs requested a moment ago are being fetched. Each client converges to the newest state of
 * all that it wants, no version goes back, and the provider is called once per pair.
 */
export const storm: Campaign = {
  about: 'clients of a gateway that is killed, who come back all at once (a step is a client)',
  steps: clientsOfTheFullRun,
  testSteps: 300,
  mustMeet: ['reconnected', 'calls', 'under way at the kill', 'rows written meanwhile', 'states'],
  async run({ url, steps, progress }) {
    const scene = await StormScene.open(url);
    try {
      return await scene.run(steps, progress);
    } finally {
      await scene.close();
    }
  },
};

class StormScene {
  readonly #url: string;
  readonly #db: Database;
  readonly #provider: Provider;
  readonly #address: string;
  readonly #programs: Program[] = [];
  readonly #planner: Planner;
  #clients: Client[] = [];

  private constructor(url: string, db: Database, provider: Provider, address: string) {
    this.#url = url;
    this.#db = db;
    this.#provider = provider;
    this.#address = address;
    this.#planner = new Planner({ db, events: new Events(), tickMs: 1_000 });
  }

  static async open(url: string): Promise<StormScene> {
    const provider = new Provider({ port: 0, seed: 1, keys: [apiKey], limit: undefined, latencyMs });
    const address = await provider.start();
    const db = new Database({ url, events: new Events(), applicationName: 'pgfresh campaign' });
    await db.query(killTables);
    await syncRegistry(db, killConfig(address), new Events());
    return new StormScene(url, db, provider, address);
  }

  async close(): Promise<void> {
    for (const client of this.#clients) client.cut();
    await Promise.all(this.#programs.map((program) => program.kill()));
    await this.#planner.stop();
    await this.#db.close();
    await this.#provider.stop();
  }

  async run(count: number, progress: (done: number) => void): Promise<Record<string, number>> {
    await this.#planner.start();
    await this.#start('../worker/worker-process.ts', this.#address);
    const options = JSON.stringify({ limits });
    const [first, second] = await Promise.all([1, 2].map(() => this.#start('../gateway/gateway-process.ts', options)));
    const known = [...listings.keys()].filter((symbol) => ![...refused, unanswered].includes(symbol));
    const symbols = known.slice(0, 40 + Math.ceil(count / 10));
    const [common, ...others] = symbols as [string, ...string[]];
    const half = Math.floor(others.length / 2);
    // One that all look at, one that some look at, and one that is wanted in the last moment.
    this.#clients = Array.from({ length: count }, (_, n) => new Client([common, others[n % half]!]));
    await inLanes(this.#clients, (client) => client.connect(portOf(first!)));
    await this.#settled();
    progress(0);

    for (const [n, client] of this.#clients.entries()) client.add(others[half + (n % half)]!);
    while (this.#calls().size === half + 1) await wait(5);
    await first!.kill();
    const underWay = this.#provider.meter.report().open;
    const written = await this.#db.query(
      `update item set price = price + 1000, fetched_at = pgfresh.clock() where symbol = any ($1::text[]) returning 1`,
      [symbols.filter((_, n) => n % 3 === 0)],
    );
    const began = performance.now();
    await inLanes(this.#clients, (client) => client.connect(portOf(second!)));
    const connectedMs = performance.now() - began;
    await this.#settled();
    const ms = performance.now() - began;
    progress(count);

    if (count >= clientsOfTheFullRun && ms > consistentWithinMs)
      throw new Error(`not all were consistent within ${consistentWithinMs} ms, but after ${Math.round(ms)}`);
    const calls = this.#calls();
    const twice = [...calls].filter(([, times]) => times > 1);
    if (twice.length > 0) throw new Error(`the provider was asked more than once for ${JSON.stringify(twice)}`);
    return {
      reconnected: this.#clients.filter(({ connections }) => connections === 2).length,
      calls: calls.size,
      'under way at the kill': underWay,
      'rows written meanwhile': written.length,
      states: this.#clients.reduce((sum, { states }) => sum + states, 0),
      'connected ms': Math.round(connectedMs),
      'consistent ms': Math.round(ms),
    };
  }

  /** Settles when all that is wanted is there, and every client sees it as it is. */
  async #settled(): Promise<void> {
    const deadline = performance.now() + patienceMs;
    for (;;) {
      const rows = await this.#db.query<{ symbol: string; price: number }>('select symbol, price::float8 from item');
      const truth = new Map(rows.map(({ symbol, price }) => [symbol, price]));
      const late = this.#clients.find((client) => !client.sees(truth));
      if (!late) return;
      if (performance.now() > deadline)
        throw new Error(
          `after ${patienceMs} ms a client sees ${late.describe(truth)}; ${await this.#why(late.missing(truth))}`,
        );
      await wait(20);
    }
  }

  /** What the engine says about these pairs. */
  async #why(keys: readonly string[]): Promise<string> {
    const explained = await this.#db.query<{ said: string }>(
      `select pgfresh.explain_pair('item', k)::text as said from unnest($1::text[]) k`,
      [keys],
    );
    return explained.map(({ said }) => said).join('; ');
  }

  /** How often the provider was asked for each symbol. */
  #calls(): Map<string, number> {
    const times = new Map<string, number>();
    for (const { symbol } of this.#provider.meter.calls().calls) times.set(symbol!, (times.get(symbol!) ?? 0) + 1);
    return times;
  }

  async #start(file: string, argument: string): Promise<Program> {
    const program = await Program.start(new URL(file, import.meta.url), [this.#url, argument]);
    this.#programs.push(program);
    return program;
  }
}

/** A page with a few pairs, that keeps what it was told. */
class Client {
  readonly #keys: string[];
  readonly #known = new Map<string, { version: string; price: number | undefined }>();
  #viewer: PlainClient | undefined;
  connections = 0;
  states = 0;

  constructor(keys: readonly string[]) {
    this.#keys = [...keys];
  }

  async connect(port: number): Promise<void> {
    this.#viewer?.cut();
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const viewer = new PlainClient({
      port,
      from: undefined,
      onOpen: () => {
        this.connections += 1;
        viewer.say(hello, JSON.stringify({ type: 'want', pairs: this.#keys.map((key) => this.#wanted(key)) }));
        resolve();
      },
      onMessage: (message) => this.#hear(message.text()),
      // Who is connected already is connected again by the campaign.
      onLost: (problem) => reject(new Error(problem)),
    });
    this.#viewer = viewer;
    await promise;
  }

  add(key: string): void {
    this.#keys.push(key);
    this.#viewer!.say(JSON.stringify({ type: 'add', pairs: [this.#wanted(key)] }));
  }

  cut(): void {
    this.#viewer?.cut();
  }

  sees(truth: ReadonlyMap<string, number>): boolean {
    return this.missing(truth).length === 0;
  }

  missing(truth: ReadonlyMap<string, number>): string[] {
    return this.#keys.filter((key) => !truth.has(key) || this.#known.get(key)?.price !== truth.get(key));
  }

  describe(truth: ReadonlyMap<string, number>): string {
    return this.#keys.map((key) => `${key} ${this.#known.get(key)?.price} and not ${truth.get(key)}`).join(', ');
  }

  #wanted(key: string): string[] {
    const known = this.#known.get(key);
    return known ? ['item', key, known.version] : ['item', key];
  }

  #hear(text: string): void {
    const said = JSON.parse(text) as {
      type: string;
      pair?: [string, string];
      version?: string;
      rows?: { price: number }[];
      pairs?: { result: string; code?: string }[];
    };
    for (const { result, code } of said.pairs ?? [])
      if (result !== 'accepted') throw new Error(`a pair was refused: ${code}`);
    if (said.type !== 'snapshot' && said.type !== 'change') return;
    const [key, version] = [said.pair![1], said.version!];
    const had = this.#known.get(key);
    if (had && version <= had.version) throw new Error(`${key}: version ${version} after ${had.version}`);
    this.states += 1;
    this.#known.set(key, { version, price: said.rows ? said.rows[0]?.price : had?.price });
  }
}

const hello = JSON.stringify({ type: 'hello', protocol: 1 });

async function inLanes<Item>(items: readonly Item[], work: (item: Item) => Promise<void>): Promise<void> {
  const left = [...items];
  const lane = async (): Promise<void> => {
    for (let item = left.pop(); item !== undefined; item = left.pop()) await work(item);
  };
  await Promise.all(Array.from({ length: connectingAtOnce }, lane));
}

function portOf({ line }: Program): number {
  return Number(new URL(line).port);
}
