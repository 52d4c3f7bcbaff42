import { once } from 'node:events';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';
import { createAdaptorServer } from '@hono/node-server';
import { Hono } from 'hono';
import { isLoopback, type Settings } from '../config/index.ts';
import { PgfreshError, problemOf } from '../errors/index.ts';
import type { Events } from '../events/index.ts';
import { Service, within } from '../lifecycle/index.ts';
import type { Health, Metrics } from '../watch/index.ts';
import { foreignHost, guard, hostCheck, hostName } from './guard.ts';
import { contains, notFound, refuseUpgrade, type Mount } from './mount.ts';
import { tokenOf } from './token.ts';

export interface HttpOptions {
  readonly settings: Pick<Settings, 'host' | 'port' | 'allowedHosts' | 'token' | 'dataDir'>;
  readonly events: Events;
  readonly health: Health;
  readonly metrics: Metrics;
  /** Adds the routes of other rooms. */
  readonly routes?: (app: Hono) => void;
  readonly mounts?: readonly Mount[];
}

const firstPort = 4400;
const portsToTry = 20;
const stopTimeoutMs = 2_000;

/** The one HTTP server of a process. */
export class HttpServer extends Service {
  readonly name = 'http';
  readonly #options: HttpOptions;
  #server: Server | undefined;
  #url = '';
  /** Requests that are not answered yet. */
  #open = 0;
  #answered: (() => void) | undefined;

  constructor(options: HttpOptions) {
    super();
    this.#options = options;
  }

  /** For instance http://127.0.0.1:4400, once started. */
  get url(): string {
    return this.#url;
  }

  protected async onStart(): Promise<void> {
    const { host, port, token, dataDir } = this.#options.settings;
    if (!isLoopback(host) && token === undefined) throw new PgfreshError('PGF_PUBLIC_WITHOUT_TOKEN', { host });
    const app = this.#app(token ?? (await tokenOf(dataDir)));
    this.#server = createAdaptorServer({ fetch: app.fetch }) as Server;
    this.#server.on('request', (_request: IncomingMessage, response: ServerResponse) => this.#count(response));
    this.#server.on('upgrade', (request: IncomingMessage, socket: Duplex, head: Buffer) =>
      this.#upgrade(request, socket, head),
    );
    const wanted = port ?? firstPort;
    // A configured port must be free; from the default, try the next ones.
    const got = await this.#listen(host, wanted, port === undefined ? wanted + portsToTry : wanted);
    this.#url = `http://${host.includes(':') ? `[${host}]` : host}:${got}`;
    this.#options.events.emit({
      type: 'http.listening',
      url: this.#url,
      wanted: wanted === 0 ? got : wanted,
      port: got,
    });
  }

  protected async onStop(): Promise<void> {
    const server = this.#server;
    if (!server?.listening) return;
    const closed = once(server, 'close');
    server.close();
    for (const mount of this.#options.mounts ?? []) await mount.drain();
    // Requests in flight get a moment; idle connections are closed at once.
    const answered = new Promise<void>((resolve) => (this.#answered = resolve));
    if (this.#open > 0) await within(stopTimeoutMs, answered);
    server.closeAllConnections();
    await closed;
  }

  #count(response: ServerResponse): void {
    this.#open += 1;
    response.on('close', () => {
      this.#open -= 1;
      if (this.#open === 0) this.#answered?.();
    });
  }

  #app(token: string): Hono {
    const { settings, events, health, metrics, routes, mounts = [] } = this.#options;
    const app = new Hono();
    app.use(guard({ host: settings.host, allowedHosts: settings.allowedHosts, token, events, mounts }));
    app.get('/livez', (context) => context.text('ok'));
    app.get('/readyz', async (context) => {
      const report = await health.report();
      const status = report.ready ? 200 : 503;
      if (context.req.query('verbose') !== undefined) return context.json(report, status);
      return context.text(report.ready ? 'ready' : 'not ready', status);
    });
    app.get('/metrics', async (context) =>
      context.body(await metrics.text(), 200, { 'content-type': metrics.contentType }),
    );
    for (const mount of mounts) mount.routes(app);
    routes?.(app);
    app.notFound((context) => context.json({ error: notFound(context.req.path) }, 404));
    app.onError((error, context) => {
      const { method, path } = context.req;
      events.emit({ type: 'http.failed', method, path, problem: problemOf(error) });
      // Details go to the log, not to the client.
      return context.json({ error: new PgfreshError('PGF_HTTP_FAILED', {}) }, 500);
    });
    return app;
  }

  #upgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void {
    const { settings, events, mounts = [] } = this.#options;
    const path = URL.parse(request.url ?? '', 'http://localhost')?.pathname ?? '';
    const name = hostName(request.headers.host);
    if (!hostCheck(settings.host, settings.allowedHosts)(name)) {
      const error = foreignHost(name);
      events.emit({ type: 'http.refused', status: 403, reason: error.message, path });
      return refuseUpgrade(socket, '403 Forbidden', { error });
    }
    const mount = mounts.find((candidate) => contains(candidate, path));
    if (mount) return mount.upgrade(request, socket, head);
    return refuseUpgrade(socket, '404 Not Found', { error: notFound(path) });
  }

  async #listen(host: string, port: number, last: number): Promise<number> {
    for (let candidate = port; ; candidate++) {
      try {
        const listening = once(this.#server!, 'listening');
        this.#server!.listen(candidate, host);
        await listening;
        const address = this.#server!.address();
        return typeof address === 'object' && address ? address.port : candidate;
      } catch (error) {
        const taken = (error as NodeJS.ErrnoException).code === 'EADDRINUSE';
        if (taken && candidate < last) continue;
        throw new PgfreshError(
          'PGF_PORT_UNAVAILABLE',
          { address: `${host}:${candidate}`, problem: taken ? 'the port is taken' : problemOf(error) },
          { cause: error },
        );
      }
    }
  }
}
