import { connect, type Socket } from 'node:net';

export interface Message {
  readonly text: () => string;
}

interface PlainClientOptions {
  readonly port: number;
  /** The local address; several addresses have more ports than one. */
  readonly from: string | undefined;
  readonly onOpen: () => void;
  readonly onMessage: (message: Message) => void;
  /** Called once, if the connection closes unasked. */
  readonly onLost: (problem: string) => void;
}

const request = 'GET /live HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n';
const handshake = `${request}sec-websocket-version: 13\r\nsec-websocket-key: cGdmcmVzaCB2aWV3ZXIuLg==\r\n\r\n`;
const headEnd = Buffer.from('\r\n\r\n');
const opcode = { text: 1, close: 8, ping: 9, pong: 10 } as const;

/**
 * A minimal WebSocket client: thousands of them share two cores with the measured server. Its
 * mask is zero, so its messages need no masking.
 */
export class PlainClient {
  readonly #socket: Socket;
  readonly #options: PlainClientOptions;
  #isOpen = false;
  #isLeaving = false;
  #pending: Buffer | undefined;

  constructor(options: PlainClientOptions) {
    const { port, from } = options;
    this.#options = options;
    this.#socket = connect({ port, host: '127.0.0.1', ...(from === undefined ? {} : { localAddress: from }) });
    this.#socket.setNoDelay(true);
    this.#socket.write(handshake);
    this.#socket.on('data', (chunk) => this.#read(chunk));
    this.#socket.on('error', (error) => this.#lost(error.message));
    this.#socket.on('close', () => this.#lost('closed'));
  }

  say(...texts: string[]): void {
    this.#socket.write(Buffer.concat(texts.map((text) => frame(opcode.text, Buffer.from(text)))));
  }

  leave(): void {
    this.#isLeaving = true;
    this.#socket.write(frame(opcode.close, Buffer.from([0x03, 0xe8])));
  }

  cut(): void {
    this.#isLeaving = true;
    this.#socket.resetAndDestroy();
  }

  #read(chunk: Buffer): void {
    let data = this.#pending ? Buffer.concat([this.#pending, chunk]) : chunk;
    this.#pending = undefined;
    if (!this.#isOpen) {
      const end = data.indexOf(headEnd);
      if (end < 0) return void (this.#pending = data);
      const status = data.toString('latin1', 9, 12);
      if (status !== '101') return this.#lost(`answered with ${data.toString('latin1').slice(0, 300)}`);
      this.#isOpen = true;
      this.#options.onOpen();
      data = data.subarray(end + headEnd.length);
    }
    let at = 0;
    while (data.length - at >= 2) {
      const short = data[at + 1]!;
      const head = short === 127 ? 10 : short === 126 ? 4 : 2;
      if (data.length - at < head) break;
      const length =
        short < 126 ? short : short === 126 ? data.readUInt16BE(at + 2) : Number(data.readBigUInt64BE(at + 2));
      const [begin, end] = [at + head, at + head + length];
      if (data.length < end) break;
      this.#take(data[at]! & 15, data, begin, end);
      at = end;
    }
    // A kept message must not keep the whole chunk in memory.
    if (at < data.length) this.#pending = Buffer.from(data.subarray(at));
  }

  #take(kind: number, data: Buffer, begin: number, end: number): void {
    if (kind === opcode.text) this.#options.onMessage({ text: () => data.toString('utf8', begin, end) });
    else if (kind === opcode.ping) this.#socket.write(frame(opcode.pong, data.subarray(begin, end)));
    else if (kind === opcode.close) {
      if (!this.#isLeaving) this.#lost(`sent away: ${data.toString('utf8', begin + 2, end)}`);
      this.#socket.end();
    }
  }

  #lost(problem: string): void {
    if (this.#isLeaving) return;
    this.#isLeaving = true;
    this.#options.onLost(problem);
  }
}

function frame(kind: number, payload: Buffer): Buffer {
  const length = payload.length;
  const head = length < 126 ? [0x80 | kind, 0x80 | length] : [0x80 | kind, 0x80 | 126, length >> 8, length & 255];
  return Buffer.concat([Buffer.from([...head, 0, 0, 0, 0]), payload]);
}
