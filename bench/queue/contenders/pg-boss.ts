import { loadPeer } from '../../peers.ts';
import type { Contender } from '../contender.ts';

interface PgBoss {
  on(event: 'error' | 'warning', listener: (problem: unknown) => void): void;
  start(): Promise<unknown>;
  stop(options: { graceful: boolean }): Promise<void>;
  createQueue(name: string, options?: object): Promise<void>;
  send(name: string, data: object): Promise<unknown>;
  insert(name: string, jobs: readonly { data: object }[]): Promise<unknown>;
  work(name: string, options: object, handler: (jobs: { data: { id: number } }[]) => Promise<void>): Promise<string>;
}

interface Module {
  PgBoss: new (options: object) => PgBoss;
}

interface Settings {
  readonly instance: object;
  readonly queue: object;
  readonly work: object;
}

const queue = 'bench';

/** https://pgboss.io/api/workers: "The default options for work() is 1 job every 2 seconds." */
export const pgBossDefault: Contender = {
  ...pgBoss({ instance: {}, queue: {}, work: {} }),
  name: 'pg-boss-default',
  settings: 'defaults: one job each two seconds a worker',
  isDefault: true,
  pollsEveryMs: 2000,
};

/**
 * - `batchSize`, `burstWhenBatchFull` (no pause while batches come back full) and `localConcurrency` are in
 *   https://pgboss.io/api/workers#work-name-options-handler and in the package's `dist/types.d.ts`, "How long a
 *   worker waits between fetches"; sets go through `insert`, "the raw, high-volume path".
 * - `useListenNotify` (https://pgboss.io/api/constructor) with the queue's `notify` wakes workers at once.
 * - `partition` gives the queue a table of its own, "more useful for a large queue"
 *   (https://pgboss.io/api/queues).
 * - `supervise`, `schedule` and `registerInstance` are background work that a worker may leave to another process.
 */
export const pgBossFast: Contender = {
  ...pgBoss({
    instance: { useListenNotify: true, supervise: false, schedule: false, registerInstance: false },
    queue: { partition: true, notify: true },
    work: { batchSize: 1000, burstWhenBatchFull: true, localConcurrency: 2, pollingIntervalSeconds: 0.5 },
  }),
  name: 'pg-boss-fast',
  settings: 'batches of 1,000 in burst mode by two workers a process, listen/notify, own table, no supervision',
};

function pgBoss(settings: Settings): Omit<Contender, 'name' | 'settings'> {
  const open = async (url: string, options: object) => {
    const { PgBoss } = await loadPeer<Module>('pg-boss');
    const boss = new PgBoss({ connectionString: url, ...settings.instance, ...options });
    boss.on('error', (error) => process.stderr.write(`pg-boss: ${(error as Error).message}\n`));
    // A backlog of the bench's size is worth a warning to pg-boss.
    boss.on('warning', () => {});
    await boss.start();
    return boss;
  };

  return {
    system: 'pg-boss',

    async setup(url) {
      const boss = await open(url, {});
      await boss.createQueue(queue, settings.queue);
      await boss.stop({ graceful: false });
    },

    async enqueuer(url, connections) {
      const boss = await open(url, { max: connections });
      return {
        one: async (id) => void (await boss.send(queue, { id })),
        set: async (ids) =>
          void (await boss.insert(
            queue,
            ids.map((id) => ({ data: { id } })),
          )),
        close: () => boss.stop({ graceful: false }),
      };
    },

    async worker(url) {
      const boss = await open(url, {});
      return {
        start: async (onJob) => {
          await boss.work(queue, settings.work, async (jobs) => {
            for (const job of jobs) onJob(job.data.id);
          });
        },
      };
    },

    async hasOpenJobs(query) {
      const openJobs = `select 1 from pgboss.job where name = '${queue}' and state <= 'active' limit 1`;
      return (await query(openJobs)).length > 0;
    },
  };
}
