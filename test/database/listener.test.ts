import { expect, it, onTestFinished } from 'vitest';
import { Listener } from '../../src/database/index.ts';
import { Events } from '../../src/events/index.ts';
import { createDatabase, openDatabase } from '../harness/database.ts';
import { Proxy } from '../harness/proxy.ts';

const url = await createDatabase();
const db = openDatabase(url);

/** Collects notifications and lets a test wait for the next one. */
async function listen(address: string, isOptional = false) {
  const events = new Events();
  const heard: string[] = [];
  let next = Promise.withResolvers<string>();
  const listener = new Listener({
    url: address,
    channel: 'Some "channel"',
    events,
    isOptional,
    onNotification: (payload) => {
      heard.push(payload);
      next.resolve(payload);
      next = Promise.withResolvers();
    },
  });
  onTestFinished(() => listener.stop());
  await listener.start();
  return { listener, events, heard, next: () => next.promise };
}

const notify = (payload: string) => db.query(`select pg_notify('Some "channel"', $1::text)`, [payload]);

it('hears what is said on its channel', async () => {
  const { next } = await listen(url);
  const heard = next();
  await notify('hello');
  expect(await heard).toBe('hello');
});

it('connects again after a cut, and then tells that something may have been missed', async () => {
  const { proxy, url: far } = await Proxy.before(url);
  onTestFinished(() => proxy.close());
  const { next, events, heard } = await listen(far);
  const lost = new Promise((resolve) => events.on('database.connection_lost', resolve));
  const again = next();
  proxy.cut();
  await lost;
  expect(await again).toBe('');
  const after = next();
  await notify('still there?');
  expect(await after).toBe('still there?');
  expect(heard).toEqual(['', 'still there?']);
});

it('stops while it is trying to connect again', async () => {
  const { proxy, url: far } = await Proxy.before(url);
  const { listener, events } = await listen(far);
  const lost = new Promise((resolve) => events.on('database.connection_lost', resolve));
  await proxy.close();
  await lost;
  await listener.stop();
});

it('runs 11: one that can be done without starts while its server says nothing, and hears when it does', async () => {
  const { proxy, url: far } = await Proxy.before(url);
  onTestFinished(() => proxy.close());
  proxy.judge = () => 'hold';
  const { listener, next } = await listen(far, true);
  expect(listener.isConnected).toBe(false);
  const again = next();
  proxy.judge = () => 'pass';
  proxy.cut();
  expect(await again).toBe('');
  expect(listener.isConnected).toBe(true);
  const heard = next();
  await notify('after all');
  expect(await heard).toBe('after all');
});

it('runs 11: leaves no connection to a server that lets it in but not listen', async () => {
  const { proxy, url: far } = await Proxy.before(url);
  onTestFinished(() => proxy.close());
  // As on a standby, the statement is refused.
  proxy.rewrite = (chunk) => Buffer.from(chunk.toString('latin1').replace('listen "', 'lisDen "'), 'latin1');
  await expect(listen(far)).rejects.toThrow('lisDen');
  await expect.poll(() => proxy.connections).toEqual([]);
});

it('runs 11: stops at once while its server says nothing', async () => {
  const { proxy, url: far } = await Proxy.before(url);
  onTestFinished(() => proxy.close());
  proxy.judge = () => 'hold';
  const { listener } = await listen(far, true);
  const since = performance.now();
  await listener.stop();
  expect(performance.now() - since).toBeLessThan(5_000);
});
