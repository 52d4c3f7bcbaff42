import type { Scope } from '../scope.ts';
import { keysFrom } from './mirror.ts';
import { loadJobs, workOff } from './drain.ts';
import type { Plan } from './plan.ts';
import type { Stage } from './stage.ts';

/** The heap of one worker process in bytes, after the first jobs and after all. It is idle then, and has no garbage. */
export function heapGrowth(
  stage: Stage,
  scope: Scope,
  { first, last }: Plan['heap'],
): Promise<readonly [number, number]> {
  return scope.nest(async (inner) => {
    const place = await stage.clone(inner);
    const worker = await stage.worker(inner, place, ['--expose-gc']);
    await worker.ask('start');
    const heapAfter = async (from: number, upTo: number) => {
      await loadJobs(stage.contender, place, inner, keysFrom(from, upTo - from + 1));
      await workOff(stage.contender, place, inner, worker, upTo);
      return worker.ask<number>('heap');
    };
    return [await heapAfter(1, first), await heapAfter(first + 1, last)];
  });
}
