import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createDatabase } from '../harness/database.ts';
import { CliProcess } from '../harness/process.ts';

let cwd = '';
let env: Record<string, string> = {};
beforeAll(async () => {
  cwd = await mkdtemp(join(tmpdir(), 'pgfresh-output-'));
  env = { DATABASE_URL: await createDatabase(), PGFRESH_PORT: '0', PGFRESH_DRAIN_TIMEOUT: '100ms' };
});
afterAll(() => rm(cwd, { recursive: true }));

/** All roles of a process that has said that it is ready. */
async function started(options: { config?: string } = {}): Promise<{ child: CliProcess; url: string }> {
  const args = ['dev', '--json'];
  if (options.config !== undefined) {
    await writeFile(join(cwd, 'broken.config.ts'), options.config);
    args.push('--config', 'broken.config.ts');
  }
  const child = new CliProcess(args, { cwd, env });
  await child.printed(/"pid": \d+[^}]*\}/);
  return { child, url: (JSON.parse(child.stdout) as { url: string }).url };
}

/** Has the process write log lines: it refuses these requests with a warning. */
async function refusals(url: string, count: number): Promise<number[]> {
  const answers = Array.from({ length: count }, () => fetch(`${url}/api/jobs/none/run`, { method: 'POST' }));
  return (await Promise.all(answers)).map(({ status }) => status);
}

describe('truth 17: an output that is closed ends the output, not the process', () => {
  it('it goes on, and stops when it is asked to', async () => {
    const { child, url } = await started();
    child.closeOutput();
    expect(new Set(await refusals(url, 20))).toEqual(new Set([401]));
    expect((await fetch(`${url}/readyz`)).status).toBe(200);
    expect(new Set(await refusals(url, 20))).toEqual(new Set([401]));
    child.signal('SIGTERM');
    expect(await child.exit).toBe(0);
  });

  it('a terminal that goes away stops it like SIGTERM', async () => {
    const { child } = await started();
    child.closeOutput();
    child.signal('SIGHUP');
    expect(await child.exit).toBe(0);
  });

  it('a command whose reader has left ends with its own exit code', async () => {
    const child = new CliProcess(['config'], { cwd, env });
    child.closeOutput();
    expect(await child.exit).toBe(0);
  });
});

describe('truth 17: a fatal error ends the process in bounded time', () => {
  it('although the stop never ends', async () => {
    const { child } = await started({
      config: `export default { dev: () => ({
        ready: () => void setTimeout(() => { throw new Error('out of the blue'); }, 200),
        stop: () => new Promise(() => setInterval(() => {}, 1_000)),
      }) };`,
    });
    expect(await child.exit).toBe(1);
    expect(child.stderr).toMatch(/PGF_UNEXPECTED Error: out of the blue/);
  });

  it('although the start has failed and its stop never ends', async () => {
    await writeFile(
      join(cwd, 'broken.config.ts'),
      `export default { dev: () => ({
        ready: () => { throw new Error('not ready'); },
        stop: () => new Promise(() => setInterval(() => {}, 1_000)),
      }) };`,
    );
    const child = new CliProcess(['dev', '--config', 'broken.config.ts'], { cwd, env });
    expect(await child.exit).toBe(3);
    expect(child.stderr).toMatch(/PGF_DEV_FAILED .*not ready/);
  });

  it('although errors come faster than anything else', async () => {
    const { child } = await started({
      config: `export default { dev: () => ({ ready: () => {
        const again = () => { process.nextTick(again); throw new Error('again'); };
        setTimeout(again, 200);
      } }) };`,
    });
    child.closeOutput();
    expect(await child.exit).toBe(1);
  });
});
