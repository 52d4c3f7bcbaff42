import { BreakMenu } from './break-menu.tsx';
import { ConnectionSign, useConnection } from './connection.tsx';
import { lifetimesOf, LifetimesContext } from './lifetime.ts';
import { ListingContext, useListing } from './listing.ts';
import { Mark } from './mark.tsx';
import { Notice } from './notice.tsx';
import { usePlace } from './place.ts';
import { usePolled } from './poll.ts';
import { Search } from './search.tsx';
import { Strip } from './strip.tsx';
import { SymbolPage } from './symbol-page.tsx';
import type { Overview, Trouble } from './server.ts';
import { useWatchlist } from './watched.ts';
import { Watchlist } from './watchlist.tsx';

/** The whole page. */
export function Board() {
  const connection = useConnection();
  const isLive = connection === 'live';
  const overview = usePolled<Overview>('/api/overview', 1_000, isLive);
  const provider = usePolled<{ trouble: Trouble }>('/dev/provider', 2_000, isLive);
  const listing = useListing(isLive);
  const watchlist = useWatchlist();
  const [symbol, go] = usePlace(watchlist.symbols[0] ?? 'DIS.X');
  const trouble = provider.value?.trouble ?? 'none';
  const changed = (): void => {
    provider.again();
    overview.again();
  };
  return (
    <ListingContext value={listing}>
      <button type="button" className="skip" onClick={() => document.getElementById('symbol')?.focus()}>
        Skip to the symbol
      </button>
      <header className="top">
        <div className="brand">
          <Mark />
          <h1>
            pgfresh <span>market</span>
          </h1>
        </div>
        <ConnectionSign connection={connection} />
        <nav aria-label="Board">
          <a className="plain" href={`#${symbol}`} target="_blank" rel="noreferrer">
            Open it twice
          </a>
          <a className="plain" href="/status">
            Status
          </a>
        </nav>
        <BreakMenu trouble={trouble} onChange={changed} />
      </header>
      <Strip overview={overview.value} isLive={isLive} />
      <Notice connection={connection} trouble={trouble} overview={overview.value} onChange={changed} />
      <LifetimesContext value={lifetimesOf(overview.value)}>
        <div className="desk">
          <aside aria-label="Watchlist">
            <Search onPick={go} />
            <Watchlist {...watchlist} current={symbol} onPick={go} />
          </aside>
          <main id="symbol" tabIndex={-1}>
            <SymbolPage key={symbol} symbol={symbol} watchlist={watchlist} />
          </main>
        </div>
      </LifetimesContext>
      <footer className="foot">
        Tickers are real, figures are made up. Simulated people look at this market too, and share every call with you.
      </footer>
    </ListingContext>
  );
}
