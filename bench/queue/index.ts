import type { Run } from '../bench.ts';
import { installedVersion, installPeers } from '../peers.ts';
import { type Bar, type Outcome, Samples, showNumber } from '../report.ts';
import { BenchServer } from '../server.ts';
import { median } from '../statistics.ts';
import { claimBars, heldBar, isPeer, peerBars } from './bars.ts';
import { claimCosts } from './claim-cost.ts';
import type { Contender } from './contender.ts';
import { selectContenders } from './contenders/index.ts';
import { drainRate } from './held-transaction.ts';
import { claimName, lengthName } from './measure-name.ts';
import { measuresOf } from './measures.ts';
import { fullPlan, type Plan, quickPlan } from './plan.ts';
import { Stage } from './stage.ts';

export async function run({ quick, only, scope, progress }: Run): Promise<Outcome> {
  const plan = quick ? quickPlan : fullPlan;
  const contenders = selectContenders(only);
  if (contenders.some(isPeer)) await installPeers(scope, progress);
  const server = await BenchServer.start(scope, progress);
  const stages: Stage[] = [];
  for (const contender of contenders) stages.push(await Stage.build(contender, server, scope));

  const samples = new Samples();
  for (let repeat = 0; repeat < plan.repeats; repeat++) {
    for (const measure of measuresOf(plan, samples)) {
      for (const stage of rotated(stages, repeat).filter(({ contender }) => measure.fits(contender))) {
        const found = await measure.take(stage);
        progress(`${repeat + 1}/${plan.repeats} ${measure.name} · ${stage.contender.name} · ${found}`);
      }
    }
  }

  const ours = stages.find(({ contender }) => contender.claimProbe !== undefined);
  const ourBars = ours ? await measureClaims(ours, plan, samples, progress) : [];
  const figures = samples.figures();
  return {
    bars: [...peerBars(figures, contenders, plan), ...ourBars],
    figures,
    about: { repeats: plan.repeats, server: await server.describe(), contenders: contenders.map(describe) },
  };
}

/** Measured for pgfresh only. */
async function measureClaims(
  stage: Stage,
  plan: Plan,
  samples: Samples,
  progress: (line: string) => void,
): Promise<Bar[]> {
  const { name } = stage.contender;
  progress(`claim cost · ${name} · preparing up to ${showNumber(plan.claim.many)} jobs`);
  const costs = await claimCosts(stage, plan.claim);
  for (const state of ['few', 'fewAgain', 'many', 'finished', 'blocked'] as const) {
    const measure = claimName(state, plan.claim);
    samples.add(measure, name, 'ms', costs[state]);
    progress(`${measure} · ${name} · ${showNumber(costs[state])} ms`);
  }

  // By turns, because a machine is faster in one minute than in the next.
  const rates = { free: [] as number[], held: [] as number[] };
  for (let round = 1; round <= plan.held.rounds; round++) {
    for (const kind of ['free', 'held'] as const) {
      const measure = lengthName(kind, plan.held.seconds);
      const rate = await drainRate(stage, plan.held, kind === 'held');
      rates[kind].push(rate);
      samples.add(measure, name, 'jobs/s', rate);
      progress(`${round}/${plan.held.rounds} ${measure} · ${name} · ${showNumber(rate)} jobs/s`);
    }
  }
  return [...claimBars(costs, plan.claim), heldBar(median(rates.held), median(rates.free), plan.held.seconds)];
}

// Rotate the order, so that no contender always meets the same neighbour's caches.
function rotated<Item>(items: readonly Item[], by: number): Item[] {
  const shift = by % items.length;
  return [...items.slice(shift), ...items.slice(0, shift)];
}

function describe({ name, system, settings }: Contender): Record<string, unknown> {
  return { name, settings, version: installedVersion(system) };
}
