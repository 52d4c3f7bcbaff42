import { normal } from './random.ts';

/** How long the n-th answer takes: most about the median, one in a hundred six times as long, none longer than 5 s. */
export function latencyMs(seed: number, medianMs: number, count: number): number {
  return Math.min(5_000, medianMs * Math.exp(0.8 * normal(seed, 'latency', count)));
}
