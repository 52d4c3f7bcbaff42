import { randomBytes } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { text as readText } from 'node:stream/consumers';
import { PgfreshError } from '../../errors/index.ts';
import { protocolVersion } from '../protocol.ts';
import type { Reception } from '../session/session-registry.ts';
import type { Outlet, Session } from '../session/session.ts';

/** Clients by an event stream, for networks that break WebSockets. What they say comes by requests of its own. */
export class EventStreams {
  readonly #reception: Reception;
  readonly #sessions = new Map<string, Session>();
  readonly #limit: number;

  constructor(reception: Reception, messageBytes: number) {
    this.#reception = reception;
    this.#limit = messageBytes;
  }

  /** Begins a stream. Throws why not, as long as nothing was sent. */
  async open(request: IncomingMessage, response: ServerResponse, headers: Record<string, string>): Promise<void> {
    const asked = URL.parse(request.url ?? '', 'http://localhost')?.searchParams.get('protocol') ?? undefined;
    if (asked !== String(protocolVersion)) {
      const got =
        asked === undefined ? 'has not said which (?protocol=1)' : `speaks ${JSON.stringify(asked.slice(0, 40))}`;
      throw new PgfreshError('PGF_LIVE_PROTOCOL', { known: protocolVersion, got });
    }
    const guest = await this.#reception.receive(request);
    const stream = randomBytes(18).toString('base64url');
    const session = this.#reception.open(guest, new EventOutlet(response), stream);
    this.#sessions.set(stream, session);
    response.on('close', () => {
      this.#sessions.delete(stream);
      this.#reception.closed(session);
    });
    response.writeHead(200, {
      'content-type': 'text/event-stream',
      'cache-control': 'no-store',
      // It has no end but that of the connection.
      connection: 'close',
      // Proxies that gather answers would keep changes back.
      'x-accel-buffering': 'no',
      ...headers,
    });
    session.greet(protocolVersion);
  }

  /** Takes a message for a stream of the same user. */
  async receive(stream: string, request: IncomingMessage): Promise<void> {
    const guest = await this.#reception.receive(request);
    const session = this.#sessions.get(stream);
    const { user } = guest.identified;
    // Who has no name is known by the name of his stream, which nobody else has.
    if (!session || (user.anonymous ? !session.user.anonymous : session.user.id !== user.id))
      throw new PgfreshError('PGF_LIVE_SESSION', {});
    session.receive(await this.#bodyOf(request));
  }

  async #bodyOf(request: IncomingMessage): Promise<string> {
    const limit = this.#limit;
    const tooLarge = (): PgfreshError => new PgfreshError('PGF_LIVE_TOO_LARGE', { limit });
    if (Number(request.headers['content-length'] ?? 0) > limit) throw tooLarge();
    let size = 0;
    return readText(
      (async function* () {
        for await (const chunk of request) {
          size += (chunk as Buffer).length;
          if (size > limit) throw tooLarge();
          yield chunk as Buffer;
        }
      })(),
    );
  }
}

class EventOutlet implements Outlet {
  readonly #response: ServerResponse;

  constructor(response: ServerResponse) {
    this.#response = response;
  }

  get buffered(): number {
    return this.#response.writableLength;
  }

  send(message: Buffer): void {
    this.#response.write(`data: ${message.toString('utf8')}\n\n`);
  }

  // Node.js gathers what is written in one turn by itself.
  hold(): void {}

  close(): void {
    this.#response.end();
  }

  cut(): void {
    this.#response.destroy();
  }

  // Whether anybody reads is known by what waits to be read.
  beat(): boolean {
    return this.#response.write(':\n\n') || this.#response.writableLength < mostUnread;
  }
}

const mostUnread = 10_000_000;
