import { useFreshClient, usePresence } from 'pgfresh/react';
import { useId, type ReactNode } from 'react';
import { useNow } from './clock.ts';
import { conditionOf } from './condition.ts';
import { clock, duration } from './format.ts';
import { Freshness } from './freshness.tsx';
import { useConfirmation } from './lifetime.ts';
import { useRefresh, type Refreshable } from './refresh.ts';

interface CardProps {
  readonly title: string;
  readonly type: 'quote' | 'profile' | 'ratios-ttm' | 'financial-statements' | 'dividend-history';
  readonly symbol: string;
  readonly fresh: Refreshable;
  /** Whether its exchange is closed. */
  readonly isClosed?: boolean | undefined;
  /** How many placeholder lines to show. */
  readonly lines?: number;
  readonly children: ReactNode;
}

/** A pair on the page: its data, its age, why it waits, and the other viewers. */
export function Card({ title, type, symbol, fresh, isClosed, lines = 4, children }: CardProps) {
  useNow();
  const id = useId();
  const now = useFreshClient().now();
  const viewers = usePresence(type, symbol);
  const condition = conditionOf(fresh, isClosed);
  const isConfirmed = useConfirmation(type, fresh) !== undefined;
  const { isAsked, answer, ask } = useRefresh(fresh);
  const until = fresh.until && fresh.until.getTime() > now ? ` Until ${clock(fresh.until.getTime())}.` : '';
  const why =
    condition === 'resting'
      ? 'Its exchange is closed, so there is nothing newer.'
      : [
          condition === 'older' && 'The source answers with older data.',
          isConfirmed && `Fetched ${duration(now - fresh.fetchedAt!.getTime())} ago, and unchanged at the source.`,
          fresh.error?.message,
          fresh.words + until,
          condition === 'gone' && 'This is what was there before.',
        ]
          .filter(Boolean)
          .join(' ');
  return (
    <section className={`card ${type} ${condition}`} aria-labelledby={id} data-version={fresh.version}>
      <header>
        <h3 id={id}>{title}</h3>
        <Freshness type={type} fresh={fresh} isClosed={isClosed} />
        <button
          type="button"
          className={isAsked ? 'again asked' : 'again'}
          aria-busy={isAsked}
          aria-label={`Refresh ${title.toLowerCase()} now`}
          title="Refresh now"
          onClick={ask}
        >
          <svg viewBox="0 0 16 16" aria-hidden="true">
            <path d="M13 8a5 5 0 1 1-1.5-3.6M13 2.5v3h-3" />
          </svg>
        </button>
      </header>
      {fresh.rows.length > 0 || condition === 'empty' ? (
        children || <p className="about">There is none.</p>
      ) : (
        <Bones lines={lines} />
      )}
      <footer>
        <p className="why">{answer ?? why}</p>
        {fresh.sourceAt && <SourceAge ms={now - fresh.sourceAt.getTime()} />}
        {viewers !== undefined && viewers > 0 && <Viewers count={viewers} />}
      </footer>
    </section>
  );
}

/** How old the data was where it comes from. */
function SourceAge({ ms }: { readonly ms: number }) {
  return <p className="at-source">at the source {duration(ms)}</p>;
}

function Viewers({ count }: { readonly count: number }) {
  return (
    <p className="viewers">
      <svg viewBox="0 0 16 16" aria-hidden="true">
        <path d="M1.5 8S4 3.5 8 3.5 14.5 8 14.5 8 12 12.5 8 12.5 1.5 8 1.5 8Z" />
        <circle cx="8" cy="8" r="2" />
      </svg>
      {count === 1 ? '1 viewer' : `${count} viewers, one call`}
    </p>
  );
}

/** Placeholder for coming data. */
function Bones({ lines }: { readonly lines: number }) {
  return (
    <div className="bones" aria-hidden="true">
      {Array.from({ length: lines }, (_, line) => (
        <i key={line} className="bone" />
      ))}
    </div>
  );
}
