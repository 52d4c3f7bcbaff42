import { execFile } from 'node:child_process';
import { setTimeout as wait } from 'node:timers/promises';
import { promisify } from 'node:util';
import { z } from 'zod';
import { Provider } from '../../examples/market/provider/provider.ts';
import { resolveConfig } from '../../src/config/index.ts';
import { Database } from '../../src/database/index.ts';
import { Events } from '../../src/events/index.ts';
import { defineDataType, defineSource } from '../../src/index.ts';
import { syncRegistry } from '../../src/registry/index.ts';
import { Worker } from '../../src/worker/index.ts';
import { seededRandom } from '../harness/random.ts';
import { PlainClient } from '../harness/plain-client.ts';
import { Program } from '../harness/program.ts';
import type { Campaign } from './campaign.ts';

const stepsOfTheFullRun = 1_000_000;
const apiKey = 'key-of-a-campaign';
const clients = 20;
const pairsAMessage = 250;
/** Default message rate limit of one connection. */
const messagesPerSecond = 20;
const newPairsPerMinute = 120;
const answeredWithinMs = 250;
const mostBytes = 500_000_000;
const lookEveryMs = 200;
const good = ['AAPL', 'MSFT', 'NVDA'];

/**
 * Requests for random pairs, as fast as connections may send them, to a gateway with default limits. All are answered,
 * with codes. The provider is called no more than the limit of new pairs allows, the server's other work
 * is done in time, and memory stays constant.
 */
export const flood: Campaign = {
  about: 'wishes for random pairs (a step is a pair)',
  steps: stepsOfTheFullRun,
  testSteps: 5_000,
  mustMeet: ['accepted', 'PGF_TYPE_UNKNOWN', 'PGF_KEY_UNKNOWN', 'PGF_KEY_INVALID', 'PGF_LIVE_TOO_MANY_NEW_PAIRS'],
  async run({ url, seed, steps, progress }) {
    const scene = await FloodScene.open(url);
    try {
      return await scene.run(seed, steps, progress);
    } finally {
      await scene.close();
    }
  },
};

class FloodScene {
  readonly #db: Database;
  readonly #provider: Provider;
  readonly #worker: Worker;
  readonly #gateway: Program;
  readonly #tally: Record<string, number> = {};
  readonly #viewers: PlainClient[] = [];
  #slowestMs = 0;
  #bytes = 0;
  #isDone = false;

  private constructor(db: Database, provider: Provider, worker: Worker, gateway: Program) {
    this.#db = db;
    this.#provider = provider;
    this.#worker = worker;
    this.#gateway = gateway;
  }

  static async open(url: string): Promise<FloodScene> {
    const provider = new Provider({ port: 0, seed: 1, keys: [apiKey], limit: undefined, latencyMs: 0 });
    const events = new Events();
    const db = new Database({ url, events, applicationName: 'pgfresh campaign' });
    await db.query(`
      create table listing (symbol text primary key);
      create table listed (symbol text primary key, price numeric, fetched_at timestamptz);
      create table free (symbol text primary key, price numeric, fetched_at timestamptz)`);
    await db.query('insert into listing select unnest($1::text[])', [good]);
    const config = configOf(await provider.start());
    await syncRegistry(db, config, events);
    const { sources, dataTypes = [] } = config;
    const worker = new Worker({ db, url, listenUrl: url, events, sources, dataTypes, concurrency: 20, drainMs: 5_000 });
    await worker.start();
    const gateway = await Program.start(new URL('../gateway/gateway-process.ts', import.meta.url), [url]);
    return new FloodScene(db, provider, worker, gateway);
  }

