import { setTimeout as wait } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import pg from 'pg';

export interface ViewersOptions {
  readonly url: string;
  readonly seed: number;
  readonly count: number;
  /** Median time on a page. */
  readonly medianDwellMs?: number;
  readonly heartbeatMs?: number;
  /** Called when the database cannot be queried; the viewers go on. */
  readonly onError?: (error: Error) => void;
}

interface Page {
  readonly user: string;
  readonly symbol: string;
  readonly dataTypes: readonly string[];
}

/** What a symbol's page shows; all have a quote and a profile. */
const cards = { 'dividend-history': 0.25, 'financial-statements': 0.4, 'ratios-ttm': 0.5 } as const;
const popularityMs = 60_000;
/** Famous symbols, which the board shows at first. */
const famous = ['DIS.X', 'COST.X', 'JPM.X', 'UBER.X', 'NFLX.X', 'GM.X', 'PSN.L', 'AAPL', '7203.T'];

/**
 * Simulated viewers of symbol pages. Each opens one, stays for a while, and goes on to the next. A few symbols have
 * many viewers, most have none, and open exchanges draw more than closed ones. One in ten leaves
 * without unsubscribing, like a crashed browser. Same seed, same viewers.
 */
export class Viewers {
  readonly #options: Required<Omit<ViewersOptions, 'onError'>> & Pick<ViewersOptions, 'onError'>;
  readonly #pool: pg.Pool;
  readonly #stop = new AbortController();
  readonly #pages = new Map<string, Page>();
  #people: Promise<unknown> | undefined;
  #popular: { readonly at: number; readonly symbols: readonly string[] } = { at: -Infinity, symbols: [] };

  constructor(options: ViewersOptions) {
    this.#options = { medianDwellMs: 20_000, heartbeatMs: 60_000, ...options };
    this.#pool = new pg.Pool({ connectionString: options.url, max: 4, application_name: 'market viewers' });
    this.#pool.on('error', (error) => this.#options.onError?.(error));
  }

  /** Open pages. */
  get pages(): readonly Page[] {
    return [...this.#pages.values()];
  }

  start(): void {
    if (this.#stop.signal.aborted) throw new Error('the viewers were stopped and do not start again');
    if (this.#people) return;
    const people = Array.from({ length: this.#options.count }, (_, number) => this.#live(number));
    this.#people = Promise.all([...people, this.#beat()]);
  }

  /** All leave properly. */
  async stop(): Promise<void> {
    if (this.#stop.signal.aborted) return;
    this.#stop.abort();
    await this.#people;
    for (const page of this.#pages.values()) await this.#trying(() => this.#leave(page));
    await this.#pool.end();
  }

  async #live(number: number): Promise<void> {
    const random = seededRandom(this.#options.seed + number);
    const user = `viewer-${number + 1}`;
    // They do not all come in the same moment.
    await this.#rest(random() * this.#options.medianDwellMs);
    while (!this.#stop.signal.aborted) {
      await this.#trying(() => this.#open(user, random));
      // Log-normal: some stay very long.
      await this.#rest(this.#options.medianDwellMs * Math.exp(normal(random)));
      if (this.#stop.signal.aborted) return;
      const page = this.#pages.get(user);
      this.#pages.delete(user);
      if (page && random() >= 0.1) await this.#trying(() => this.#leave(page));
      await this.#rest(this.#options.medianDwellMs * 0.1 * random());
    }
  }

  async #open(user: string, random: () => number): Promise<void> {
    const symbols = await this.#byPopularity();
    // Chosen before anything waits again, so that what a person does depends on the seed and not on the database.
    const symbol = symbols[zipf(symbols.length, random)];
    const shown = Object.entries(cards).flatMap(([card, share]) => (random() < share ? [card] : []));
    if (symbol === undefined) return;
    const page = { user, symbol, dataTypes: ['profile', 'quote', ...shown] };
    this.#pages.set(user, page);
    await this.#see(page);
  }

  async #beat(): Promise<void> {
    while (!this.#stop.signal.aborted) {
      await this.#rest(this.#options.heartbeatMs);
      for (const page of this.#pages.values()) {
        if (this.#stop.signal.aborted) return;
        await this.#trying(() => this.#see(page));
      }
    }
  }

  async #see({ user, symbol, dataTypes }: Page): Promise<void> {
    await this.#pool.query(
      'select pgfresh.upsert_active_subscription($1::text, $2::text, data_type) from unnest($3::text[]) as data_type',
      [user, symbol, dataTypes],
    );
  }

  async #leave({ user, symbol, dataTypes }: Page): Promise<void> {
    await this.#pool.query(
      'select pgfresh.remove_active_subscription($1::text, $2::text, data_type) from unnest($3::text[]) as data_type',
      [user, symbol, dataTypes],
    );
  }

  /** Symbols that are traded now come first, then what is famous; otherwise it is a matter of taste, which is the seed's. */
  async #byPopularity(): Promise<readonly string[]> {
    if (performance.now() - this.#popular.at < popularityMs) return this.#popular.symbols;
    const { rows } = await this.#pool.query<{ symbol: string }>(
      `select symbol from symbols where active
       order by is_exchange_open(symbol, 'quote') desc, symbol = any ($2::text[]) desc, md5(symbol || $1::text)`,
      [this.#options.seed, famous],
    );
    this.#popular = { at: performance.now(), symbols: rows.map(({ symbol }) => symbol) };
    return this.#popular.symbols;
  }

  async #trying(act: () => Promise<void>): Promise<void> {
    await act().catch((error: unknown) => this.#options.onError?.(error as Error));
  }

  async #rest(ms: number): Promise<void> {
    await wait(ms, undefined, { signal: this.#stop.signal }).catch(() => {});
  }
}

if (import.meta.main) {
  const { values } = parseArgs({
    options: { seed: { type: 'string', default: '1' }, count: { type: 'string', default: '200' } },
  });
  const url = process.env['DATABASE_URL'];
  const [seed, count] = [Number(values.seed), Number(values.count)];
  if (url && Number.isInteger(seed) && Number.isInteger(count)) {
    const viewers = new Viewers({ url, seed, count, onError: (error) => console.error(error.message) });
    for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => void viewers.stop());
    viewers.start();
  } else {
    console.error('Expected the database in DATABASE_URL, and whole numbers for --seed and --count.');
    process.exitCode = 2;
  }
}

/** A place from 0. The n-th one is drawn about 1/n as often as the first. */
export function zipf(count: number, random: () => number): number {
  const total = Math.log(count + 1);
  return Math.min(count - 1, Math.floor(Math.exp(random() * total)) - 1);
}

function normal(random: () => number): number {
  return Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
}

/** Numbers in [0, 1) that are the same for the same seed. */
function seededRandom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x9e3779b9) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 16), 0x21f0aaad);
    mixed = Math.imul(mixed ^ (mixed >>> 15), 0x735a2d97);
    return ((mixed ^ (mixed >>> 15)) >>> 0) / 2 ** 32;
  };
}
