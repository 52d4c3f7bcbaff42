import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { createDatabase } from '../harness/database.ts';
import { temporaryFolder } from '../harness/folder.ts';
import { CliProcess, runCli } from '../harness/process.ts';

let url = '';
let cwd = '';
beforeAll(async () => {
  url = await createDatabase();
  cwd = await temporaryFolder('dev-support');
});

/** A configuration with a source "market", and what its dev is. */
async function config(dev: string): Promise<{ cwd: string; env: Record<string, string> }> {
  const text = `import { defineConfig, defineSource } from 'pgfresh';
    const market = defineSource({ name: 'market', baseUrl: 'https://api.example.com' });
    export default defineConfig({ sources: [market], dev: ${dev} });`;
  await writeFile(join(cwd, 'pgfresh.config.ts'), text);
  return { cwd, env: { DATABASE_URL: url, PGFRESH_PORT: '0', PGFRESH_LOG_LEVEL: 'silent' } };
}

const says = (text: string) => `console.error('${text}')`;

describe('what dev of the configuration starts', () => {
  it('is started after the migration, told when all is ready, noted, and stopped', async () => {
    const options = await config(`async ({ databaseUrl, signal }) => {
      console.error('started', new URL(databaseUrl).pathname, signal.aborted);
      return { notes: { Fake: 'is here' }, ready: () => ${says('ready')}, stop: async () => console.error('stopped', signal.aborted) };
    }`);
    const child = new CliProcess(['dev'], options);
    await child.printed(/^ {2}Fake +is here$/m);
    child.signal('SIGTERM');
    expect(await child.exit).toBe(0);
    expect(child.stderr).toBe(`started ${new URL(url).pathname} false\nready\nstopped true\n`);
  });

  it('tells machines its notes', async () => {
    const child = new CliProcess(['dev', '--json'], await config(`() => ({ notes: { Fake: 'is here' } })`));
    await child.printed(/"Fake": "is here"/);
    child.signal('SIGTERM');
    expect(await child.exit).toBe(0);
  });

  it('is left alone by all other commands', async () => {
    const child = new CliProcess(['run'], await config(`() => { throw new Error('not for run') }`));
    await child.printed(/Ctrl-C/);
    child.signal('SIGTERM');
    expect(await child.exit).toBe(0);
  });

  it.each([
    [`'market.ts'`, /PGF_CONFIG_INVALID .*dev: expected a function that starts something, got "market\.ts"/],
    [
      `() => { throw new Error('no port is free') }`,
      /PGF_DEV_FAILED .*pgfresh\.config\.ts failed: no port is free\n.*--debug/,
    ],
    [`() => ({ ready: () => { throw new Error('too early') } })`, /PGF_DEV_FAILED .*: too early/],
    [
      `() => {}`,
      /PGF_CONFIG_INVALID .*what dev returns: expected an object with baseUrls, notes, page, ready, stop, got nothing/,
    ],
    [`() => ({ stopp: () => {} })`, /what dev returns\.stopp: there is no such option; did you mean "stop"\?/],
    [
      `() => ({ baseUrls: { markt: 'http://127.0.0.1:1' } })`,
      /baseUrls\.markt: there is no such source; did you mean "market"\?/,
    ],
    [`() => ({ baseUrls: { market: 'localhost' } })`, /baseUrls\.market: expected an address such as/],
    [`() => ({ stop: 'now' })`, /what dev returns\.stop: expected a function, got "now"/],
  ])('is refused when it is %s', async (dev, problem) => {
    const { code, stderr } = await runCli(['dev'], await config(dev));
    expect(code).toBe(3);
    expect(stderr).toMatch(problem);
  });

  it('is stopped when something else fails', async () => {
    const dev = `() => ({ ready: () => { throw new Error('too early') }, stop: () => ${says('stopped')} })`;
    const { stderr } = await runCli(['dev'], await config(dev));
    expect(stderr).toMatch(/^stopped\nPGF_DEV_FAILED/);
  });
});
