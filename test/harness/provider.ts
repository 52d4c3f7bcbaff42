import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { atEnd } from './database.ts';

export type Answer = (request: IncomingMessage, response: ServerResponse) => void;

/** A real HTTP server that answers as the test says and records its requests. */
export class Provider {
  readonly #server: Server;
  readonly asked: string[] = [];
  /** Answers by path; "*" is the default. */
  readonly answers = new Map<string, Answer>();

  private constructor() {
    this.#server = createServer((request, response) => {
      const path = new URL(request.url!, 'http://x').pathname;
      this.asked.push(path);
      const answer = this.answers.get(path) ?? this.answers.get('*');
      if (answer) answer(request, response);
      else response.writeHead(404).end();
    });
  }

  static async start(): Promise<Provider> {
    const provider = new Provider();
    provider.#server.listen(0, '127.0.0.1');
    await once(provider.#server, 'listening');
    atEnd(() => provider.stop());
    return provider;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  json(path: string, value: unknown, status = 200): void {
    this.text(path, JSON.stringify(value), 'application/json', status);
  }

  text(path: string, body: string, type = 'application/json', status = 200): void {
    this.answers.set(path, (_request, response) => {
      response.writeHead(status, { 'content-type': type, 'content-length': Buffer.byteLength(body) }).end(body);
    });
  }

  async stop(): Promise<void> {
    if (!this.#server.listening) return;
    const closed = once(this.#server, 'close');
    this.#server.close();
    this.#server.closeAllConnections();
    await closed;
  }
}
