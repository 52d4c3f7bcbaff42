import { expect, it, onTestFinished } from 'vitest';
import { Events } from '../../src/events/index.ts';
import { PostgresBus, type Heard } from '../../src/changes/index.ts';
import { createDatabase, openDatabase } from '../harness/database.ts';
import { Proxy } from '../harness/proxy.ts';
import { testBus } from './bus-conformance.ts';

const url = await createDatabase();
const db = openDatabase(url);

testBus('of PostgreSQL', async () => {
  const { proxy, url: listenUrl } = await Proxy.before(url);
  onTestFinished(() => proxy.close());
  return { open: () => new PostgresBus({ db, listenUrl, events: new Events() }), cut: () => proxy.cut() };
});

it('what others notify on its channel is taken for what it is', async () => {
  const bus = new PostgresBus({ db, listenUrl: url, events: new Events() });
  onTestFinished(() => bus.stop());
  await bus.start();
  const heard: Heard[] = [];
  const last = new Promise<void>((resolve) =>
    bus.subscribe((one) => {
      heard.push(one);
      if (one !== 'missed' && one[0]!.type === 9) resolve();
    }),
  );
  const payloads = [
    '',
    'x',
    '{}',
    '[',
    'null',
    '[1]',
    '[[1]]',
    '[["1",["A"],1]]',
    '[[1,[1],1]]',
    '[[1,"A",1]]',
    '[[1.5,["A"],1]]',
    '[[1,["A"],7]]',
    '[[1,["A"],["7"]]]',
    '[[1,["A"],[7.5]]]',
    '[[2,["A"]],[1]]',
  ];
  for (const payload of payloads) await db.query(`select pg_notify('pgfresh_change', $1::text)`, [payload]);
  await bus.publish([{ type: 9, keys: ['last'] }]);
  await last;
  expect(heard).toEqual([[{ type: 2, keys: ['A'] }], [{ type: 9, keys: ['last'] }]]);
});

it('publishes where nothing can be heard', async () => {
  const [deaf, hearing] = [undefined, url].map((listenUrl) => new PostgresBus({ db, listenUrl, events: new Events() }));
  onTestFinished(() => hearing!.stop());
  await deaf!.start();
  await hearing!.start();
  const heard = new Promise<Heard>((resolve) => hearing!.subscribe(resolve));
  await deaf!.publish([{ type: 1, keys: ['A'] }]);
  expect(await heard).toEqual([{ type: 1, keys: ['A'] }]);
});
