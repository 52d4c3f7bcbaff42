import { now, sleep, within } from '../clock.ts';
import { percentile } from '../statistics.ts';
import type { Enqueuer } from './contender.ts';
import type { Stage } from './stage.ts';
import { WorkerProcess } from './worker-process.ts';

export interface LatencySizes {
  readonly idle: { readonly warmUp: number; readonly samples: number; readonly maxSeconds: number };
  readonly busy: { readonly perSecond: number; readonly seconds: number };
}

/** Milliseconds from the commit of the enqueue, as its client sees it, to the start of the job. */
export interface Latency {
  readonly samples: number;
  readonly p50: number;
  readonly p99: number;
}

/**
 * Idle and then under load, by the same worker. Busy is `null` when the queue does not keep up: its latency would
 * only tell how long the measure lasted.
 */
export function latency(stage: Stage, sizes: LatencySizes): Promise<{ idle: Latency; busy: Latency | null }> {
  return stage.play(async (url, scope) => {
    const { contender } = stage;
    const enqueuer = await contender.enqueuer(url, 10);
    scope.defer(() => enqueuer.close());
    const worker = await WorkerProcess.open(scope, contender, url);
    const starts = new Starts(worker);
    worker.start('jobs');
    const idle = await idleLatency(enqueuer, starts, sizes.idle, contender.pollsEveryMs);
    return { idle, busy: await busyLatency(enqueuer, starts, sizes.busy) };
  });
}

/** When each job started, as the worker reports it. */
class Starts {
  readonly #worker: WorkerProcess;
  readonly #startedAt = new Map<number, number>();
  #awaited: { id: number; resolve(at: number): void } | undefined;
  #nextId = 0;

  constructor(worker: WorkerProcess) {
    this.#worker = worker;
    worker.onJobs = (jobs) => {
      for (const [id, at] of jobs) {
        this.#startedAt.set(id, at);
        if (this.#awaited?.id === id) this.#awaited.resolve(at);
      }
    };
  }

  newId(): number {
    return this.#nextId++;
  }

  of(id: number): number | undefined {
    return this.#startedAt.get(id);
  }

  async waitFor(id: number): Promise<number> {
    const started = new Promise<number>((resolve) => (this.#awaited = { id, resolve }));
    return this.of(id) ?? within(30_000, this.#worker.orFailure(started), `Job ${id} did not start within 30 s.`);
  }

  orFailure<Result>(promise: Promise<Result>): Promise<Result> {
    return this.#worker.orFailure(promise);
  }
}

/** One job at a time, each a random delay after the start of the previous one. */
async function idleLatency(
  enqueuer: Enqueuer,
  starts: Starts,
  { warmUp, samples, maxSeconds }: LatencySizes['idle'],
  pollsEveryMs: number | undefined,
): Promise<Latency> {
  const latencies: number[] = [];
  const deadline = now() + maxSeconds * 1000;
  // The first jobs pay for connections and plans, which is nothing beside the interval of a poller.
  let toWarmUp = pollsEveryMs === undefined ? warmUp : 0;
  while (latencies.length < samples && now() < deadline) {
    const id = starts.newId();
    await enqueuer.one(id);
    const committed = now();
    const ms = (await starts.waitFor(id)) - committed;
    if (toWarmUp-- <= 0) latencies.push(ms);
    // A poller looks again a fixed time after a job, so a fixed pause would always meet the same point of it.
    await sleep(5 + Math.random() * (pollsEveryMs ?? 25));
  }
  return summary(latencies);
}

/** A steady load that does not wait for the queue. */
async function busyLatency(
  enqueuer: Enqueuer,
  starts: Starts,
  { perSecond, seconds }: LatencySizes['busy'],
): Promise<Latency | null> {
  const jobs = Math.round(perSecond * seconds);
  const committedAt = new Map<number, number>();
  const enqueueing: Promise<void>[] = [];
  const enqueue = async () => {
    const id = starts.newId();
    await enqueuer.one(id);
    committedAt.set(id, now());
  };
  const began = now();
  while (enqueueing.length < jobs) {
    const due = Math.min(jobs, Math.floor(((now() - began) / 1000) * perSecond));
    while (enqueueing.length < due) {
      const enqueued = enqueue();
      // Awaited below, unless the worker fails first.
      enqueued.catch(() => {});
      enqueueing.push(enqueued);
    }
    await starts.orFailure(sleep(1));
  }
  await Promise.all(enqueueing);

  const missing = () => [...committedAt.keys()].some((id) => starts.of(id) === undefined);
  for (const deadline = now() + 500; missing(); await sleep(5)) {
    if (now() > deadline) return null;
  }
  // The first tenth warms up.
  const measured = [...committedAt].toSorted(([a], [b]) => a - b).slice(Math.floor(jobs / 10));
  return summary(measured.map(([id, committed]) => starts.of(id)! - committed));
}

function summary(latencies: readonly number[]): Latency {
  return { samples: latencies.length, p50: percentile(latencies, 50), p99: percentile(latencies, 99) };
}
