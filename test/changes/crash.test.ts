import { expect, it } from 'vitest';
import { openDatabase } from '../harness/database.ts';
import { startOwnServer } from '../harness/own-server.ts';
import { ChangesScene, sees } from './scene.ts';

it('after a crash of the server every watched pair is read again, and its version is greater', async () => {
  const url = await startOwnServer();
  const scene = await ChangesScene.open(url);
  // A separate pool, so that failed statements of the gateway do not fail the test.
  const { look } = await scene.gateway({ db: openDatabase(url) });
  const viewer = await (await look('A')).until(sees(undefined));
  for (let price = 1; price <= 3; price++) {
    // Committed and flushed, although this server does not wait for the disk otherwise. The mark is lost, unless the pump was faster.
    const [row] = await scene.db.transact('write', async (tx) => {
      await tx.query('set local synchronous_commit = on');
      return tx.query<{ pid: number }>(
        `insert into quote values ('A', $1::int) on conflict (symbol) do update set price = excluded.price returning pg_backend_pid() as pid`,
        [price],
      );
    });
    process.kill(row!.pid, 'SIGKILL');
    await viewer.until(sees(price));
  }
  const epochs = viewer.states.map(({ version }) => version.split('.').slice(0, 3).join('.'));
  const versions = viewer.states.map(({ version }) => version);
  expect(versions).toEqual(versions.toSorted());
  expect(new Set(epochs).size).toBeGreaterThan(1);
});
