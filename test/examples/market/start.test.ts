import { once } from 'node:events';
import { readFile, rm } from 'node:fs/promises';
import { createServer } from 'node:net';
import { resolve } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import type { Overview } from '../../../src/watch/index.ts';
import { createDatabase } from '../../harness/database.ts';
import { temporaryFolder } from '../../harness/folder.ts';
import { CliProcess, runCli, type CliOptions } from '../../harness/process.ts';

const cwd = await temporaryFolder('start');
afterAll(() => rm(cwd, { recursive: true }));

const config = ['--config', resolve('examples/market/pgfresh.config.ts')];
const env = { PGFRESH_PORT: '0', PGFRESH_LOG_LEVEL: 'warn' };

interface Ready {
  readonly url: string;
  readonly notes: Readonly<Record<string, string>>;
}

async function start(
  options: CliOptions,
  command = ['dev', ...config],
): Promise<{ child: CliProcess; ready: Ready; provider: string }> {
  const child = new CliProcess([...command, '--json'], options);
  await child.printed(/"Mend it": .*\n.*\}\n\}/);
  const ready = JSON.parse(child.stdout) as Ready;
  return { child, ready, provider: /^http:\S+(?=,)/.exec(ready.notes['Provider']!)![0] };
}

async function until(options: CliOptions, isSo: (overview: Overview) => boolean): Promise<Overview> {
  for (;;) {
    const { stdout } = await runCli(['top', '--once', '--json'], options);
    const overview = JSON.parse(stdout) as Overview;
    if (isSo(overview)) return overview;
  }
}

async function answers(url: string): Promise<boolean> {
  return fetch(`${url}/admin/meter`).then(
    () => true,
    () => false,
  );
}

it('shows a newcomer demand, refreshes and budgets, what a broken provider does, and leaves nothing behind', async () => {
  const options = { cwd, env };
  // As from the package, and whatever database is named around it.
  const elsewhere = { cwd, env: { ...env, DATABASE_URL: 'postgres://nobody@127.0.0.1:1/nothing' } };
  const { child, ready, provider } = await start(elsewhere, ['demo']);
  expect((await fetch(`${ready.url}/readyz`)).status).toBe(200);
  const page = await readFile('docs/guides/market-example.md', 'utf8');
  for (const [name, note] of Object.entries(ready.notes))
    expect(page).toContain(`  ${name.padEnd(8)} ${note.replace(provider, 'http://127.0.0.1:4010')}\n`);
  const good = await until(options, ({ freshness }) => freshness.fresh >= 20);
  expect(good.freshness.viewer_share).toBeGreaterThan(0);
  expect(good.workers).toBe(1);
  const [market] = good.sources;
  expect(market).toMatchObject({ source: 'market', calls_limit: 300, quota_cap: 19e9 });
  expect(market!.calls_minute).toBeGreaterThanOrEqual(20);
  expect(market!.quota_used).toBeGreaterThan(1_000);

  // As the banner says it: break it, see that it is left alone, mend it, see that it goes on.
  const [, faults, order] = /^curl (\S+) -d '(.*)'$/.exec(ready.notes['Break it']!)!;
  expect((await fetch(faults!, { method: 'POST', body: order! })).status).toBe(201);
  const broken = await until(options, ({ sources }) => sources[0]!.state === 'breaker');
  expect(broken.sources[0]!.pause_reason).toMatch(/failures in a row|retries in 10 minutes/);
  const [, mended, resume] = /^curl -X DELETE (\S+); npx pgfresh (.*)$/.exec(ready.notes['Mend it']!)!;
  expect((await fetch(mended!, { method: 'DELETE' })).status).toBe(200);
  expect(await runCli(resume!.split(' '), options)).toMatchObject({ code: 0 });
  await until(
    options,
    ({ at, sources: [source] }) =>
      source!.last_success_at! > broken.at && source!.state !== 'breaker' && at > broken.at,
  );

  child.signal('SIGINT');
  child.signal('SIGINT');
  expect(await child.exit).toBe(0);
  expect(await answers(provider)).toBe(false);
}, 90_000);

it('takes another port when that of the provider is taken, and a kill -9 leaves no provider behind', async () => {
  const taken = createServer();
  // Somebody else may have it already, which is the same.
  const listening = Promise.race([once(taken, 'listening'), once(taken, 'error')]);
  taken.listen(4010, '127.0.0.1');
  await listening.catch(() => {});
  try {
    const { child, provider } = await start({ cwd, env: { ...env, DATABASE_URL: await createDatabase() } });
    expect(new URL(provider).port).not.toBe('4010');
    expect(await answers(provider)).toBe(true);
    child.signal('SIGKILL');
    await child.exit;
    while (await answers(provider));
  } finally {
    taken.close();
  }
}, 60_000);
