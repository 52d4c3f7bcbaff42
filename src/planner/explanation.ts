import type { Queryable } from '../database/index.ts';
import type { Activity, DataState, Reason } from './pair-state.ts';

/** Everything that decides about a pair now, as `pgfresh.explain_pair` says it. */
export interface Explanation {
  readonly data_type: string;
  readonly key: string;
  readonly state: DataState;
  readonly activity: Activity;
  /** Why it waits; null if it does not. */
  readonly reason: Reason | null;
  /** The same as a sentence, with details for operators. */
  readonly words: string;
  readonly since: string | null;
  readonly until: string | null;
  /** What else keeps it from being refreshed, what lasts longest first. */
  readonly obstacles: readonly {
    readonly reason: Reason;
    readonly words: string;
    readonly since: string | null;
    readonly until: string | null;
  }[];
  readonly viewers: number;
  readonly viewers_by: { readonly heartbeat: number; readonly gateway: number };
  readonly demanded: boolean;
  readonly data_at: string | null;
  /** When the source last said that the row still holds. */
  readonly confirmed_at: string | null;
  readonly stale_at: string | null;
  readonly age_seconds: number | null;
  readonly ttl_seconds: number;
  /** Of which time the data is at the source, if its data type tells. */
  readonly source_at: string | null;
  readonly source_age_seconds: number | null;
  /** When it is looked at next, or what it waits for ends; null if unknown, and while it has a job. */
  readonly due_at: string | null;
  /** Before which its last outcome leaves it alone. */
  readonly next_ask_at: string | null;
  readonly job: {
    readonly id: number;
    readonly status: 'pending' | 'running' | 'retryable';
    readonly priority: number;
    readonly attempt: number;
    readonly place: number | null;
    readonly error: string | null;
  } | null;
  readonly needs: string | null;
  readonly problem: string | null;
  /** That of the last attempt, also of a job that is tried again. */
  readonly last_outcome: string | null;
  readonly last_outcome_at: string | null;
  readonly last_success_at: string | null;
  readonly failures_in_a_row: number;
  /** The newest first: the last success, the last jobs that failed, and the last attempts that were tried again. */
  readonly outcomes: readonly {
    readonly job: number;
    readonly attempt: number;
    /** What became of the job. */
    readonly status: 'succeeded' | 'failed' | 'cancelled' | 'retryable' | 'pending';
    readonly ended_at: string;
    readonly outcome: string;
    readonly error: string | null;
    readonly bytes: number;
    readonly calls: number;
    readonly fetch_ms: number | null;
  }[];
}

export async function explainPair(db: Queryable, dataType: string, key: string): Promise<Explanation> {
  const explain = 'select pgfresh.explain_pair($1::text, $2::text) as explanation';
  const [row] = await db.query<{ explanation: Explanation }>(explain, [dataType, key]);
  return row!.explanation;
}
