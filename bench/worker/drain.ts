import { now, sleep, within } from '../clock.ts';
import type { Scope } from '../scope.ts';
import { connect, type Cost } from '../server.ts';
import type { Child } from '../child.ts';
import type { Contender, Ended, Place } from './contender.ts';
import { keysFrom, refreshedRows } from './mirror.ts';
import type { Stage } from './stage.ts';

export interface Drained {
  readonly perSecond: number;
  readonly cost: Cost;
  /** Microseconds of CPU per job, in the worker and in the provider. */
  readonly workerUs: number;
  readonly providerUs: number;
  readonly steps: Readonly<Record<string, number>>;
}

const maxMs = 120_000;

/**
 * Refreshes this many quotes in one process, from the first ended jobs until none is open. The time
 * before that is for connecting and compiling, which the peers do at another moment than we do.
 */
export function drain(stage: Stage, scope: Scope, provider: Child, jobs: number): Promise<Drained> {
  return scope.nest(async (inner) => {
    const place = await stage.clone(inner);
    const worker = await stage.worker(inner, place);
    await loadJobs(stage.contender, place, inner, keysFrom(1, jobs));
    await stage.server.settle();
    const cpu = { worker: await cpuUs(worker), provider: await cpuUs(provider) };
    const { result: ended, cost } = await stage.server.measure(async () => {
      await worker.ask('start');
      return workOff(stage.contender, place, inner, worker, jobs);
    });
    const { first } = worker.told as Ended;
    const client = await connect(place.url, inner);
    const { rows } = await client.query<{ n: number }>(refreshedRows);
    if (rows[0]!.n !== jobs) throw new Error(`${stage.contender.name} refreshed ${rows[0]!.n} of ${jobs} quotes.`);
    return {
      perSecond: ((jobs - first.jobs) / (ended - first.at)) * 1000,
      cost,
      workerUs: ((await cpuUs(worker)) - cpu.worker) / jobs,
      providerUs: ((await cpuUs(provider)) - cpu.provider) / jobs,
      steps: await worker.ask('steps'),
    };
  });
}

export async function loadJobs(
  contender: Contender,
  { url }: Place,
  scope: Scope,
  keys: readonly string[],
): Promise<void> {
  await contender.load(url, keys);
  await (await connect(url, scope)).query('analyze');
}

/** Waits until the worker has ended so many jobs and none is open. Returns when that was. */
export async function workOff(
  contender: Contender,
  { url }: Place,
  scope: Scope,
  worker: Child,
  jobs: number,
): Promise<number> {
  const client = await connect(url, scope);
  const done = async () => {
    while (((worker.told as Ended | undefined)?.jobs ?? 0) < jobs) await worker.orFailure(sleep(2));
    while (await contender.hasOpenJobs(client)) await worker.orFailure(sleep(1));
    return now();
  };
  return within(maxMs, done(), `${contender.name} has not done ${jobs} jobs within ${maxMs / 1000} s.`);
}

async function cpuUs(child: Child): Promise<number> {
  const { user, system } = await child.ask<NodeJS.CpuUsage>('cpu');
  return user + system;
}
