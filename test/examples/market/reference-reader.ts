import { get, type IncomingMessage } from 'node:http';
import { isDeepStrictEqual } from 'node:util';
import { gunzipSync } from 'node:zlib';
import type { Outcome } from '../../../examples/market/provider/faults/index.ts';
import type { MarketRow, OpenType } from './open-types.ts';

export interface Read {
  readonly outcome: Outcome;
  readonly rows: readonly MarketRow[];
  readonly calls: number;
}

interface Asked {
  readonly origin: string;
  readonly apiKey: string;
  readonly key: string;
  readonly now: Date;
  /** What is there already. */
  readonly known: readonly MarketRow[];
  /** How long an answer may take. */
  readonly patienceMs: number;
}

const most = 1_000_000;

class Refused extends Error {
  readonly outcome: Outcome;
  constructor(outcome: Outcome) {
    super(outcome);
    this.outcome = outcome;
  }
}

/** The checks of a refresh in the order of the design, as short as they can be: what the table of faults is held against. */
export async function readByTheBook(type: OpenType, asked: Asked): Promise<Read> {
  const calls = { count: 0 };
  const end = (outcome: Outcome, rows: readonly MarketRow[] = []): Read => ({ outcome, rows, calls: calls.count });
  try {
    const { url: path, query = {} } = type.request(asked.key);
    const url = new URL(path, asked.origin);
    for (const [name, value] of Object.entries(query)) url.searchParams.set(name, String(value));
    const { status, headers, body } = await follow(url, asked, calls);
    if (status === 429 || (status === 503 && 'retry-after' in headers)) return end('rate_limited');
    if (status === 401) return end('unauthorized');
    if (status === 403) return end('forbidden');
    if (status >= 400) return end(status >= 500 ? 'http_5xx' : 'http_4xx');
    if (status === 204) return end('empty');
    const decoded = unpacked(body, headers['content-encoding']);
    if (!/json/.test(headers['content-type'] ?? '')) return end('not_json');
    const answer = type.schema.safeParse(parsed(decoded));
    if (!answer.success) return end('schema');
    const rows = [type.rows(answer.data)].flat();
    const shrinks = rows.length < asked.known.length;
    if (rows.length === 0) return end(shrinks ? 'suspicious' : 'empty');
    if (rows.some((row) => !type.row.safeParse(row).success)) return end('schema');
    if (rows.some((row) => type.sanity(row, asked) !== undefined)) return end('sanity');
    if (rows.some(({ symbol }) => symbol !== asked.key)) return end('wrong_key');
    const [before, after] = [asked.known[0]?.source_updated_at ?? '', rows[0]!.source_updated_at];
    if (after > before) return shrinks ? end('suspicious') : end('fresh', rows);
    return end(after === before && isDeepStrictEqual(rows, asked.known) ? 'unchanged' : 'older_source');
  } catch (error) {
    if (error instanceof Refused) return end(error.outcome);
    throw error;
  }
}

async function follow(url: URL, asked: Asked, calls: { count: number }): Promise<Answer> {
  const answer = await call(url, asked);
  calls.count++;
  if (answer.status < 300 || answer.status >= 400) return answer;
  const { location } = answer.headers;
  if (location === undefined || calls.count > 3) throw new Refused('network');
  const next = new URL(location, url);
  if (next.origin !== asked.origin) throw new Refused('config');
  return follow(next, asked, calls);
}

interface Answer {
  readonly status: number;
  readonly headers: IncomingMessage['headers'];
  readonly body: Buffer;
}

function call(url: URL, { apiKey, patienceMs }: Asked): Promise<Answer> {
  const { promise, resolve, reject } = Promise.withResolvers<Answer>();
  const refuse = (outcome: Outcome) => (): void => {
    clearTimeout(timer);
    reject(new Refused(outcome));
    request.destroy();
  };
  const request = get(
    url,
    { agent: false, headers: { 'x-api-key': apiKey, 'accept-encoding': 'gzip' } },
    (response) => {
      const chunks: Buffer[] = [];
      let size = 0;
      if (Number(response.headers['content-length'] ?? 0) > most) refuse('too_large')();
      response.on('data', (chunk: Buffer) => {
        chunks.push(chunk);
        if ((size += chunk.length) > most) refuse('too_large')();
      });
      response.on('error', refuse('network'));
      response.on('end', () => {
        clearTimeout(timer);
        resolve({ status: response.statusCode!, headers: response.headers, body: Buffer.concat(chunks) });
      });
    },
  );
  const timer = setTimeout(refuse('timeout'), patienceMs);
  request.on('error', (error: NodeJS.ErrnoException) =>
    refuse(error.code === 'HPE_HEADER_OVERFLOW' ? 'too_large' : 'network')(),
  );
  return promise;
}

function unpacked(body: Buffer, encoding: string | undefined): Buffer {
  if (encoding === undefined) return body;
  if (encoding !== 'gzip') throw new Refused('network');
  try {
    return gunzipSync(body, { maxOutputLength: most });
  } catch (error) {
    throw new Refused((error as NodeJS.ErrnoException).code === 'ERR_BUFFER_TOO_LARGE' ? 'too_large' : 'network');
  }
}

function parsed(body: Buffer): unknown {
  try {
    return JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(body));
  } catch {
    throw new Refused('not_json');
  }
}
