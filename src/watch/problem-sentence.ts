import { timeText } from '../config/index.ts';
import type { OverviewProblem } from './overview.ts';

/** Describes a problem of a source, API key or data type, its end and the next step. `at` is the time of the overview. */
export function problemSentence(problem: OverviewProblem, at: string): string {
  const { message, next_step: next } = problem;
  return [
    `${subject(problem)} (${problem.reason})${end(problem, at)}`,
    message === null ? '' : `: ${message.replace(/\.$/, '')}`,
    next === null ? '' : `. Next: ${next}`,
  ].join('');
}

function subject({ source, data_type: type, api_key: key, reason }: OverviewProblem): string {
  if (type !== null) return `${type} is not refreshed`;
  if (key !== null) return `API key ${key} of ${source} is not used`;
  return reason === 'probing' ? `${source} is tried by one job at a time` : `${source} is not called`;
}

function end({ until }: OverviewProblem, at: string): string {
  if (until === null || until === 'infinity') return '';
  return new Date(until) <= new Date(at) ? ', one job tries it now' : ` until ${timeText(until)}`;
}
