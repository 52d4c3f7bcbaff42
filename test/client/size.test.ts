import { readFile } from 'node:fs/promises';
import { gzipSync } from 'node:zlib';
import { expect, it } from 'vitest';
import { buildBrowserClient } from '../../scripts/browser-client.ts';
import { temporaryFolder } from '../harness/folder.ts';

it('is smaller than 6 kB on the wire', async () => {
  const script = await readFile(await buildBrowserClient(await temporaryFolder('client')));
  expect(script.toString()).not.toMatch(/\bimport\b[^.(]/);
  expect(gzipSync(script).length).toBeLessThan(6_000);
});
