import type { Queryable } from '../database/index.ts';

/** How fresh the viewed pairs are, of a data type or of all. */
export interface Freshness {
  readonly pairs: number;
  /** Views of these pairs: who looks at three of them counts three times. */
  readonly viewers: number;
  readonly fresh: number;
  readonly stale: number;
  readonly missing: number;
  /** The source says that there is nothing. */
  readonly empty: number;
  /** Past their TTL, and the source answers with something older. */
  readonly older_source: number;
  /** Those of the empty ones whose old row is kept, and is what viewers see. */
  readonly kept: number;
  /** Those that were refreshed in the last minute. */
  readonly refreshed: number;
  /** Those that are as they should be, fresh or empty without a kept row, of all; from 0 to 1, null if there are none. */
  readonly share: number | null;
  /** The same, each pair as often as it is looked at. */
  readonly viewer_share: number | null;
  /** Seconds since the row was fetched or confirmed, for half and for 95 % of the views. */
  readonly age_p50: number | null;
  readonly age_p95: number | null;
  /** How old the data is at the source, for half of the pairs whose data type tells. */
  readonly source_age_p50: number | null;
}

/** Open jobs: ready to be claimed, waiting for their time, and running. Each is counted up to 10,000 a source. */
interface OpenJobs {
  readonly ready: number;
  readonly waiting: number;
  readonly running: number;
}

export interface TypeOverview extends Freshness, OpenJobs {
  readonly data_type: string;
  readonly source: string;
  readonly ttl_seconds: number;
  /** What keeps pairs that are not as they should be from a job, as the planner's last look found: gate, dependency, … */
  readonly waits_for: Readonly<Record<string, number>>;
  /** How the viewed pairs last ended. */
  readonly outcomes: Readonly<Record<string, number>>;
  /** Why one of those that wait has failed. */
  readonly error: string | null;
}

export interface SourceOverview extends OpenJobs {
  readonly source: string;
  readonly state: string;
  readonly paused_until: string | null;
  readonly pause_reason: string | null;
  readonly failure_streak: number;
  readonly last_success_at: string | null;
  /** Null without a limit. */
  readonly calls_limit: number | null;
  readonly calls_minute: number | null;
  readonly calls_hour: number;
  readonly bytes_hour: number;
  readonly quota_cap: number | null;
  readonly quota_used: number | null;
  readonly quota_reserved: number | null;
  readonly quota_free: number | null;
  /** When bytes may be used again; null if they may now. */
  readonly quota_until: string | null;
}

/** What is not called or not refreshed: a source, an API key of it, or a data type. */
export interface OverviewProblem {
  readonly source: string;
  readonly data_type: string | null;
  readonly api_key: number | null;
  /** The state of the source; `refused` of an API key; `paused`, `no_worker`, `quarantined` or `unresolved` of a data type. */
  readonly reason: string;
  /** `infinity`, or null, without an end. */
  readonly until: string | null;
  readonly message: string | null;
  readonly next_step: string | null;
}

/** The words of `pgfresh_engine.state_of`. */
export const countedStates = [
  'fresh',
  'stale',
  'missing',
  'empty',
  'older_source',
] as const satisfies readonly (keyof Freshness)[];

/** Everything at a glance, as `pgfresh_engine.overview` says it. */
export interface Overview {
  readonly at: string;
  readonly problems: readonly OverviewProblem[];
  readonly freshness: Freshness;
  readonly types: readonly TypeOverview[];
  readonly sources: readonly SourceOverview[];
  readonly stopped: { readonly since: string; readonly reason: string } | null;
  readonly workers: number;
  /** Whether a planner process runs. */
  readonly planning: boolean;
  /** For how long what is due has waited for a tick. */
  readonly overdue_seconds: number;
  /** When a tick last found something due. */
  readonly planned_at: string | null;
}

/** Undefined where there is no database yet. */
export async function readOverview(db: Queryable): Promise<Overview | undefined> {
  const [row] = await db.query<{ overview: Overview }>('select pgfresh_engine.overview() as overview');
  return row?.overview;
}

const goodForMs = 1_000;

/** One answer for any number of pages that ask: it is read once a second at the most. */
export function shared<T>(read: () => Promise<T>): () => Promise<T> {
  let readAt = -Infinity;
  let reading = false;
  let last: Promise<T>;
  return () => {
    if (!reading && performance.now() - readAt >= goodForMs) {
      [readAt, reading] = [performance.now(), true];
      last = read().finally(() => (reading = false));
    }
    return last;
  };
}
