import type { Run } from '../bench.ts';
import { Problem } from '../problem.ts';
import { bar, type Outcome, Samples, showNumber } from '../report.ts';
import { BenchServer } from '../server.ts';
import { percentile } from '../statistics.ts';
import { idleCost } from './idle.ts';
import { buildScene, type Scene } from './scene.ts';

const lateName = 'start after the slot, jobs due in the same second, p99';
const idleName = 'database time of an idle minute';

export async function run({ quick, only, scope, progress }: Run): Promise<Outcome> {
  if (only.length > 0) throw new Problem('The scheduler has no contenders to choose from: leave --only out.', 2);
  // What pgfresh does itself comes once a minute: a quarter of one would have it never, or four times.
  const plan = { jobs: 10_000, ownJobs: !quick, due: 500, rounds: quick ? 3 : 10, idleMs: quick ? 15_000 : 60_000 };
  const server = await BenchServer.start(scope, progress);
  const scene = await buildScene(server, scope, plan, progress);
  const samples = new Samples();

  // The first minute is for plans that a scheduler which runs for longer has.
  if (plan.ownJobs) await idleCost(scene, plan.idleMs);
  const idle = await idleCost(scene, plan.idleMs);
  samples.add(idleName, 'pgfresh', 'ms', idle);
  progress(`${idleName} · ${showNumber(idle)} ms`);

  await scene.makeDue(plan.due);
  const all: number[] = [];
  // The first round is for connections and plans that a scheduler which runs for longer has.
  for (let round = 0; round <= plan.rounds; round++) {
    await server.settle();
    const late = await measureRound(scene, plan.due);
    if (round === 0) continue;
    all.push(...late);
    samples.add(lateName, 'pgfresh', 'ms', percentile(late, 99));
    progress(
      `${round}/${plan.rounds} · p50 ${showNumber(percentile(late, 50))} ms · p99 ${showNumber(percentile(late, 99))} ms`,
    );
  }
  return {
    bars: [
      bar(
        `${plan.due} of ${showNumber(plan.jobs)} jobs due in the same second, start after the slot, p99, ms`,
        percentile(all, 99),
        'at most',
        1_000,
      ),
      bar(`${idleName} with ${showNumber(plan.jobs)} jobs, ms`, idle, 'at most', 100),
    ],
    figures: samples.figures(),
    about: {
      server: await server.describe(),
      jobs: plan.jobs,
      due: plan.due,
      ownJobs: plan.ownJobs,
      schedulers: 1,
      concurrency: scene.concurrency,
    },
  };
}

/** Milliseconds from the slot until the function of each job began. */
async function measureRound(scene: Scene, due: number): Promise<number[]> {
  const slot = await scene.nextSlot();
  const late = await scene.begun(due);
  const early = late.filter((at) => at < slot);
  if (early.length > 0) throw new Error(`${early.length} jobs began before their slot.`);
  return late.map((at) => at - slot);
}
