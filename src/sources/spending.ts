import type { Source } from '../config/index.ts';
import type { Queryable } from '../database/index.ts';
import { problemOf } from '../errors/index.ts';
import { ApiKeys } from './api-keys.ts';
import { listSources, notesOf, type SourceHealth } from './health.ts';

/** Spends nothing from now on, with any source. False if it was stopped already. */
export async function stopSpending(db: Queryable, reason: string): Promise<boolean> {
  const [row] = await db.query<{ done: boolean }>('select pgfresh.stop_spending($1::text) as done', [reason]);
  return row!.done;
}

/** Undoes `stopSpending`. False if nothing was stopped. */
export async function resumeSpending(db: Queryable): Promise<boolean> {
  const [row] = await db.query<{ done: boolean }>('select pgfresh.resume_spending() as done');
  return row!.done;
}

/** One check of the sources that was made; `pgfresh check` shows it beside its own. */
interface SourceFinding {
  readonly name: string;
  readonly state: 'ok' | 'warning';
  readonly detail: string;
  readonly next?: string;
}

const troubles: Readonly<Partial<Record<SourceHealth['state'], string>>> = {
  paused: 'Run "pgfresh source resume" when it may be called again.',
  breaker: 'Nothing has to be done: one job tries later whether it is back. "pgfresh source resume" tries now.',
  probing: 'Nothing has to be done: one job at a time tries whether it is back.',
  quota: 'Wait until usage leaves the window, raise its quota, or correct the ledger with "pgfresh source calibrate".',
};

/** What keeps sources from being called that somebody should know of. */
export async function examineSources(db: Queryable): Promise<SourceFinding[]> {
  const stops = await db.query<{ reason: string }>('select reason from pgfresh.spending_stop');
  const sources = await listSources(db);
  const findings = sources.flatMap((health): SourceFinding[] => {
    const { source, state, denied_keys: denied, paused_types: types, overrides } = health;
    const next =
      troubles[state] ??
      (denied.length > 0 || types.length > 0
        ? `Look at "pgfresh source show ${source}"; one job tries later, and "pgfresh source resume ${source}" tries now.`
        : Object.keys(overrides).length > 0
          ? `Run "pgfresh source clear ${source}" to follow the configuration.`
          : undefined);
    const detail = [state, ...notesOf(health)].join(': ');
    return next === undefined ? [] : [{ name: `source ${source}`, state: 'warning', detail, next }];
  });
  const spending: SourceFinding[] = stops.map(({ reason }) => ({
    name: 'spending',
    state: 'warning',
    detail: `stopped: ${reason}`,
    next: 'Run "pgfresh resume-spending" when it may go on.',
  }));
  const count = `${sources.length} source${sources.length === 1 ? '' : 's'}`;
  return [{ name: 'sources', state: 'ok', detail: count }, ...spending, ...findings];
}

/** Whether the API keys are where the configuration says. */
export function examineApiKeys({ sources }: { readonly sources: readonly Source[] }): Promise<SourceFinding[]> {
  return Promise.all(sources.filter(({ apiKeys }) => apiKeys.length > 0).map(examineKeys));
}

/** Where nobody calls a source its keys may be missing, for instance in CI. */
async function examineKeys({ name: source, apiKeys }: Source): Promise<SourceFinding> {
  const name = `API keys of ${source}`;
  const read = new ApiKeys(apiKeys, process.env);
  const problems = await Promise.all(apiKeys.map((_, number) => read.key(number).then(() => undefined, problemOf)));
  const missing = problems.filter((problem) => problem !== undefined);
  if (missing.length === 0) return { name, state: 'ok', detail: `${apiKeys.length} there` };
  const next = 'Put them there wherever a worker runs; without them its calls fail.';
  return { name, state: 'warning', detail: missing.join('; '), next };
}
