import { type Bar, bar, type Figure, showNumber } from '../report.ts';
import type { Plan } from './plan.ts';

export const usefulName = (limit: number, processes: number) =>
  `useful calls a minute under ${showNumber(limit)}, ${processesName(processes)}`;
export const mostName = (seconds: number, processes: number) =>
  `most calls in any ${seconds} s, ${processesName(processes)}`;
export const coldName = 'first subscription to committed row, p50';
export const drainName = 'refreshes by 1 process';
export const heapName = (jobs: number) => `heap after ${showNumber(jobs)} jobs`;

function processesName(processes: number): string {
  return processes === 1 ? '1 process' : `${processes} processes`;
}

export function barsOf(figures: readonly Figure[], { rate, coldPairs, heap }: Plan): Bar[] {
  const valueOf = (measure: string, contender = 'pgfresh') =>
    figures.find((figure) => figure.measure === measure && figure.contender === contender)?.value ?? Number.NaN;
  const peers = ['graphile-worker', 'pg-boss'].filter((peer) => Number.isFinite(valueOf(drainName, peer)));
  return [
    ...rate.processes.flatMap((processes) => {
      const useful = usefulName(rate.limit, processes);
      const most = mostName(rate.most.seconds, processes);
      return [
        bar(useful, valueOf(useful), 'at least', rate.limit * 0.95),
        bar(most, valueOf(most), 'at most', rate.most.calls),
      ];
    }),
    bar(
      `${coldName}, ms beyond the provider's ${coldPairs.latencyMs}`,
      valueOf(coldName) - coldPairs.latencyMs,
      'at most',
      100,
    ),
    ...peers.map((peer) =>
      bar(`${drainName}, times ${peer}`, valueOf(drainName) / valueOf(drainName, peer), 'at least', 1.5),
    ),
    bar(
      `${heapName(heap.last)}, times that after ${showNumber(heap.first)}`,
      valueOf(heapName(heap.last)) / valueOf(heapName(heap.first)),
      'at most',
      1.2,
    ),
  ];
}
