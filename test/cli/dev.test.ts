import { readFile, rm } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { afterAll, expect, it, vi } from 'vitest';
import { alive } from '../harness/alive.ts';
import { temporaryFolder } from '../harness/folder.ts';
import { CliProcess, runCli } from '../harness/process.ts';

const cwd = await temporaryFolder('dev');
afterAll(() => rm(cwd, { recursive: true }));

const env = { PGFRESH_PORT: '0' };
const dev = () => new CliProcess(['dev', '--json'], { cwd, env });

async function ready(child: CliProcess): Promise<string> {
  await child.printed(/"pid": \d+/);
  return (JSON.parse(child.stdout) as { url: string }).url;
}

async function postmaster(): Promise<number> {
  const state = JSON.parse(await readFile(join(cwd, '.pgfresh/server.json'), 'utf8')) as { postmaster: number };
  return state.postmaster;
}

it('lives through a whole day of a new user', async () => {
  // First start, from nothing.
  const first = dev();
  const url = await ready(first);
  expect((await fetch(`${url}/readyz`)).status).toBe(200);
  // What it prints opens the database.
  const [, password, database] = /PGPASSWORD=\$\(cat (\S+)\) psql (\S+)/.exec(
    (JSON.parse(first.stdout) as { psql: string }).psql,
  )!;
  const address = new URL(database!);
  address.password = (await readFile(resolve(cwd, password!), 'utf8')).trim();
  const client = new pg.Client(address.href);
  await client.connect();
  await client.end();

  // A second one on the same folder is refused and names the first.
  const second = await runCli(['dev'], { cwd, env: { ...env, PGFRESH_LOG_LEVEL: 'silent' } });
  expect([second.code, second.stderr]).toEqual([
    4,
    expect.stringMatching(new RegExp(`^PGF_EMBEDDED_IN_USE .* ${first.pid}\\.`)),
  ]);

  // Commands use the server that runs.
  const check = await runCli(['check', '--json'], { cwd });
  expect(JSON.parse(check.stdout)).toMatchObject({ ok: true });
  expect(check.stdout).toContain(`in use by process ${first.pid}`);
  expect((await runCli(['migrate', 'status'], { cwd })).stdout).toMatch(/001_schema\s+applied/);

  // Killed, both of them; the next start works.
  const orphan = await postmaster();
  first.signal('SIGKILL');
  await first.exit;
  const third = dev();
  const restartedUrl = await ready(third);
  const server = await postmaster();
  expect(server).not.toBe(orphan);
  expect(alive(orphan)).toBe(false);
  process.kill(server, 'SIGKILL');
  await third.printed(/"type":"database\.server_died"/);
  const restarted = await vi.waitFor(
    async () => {
      // In this order: a backend of the dead server may answer for a moment longer.
      const pid = await postmaster();
      expect(pid).not.toBe(server);
      expect((await fetch(`${restartedUrl}/readyz`)).status).toBe(200);
      return pid;
    },
    { timeout: 15_000 },
  );
  expect(alive(restarted)).toBe(true);

  // Stopped by Ctrl-C's signal, sent twice as npm does: exit 0, and nothing is left.
  third.signal('SIGINT');
  third.signal('SIGINT');
  expect(await third.exit).toBe(0);
  expect(alive(restarted)).toBe(false);

  // A command starts the server for itself, says so, and ends it.
  const status = await runCli(['migrate', 'status', '--json'], { cwd });
  expect(JSON.parse(status.stdout)).toMatchObject({ pending: [] });
  expect(status.stderr).toMatch(/^starting the embedded PostgreSQL in .*\n$/);
  expect((await runCli(['migrate', '--log-level', 'silent'], { cwd })).stderr).toBe('');
  expect(await readFile(join(cwd, '.pgfresh/server.json'), 'utf8')).toBe('');
}, 60_000);

it('stops while it is still starting', async () => {
  const child = dev();
  await child.printed(/"type":"database\.starting"/);
  child.signal('SIGTERM');
  expect(await child.exit).toBe(0);
  expect(child.stdout).toBe('');
  expect(await readFile(join(cwd, '.pgfresh/server.json'), 'utf8')).toBe('');
});

it('ends at once when it is asked again while the stop hangs, and takes the server along', async () => {
  const child = new CliProcess(['dev'], { cwd, env: { ...env, PGFRESH_FAILPOINTS: 'embedded.before-ready=hang' } });
  await child.printed(/failpoint embedded\.before-ready reached/);
  const server = await postmaster();
  child.signal('SIGINT');
  await child.printed(/"type":"process\.stopping"/);
  await sleep(1_100);
  child.signal('SIGINT');
  expect(await child.exit).toBe(1);
  while (alive(server)) await sleep(10);
});
