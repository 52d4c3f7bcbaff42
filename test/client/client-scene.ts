import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { afterEach, beforeAll, beforeEach, onTestFinished, vi } from 'vitest';
import { WebSocketServer, type WebSocket as Socket } from 'ws';
import { createClient, type ClientOptions, type Fresh, type FreshClient } from 'pgfresh/client';
import { LiveScene, tokenOf, type RunningGateway } from '../gateway/live-scene.ts';

/** The rows of the scene's data type. */
export interface Rows {
  quote: { key: string; price: number; fetched_at: string };
}

export type Quote = Fresh<Rows['quote']>;

/** Starts a gateway for each test of a file, and resets timers and mocks after it. */
export interface Live {
  readonly scene: LiveScene;
  running: RunningGateway;
  readonly url: string;
  /** How many connections the gateway has seen. */
  connections(): number;
}

export function useGateway(): Live {
  let scene: LiveScene;
  let running: RunningGateway;
  beforeAll(async () => {
    scene = await LiveScene.open();
  });
  beforeEach(async () => {
    await scene.clear();
    running = await scene.gateway({}, { allowedHosts: ['0.0.0.0'] });
  });
  afterEach(() => {
    vi.useRealTimers();
    vi.restoreAllMocks();
  });
  return {
    get scene() {
      return scene;
    },
    get running() {
      return running;
    },
    /** Uses another gateway, which the test started. */
    set running(started) {
      running = started;
    },
    get url() {
      return running.http.url;
    },
    connections: () => running.seen.filter(({ type }) => type === 'gateway.opened').length,
  };
}

/** Lets ten seconds pass for the client, and then waits for a message of the server. */
export async function pass10s(client: FreshClient<Rows>): Promise<void> {
  await vi.advanceTimersByTimeAsync(10_000);
  await client.refreshNow('quote', 'AAPL').catch(() => {});
}

/** A client that is closed after the test. It has a token of its user, unless the test passes another. */
export async function clientOf(
  user: string,
  options: ClientOptions & { readonly url: string },
): Promise<FreshClient<Rows>> {
  const client = createClient<Rows>({ token: await tokenOf(user), ...options });
  onTestFinished(() => client.close());
  return client;
}

/** Views a pair and records all its states. */
export function look(
  client: FreshClient<Rows>,
  key: string,
): { told: Quote[]; prices: () => unknown[]; stop: () => void } {
  const told: Quote[] = [];
  const stop = client.subscribe('quote', key, (fresh) => told.push(fresh));
  return { told, stop, prices: () => [...new Set(told.map(({ data }) => data?.price))] };
}

/** Records the WebSocket messages of clients in this process, until the test ends. */
export function recordSent(): { type: string; pairs?: string[][] }[] {
  const sent: { type: string; pairs?: string[][] }[] = [];
  const real = globalThis.WebSocket;
  globalThis.WebSocket = class extends real {
    override send(data: string): void {
      sent.push(JSON.parse(data) as { type: string });
      super.send(data);
    }
  };
  onTestFinished(() => void (globalThis.WebSocket = real));
  return sent;
}

/** A server that accepts every client, and then follows the script of the test. */
export async function openScript(
  expiresAt: Date | null = null,
): Promise<{ url: string; sockets: Socket[]; heard: unknown[] }> {
  const server = new WebSocketServer({ port: 0, host: '127.0.0.1', handleProtocols: () => 'pgfresh.v1' });
  await once(server, 'listening');
  onTestFinished(() => {
    for (const socket of server.clients) socket.terminate();
    server.close();
  });
  const sockets: Socket[] = [];
  const heard: unknown[] = [];
  server.on('connection', (socket) => {
    socket.on('message', (data: Buffer) => heard.push(JSON.parse(data.toString())));
    socket.once('message', () => {
      const limits = { pairs: 500, message_bytes: 128_000 };
      const now = new Date().toISOString();
      socket.send(JSON.stringify({ type: 'welcome', protocol: 1, user: 'ada', expires_at: expiresAt, now, limits }));
      sockets.push(socket);
    });
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, sockets, heard };
}

/** Simulates a page that can be hidden or go offline, until the test ends. */
export function pretendPage(): { hidden: boolean; offline: boolean; readonly listeners: number } {
  const signals: AbortSignal[] = [];
  class Target extends EventTarget {
    override addEventListener(name: string, listener: () => void, options: { signal: AbortSignal }): void {
      signals.push(options.signal);
      super.addEventListener(name, listener, options);
    }
  }
  const page = new Target();
  const document = Object.assign(new Target(), { hidden: false });
  let offline = false;
  const given = { document, addEventListener: page.addEventListener.bind(page) };
  Object.assign(globalThis, given);
  Object.defineProperty(navigator, 'onLine', { get: () => !offline, configurable: true });
  onTestFinished(() => {
    for (const name of Object.keys(given)) delete (globalThis as Record<string, unknown>)[name];
    delete (navigator as unknown as Record<string, unknown>)['onLine'];
  });
  return {
    get listeners() {
      return signals.filter(({ aborted }) => !aborted).length;
    },
    get hidden() {
      return document.hidden;
    },
    set hidden(value) {
      document.hidden = value;
      document.dispatchEvent(new Event('visibilitychange'));
    },
    get offline() {
      return offline;
    },
    set offline(value) {
      offline = value;
      page.dispatchEvent(new Event(value ? 'offline' : 'online'));
    },
  };
}

/** Whether no version went back. */
export function isInOrder(told: readonly Quote[]): boolean {
  return told.every(({ version }, place) => place === 0 || told[place - 1]!.version! <= version!);
}
