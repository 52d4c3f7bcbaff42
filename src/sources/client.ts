import type { Authorization, HttpRequest, Source, TokenAnswer } from '../config/index.ts';
import { problemOf } from '../errors/index.ts';
import type { Events, WarningCode } from '../events/index.ts';
import type { AnswerHeaders } from './answer-headers.ts';
import { ApiKeys } from './api-keys.ts';
import { CallFailed } from './call-failed.ts';
import { Connections } from './connections.ts';
import { Cost } from './cost.ts';
import { Deadline } from './deadline.ts';
import { Exchange, type Exchanged } from './exchange.ts';
import { StepFailure } from './step-failure.ts';
import { HttpAnswer } from './http-answer.ts';
import { authorised, cacheKeyOf, placeOf, prepare, redirected, type Outgoing, type Place } from './outgoing.ts';
import { Redaction } from './redaction.ts';
import { ResponseCache, type Kept } from './response-cache.ts';
import { Tokens } from './tokens.ts';
import { waitOf } from './wait.ts';

const mostRedirects = 3;
const shownBytes = 8_192;

export interface ClientOptions {
  readonly events: Events;
  /** Where to look up API keys; defaults to `process.env`. */
  readonly env?: Readonly<Record<string, string | undefined>>;
  /** Asks for each call after the first; without it, further calls are not limited. */
  readonly takeCall?: (apiKey: number, job: number | undefined) => Promise<boolean>;
  /** The time in milliseconds, used when a provider sends a reset time but no Date header; defaults to `Date.now`. */
  readonly now?: () => number;
}

export interface CallOptions {
  readonly dataType: string;
  readonly key: string;
  /** The job that the call is for; its claim may include further calls. */
  readonly job?: number | undefined;
  readonly signal?: AbortSignal | undefined;
  /** Index of the source's API key, from 0. */
  readonly apiKey?: number | undefined;
  /** Maximum age of a cached answer, usually the TTL of the data type. */
  readonly cacheTtlMs?: number | undefined;
  /** Do not send after this time: the rate slot expires then. */
  readonly sendWithinMs?: number | undefined;
  /** Checked before the request is sent. A call that has been sent continues, with its redirects and tokens. */
  readonly mayBegin?: (() => boolean) | undefined;
}

/** A call in progress. */
interface Run {
  readonly apiKey: number;
  readonly job: number | undefined;
  /** How many calls it may make so far: the one from its claim, and those taken since. */
  readonly places: { count: number };
  readonly deadline: Deadline;
  readonly cost: Cost;
  readonly secrets: string[];
  readonly sendBy: number | undefined;
  readonly mayBegin: (() => boolean) | undefined;
}

/** Makes all calls to a source: bounded in time and size, counted, only to its hosts. One per source and process. */
export class SourceClient {
  readonly #source: Source;
  readonly #place: Place;
  readonly #events: Events;
  readonly #takeCall: ClientOptions['takeCall'];
  readonly #now: () => number;
  readonly #connections: Connections;
  readonly #apiKeys: ApiKeys;
  readonly #tokens = new Tokens();
  readonly #cache: ResponseCache;
  readonly #cacheKeys = new WeakMap<HttpAnswer, string>();
  readonly #redaction = new Redaction();
  readonly #warned = new Set<WarningCode>();
  readonly #closing = new AbortController();
  #running = 0;
  #idle: PromiseWithResolvers<void> | undefined;
  /** Bytes that arrived while no call was running; the next call is charged for them. */
  readonly #unpaid = new Cost();

