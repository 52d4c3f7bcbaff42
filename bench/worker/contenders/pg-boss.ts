import { loadPeer } from '../../peers.ts';
import type { Contender } from '../contender.ts';
import { refresher } from './refresh.ts';

interface PgBoss {
  on(event: 'error' | 'warning', listener: (problem: unknown) => void): void;
  start(): Promise<unknown>;
  stop(options: { graceful: boolean }): Promise<void>;
  createQueue(name: string, options: object): Promise<void>;
  insert(name: string, jobs: readonly { data: object }[]): Promise<unknown>;
  work(
    name: string,
    options: object,
    handler: (jobs: { data: { symbol: string } }[]) => Promise<void>,
  ): Promise<string>;
}

interface Module {
  PgBoss: new (options: object) => PgBoss;
}

const queue = 'refresh';
const atOnce = 50;

/** The settings of https://pgboss.io/api/workers for throughput; see the queue's bench for what each of them is. */
export const pgBoss: Contender = {
  name: 'pg-boss',
  system: 'pg-boss',
  settings: `batches of 1,000 in burst mode by two workers, each ${atOnce} jobs at once; listen/notify, own table, no supervision; upserts on a pool of 24`,

  async setup({ url }) {
    const boss = await open(url);
    await boss.createQueue(queue, { partition: true, notify: true });
    await boss.stop({ graceful: false });
  },

  async load(url, keys) {
    const boss = await open(url);
    for (let from = 0; from < keys.length; from += 1000) {
      const jobs = keys.slice(from, from + 1000).map((symbol) => ({ data: { symbol } }));
      await boss.insert(queue, jobs);
    }
    await boss.stop({ graceful: false });
  },

  async worker({ url, provider }, onEnd) {
    const boss = await open(url);
    const refresh = refresher(url, provider, 24);
    const settings = { batchSize: 1000, burstWhenBatchFull: true, localConcurrency: 2, pollingIntervalSeconds: 0.5 };
    return {
      start: async () => {
        await boss.work(queue, settings, async (jobs) => {
          const waiting = jobs.values();
          const workOff = async () => {
            for (const { data } of waiting) {
              await refresh(data.symbol);
              onEnd(1);
            }
          };
          await Promise.all(Array.from({ length: atOnce }, workOff));
        });
      },
    };
  },

  async hasOpenJobs(client) {
    const openJobs = `select 1 from pgboss.job where name = '${queue}' and state <= 'active' limit 1`;
    return (await client.query(openJobs)).rows.length > 0;
  },
};

async function open(url: string): Promise<PgBoss> {
  const { PgBoss } = await loadPeer<Module>('pg-boss');
  const boss = new PgBoss({
    connectionString: url,
    useListenNotify: true,
    supervise: false,
    schedule: false,
    registerInstance: false,
  });
  boss.on('error', (error) => process.stderr.write(`pg-boss: ${(error as Error).message}\n`));
  // A backlog of the bench's size is worth a warning to pg-boss.
  boss.on('warning', () => {});
  await boss.start();
  return boss;
}
