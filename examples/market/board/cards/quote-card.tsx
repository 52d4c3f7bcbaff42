import { useFresh } from 'pgfresh/react';
import { Card } from '../card.tsx';
import { Chart } from '../chart.tsx';
import { Facts } from '../facts.tsx';
import { compact, decimal, percent, price, signed } from '../format.ts';
import { useExchange } from '../listing.ts';
import { usePrices } from '../prices.ts';
import { Pulse } from '../pulse.tsx';

export function QuoteCard({ symbol }: { readonly symbol: string }) {
  const quote = useFresh('quote', symbol);
  const { data } = quote;
  const points = usePrices(symbol, data);
  const exchange = useExchange(symbol);
  const tone = (data?.change ?? 0) < 0 ? 'down' : 'up';
  return (
    <Card title="Quote" type="quote" symbol={symbol} fresh={quote} isClosed={exchange?.open === false} lines={6}>
      {data && (
        <>
          <p className="price">
            <Pulse value={data.price}>{price(data.price, data.currency)}</Pulse>
            <span className={`move ${tone}`}>
              {signed(data.change, decimal)} ({signed(data.change_percent, (size) => percent(size / 100, 2))})
            </span>
          </p>
          <Chart name={symbol} points={points} currency={data.currency} previousClose={data.previous_close} />
          <Facts
            facts={[
              ['Open', price(data.open, data.currency)],
              ['Day’s range', `${decimal(data.low)} – ${decimal(data.high)}`],
              ['Previous close', price(data.previous_close, data.currency)],
              ['Volume', compact(data.volume)],
              ['Average volume', compact(data.average_volume)],
              ['Market value', compact(data.market_cap)],
            ]}
          />
        </>
      )}
    </Card>
  );
}
