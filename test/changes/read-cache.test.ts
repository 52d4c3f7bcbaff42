import { expect, it, onTestFinished } from 'vitest';
import { Events } from '../../src/events/index.ts';
import { Mirror, readPairs, type Heard, type Pair, type Reader } from '../../src/changes/index.ts';
import { openSession } from '../harness/session.ts';
import { GatewayScene, sees, Viewer } from './scene.ts';

const scene = await GatewayScene.open();

/** A mirror that hears what the test says, and how often each key was read. What was read comes when `held` settles. */
async function openMirror(held: () => Promise<void> = async () => {}) {
  const reads: string[][] = [];
  let listener: (heard: Heard) => void = () => {};
  const read = readPairs({ readers: scene.db, guests: scene.db });
  const mirror = new Mirror({
    feed: { subscribe: (one) => ((listener = one), () => {}), watch: async () => {}, unwatch: () => {} },
    read: async (type, keys, reading) => {
      reads.push([...keys]);
      const readings = await read(type, keys, reading);
      await held();
      return readings;
    },
    events: new Events(),
  });
  onTestFinished(() => mirror.stop());
  await mirror.start();
  const watch = (...[pair, reader]: [Pair, Reader?]): Viewer => {
    const viewer = new Viewer();
    viewer.stop = mirror.watch(pair, viewer, reader);
    return viewer;
  };
  return { watch, look: (key: string) => watch({ type: 1, key }), reads, tell: (heard: Heard) => listener(heard) };
}

it('reads everything again if something may have been missed', async () => {
  const { look, tell, reads } = await openMirror();
  const viewers = await Promise.all(['A', 'B'].map((key) => look(key).until(sees(undefined))));
  await scene.price('A', 1);
  await scene.price('B', 2);
  tell('missed');
  await viewers[0]!.until(sees(1));
  await viewers[1]!.until(sees(2));
  expect(reads.at(-1)).toEqual(['A', 'B']);
});

it('reads what was told once, however often and by whom it is told', async () => {
  const { look, tell, reads } = await openMirror();
  const viewers = await Promise.all(['C', 'D'].map((key) => look(key).until(sees(undefined))));
  const [row] = await scene.db.query<{ xid: number }>(
    `insert into quote values ('C', 1) returning pg_current_xact_id()::text::bigint as xid`,
  );
  const change = { type: 1, keys: ['C', 'nobody'], xids: [row!.xid] };
  const before = reads.length;
  tell([change]);
  await viewers[0]!.until(sees(1));
  tell([change]);
  tell([{ ...change, keys: undefined }]);
  tell([{ type: 2, keys: ['C'] }]);
  // Only the one that was not read since.
  await scene.price('D', 1);
  tell([{ type: 1, keys: ['D'] }]);
  await viewers[1]!.until(sees(1));
  expect(
    reads
      .slice(before)
      .flat()
      .filter((key) => key === 'C'),
  ).toEqual(['C']);
});

it('reads again what is told during a read only if the read does not have it', async () => {
  let during: () => Promise<void> = async () => {};
  const { look, tell, reads } = await openMirror(() => during());
  const viewers = await Promise.all(['E', 'F'].map((key) => look(key).until(sees(undefined))));
  const write = async (key: string, price: number): Promise<{ type: number; keys: string[]; xids: number[] }> => {
    const [row] = await scene.db.query<{ xid: number }>(
      `insert into quote values ($1::text, $2::float8) on conflict (symbol) do update set price = excluded.price
       returning pg_current_xact_id()::text::bigint as xid`,
      [key, price],
    );
    return { type: 1, keys: [key], xids: [row!.xid] };
  };
  const told = [await write('E', 1), await write('F', 1)];
  const before = reads.length;
  during = async () => {
    during = async () => {};
    tell(told);
    tell([await write('F', 2)]);
  };
  tell(told);
  await viewers[1]!.until(sees(2));
  expect(viewers[0]!.rows).toMatchObject([{ price: 1 }]);
  expect(reads.slice(before)).toEqual([['E', 'F'], ['F']]);
});

it('reads many pairs in few statements, those first that nobody has seen yet', async () => {
  const { look, tell, reads } = await openMirror();
  const old = Array.from({ length: 700 }, (_, n) => look(`old ${n}`));
  await Promise.all(old.map((viewer) => viewer.until(sees(undefined))));
  expect(reads.map((keys) => keys.length).reduce((sum, count) => sum + count)).toBe(700);
  expect(reads.length).toBeLessThanOrEqual(4);
  const before = reads.length;
  tell('missed');
  const fresh = look('new');
  await fresh.until(sees(undefined));
  expect(reads[before]![0]).toBe('new');
});

it('reads as each reader what he watches, in one statement, and only as those of what has changed', async () => {
  await scene.type('own', { visibility: 'rls' });
  await scene.db.query('grant select on own to pgfresh_viewer');
  const [row] = await scene.db.query<{ type: number }>(
    `select type_id as type from pgfresh.data_type_registry where data_type = 'own'`,
  );
  const { watch, tell, reads } = await openMirror();
  const readers = ['ada', 'ben'].map((user) => ({ role: 'pgfresh_viewer', user, claims: '{}', tag: user, name: user }));
  const [ada, ben] = readers.map((reader) => (key: string) => watch({ type: row!.type, key }, reader));
  const viewers = [ada!('A'), ada!('B'), ada!('C'), ben!('C')];
  await Promise.all(viewers.map((viewer) => viewer.until(sees(undefined))));
  expect(reads.map((keys) => keys.join(' ')).toSorted()).toEqual(['A B C', 'C']);
  await scene.price('A', 1, 'own');
  tell([{ type: row!.type, keys: ['A'] }]);
  await viewers[0]!.until(sees(1));
  expect(reads.slice(2)).toEqual([['A']]);
  await scene.price('C', 2, 'own');
  tell([{ type: row!.type, keys: ['C'] }]);
  await Promise.all(viewers.slice(2).map((viewer) => viewer.until(sees(2))));
  expect(reads.slice(3)).toEqual([['C'], ['C']]);
});

it('reads again what was not committed yet when it read, although later ones were', async () => {
  const { look, tell } = await openMirror();
  const late = await openSession(scene.url);
  await late.query('begin');
  const [row] = await late.query<{ xid: number }>(
    `insert into quote values ('LATE', 1) returning pg_current_xact_id()::text::int as xid`,
  );
  await scene.price('EARLY', 1);
  const viewer = await look('LATE').until(sees(undefined));
  await late.query('commit');
  tell([{ type: 1, keys: ['LATE'], xids: [row!.xid] }]);
  await viewer.until(sees(1));
});
