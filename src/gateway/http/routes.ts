import { readFile } from 'node:fs/promises';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response';
import type { Context, Hono } from 'hono';
import { PgfreshError } from '../../errors/index.ts';
import type { Events } from '../../events/index.ts';
import type { Door } from '../../http/index.ts';
import type { EventStreams } from './sse.ts';
import type { PlainReads } from './plain-read.ts';
import type { Reception } from '../session/session-registry.ts';
import { refuse } from './error-response.ts';
import type { WebSockets } from './websocket.ts';

export interface DoorParts {
  readonly reception: Reception;
  readonly webSockets: WebSockets;
  readonly eventStreams: EventStreams;
  readonly plainReads: PlainReads;
  readonly origins: readonly string[];
  readonly events: Events;
}

interface Raw {
  readonly incoming: IncomingMessage;
  readonly outgoing: ServerResponse;
}

const path = '/live';
const farewellMs = 2_000;
/** The client of `client/` as one file; the way to it is the same from the sources and from what is built of them. */
const browserClient = new URL('../../../dist/live/client.js', import.meta.url);

/** Everything below /live: the WebSocket itself, event streams, plain reads, and the script that speaks to them. */
export function doorOf(parts: DoorParts): Door {
  const { reception, webSockets, eventStreams, plainReads, events } = parts;
  /** Answers a request, and says what is wrong with it if something is. */
  const answering = async (context: Context, answer: (raw: Raw) => Promise<Response>): Promise<Response> => {
    for (const [name, value] of Object.entries(crossOrigin(context, parts.origins))) context.header(name, value);
    try {
      return await answer(context.env as Raw);
    } catch (error) {
      const { status, ...refused } = refuse(error, events);
      return context.json({ error: refused }, status as 400);
    }
  };

  const routes = (app: Hono): void => {
    app.options(`${path}/*`, (context) => answering(context, async () => context.body(null, 204)));
    app.get(path, (context) =>
      answering(context, async () => {
        throw new PgfreshError('PGF_LIVE_MESSAGE', { problem: 'this address expects a WebSocket' });
      }),
    );
    app.get(`${path}/client.js`, async (context) => {
      const script = await readFile(browserClient, 'utf8').catch(() => undefined);
      // The same for everybody, and of no use without a connection.
      context.header('access-control-allow-origin', '*');
      context.header('cache-control', 'no-cache');
      if (script !== undefined) return context.body(script, 200, { 'content-type': 'text/javascript; charset=utf-8' });
      return context.json({ error: new PgfreshError('PGF_HTTP_CLIENT', {}) }, 404);
    });
    app.get(`${path}/events`, (context) =>
      answering(context, async ({ incoming, outgoing }) => {
        await eventStreams.open(incoming, outgoing, crossOrigin(context, parts.origins));
        return RESPONSE_ALREADY_SENT;
      }),
    );
    app.post(`${path}/events/:session`, (context) =>
      answering(context, async ({ incoming }) => {
        await eventStreams.receive(context.req.param('session'), incoming);
        return context.body(null, 202);
      }),
    );
    app.get(`${path}/:type/:key`, (context) =>
      answering(context, async ({ incoming }) => {
        const { type, key } = context.req.param();
        const viewing = await plainReads.read(incoming, { dataType: type, key }, maxAge(context.req.query('maxAge')));
        const tag = `"${viewing.tag}"`;
        context.header('etag', tag);
        context.header('cache-control', viewing.reader ? 'private, no-cache' : 'no-cache');
        context.header('vary', 'authorization', { append: true });
        if (context.req.header('if-none-match') === tag) return context.body(null, 304);
        context.header('content-type', 'application/json');
        return context.body(viewing.message('snapshot', true).toString('utf8'));
      }),
    );
  };

  return {
    path,
    routes,
    upgrade: (request, socket, head) => void webSockets.upgrade(request, socket, head),
    drain: () => reception.close(farewellMs),
  };
}

/** In seconds, as HTTP counts ages. */
function maxAge(text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  if (/^\d{1,9}$/.test(text)) return Number(text) * 1_000;
  throw new PgfreshError('PGF_LIVE_MESSAGE', {
    problem: `expected maxAge in whole seconds, got ${JSON.stringify(text.slice(0, 40))}`,
  });
}

function crossOrigin(context: Context, origins: readonly string[]): Record<string, string> {
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
