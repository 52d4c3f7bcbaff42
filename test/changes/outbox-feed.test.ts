import { expect, it, onTestFinished } from 'vitest';
import type { Queryable } from '../../src/database/index.ts';
import { Events } from '../../src/events/index.ts';
import { Feed, type Heard } from '../../src/changes/index.ts';
import { GatewayScene } from './scene.ts';

const scene = await GatewayScene.open();

it('tells what is marked, and after a poll that has failed that something may be missing', async () => {
  let isLost = false;
  const db: Queryable = {
    query: async <Row extends object>(...call: Parameters<Queryable['query']>) => {
      if (isLost) throw new Error('lost');
      return scene.db.query<Row>(...call);
    },
  };
  const bus = { start: async () => {}, stop: async () => {}, publish: async () => {}, subscribe: () => () => {} };
  const feed = new Feed({ db, bus, events: new Events(), pollMs: 60_000, onWatching: () => {} });
  onTestFinished(() => feed.stop());
  const heard: Heard[] = [];
  feed.subscribe((one) => heard.push(one));
  // The first one has nothing to go on from.
  await feed.watch(1, scene);
  expect(heard.splice(0)).toEqual(['missed']);
  await scene.price('A', 1);
  await feed.poll();
  expect(heard.splice(0)).toEqual([[{ type: 1, keys: ['A'], xids: [expect.any(Number)] }]]);
  isLost = true;
  await scene.price('B', 1);
  await expect(feed.poll()).rejects.toThrow('lost');
  isLost = false;
  await feed.poll();
  expect(heard.splice(0)).toEqual(['missed']);
  await feed.poll();
  expect(heard).toEqual([]);
});
