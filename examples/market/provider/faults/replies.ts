import { gzipSync } from 'node:zlib';
import { errorReply, type Reply } from '../reply.ts';
import type { Fault } from './fault.ts';

const page = '<!doctype html><html><head><title>Just a moment</title></head><body>Checking your browser.</body></html>';
const html = { 'content-type': 'text/html; charset=utf-8' };
const bombBytes = 16 * 2 ** 20;
let bomb: Buffer | undefined;

/** Answers that are HTTP, but not what an API should answer. */
export const replyFaults = {
  error_500: {
    what: 'answers with status 500',
    outcome: 'http_5xx',
    reply: () => errorReply(500, 'internal', 'Something went wrong.'),
  },
  bad_gateway: {
    what: 'answers with status 502 with an HTML page',
    outcome: 'http_5xx',
    reply: () => ({ status: 502, headers: html, body: Buffer.from(page) }),
  },
  unavailable: {
    what: 'answers with status 503 with Retry-After',
    outcome: 'rate_limited',
    reply: (_honest, { seconds = 5 }) =>
      errorReply(503, 'maintenance', 'Back soon.', { 'retry-after': String(seconds) }),
  },
  bad_request: {
    what: 'answers with status 400',
    outcome: 'http_4xx',
    reply: () => errorReply(400, 'bad_request', 'That was not understood.'),
  },
  unauthorized: {
    what: 'answers with status 401, as if the key had expired',
    outcome: 'unauthorized',
    reply: () => errorReply(401, 'unknown_key', 'This key is not known.'),
  },
  forbidden: {
    what: 'answers with status 403, as if the plan were too small',
    outcome: 'forbidden',
    reply: () => errorReply(403, 'plan', 'Not in your plan.'),
  },
  not_found: {
    what: 'answers with status 404, as if the symbol were unknown',
    outcome: 'http_4xx',
    reply: () => errorReply(404, 'unknown_symbol', 'There is no such symbol.'),
  },
  gone: {
    what: 'answers with status 410',
    outcome: 'http_4xx',
    reply: () => errorReply(410, 'gone', 'This version has ended.'),
  },

  limited: {
    what: 'answers with status 429 with Retry-After in seconds',
    outcome: 'rate_limited',
    reply: (_honest, { seconds = 5 }) => limited({ 'retry-after': String(seconds) }),
  },
  limited_date: {
    what: 'answers with status 429 with Retry-After as a date',
    outcome: 'rate_limited',
    reply: (_honest, { seconds = 5, now }) => limited({ 'retry-after': new Date(now + seconds * 1_000).toUTCString() }),
  },
  limited_reset: {
    what: 'answers with status 429 with x-ratelimit-reset alone',
    outcome: 'rate_limited',
    reply: (_honest, { seconds = 5, now }) =>
      limited({ 'x-ratelimit-remaining': '0', 'x-ratelimit-reset': String(Math.ceil(now / 1_000 + seconds)) }),
  },
  limited_silently: {
    what: 'answers with status 429 that does not say until when',
    outcome: 'rate_limited',
    reply: () => limited({}),
  },

  no_content: {
    what: 'answers with status 204',
    outcome: 'empty',
    routes: ['quote', 'profile', 'ratios'],
    reply: () => ({ status: 204, headers: {}, body: Buffer.alloc(0) }),
  },
  empty_body: {
    what: 'answers with status 200 and no body',
    outcome: 'not_json',
    reply: (honest) => ({ ...honest, body: Buffer.alloc(0) }),
  },
  malformed: {
    what: 'has a comma too much in the JSON',
    outcome: 'not_json',
    reply: (honest) => text(honest, (json) => json.replace(/\}$/, ',}')),
  },
  cut_json: {
    what: 'ends in the middle of the JSON, with the right length',
    outcome: 'not_json',
    reply: (honest) => ({ ...honest, body: honest.body.subarray(0, honest.body.length >> 1) }),
  },
  two_documents: {
    what: 'sends the JSON twice',
    outcome: 'not_json',
    reply: (honest) => text(honest, (json) => json + json),
  },
  not_a_number: {
    what: 'has NaN in the JSON',
    outcome: 'not_json',
    reply: (honest) => text(honest, (json) => json.replace(/\}$/, ',"noise":NaN}')),
  },
  callback: {
    what: 'wraps the JSON in a function call',
    outcome: 'not_json',
    reply: (honest) => text(honest, (json) => `answer(${json});`),
  },
  html_page: {
    what: 'sends an HTML page with status 200',
    outcome: 'not_json',
    reply: () => ({ status: 200, headers: html, body: Buffer.from(page) }),
  },
  html_as_json: {
    what: 'sends an HTML page that calls itself JSON',
    outcome: 'not_json',
    reply: (honest) => ({ ...honest, body: Buffer.from(page) }),
  },
  wrong_content_type: {
    what: 'sends good JSON that calls itself text/html',
    outcome: 'not_json',
    reply: (honest) => ({ ...honest, headers: html }),
  },
  utf16: {
    what: 'writes the JSON in UTF-16, and calls it UTF-8',
    outcome: 'not_json',
    reply: (honest) => ({ ...honest, body: Buffer.from(honest.body.toString(), 'utf16le') }),
  },
  broken_utf8: {
    what: 'has bytes in a text that are not UTF-8',
    outcome: 'not_json',
    reply: (honest) => ({
      ...honest,
      body: Buffer.from(honest.body.toString().replace(/":"(.)/, '":"$1\u00e9'), 'latin1'),
    }),
  },
  byte_order_mark: {
    what: 'begins with a byte order mark, which readers of JSON may ignore',
    outcome: 'fresh',
    reply: (honest) => ({ ...honest, body: Buffer.concat([Buffer.from([0xef, 0xbb, 0xbf]), honest.body]) }),
  },
  infinite_number: {
    what: 'has 1e999 for a number',
    outcome: 'schema',
    reply: (honest) => text(honest, (json) => json.replace(/":-?\d[\d.]*/, '":1e999')),
  },
  deep: {
    what: 'answers 20,000 arrays in each other',
    outcome: 'schema',
    reply: (honest) => ({ ...honest, body: Buffer.from('['.repeat(20_000) + ']'.repeat(20_000)) }),
  },

  gzip_bomb: {
    what: 'unpacks to 16 MiB, a thousand times its size',
    outcome: 'too_large',
    reply: (honest) => ({ ...zipped(honest), body: theBomb() }),
  },
  double_gzip: {
    what: 'is packed twice and says so once',
    outcome: 'not_json',
    reply: (honest) => ({ ...zipped(honest), body: gzipSync(gzipSync(honest.body)) }),
  },
  gzip_twice_told: {
    what: 'is packed twice and says so twice',
    outcome: 'network',
    reply: (honest) => ({ ...zipped(honest, 'gzip, gzip'), body: gzipSync(gzipSync(honest.body)) }),
  },
  not_gzip: { what: 'says that it is packed, and is not', outcome: 'network', reply: (honest) => zipped(honest) },
  cut_gzip: {
    what: 'is packed, and ends too early',
    outcome: 'network',
    reply: (honest) => {
      const body = gzipSync(honest.body);
      return { ...zipped(honest), body: body.subarray(0, body.length - 12) };
    },
  },
  unknown_encoding: {
    what: 'has a content encoding that was not requested',
    outcome: 'network',
    reply: (honest) => zipped(honest, 'lzma'),
  },

  redirect_within: {
    what: 'redirects to another path that has the answer; two calls',
    outcome: 'fresh',
    reply: (_honest, call) => redirect(call.address('moved')),
  },
  redirect_loop: {
    what: 'redirects to an address that redirects to itself',
    outcome: 'network',
    reply: (_honest, call) => redirect(call.address('loop')),
  },
  redirect_outside: {
    what: 'redirects to another host',
    outcome: 'config',
    reply: () => redirect('http://prices.invalid/v1/quote'),
  },
  redirect_inward: {
    what: 'redirects to an address of the inner network',
    outcome: 'config',
    reply: () => redirect('http://169.254.169.254/latest/meta-data/'),
  },
  redirect_nowhere: {
    what: 'redirects without saying where',
    outcome: 'network',
    reply: () => ({ status: 302, headers: {}, body: Buffer.alloc(0) }),
  },
} as const satisfies Record<string, Fault>;

function limited(headers: Readonly<Record<string, string>>): Reply {
  return errorReply(429, 'rate_limited', 'Too many calls.', headers);
}

function redirect(location: string): Reply {
  return { status: 302, headers: { location }, body: Buffer.alloc(0) };
}

function text(honest: Reply, change: (json: string) => string): Reply {
  return { ...honest, body: Buffer.from(change(honest.body.toString())) };
}

function zipped(honest: Reply, encoding = 'gzip'): Reply {
  return { ...honest, headers: { ...honest.headers, 'content-encoding': encoding } };
}

function theBomb(): Buffer {
  bomb ??= gzipSync(Buffer.alloc(bombBytes, ' '));
  return bomb;
}
