import { now, sleep, within } from '../clock.ts';
import type { Cost } from '../server.ts';
import type { Query } from './contender.ts';
import { type Stage, withQuery } from './stage.ts';
import { WorkerProcess } from './worker-process.ts';

export interface Drained {
  readonly jobs: number;
  readonly perSecond: number;
  readonly cost: Cost;
  /** The time ran out before the jobs did; the rate is that of the jobs done so far. */
  readonly cut: boolean;
}

/**
 * From the first start of a job, in whichever process, until the database has no open job. Counting the handlers
 * would end too early: the last batch has run by then and is not recorded as done.
 */
export function drain(stage: Stage, jobs: number, processes: number, maxSeconds: number): Promise<Drained> {
  return stage.play(async (url, scope) => {
    const opening = Array.from({ length: processes }, () => WorkerProcess.open(scope, stage.contender, url));
    const [workers] = await Promise.all([Promise.all(opening), stage.load(url, jobs)]);

    const { result, cost } = await stage.server.measure(() =>
      withQuery(url, async (query) => {
        for (const worker of workers) worker.start('counts');
        const deadline = now() + maxSeconds * 1000;
        while (startedBy(workers) < jobs) {
          if (now() > deadline) return { ended: now(), cut: true };
          await sleepOrFailure(2, workers);
        }
        await within(10_000, noOpenJobs(stage, query, workers), 'All jobs have started, but some stay open.');
        return { ended: now(), cut: false };
      }),
    );

    const done = Math.min(startedBy(workers), jobs);
    const firsts = workers.filter(({ counts }) => counts.started > 0).map(({ counts }) => counts.first);
    const seconds = (result.ended - Math.min(...firsts)) / 1000;
    return { jobs: done, perSecond: done === 0 ? 0 : done / seconds, cost, cut: result.cut };
  });
}

async function noOpenJobs(stage: Stage, query: Query, workers: readonly WorkerProcess[]): Promise<void> {
  while (await stage.contender.hasOpenJobs(query)) await sleepOrFailure(1, workers);
}

async function sleepOrFailure(ms: number, workers: readonly WorkerProcess[]): Promise<void> {
  await Promise.race(workers.map((worker) => worker.orFailure(sleep(ms))));
}

function startedBy(workers: readonly WorkerProcess[]): number {
  return workers.reduce((sum, worker) => sum + worker.counts.started, 0);
}
