import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { expect, it, onTestFinished } from 'vitest';
import { LeaseScene } from './lease-scene.ts';
import { until } from './scene.ts';

const scene = await LeaseScene.open();
await scene.db.query('create table written (token bigint)');

async function startHolder(name: string, lease: string) {
  const script = fileURLToPath(new URL('leased-process.ts', import.meta.url));
  const child = spawn(process.execPath, [script, scene.url, name, lease], { stdio: ['pipe', 'pipe', 'inherit'] });
  const closed = once(child, 'close');
  onTestFinished(async () => {
    child.kill('SIGKILL');
    await closed;
  });
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const next = async () => JSON.parse((await lines.next()).value as string) as Record<string, unknown>;
  const tell = async (line: string) => {
    child.stdin.write(`${line}\n`);
    return next();
  };
  const { token } = await next();
  return { child, closed, next, tell, token: token as number };
}

const written = () => scene.db.query('select token from written');

it('a holder that is stopped past its lease cannot renew, commit fenced data or record a success', async () => {
  const { child, closed, tell, token } = await startHolder('stopped', '5m');
  expect(await tell('write')).toEqual({ write: 'done' });
  expect(await tell('renew')).toEqual({ renew: [{ reason: 'renewed' }] });

  child.kill('SIGSTOP');
  await scene.clock.advance('5 minutes');
  const taken = await scene.take('stopped');
  expect(taken).toBeGreaterThan(token);

  // Its own clock has not moved, so it believes that all is well.
  child.kill('SIGCONT');
  expect(await tell('renew')).toEqual({ renew: [{ reason: 'lost' }] });
  expect(await tell('write')).toEqual({ write: 'PGF_LOCK_LOST' });
  expect(await tell('end')).toEqual({ ended: 'PGF_LOCK_LOST' });
  expect(await closed).toEqual([0, null]);
  expect(await written()).toEqual([{ token }]);
  expect(await scene.row('stopped')).toMatchObject({ last_status: null, ended: false, locked: true });
  expect(await scene.release('stopped', taken, true)).toMatchObject({ reason: 'released' });
});

it('a holder that is stopped for longer than its lease notices by itself when it goes on', async () => {
  const { child, next, token } = await startHolder('asleep', '1s');
  child.kill('SIGSTOP');
  let took = await scene.acquire('asleep');
  await until(async () => (took = await scene.acquire('asleep')).reason !== 'locked');
  expect(took).toMatchObject({ reason: 'acquired' });
  child.kill('SIGCONT');
  expect(await next()).toEqual({ aborted: 'PGF_LOCK_LOST' });
  expect(await next()).toEqual({ ended: 'PGF_LOCK_LOST' });
  expect(took.token!).toBeGreaterThan(token);
  expect(await scene.row('asleep')).toMatchObject({ last_status: null, locked: true });
});
