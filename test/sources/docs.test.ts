import { mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { clientOptions } from '../../src/config/client-options.ts';
import { runCli } from '../harness/process.ts';
import { sourceOf } from './scene.ts';

const page = await readFile('docs/guides/sources.md', 'utf8');
const examples = [...page.matchAll(/```ts\n(\/\/ pgfresh\.config\.ts\n.*?)```/gs)].map(([, text]) => text!);

it.each(examples.map((text) => [/name: ['`](\w+)/.exec(text)![1]!, text]))(
  'docs/guides/sources.md shows a source "%s" that can be loaded',
  async (_name, text) => {
    const folder = await mkdtemp(join(tmpdir(), 'pgfresh-sources-docs-'));
    onTestFinished(() => rm(folder, { recursive: true }));
    await symlink(resolve('node_modules'), join(folder, 'node_modules'));
    await writeFile(join(folder, 'pgfresh.config.ts'), text);
    expect(await runCli(['config'], { cwd: folder })).toMatchObject({ code: 0 });
  },
);

it('docs/guides/sources.md names every option of the client, and their limits as they are', () => {
  for (const option of Object.keys(clientOptions)) expect(page).toContain(option);
  const limits = [...page.matchAll(/^\| `(timeout|max\w+)` \| (\w+) \|/gm)].map(([, name, value]) => [name, value]);
  expect(limits).toHaveLength(4);
  const { timeout, maxWireBytes, maxDecodedBytes, maxRatio } = sourceOf({});
  expect(
    sourceOf(Object.fromEntries(limits.map(([name, value]) => [name, name === 'maxRatio' ? Number(value) : value]))),
  ).toMatchObject({
    timeout,
    maxWireBytes,
    maxDecodedBytes,
    maxRatio,
  });
});
