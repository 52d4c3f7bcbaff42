import { onTestFinished } from 'vitest';
import { resolveConfig, type Source, type SourceDefinition } from '../../src/config/index.ts';
import { Events, type PgfreshEvent } from '../../src/events/index.ts';
import {
  SourceClient,
  type CallFailed,
  type CallOptions,
  type ClientOptions,
  type HttpAnswer,
} from '../../src/sources/index.ts';
import type { HttpRequest } from '../../src/index.ts';
import type { RawServer } from './raw-server.ts';

export function sourceOf(definition: Partial<SourceDefinition>): Source {
  return resolveConfig({ config: { sources: [{ name: 'market', ...definition }] } }).sources[0]!;
}

/** A client of one source, with all that it says. Ends with the test. */
export class ClientScene {
  readonly events: PgfreshEvent[] = [];
  readonly client: SourceClient;
  #calls = 0;

  constructor(definition: Partial<SourceDefinition>, options: Omit<ClientOptions, 'events'> = {}) {
    const events = new Events();
    events.subscribe((event) => this.events.push(event));
    this.client = new SourceClient(sourceOf(definition), { events, env: {}, ...options });
    onTestFinished(() => this.client.close());
  }

  static of(
    server: RawServer,
    definition: Partial<SourceDefinition> = {},
    options: Omit<ClientOptions, 'events'> = {},
  ) {
    return new ClientScene({ baseUrl: server.url, allowPrivateAddresses: true, ...definition }, options);
  }

  call(request: string | HttpRequest = '/quote', options: Partial<CallOptions> = {}): Promise<HttpAnswer> {
    const described = typeof request === 'string' ? { url: request } : request;
    return this.client.call(described, { dataType: 'quote', key: this.#nextKey(), ...options });
  }

  /** The failure of a call that must fail. */
  fails(request?: string | HttpRequest, options?: Partial<CallOptions>): Promise<CallFailed> {
    return this.call(request, options).then(
      () => {
        throw new Error('it did not fail');
      },
      (error: unknown) => error as CallFailed,
    );
  }

  /** Each call is for a pair of its own, so that it may be answered by the cache. */
  #nextKey(): string {
    this.#calls += 1;
    return this.#calls === 1 ? 'AAPL' : `AAPL ${this.#calls}`;
  }

  get warnings() {
    return this.events.filter((event) => event.type === 'warning');
  }
}

export function textOf(answer: Pick<HttpAnswer, 'body'>): string {
  return new TextDecoder().decode(answer.body);
}
