import type { Queryable } from '../database/index.ts';

/** How fresh the viewed pairs are, per data type or in total. */
export interface Freshness {
  readonly pairs: number;
  /** Views of these pairs: a viewer of three pairs counts three times. */
  readonly viewers: number;
  readonly fresh: number;
  readonly stale: number;
  readonly missing: number;
  /** The source has no data for them. */
  readonly empty: number;
  /** Past their TTL, and the source returned older data. */
  readonly older_source: number;
  /** Empty pairs whose old row is kept and shown to viewers. */
  readonly kept: number;
  /** Pairs refreshed in the last minute. */
  readonly refreshed: number;
  /** The share of pairs that are fresh, or empty without a kept row, from 0 to 1; null without pairs. */
  readonly share: number | null;
  /** The same, weighted by viewers. */
  readonly viewer_share: number | null;
  /** Seconds since the row was fetched or confirmed, for half and for 95 % of the views. */
  readonly age_p50: number | null;
  readonly age_p95: number | null;
  /** The median age of the data at the source, for data types that report it. */
  readonly source_age_p50: number | null;
}

/** Open jobs: ready to be claimed, waiting for their time, and running. Each counted up to 10,000 per source. */
interface OpenJobs {
  readonly ready: number;
  readonly waiting: number;
  readonly running: number;
}

export interface TypeOverview extends Freshness, OpenJobs {
  readonly data_type: string;
  readonly source: string;
  readonly ttl_seconds: number;
  /** Why pairs that need a refresh have no job, by reason, as last found by the planner: gate, dependency, … */
  readonly waits_for: Readonly<Record<string, number>>;
  /** The last outcomes of the viewed pairs. */
  readonly outcomes: Readonly<Record<string, number>>;
  /** The error of one of the waiting pairs. */
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

/** A source or API key that is not called, or a data type that is not refreshed. */
export interface OverviewProblem {
  readonly source: string;
  readonly data_type: string | null;
  readonly api_key: number | null;
  /** A source's state; `refused` for an API key; `paused`, `no_worker`, `quarantined` or `unresolved` for a data type. */
  readonly reason: string;
  /** `infinity` or null if it has no end. */
  readonly until: string | null;
  readonly message: string | null;
  readonly next_step: string | null;
}

/** The states of `pgfresh_engine.state_of`. */
export const countedStates = [
  'fresh',
  'stale',
  'missing',
  'empty',
  'older_source',
] as const satisfies readonly (keyof Freshness)[];

/** The result of `pgfresh_engine.overview`. */
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
  /** How long the oldest due pair has waited for a tick. */
  readonly overdue_seconds: number;
  /** When a tick last found a due pair. */
  readonly planned_at: string | null;
}

/** Undefined where there is no database yet. */
export async function readOverview(db: Queryable): Promise<Overview | undefined> {
  const [row] = await db.query<{ overview: Overview }>('select pgfresh_engine.overview() as overview');
  return row?.overview;
}

const cacheMs = 1_000;

/** Caches a read for a second, and shares it among concurrent callers. */
export function shared<T>(read: () => Promise<T>): () => Promise<T> {
  let readAt = -Infinity;
  let reading = false;
  let last: Promise<T>;
  return () => {
    if (!reading && performance.now() - readAt >= cacheMs) {
      [readAt, reading] = [performance.now(), true];
      last = read().finally(() => (reading = false));
    }
    return last;
  };
}
