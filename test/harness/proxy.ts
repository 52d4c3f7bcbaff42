import { once } from 'node:events';
import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net';

type Direction = 'to server' | 'to client';
/** What to do with bytes: pass them on, hold them back, or cut the connection. */
type Verdict = 'pass' | 'hold' | 'cut';

interface Pair {
  readonly id: number;
  readonly client: Socket;
  readonly upstream: Socket;
  /** The client's application name, once sent. */
  name: string;
}

/** A TCP proxy in front of a server, to cut and hold connections. */
export class Proxy {
  readonly #server: Server;
  readonly #pairs = new Set<Pair>();
  #held: (() => void)[] = [];
  #count = 0;
  /** Decides for every chunk of bytes of a connection. */
  judge: (chunk: Buffer, direction: Direction, connection: number) => Verdict = () => 'pass';

  /** Sees every chunk of bytes that clients send. */
  listen: (chunk: Buffer) => void = () => {};

  /** What becomes of the bytes that pass. */
  rewrite: (chunk: Buffer, direction: Direction) => Buffer = (chunk) => chunk;

  private constructor(target: { host: string; port: number }) {
    this.#server = createServer((client) => this.#join(client, connect(target)));
  }

  /** Starts a proxy for a database URL, and returns its own. */
  static async before(url: string): Promise<{ proxy: Proxy; url: string }> {
    const target = new URL(url);
    const proxy = new Proxy({ host: target.hostname, port: Number(target.port || 5432) });
    proxy.#server.listen(0, '127.0.0.1');
    await once(proxy.#server, 'listening');
    target.host = `127.0.0.1:${(proxy.#server.address() as AddressInfo).port}`;
    return { proxy, url: target.href };
  }

  /** Open connections; the port is the one that the server sees. */
  get connections(): { id: number; name: string; port: number | undefined }[] {
    return [...this.#pairs].map(({ id, name, upstream }) => ({ id, name, port: upstream.localPort }));
  }

  /** Resets all connections, or these. */
  cut(only?: ReadonlySet<number>): void {
    for (const { id, client, upstream } of this.#pairs) {
      if (only?.has(id) === false) continue;
      client.resetAndDestroy();
      upstream.resetAndDestroy();
    }
  }

  /** Releases held bytes. */
  release(): void {
    const held = this.#held;
    this.#held = [];
    for (const send of held) send();
  }

  async close(): Promise<void> {
    const closed = once(this.#server, 'close');
    this.#server.close();
    this.cut();
    await closed;
  }

  #join(client: Socket, upstream: Socket): void {
    const pair = { id: ++this.#count, client, upstream, name: '' };
    this.#pairs.add(pair);
    client.once('data', (chunk: Buffer) => (pair.name = /application_name\0([^\0]*)/.exec(String(chunk))?.[1] ?? ''));
    this.#carry(pair, 'to server');
    this.#carry(pair, 'to client');
  }

  #carry(pair: Pair, direction: Direction): void {
    const { id, client, upstream } = pair;
    const [from, to] = direction === 'to server' ? [client, upstream] : [upstream, client];
    from.on('data', (original: Buffer) => {
      if (direction === 'to server') this.listen(original);
      const verdict = this.judge(original, direction, id);
      const chunk = this.rewrite(original, direction);
      if (verdict === 'pass') to.write(chunk);
      if (verdict === 'hold') this.#held.push(() => to.write(chunk));
      if (verdict === 'cut') this.cut();
    });
    from.on('error', () => to.destroy());
    from.on('close', () => {
      to.destroy();
      this.#pairs.delete(pair);
    });
  }
}
