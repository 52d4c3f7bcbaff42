import { answers, routes, type AnswerOptions, type Route } from './answers.ts';
import { listings } from './listings.ts';
import { errorReply, type Reply } from './reply.ts';

/** What a path of the API asks. */
export interface Question {
  readonly route: Route;
  readonly symbol: string;
  readonly options: AnswerOptions;
  /** Where a redirect has led to: there it is never spoilt, or always redirected. */
  readonly by: 'moved' | 'loop' | undefined;
}

const largestLimit = 20;

/** Reads the path, or answers what is wrong with it. */
export function readQuestion(url: URL): { question: Question } | { refusal: Reply } {
  const [, by, route, symbol] = /^\/v1\/(?:(moved|loop)\/)?([^/]+)\/([^/]+)$/.exec(url.pathname) ?? [];
  if (!isRoute(route)) return refuse(404, 'unknown_route', `Expected /v1/<route>/<symbol> with ${routes.join(', ')}.`);
  const period = url.searchParams.get('period') ?? 'quarter';
  if (period !== 'quarter' && period !== 'annual') return refuse(400, 'bad_period', 'Expected quarter or annual.');
  const limit = Number(url.searchParams.get('limit') ?? 8);
  if (!Number.isInteger(limit) || limit < 1 || limit > largestLimit)
    return refuse(400, 'bad_limit', `Expected a whole number from 1 to ${largestLimit}.`);
  const name = decode(symbol!);
  if (!listings.has(name)) return refuse(404, 'unknown_symbol', 'There is no such symbol.');
  return { question: { route, symbol: name, options: { period, limit }, by: by as Question['by'] } };
}

function isRoute(name: string | undefined): name is Route {
  return name !== undefined && Object.hasOwn(answers, name);
}

function refuse(status: number, code: string, message: string): { refusal: Reply } {
  return { refusal: errorReply(status, code, message) };
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return '';
  }
}
