import { readFile } from 'node:fs/promises';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response';
import type { Context, Hono } from 'hono';
import { PgfreshError } from '../../errors/index.ts';
import type { Events } from '../../events/index.ts';
import type { Mount } from '../../http/index.ts';
import type { SessionRegistry } from '../session/session-registry.ts';
import { errorResponse } from './error-response.ts';
import type { PlainReads } from './plain-read.ts';
import type { EventStreams } from './sse.ts';
import type { WebSockets } from './websocket.ts';

export interface LiveRoutesParts {
  readonly registry: SessionRegistry;
  readonly webSockets: WebSockets;
  readonly eventStreams: EventStreams;
  readonly plainReads: PlainReads;
  readonly origins: readonly string[];
  readonly events: Events;
}

interface NodeExchange {
  readonly incoming: IncomingMessage;
  readonly outgoing: ServerResponse;
}

const path = '/live';
const drainTimeoutMs = 2_000;
/** The client of `client/` as one file. The relative path is the same from src/ and from dist/. */
const browserClient = new URL('../../../dist/live/client.js', import.meta.url);

/** Everything below /live: the WebSocket, event streams, plain reads, and the browser client's script. */
export function liveRoutes(parts: LiveRoutesParts): Mount {
  const { registry, webSockets, eventStreams, plainReads, events } = parts;
  /** Runs a handler, and answers with an error response if it throws. */
  const handle = async (
    context: Context,
    handler: (exchange: NodeExchange) => Promise<Response>,
  ): Promise<Response> => {
    for (const [name, value] of Object.entries(corsHeaders(context, parts.origins))) context.header(name, value);
    try {
      return await handler(context.env as NodeExchange);
    } catch (error) {
      const { status, ...response } = errorResponse(error, events);
      return context.json({ error: response }, status as 400);
    }
  };

  const routes = (app: Hono): void => {
    app.options(`${path}/*`, (context) => handle(context, async () => context.body(null, 204)));
    app.get(path, (context) =>
      handle(context, async () => {
        throw new PgfreshError('PGF_LIVE_MESSAGE', { problem: 'this address expects a WebSocket' });
      }),
    );
    app.get(`${path}/client.js`, async (context) => {
      const script = await readFile(browserClient, 'utf8').catch(() => undefined);
      // Any origin may load it: it contains no secret and is useless without a connection.
      context.header('access-control-allow-origin', '*');
      context.header('cache-control', 'no-cache');
      if (script !== undefined) return context.body(script, 200, { 'content-type': 'text/javascript; charset=utf-8' });
      return context.json({ error: new PgfreshError('PGF_HTTP_CLIENT', {}) }, 404);
    });
    app.get(`${path}/events`, (context) =>
      handle(context, async ({ incoming, outgoing }) => {
        await eventStreams.open(incoming, outgoing, corsHeaders(context, parts.origins));
        return RESPONSE_ALREADY_SENT;
      }),
    );
    app.post(`${path}/events/:session`, (context) =>
      handle(context, async ({ incoming }) => {
        await eventStreams.receive(context.req.param('session'), incoming);
        return context.body(null, 202);
      }),
    );
    app.get(`${path}/:type/:key`, (context) =>
      handle(context, async ({ incoming }) => {
        const { type, key } = context.req.param();
        const pair = await plainReads.read(incoming, { dataType: type, key }, maxAgeMs(context.req.query('maxAge')));
        const etag = `"${pair.tag}"`;
        context.header('etag', etag);
        context.header('cache-control', pair.reader ? 'private, no-cache' : 'no-cache');
        context.header('vary', 'authorization', { append: true });
        if (context.req.header('if-none-match') === etag) return context.body(null, 304);
        context.header('content-type', 'application/json');
        return context.body(pair.message('snapshot', true).toString('utf8'));
      }),
    );
  };

  return {
    path,
    routes,
    upgrade: (request, socket, head) => void webSockets.upgrade(request, socket, head),
    drain: () => registry.close(drainTimeoutMs),
  };
}

/** Parses the query parameter, which is in whole seconds. */
function maxAgeMs(text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  if (/^\d{1,9}$/.test(text)) return Number(text) * 1_000;
  throw new PgfreshError('PGF_LIVE_MESSAGE', {
    problem: `expected maxAge in whole seconds, got ${JSON.stringify(text.slice(0, 40))}`,
  });
}

function corsHeaders(context: Context, origins: readonly string[]): Record<string, string> {
  const origin = context.req.header('origin');
  if (origin === undefined || !origins.includes(origin)) return {};
  return {
    'access-control-allow-origin': origin,
    'access-control-allow-headers': 'authorization, content-type, if-none-match',
    'access-control-allow-methods': 'GET, POST',
    'access-control-expose-headers': 'etag',
    'access-control-max-age': '600',
    vary: 'origin',
  };
}
