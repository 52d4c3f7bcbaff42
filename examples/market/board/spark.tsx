interface SparkProps {
  readonly values: readonly number[];
  /** The lowest value that is drawn; that of the values, if it is left out. */
  readonly from?: number;
}

/** A line without words, for what is said in words beside it. */
export function Spark({ values, from }: SparkProps) {
  const low = Math.min(from ?? Infinity, ...values);
  const high = Math.max(...values, low + Number.EPSILON);
  const flat = high - low < 1e-12;
  const points = values.map(
    (value, index) =>
      `${((index / Math.max(1, values.length - 1)) * 100).toFixed(2)},${(flat ? 14 : 26 - ((value - low) / (high - low)) * 24).toFixed(2)}`,
  );
  return (
    <svg className="spark" viewBox="0 0 100 28" preserveAspectRatio="none" aria-hidden="true">
      {points.length > 1 && (
        <>
          <polygon points={`0,28 ${points.join(' ')} 100,28`} />
          <polyline points={points.join(' ')} />
        </>
      )}
    </svg>
  );
}
