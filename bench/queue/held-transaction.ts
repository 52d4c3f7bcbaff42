import { now, sleep } from '../clock.ts';
import type { Scope } from '../scope.ts';
import { connect } from '../server.ts';
import { openProbe, priorities } from './claim-cost.ts';
import type { Stage } from './stage.ts';
import { WorkerProcess } from './worker-process.ts';

export interface HeldSizes {
  readonly seconds: number;
  /** How many jobs are kept waiting, so that the worker never runs dry. */
  readonly backlog: number;
  readonly rounds: number;
}

/**
 * Jobs per second in the last third of the time, with or without a transaction open since before the first job.
 * Rows that it can still see are not vacuumed, so a claim that walks over finished jobs gets slower with
 * each of them. The jobs have several priorities: the dead ones then lie in several places of an index.
 */
export function drainRate(stage: Stage, sizes: HeldSizes, held: boolean): Promise<number> {
  return stage.play(async (url, scope) => {
    const probe = await openProbe(stage, url, scope);
    await probe.prepareWaiting(sizes.backlog, priorities);
    if (held) await holdTransaction(url, scope);
    const worker = await WorkerProcess.open(scope, stage.contender, url);
    worker.start('counts');

    let prepared = sizes.backlog;
    const measuring = { now: true };
    const feed = async () => {
      while (measuring.now) {
        const missing = sizes.backlog - (prepared - worker.counts.started);
        if (missing < sizes.backlog / 10) await sleep(5);
        else {
          await probe.prepareWaiting(missing, priorities);
          prepared += missing;
        }
      }
    };
    const measure = async () => {
      await sleep((sizes.seconds * 2000) / 3);
      const before = { at: now(), started: worker.counts.started };
      await sleep(sizes.seconds * 1000 - (sizes.seconds * 2000) / 3);
      measuring.now = false;
      return ((worker.counts.started - before.started) / (now() - before.at)) * 1000;
    };
    const [rate] = await worker.orFailure(Promise.all([measure(), feed()]));
    return rate;
  });
}

async function holdTransaction(url: string, scope: Scope): Promise<void> {
  const holder = await connect(url, scope);
  await holder.query('begin isolation level repeatable read');
  // The snapshot and the transaction's number each keep what they can see from being cleaned up.
  await holder.query('select pg_current_xact_id(), count(*) from pg_class');
}
