import type { IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import { WebSocketServer, type RawData, type WebSocket } from 'ws';
import { PgfreshError } from '../../errors/index.ts';
import type { Events } from '../../events/index.ts';
import { refuseUpgrade } from '../../http/index.ts';
import type { Reception } from '../session/session-registry.ts';
import { refuse } from './error-response.ts';
import type { Outlet, Session } from '../session/session.ts';
import { subprotocol } from './client-request.ts';

const farewellMs = 2_000;

/** Clients by WebSocket. */
export class WebSockets {
  readonly #reception: Reception;
  readonly #events: Events;
  readonly #limit: number;
  readonly #server: WebSocketServer;

  constructor(reception: Reception, events: Events, messageBytes: number) {
    this.#reception = reception;
    this.#events = events;
    this.#limit = messageBytes;
    this.#server = new WebSocketServer({
      noServer: true,
      clientTracking: false,
      // It would cost more memory a client than everything else together.
      perMessageDeflate: false,
      maxPayload: messageBytes,
      handleProtocols: (offered) => (offered.has(subprotocol) ? subprotocol : false),
      // The types do not know it yet.
      ...({ closeTimeout: farewellMs } as object),
    });
  }

  /** Asks who comes before anything is agreed upon. */
  async upgrade(request: IncomingMessage, socket: Duplex, head: Buffer): Promise<void> {
    // Until it is a WebSocket, nobody else listens.
    const onError = (): void => void socket.destroy();
    socket.on('error', onError);
    try {
      const guest = await this.#reception.receive(request);
      if (socket.destroyed) return;
      socket.off('error', onError);
      this.#server.handleUpgrade(request, socket, head, (webSocket) => {
        try {
          this.#attend(webSocket, this.#reception.open(guest, new WebSocketOutlet(webSocket, socket)));
        } catch (error) {
          const { status, code } = refuse(error, this.#events);
          webSocket.on('error', () => {});
          webSocket.close(4_000 + status, code);
        }
      });
    } catch (error) {
      const { status, ...refused } = refuse(error, this.#events);
      refuseUpgrade(socket, `${status} ${refused.code}`, { error: refused });
    }
  }

  #attend(webSocket: WebSocket, session: Session): void {
    webSocket.on('message', (data: RawData, isBinary: boolean) => {
      if (!session.isOpen) return;
      if (isBinary)
        return session.end(new PgfreshError('PGF_LIVE_MESSAGE', { problem: 'it is binary, and text is expected' }));
      try {
        session.receive((data as Buffer).toString('utf8'));
      } catch (error) {
        session.complain(error);
      }
    });
    webSocket.on('error', (error: Error & { code?: string }) => {
      if (error.code !== 'WS_ERR_UNSUPPORTED_MESSAGE_LENGTH') return;
      // The client was told by the code 1009 already.
      refuse(new PgfreshError('PGF_LIVE_TOO_LARGE', { limit: this.#limit }), this.#events);
    });
    webSocket.on('close', () => this.#reception.closed(session));
  }
}

class WebSocketOutlet implements Outlet {
  readonly #webSocket: WebSocket;
  readonly #socket: Duplex;
  #answered = true;
  #isHeld = false;

  constructor(webSocket: WebSocket, socket: Duplex) {
    this.#webSocket = webSocket;
    this.#socket = socket;
    webSocket.on('pong', () => (this.#answered = true));
  }

  get buffered(): number {
    return this.#webSocket.bufferedAmount;
  }

  send(message: Buffer): void {
    this.#webSocket.send(message, asText);
  }

  hold(): void {
    if (this.#isHeld) return;
    this.#isHeld = true;
    this.#socket.cork();
    setImmediate(() => {
      this.#isHeld = false;
      this.#socket.uncork();
    });
  }

  close(code: number, reason: string): void {
    this.#webSocket.close(code, reason);
  }

  cut(): void {
    this.#webSocket.terminate();
  }

  beat(): boolean {
    if (!this.#answered) return false;
    this.#answered = false;
    this.#webSocket.ping();
    return true;
  }
}

const asText = { binary: false };
