import type { Hono } from 'hono';
import { PgfreshError } from '../errors/index.ts';
import { problemSentence, type Overview } from '../watch/index.ts';
import { statusPage, type Status } from './status-page.ts';

export { devDoor } from './dev-page.ts';
export { jobRoutes } from './jobs.ts';
export { type Status } from './status-page.ts';

interface ConsoleOptions {
  readonly overview: () => Promise<Overview | undefined>;
  readonly status: () => Promise<Status>;
}

/** Brings the console's routes to the HTTP server. */
export function consoleRoutes(app: Hono, { overview, status }: ConsoleOptions): void {
  app.get('/', (context) => context.redirect('/status'));
  const whole = async () => ({ ...(await status()), problems: await overview().then(problemsOf, () => []) });
  app.get('/status', async (context) => context.html(statusPage(await whole())));
  app.get('/api/status', async (context) => context.json(await whole()));
  app.get('/api/overview', async (context) => {
    try {
      return context.json(await overview());
    } catch {
      return context.json({ error: new PgfreshError('PGF_HTTP_UNAVAILABLE', {}) }, 503);
    }
  });
}

/** What is not called or refreshed now, one sentence each. */
function problemsOf(overview: Overview | undefined): string[] {
  if (!overview) return [];
  const { at, stopped, problems } = overview;
  return [
    ...(stopped ? [`Nothing is spent (stopped): ${stopped.reason}`] : []),
    ...problems.map((problem) => problemSentence(problem, at)),
  ];
}
