import { type Bar, bar, type Figure, showNumber } from '../report.ts';
import type { Plan } from './plan.ts';

export const coldName = 'wish for a cold pair to its row, p50';
export const fanOutName = ({ together }: Plan, percentage: number) =>
  `commit to the last of ${showNumber(together)} viewers, p${percentage}`;
export const comeName = 'viewers who connect, want and see';
export const residentName = 'memory a viewer';
export const usedName = 'memory a viewer, without what is free';
export const joinName = (which: 'idle' | 'busy', percentage: number) =>
  `wish to snapshot, ${which === 'idle' ? 'idle' : 'while others join and leave'}, p${percentage}`;
export const demandName = 'demand rows written, a pair and quarter of a second';

export function barsOf(figures: readonly Figure[], plan: Plan): Bar[] {
  const valueOf = (measure: string, contender = 'gateway') =>
    figures.find((figure) => figure.measure === measure && figure.contender === contender)?.value ?? Number.NaN;
  const timesBare = (measure: string) => valueOf(measure) / valueOf(measure, 'bare ws');
  const viewers = showNumber(plan.together + plan.apart);
  return [
    bar(
      `${coldName}, ms beyond the provider's ${plan.coldPairs.latencyMs}`,
      valueOf(coldName) - plan.coldPairs.latencyMs,
      'at most',
      30,
    ),
    bar(`${fanOutName(plan, 99)}, times bare ws`, timesBare(fanOutName(plan, 99)), 'at most', 3),
    bar(`${residentName}, of ${viewers}, times bare ws`, timesBare(residentName), 'at most', 2),
    bar(
      `wish to snapshot with ${showNumber(plan.joins.perSecond)} joins and leaves a second, p99, times idle`,
      valueOf(joinName('busy', 99)) / valueOf(joinName('idle', 99)),
      'at most',
      2,
    ),
    bar(`${demandName}, while ${viewers} viewers come`, valueOf(demandName), 'at most', 1),
  ];
}
