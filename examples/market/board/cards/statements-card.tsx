import { useFresh } from 'pgfresh/react';
import { Card } from '../card.tsx';
import { compact, decimal, percent } from '../format.ts';

export function StatementsCard({ symbol }: { readonly symbol: string }) {
  const statements = useFresh('financial-statements', symbol);
  const quarters = statements.rows.toSorted((a, b) => (a.period_end < b.period_end ? 1 : -1));
  const most = Math.max(...quarters.map(({ revenue }) => revenue));
  return (
    <Card title="Statements" type="financial-statements" symbol={symbol} fresh={statements} lines={8}>
      {quarters.length === 0 ? (
        <p className="about">{symbol} has published none.</p>
      ) : (
        <table>
          <caption className="hidden">The last quarters of {symbol}</caption>
          <thead>
            <tr>
              <th scope="col">Quarter</th>
              <th scope="col">Revenue</th>
              <th scope="col">Net income</th>
              <th scope="col">Margin</th>
              <th scope="col">Per share</th>
            </tr>
          </thead>
          <tbody>
            {quarters.map((quarter) => (
              <tr key={quarter.period_end}>
                <th scope="row">
                  {quarter.period} {quarter.fiscal_year}
                </th>
                <td className="barred">
                  <i style={{ width: `${(quarter.revenue / most) * 100}%` }} />
                  {compact(quarter.revenue)}
                </td>
                <td className={quarter.net_income < 0 ? 'down' : ''}>{compact(quarter.net_income)}</td>
                <td>{percent(quarter.net_income / quarter.revenue)}</td>
                <td>{decimal(quarter.eps)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </Card>
  );
}
