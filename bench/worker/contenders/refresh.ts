import { Agent, get } from 'node:http';
import pg from 'pg';
import { pathOf, quoteSchema, rowOf } from '../mirror.ts';

// Node's own client with connections that stay open: less work per call than its fetch, which most handlers would use.
const agent = new Agent({ keepAlive: true, maxSockets: 256 });

const upsert = {
  name: 'upsert',
  text: `insert into quote as t (symbol, price, change, volume, market_cap, currency, quoted_at, fetched_at)
    values ($1::text, $2::float8, $3::float8, $4::bigint, $5::float8, $6::text, $7::timestamptz, now())
    on conflict (symbol) do update set price = excluded.price, change = excluded.change, volume = excluded.volume,
      market_cap = excluded.market_cap, currency = excluded.currency, quoted_at = excluded.quoted_at, fetched_at = excluded.fetched_at
    where t.quoted_at < excluded.quoted_at`,
};

/** A peer's job handler, as an expert user of the peer would write it. */
export function refresher(url: string, provider: string, connections: number): (symbol: string) => Promise<void> {
  const pool = new pg.Pool({ connectionString: url, max: connections });
  pool.on('error', () => {});
  return async (symbol) => {
    const answer = quoteSchema.parse(JSON.parse(await fetchText(`${provider}${pathOf(symbol)}`)));
    if (answer.symbol !== symbol) throw new Error(`Asked for ${symbol}, got ${answer.symbol}.`);
    const row = rowOf(answer);
    await pool.query({
      ...upsert,
      values: [row.symbol, row.price, row.change, row.volume, row.market_cap, row.currency, row.quoted_at],
    });
  };
}

function fetchText(url: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const request = get(url, { agent, timeout: 10_000 }, (response) => {
      let text = '';
      response.setEncoding('utf8');
      response.on('data', (chunk: string) => (text += chunk));
      response.on('end', () => resolve(text));
      response.on('error', reject);
    });
    request.on('error', reject);
  });
}
