import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { temporaryFolder } from '../harness/folder.ts';
import { CliProcess } from '../harness/process.ts';
import { LiveClient, type Said } from './live-client.ts';
import { LiveScene } from './live-scene.ts';

let scene: LiveScene;
let cwd: string;
beforeAll(async () => {
  scene = await LiveScene.open();
  cwd = await temporaryFolder('fleet');
  await writeFile(
    join(cwd, 'pgfresh.config.ts'),
    `import { defineConfig } from 'pgfresh'; export default defineConfig({ gateway: { anonymous: 'loopback' } });`,
  );
});
beforeEach(() => scene.clear());

/** A gateway in its own process. */
async function start(): Promise<{ child: CliProcess; url: string }> {
  const env = { DATABASE_URL: scene.url, PGFRESH_PORT: '0', PGFRESH_LOG_LEVEL: 'silent' };
  const child = new CliProcess(['run', '--roles', 'gateway', '--json'], { cwd, env });
  const [, url] = await child.printed(/"url": "([^"]+)"/);
  return { child, url: url! };
}

const hasRows = ({ rows }: Said): boolean => rows !== undefined;

async function greet(url: string): Promise<LiveClient> {
  const client = await LiveClient.open(url);
  client.say({ type: 'hello', protocol: 1 });
  await client.next('welcome');
  return client;
}

describe('two gateways on one database', () => {
  it('add up their viewers, queue a pair once, and send the same states in growing versions', async () => {
    const [one, two] = [await scene.gateway(), await scene.gateway()];
    const [ada, ben] = [await one.greet('ada'), await two.greet('ben')];
    await Promise.all([ada, ben].map((client) => client.want([['quote', 'COLD']])));
    for (const client of [ada, ben])
      expect(await client.next('snapshot')).toMatchObject({ state: 'missing', activity: 'waiting', rows: [] });
    await expect.poll(() => scene.demand()).toEqual(['quote COLD 2']);
    expect(await scene.queued()).toEqual(['quote COLD']);
    await scene.quote('COLD', 1);
    // The reason for its wait may have been sent before.
    const seen = await Promise.all([ada, ben].map((client) => client.nextAbout('quote', ['change'], hasRows)));
    expect(seen).toMatchObject([{ rows: [{ price: 1 }] }, { rows: [{ price: 1 }] }]);
    // A client that moves to the other gateway misses nothing, and gets nothing twice and nothing older.
    await ada.close();
    await scene.quote('COLD', 2);
    const { version, rows: newest } = await ben.nextAbout('quote', ['change'], hasRows);
    expect(newest).toMatchObject([{ price: 2 }]);
    const moved = await two.greet('ada');
    await moved.want([['quote', 'COLD', seen[0]!['version'] as string]]);
    const snapshot = await moved.next('snapshot');
    expect(snapshot).toMatchObject({ rows: [{ price: 2 }] });
    expect((snapshot['version'] as string) >= (version as string)).toBe(true);
    const back = await one.greet('ben');
    await back.want([['quote', 'COLD', version as string]]);
    await scene.quote('COLD', 3);
    for (;;) {
      const said = await back.next();
      expect((said['version'] as string) > (version as string)).toBe(true);
      const rows = said['rows'] as { price: number }[] | undefined;
      // Rows that the client has are not sent again.
      if (rows === undefined) continue;
      expect(rows).toMatchObject([{ price: 3 }]);
      break;
    }
  });
});

describe('a gateway in its own process', () => {
  it('that is killed loses its counts when its lease expires, and its clients continue elsewhere', async () => {
    const other = await scene.gateway({ anonymous: 'loopback' });
    await scene.quote('AAPL', 1);
    const { child, url } = await start();
    const client = await greet(url);
    await client.want([['quote', 'AAPL']]);
    const { version } = await client.next('snapshot');
    await expect.poll(() => scene.demand()).toEqual(['quote AAPL 1']);
    child.signal('SIGKILL');
    await client.closed;
    await scene.quote('AAPL', 2);
    const again = await greet(other.http.url);
    await again.want([['quote', 'AAPL', version as string]]);
    expect(await again.next('snapshot')).toMatchObject({ rows: [{ price: 2 }] });
    // Both count until the lease of the dead gateway expires.
    await expect.poll(() => scene.demand()).toEqual(['quote AAPL 2']);
    await scene.db.query(
      `update pgfresh_engine.process set lease_until = pgfresh.clock() where kind = 'gateway' and name like $1::text`,
      [`% ${child.pid}`],
    );
    await scene.value('pgfresh.cleanup_stale_subscriptions()');
    expect(await scene.demand()).toEqual(['quote AAPL 1']);
  });

  it('that is asked to stop sends its clients elsewhere, leaves no counts and exits cleanly', async () => {
    const { child, url } = await start();
    const client = await greet(url);
    await client.want([['quote', 'A']]);
    await client.next('snapshot');
    child.signal('SIGTERM');
    expect(await client.next('reconnect')).toMatchObject({ after_ms: expect.any(Number) as number });
    expect(await client.closed).toEqual({ code: 1012, reason: 'PGF_LIVE_STOPPING' });
    expect(await child.exit).toBe(0);
    expect(await scene.demand()).toEqual([]);
  });
});
