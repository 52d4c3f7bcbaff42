import { useFresh } from 'pgfresh/react';
import { Card } from '../card.tsx';
import { day, price } from '../format.ts';

const shown = 8;

export function DividendsCard({ symbol }: { readonly symbol: string }) {
  const dividends = useFresh('dividend-history', symbol);
  const paid = dividends.rows.toSorted((a, b) => (a.ex_date < b.ex_date ? 1 : -1)).slice(0, shown);
  const most = Math.max(...paid.map(({ amount }) => amount));
  return (
    <Card title="Dividends" type="dividend-history" symbol={symbol} fresh={dividends} lines={6}>
      {paid.length === 0 ? (
        <p className="about">{symbol} pays none.</p>
      ) : (
        <table>
          <caption className="hidden">The last dividends of {symbol}</caption>
          <thead>
            <tr>
              <th scope="col">Ex-date</th>
              <th scope="col">Paid on</th>
              <th scope="col">Amount</th>
            </tr>
          </thead>
          <tbody>
            {paid.map((dividend) => (
              <tr key={dividend.ex_date}>
                <th scope="row">{day(dividend.ex_date)}</th>
                <td>{day(dividend.payment_date)}</td>
                <td className="barred">
                  <i style={{ width: `${(dividend.amount / most) * 100}%` }} />
                  {price(dividend.amount, dividend.currency)}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </Card>
  );
}
