import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';

// Beside the rest of the tests, where vitest is found; by their names, no other run takes these files for its own.
const folder = await mkdtemp(join(import.meta.dirname, 'planted-'));
afterAll(() => rm(folder, { recursive: true }));

const planted = {
  clean: `it('ends', () => clearInterval(setInterval(() => {}, 60_000)));`,
  leaky: `it('ends', async () => {
    setInterval(() => {}, 60_000);
    const server = createServer().listen(0, '127.0.0.1');
    await once(server, 'listening');
    connect(server.address().port, '127.0.0.1');
  });`,
};

const imports = `import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import { it } from 'vitest';`;

const config = `export default { test: { include: ['*.planted.ts'], setupFiles: ['../leaks.ts'] } };`;

it('fails a test file that leaves a timer, a socket and a server, and no other', async () => {
  await writeFile(join(folder, 'vitest.config.ts'), config);
  for (const [name, test] of Object.entries(planted)) {
    await writeFile(join(folder, `${name}.planted.ts`), `${imports}\n${test}\n`);
  }
  const report = join(folder, 'report.json');
  const options = ['run', '--root', folder, '--reporter', 'json', '--outputFile', report];
  const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('VITEST')));
  const run = spawn(process.execPath, ['node_modules/vitest/vitest.mjs', ...options], { env, stdio: 'ignore' });
  expect((await once(run, 'close'))[0]).toBe(1);
  const { testResults } = JSON.parse(await readFile(report, 'utf8')) as { testResults: { message: string }[] };
  const messages = testResults.map(({ message }) => message).toSorted();
  expect(messages).toHaveLength(2);
  expect(messages[0]).toBe('');
  for (const left of ['Timeout', 'TCPSocketWrap', 'TCPServerWrap']) expect(messages[1]).toContain(left);
});
