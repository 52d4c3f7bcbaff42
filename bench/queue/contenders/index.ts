import { Problem } from '../../problem.ts';
import type { Contender } from '../contender.ts';
import { graphileWorkerDefault, graphileWorkerTuned } from './graphile-worker.ts';
import { minimum } from './minimum.ts';
import { pgBossDefault, pgBossFast } from './pg-boss.ts';
import { pgfresh } from './pgfresh.ts';

export const contenders: readonly Contender[] = [
  pgfresh,
  minimum,
  pgBossDefault,
  pgBossFast,
  graphileWorkerDefault,
  graphileWorkerTuned,
];

export function findContender(name: string): Contender {
  const found = contenders.find((contender) => contender.name === name);
  if (!found) throw new Problem(`There is no contender "${name}".`, 2);
  return found;
}

/** The contenders that `--only` names, each by its own name or by its system's; all when it names none. */
export function selectContenders(only: readonly string[]): readonly Contender[] {
  if (only.length === 0) return contenders;
  const known = new Set(contenders.flatMap(({ name, system }) => [name, system]));
  for (const name of only) {
    if (!known.has(name))
      throw new Problem(`There is no contender "${name}". Choose from: ${[...known].join(', ')}.`, 2);
  }
  return contenders.filter(({ name, system }) => only.includes(name) || only.includes(system));
}
