import { loadPeer } from '../../peers.ts';
import type { Contender } from '../contender.ts';

interface Utils {
  migrate(): Promise<void>;
  addJob(task: string, payload: object): Promise<unknown>;
  addJobs(jobs: readonly { identifier: string; payload: object }[]): Promise<unknown>;
  release(): Promise<void>;
}

interface Options {
  preset: { worker: object };
  logger: unknown;
}

interface RunOptions extends Options {
  noHandleSignals: boolean;
  taskList: Record<string, (payload: { id: number }) => Promise<void>>;
}

interface Module {
  Logger: new (factory: () => () => void) => unknown;
  makeWorkerUtils(options: Options): Promise<Utils>;
  run(options: RunOptions): Promise<unknown>;
  runOnce(options: RunOptions): Promise<void>;
}

const task = 'bench';

export const graphileWorkerDefault: Contender = {
  ...graphileWorker({}),
  name: 'graphile-worker-default',
  settings: 'defaults: one job at a time',
  isDefault: true,
};

/**
 * The configuration of "Quick stats in optimal conditions" of https://worker.graphile.org/docs/performance; what
 * its batching does is said there and at `localQueue` and `completeJobBatchDelay` in the package's
 * `dist/index.d.ts`. Sets go through `addJobs`, which the same page recommends.
 */
export const graphileWorkerTuned: Contender = {
  ...graphileWorker({
    concurrentJobs: 24,
    maxPoolSize: 25,
    localQueue: { size: 500 },
    completeJobBatchDelay: 0,
    failJobBatchDelay: 0,
  }),
  name: 'graphile-worker-tuned',
  settings: '24 concurrent jobs, pool of 25, local queue of 500, batched completion without delay',
};

function graphileWorker(settings: object): Omit<Contender, 'name' | 'settings'> {
  // A line for every job says nothing about a queue, so it is spared them.
  const options = ({ Logger }: Module, url: string, worker: object): Options => ({
    logger: new Logger(() => () => {}),
    preset: { worker: { connectionString: url, ...worker } },
  });
  const openUtils = async (url: string, connections: number) => {
    const module = await loadPeer<Module>('graphile-worker');
    return module.makeWorkerUtils(options(module, url, { maxPoolSize: connections }));
  };

  return {
    system: 'graphile-worker',

    async setup(url) {
      const utils = await openUtils(url, 2);
      await utils.migrate();
      await utils.release();
    },

    async enqueuer(url, connections) {
      const utils = await openUtils(url, connections);
      return {
        one: async (id) => void (await utils.addJob(task, { id })),
        set: async (ids) => void (await utils.addJobs(ids.map((id) => ({ identifier: task, payload: { id } })))),
        close: () => utils.release(),
      };
    },

    async worker(url) {
      process.env['NO_LOG_SUCCESS'] = '1';
      const module = await loadPeer<Module>('graphile-worker');
      const runOptions = { ...options(module, url, settings), noHandleSignals: true };
      // It connects only when it runs. A run that finds nothing to do has at least loaded and compiled what it needs.
      await module.runOnce({ ...runOptions, taskList: { nothing: async () => {} } });
      return {
        start: async (onJob) => {
          await module.run({ ...runOptions, taskList: { [task]: async ({ id }) => onJob(id) } });
        },
      };
    },

    async hasOpenJobs(query) {
      return (await query('select 1 from graphile_worker._private_jobs limit 1')).length > 0;
    },
  };
}
