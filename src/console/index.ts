import type { Hono } from 'hono';
import { PgfreshError } from '../errors/index.ts';
import type { TroubledJob } from '../schedule/index.ts';
import { problemSentence, type Overview } from '../watch/index.ts';
import { statusPage, type Status } from './status-page.ts';

export { devPage } from './dev-page.ts';
export { jobRoutes } from './jobs.ts';
export { type Status } from './status-page.ts';

interface ConsoleOptions {
  readonly overview: () => Promise<Overview | undefined>;
  /** Jobs with a problem. */
  readonly jobs: () => Promise<readonly TroubledJob[]>;
  readonly status: () => Promise<Status>;
}

/** Adds the console's routes to the HTTP server. */
export function consoleRoutes(app: Hono, { overview, jobs, status }: ConsoleOptions): void {
  app.get('/', (context) => context.redirect('/status'));
  const problems = async () => [
    ...(await overview().then(problemsOf, unread('What is not called or refreshed now'))),
    ...(await jobs().then(jobSentences, unread('Which jobs are not well'))),
  ];
  const whole = async () => ({ ...(await status()), problems: await problems() });
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

/** A list that cannot be read is shown as a problem; otherwise it would look like an empty one. */
const unread = (what: string) => () => [
  `${what} cannot be read: the database does not answer this page. Next: pgfresh check`,
];

const shownJobs = 20;

function jobSentences(jobs: readonly TroubledJob[]): string[] {
  const sentences = jobs
    .slice(0, shownJobs)
    .map(({ name, problem, next_step: next }) => `The job ${name}: ${problem.replace(/\.$/, '')}. Next: ${next}`);
  const more = jobs.length - shownJobs;
  return more > 0 ? [...sentences, `${more} more jobs are not well: "pgfresh jobs list" shows them.`] : sentences;
}

/** One sentence for each source, API key and data type that is not called or refreshed now. */
function problemsOf(overview: Overview | undefined): string[] {
  if (!overview) return [];
  const { at, stopped, problems } = overview;
  return [
    ...(stopped ? [`Nothing is spent (stopped): ${stopped.reason}`] : []),
    ...problems.map((problem) => problemSentence(problem, at)),
  ];
}
