import { beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import type { Queryable } from '../../src/database/index.ts';
import { Events } from '../../src/events/index.ts';
import { OutboxPump, type Change } from '../../src/changes/index.ts';
import { openSession } from '../harness/session.ts';
import { ChangesScene, sees } from './scene.ts';

const scene = await ChangesScene.open();
const quote = await scene.value<number>(`(select type_id from pgfresh.data_type_registry where data_type = 'quote')`);

beforeEach(async () => {
  await scene.db.query(`delete from pgfresh_engine.duty where name = 'pump'; delete from pgfresh_engine.change`);
});

/** Queues pairs, and claims their jobs. */
async function claim(...keys: readonly string[]): Promise<number[]> {
  await scene.db.query(`select * from pgfresh_engine.queue_refreshes('quote', $1::text[])`, [keys]);
  const jobs = await scene.value<{ id: number }[]>('pgfresh.get_queue_batch($1::int)', [keys.length]);
  return jobs.map(({ id }) => id);
}

/** Ends jobs in one transaction. They had no calls, because two ends could book them in the same row of the ledger. */
const end = (jobs: readonly number[], db: Queryable = scene.db) => {
  const each = <T>(value: T): T[] => jobs.map(() => value);
  return db.query('select pgfresh_engine.complete_jobs($1::bigint[], $2::int[], $3::bigint[], $4::text[], $5::int[])', [
    jobs,
    each(1),
    each(0),
    each('empty'),
    each(0),
  ]);
};

/** The keys that ends of jobs marked, and whether the gateways were notified of them. */
const marks = () =>
  scene.db.query<{ keys: string[]; told: boolean }>(
    'select keys, told from pgfresh_engine.change where keys <> $${}$$ order by keys',
  );

const watch = () => scene.db.query('select pgfresh_engine.watch_changes(array[$1::int])', [quote]);

it('a pump that stops releases its lease, so that the next one need not wait for it to expire', async () => {
  const { gateway, look } = await scene.gateway();
  await (await look('A')).until(sees(undefined));
  const holders = () => scene.db.query(`select holder from pgfresh_engine.duty where name = 'pump'`);
  await expect.poll(holders).toHaveLength(1);
  await gateway.stop();
  expect(await holders()).toEqual([]);
});

describe('the end of a job', () => {
  it('reaches viewers with its own commit, without the pump and without a poll', async () => {
    await scene.db.query(
      `insert into pgfresh_engine.duty (name, holder, lease_until) values ('pump', gen_random_uuid(), 'infinity')`,
    );
    const { promise: released, resolve: release } = Promise.withResolvers<void>();
    let polls = 0;
    const db: Queryable = {
      query: async <Row extends object>(...call: Parameters<Queryable['query']>) => {
        const [statement] = call;
        const isPoll = typeof statement === 'object' && statement.name === 'pgfresh.poll';
        if (isPoll && polls++ > 0) await released;
        return scene.db.query<Row>(...call);
      },
    };
    const { look } = await scene.gateway({ db });
    onTestFinished(() => release());
    const viewer = await (await look('A')).until(sees(undefined));
    await end(await claim('A'));
    await viewer.until(({ state }) => state!.state === 'empty');
  });

  it('is not published again by the pump, but writes of other transactions are', async () => {
    const published: Change[] = [];
    const publish = async (changes: readonly Change[]): Promise<void> => void published.push(...changes);
    const pump = new OutboxPump({ db: scene.db, bus: { publish }, events: new Events(), isNeeded: () => true });
    await watch();
    // The first runs publish that the type was watched, and again for each transaction of the server that was open then.
    const isSettled = () => scene.value<boolean>('(select settled from pgfresh_engine.watched_type)');
    do expect(await pump.run()).toBe(true);
    while (!(await isSettled()));
    await pump.run();
    published.length = 0;
    await end(await claim('B'));
    expect(await marks()).toEqual([{ keys: ['B'], told: true }]);
    await pump.run();
    expect(published).toEqual([]);
    await scene.price('C', 1);
    await pump.run();
    expect(published).toEqual([{ type: quote, keys: ['C'], xids: [expect.any(Number)] }]);
  });

  it('is left to the pump while another end commits, and does not wait for it', async () => {
    await watch();
    const [first, second] = [await claim('D'), await claim('E')];
    const session = await openSession(scene.url);
    await session.query('begin');
    await end(first, session);
    await end(second);
    await session.query('commit');
    expect(await marks()).toEqual([
      { keys: ['D'], told: true },
      { keys: ['E'], told: false },
    ]);
  });

  it('is left to the pump if it has many pairs, or keys too long for a notification', async () => {
    await watch();
    const many = Array.from({ length: 51 }, (_, n) => `M${n}`);
    await end(await claim(...many));
    const long = Array.from({ length: 20 }, (_, n) => `L${n}${'x'.repeat(500)}`);
    await end(await claim(...long));
    expect((await marks()).map(({ keys, told }) => [keys.length, told])).toEqual([
      [20, false],
      [51, false],
    ]);
  });
});
