import { once } from 'node:events';
import { createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { onTestFinished } from 'vitest';

export interface RawRequest {
  readonly method: string;
  /** With its query. */
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
  readonly socket: Socket;
}

type Answer = string | Buffer | undefined | void;
type Answering = (request: RawRequest) => Answer | Promise<Answer>;

/** A provider that sends whatever bytes a test likes, and counts them itself. */
export class RawServer {
  readonly requests: RawRequest[] = [];
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  connections = 0;

  private constructor(answering: Answering) {
    this.#server = createServer((socket) => {
      this.connections++;
      this.#sockets.add(socket);
      socket.on('error', () => {});
      this.#serve(socket, answering);
    });
  }

  /** Answers each request by what the function returns, or lets the function write to the socket. Ends with the test. */
  static async start(answering: Answering): Promise<RawServer> {
    const server = new RawServer(answering);
    server.#server.listen(0, '127.0.0.1');
    await once(server.#server, 'listening');
    onTestFinished(() => server.close());
    return server;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  get paths(): string[] {
    return this.requests.map(({ path }) => path);
  }

  /** All bytes that it has sent. */
  get bytesSent(): number {
    return [...this.#sockets].reduce((sum, socket) => sum + socket.bytesWritten, 0);
  }

  async close(): Promise<void> {
    if (!this.#server.listening) return;
    const closed = once(this.#server, 'close');
    this.#server.close();
    for (const socket of this.#sockets) socket.destroy();
    await closed;
  }

  #serve(socket: Socket, answering: Answering): void {
    let pending = '';
    socket.on('data', (chunk) => {
      pending += chunk.toString('latin1');
      const request = parse(pending, socket);
      if (!request) return;
      pending = '';
      this.requests.push(request);
      void Promise.resolve(answering(request)).then((bytes) => {
        if (bytes !== undefined && !socket.destroyed) socket.write(bytes);
      });
    });
  }
}

function parse(text: string, socket: Socket): RawRequest | undefined {
  const end = text.indexOf('\r\n\r\n');
  if (end < 0) return undefined;
  const [line, ...lines] = text.slice(0, end).split('\r\n') as [string, ...string[]];
  const [method, path] = line.split(' ') as [string, string];
  const headers = Object.fromEntries(
    lines.map((header) => {
      const [name, ...value] = header.split(':') as [string, ...string[]];
      return [name.toLowerCase(), value.join(':').trim()];
    }),
  );
  const body = text.slice(end + 4);
  if (body.length < Number(headers['content-length'] ?? 0)) return undefined;
  return { method, path, headers, body, socket };
}

/** The bytes of an answer as they should be, but for what the test changes. A header of undefined is left out. */
export function answer(
  body: string | Buffer = '{"price":1}',
  headers: Readonly<Record<string, string | number | undefined>> = {},
  status = '200 OK',
): Buffer {
  const all = { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body), ...headers };
  const lines = Object.entries(all).flatMap(([name, value]) => (value === undefined ? [] : [`${name}: ${value}\r\n`]));
  return Buffer.concat([Buffer.from(`HTTP/1.1 ${status}\r\n${lines.join('')}\r\n`), Buffer.from(body)]);
}

/** A body in chunks. */
export function chunked(...parts: readonly (string | Buffer)[]): Buffer {
  const chunks = parts.map((part) =>
    Buffer.concat([Buffer.from(`${Buffer.byteLength(part).toString(16)}\r\n`), Buffer.from(part), Buffer.from('\r\n')]),
  );
  return Buffer.concat([...chunks, Buffer.from('0\r\n\r\n')]);
}
