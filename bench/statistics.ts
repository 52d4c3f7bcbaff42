export function median(values: readonly number[]): number {
  return percentile(values, 50);
}

/** The value that the given percentage of the values does not exceed (nearest rank). */
export function percentile(values: readonly number[], percentage: number): number {
  if (values.length === 0) return Number.NaN;
  const sorted = values.toSorted((a, b) => a - b);
  if (percentage === 50 && sorted.length % 2 === 0) {
    return (sorted[sorted.length / 2 - 1]! + sorted[sorted.length / 2]!) / 2;
  }
  const rank = Math.ceil((percentage / 100) * sorted.length);
  return sorted[Math.max(rank, 1) - 1]!;
}
