import type { Database } from '../../src/database/index.ts';
import { Worker, type WorkerOptions } from '../../src/worker/index.ts';
import { atEnd, openDatabase } from '../harness/database.ts';
import type { RefreshScene } from '../refresh/scene.ts';

/** Starts a worker on the scene's types, as a process of its own would have it: with a pool of its own. */
export async function startWorker(
  scene: RefreshScene,
  options: Partial<WorkerOptions> = {},
): Promise<Worker & { readonly db: Database }> {
  const db = options.db ?? openDatabase(options.url ?? scene.url, { events: scene.events });
  const worker = new Worker({
    db,
    url: scene.url,
    listenUrl: options.url ?? scene.url,
    events: scene.events,
    sources: scene.config.sources,
    dataTypes: scene.dataTypes,
    concurrency: 100,
    drainMs: 5_000,
    ...options,
  });
  atEnd(() => worker.stop());
  await worker.start();
  return Object.assign(worker, { db });
}

/** Settles when the condition holds; the test's own timeout ends a wait that is in vain. */
export async function until(condition: () => Promise<boolean> | boolean): Promise<void> {
  while (!(await condition())) await new Promise((resolve) => setTimeout(resolve, 5));
}

/** Settles when no job is open any more. */
export function drained(scene: RefreshScene): Promise<void> {
  return until(async () => (await scene.value<number>('select count(*)::int from pgfresh_engine.job')) === 0);
}
