import type { Hono } from 'hono';
import { startPage, type Status } from './start-page.ts';

export { jobRoutes } from './jobs.ts';
export { type Status } from './start-page.ts';

/** Brings the console's routes to the HTTP server. */
export function consoleRoutes(app: Hono, status: () => Promise<Status>): void {
  app.get('/', async (context) => context.html(startPage(await status())));
  app.get('/api/status', async (context) => context.json(await status()));
}
