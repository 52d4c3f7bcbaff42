import { beforeEach, expect, it, onTestFinished, vi } from 'vitest';
import { resolveConfig } from '../../src/config/index.ts';
import { start, type Role } from '../../src/runtime/index.ts';
import { HarmScene } from '../gateway/harm-scene.ts';
import { LiveScene } from '../gateway/live-scene.ts';

let scene: LiveScene;
let harm: HarmScene;

// With a staleness function that takes longer than the usual limit.
beforeEach(async () => {
  scene = await LiveScene.open();
  harm = await HarmScene.open(scene);
  await scene.db.query(`
    create function slow(timestamptz, interval) returns boolean language plpgsql stable as $$
      begin perform pg_sleep(0.7); return true; end $$;
    update pgfresh.data_type_registry set staleness_function = 'slow' where data_type = 'looping'`);
});

/** Starts a role whose settings allow more time than usual. Returns its address. */
async function run(role: Role): Promise<string> {
  const gateway = { anonymous: 'loopback' } as const;
  const config = {
    databaseUrl: scene.url,
    checkTimeout: '20s',
    lockTimeout: '15s',
    logLevel: 'silent',
    gateway,
  } as const;
  const handle = await start({ config, roles: [role], listen: { port: 0 }, env: {} });
  onTestFinished(() => handle.stop());
  return handle.address!;
}

/** Settles when somebody has waited for a lock for longer than the usual limit allows. */
async function patient(): Promise<void> {
  const waiting = `(select count(*)::int from pg_locks where relation = 'locked'::regclass and not granted
    and clock_timestamp() - waitstart > interval '400 milliseconds')`;
  await vi.waitFor(async () => expect(await scene.value(waiting)).toBeGreaterThan(0), {
    timeout: 15_000,
    interval: 20,
  });
}

const view = () =>
  scene.db.query(
    `insert into pgfresh_engine.subscription (user_id, type_id, key, subscribed_at, last_seen_at)
     select 'ann', type_id, 'A', pgfresh.clock(), pgfresh.clock() from pgfresh.data_type_registry where data_type in ('looping', 'locked')`,
  );
const planned = () =>
  vi.waitFor(async () => expect(await scene.queued()).toEqual(['locked A', 'looping A']), { timeout: 15_000 });
const timeouts = () => scene.value<string[]>('array(select last_where from pgfresh_engine.type_timeout)');

it('sound 14: the usual limits are well below a tick', () => {
  const { tickInterval, checkTimeout, lockTimeout } = resolveConfig({}).settings;
  expect(checkTimeout).toBeLessThanOrEqual(tickInterval / 2);
  expect(lockTimeout).toBeLessThan(checkTimeout);
});

it('sound 14: a planner gives data types the time that its settings say', async () => {
  await view();
  const release = await harm.lock('locked');
  await run('planner');
  await patient();
  await release();
  await planned();
  expect(await timeouts()).toEqual([]);
});

it('sound 14: so does a sweep', async () => {
  await view();
  await scene.db.query('select pgfresh_engine.fold_demand(pgfresh.clock())');
  const release = await harm.lock('locked');
  await run('scheduler');
  const trigger = `pgfresh.trigger_scheduled_job('pgfresh.sweep')`;
  await vi.waitFor(() => scene.value(trigger), { timeout: 10_000 });
  await patient();
  await release();
  await planned();
  expect(await timeouts()).toEqual([]);
});

it('sound 14: so does a gateway', async () => {
  const release = await harm.lock('locked');
  const url = await run('gateway');
  const held = fetch(`${url}/live/locked/A`);
  const slow = fetch(`${url}/live/looping/A`);
  await patient();
  await release();
  expect([(await held).status, (await slow).status]).toEqual([200, 200]);
  await planned();
  expect(await timeouts()).toEqual([]);
});
