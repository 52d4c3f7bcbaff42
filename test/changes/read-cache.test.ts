import { expect, it, onTestFinished } from 'vitest';
import { Events } from '../../src/events/index.ts';
import { pairReader, ReadCache, type ChangeNotice, type PairId, type RlsReader } from '../../src/changes/index.ts';
import { openSession } from '../harness/session.ts';
import { ChangesScene, sees, Viewer } from './scene.ts';

const scene = await ChangesScene.open();

/** A cache that receives the notices of the test, and records its reads. A read returns once `delay` resolves. */
async function openCache(delay: () => Promise<void> = async () => {}) {
  const reads: string[][] = [];
  let listener: (notice: ChangeNotice) => void = () => {};
  const read = pairReader({ dataDb: scene.db, rlsDb: scene.db });
  const cache = new ReadCache({
    feed: { subscribe: (one) => ((listener = one), () => {}), watch: async () => {}, unwatch: () => {} },
    read: async (type, keys, options) => {
      reads.push([...keys]);
      const readings = await read(type, keys, options);
      await delay();
      return readings;
    },
    events: new Events(),
  });
  onTestFinished(() => cache.stop());
  await cache.start();
  const watch = (...[pair, reader]: [PairId, RlsReader?]): Viewer => {
    const viewer = new Viewer();
    viewer.stop = cache.watch(pair, viewer, reader);
    return viewer;
  };
  return {
    watch,
    look: (key: string) => watch({ type: 1, key }),
    reads,
    notify: (notice: ChangeNotice) => listener(notice),
  };
}

it('reads everything again if changes may have been missed', async () => {
  const { look, notify, reads } = await openCache();
  const viewers = await Promise.all(['A', 'B'].map((key) => look(key).until(sees(undefined))));
  await scene.price('A', 1);
  await scene.price('B', 2);
  notify('missed');
  await viewers[0]!.until(sees(1));
  await viewers[1]!.until(sees(2));
  expect(reads.at(-1)).toEqual(['A', 'B']);
});

it('reads a change once, however often it is notified', async () => {
  const { look, notify, reads } = await openCache();
  const viewers = await Promise.all(['C', 'D'].map((key) => look(key).until(sees(undefined))));
  const [row] = await scene.db.query<{ xid: number }>(
    `insert into quote values ('C', 1) returning pg_current_xact_id()::text::bigint as xid`,
  );
  const change = { type: 1, keys: ['C', 'nobody'], xids: [row!.xid] };
  const before = reads.length;
  notify([change]);
  await viewers[0]!.until(sees(1));
  notify([change]);
  notify([{ ...change, keys: undefined }]);
  notify([{ type: 2, keys: ['C'] }]);
  // Only this pair was not read since.
  await scene.price('D', 1);
  notify([{ type: 1, keys: ['D'] }]);
  await viewers[1]!.until(sees(1));
  expect(
    reads
      .slice(before)
      .flat()
      .filter((key) => key === 'C'),
  ).toEqual(['C']);
});

it('repeats a read for changes notified during it, unless it includes them', async () => {
  let during: () => Promise<void> = async () => {};
  const { look, notify, reads } = await openCache(() => during());
  const viewers = await Promise.all(['E', 'F'].map((key) => look(key).until(sees(undefined))));
  const write = async (key: string, price: number): Promise<{ type: number; keys: string[]; xids: number[] }> => {
    const [row] = await scene.db.query<{ xid: number }>(
      `insert into quote values ($1::text, $2::float8) on conflict (symbol) do update set price = excluded.price
       returning pg_current_xact_id()::text::bigint as xid`,
      [key, price],
    );
    return { type: 1, keys: [key], xids: [row!.xid] };
  };
  const changes = [await write('E', 1), await write('F', 1)];
  const before = reads.length;
  during = async () => {
    during = async () => {};
    notify(changes);
    notify([await write('F', 2)]);
  };
  notify(changes);
  await viewers[1]!.until(sees(2));
  expect(viewers[0]!.rows).toMatchObject([{ price: 1 }]);
  expect(reads.slice(before)).toEqual([['E', 'F'], ['F']]);
});

it('reads many pairs in few statements, unread ones first', async () => {
  const { look, notify, reads } = await openCache();
  const old = Array.from({ length: 700 }, (_, n) => look(`old ${n}`));
  await Promise.all(old.map((viewer) => viewer.until(sees(undefined))));
  expect(reads.map((keys) => keys.length).reduce((sum, count) => sum + count)).toBe(700);
  expect(reads.length).toBeLessThanOrEqual(4);
  const before = reads.length;
  notify('missed');
  const fresh = look('new');
  await fresh.until(sees(undefined));
  expect(reads[before]![0]).toBe('new');
});

it('reads the pairs of each reader in one statement, and only those that changed', async () => {
  await scene.type('own', { visibility: 'rls' });
  await scene.db.query('grant select on own to pgfresh_viewer');
  const [row] = await scene.db.query<{ type: number }>(
    `select type_id as type from pgfresh.data_type_registry where data_type = 'own'`,
  );
  const { watch, notify, reads } = await openCache();
  const readers = ['ada', 'ben'].map((user) => ({
    role: 'pgfresh_viewer',
    user,
    claims: '{}',
    tag: user,
    group: user,
  }));
  const [ada, ben] = readers.map((reader) => (key: string) => watch({ type: row!.type, key }, reader));
  const viewers = [ada!('A'), ada!('B'), ada!('C'), ben!('C')];
  await Promise.all(viewers.map((viewer) => viewer.until(sees(undefined))));
  expect(reads.map((keys) => keys.join(' ')).toSorted()).toEqual(['A B C', 'C']);
  await scene.price('A', 1, 'own');
  notify([{ type: row!.type, keys: ['A'] }]);
  await viewers[0]!.until(sees(1));
  expect(reads.slice(2)).toEqual([['A']]);
  await scene.price('C', 2, 'own');
  notify([{ type: row!.type, keys: ['C'] }]);
  await Promise.all(viewers.slice(2).map((viewer) => viewer.until(sees(2))));
  expect(reads.slice(3)).toEqual([['C'], ['C']]);
});

it('reads again when a transaction commits that was open during the read, though later ones had committed', async () => {
  const { look, notify } = await openCache();
  const late = await openSession(scene.url);
  await late.query('begin');
  const [row] = await late.query<{ xid: number }>(
    `insert into quote values ('LATE', 1) returning pg_current_xact_id()::text::int as xid`,
  );
  await scene.price('EARLY', 1);
  const viewer = await look('LATE').until(sees(undefined));
  await late.query('commit');
  notify([{ type: 1, keys: ['LATE'], xids: [row!.xid] }]);
  await viewer.until(sees(1));
});
