import { styleText } from 'node:util';
import type { Freshness, Overview, SourceOverview, TypeOverview } from '../watch/index.ts';
import { table } from './output.ts';
import { sizeText } from './size-text.ts';
import { timeText } from './time-text.ts';

const goodStates = ['ok', 'rate'];

/** An overview as a person reads it on a terminal. */
export function overviewText(overview: Overview): string {
  const { freshness, sources, types, stopped } = overview;
  return [
    `${headline(overview)}\n`,
    ...(stopped
      ? [`${styleText('red', 'stopped')}: ${stopped.reason} ("pgfresh resume-spending" lets it go on)\n`]
      : []),
    `${freshnessLine(freshness)}\n`,
    table([sourceHead, ...sources.map(sourceRow)]),
    ...sources.flatMap(pauseLine),
    '',
    table([typeHead, ...types.map(typeRow)]),
    ...types.flatMap(errorLine),
  ].join('\n');
}

function headline({ at, workers, planned_at: planned }: Overview): string {
  const age = planned === null ? undefined : (Date.parse(at) - Date.parse(planned)) / 1_000;
  const planner = age === undefined ? 'the planner has not run yet' : `planner ${seconds(age)} ago`;
  const working = workers === 0 ? 'no worker' : counted(workers, 'worker');
  return `pgfresh  ${timeText(at)}  ${working}, ${planner}`;
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
    .map(([name, count]) => `${count} ${name}${name === 'empty' && kept > 0 ? ` with ${kept} old rows kept` : ''}`);
  const ages = p50 === null ? '' : `; age ${seconds(p50)} at the median, ${seconds(p95!)} at 95 %`;
  return `${styleText('bold', good)} for ${counted(viewers, 'view')} of ${counted(pairs, 'pair')} (${counts.join(', ')})${ages}`;
}

const sourceHead = ['source', 'state', 'calls/min', 'this hour', 'bytes', 'ready', 'waiting', 'running'];

function sourceRow(source: SourceOverview): string[] {
  return [
    source.source,
    source.state,
    source.calls_limit === null ? 'no limit' : `${source.calls_minute} of ${source.calls_limit}`,
    `${source.calls_hour} calls, ${sizeText(source.bytes_hour)}`,
    source.quota_cap === null
      ? 'no limit'
      : `${sizeText(source.quota_used! + source.quota_reserved!)} of ${sizeText(source.quota_cap)}`,
    String(source.ready),
    String(source.waiting),
    String(source.running),
  ];
}

function pauseLine({ source, state, pause_reason: why, paused_until: until }: SourceOverview): string[] {
  if (goodStates.includes(state)) return [];
  const rest = [until === null || until === 'infinity' ? '' : ` until ${timeText(until)}`, why ? `: ${why}` : ''];
  return [`${styleText('yellow', `${source} is not called (${state})`)}${rest.join('')}`];
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

function typeRow(type: TypeOverview): string[] {
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
    String(type.ready + type.waiting),
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
