// STAND-IN: goes when the real client is merged.
import type { HttpRequest, Source } from '../config/index.ts';
import type { Events } from '../events/index.ts';
import { CallFailed, type CallOutcome } from './call-failed.ts';

export interface HttpAnswer {
  readonly status: number;
  readonly headers: Headers;
  readonly body: Uint8Array;
  readonly wireBytes: number;
  readonly calls: number;
  readonly fromCache: boolean;
  readonly fetchedAt: Date;
  readonly ms: number;
}

export interface CallOptions {
  readonly signal?: AbortSignal | undefined;
  readonly apiKey?: number | undefined;
  readonly cacheTtlMs?: number | undefined;
  readonly key: string;
  readonly dataType: string;
  readonly sendWithinMs?: number | undefined;
}

export class SourceClient {
  readonly source: Source;

  constructor(source: Source, _options: { events: Events; takeCall?: ((apiKey: number) => Promise<boolean>) | undefined }) {
    this.source = source;
  }

  async call(request: HttpRequest, { signal }: CallOptions): Promise<HttpAnswer> {
    const since = performance.now();
    const url = new URL(request.url, (this.source as { baseUrl?: string }).baseUrl);
    for (const [name, value] of Object.entries(request.query ?? {})) if (value !== undefined) url.searchParams.set(name, String(value));
    const fail = (outcome: CallOutcome, message: string, more: object = {}): CallFailed =>
      new CallFailed(message, { outcome, wireBytes: 0, calls: 1, ms: performance.now() - since, ...more });
    let response: Response;
    let body: Uint8Array;
    try {
      const limit = AbortSignal.timeout(10_000);
      response = await fetch(url, {
        method: request.method ?? 'GET',
        headers: { ...request.headers },
        signal: signal ? AbortSignal.any([signal, limit]) : limit,
      });
      body = new Uint8Array(await response.arrayBuffer());
    } catch (error) {
      if (signal?.aborted) throw fail('aborted', 'not wanted any more');
      const isTimeout = error instanceof Error && error.name === 'TimeoutError';
      throw fail(isTimeout ? 'timeout' : 'network', String(error instanceof Error ? (error.cause ?? error) : error));
    }
    const wireBytes = body.length + 200;
    const { status, headers } = response;
    const more = { status, wireBytes, answer: body.slice(0, 65_536) };
    if (status === 429) throw fail('rate_limited', '429', { ...more, retryAfterMs: Number(headers.get('retry-after') ?? 1) * 1000 });
    if (status >= 400) throw fail(status >= 500 ? 'http_5xx' : 'http_4xx', `${status}`, more);
    return { status, headers, body, wireBytes, calls: 1, fromCache: false, fetchedAt: new Date(), ms: performance.now() - since };
  }

  forget(_answer: HttpAnswer): void {}

  redact(text: string): string {
    return text;
  }

  async close(): Promise<void> {}
}
