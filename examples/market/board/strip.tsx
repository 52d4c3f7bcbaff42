import type { ReactNode } from 'react';
import { bytes, duration, percent, whole } from './format.ts';
import type { Overview } from './server.ts';
import { Spark } from './spark.tsx';
import { useTrail } from './trail.ts';

/** Current cost and benefit. */
export function Strip({ overview, isLive }: { readonly overview: Overview | undefined; readonly isLive: boolean }) {
  const [source] = overview?.sources ?? [];
  const { freshness } = overview ?? {};
  const share = freshness?.viewer_share ?? undefined;
  const half = freshness?.age_p50 ?? undefined;
  const viewers = useTrail(freshness?.viewers, overview?.at);
  const calls = source?.calls_minute ?? 0;
  const limit = source?.calls_limit ?? undefined;
  const used = (source?.quota_used ?? 0) + (source?.quota_reserved ?? 0);
  const cap = source?.quota_cap ?? undefined;
  const known = (text: string): string => (overview ? text : '–');
  return (
    <section className={isLive ? 'strip' : 'strip old'} aria-label="What this costs now" aria-busy={!overview}>
      <Tile name="Calls this minute" value={known(whole(calls))} of={limit === undefined ? undefined : whole(limit)}>
        <Meter name="Calls of the limit" share={limit === undefined ? 0 : calls / limit} />
      </Tile>
      <Tile name="Bytes this month" value={known(bytes(used))} of={cap === undefined ? undefined : bytes(cap)}>
        <Meter name="Bytes of the quota" share={cap === undefined ? 0 : used / cap} />
      </Tile>
      <Tile name="Views" value={known(whole(freshness?.viewers ?? 0))}>
        <Spark values={viewers} from={Math.min(...viewers) * 0.8} />
      </Tile>
      <Tile name="Pairs they share" value={known(whole(freshness?.pairs ?? 0))}>
        <Shares {...freshness} />
      </Tile>
      <Tile name="Fresh now" value={share === undefined ? '–' : percent(share)} tone={toneOf(share ?? 1)}>
        <p className="soft">
          {half === undefined ? 'of what people look at' : `half is younger than ${duration(half * 1_000)}`}
        </p>
      </Tile>
    </section>
  );
}

function toneOf(share: number): 'good' | 'fair' | 'bad' {
  if (share >= 0.8) return 'good';
  return share >= 0.5 ? 'fair' : 'bad';
}

interface TileProps {
  readonly name: string;
  readonly value: string;
  readonly of?: string | undefined;
  readonly tone?: 'good' | 'fair' | 'bad';
  readonly children: ReactNode;
}

function Tile({ name, value, of, tone, children }: TileProps) {
  return (
    <div className="tile">
      <h2>{name}</h2>
      <p className={tone ? `figure ${tone}` : 'figure'}>
        {value}
        {of !== undefined && <small> of {of}</small>}
      </p>
      {children}
    </div>
  );
}

function Meter({ name, share }: { readonly name: string; readonly share: number }) {
  const shown = Math.min(1, Math.max(0, share));
  return (
    <div
      className={shown > 0.9 ? 'meter full' : 'meter'}
      role="meter"
      aria-label={name}
      aria-valuemin={0}
      aria-valuemax={100}
      aria-valuenow={Math.round(shown * 100)}
    >
      <span style={{ width: `${shown * 100}%` }} />
    </div>
  );
}

/** The states of the viewed pairs. */
function Shares(counts: Partial<Overview['freshness']>) {
  const { fresh = 0, empty = 0, kept = 0, stale = 0, older_source: older = 0, missing = 0 } = counts;
  const parts = {
    fresh,
    empty: empty - kept,
    stale,
    'stale at the source': older,
    'gone at the source': kept,
    missing,
  };
  const words = Object.entries(parts)
    .filter(([, count]) => count > 0)
    .map(([name, count]) => `${count} ${name}`)
    .join(', ');
  return (
    <div className="shares" role="img" aria-label={words || 'none'} title={words}>
      {Object.entries(parts).map(([name, count]) => (
        <span key={name} className={name.replaceAll(' ', '-')} style={{ flexGrow: count }} />
      ))}
    </div>
  );
}
