import { useFresh } from 'pgfresh/react';
import { Freshness } from './freshness.tsx';
import { percent, price, signed } from './format.ts';
import { useExchange } from './listing.ts';
import { usePrices } from './prices.ts';
import { Pulse } from './pulse.tsx';
import { Spark } from './spark.tsx';
import type { WatchedSymbols } from './watched.ts';

interface WatchlistProps extends WatchedSymbols {
  readonly current: string;
  readonly onPick: (symbol: string) => void;
}

export function Watchlist({ symbols, current, onPick }: WatchlistProps) {
  if (symbols.length === 0)
    return <p className="unwatched">Nothing is watched. Search for a symbol, and add it with its star.</p>;
  return (
    <ul className="watchlist">
      {symbols.map((symbol) => (
        <li key={symbol}>
          <Watched symbol={symbol} isCurrent={symbol === current} onPick={onPick} />
        </li>
      ))}
    </ul>
  );
}

interface WatchedProps {
  readonly symbol: string;
  readonly isCurrent: boolean;
  readonly onPick: (symbol: string) => void;
}

function Watched({ symbol, isCurrent, onPick }: WatchedProps) {
  const quote = useFresh('quote', symbol);
  const { data } = quote;
  const points = usePrices(symbol, data).slice(-60);
  const exchange = useExchange(symbol);
  const isUp = (data?.change_percent ?? 0) >= 0;
  return (
    <button type="button" aria-current={isCurrent ? 'page' : undefined} onClick={() => onPick(symbol)}>
      <span className="ticker">{symbol}</span>
      <Freshness type="quote" fresh={quote} isClosed={exchange?.open === false} isShort />
      <Spark values={points.map(([, value]) => value)} />
      <span className="last">
        {data ? <Pulse value={data.price}>{price(data.price, data.currency)}</Pulse> : <i className="bone" />}
      </span>
      <span className={isUp ? 'move up' : 'move down'}>
        {data && signed(data.change_percent, (size) => percent(size / 100, 2))}
      </span>
    </button>
  );
}
