import { useNow } from './clock.ts';
import { duration, price } from './format.ts';
import { directionOf, type Point } from './prices.ts';

const [width, height] = [600, 170];
/** A longer gap means no viewers, so the prices in between are unknown. */
const gapMs = 90_000;

interface ChartProps {
  readonly name: string;
  readonly points: readonly Point[];
  readonly currency: string;
  readonly previousClose: number;
}

/** The known prices; dashed across gaps and since the last quote. */
export function Chart({ name, points, currency, previousClose }: ChartProps) {
  const now = useNow();
  const first = points[0];
  const last = points.at(-1);
  if (!first || !last) return <div className="chart" />;
  const end = Math.max(now, last[0] + 1_000);
  // A new chart is not stretched over the whole width.
  const start = Math.min(first[0], end - 120_000);
  const prices = points.map(([, value]) => value);
  const [low, high] = [Math.min(...prices), Math.max(...prices)];
  const room = Math.max((high - low) * 0.12, last[1] * 0.0002);
  const [bottom, top] = [low - room, high + room];
  const x = (at: number): number => ((at - start) / (end - start)) * width;
  const y = (value: number): number => height - ((value - bottom) / (top - bottom)) * height;
  const place = ([at, value]: Point): string => `${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
  const isGap = (index: number): boolean => points[index]![0] - points[index - 1]![0] > gapMs;
  const known = points.map((point, index) => `${index === 0 || isGap(index) ? 'M' : 'L'}${place(point)}`).join('');
  const gaps = points.map((point, index) =>
    index > 0 && isGap(index) ? `M${place(points[index - 1]!)}L${place(point)}` : '',
  );
  const outline = points.map(place).join(' ');
  const isCloseNear = previousClose > bottom && previousClose < top;
  const summary = `Price of ${name} in the last ${duration(end - start)}: from ${price(first[1], currency)} to ${price(last[1], currency)}, between ${price(low, currency)} and ${price(high, currency)}`;
  return (
    <figure className={`chart ${directionOf(points)}`}>
      <svg viewBox={`0 0 ${width} ${height}`} preserveAspectRatio="none" role="img" aria-label={summary}>
        <defs>
          <linearGradient id="fade" x1="0" y1="0" x2="0" y2="1">
            <stop offset="0" className="fade-top" />
            <stop offset="1" className="fade-end" />
          </linearGradient>
        </defs>
        {isCloseNear && <path className="close" d={`M0 ${y(previousClose)}H${width}`} />}
        <polygon
          fill="url(#fade)"
          points={`${x(first[0]).toFixed(1)} ${height} ${outline} ${x(last[0]).toFixed(1)} ${height}`}
        />
        <path className="line" d={known} />
        <path className="since" d={`${gaps.join('')}M${place(last)}H${width}`} />
      </svg>
      <i className="tip" style={{ left: `${(x(last[0]) / width) * 100}%`, top: `${(y(last[1]) / height) * 100}%` }} />
      <figcaption aria-hidden="true">
        <span className="high">{price(high, currency)}</span>
        {low < high && <span className="low">{price(low, currency)}</span>}
        <span className="from">{duration(end - start)} ago</span>
        <span className="to">now</span>
      </figcaption>
    </figure>
  );
}
