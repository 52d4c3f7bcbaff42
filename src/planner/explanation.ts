import type { Queryable } from '../database/index.ts';
import type { Activity, DataState, Reason } from './pair-state.ts';

/** Everything that affects a pair now, as returned by `pgfresh.explain_pair`. */
export interface Explanation {
  readonly data_type: string;
  readonly key: string;
  readonly state: DataState;
  readonly activity: Activity;
  /** Why it waits; null if it does not. */
  readonly reason: Reason | null;
  /** The reason as a sentence, with details for operators. */
  readonly words: string;
  readonly since: string | null;
  readonly until: string | null;
  /** Other obstacles to its refresh, longest-lasting first. */
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
  /** When the source last confirmed the row. */
  readonly confirmed_at: string | null;
  readonly stale_at: string | null;
  readonly age_seconds: number | null;
  readonly ttl_seconds: number;
  /** The time of the data at the source, if its data type has one. */
  readonly source_at: string | null;
  readonly source_age_seconds: number | null;
  /** When it is checked next, or its wait ends; null if unknown, and while it has a job. */
  readonly due_at: string | null;
  /** Its last outcome defers the next fetch until then. */
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
  /** The outcome of the last attempt, including attempts that will be retried. */
  readonly last_outcome: string | null;
  readonly last_outcome_at: string | null;
  readonly last_success_at: string | null;
  readonly failures_in_a_row: number;
  /** Newest first: the last success, the last failed jobs, and the last retried attempts. */
  readonly outcomes: readonly {
    readonly job: number;
    readonly attempt: number;
    /** The state of the job after it. */
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
