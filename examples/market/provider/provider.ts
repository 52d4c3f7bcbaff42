import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { adminReply } from './admin.ts';
import { answers, type Document, type Route } from './answers.ts';
import { Company } from './company.ts';
import { FaultBook, type OrderedFault } from './fault-book.ts';
import { faultOf, type SpoiltCall } from './faults/index.ts';
import { latencyMs } from './latency.ts';
import { Limiter, type Pass } from './limiter.ts';
import { listings } from './listings.ts';
import { Meter } from './meter.ts';
import { readQuestion, type Question } from './question.ts';
import { errorReply, jsonReply, packed, send, type Reply } from './reply.ts';

export interface ProviderOptions {
  /** 0 means any free port. */
  readonly port: number;
  readonly seed: number;
  readonly keys: readonly string[];
  /** Calls per minute and key; undefined: no limit. */
  readonly limit: number | undefined;
  /** The median; 0 answers at once. */
  readonly latencyMs: number;
  /** Clock of the data. */
  readonly now?: () => number;
  /** Clock of the limit: monotonic, in milliseconds. */
  readonly uptime?: () => number;
}

/** A market data API, as a company would sell it. Same seed and same time, same answers. */
export class Provider {
  readonly #options: ProviderOptions;
  readonly #server: Server;
  readonly #limiter: Limiter | undefined;
  readonly #companies: ReadonlyMap<string, Company>;
  readonly #lastAnswers = new Map<string, number>();
  readonly #now: () => number;
  readonly #uptime: () => number;
  #answered = 0;
  readonly meter = new Meter();
  readonly faults = new FaultBook();

  constructor(options: ProviderOptions) {
    this.#options = options;
    this.#now = options.now ?? Date.now;
    this.#uptime = options.uptime ?? (() => performance.timeOrigin + performance.now());
    this.#limiter = options.limit === undefined ? undefined : new Limiter(options.limit);
    this.#companies = new Map([...listings].map(([symbol, listing]) => [symbol, new Company(options.seed, listing)]));
    this.#server = createServer({ keepAliveTimeout: 60_000 }, (request, response) => this.#take(request, response));
  }

