import type { Hono } from 'hono';
import type { Queryable } from '../database/index.ts';
import { PgfreshError } from '../errors/index.ts';
import { sharedOverview } from './overview.ts';
import { statusPage, type Status } from './status-page.ts';

export { devDoor } from './dev-page.ts';
export { jobRoutes } from './jobs.ts';
export { type Status } from './status-page.ts';

interface ConsoleOptions {
  readonly db: Queryable;
  readonly status: () => Promise<Status>;
}

/** Brings the console's routes to the HTTP server. */
export function consoleRoutes(app: Hono, { db, status }: ConsoleOptions): void {
  const overview = sharedOverview(db);
  app.get('/', (context) => context.redirect('/status'));
  app.get('/status', async (context) => context.html(statusPage(await status())));
  app.get('/api/status', async (context) => context.json(await status()));
  app.get('/api/overview', async (context) => {
    try {
      return context.json(await overview());
    } catch {
      return context.json({ error: new PgfreshError('PGF_HTTP_UNAVAILABLE', {}) }, 503);
    }
  });
}
