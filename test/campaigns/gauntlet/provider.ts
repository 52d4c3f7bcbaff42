import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as wait } from 'node:timers/promises';
import { apiKeys, originalName, place, wide } from './cast.ts';

/** How the provider answers. Only `good` and `slow` serve a value that may be written. */
export const manners = [
  'good',
  'slow',
  'error',
  'too_many',
  'too_many_hint',
  'redirect',
  'nul_in_value',
  'nul_in_error',
  'nul_in_name',
  'nul_not_json',
  'half_emoji',
  'renamed',
  'other_key',
  'older',
  'empty',
  'cut',
] as const;
export type Manner = (typeof manners)[number];

export interface Call {
  readonly at: number;
  readonly source: string;
  readonly apiKey: string;
  readonly process: string;
  readonly type: string;
  readonly key: string;
  readonly manner: Manner | 'refused' | 'redirected';
  /** Calls of the source that were open when it arrived, itself included. */
  open: number;
  /** When the answer was complete or the connection was closed. */
  endedAt: number | undefined;
}

/** A real HTTP provider that misbehaves as it is told, and counts every call where it arrives. */
export class Provider {
  readonly #server: Server;
  readonly calls: Call[] = [];
  /** The pair that each value was served for. */
  readonly #served = new Map<number, string>();
  #behaviours: { readonly source: string; readonly manner: Manner; readonly share: number }[] = [];
  readonly #random: () => number;
  #value = 0;
  onCall: (call: Call) => void = () => {};

  private constructor(random: () => number) {
    this.#random = random;
    this.#server = createServer((request, response) => {
      request.on('error', () => {});
      response.on('error', () => {});
      void this.#answer(request, response);
    });
  }

  static async start(random: () => number): Promise<Provider> {
    const provider = new Provider(random);
    provider.#server.listen(0, '127.0.0.1');
    await once(provider.#server, 'listening');
    return provider;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** Lets a source answer in this manner, a share of its calls, until it is undone. The last one to begin decides. */
  behave(source: string, manner: Manner, share = 1): () => void {
    const behaviour = { source, manner, share };
    this.#behaviours.push(behaviour);
    return () => void (this.#behaviours = this.#behaviours.filter((other) => other !== behaviour));
  }

  behaveWell(): void {
    this.#behaviours = [];
  }

  isServed(type: string, key: string, value: number): boolean {
    return this.#served.get(value) === `${originalName(type)} ${key}`;
  }

  async stop(): Promise<void> {
    const closed = once(this.#server, 'close');
    this.#server.close();
    this.#server.closeAllConnections();
    await closed;
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const [, source = '', type = '', key = '', second] = new URL(request.url!, 'http://x').pathname
      .split('/')
      .map((part) => decodeURIComponent(part));
    const apiKey = String(request.headers['x-api-key'] ?? '');
    const manner = this.#mannerOf(source, apiKey, second !== undefined);
    const call: Call = {
      at: Date.now(),
      source,
      apiKey,
      process: String(request.headers['x-process'] ?? ''),
      type,
      key,
      manner,
      open: 1 + this.calls.slice(-300).filter((one) => one.source === source && one.endedAt === undefined).length,
      endedAt: undefined,
    };
    this.calls.push(call);
    response.on('close', () => void (call.endedAt = Date.now()));
    this.onCall(call);
    const json = (status: number, body: string, headers = {}): void => {
      response
        .writeHead(status, {
          'content-type': 'application/json',
          'content-length': Buffer.byteLength(body),
          ...headers,
        })
        .end(body);
    };
    const good = (): void => json(200, this.#serve(type, key));
    // No answer that may be written has this value.
    const bad = { key, value: 4_000_000_000, note: 'bad', served_at: new Date().toISOString() };
    switch (manner) {
      case 'refused':
        return json(401, '{"error":"unknown key"}');
      case 'slow':
        await wait(500 + this.#random() * 3_000);
        return good();
      case 'error':
        return json(500, '{"error":"failed"}');
      case 'too_many':
        return json(429, '{"error":"too many"}');
      case 'too_many_hint':
        return json(429, '{"error":"too many"}', { 'retry-after': '3' });
      case 'redirect':
        response.writeHead(302, {
          location: `/${source}/${type}/${encodeURIComponent(key)}/again`,
          'content-length': 0,
        });
        return void response.end();
      case 'nul_in_value':
        return json(200, this.#serve(type, key).replace('good', String.raw`a\u0000b`));
      case 'nul_in_error':
        return json(400, '{"error":"a\u0000b"');
      case 'nul_in_name':
        return json(200, JSON.stringify({ ...bad, ['na\u0000me']: 1 }));
      case 'nul_not_json':
        return json(200, 'a\u0000b');
      case 'half_emoji':
        return json(200, this.#serve(type, key).replace('good', String.raw`\ud83d`));
      case 'renamed':
        return json(200, JSON.stringify({ ...bad, value: undefined, price: 1 }));
      case 'other_key':
        return json(200, JSON.stringify({ ...bad, key: `${key}x` }));
      case 'older':
        return json(200, this.#serve(type, key, '2020-01-01T00:00:00.000Z'));
      case 'empty':
        response.writeHead(204);
        return void response.end();
      case 'cut':
        response.writeHead(200, { 'content-type': 'application/json', 'content-length': 100 });
        response.write('{"key":');
        return void request.socket.destroy();
      case 'good':
      case 'redirected':
        return good();
    }
  }

  #mannerOf(source: string, apiKey: string, isSecond: boolean): Call['manner'] {
    if (!(apiKeys as readonly string[]).includes(apiKey)) return 'refused';
    if (isSecond) return 'redirected';
    if (source === 'detour') return 'redirect';
    const behaviour = this.#behaviours.findLast((one) => one.source === source);
    return behaviour && this.#random() < behaviour.share ? behaviour.manner : 'good';
  }

  #columnsOf(type: string, key: string): Record<string, string> {
    if (type === place.name) {
      const [area = '', spot = ''] = key.split('|');
      return { area, spot };
    }
    if (type !== wide.name) return { key };
    const some = wide.optional.filter(() => this.#random() < 0.5);
    return { key, ...Object.fromEntries(some.map((name) => [name, `${name} of ${key}`])) };
  }

  /** A value that no other answer has. */
  #serve(type: string, key: string, at = new Date().toISOString()): string {
    const value = ++this.#value;
    this.#served.set(value, `${originalName(type)} ${key}`);
    return JSON.stringify({ ...this.#columnsOf(type, key), value, note: 'good', served_at: at });
  }
}
