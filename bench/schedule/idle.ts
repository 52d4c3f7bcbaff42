import { sleep } from '../clock.ts';
import type { Scene } from './scene.ts';

const flushMs = 11_000;

/** Milliseconds per minute that the database's sessions spend on statements while nothing is due. */
export async function idleCost(scene: Scene, ms: number): Promise<number> {
  // Sessions report statistics after being idle for this long.
  await sleep(flushMs);
  const before = await scene.activeMs();
  await sleep(ms);
  const after = await scene.activeMs();
  return ((after - before) * 60_000) / ms;
}
