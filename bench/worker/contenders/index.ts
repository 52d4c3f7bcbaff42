import { Problem } from '../../problem.ts';
import type { Contender } from '../contender.ts';
import { graphileWorker } from './graphile-worker.ts';
import { pgBoss } from './pg-boss.ts';
import { pgfresh } from './pgfresh.ts';

export const contenders: readonly Contender[] = [pgfresh, graphileWorker, pgBoss];

/** The contenders that `--only` names; all when it names none. */
export function selectContenders(only: readonly string[]): readonly Contender[] {
  for (const name of only) {
    if (contenders.some((contender) => contender.name === name)) continue;
    const known = contenders.map((contender) => contender.name).join(', ');
    throw new Problem(`There is no contender "${name}". Choose from: ${known}.`, 2);
  }
  return only.length === 0 ? contenders : contenders.filter(({ name }) => only.includes(name));
}