  async start(): Promise<string> {
    this.#server.listen(this.#options.port, '127.0.0.1');
    await once(this.#server, 'listening');
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  async stop(): Promise<void> {
    if (!this.#server.listening) return;
    const closed = once(this.#server, 'close');
    this.#server.close();
    this.#server.closeAllConnections();
    await closed;
  }

  #take(request: IncomingMessage, response: ServerResponse): void {
    const url = URL.parse(request.url!, 'http://provider') ?? new URL('http://provider/');
    // Kept now, because a closed response no longer has it.
    const { socket } = request;
    if (url.pathname.startsWith('/admin/')) {
      response.once('close', () => this.meter.settle(socket));
      void adminReply(request, url.pathname, this.faults, this.meter).then(
        (reply) => send(response, reply),
        () => socket.destroy(),
      );
      return;
    }
    request.resume();
    const uptime = this.#uptime();
    const key = keyOf(request, url);
    const known = key !== undefined && this.#options.keys.includes(key);
    const read = readQuestion(url);
    const question = 'question' in read ? read.question : undefined;
    const pass = known ? this.#limiter?.take(key, uptime) : undefined;
    const isFine = known && question !== undefined && pass?.accepted !== false && isRead(request);
    const fault =
      isFine && question.by === undefined ? this.faults.take(question.route, question.symbol, this.#now()) : undefined;
    const call = this.meter.begin({
      at: uptime,
      key: known ? key : '',
      route: question?.route ?? '',
      symbol: question?.symbol ?? null,
      fault: fault?.kind ?? null,
    });
    response.once('close', () => this.meter.end(call, socket, response.headersSent ? response.statusCode : null));
    for (const [name, value] of Object.entries(this.#headers(pass))) response.setHeader(name, value);

    const refusal = this.#refusal(request, known, pass) ?? ('refusal' in read ? read.refusal : undefined);
    this.#later(response, () => {
      if (refusal) send(response, packed(refusal, request.headers['accept-encoding']));
      else this.#answer(request, response, question!, fault);
    });
  }

  #answer(
    request: IncomingMessage,
    response: ServerResponse,
    question: Question,
    fault: OrderedFault | undefined,
  ): void {
    const accepted = request.headers['accept-encoding'];
    if (question.by === 'loop') {
      send(response, { status: 302, headers: { location: request.url! }, body: Buffer.alloc(0) });
      return;
    }
    const now = this.#now();
    const honest = () => jsonReply(this.#honest(question, now));
    if (fault === undefined) {
      this.#lastAnswers.set(`${question.route} ${question.symbol}`, now);
      send(response, packed(honest(), accepted));
      return;
    }
    const call = this.#spoilt(request, question, fault, now);
    const lie = faultOf(fault.kind);
    if ('document' in lie) send(response, packed(jsonReply(lie.document(call)), accepted));
    else if ('reply' in lie) send(response, lie.reply(honest(), call));
    else {
      const every = (seconds: number, act: () => void): void => {
        const timer = setInterval(act, seconds * 1_000);
        response.once('close', () => clearInterval(timer));
      };
      lie.wire({ response, reply: honest(), every }, call);
    }
  }

  #honest({ route, symbol, options }: Question, at: number): Document {
    return answers[route](this.#companies.get(symbol)!, at, options);
  }

  #spoilt(request: IncomingMessage, question: Question, { seconds }: OrderedFault, now: number): SpoiltCall {
    const { route, symbol } = question;
    return {
      route,
      symbol,
      now,
      seconds,
      lastAt: this.#lastAnswers.get(`${route} ${symbol}`) ?? now,
      honest: ({
        route: other = route,
        symbol: of = symbol,
        at = now,
      }: { route?: Route; symbol?: string; at?: number } = {}) =>
        this.#honest({ ...question, route: other, symbol: of }, at),
      address: (kind) => request.url!.replace('/v1/', `/v1/${kind}/`),
    };
  }

  #refusal(request: IncomingMessage, known: boolean, pass: Pass | undefined): Reply | undefined {
    if (!isRead(request)) return errorReply(405, 'method', 'Expected GET.', { allow: 'GET' });
    if (!known) return errorReply(401, 'unknown_key', 'Expected a key in the header x-api-key, or as ?apikey=.');
    if (pass?.accepted !== false) return undefined;
    const wait = String(Math.max(1, Math.ceil(pass.resetMs / 1_000)));
    return errorReply(429, 'rate_limited', `Expected at most ${this.#options.limit} calls in any minute.`, {
      'retry-after': wait,
    });
  }

  #headers(pass: Pass | undefined): Record<string, string> {
    const general = {
      server: 'market-data',
      'cache-control': 'private, no-store',
      'x-request-id': String(this.#answered),
    };
    if (pass === undefined) return general;
    return {
      ...general,
      'x-ratelimit-limit': String(this.#options.limit),
      'x-ratelimit-remaining': String(pass.remaining),
      'x-ratelimit-reset': String(Math.ceil((Date.now() + pass.resetMs) / 1_000)),
    };
  }

  #later(response: ServerResponse, act: () => void): void {
    const count = this.#answered++;
    if (this.#options.latencyMs === 0) return act();
    const timer = setTimeout(act, latencyMs(this.#options.seed, this.#options.latencyMs, count));
    response.once('close', () => clearTimeout(timer));
  }
}

function keyOf(request: IncomingMessage, url: URL): string | undefined {
  const header = request.headers['x-api-key'];
  return typeof header === 'string' ? header : (url.searchParams.get('apikey') ?? undefined);
}

function isRead({ method }: IncomingMessage): boolean {
  return method === 'GET' || method === 'HEAD';
}
