import pg from 'pg';
import { readPages } from './pages.ts';
import { TroubleMaker } from './trouble.ts';

interface SiteOptions {
  readonly databaseUrl: string;
  readonly providerUrl: string;
  /** The board, built. */
  readonly folder: string;
}

const largestBody = 1_000;

/** What the board gets from its own server. What it shows of pairs comes from the gateway, as for every client. */
export class Site {
  readonly #pool: pg.Pool;
  readonly #trouble: TroubleMaker;
  readonly #pages: Awaited<ReturnType<typeof readPages>>;

  private constructor({ databaseUrl, providerUrl }: SiteOptions, pages: Awaited<ReturnType<typeof readPages>>) {
    this.#pool = new pg.Pool({ connectionString: databaseUrl, max: 2, application_name: 'market board' });
    // A broken idle connection is replaced at the next query.
    this.#pool.on('error', () => {});
    this.#trouble = new TroubleMaker(providerUrl);
    this.#pages = pages;
  }

  static async open(options: SiteOptions): Promise<Site> {
    return new Site(options, await readPages(options.folder));
  }

  async close(): Promise<void> {
    await this.#pool.end();
  }

  async answer(request: Request): Promise<Response> {
    const { pathname } = new URL(request.url);
    const symbol = /^\/dev\/prices\/([^/]+)$/.exec(pathname)?.[1];
    switch (`${request.method} ${symbol === undefined ? pathname : '/dev/prices/:symbol'}`) {
      case 'GET /dev/symbols':
        return json(await this.#symbols());
      case 'GET /dev/prices/:symbol':
        return json(await this.#prices(decodeURIComponent(symbol!)));
      case 'GET /dev/provider':
        return json({ trouble: await this.#trouble.now() });
      case 'PUT /dev/provider':
        return await this.#break(request);
      case 'POST /dev/probe':
        await this.#pool.query(`select pgfresh.resume_source('market')`);
        return json({ resumed: true });
      default: {
        const page = request.method === 'GET' ? this.#pages.get(pathname) : undefined;
        if (page) return new Response(page.body, { headers: page.headers });
        return failure(404, 'not_found', `There is nothing at ${request.method} ${pathname}.`);
      }
    }
  }

  async #break(request: Request): Promise<Response> {
    const text = await request.text();
    if (text.length > largestBody) return failure(413, 'too_large', `Expected at most ${largestBody} characters.`);
    let body: unknown;
    try {
      body = JSON.parse(text);
    } catch {
      return failure(400, 'bad_request', 'Expected JSON such as {"trouble":"down"}.');
    }
    const made = await this.#trouble.make(body);
    return 'problem' in made ? failure(400, 'bad_request', made.problem) : json(made);
  }

  /** All that can be searched, and when what is closed opens. */
  async #symbols() {
    const symbols = this.#pool.query(
      `select s.symbol, s.exchange, p.company_name as name
       from symbols as s left join profiles as p using (symbol) where s.active order by s.symbol`,
    );
    const exchanges = this.#pool.query(
      `select e.exchange, e.name, is_exchange_open(s.symbol, 'quote') as open, exchange_opens_at(s.symbol, 'quote') as opens_at
       from exchanges as e cross join lateral (select min(symbol) as symbol from symbols where exchange = e.exchange) as s
       order by e.exchange`,
    );
    return { symbols: (await symbols).rows, exchanges: (await exchanges).rows };
  }

  /** The points of the last quarter of an hour, oldest first, as pairs of a time in milliseconds and a price. */
  async #prices(symbol: string): Promise<readonly (readonly [number, number])[]> {
    const { rows } = await this.#pool.query<{ at: Date; price: string }>(
      `select at, price from (
         select at, price from price_points where symbol = $1::text and at > pgfresh.clock() - interval '15 minutes' order by at desc limit 240
       ) as p order by at`,
      [symbol],
    );
    return rows.map(({ at, price }) => [at.getTime(), Number(price)]);
  }
}

function json(value: unknown, status = 200): Response {
  return Response.json(value, { status, headers: { 'cache-control': 'no-store' } });
}

function failure(status: number, code: string, message: string): Response {
  return json({ error: { code, message } }, status);
}
