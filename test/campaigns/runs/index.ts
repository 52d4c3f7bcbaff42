import { setTimeout as wait } from 'node:timers/promises';
import { CampaignFailure, type Campaign } from '../campaign.ts';
import { Journal } from '../gauntlet/journal.ts';
import { continuous, whenQuiet } from './invariants.ts';
import { draw, heal } from './operations.ts';
import { World } from './world.ts';

/** After the operations: a lease runs out, another process is steady, and what was lost is run. */
const quietMs = 45_000;
/** Time between two operations, at intensity 1. */
const gapMs = 500;
const lookEveryMs = 1_000;
const progressEveryMs = 30_000;

/**
 * Two scheduler processes behind proxies and 200 jobs, handlers and functions, of which some misbehave. Processes are
 * killed and cut off, connections die silently, and operators edit, pause, cancel, backfill and trigger jobs.
 */
export const runs: Campaign = {
  about: 'runs of 200 jobs that misbehave, with schedulers that are killed and cut off',
  steps: 10,
  goesByTime: true,
  fewest: 1.5,
  testSteps: 0,
  stopsBySignal: true,
  mustMeet: ['succeeded', 'failed', 'skipped', 'kill', 'partition', 'scheduler.recovered'],
  async run({ url, seed, steps, intensity = 1, only, signal, progress }) {
    const journal = new Journal((text) =>
      process.stderr.write(`${text}${text.startsWith('VIOLATION') ? `\n      seed ${seed}` : ''}\n`),
    );
    const world = await World.open(url, journal, seed);
    const began = Date.now();
    const tell = (): void => {
      const operations = Object.values(journal.counts()).reduce((sum, count) => sum + count, 0);
      progress(
        Math.floor((Date.now() - began) / 6_000) / 10,
        `${operations} operations, ${journal.violations.length} violations, stalled for up to ${Math.round(world.stall.recent)} ms`,
      );
    };
    const stop = new AbortController();
    const ended = AbortSignal.any([stop.signal, ...(signal ? [signal] : [])]);
    const every = async (ms: number, work: () => unknown): Promise<void> => {
      while (!ended.aborted) {
        await work();
        await wait(ms, undefined, { signal: ended }).catch(() => {});
      }
    };
    const loops = [
      every(0, () => world.stall.measure()),
      every(lookEveryMs, () => lookAt(world, continuous)),
      every(progressEveryMs, tell),
    ];
    let tally: { state: string; count: number }[];
    try {
      await operate(world, { until: began + steps * 60_000 - quietMs, gap: gapMs / intensity, only, signal: ended });
      journal.note('heal', 'everything is as it was at the beginning');
      await heal(world);
      await wait(quietMs, undefined, { signal: ended }).catch(() => {});
      if (!signal?.aborted) await lookAt(world, whenQuiet);
      tally = await world.query(
        'select state, count(*)::int from pgfresh.scheduled_job_runs group by state order by 1',
      );
    } finally {
      stop.abort();
      await Promise.all(loops);
      journal.close();
      await world.close();
    }
    const { violations } = journal;
    if (violations.length > 0) {
      const list = [...Map.groupBy(violations, ({ invariant }) => invariant)].map(
        ([invariant, found]) => `  ${found.length} × ${invariant}: ${found[0]!.words}`,
      );
      throw new CampaignFailure(
        `runs with seed ${seed}: ${violations.length} violations\n${list.join('\n')}\n` +
          `Once more: npm run campaign -- runs --seed ${seed} --minutes ${steps}`,
      );
    }
    const states = Object.fromEntries(tally.map(({ state, count }) => [state, count]));
    return {
      violations: 0,
      processes: world.processes.length,
      stallMs: Math.round(world.stall.worst),
      ...states,
      ...world.events,
      ...journal.counts(),
    };
  },
};

interface Operating {
  readonly until: number;
  readonly gap: number;
  readonly only: string | undefined;
  readonly signal: AbortSignal;
}

/** Begins operations until then, and waits for their ends. */
async function operate(world: World, { until, gap, only, signal }: Operating): Promise<void> {
  const underWay = new Set<Promise<void>>();
  for (let count = 0; Date.now() < until && !signal.aborted; count++) {
    const operation = draw(world, only, count);
    const done = operation
      ?.run(world)
      .catch((error: unknown) =>
        world.journal.violated('operators are not refused', {}, `${operation.name}: ${(error as Error).message}`),
      )
      .finally(() => underWay.delete(done!));
    if (done) underWay.add(done);
    await wait(gap * (0.5 + world.random()));
  }
  await Promise.all(underWay);
}

async function lookAt(world: World, invariants: typeof continuous): Promise<void> {
  for (const invariant of invariants) {
    try {
      await invariant.look(world);
    } catch (error) {
      world.journal.violated('the invariants can be looked at', {}, `${invariant.name}: ${(error as Error).message}`);
    }
  }
}
