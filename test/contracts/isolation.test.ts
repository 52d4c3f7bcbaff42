import { expect, onTestFinished, test, vi } from 'vitest';
import { Events } from '../../src/events/index.ts';
import { Planner } from '../../src/planner/index.ts';
import { HarmScene } from '../gateway/harm-scene.ts';
import { LiveScene } from '../gateway/live-scene.ts';

test('contract 25: while types hang and tables are locked, the others have their viewers and jobs', async () => {
  const scene = await LiveScene.open();
  const harm = await HarmScene.open(scene);
  const planner = new Planner({ db: scene.db, events: new Events(), tickMs: 100 });
  onTestFinished(() => planner.stop());
  await planner.start();
  const running = await scene.gateway();
  await scene.quote('OLD', 1);
  const before = await running.greet('before');
  before.say({ type: 'want', pairs: [['quote', 'OLD']] });
  await before.nextAbout('quote', ['snapshot']);

  const releases = [await harm.hang('gate', 'check'), await harm.lock('locked', 'listing')];
  const harmedTypes = ['gated', 'looping', 'locked', 'listed'];
  const harmed = await Promise.all(harmedTypes.map((type) => running.greet(type)));
  for (const [place, type] of harmedTypes.entries()) harmed[place]!.say({ type: 'want', pairs: [[type, 'A']] });

  // Those who come see what is there, and what is missing is queued.
  const keys = Array.from({ length: 20 }, (_, n) => `K${'X'.repeat(n)}`);
  const others = await Promise.all(keys.map((key) => running.greet(key)));
  for (const [place, key] of keys.entries()) others[place]!.say({ type: 'want', pairs: [['quote', key]] });
  for (const other of others) expect(await other.nextAbout('quote', ['snapshot'])).toMatchObject({ state: 'missing' });
  const queued = async (): Promise<string[]> => (await scene.queued()).filter((job) => job.startsWith('quote '));
  await vi.waitFor(async () => expect(await queued()).toEqual(keys.map((key) => `quote ${key}`).toSorted()), 10_000);

  // One who was there sees what changes, and the tick plans it.
  await scene.quote('OLD', 2, '2 minutes');
  expect(await before.nextAbout('quote', ['change'])).toMatchObject({ state: 'stale', rows: [{ price: 2 }] });
  await vi.waitFor(async () => expect(await queued()).toContain('quote OLD'), 10_000);

  // What can be read is shown, whatever the functions of its type do; of the rest it is said that it waits.
  for (const place of [0, 1])
    expect(await harmed[place]!.nextAbout(harmedTypes[place]!, ['snapshot'])).toMatchObject({ rows: [{ price: 1 }] });
  for (const place of [2, 3])
    expect(await harmed[place]!.nextAbout(harmedTypes[place]!, ['waiting', 'snapshot'])).toMatchObject({
      type: 'waiting',
      reason: 'quarantined',
    });

  for (const release of releases) await release();
  for (const place of [2, 3])
    expect(await harmed[place]!.nextAbout(harmedTypes[place]!, ['snapshot'])).toMatchObject({ rows: [{ price: 1 }] });
  const planned = harmedTypes.map((type) => `${type} A`);
  await vi.waitFor(async () => expect(await scene.queued()).toEqual(expect.arrayContaining(planned)), 10_000);
});
