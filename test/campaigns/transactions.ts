import { Database } from '../../src/database/index.ts';
import { PgfreshError } from '../../src/errors/index.ts';
import { Events } from '../../src/events/index.ts';
import { Proxy } from '../harness/proxy.ts';
import { seededRandom } from '../harness/random.ts';
import type { Campaign } from './campaign.ts';

type Fate = 'committed' | 'refused' | 'unknown';

/**
 * Eight writers through a network that cuts connections at random moments. What was reported as committed is there once,
 * what was reported as failed is not there, and only what was reported as unknown may be either.
 */
export const transactions: Campaign = {
  about: 'transactions over a network that cuts connections at random',
  steps: 20_000,
  mustMeet: ['committed', 'unknown'],
  async run({ url, seed, steps, progress }) {
    const random = seededRandom(seed);
    const { proxy, url: farUrl } = await Proxy.before(url);
    const near = new Database({ url, events: new Events(), applicationName: 'pgfresh campaign' });
    const far = new Database({
      url: farUrl,
      events: new Events(),
      applicationName: 'pgfresh campaign',
      poolSize: 8,
      random,
    });
    const fates = new Map<number, Fate>();
    try {
      await near.query('create table campaign_write (step int not null)');
      proxy.judge = () => (random() < 0.005 ? 'cut' : 'pass');
      let next = 0;
      const writer = async (): Promise<void> => {
        while (next < steps) {
          const step = next++;
          fates.set(step, await write(far, step));
          if (step % 500 === 0) progress(step);
        }
      };
      await Promise.all(Array.from({ length: 8 }, writer));
    } finally {
      await far.close();
      await proxy.close();
    }
    try {
      return await judge(near, fates);
    } finally {
      await near.close();
    }
  },
};

async function write(database: Database, step: number): Promise<Fate> {
  try {
    await database.transact('campaign', (tx) => tx.query('insert into campaign_write values ($1::int)', [step]));
    return 'committed';
  } catch (error) {
    if (!(error instanceof PgfreshError)) throw error;
    return error.code === 'PGF_COMMIT_UNKNOWN' ? 'unknown' : 'refused';
  }
}

async function judge(database: Database, fates: ReadonlyMap<number, Fate>): Promise<Record<string, number>> {
  // Sessions whose client is gone may still be ending; an exclusive lock waits for them.
  const rows = await database.transact('judge', async (tx) => {
    await tx.query('lock table campaign_write in access exclusive mode');
    return tx.query<{ step: number; count: number }>(
      'select step, count(*)::int as count from campaign_write group by step',
    );
  });
  const counts = new Map(rows.map(({ step, count }) => [step, count]));
  const tally = { committed: 0, refused: 0, unknown: 0, 'unknown but there': 0 };
  for (const [step, fate] of fates) {
    const count = counts.get(step) ?? 0;
    tally[fate]++;
    if (fate === 'unknown' && count === 1) tally['unknown but there']++;
    const allowed = { committed: [1], refused: [0], unknown: [0, 1] }[fate];
    if (!allowed.includes(count)) throw new Error(`step ${step} was ${fate} and is there ${count} times`);
  }
  return tally;
}
