import type { Context, Next } from 'hono';
import { PgfreshError } from '../errors/index.ts';
import { isLocal, nothingAt, refuseUpgrade, type Door } from '../http/index.ts';

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
        return context.json({ error: new PgfreshError('PGF_HTTP_PAGE', {}) }, 403);
      });
    },
    upgrade: (_request, socket) => {
      refuseUpgrade(socket, '404 Not Found', { error: nothingAt(path) });
    },
    drain: async () => {},
  };
}

/** Browsers say where a page came from; programs say nothing. */
function isOwn({ headers }: Request): boolean {
  const origin = headers.get('origin');
  return origin === null || URL.parse(origin)?.host === headers.get('host');
}
