import { performance } from 'node:perf_hooks';
import { isPromiseLike, type AnswerContext, type HttpRequest, type RequestContext } from '../config/index.ts';
import { problemOf } from '../errors/index.ts';
import { failpoint, hasFailpoints } from '../lifecycle/index.ts';
import { CallFailed, type HttpAnswer, type SourceClient } from '../sources/index.ts';
import { checkAnswer, type OnPassed } from './checks.ts';
import { Refusal, type RefusalName } from './outcomes.ts';
import { keyPartsOf, type RefreshType } from './refresh-type.ts';
import type { WritableRow } from './row-values.ts';

/** A pair to refresh, with the details of its job. */
export interface Wanted {
  /** Its job, if it has one. */
  readonly id?: number | undefined;
  readonly key: string;
  readonly metadata: object | null;
  /** Number of the source's API key, from 1. */
  readonly apiKey?: number | null | undefined;
  /** Latest time to send the call, by `performance.now()`; its rate slot expires then. */
  readonly sendBy?: number | null | undefined;
  /** Whether the call may still start; one that has been sent continues. */
  readonly mayBegin?: (() => boolean) | undefined;
}

/** The cost of a refresh, successful or not. */
export interface Cost {
  readonly bytes: number;
  readonly calls: number;
  /** How many calls it needs, if it could not get as many. */
  readonly needs?: number | undefined;
  readonly fetchMs: number;
  readonly validateMs: number;
}

/** A refused answer, as stored. */
export interface RefusedAnswer {
  readonly status: number | undefined;
  readonly contentType: string | undefined;
  readonly size: number;
  /** The body without secrets; computed only if stored. */
  readonly text: () => string;
}

/** The result of a fetch: rows to write (none if the source has nothing), or why there are none. */
export type Fetched = {
  readonly cost: Cost;
  /** How long the provider asked not to be called; a good answer may be the last one allowed. */
  readonly retryAfterMs?: number | undefined;
} & (
  | {
      readonly rows: readonly WritableRow[];
      /** Whether the source confirmed the stored rows (304), so that there is nothing to write. */
      readonly isNotModified?: boolean | undefined;
      readonly fromCache: boolean;
      /** By `performance.now()`: this process's clock may be wrong or be set, and rows carry the database's time. */
      readonly fetchedAt: number;
      /** Stored if the table refuses the rows. */
      readonly answer?: RefusedAnswer | undefined;
    }
  | {
      readonly refusal: Refusal;
      readonly answer?: RefusedAnswer | undefined;
    }
);

interface RefresherOptions {
  readonly clientOf: (type: Pick<RefreshType, 'source' | 'sourceId'>) => SourceClient;
  /** The database's time. */
  readonly now: () => Date;
}

/** Takes one pair from its request to checked rows, without touching the database. */
export class Refresher {
  readonly #options: RefresherOptions;

  constructor(options: RefresherOptions) {
    this.#options = options;
  }

