import { execFile } from 'node:child_process';
import { readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import { expect, it, onTestFinished } from 'vitest';
import { createDatabase } from '../harness/database.ts';
import { blocksOf } from '../harness/doc-blocks.ts';
import { temporaryFolder } from '../harness/folder.ts';

const page = 'docs/guides/testing.md';

// A clone is no installed package, and may not be built.
const ourselves = `data:text/javascript,${encodeURIComponent(`import { registerHooks } from 'node:module';
  const places = ${JSON.stringify({ pgfresh: pathToFileURL('src/index.ts').href, 'pgfresh/client': pathToFileURL('client/index.ts').href })};
  registerHooks({ resolve: (name, context, next) => (name in places ? { url: places[name], shortCircuit: true } : next(name, context)) });`)}`;

it('the tests of docs/guides/testing.md pass', async () => {
  const folder = await temporaryFolder('testing');
  onTestFinished(() => rm(folder, { recursive: true }));
  await symlink(resolve('node_modules'), join(folder, 'node_modules'));
  await writeFile(join(folder, 'package.json'), '{"type":"module"}');
  const files = blocksOf(page, await readFile(page, 'utf8')).filter(({ language }) => language === 'ts');
  expect(files.map(({ file }) => file)).toEqual(['quote.ts', 'quote.test.ts', 'pipeline.test.ts']);
  for (const { file, text } of files) await writeFile(join(folder, file!), text);
  const { NODE_OPTIONS: _, NODE_TEST_CONTEXT: _context, ...env } = process.env;
  const { stdout } = await promisify(execFile)(
    process.execPath,
    ['--import', ourselves, '--test', '--test-reporter=tap'],
    { cwd: folder, env: { ...env, DATABASE_URL: await createDatabase({ empty: true }) } },
  );
  expect(stdout).toMatch(/^# pass 3$/m);
  expect(stdout).toMatch(/^# fail 0$/m);
});
