import { afterEach } from 'vitest';
import { WebSocket } from 'ws';

const opened = new Set<WebSocket>();
afterEach(() => opened.forEach((webSocket) => webSocket.terminate()));

export interface LiveOptions {
  readonly headers?: Record<string, string>;
  readonly protocols?: string[];
}

export type Said = { readonly type: string } & Readonly<Record<string, unknown>>;

/** A WebSocket client that keeps its messages until the test asks for them. */
export class LiveClient {
  readonly webSocket: WebSocket;
  readonly #said: Said[] = [];
  #changed = Promise.withResolvers<void>();
  /** Resolves with the close code and reason. */
  readonly closed: Promise<{ code: number; reason: string }>;
  #isClosed = false;

  private constructor(webSocket: WebSocket) {
    this.webSocket = webSocket;
    webSocket.on('message', (data: Buffer) => {
      this.#said.push(JSON.parse(data.toString('utf8')) as Said);
      this.#tell();
    });
    webSocket.on('error', () => {});
    this.closed = new Promise((resolve) => {
      webSocket.on('close', (code, reason) => {
        this.#isClosed = true;
        this.#tell();
        resolve({ code, reason: reason.toString() });
      });
    });
    opened.add(webSocket);
    webSocket.on('close', () => opened.delete(webSocket));
  }

  /** Connects; rejects with the status of the response if it is refused. */
  static async open(url: string, { headers = {}, protocols = [] }: LiveOptions = {}): Promise<LiveClient> {
    const webSocket = new WebSocket(`${url.replace(/^http/, 'ws')}/live`, protocols, { headers });
    const client = new LiveClient(webSocket);
    const refused = new Promise<never>((_, reject) => {
      webSocket.on('unexpected-response', (_request, response) => {
        let body = '';
        response.on('data', (chunk: Buffer) => (body += chunk.toString()));
        response.on('end', () => {
          const { error } = JSON.parse(body) as { error: { code: string } };
          reject(Object.assign(new Error(body), { status: response.statusCode, code: error.code }));
          webSocket.terminate();
        });
      });
    });
    const isOpen = new Promise((resolve) => webSocket.once('open', resolve));
    await Promise.race([isOpen, refused]);
    return client;
  }

  say(message: unknown): void {
    this.webSocket.send(typeof message === 'string' ? message : JSON.stringify(message));
  }

  /** The next message, which must have the given type, if any. */
  async next(type?: string): Promise<Said> {
    const said = await this.#take(() => true, type);
    if (type !== undefined && said.type !== type) throw new Error(`expected ${type}, got ${JSON.stringify(said)}`);
    return said;
  }

  /** The next message of these types about a pair of a data type. Skips all others. */
  async nextAbout(
    dataType: string,
    types: readonly string[],
    isWanted: (said: Said) => boolean = () => true,
  ): Promise<Said> {
    for (;;) {
      const said = await this.next();
      const [named] = (said['pair'] ?? []) as readonly string[];
      if (types.includes(said.type) && named === dataType && isWanted(said)) return said;
    }
  }

  /** Requests pairs, and returns the result of each: `accepted`, or the error code. */
  async want(pairs: readonly (readonly string[])[], type = 'want'): Promise<string[]> {
    const open = new Map(pairs.map(([dataType, key]) => [JSON.stringify([dataType, key]), '']));
    this.say({ type, pairs });
    // A pair without a result after a moment is first `waiting`, and is answered separately.
    const isExpected = (said: Said): boolean =>
      ['answer', 'error'].includes(said.type) ||
      (said.type === 'waiting' && open.get(JSON.stringify(said['pair'])) === '');
    while ([...open.values()].includes('')) {
      const said = await this.#take(isExpected, 'an answer');
      if (said.type === 'error') throw new Error(`expected an answer, got ${JSON.stringify(said)}`);
      const answers = (said['pairs'] ?? []) as readonly { pair: string[]; result: string; code?: string }[];
      for (const { pair, result, code } of answers) open.set(JSON.stringify(pair), code ?? result);
    }
    return [...open.values()];
  }

  /** Whether no message arrives before the answer to a ping. */
  async isQuiet(): Promise<boolean> {
    this.say({ type: 'ping' });
    return (await this.next()).type === 'pong';
  }

  async close(): Promise<void> {
    this.webSocket.close();
    await this.closed;
  }

  /** Takes the first message that matches; the others are kept. */
  async #take(isWanted: (said: Said) => boolean, type = 'a message'): Promise<Said> {
    for (;;) {
      const place = this.#said.findIndex(isWanted);
      if (place >= 0) return this.#said.splice(place, 1)[0]!;
      if (this.#isClosed) throw new Error(`closed while ${type} was expected`);
      await this.#changed.promise;
    }
  }

  #tell(): void {
    this.#changed.resolve();
    this.#changed = Promise.withResolvers();
  }
}
