import { expect, it, onTestFinished } from 'vitest';
import { Events } from '../../src/events/index.ts';
import { PostgresBus, type ChangeNotice } from '../../src/changes/index.ts';
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

it('ignores malformed notifications that others send on its channel', async () => {
  const bus = new PostgresBus({ db, listenUrl: url, events: new Events() });
  onTestFinished(() => bus.stop());
  await bus.start();
  const notices: ChangeNotice[] = [];
  const last = new Promise<void>((resolve) =>
    bus.subscribe((notice) => {
      notices.push(notice);
      if (notice !== 'missed' && notice[0]!.type === 9) resolve();
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
  expect(notices).toEqual([[{ type: 2, keys: ['A'] }], [{ type: 9, keys: ['last'] }]]);
});

it('publishes without a connection that listens', async () => {
  const [silent, listening] = [undefined, url].map(
    (listenUrl) => new PostgresBus({ db, listenUrl, events: new Events() }),
  );
  onTestFinished(() => listening!.stop());
  await silent!.start();
  await listening!.start();
  const notice = new Promise<ChangeNotice>((resolve) => listening!.subscribe(resolve));
  await silent!.publish([{ type: 1, keys: ['A'] }]);
  expect(await notice).toEqual([{ type: 1, keys: ['A'] }]);
});
