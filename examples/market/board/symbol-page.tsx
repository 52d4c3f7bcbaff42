import { useFresh } from 'pgfresh/react';
import { DividendsCard } from './cards/dividends-card.tsx';
import { ProfileCard } from './cards/profile-card.tsx';
import { QuoteCard } from './cards/quote-card.tsx';
import { RatiosCard } from './cards/ratios-card.tsx';
import { StatementsCard } from './cards/statements-card.tsx';
import { useNow } from './clock.ts';
import { soon } from './format.ts';
import { useExchange } from './listing.ts';
import type { WatchedSymbols } from './watched.ts';

interface SymbolPageProps {
  readonly symbol: string;
  readonly watchlist: WatchedSymbols;
}

/** Everything about one symbol. */
export function SymbolPage({ symbol, watchlist }: SymbolPageProps) {
  const profile = useFresh('profile', symbol);
  const exchange = useExchange(symbol);
  const now = useNow();
  const isWatched = watchlist.symbols.includes(symbol);
  if (profile.state === 'refused')
    return (
      <div className="refused" role="alert">
        <h2>{symbol}</h2>
        <p>
          {profile.error?.code === 'PGF_KEY_UNKNOWN'
            ? 'There is no such symbol. Search for one by its ticker or its company.'
            : profile.error?.message}
        </p>
      </div>
    );
  return (
    <>
      <title>{`${symbol} · pgfresh market`}</title>
      <header className="symbol">
        <div>
          <h2>{profile.data?.company_name ?? symbol}</h2>
          <p className="soft">
            {profile.data && <b>{symbol} · </b>}
            {exchange && (
              <>
                {exchange.name} ·{' '}
                <span className={exchange.open ? 'open' : ''}>
                  {exchange.open
                    ? 'open'
                    : `closed${exchange.opens_at ? ` until ${soon(exchange.opens_at, now)}` : ''}`}
                </span>
              </>
            )}
          </p>
        </div>
        <button type="button" className="button star" aria-pressed={isWatched} onClick={() => watchlist.toggle(symbol)}>
          <svg viewBox="0 0 16 16" aria-hidden="true">
            <path d="m8 1.8 1.9 3.9 4.3.6-3.1 3 .7 4.3L8 11.6l-3.8 2 .7-4.3-3.1-3 4.3-.6Z" />
          </svg>
          {isWatched ? 'Watched' : 'Watch'}
        </button>
      </header>
      <div className="cards">
        <div>
          <QuoteCard symbol={symbol} />
          <RatiosCard symbol={symbol} />
        </div>
        <div>
          <ProfileCard symbol={symbol} />
          <DividendsCard symbol={symbol} />
        </div>
        <StatementsCard symbol={symbol} />
      </div>
    </>
  );
}