  constructor(source: Source, { events, env = process.env, takeCall, now = Date.now }: ClientOptions) {
    this.#source = source;
    this.#place = placeOf(source);
    this.#events = events;
    this.#takeCall = takeCall;
    this.#now = now;
    this.#connections = new Connections(source.allowPrivateAddresses, (bytes, when) => {
      this.#unpaid.wireBytes += bytes;
      if (when === 'idle') this.#warnOfStray();
    });
    this.#apiKeys = new ApiKeys(source.apiKeys, env);
    this.#cache = new ResponseCache(source.cacheEntries);
  }

  /** The answer, if its status is below 400; otherwise throws `CallFailed`. */
  async call(request: HttpRequest, options: CallOptions): Promise<HttpAnswer> {
    const begun = performance.now();
    const { signal, sendWithinMs } = options;
    this.#running++;
    const run: Run = {
      apiKey: options.apiKey ?? 0,
      job: options.job,
      places: { count: 1 },
      deadline: new Deadline(this.#source.timeout, [signal, this.#closing.signal]),
      cost: new Cost(),
      secrets: [],
      sendBy: sendWithinMs === undefined ? undefined : begun + sendWithinMs,
      mayBegin: options.mayBegin,
    };
    let plain: Outgoing | undefined;
    try {
      plain = prepare(request, this.#place);
      const cacheKey = this.#isCached(plain) ? cacheKeyOf(plain) : undefined;
      const maxAge = Math.min(this.#source.cacheTtl, options.cacheTtlMs ?? Infinity);
      const pair = `${options.dataType}/${options.key}`;
      const found = cacheKey === undefined ? undefined : this.#cache.get(cacheKey, maxAge);
      // A pair that asks again wants newer data than it was given last time.
      const hit = found?.givenTo.has(pair) ? undefined : found;
      const kept = hit ?? this.#keptOf(await this.#follow(plain, run, 'job'));
      kept.givenTo.add(pair);
      if (!hit) run.cost.absorb(this.#unpaid);
      const answer = this.#answerOf(kept, run.cost, begun, hit !== undefined);
      if (cacheKey !== undefined) {
        if (!hit) this.#cache.set(cacheKey, kept);
        this.#cacheKeys.set(answer, cacheKey);
      }
      this.#emit(options, answer);
      return answer;
    } catch (thrown) {
      run.cost.absorb(this.#unpaid);
      const failed = this.#failedOf(thrown, run, begun, `${options.dataType}/${options.key}${addressOf(plain)}`);
      this.#emit(options, failed);
      throw failed;
    } finally {
      run.cost.isSettled = true;
      run.deadline.clear();
      if (--this.#running === 0) this.#idle?.resolve();
    }
  }

  /** Drops an unusable answer from the cache. */
  forget(answer: HttpAnswer): void {
    const key = this.#cacheKeys.get(answer);
    if (key !== undefined) this.#cache.delete(key);
  }

  /** The text with the source's API keys and tokens removed. */
  redact(text: string): string {
    return this.#redaction.text(text);
  }

  /** Aborts running calls and waits for them. */
  async close(): Promise<void> {
    this.#closing.abort();
    if (this.#running > 0) {
      this.#idle ??= Promise.withResolvers();
      await this.#idle.promise;
    }
    this.#connections.close();
  }

  /** The answer if it is usable; otherwise throws the reason. */
  #keptOf({ status, headers, body, hasLength }: Exchanged): Kept {
    if (!hasLength) {
      this.#warn(
        'answer_without_length',
        `Answers of the source ${this.#source.name} do not say their Content-Length, so a cut one may not be noticed.`,
        'Ask the provider for it; bytes are counted all the same.',
      );
    }
    if (status >= 400) throw this.#refusalOf(status, headers, body);
    return { status, headers, body, since: performance.now(), givenTo: new Set() };
  }

  /** Sends the request, follows redirects, and repeats it once with a new token after a 401. */
  async #follow(plain: Outgoing, run: Run, purpose: 'job' | 'token'): Promise<Exchanged> {
    let request = plain;
    let redirects = 0;
    // The claim of the job paid for one call.
    let isPaid = purpose === 'job';
    let mayRefresh = true;
    let mayRepeat = plain.method !== 'POST' && plain.method !== 'PATCH';
    for (;;) {
      if (purpose === 'job') requireBegin(run);
      // Credentials go only to the origin that the request named, not to other hosts of the source.
      const isHome = purpose === 'job' && (request === plain || request.url.origin === plain.url.origin);
      const { outgoing, token } = isHome && this.#isAuthorised ? await this.#authorise(request, run) : plainly(request);
      if (!isPaid) await this.#take(run);
      if (purpose === 'job') requireBegin(run);
      const sendBy = isPaid ? run.sendBy : undefined;
      isPaid = false;
      let answer: Exchanged;
      try {
        answer = await this.#exchange(outgoing, run, sendBy);
      } catch (error) {
        const isStale = error instanceof StepFailure && error.details.isStale;
        if (!mayRepeat || !isStale) throw error;
        mayRepeat = false;
        continue;
      }
      if (answer.status === 401 && token !== undefined && mayRefresh) {
        mayRefresh = false;
        this.#tokens.refuse(run.apiKey, token);
      } else {
        const next = redirected(request, answer, this.#place);
        if (!next) return answer;
        if (++redirects > mostRedirects)
          throw new StepFailure('network', `redirected more than ${mostRedirects} times`);
        request = next;
      }
    }
  }

  #exchange(request: Outgoing, { deadline, cost }: Run, sendBy: number | undefined): Promise<Exchanged> {
    const circumstances = { connections: this.#connections, limits: this.#source, deadline, cost, sendBy };
    return new Exchange(request, circumstances).run();
  }

  async #take({ apiKey, job, places, deadline }: Run): Promise<void> {
    if (!this.#takeCall) return;
    const needs = places.count + 1;
    const isTaken = await deadline.race(this.#takeCall(apiKey, job)).catch((error: unknown) => {
      throw error instanceof StepFailure
        ? error
        : new StepFailure('no_slot', `no call could be taken: ${problemOf(error)}`, { needs });
    });
    if (!isTaken) throw new StepFailure('no_slot', `it takes ${needs} calls, and no more was left for now`, { needs });
    places.count = needs;
  }

  async #authorise(request: Outgoing, run: Run): Promise<{ outgoing: Outgoing; token?: string | undefined }> {
    const { authorize, token: fetchToken } = this.#source;
    const apiKey = await this.#apiKey(run);
    const token = fetchToken ? await this.#token(apiKey, run) : undefined;
    const seen = { ...request, url: request.url.href, body: request.body };
    const change: Authorization = authorize
      ? await this.#ask('authorize', run, () => authorize(seen, { apiKey, token }))
      : { headers: { authorization: `Bearer ${token}` } };
    const { request: outgoing, secrets } = authorised(request, change);
    run.secrets.push(...secrets);
    return { outgoing, token };
  }

  async #token(apiKey: string | undefined, run: Run): Promise<string> {
    let isPayer = false;
    const fetch = () => {
      isPayer = true;
      return this.#fetchToken(apiKey, run);
    };
    try {
      return await run.deadline.race(this.#tokens.get(run.apiKey, fetch));
    } catch (error) {
      // The missing call belongs to the call that fetches the token, not to this one.
      if (!isPayer && error instanceof StepFailure && error.outcome === 'no_slot')
        throw new StepFailure('no_slot', error.message);
      throw error;
    }
  }

  async #apiKey(run: Run): Promise<string | undefined> {
    const apiKey = await run.deadline.race(this.#apiKeys.key(run.apiKey));
    if (apiKey !== undefined) this.#redaction.add(apiKey);
    return apiKey;
  }

  /** Fetches a token for all waiting calls; continues even if the call that started it ends. */
  async #fetchToken(apiKey: string | undefined, payer: Run) {
    const cost = new Cost();
    const deadline = new Deadline(this.#source.timeout, [this.#closing.signal]);
    const run: Run = { ...payer, deadline, cost, sendBy: undefined };
    const call = async (request: HttpRequest): Promise<TokenAnswer> => {
      const { status, headers, body } = await this.#follow(prepare(request, this.#place), run, 'token');
      if (status >= 400) throw this.#refusalOf(status, headers, body);
      const text = new TextDecoder().decode(body);
      return { status, body: text, json: () => JSON.parse(text) as unknown };
    };
    try {
      const token = await this.#ask('token', run, () => this.#source.token!({ apiKey, call }));
      if (typeof token.token !== 'string' || token.token === '')
        throw new StepFailure('config', 'the hook token gave no token');
      this.#redaction.add(token.token);
      return token;
    } finally {
      deadline.clear();
      (payer.cost.isSettled ? this.#unpaid : payer.cost).absorb(cost);
    }
  }

  /** Runs a hook of the source. Its errors count as configuration errors. */
  async #ask<T>(name: string, { deadline }: Run, hook: () => T | Promise<T>): Promise<T> {
    try {
      const result = await deadline.race(hook());
      if (typeof result !== 'object' || result === null) throw new Error(`expected an object, got ${typeof result}`);
      return result;
    } catch (error) {
      throw error instanceof StepFailure
        ? error
        : new StepFailure('config', `the hook ${name} failed: ${problemOf(error)}`);
    }
  }

  get #isAuthorised(): boolean {
    return this.#source.authorize !== undefined || this.#source.token !== undefined;
  }

  #isCached({ method }: Outgoing): boolean {
    return this.#source.cacheEntries > 0 && (method === 'GET' || method === 'POST');
  }

  #answerOf(kept: Kept, cost: Cost, begun: number, fromCache: boolean): HttpAnswer {
    const now = performance.now();
    return new HttpAnswer(kept, {
      wireBytes: cost.wireBytes,
      calls: cost.calls,
      fromCache,
      ageMs: now - kept.since,
      ms: now - begun,
      retryAfterMs: fromCache ? undefined : waitOf(kept.status, kept.headers, this.#now()),
    });
  }

  #refusalOf(status: number, headers: AnswerHeaders, body: Uint8Array): StepFailure {
    const retryAfterMs = waitOf(status, headers, this.#now());
    // Some providers send 403 or 503 instead of 429; a wait time in the answer shows that it is a rate limit.
    const isLimit = status === 429 || ((status === 403 || status === 503) && retryAfterMs !== undefined);
    const outcome = isLimit ? 'rate_limited' : status < 500 ? 'http_4xx' : 'http_5xx';
    return new StepFailure(outcome, `HTTP ${status}`, { status, retryAfterMs, body });
  }

  #failedOf(thrown: unknown, { cost, secrets }: Run, begun: number, what: string): CallFailed {
    const failure = thrown instanceof StepFailure ? thrown : new StepFailure('config', problemOf(thrown));
    const redaction = this.#redaction.with(secrets);
    const { status, retryAfterMs, needs, body } = failure.details;
    const message = redaction.text(`The call of ${this.#source.name} for ${what} failed: ${failure.message}`);
    return new CallFailed(message.slice(0, 500), {
      outcome: failure.outcome,
      wireBytes: cost.wireBytes,
      calls: cost.calls,
      ms: performance.now() - begun,
      status,
      retryAfterMs,
      needs,
      answer: body && startOf(body, redaction),
    });
  }

  #warnOfStray(): void {
    this.#warn(
      'answer_overlong',
      `The source ${this.#source.name} goes on sending after the end of an answer.`,
      'Nothing; the connection was closed and the bytes are counted.',
    );
  }

  /** Once per process, to keep the log short. */
  #warn(code: WarningCode, message: string, next: string): void {
    if (this.#warned.has(code)) return;
    this.#warned.add(code);
    this.#events.emit({ type: 'warning', code, subject: this.#source.name, message, next });
  }

  #emit({ dataType }: CallOptions, result: HttpAnswer | CallFailed): void {
    this.#events.emit({
      type: 'source.called',
      source: this.#source.name,
      dataType,
      outcome: result instanceof CallFailed ? result.outcome : result.fromCache ? 'cached' : 'answered',
      calls: result.calls,
      wireBytes: result.wireBytes,
      ms: result.ms,
    });
  }
}

function plainly(outgoing: Outgoing): { outgoing: Outgoing; token?: undefined } {
  return { outgoing };
}

function requireBegin({ cost, mayBegin }: Run): void {
  if (cost.calls === 0 && mayBegin?.() === false)
    throw new StepFailure('unsent', 'its worker stops, or has lost its lease');
}

/** The address without its query, which often contains keys. */
function addressOf(request: Outgoing | undefined): string {
  return request ? ` (${request.method} ${request.url.origin}${request.url.pathname})` : '';
}

function startOf(body: Uint8Array, redaction: Redaction): Uint8Array {
  // Redact more than is kept, so that no secret is cut in half at the end.
  const text = redaction.text(new TextDecoder().decode(body.subarray(0, 2 * shownBytes)));
  return new TextEncoder().encode(text).subarray(0, shownBytes);
}
