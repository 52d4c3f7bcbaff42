import { timeText, type Source } from '../config/index.ts';
import type { Queryable } from '../database/index.ts';
import { problemOf } from '../errors/index.ts';
import { ApiKeys } from './api-keys.ts';
import { listSources, overrideNotes, type SourceHealth } from './health.ts';

/** The result of one check of the sources, shown by `pgfresh check`. */
interface SourceFinding {
  readonly name: string;
  readonly state: 'ok' | 'warning';
  readonly detail: string;
  readonly next?: string;
}

/** One finding per reason why a source is not called. */
export async function examineSources(db: Queryable): Promise<SourceFinding[]> {
  const stops = await db.query<{ reason: string }>('select reason from pgfresh.spending_stop');
  const sources = await listSources(db);
  const spending = stops.map(({ reason }) =>
    warning('spending', `stopped: ${reason}`, 'Run "pgfresh resume-spending" when it may go on.'),
  );
  const count = `${sources.length} source${sources.length === 1 ? '' : 's'}`;
  return [{ name: 'sources', state: 'ok', detail: count }, ...spending, ...sources.flatMap(findingsOf)];
}

function findingsOf(health: SourceHealth): SourceFinding[] {
  const { source, denied_keys: denied, paused_types: types, api_keys: keys } = health;
  const name = `source ${source}`;
  const obstacle = obstacleOf(health);
  const overrides = overrideNotes(health);
  // If no key is accepted, the source itself is reported instead.
  const refused = denied.length < keys ? denied : [];
  return [
    ...(obstacle === undefined ? [] : [warning(name, ...obstacle)]),
    ...refused.map((key) => warning(name, `the provider refuses API key ${key}`, renew(source))),
    ...types.map(({ data_type: type, kind, until, reason }) =>
      warning(`data type ${type}`, `paused until ${timeText(until)}: ${reason}`, nextOfType(kind, type, source)),
    ),
    ...(overrides.length === 0
      ? []
      : [warning(name, overrides.join('; '), `Run "pgfresh source clear ${source}" to follow the configuration.`)]),
  ];
}

/** Why a source is not called now, and what to do. */
function obstacleOf(health: SourceHealth): [detail: string, next: string] | undefined {
  const { source, state, paused_until: until, pause_reason: reason, quota_until, denied_keys: denied } = health;
  const end = until === null || until === 'infinity' ? '' : ` until ${timeText(until)}`;
  const why = reason === null ? '' : `: ${reason}`;
  const resume = `"pgfresh source resume ${source}"`;
  if (denied.length >= health.api_keys)
    return [`not called${end}${why || ': its API keys are refused'}`, renew(source)];
  // While spending is stopped, every source is in state `stopped`, so look at its pause.
  const isPaused = state === 'paused' || (state === 'stopped' && until !== null);
  if (isPaused) return [`paused${end}${why}`, `Run ${resume} when it may be called again.`];
  if (state === 'breaker') return [`breaker${end}${why}`, `${tried} ${resume} tries now.`];
  if (state === 'probing') return ['probing: one job at a time tries whether it is back', 'Nothing has to be done.'];
  if (state === 'held') return [`held by the provider${end}${why}`, `Nothing has to be done. ${resume} ends it.`];
  if (state !== 'quota') return undefined;
  return [
    `quota used up${quota_until === null ? '' : ` until ${timeText(quota_until)}`}`,
    `Wait until usage leaves the window, raise its quota, or correct the ledger with "pgfresh source calibrate ${source} <used>".`,
  ];
}

const tried = 'Nothing has to be done: one job tries later whether it is back.';

function renew(source: string): string {
  return `Renew the API key, then run "pgfresh source resume ${source}".`;
}

function nextOfType(kind: SourceHealth['paused_types'][number]['kind'], type: string, source: string): string {
  const now = `One job tries later; "pgfresh source resume ${source}" tries now.`;
  return kind === 'refused'
    ? `Compare an answer with the definition ("pgfresh refused list ${type}"). ${now}`
    : `Ask the provider why its data does not move on. ${now}`;
}

function warning(name: string, detail: string, next: string): SourceFinding {
  return { name, state: 'warning', detail, next };
}

/** Whether the API keys are present where the configuration says. */
export function examineApiKeys({ sources }: { readonly sources: readonly Source[] }): Promise<SourceFinding[]> {
  return Promise.all(sources.filter(({ apiKeys }) => apiKeys.length > 0).map(examineKeys));
}

/** Processes that call no source, for example in CI, may lack the API keys. */
async function examineKeys({ name: source, apiKeys }: Source): Promise<SourceFinding> {
  const name = `API keys of ${source}`;
  const read = new ApiKeys(apiKeys, process.env);
  const problems = await Promise.all(apiKeys.map((_, number) => read.key(number).then(() => undefined, problemOf)));
  const missing = problems.filter((problem) => problem !== undefined);
  if (missing.length === 0) return { name, state: 'ok', detail: `${apiKeys.length} there` };
  const next = 'Put them there wherever a worker runs; without them its calls fail.';
  return { name, state: 'warning', detail: missing.join('; '), next };
}
