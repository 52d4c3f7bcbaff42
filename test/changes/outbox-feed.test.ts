import { expect, it, onTestFinished } from 'vitest';
import type { Queryable } from '../../src/database/index.ts';
import { Events } from '../../src/events/index.ts';
import { OutboxFeed, type ChangeNotice } from '../../src/changes/index.ts';
import { ChangesScene } from './scene.ts';

const scene = await ChangesScene.open();

it('passes on marked changes, and reports missed changes after a failed poll', async () => {
  let isLost = false;
  const db: Queryable = {
    query: async <Row extends object>(...call: Parameters<Queryable['query']>) => {
      if (isLost) throw new Error('lost');
      return scene.db.query<Row>(...call);
    },
  };
  const bus = { start: async () => {}, stop: async () => {}, publish: async () => {}, subscribe: () => () => {} };
  const feed = new OutboxFeed({ db, bus, events: new Events(), pollMs: 60_000, onWatching: () => {} });
  onTestFinished(() => feed.stop());
  const notices: ChangeNotice[] = [];
  feed.subscribe((notice) => notices.push(notice));
  // The first poll has no snapshot to continue from.
  await feed.watch(1, scene);
  expect(notices.splice(0)).toEqual(['missed']);
  await scene.price('A', 1);
  await feed.poll();
  expect(notices.splice(0)).toEqual([[{ type: 1, keys: ['A'], xids: [expect.any(Number)] }]]);
  isLost = true;
  await scene.price('B', 1);
  await expect(feed.poll()).rejects.toThrow('lost');
  isLost = false;
  await feed.poll();
  expect(notices.splice(0)).toEqual(['missed']);
  await feed.poll();
  expect(notices).toEqual([]);
});
