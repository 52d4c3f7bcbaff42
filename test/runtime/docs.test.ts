import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile, writeFile } from 'node:fs/promises';
import { createServer, type AddressInfo } from 'node:net';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { expect, it, onTestFinished, vi } from 'vitest';
import { createDatabase } from '../harness/database.ts';
import { temporaryFolder } from '../harness/folder.ts';

const page = await readFile('docs/guides/embedding.md', 'utf8');
const [, example] = /^```ts\n(.*?)^```/ms.exec(page)!;

async function freePort(): Promise<number> {
  const server = createServer().listen(0);
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, 'close');
  return port;
}

// A clone is no installed package, and may not be built.
const ourselves = `data:text/javascript,${encodeURIComponent(`import { registerHooks } from 'node:module';
  const pgfresh = { url: '${pathToFileURL('src/index.ts').href}', shortCircuit: true };
  registerHooks({ resolve: (name, context, next) => (name === 'pgfresh' ? pgfresh : next(name, context)) });`)}`;

it('docs/guides/embedding.md shows a server that pgfresh runs in', async () => {
  const cwd = await temporaryFolder('embedding');
  await writeFile(join(cwd, 'server.ts'), example!);
  await writeFile(join(cwd, 'pgfresh.config.ts'), `export default { gateway: { anonymous: 'loopback' } };\n`);
  const port = await freePort();
  const DATABASE_URL = await createDatabase({ empty: true });
  const child = spawn(process.execPath, ['--import', ourselves, 'server.ts'], {
    cwd,
    env: { ...process.env, DATABASE_URL, PGFRESH_PORT: '0', PORT: String(port) },
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  onTestFinished(() => void child.kill('SIGKILL'));
  let log = '';
  child.stderr.on('data', (chunk: Buffer) => (log += chunk.toString()));
  const exit = once(child, 'close');
  const said = async (): Promise<string> => (await fetch(`http://127.0.0.1:${port}`)).text();
  const text = await vi.waitFor(said, { timeout: 20_000, interval: 50 });
  const [, address] = /^Live data is at (\S+)\n$/.exec(text)!;
  expect((await fetch(`${address}/readyz`)).status).toBe(200);
  child.kill('SIGTERM');
  const [code] = (await exit) as [number | null];
  expect([code, log]).toEqual([0, expect.stringContaining('"type":"process.stopped"')]);
});
