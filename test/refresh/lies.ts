import { gzipSync } from 'node:zlib';
import type { Answer } from '../harness/provider.ts';
import type { OutcomeName } from '../../src/refresh/index.ts';

/** An answer that is not what it should be, and what has to become of it. The key is AAPL, its row is of 12:00. */
export interface Lie {
  readonly kind: string;
  readonly outcome: OutcomeName;
  readonly answer: Answer;
}

const honest = { symbol: 'AAPL', price: 102, at: '2026-01-05T13:00:00Z' };

function sent(body: string | Buffer, headers: Record<string, string> = {}, status = 200): Answer {
  return (_request, response) =>
    void response
      .writeHead(status, { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body), ...headers })
      .end(body);
}

const json = (changes: object): Answer => sent(JSON.stringify({ ...honest, ...changes }));
const lie = (kind: string, outcome: OutcomeName, answer: Answer): Lie => ({ kind, outcome, answer });

/** Every kind of lying answer that the tests tell, with its declared outcome. */
export const lies: readonly Lie[] = [
  lie('an empty 200', 'not_json', sent('')),
  lie('a page of HTML', 'not_json', sent('<html>sorry</html>', { 'content-type': 'text/html' })),
  lie('a page of HTML that says it is JSON', 'not_json', sent('<html>sorry</html>')),
  lie('JSON that says it is a page', 'not_json', sent(JSON.stringify(honest), { 'content-type': 'text/html' })),
  lie('half of the JSON', 'not_json', sent(JSON.stringify(honest).slice(0, 30))),
  lie('zero bytes, which the error quotes', 'not_json', sent('\0\0 sorry')),
  lie('bytes that are not UTF-8', 'not_json', sent(Buffer.from([0x7b, 0x22, 0xff, 0xfe, 0x22, 0x7d]))),
  lie('JSON with something behind it', 'not_json', sent(`${JSON.stringify(honest)}}`)),
  lie('an empty object', 'schema', sent('{}')),
  lie('a list instead of an object', 'schema', sent(JSON.stringify([honest]))),
  lie('null', 'schema', sent('null')),
  lie('a text', 'schema', sent('"ok"')),
  lie('an error with status 200', 'schema', sent('{"error":"limit reached"}')),
  lie('a renamed field', 'schema', sent(JSON.stringify({ symbol: 'AAPL', lastPrice: 102, at: honest.at }))),
  lie('a null instead of the price', 'schema', json({ price: null })),
  lie('the price as a text', 'schema', json({ price: '102' })),
  lie('the price as an object', 'schema', json({ price: { raw: 102 } })),
  lie('no time', 'schema', json({ at: undefined })),
  lie('a time that is none', 'schema', json({ at: 'yesterday' })),
  lie('an infinite price', 'schema', sent('{"symbol":"AAPL","price":1e999,"at":"2026-01-05T13:00:00Z"}')),
  lie('the price 0', 'sanity', json({ price: 0 })),
  lie('a negative price', 'sanity', json({ price: -102 })),
  lie('the price 1e9', 'sanity', json({ price: 1e9 })),
  lie('a time next year', 'sanity', json({ at: '2099-01-05T13:00:00Z' })),
  lie('another key', 'wrong_key', json({ symbol: 'MSFT' })),
  lie('an empty key', 'wrong_key', json({ symbol: '' })),
  lie('the key with a space', 'wrong_key', json({ symbol: 'AAPL ' })),
  lie('a stale cache', 'older_source', json({ at: '2026-01-05T11:00:00Z', price: 90 })),
  lie('a stale cache with the price of now', 'older_source', json({ at: '2026-01-05T11:00:00Z', price: 100 })),
  lie('another price at the same time', 'older_source', json({ at: '2026-01-05T12:00:00Z', price: 99 })),
  lie('the same as before', 'unchanged', json({ at: '2026-01-05T12:00:00Z', price: 100 })),
  lie('the same in another time zone', 'unchanged', json({ at: '2026-01-05T13:00:00+01:00', price: 100 })),
  lie('a price that the table refuses', 'write_conflict', json({ price: 13 })),
  lie('a time before PostgreSQL has any', 'write_conflict', json({ at: '-200000-01-01T00:00:00Z' })),
  lie('status 204', 'empty', (_request, response) => void response.writeHead(204).end()),
  lie('status 400', 'http_4xx', sent('{"error":"no"}', {}, 400)),
  lie('status 404', 'http_4xx', sent('', {}, 404)),
  lie('status 500', 'http_5xx', sent('{"error":"no"}', {}, 500)),
  lie('status 503 with the data', 'http_5xx', sent(JSON.stringify(honest), {}, 503)),
  lie('status 429', 'rate_limited', sent('', { 'retry-after': '1' }, 429)),
  lie('status 429 without a time', 'rate_limited', sent('', {}, 429)),
  lie('a line that breaks', 'network', (_request, response) => {
    response.writeHead(200, { 'content-type': 'application/json', 'content-length': 100 });
    response.write('{"symbol"', () => response.socket!.resetAndDestroy());
  }),
  lie('a line that closes before the answer', 'network', (request) => void request.socket.destroy()),
  lie('a length that is too large', 'network', (_request, response) => {
    response.writeHead(200, { 'content-type': 'application/json', 'content-length': 1_000 });
    response.write(JSON.stringify(honest), () => response.socket!.end());
  }),
  lie('gzip that is none', 'network', sent(JSON.stringify(honest), { 'content-encoding': 'gzip' })),
  lie('a bomb', 'too_large', sent(gzipSync(Buffer.alloc(40_000_000, ' ')), { 'content-encoding': 'gzip' })),
  lie('more than the source allows', 'too_large', sent(Buffer.alloc(9_000_000, ' '))),
  lie('a body that trickles', 'timeout', (_request, response) => {
    response.writeHead(200, { 'content-type': 'application/json', 'content-length': 1_000 });
    const timer = setInterval(() => response.write(' '), 20);
    response.on('close', () => clearInterval(timer));
  }),
  lie('silence', 'timeout', () => {}),
];
