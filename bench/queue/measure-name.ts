import { showNumber } from '../report.ts';
import type { ClaimSizes, ClaimState } from './claim-cost.ts';

export const setsName = 'enqueue in sets of 1,000';

export function oneByOneName(connections: number): string {
  return `enqueue one by one, ${connections} ${connections === 1 ? 'connection' : 'connections'}`;
}

export function drainName(jobs: number, processes: number): string {
  return `drain of ${showNumber(jobs)} by ${processes} ${processes === 1 ? 'process' : 'processes'}`;
}

export function idleName(percentile: 'p50' | 'p99'): string {
  return `latency idle ${percentile}`;
}

export function busyName(perSecond: number, percentile: 'p50' | 'p99'): string {
  return `latency at ${perSecond} jobs/s ${percentile}`;
}

export function claimName(state: ClaimState, sizes: ClaimSizes): string {
  if (state === 'fewAgain') return `${claimName('few', sizes)}, again`;
  return `claim with ${showNumber(sizes[state])} ${state === 'finished' || state === 'blocked' ? state : 'waiting'}`;
}

export function lengthName(kind: 'free' | 'held', seconds: number): string {
  const part = `last ${showNumber(seconds / 3)} s of ${showNumber(seconds)}`;
  return kind === 'held' ? `drain under a held transaction, ${part}` : `drain at length, ${part}`;
}
