import type { Run } from '../bench.ts';
import { installedVersion, installPeers } from '../peers.ts';
import { type Outcome, Samples, showNumber } from '../report.ts';
import type { Scope } from '../scope.ts';
import { BenchServer } from '../server.ts';
import { median } from '../statistics.ts';
import { barsOf, coldName, drainName, heapName, mostName, usefulName } from './bars.ts';
import { timeColdPairs } from './cold-pair.ts';
import type { Contender } from './contender.ts';
import { selectContenders } from './contenders/index.ts';
import { pgfresh } from './contenders/pgfresh.ts';
import { drain, type Drained } from './drain.ts';
import { heapGrowth } from './heap.ts';
import { fullPlan, type Plan, quickPlan } from './plan.ts';
import { startBare, startMarket } from './providers.ts';
import { rateUnderLimit } from './rate.ts';
import { Stage } from './stage.ts';

interface Bench {
  readonly plan: Plan;
  readonly server: BenchServer;
  readonly scope: Scope;
  readonly samples: Samples;
  readonly progress: (line: string) => void;
}

export async function run({ quick, only, scope, progress }: Run): Promise<Outcome> {
  const plan = quick ? quickPlan : fullPlan;
  const contenders = selectContenders(only);
  if (contenders.some(({ system }) => system !== 'pgfresh')) await installPeers(scope, progress);
  const server = await BenchServer.start(scope, progress);
  const bench = { plan, server, scope, samples: new Samples(), progress };

  await measureDrain(bench, contenders);
  if (contenders.includes(pgfresh)) {
    await measureHeap(bench);
    await measureColdPairs(bench);
    await measureRate(bench);
  }
  const figures = bench.samples.figures();
  return {
    bars: contenders.includes(pgfresh) ? barsOf(figures, plan) : [],
    figures,
    about: { server: await server.describe(), plan, contenders: contenders.map(describe) },
  };
}

async function measureDrain({ plan, server, scope, samples, progress }: Bench, contenders: readonly Contender[]) {
  const { jobs, repeats } = plan.drain;
  await scope.nest(async (inner) => {
    const provider = await startBare(inner);
    const place = { provider: provider.address, quotes: jobs };
    const stages: Stage[] = [];
    for (const contender of contenders) stages.push(await Stage.build(contender, server, inner, place));
    for (let repeat = 0; repeat < repeats; repeat++) {
      // Rotate the order, so that no contender always meets the same neighbour's caches.
      for (let turn = 0; turn < stages.length; turn++) {
        const stage = stages[(turn + repeat) % stages.length]!;
        const drained = await drain(stage, inner, provider.child, jobs);
        addDrained(samples, stage.contender.name, drained, jobs);
        progress(
          `${repeat + 1}/${repeats} ${drainName} · ${stage.contender.name} · ${showNumber(drained.perSecond)} jobs/s`,
        );
      }
    }
  });
}

function addDrained(samples: Samples, name: string, drained: Drained, jobs: number): void {
  const { perSecond, cost, workerUs, providerUs, steps } = drained;
  samples.add(drainName, name, 'jobs/s', perSecond);
  samples.add(`${drainName}: worker CPU a job`, name, 'µs', workerUs);
  samples.add(`${drainName}: database CPU a job`, name, 'µs', cost.cpuMs === null ? null : (cost.cpuMs / jobs) * 1000);
  samples.add(`${drainName}: provider CPU a job`, name, 'µs', providerUs);
  samples.add(`${drainName}: WAL a job`, name, 'bytes', cost.walBytes / jobs);
  for (const [step, ms] of Object.entries(steps)) samples.add(`${drainName}: ${step}, mean`, name, 'ms', ms);
}

async function measureHeap({ plan, server, scope, samples, progress }: Bench): Promise<void> {
  await scope.nest(async (inner) => {
    const { address } = await startBare(inner);
    const stage = await Stage.build(pgfresh, server, inner, { provider: address, quotes: plan.heap.last });
    const [first, last] = await heapGrowth(stage, inner, plan.heap);
    samples.add(heapName(plan.heap.first), pgfresh.name, 'bytes', first);
    samples.add(heapName(plan.heap.last), pgfresh.name, 'bytes', last);
    progress(
      `${heapName(plan.heap.first)} · ${showNumber(first)} bytes, after ${showNumber(plan.heap.last)} ${showNumber(last)}`,
    );
  });
}

async function measureColdPairs({ plan, server, scope, samples, progress }: Bench): Promise<void> {
  await scope.nest(async (inner) => {
    const provider = await startMarket(inner, ['--no-limit', '--latency', String(plan.coldPairs.latencyMs)]);
    const stage = await Stage.build(pgfresh, server, inner, { provider, quotes: 0 });
    const times = await timeColdPairs(stage, inner, plan.coldPairs);
    for (const ms of times) samples.add(coldName, pgfresh.name, 'ms', ms);
    progress(`${coldName} · ${showNumber(median(times))} ms, of which the provider ${plan.coldPairs.latencyMs}`);
  });
}

/** All numbers of processes at the same time, each with a database and a provider of its own: a limit leaves the machine idle. */
async function measureRate({ plan, server, scope, samples, progress }: Bench): Promise<void> {
  const { limit, processes, most, warmUpSeconds, seconds } = plan.rate;
  progress(`${showNumber(limit)} calls a minute for ${warmUpSeconds + seconds} s`);
  const measure = async (count: number) => {
    const found = await rateUnderLimit(server, scope, plan.rate, count);
    samples.add(usefulName(limit, count), pgfresh.name, 'calls', found.usefulAMinute);
    samples.add(mostName(most.seconds, count), pgfresh.name, 'calls', found.most);
    progress(
      `${usefulName(limit, count)} · ${showNumber(found.usefulAMinute)}, most in ${most.seconds} s ${found.most}`,
    );
  };
  await Promise.all(processes.map(measure));
}

function describe({ name, system, settings }: Contender): Record<string, unknown> {
  return { name, settings, version: installedVersion(system) };
}
