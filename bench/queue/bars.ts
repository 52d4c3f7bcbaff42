import { type Bar, bar, type Figure, showNumber } from '../report.ts';
import { median } from '../statistics.ts';
import type { ClaimCosts, ClaimSizes, ClaimState } from './claim-cost.ts';
import type { Contender } from './contender.ts';
import { claimName, drainName, idleName, lengthName, setsName } from './measure-name.ts';
import type { Plan } from './plan.ts';

export function isPeer({ system }: Contender): boolean {
  return system === 'pg-boss' || system === 'graphile-worker';
}

/** The bounds against the peers; none unless pgfresh and both peers were measured. */
export function peerBars(figures: readonly Figure[], contenders: readonly Contender[], plan: Plan): Bar[] {
  const peers = contenders.filter(isPeer);
  const ours = contenders.find(({ system }) => system === 'pgfresh');
  if (!ours || new Set(peers.map(({ system }) => system)).size < 2) return [];

  const samplesOf = (measure: string, contender: Contender) =>
    figures.find((figure) => figure.measure === measure && figure.contender === contender.name)?.samples ?? [];
  // Round by round, because a machine is faster in one minute than in the next: compared is what was measured side by side.
  // The peers are at their fastest: each round takes whichever settings of whichever of them serve it best.
  const times = (measure: string, best: (...values: number[]) => number) => {
    const own = samplesOf(measure, ours);
    const others = peers.map((peer) => samplesOf(measure, peer)).filter(({ length }) => length === own.length);
    if (others.length === 0) return Number.NaN;
    return median(own.map((value, round) => value / best(...others.map((samples) => samples[round]!))));
  };

  const drains = plan.drain.jobs.flatMap((jobs) => plan.drain.processes.map((processes) => drainName(jobs, processes)));
  return [
    ...drains.map((name) => bar(`${name}, times the faster peer`, times(name, Math.max), 'more than', 1, 1.3)),
    bar(`${setsName}, times the faster peer`, times(setsName, Math.max), 'at least', 1.5),
    bar(`${idleName('p50')}, times the better peer`, times(idleName('p50'), Math.min), 'at most', 1.2),
    bar(`${idleName('p99')}, times the better peer`, times(idleName('p99'), Math.min), 'at most', 1.2),
  ];
}

export function claimBars(costs: ClaimCosts, sizes: ClaimSizes): Bar[] {
  const base = (costs.few + costs.fewAgain) / 2;
  // "Nothing measurable" is what two databases with the same content differ by, and never less than some per cent.
  const noise = Math.max(costs.few, costs.fewAgain) / Math.min(costs.few, costs.fewAgain);
  const unmeasurable = Number(Math.max(1.1, noise).toFixed(2));
  const timesFew = (state: ClaimState, bound: number) => {
    const name = `${claimName(state, sizes)}, times that with ${showNumber(sizes.few)} waiting`;
    return bar(name, costs[state] / base, 'at most', bound);
  };
  return [timesFew('many', 1.5), timesFew('finished', 1.5), timesFew('blocked', unmeasurable)];
}

export function heldBar(held: number, free: number, seconds: number): Bar {
  const name = `${lengthName('held', seconds)}, share of the rate without`;
  return bar(name, held / free, 'at least', 0.8);
}
