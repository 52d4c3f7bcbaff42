import type { Fresh } from 'pgfresh/client';
import { useFreshClient, useFreshStatus } from 'pgfresh/react';
import { useNow } from './clock.ts';
import { conditionOf, type Condition } from './condition.ts';
import { duration } from './format.ts';
import { useConfirmation } from './lifetime.ts';

const words: Readonly<Record<Condition, string>> = {
  fresh: 'fresh',
  stale: 'stale',
  older: 'stale at the source',
  failing: 'failing',
  missing: 'not there yet',
  resting: 'exchange closed',
  empty: 'nothing there',
  gone: 'gone at the source',
};

interface FreshnessProps {
  readonly type: string;
  readonly fresh: Fresh<unknown>;
  /** Whether its exchange is closed. */
  readonly isClosed?: boolean | undefined;
  /** Only the ring and the age, where there is no room. */
  readonly isShort?: boolean;
}

/** The state of a value, its age, and a ring that empties until it is stale. The ring turns while it is refreshed. */
export function Freshness({ type, fresh, isClosed, isShort = false }: FreshnessProps) {
  useNow();
  const now = useFreshClient().now();
  const isAway = useFreshStatus() !== 'live';
  const condition = conditionOf(fresh, isClosed);
  const { fetchedAt, staleAt } = fresh;
  const confirmedAt = useConfirmation(type, fresh);
  const since = confirmedAt ?? fetchedAt;
  const isRefreshing = fresh.activity === 'refreshing' && !isAway;
  const age = since && now - since.getTime();
  const left = since && staleAt ? (staleAt.getTime() - now) / (staleAt.getTime() - since.getTime()) : 0;
  // Unknown while disconnected.
  const isLast = isAway && condition !== 'missing';
  const word = isLast ? 'last known' : `${words[condition]}${isRefreshing ? ', being refreshed' : ''}`;
  return (
    <span className={`freshness ${isLast ? 'stale' : condition}${isRefreshing ? ' fetching' : ''}`}>
      <svg viewBox="0 0 16 16" aria-hidden="true">
        <circle cx="8" cy="8" r="6" pathLength="1" />
        <circle cx="8" cy="8" r="6" pathLength="1" className="left" strokeDasharray={`${clamp(left)} 1`} />
      </svg>
      {!isShort && <span className="word">{word}</span>}
      {age !== null && (
        <time dateTime={since!.toISOString()}>
          <span className="hidden">{isShort ? `${word}, ` : ''}age </span>
          {confirmedAt && (isShort ? <span className="hidden">since it was confirmed </span> : 'confirmed ')}
          {duration(age)}
        </time>
      )}
      {age === null && isShort && <span className="hidden">{word}</span>}
    </span>
  );
}

function clamp(share: number): number {
  return Math.max(0, Math.min(1, share));
}
