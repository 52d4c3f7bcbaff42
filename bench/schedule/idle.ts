import { sleep } from '../clock.ts';
import type { Scene } from './scene.ts';

/** Milliseconds in a minute that sessions of the database spend on statements while nothing is due. */
export async function idleCost(scene: Scene, ms: number): Promise<number> {
  const before = await scene.activeMs();
  await sleep(ms);
  const after = await scene.activeMs();
  return ((after - before) * 60_000) / ms;
}
