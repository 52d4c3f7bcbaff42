import { now } from '../clock.ts';
import type { Scope } from '../scope.ts';
import { median } from '../statistics.ts';
import { type Stage, withQuery } from './stage.ts';

/**
 * What the queue must offer to have its claim measured. Jobs may be written by SQL of any kind, as long as they are
 * what the queue itself would have written; the contender's own worker must be able to work off the waiting ones.
 */
export interface ClaimProbe {
  /** Adds this many ready jobs, spread evenly over the priorities. Called repeatedly. */
  prepareWaiting(jobs: number, priorities: readonly number[]): Promise<void>;
  /** Adds this many ended jobs, wherever the queue keeps them. */
  prepareFinished(jobs: number): Promise<void>;
  /** Adds this many jobs that are ready but whose sources may not be called now. */
  prepareBlocked(jobs: number): Promise<void>;
  /** One claim, as a worker does it. Returns the number of jobs. */
  claim(batch: number): Promise<number>;
  /** Ends the jobs of the last claim, with success. */
  finish(): Promise<void>;
  close(): Promise<void>;
}

export interface ClaimSizes {
  readonly few: number;
  readonly many: number;
  readonly finished: number;
  readonly blocked: number;
  readonly batch: number;
  readonly rounds: number;
  readonly claimsARound: number;
}

/** What is in a database: few waiting jobs, the same once more, many, or few beside finished or blocked ones. */
export type ClaimState = 'few' | 'fewAgain' | 'many' | 'finished' | 'blocked';

/** The median time of a claim in milliseconds. */
export type ClaimCosts = Readonly<Record<ClaimState, number>>;

export const priorities = [-1, 1, 5, 20, 100] as const;

/**
 * Each state has its own database, and the claims rotate over them, so that other load on the machine
 * affects all alike. Claimed jobs are finished and replaced, which keeps the depth constant.
 * The same state in a second database shows the noise of the measurement.
 */
export function claimCosts(stage: Stage, sizes: ClaimSizes): Promise<ClaimCosts> {
  return stage.nest(async (scope) => {
    const prepare = async (waiting: number, more?: (probe: ClaimProbe) => Promise<void>) => {
      const url = await stage.clone(scope);
      const probe = await openProbe(stage, url, scope);
      await more?.(probe);
      await probe.prepareWaiting(waiting, priorities);
      // What autovacuum would have done to tables of this size by now.
      await withQuery(url, (query) => query('vacuum (analyze)'));
      return { probe, times: [] as number[] };
    };
    const databases: Record<ClaimState, { probe: ClaimProbe; times: number[] }> = {
      few: await prepare(sizes.few),
      fewAgain: await prepare(sizes.few),
      many: await prepare(sizes.many),
      finished: await prepare(sizes.few, (probe) => probe.prepareFinished(sizes.finished)),
      blocked: await prepare(sizes.few, (probe) => probe.prepareBlocked(sizes.blocked)),
    };
    await stage.server.settle();

    for (let round = 0; round < sizes.rounds; round++) {
      for (const { probe, times } of Object.values(databases)) {
        for (let claim = 0; claim < sizes.claimsARound; claim++) times.push(await timeClaim(probe, sizes.batch));
      }
    }
    const cost = (state: ClaimState) => median(databases[state].times);
    return {
      few: cost('few'),
      fewAgain: cost('fewAgain'),
      many: cost('many'),
      finished: cost('finished'),
      blocked: cost('blocked'),
    };
  });
}

async function timeClaim(probe: ClaimProbe, batch: number): Promise<number> {
  const began = now();
  const claimed = await probe.claim(batch);
  const ms = now() - began;
  if (claimed !== batch) throw new Error(`A claim of ${batch} got ${claimed} jobs although enough were waiting.`);
  await probe.finish();
  await probe.prepareWaiting(batch, priorities);
  return ms;
}

export async function openProbe(stage: Stage, url: string, scope: Scope): Promise<ClaimProbe> {
  const { contender } = stage;
  if (!contender.claimProbe) throw new Error(`${contender.name} has no claim probe.`);
  const probe = await contender.claimProbe(url);
  scope.defer(() => probe.close());
  return probe;
}
