import type { Run } from '../bench.ts';
import { now, sleep } from '../clock.ts';
import { Problem } from '../problem.ts';
import { type Outcome, Samples, showNumber } from '../report.ts';
import type { Scope } from '../scope.ts';
import { BenchServer } from '../server.ts';
import { median, percentile } from '../statistics.ts';
import { barsOf, coldName, comeName, demandName, fanOutName, joinName, residentName, usedName } from './bars.ts';
import { timeColdPairs } from './cold-pair.ts';
import { Crowds } from './crowds.ts';
import { buildHouse, commonKey, type Host, type House, listenTo, openBare, openGateway } from './house.ts';
import { requireFiles } from './open-files.ts';
import { fullPlan, type Plan, quickPlan } from './plan.ts';

interface Bench {
  readonly plan: Plan;
  readonly house: House;
  readonly samples: Samples;
  readonly progress: (line: string) => void;
}

const flushMs = 250;

export async function run({ quick, only, scope, progress }: Run): Promise<Outcome> {
  if (only.length > 0) throw new Problem('The gateway has no contenders to choose from: leave --only out.', 2);
  const plan = quick ? quickPlan : fullPlan;
  requireFiles(plan.together + plan.apart + plan.joins.perSecond);
  const server = await BenchServer.start(scope, progress);
  const samples = new Samples();
  const house = await buildHouse(server, scope, plan);
  const bench: Bench = { plan, house, samples, progress };

  const said = await scope.nest(async (inner) => {
    const gateway = await openGateway(house, inner);
    const conversation = await listenTo(house, gateway.port);
    const crowds = await measureViewers(bench, gateway, inner);
    await measureJoins(bench, crowds);
    await measureFanOut(bench, gateway, crowds);
    return conversation;
  });
  await scope.nest(async (inner) => {
    const bare = await openBare(said, inner);
    await measureFanOut(bench, bare, await measureViewers(bench, bare, inner));
  });
  for (const ms of await timeColdPairs(server, scope, plan.coldPairs)) samples.add(coldName, 'gateway', 'ms', ms);

  const figures = samples.figures();
  progress(`${coldName} · ${showNumber(figures.find(({ measure }) => measure === coldName)!.value!)} ms`);
  return {
    bars: barsOf(figures, plan),
    figures,
    about: { server: await server.describe(), plan, bytes: Buffer.byteLength(said.change) },
  };
}

/** Connects all viewers. */
async function measureViewers({ plan, house, samples, progress }: Bench, host: Host, scope: Scope): Promise<Crowds> {
  const crowds = await Crowds.open(scope, plan.crowds);
  const viewers = house.stayers.length;
  const before = await host.memory();
  const rowsBefore = await house.demandRows();
  const began = now();
  await crowds.come(host.port, house.stayers);
  const ms = now() - began;
  // The last counts are written by then.
  await sleep(2 * flushMs);
  const rows = (await house.demandRows()) - rowsBefore;
  const after = await host.memory();
  const resident = (after.resident - before.resident) / viewers;
  const used = (after.used - before.used) / viewers;
  samples.add(comeName, host.name, 'viewers/s', (viewers / ms) * 1000);
  samples.add(residentName, host.name, 'bytes', resident);
  samples.add(usedName, host.name, 'bytes', used);
  if (host.name === 'gateway')
    samples.add(demandName, host.name, 'rows', rows / (plan.pairs + 1) / (Math.ceil(ms / flushMs) + 1));
  progress(
    `${host.name} · ${showNumber(viewers)} viewers in ${showNumber(ms)} ms · ${showNumber(resident)} bytes a viewer, ${showNumber(used)} of them in use · ${rows} rows of demand`,
  );
  return crowds;
}

async function measureJoins({ plan, house, samples, progress }: Bench, crowds: Crowds): Promise<void> {
  const { perSecond, warmUpSeconds, seconds, idlePerSecond, idleSeconds, newOneIn } = plan.joins;
  const measure = async (rate: number, length: number): Promise<number[]> => {
    const known = house.stayers.slice(-plan.pairs);
    const unseen = house.takeNew(Math.ceil((rate * length) / newOneIn));
    const keys = Array.from({ length: rate * length }, (_, place) =>
      place % newOneIn === 0 ? unseen[place / newOneIn]! : known[place % known.length]!,
    );
    return crowds.joins(commonKey, rate, keys);
  };
  const add = (which: 'idle' | 'busy', times: readonly number[]): void => {
    for (const percentage of [50, 99])
      samples.add(joinName(which, percentage), 'gateway', 'ms', percentile(times, percentage));
    progress(`${joinName(which, 99)} · ${showNumber(percentile(times, 99))} ms, p50 ${showNumber(median(times))} ms`);
  };
  add('idle', await measure(idlePerSecond, idleSeconds));
  await measure(perSecond, warmUpSeconds);
  add('busy', await measure(perSecond, seconds));
}

async function measureFanOut({ plan, house, samples, progress }: Bench, host: Host, crowds: Crowds): Promise<void> {
  const times: number[] = [];
  for (let round = 0; round < plan.fanOut.warmUp + plan.fanOut.rounds; round++) {
    // Random, so that it does not align with the pump.
    await sleep(Math.random() * 100);
    let began = 0;
    const last = await crowds.hear(house.stayers, commonKey, async () => {
      began = await host.change();
    });
    if (round >= plan.fanOut.warmUp) times.push(last - began);
  }
  for (const percentage of [50, 99])
    samples.add(fanOutName(plan, percentage), host.name, 'ms', percentile(times, percentage));
  progress(
    `${host.name} · ${fanOutName(plan, 99)} · ${showNumber(percentile(times, 99))} ms, p50 ${showNumber(median(times))} ms`,
  );
}
