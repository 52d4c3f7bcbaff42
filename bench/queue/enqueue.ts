import { now } from '../clock.ts';
import type { BenchServer, Cost } from '../server.ts';
import type { Enqueuer } from './contender.ts';
import type { Stage } from './stage.ts';

export interface EnqueueSizes {
  /** One job per transaction, on this many connections at once. */
  readonly oneByOne: { readonly connections: readonly number[]; readonly seconds: number };
  /** Sets of 1,000, one after the other on one connection. */
  readonly sets: number;
}

export interface Enqueued {
  /** Jobs per second, by the number of connections. */
  readonly oneByOne: ReadonlyMap<number, number>;
  readonly sets: { readonly perSecond: number; readonly jobs: number; readonly cost: Cost };
}

export function enqueue(stage: Stage, sizes: EnqueueSizes): Promise<Enqueued> {
  return stage.play(async (url, scope) => {
    const open = async (connections: number) => {
      const enqueuer = await stage.contender.enqueuer(url, connections);
      scope.defer(() => enqueuer.close());
      return enqueuer;
    };
    const oneByOne = new Map<number, number>();
    for (const connections of sizes.oneByOne.connections) {
      oneByOne.set(connections, await rateOneByOne(await open(connections), connections, sizes.oneByOne.seconds));
    }
    return { oneByOne, sets: await rateInSets(await open(1), sizes.sets, stage.server) };
  });
}

async function rateOneByOne(enqueuer: Enqueuer, connections: number, seconds: number): Promise<number> {
  let jobs = 0;
  const enqueueUntil = async (end: number) => {
    while (now() < end) await enqueuer.one(jobs++);
  };
  const enqueueByAll = (end: number) => Promise.all(Array.from({ length: connections }, () => enqueueUntil(end)));

  // Opens the connections and fills the caches of plans.
  await enqueueByAll(now() + 100);
  const [before, began] = [jobs, now()];
  await enqueueByAll(began + seconds * 1000);
  return ((jobs - before) / (now() - began)) * 1000;
}

async function rateInSets(enqueuer: Enqueuer, sets: number, server: BenchServer): Promise<Enqueued['sets']> {
  // New job numbers: a queue that already has a number has less to do.
  const idsOf = (set: number) => Array.from({ length: 1000 }, (_, id) => 1e9 + set * 1000 + id);
  await enqueuer.set(idsOf(sets));
  const { result: ms, cost } = await server.measure(async () => {
    const began = now();
    for (let set = 0; set < sets; set++) await enqueuer.set(idsOf(set));
    return now() - began;
  });
  const jobs = sets * 1000;
  return { perSecond: (jobs / ms) * 1000, jobs, cost };
}
