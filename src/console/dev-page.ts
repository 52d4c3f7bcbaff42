import type { Context, Next } from 'hono';
import { PgfreshError } from '../errors/index.ts';
import { isLocal, notFound, refuseUpgrade, type Mount } from '../http/index.ts';

const path = '/dev';

/**
 * The development page of the configuration: at `/`, and its files and API below `/dev/`. It may write without a token,
 * so it accepts only requests from this machine, and from browsers only those of its own origin.
 */
export function devPage(page: (request: Request) => Response | Promise<Response>, host: string): Mount {
  const answer = (context: Context, next: Next) => (isLocal(host, context.req.raw) ? page(context.req.raw) : next());
  return {
    path,
    routes: (app) => {
      app.get('/', answer);
      app.all(`${path}/*`, (context, next) => {
        if (isSameOrigin(context.req.raw)) return answer(context, next);
        return context.json({ error: new PgfreshError('PGF_HTTP_PAGE', {}) }, 403);
      });
    },
    upgrade: (_request, socket) => {
      refuseUpgrade(socket, '404 Not Found', { error: notFound(path) });
    },
    drain: async () => {},
  };
}

/** Browsers send an origin; other programs send none. */
function isSameOrigin({ headers }: Request): boolean {
  const origin = headers.get('origin');
  return origin === null || URL.parse(origin)?.host === headers.get('host');
}
