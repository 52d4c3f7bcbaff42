/** The part of `/api/overview` that the board reads. */
export interface Overview {
  readonly at: string;
  readonly freshness: {
    readonly pairs: number;
    readonly viewers: number;
    readonly fresh: number;
    readonly stale: number;
    readonly missing: number;
    readonly empty: number;
    readonly kept: number;
    readonly older_source: number;
    readonly viewer_share: number | null;
    readonly age_p50: number | null;
    readonly age_p95: number | null;
  };
  readonly sources: readonly {
    readonly source: string;
    readonly state: string;
    readonly paused_until: string | null;
    readonly calls_limit: number | null;
    readonly calls_minute: number | null;
    readonly quota_cap: number | null;
    readonly quota_used: number | null;
    readonly quota_reserved: number | null;
    readonly ready: number;
    readonly waiting: number;
  }[];
  readonly types: readonly { readonly data_type: string; readonly ttl_seconds: number }[];
  /** What is not called or refreshed now: a source, or one of its data types. */
  readonly problems: readonly { readonly data_type: string | null; readonly until: string | null }[];
  readonly stopped: object | null;
}

/** The provider's trouble; `other` was set by hand. */
export type Trouble = 'none' | 'down' | 'slow' | 'lying' | 'stuck' | 'locked' | 'changed' | 'gone' | 'other';

export interface Listing {
  readonly symbols: readonly { readonly symbol: string; readonly exchange: string; readonly name: string | null }[];
  readonly exchanges: readonly {
    readonly exchange: string;
    readonly name: string;
    readonly open: boolean;
    readonly opens_at: string | null;
  }[];
}

/** Posts to the server. Returns whether it was accepted. */
export async function tell(method: 'PUT' | 'POST', path: string, body: object = {}): Promise<boolean> {
  const sent = await fetch(path, { method, body: JSON.stringify(body) }).catch(() => undefined);
  return sent?.ok ?? false;
}
