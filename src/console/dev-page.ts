import type { Context, Next } from 'hono';
import { isLocal, refuseUpgrade, type Door } from '../http/index.ts';

const path = '/dev';

/**
 * The page of whoever plays with pgfresh: the one at `/`, and what it needs below `/dev/`. It writes without a token, so
 * only this machine may ask, and of the pages that are open on it only those that came from here.
 */
export function devDoor(page: (request: Request) => Response | Promise<Response>, host: string): Door {
  const answer = (context: Context, next: Next) => (isLocal(host, context.req.raw) ? page(context.req.raw) : next());
  return {
    path,
    routes: (app) => {
      app.get('/', answer);
      app.all(`${path}/*`, (context, next) => {
        if (isOwn(context.req.raw)) return answer(context, next);
        const message = 'This is only for pages that came from here.';
        return context.json({ error: { code: 'forbidden', message } }, 403);
      });
    },
    upgrade: (_request, socket) => {
      const message = `Nothing below ${path} speaks another protocol.`;
      refuseUpgrade(socket, '404 Not Found', { error: { code: 'not_found', message } });
    },
    drain: async () => {},
  };
}

/** Browsers say where a page came from; programs say nothing. */
function isOwn({ headers }: Request): boolean {
  const origin = headers.get('origin');
  return origin === null || URL.parse(origin)?.host === headers.get('host');
}