  async close(): Promise<void> {
    this.#isDone = true;
    for (const viewer of this.#viewers) viewer.cut();
    await this.#gateway.kill();
    await this.#worker.stop();
    await this.#db.close();
    await this.#provider.stop();
  }

  async run(seed: number, steps: number, progress: (done: number) => void): Promise<Record<string, number>> {
    const random = seededRandom(seed);
    const began = performance.now();
    await this.#want(
      await this.#connect(),
      good.map((key) => ['listed', key]),
    );
    let left = steps;
    const flooding = Array.from({ length: clients }, async () => {
      const wish = await this.#connect();
      while (left > 0) {
        const pairs = Array.from({ length: Math.min(left, pairsAMessage) }, () => randomPair(random));
        left -= pairs.length;
        const paused = wait(1_000 / messagesPerSecond);
        await this.#want(wish, pairs);
        await paused;
        progress(steps - left);
      }
    });
    const looking = this.#look();
    await Promise.all(flooding);
    this.#isDone = true;
    await looking;
    while (this.#provider.meter.report().open > 0) await wait(5);
    await this.#judge(steps, (performance.now() - began) / 60_000);
    return {
      ...this.#tally,
      calls: this.#provider.meter.report().calls,
      'slowest ms': Math.round(this.#slowestMs),
      'most megabytes': Math.round(this.#bytes / 1e6),
    };
  }

  async #judge(steps: number, minutes: number): Promise<void> {
    const { calls, accepted = 0 } = { calls: this.#provider.meter.calls().calls, ...this.#tally };
    const ofGood = calls.filter(({ symbol }) => good.includes(symbol!)).length;
    const allowed = newPairsPerMinute * (1 + minutes);
    const [row] = await this.#db.query<{ pairs: number }>('select count(*)::int as pairs from pgfresh_engine.pairs');
    const found = { calls: calls.length - ofGood, pairs: row!.pairs - good.length };
    if (ofGood > 2 * good.length) throw new Error(`${ofGood} calls for ${good.length} pairs`);
    if (found.calls > allowed || found.pairs > allowed)
      throw new Error(`a limit of ${Math.round(allowed)} new pairs, of ${accepted}, and ${JSON.stringify(found)}`);
    if (this.#bytes > mostBytes) throw new Error(`the gateway occupied ${this.#bytes} bytes`);
    // A small run has just begun to compile what answers.
    if (steps >= stepsOfTheFullRun && this.#slowestMs > answeredWithinMs)
      throw new Error(`something else was answered after ${Math.round(this.#slowestMs)} ms`);
  }

  /** Requests the server's other work. */
  async #look(): Promise<void> {
    while (!this.#isDone) {
      for (const path of ['/livez', '/readyz', '/metrics', `/live/listed/${good[0]!}`]) {
        const began = performance.now();
        const answer = await fetch(`${this.#gateway.line}${path}`);
        await answer.arrayBuffer();
        this.#slowestMs = Math.max(this.#slowestMs, performance.now() - began);
        if (!answer.ok) throw new Error(`${path} was answered with ${answer.status}`);
      }
      this.#bytes = Math.max(this.#bytes, await residentBytes(this.#gateway.pid));
      await wait(lookEveryMs);
    }
  }

  async #want(wish: Wish, pairs: readonly (readonly string[])[]): Promise<void> {
    const answers = await wish(pairs);
    if (answers.length !== new Set(pairs.map((pair) => JSON.stringify(pair))).size)
      throw new Error(`${answers.length} answers to ${pairs.length} wishes`);
    for (const answer of answers) this.#tally[answer] = (this.#tally[answer] ?? 0) + 1;
  }

  /** A connection, as a function that requests pairs and returns the outcome of each. */
  async #connect(): Promise<Wish> {
    const opened = Promise.withResolvers<void>();
    let answered = Promise.withResolvers<string[]>();
    let answers: string[] = [];
    let wanted = 0;
    const fail = (problem: string): void => {
      opened.reject(new Error(problem));
      answered.reject(new Error(problem));
    };
    const viewer = new PlainClient({
      port: Number(new URL(this.#gateway.line).port),
      from: undefined,
      onOpen: opened.resolve,
      onMessage: (message) => {
        const said = JSON.parse(message.text()) as Said;
        // A data type that answers late has a message of its own.
        if (said.type === 'answer') answers.push(...said.pairs!.map(({ code, result }) => code ?? result));
        if (said.type === 'answer' && answers.length >= wanted) answered.resolve(answers);
        if (said.type === 'error') fail(said.code!);
      },
      onLost: fail,
    });
    this.#viewers.push(viewer);
    await opened.promise;
    viewer.say(JSON.stringify({ type: 'hello', protocol: 1 }));
    return (pairs) => {
      answered = Promise.withResolvers();
      answers = [];
      wanted = new Set(pairs.map((pair) => JSON.stringify(pair))).size;
      viewer.say(JSON.stringify({ type: 'want', pairs }));
      return answered.promise;
    };
  }
}

type Wish = (pairs: readonly (readonly string[])[]) => Promise<string[]>;

interface Said {
  readonly type: string;
  readonly code?: string;
  readonly pairs?: readonly { readonly result: string; readonly code?: string }[];
}

function configOf(baseUrl: string) {
  const source = defineSource({
    name: 'market',
    baseUrl,
    allowPrivateAddresses: true,
    authorize: () => ({ headers: { 'x-api-key': apiKey } }),
  });
  const common = {
    source,
    key: 'symbol',
    timestamp: 'fetched_at',
    ttl: '1h',
    maxRetries: 0,
    schema: z.object({ symbol: z.string(), price: z.number() }),
    request: (symbol: string) => ({ url: `/v1/quote/${symbol}` }),
    rows: ({ symbol, price }: { symbol: string; price: number }) => ({ symbol, price }),
  } as const;
  const listed = defineDataType({
    ...common,
    name: 'listed',
    table: 'listed',
    keys: { table: 'listing', column: 'symbol' },
  });
  const free = defineDataType({ ...common, name: 'free', table: 'free', keyPattern: /^[A-Z]{6,12}$/ });
  return resolveConfig({ config: { dataTypes: [listed, free] } });
}

/** Of a data type that is not there, of a key that cannot be or is not, and now and then one that could be. */
function randomPair(random: () => number): [string, string] {
  const word = (): string => Math.floor(random() * 36 ** 8).toString(36);
  const chance = random();
  if (chance < 0.2) return [`type_${word()}`, word()];
  if (chance < 0.5) return ['listed', word().toUpperCase()];
  if (chance < 0.7) return ['free', `no ${word()}`];
  if (chance < 0.8) return ['free', `\u0007${word()}`];
  if (chance < 0.85) return ['free', word().repeat(100)];
  return [
    'free',
    `KEY${word()
      .replaceAll(/[^a-z]/g, 'x')
      .toUpperCase()}`,
  ];
}

async function residentBytes(pid: number): Promise<number> {
  const { stdout } = await promisify(execFile)('ps', ['-o', 'rss=', '-p', String(pid)]);
  return Number(stdout.trim()) * 1024;
}
