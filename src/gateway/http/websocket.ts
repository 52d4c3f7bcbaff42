import type { IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import { WebSocketServer, type RawData, type WebSocket } from 'ws';
import { PgfreshError } from '../../errors/index.ts';
import type { Events } from '../../events/index.ts';
import { refuseUpgrade } from '../../http/index.ts';
import type { Session } from '../session/session.ts';
import type { SessionRegistry } from '../session/session-registry.ts';
import type { Transport } from '../session/transport.ts';
import { closeCode, errorResponse } from './error-response.ts';
import { subprotocol } from './token.ts';

const closeTimeoutMs = 2_000;

/** Clients on a WebSocket. */
export class WebSockets {
  readonly #registry: SessionRegistry;
  readonly #events: Events;
  readonly #maxMessageBytes: number;
  readonly #server: WebSocketServer;

  constructor(registry: SessionRegistry, events: Events, maxMessageBytes: number) {
    this.#registry = registry;
    this.#events = events;
    this.#maxMessageBytes = maxMessageBytes;
    this.#server = new WebSocketServer({
      noServer: true,
      clientTracking: false,
      // Compression would take more memory per client than everything else together.
      perMessageDeflate: false,
      maxPayload: maxMessageBytes,
      handleProtocols: (offered) => (offered.has(subprotocol) ? subprotocol : false),
      // An option that the type definitions lack.
      ...({ closeTimeout: closeTimeoutMs } as object),
    });
  }

  /** Authenticates the client before the protocol is switched. */
  async upgrade(request: IncomingMessage, socket: Duplex, head: Buffer): Promise<void> {
    // Until the socket is a WebSocket, nothing else handles its errors.
    const onError = (): void => void socket.destroy();
    socket.on('error', onError);
    try {
      const client = await this.#registry.accept(request);
      if (socket.destroyed) return;
      socket.off('error', onError);
      this.#server.handleUpgrade(request, socket, head, (webSocket) => {
        try {
          this.#attach(webSocket, this.#registry.open(client, new WebSocketTransport(webSocket, socket)));
        } catch (error) {
          const { status, code } = errorResponse(error, this.#events);
          webSocket.on('error', () => {});
          webSocket.close(closeCode(status), code);
        }
      });
    } catch (error) {
      const { status, ...response } = errorResponse(error, this.#events);
      refuseUpgrade(socket, `${status} ${response.code}`, { error: response });
    }
  }

  #attach(webSocket: WebSocket, session: Session): void {
    webSocket.on('message', (data: RawData, isBinary: boolean) => {
      if (!session.isOpen) return;
      if (isBinary)
        return session.end(new PgfreshError('PGF_LIVE_MESSAGE', { problem: 'it is binary, and text is expected' }));
      try {
        session.receive((data as Buffer).toString('utf8'));
      } catch (error) {
        session.sendError(error);
      }
    });
    webSocket.on('error', (error: Error & { code?: string }) => {
      if (error.code !== 'WS_ERR_UNSUPPORTED_MESSAGE_LENGTH') return;
      // Only for the event: the close code 1009 already told the client.
      errorResponse(new PgfreshError('PGF_LIVE_TOO_LARGE', { limit: this.#maxMessageBytes }), this.#events);
    });
    webSocket.on('close', () => this.#registry.remove(session));
  }
}

class WebSocketTransport implements Transport {
  readonly #webSocket: WebSocket;
  readonly #socket: Duplex;
  #hasPong = true;
  #isCorked = false;

  constructor(webSocket: WebSocket, socket: Duplex) {
    this.#webSocket = webSocket;
    this.#socket = socket;
    webSocket.on('pong', () => (this.#hasPong = true));
  }

  get bufferedBytes(): number {
    return this.#webSocket.bufferedAmount;
  }

  send(message: Buffer): void {
    this.#webSocket.send(message, asText);
  }

  cork(): void {
    if (this.#isCorked) return;
    this.#isCorked = true;
    this.#socket.cork();
    setImmediate(() => {
      this.#isCorked = false;
      this.#socket.uncork();
    });
  }

  close(code: number, reason: string): void {
    this.#webSocket.close(code, reason);
  }

  terminate(): void {
    this.#webSocket.terminate();
  }

  ping(): boolean {
    if (!this.#hasPong) return false;
    this.#hasPong = false;
    this.#webSocket.ping();
    return true;
  }
}

const asText = { binary: false };
