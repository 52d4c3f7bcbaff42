import { randomBytes } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { text as readText } from 'node:stream/consumers';
import { PgfreshError } from '../../errors/index.ts';
import { protocolVersion } from '../protocol.ts';
import type { Session } from '../session/session.ts';
import type { SessionRegistry } from '../session/session-registry.ts';
import type { Transport } from '../session/transport.ts';

/** Clients on an event stream (SSE), for networks that break WebSockets. They send each message as a request. */
export class EventStreams {
  readonly #registry: SessionRegistry;
  readonly #sessions = new Map<string, Session>();
  readonly #maxMessageBytes: number;

  constructor(registry: SessionRegistry, maxMessageBytes: number) {
    this.#registry = registry;
    this.#maxMessageBytes = maxMessageBytes;
  }

  /** Opens a stream. Throws only as long as nothing was sent. */
  async open(request: IncomingMessage, response: ServerResponse, headers: Record<string, string>): Promise<void> {
    const version = URL.parse(request.url ?? '', 'http://localhost')?.searchParams.get('protocol') ?? undefined;
    if (version !== String(protocolVersion)) {
      const got =
        version === undefined ? 'has not said which (?protocol=1)' : `speaks ${JSON.stringify(version.slice(0, 40))}`;
      throw new PgfreshError('PGF_LIVE_PROTOCOL', { known: protocolVersion, got });
    }
    const client = await this.#registry.accept(request);
    const streamId = randomBytes(18).toString('base64url');
    const session = this.#registry.open(client, new EventStreamTransport(response), streamId);
    this.#sessions.set(streamId, session);
    response.on('close', () => {
      this.#sessions.delete(streamId);
      this.#registry.remove(session);
    });
    response.writeHead(200, {
      'content-type': 'text/event-stream',
      'cache-control': 'no-store',
      // The response ends only with its connection.
      connection: 'close',
      // Keeps buffering proxies from delaying changes.
      'x-accel-buffering': 'no',
      ...headers,
    });
    session.greet(protocolVersion);
  }

  /** Passes a message to a stream of the same user. */
  async receive(streamId: string, request: IncomingMessage): Promise<void> {
    const client = await this.#registry.accept(request);
    const session = this.#sessions.get(streamId);
    const { user } = client.authenticated;
    // An anonymous user is recognised by the id of the stream, which only they know.
    if (!session || (user.anonymous ? !session.user.anonymous : session.user.id !== user.id))
      throw new PgfreshError('PGF_LIVE_SESSION', {});
    session.receive(await this.#bodyOf(request));
  }

  async #bodyOf(request: IncomingMessage): Promise<string> {
    const limit = this.#maxMessageBytes;
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

class EventStreamTransport implements Transport {
  readonly #response: ServerResponse;

  constructor(response: ServerResponse) {
    this.#response = response;
  }

  get bufferedBytes(): number {
    return this.#response.writableLength;
  }

  send(message: Buffer): void {
    this.#response.write(`data: ${message.toString('utf8')}\n\n`);
  }

  // Node.js corks the writes of one tick by itself.
  cork(): void {}

  close(): void {
    this.#response.end();
  }

  terminate(): void {
    this.#response.destroy();
  }

  // A client that stopped reading shows by its unread bytes.
  ping(): boolean {
    return this.#response.write(':\n\n') || this.#response.writableLength < maxUnreadBytes;
  }
}

const maxUnreadBytes = 10_000_000;
