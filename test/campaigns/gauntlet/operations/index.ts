import type { World } from '../world.ts';
import { byHand } from './by-hand.ts';
import { keyChanges } from './keys.ts';
import { processChanges } from './processes.ts';
import { providerChanges } from './provider.ts';
import { rowChanges } from './rows.ts';
import { scheduleChanges } from './schedules.ts';
import { sourceChanges } from './sources.ts';
import { typeChanges } from './types.ts';
import { viewing } from './viewing.ts';
import type { Operation } from './operation.ts';

export { heal } from './heal.ts';
export type { Operation } from './operation.ts';

/** All that may happen. */
export const operations: readonly Operation[] = [
  ...viewing,
  ...typeChanges,
  ...sourceChanges,
  ...keyChanges,
  ...rowChanges,
  ...scheduleChanges,
  ...byHand,
  ...providerChanges,
  ...processChanges,
];

/** Draws an operation by weight, of those that end in time. */
export function draw(
  world: World,
  secondsLeft: number,
  isFree: (operation: Operation) => boolean,
): Operation | undefined {
  const fitting = operations.filter((operation) => operation.lasts <= secondsLeft && isFree(operation));
  let left = world.random() * fitting.reduce((sum, { weight }) => sum + weight, 0);
  return fitting.find(({ weight }) => (left -= weight) < 0);
}
