import { useFresh } from 'pgfresh/react';
import { Card } from '../card.tsx';
import { Facts } from '../facts.tsx';
import { decimal, percent } from '../format.ts';

export function RatiosCard({ symbol }: { readonly symbol: string }) {
  const ratios = useFresh('ratios-ttm', symbol);
  const { data } = ratios;
  return (
    <Card title="Ratios" type="ratios-ttm" symbol={symbol} fresh={ratios} lines={5}>
      {data && (
        <Facts
          facts={[
            ['Price / earnings', data.pe_ratio === null ? 'a loss' : decimal(data.pe_ratio)],
            ['Price / book', decimal(data.pb_ratio)],
            ['Price / sales', decimal(data.ps_ratio)],
            ['Debt / equity', decimal(data.debt_to_equity)],
            ['Gross margin', percent(data.gross_margin)],
            ['Operating margin', percent(data.operating_margin)],
            ['Net margin', percent(data.net_margin)],
            ['Return on equity', percent(data.return_on_equity)],
            ['Current ratio', decimal(data.current_ratio)],
            ['Dividend yield', data.dividend_yield === null ? 'none' : percent(data.dividend_yield, 2)],
          ]}
        />
      )}
    </Card>
  );
}