  async fetch(type: RefreshType, wanted: Wanted, signal: AbortSignal, onPassed?: OnPassed): Promise<Fetched> {
    const context = contextOf(type, wanted, this.#options.now(), signal);
    const cost = { bytes: 0, calls: 0, fetchMs: 0, validateMs: 0 };
    let answer: HttpAnswer | undefined;
    try {
      if (hasFailpoints) await failpoint('refresh.before-request');
      const asked = requestOf(type, wanted, context);
      const request = isPromiseLike(asked) ? await asked : asked;
      if (hasFailpoints) await failpoint('refresh.before-call');
      const calling = this.#call(type, request, wanted, context, onPassed);
      answer = await (hasFailpoints ? duringCall(calling) : calling);
      const { status, ageMs, fromCache, wireBytes, ms, retryAfterMs } = answer;
      cost.bytes = wireBytes;
      cost.calls = answer.calls;
      cost.fetchMs = ms;
      const fetchedAt = performance.now() - ageMs;
      const told = toldOf(context, answer, this.#options.now());
      onPassed?.('call', () => `${status}, ${wireBytes} bytes in ${Math.round(ms)} ms`);
      if (hasFailpoints) await failpoint('refresh.after-call');
      const since = performance.now();
      try {
        const isNotModified = status === 304;
        const rows = isNotModified ? [] : await checkAnswer(type, answer, told, onPassed);
        return { rows, isNotModified, fromCache, fetchedAt, answer: this.#kept(type, answer), retryAfterMs, cost };
      } finally {
        cost.validateMs = performance.now() - since;
        if (hasFailpoints) await failpoint('refresh.after-checks');
      }
    } catch (error) {
      if (error instanceof CallFailed) return failedCall(type, error);
      const refusal = error instanceof Refusal ? error : new Refusal('config', problemOf(error), { cause: error });
      if (answer) this.#options.clientOf(type).forget(answer);
      return { cost, refusal, answer: answer && this.#kept(type, answer), retryAfterMs: answer?.retryAfterMs };
    }
  }

  #kept(type: RefreshType, { status, contentType, body }: HttpAnswer): RefusedAnswer {
    const client = this.#options.clientOf(type);
    return {
      status,
      contentType: contentType ?? undefined,
      size: body.length,
      text: () => client.redact(new TextDecoder().decode(body)),
    };
  }

  #call(
    type: RefreshType,
    request: HttpRequest,
    wanted: Wanted,
    context: RequestContext,
    onPassed: OnPassed | undefined,
  ): Promise<HttpAnswer> {
    const client = this.#options.clientOf(type);
    if (typeof request?.url !== 'string') throw new Refusal('config', 'request returned no url');
    const { method = 'GET', url } = request;
    onPassed?.('request', () => client.redact(`${method} ${url}`));
    return client.call(request, {
      signal: context.signal,
      // The client counts API keys from 0.
      apiKey: typeof wanted.apiKey === 'number' ? wanted.apiKey - 1 : undefined,
      cacheTtlMs: type.ttl,
      sendWithinMs: typeof wanted.sendBy === 'number' ? wanted.sendBy - performance.now() : undefined,
      mayBegin: wanted.mayBegin,
      key: wanted.key,
      job: wanted.id,
      dataType: type.name,
    });
  }
}

/** The request of the data type; a promise only if its function returns one. */
function requestOf(
  { fetcher }: RefreshType,
  { key }: Wanted,
  context: RequestContext,
): HttpRequest | Promise<HttpRequest> {
  const threw = (error: unknown): never => {
    throw new Refusal('config', `request threw: ${problemOf(error)}`, { cause: error });
  };
  try {
    const request = fetcher.request(key, context);
    return isPromiseLike(request) ? Promise.resolve(request).catch(threw) : request;
  } catch (error) {
    return threw(error);
  }
}

async function duringCall(calling: Promise<HttpAnswer>): Promise<HttpAnswer> {
  calling.catch(() => {});
  await failpoint('refresh.during-call');
  return calling;
}

function toldOf(context: RequestContext, answer: HttpAnswer, now: Date): AnswerContext {
  return {
    ...context,
    fetchedAt: new Date(now.getTime() - answer.ageMs),
    status: answer.status,
    // Lazy, because few functions read them.
    get headers() {
      return answer.headers;
    },
  };
}

/** The context of a data type's functions. */
export function contextOf(type: RefreshType, wanted: Wanted, now: Date, signal: AbortSignal): RequestContext {
  const { key, metadata } = wanted;
  return { key, keyParts: keyPartsOf(type, key), metadata: { ...metadata }, dataType: type.name, now, signal };
}

function failedCall(type: RefreshType, failed: CallFailed): Fetched {
  const { wireBytes: bytes, calls, needs, ms, status, retryAfterMs, answer: body } = failed;
  const cost = { bytes, calls, needs, fetchMs: ms, validateMs: 0 };
  const answer = body && {
    status,
    contentType: undefined,
    size: body.length,
    text: () => new TextDecoder().decode(body),
  };
  if (status !== undefined && type.fetcher.empty.status.includes(status)) {
    const kept = answer ?? { status, contentType: undefined, size: 0, text: () => '' };
    return { cost, rows: [], fromCache: false, fetchedAt: performance.now(), answer: kept, retryAfterMs };
  }
  return { cost, refusal: new Refusal(outcomeOf(failed), failed.message), retryAfterMs, answer };
}

/** A call that was never sent, or was aborted, counts as no failure. */
function outcomeOf({ outcome, status }: CallFailed): RefusalName {
  if (outcome === 'unsent' || outcome === 'aborted') return 'interrupted';
  if (outcome === 'http_4xx' && status === 401) return 'unauthorized';
  if (outcome === 'http_4xx' && status === 403) return 'forbidden';
  return outcome;
}
