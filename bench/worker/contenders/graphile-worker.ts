import { loadPeer } from '../../peers.ts';
import type { Contender } from '../contender.ts';
import { refresher } from './refresh.ts';

interface Utils {
  migrate(): Promise<void>;
  addJobs(jobs: readonly { identifier: string; payload: object }[]): Promise<unknown>;
  release(): Promise<void>;
}

interface Options {
  preset: { worker: object };
  logger: unknown;
}

interface Module {
  Logger: new (factory: () => () => void) => unknown;
  makeWorkerUtils(options: Options): Promise<Utils>;
  run(
    options: Options & {
      noHandleSignals: boolean;
      taskList: Record<string, (payload: { symbol: string }) => Promise<void>>;
    },
  ): Promise<unknown>;
}

const task = 'refresh';
const concurrentJobs = 24;

/** The settings of "Quick stats in optimal conditions" of https://worker.graphile.org/docs/performance. */
export const graphileWorker: Contender = {
  name: 'graphile-worker',
  system: 'graphile-worker',
  settings: `${concurrentJobs} concurrent jobs, pool of 25, local queue of 500, batched completion without delay; upserts on a pool of ${concurrentJobs}`,

  async setup({ url }) {
    const utils = await openUtils(url);
    await utils.migrate();
    await utils.release();
  },

  async load(url, keys) {
    const utils = await openUtils(url);
    for (let from = 0; from < keys.length; from += 1000) {
      const jobs = keys.slice(from, from + 1000).map((symbol) => ({ identifier: task, payload: { symbol } }));
      await utils.addJobs(jobs);
    }
    await utils.release();
  },

  async worker({ url, provider }, onEnd) {
    process.env['NO_LOG_SUCCESS'] = '1';
    const module = await loadPeer<Module>('graphile-worker');
    const refresh = refresher(url, provider, concurrentJobs);
    const settings = {
      concurrentJobs,
      maxPoolSize: 25,
      localQueue: { size: 500 },
      completeJobBatchDelay: 0,
      failJobBatchDelay: 0,
    };
    return {
      start: async () => {
        const work = async ({ symbol }: { symbol: string }) => {
          await refresh(symbol);
          onEnd(1);
        };
        await module.run({ ...options(module, url, settings), noHandleSignals: true, taskList: { [task]: work } });
      },
    };
  },

  async hasOpenJobs(client) {
    return (await client.query('select 1 from graphile_worker._private_jobs limit 1')).rows.length > 0;
  },
};

async function openUtils(url: string): Promise<Utils> {
  const module = await loadPeer<Module>('graphile-worker');
  return module.makeWorkerUtils(options(module, url, { maxPoolSize: 2 }));
}

function options({ Logger }: Module, url: string, worker: object): Options {
  return { logger: new Logger(() => () => {}), preset: { worker: { connectionString: url, ...worker } } };
}
