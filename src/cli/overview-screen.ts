import { styleText } from 'node:util';
import { sizeText, timeText } from '../config/index.ts';
import {
  problemSentence,
  type Freshness,
  type Overview,
  type SourceOverview,
  type TypeOverview,
} from '../watch/index.ts';
import { table } from './output.ts';

/** Ticks come every second, and a long one may take several. */
const lateSeconds = 10;

/** An overview as a person reads it on a terminal. */
export function overviewText(overview: Overview): string {
  const { freshness, sources, types, stopped, problems } = overview;
  const wrong = problems.map((problem) => styleText('yellow', problemSentence(problem, overview.at)));
  const held = heldTypes(overview);
  const stop = stopped
    ? [`${styleText('red', 'stopped')}: ${stopped.reason} ("pgfresh resume-spending" lets it go on)`]
    : [];
  return [
    headline(overview),
    '',
    ...stop,
    ...wrong,
    ...(stop.length + wrong.length > 0 ? [''] : []),
    `${freshnessLine(freshness)}\n`,
    table([sourceHead, ...sources.map((source) => sourceRow(source, heldOf(source, types, held)))]),
    '',
    table([typeHead, ...types.map((type) => typeRow(type, held.has(type.data_type)))]),
    ...types.flatMap(errorLine),
  ].join('\n');
}

function headline({ at, workers, planning, overdue_seconds: overdue, planned_at: planned }: Overview): string {
  const age = planned === null ? undefined : (Date.parse(at) - Date.parse(planned)) / 1_000;
  const last = age === undefined ? 'the planner has not run yet' : `planner last ran ${seconds(age)} ago`;
  const late = planning ? `planner ${seconds(overdue)} behind` : `no planner for ${seconds(overdue)}`;
  const working = workers === 0 ? 'no worker' : counted(workers, 'worker');
  return `pgfresh  ${timeText(at)}  ${working}, ${overdue > lateSeconds ? late : planning ? 'planner running' : last}`;
}

/** Data types whose jobs cannot be claimed now. */
function heldTypes({ problems, types, stopped, workers }: Overview): ReadonlySet<string> {
  const isHeld = ({ data_type: type, source }: TypeOverview): boolean =>
    problems.some((one) => one.data_type === type || (one.source === source && isOfSource(one)));
  return new Set(types.filter((type) => stopped || workers === 0 || isHeld(type)).map((type) => type.data_type));
}

function isOfSource({ data_type: type, api_key: key, reason }: Overview['problems'][number]): boolean {
  return type === null && key === null && reason !== 'probing';
}

function heldOf({ source }: SourceOverview, types: readonly TypeOverview[], held: ReadonlySet<string>): number {
  return types
    .filter((type) => type.source === source && held.has(type.data_type))
    .reduce((sum, { ready }) => sum + ready, 0);
}

function freshnessLine({
  pairs,
  viewers,
  viewer_share: share,
  age_p50: p50,
  age_p95: p95,
  ...rest
}: Freshness): string {
  if (pairs === 0) return 'Nobody looks at anything now.';
  const good = share === null ? 'nothing to refresh' : `${percent(share)} fresh`;
  const { fresh, stale, missing, empty, older_source, kept } = rest;
  const counts = Object.entries({ fresh, stale, missing, empty, older_source })
    .filter(([name, count]) => count > 0 || name === 'fresh' || name === 'stale' || name === 'missing')
    .map(
      ([name, count]) =>
        `${count} ${name}${name === 'empty' && kept > 0 ? ` with ${counted(kept, 'old row')} kept` : ''}`,
    );
  const ages = p50 === null ? '' : `; age ${seconds(p50)} at the median, ${seconds(p95!)} at 95 %`;
  return `${styleText('bold', good)} for ${counted(viewers, 'view')} of ${counted(pairs, 'pair')} (${counts.join(', ')})${ages}`;
}

const sourceHead = ['source', 'state', 'calls/min', 'this hour', 'bytes', 'ready', 'waiting', 'running'];

function sourceRow(source: SourceOverview, held: number): string[] {
  return [
    source.source,
    source.state,
    source.calls_limit === null ? 'no limit' : `${source.calls_minute} of ${source.calls_limit}`,
    `${source.calls_hour} calls, ${sizeText(source.bytes_hour)}`,
    source.quota_cap === null
      ? 'no limit'
      : `${sizeText(source.quota_used! + source.quota_reserved!)} of ${sizeText(source.quota_cap)}`,
    readyText(source.ready, held),
    String(source.waiting),
    String(source.running),
  ];
}

function readyText(count: number, held: number): string {
  if (held === 0) return String(count);
  return held >= count ? `${count} held` : `${count}, ${held} held`;
}

const typeHead = [
  'data type',
  'views',
  'pairs',
  'fresh',
  'missing',
  'age p50',
  'p95',
  'at source',
  'ready',
  'running',
  '/min',
  'last outcomes',
];

function typeRow(type: TypeOverview, isHeld: boolean): string[] {
  const outcomes = Object.entries(type.outcomes).toSorted(([, a], [, b]) => b - a);
  return [
    type.data_type,
    String(type.viewers),
    String(type.pairs),
    type.viewer_share === null ? '–' : percent(type.viewer_share),
    String(type.missing),
    type.age_p50 === null ? '–' : seconds(type.age_p50),
    type.age_p95 === null ? '–' : seconds(type.age_p95),
    type.source_age_p50 === null ? '–' : seconds(type.source_age_p50),
    readyText(type.ready + type.waiting, isHeld ? type.ready : 0),
    String(type.running),
    String(type.refreshed),
    outcomes.map(([outcome, pairs]) => `${pairs} ${outcome}`).join(', '),
  ];
}

function errorLine({ data_type: type, error }: TypeOverview): string[] {
  return error === null ? [] : [`${styleText('yellow', `${type} is tried again`)}: ${error}`];
}

function counted(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? '' : 's'}`;
}

function percent(share: number): string {
  return `${(share * 100).toFixed(1)} %`;
}

function seconds(count: number): string {
  if (count < 120) return `${Math.max(0, Math.round(count))} s`;
  return count < 7_200 ? `${Math.round(count / 60)} min` : `${Math.round(count / 3_600)} h`;
}
