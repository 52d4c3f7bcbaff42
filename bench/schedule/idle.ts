import { sleep } from '../clock.ts';
import type { Scene } from './scene.ts';

const flushMs = 11_000;

/** Milliseconds in a minute that sessions of the database spend on statements while nothing is due. */
export async function idleCost(scene: Scene, ms: number): Promise<number> {
  // Sessions tell what they have spent when they have been idle for so long.
  await sleep(flushMs);
  const before = await scene.activeMs();
  await sleep(ms);
  const after = await scene.activeMs();
  return ((after - before) * 60_000) / ms;
}
