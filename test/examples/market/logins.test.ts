import { readFile, rm } from 'node:fs/promises';
import { resolve } from 'node:path';
import { afterAll, beforeAll, expect, it, onTestFailed } from 'vitest';
import type { Database } from '../../../src/database/index.ts';
import { atEnd, createDatabase, openDatabase } from '../../harness/database.ts';
import { temporaryFolder } from '../../harness/folder.ts';
import { createLogin } from '../../harness/login.ts';
import { CliProcess, runCli } from '../../harness/process.ts';
import { LiveClient } from '../../gateway/live-client.ts';
import { ProviderScene } from './scene.ts';

const config = ['--config', resolve('examples/market/pgfresh.config.ts')];
const token = 'correct-horse-battery-staple';
/** Every process of the market, by the login that it has. */
const processes = { worker: 'worker', gateway: 'gateway', scheduler: 'planner,scheduler', console: 'console' } as const;
type Login = keyof typeof processes;
const names = Object.keys(processes) as Login[];

const cwd = await temporaryFolder('logins');
afterAll(() => rm(cwd, { recursive: true }));

let admin: Database;
let market: ProviderScene;
let ownerUrl = '';
const logins = new Map<Login, { name: string; url: string }>();

const envOf = (url: string) => ({
  DATABASE_URL: url,
  MARKET_URL: market.url,
  MARKET_API_KEY: 'key-of-a-test',
  PGFRESH_PORT: '0',
  PGFRESH_TOKEN: token,
});
const cli = (url: string, ...args: string[]) => runCli([...args, ...config], { cwd, env: envOf(url) });

/** The rights of all four, as the owner has them printed. */
const wanted = () =>
  [
    `worker=${logins.get('worker')!.name},table=price_points`,
    `gateway=${logins.get('gateway')!.name}`,
    `planner=${logins.get('scheduler')!.name},scheduler=${logins.get('scheduler')!.name}`,
    'table=opening_signals,read=quotes,read=symbols,read=exchanges',
    `console=${logins.get('console')!.name}`,
  ].join(',');

beforeAll(async () => {
  market = await ProviderScene.open({ now: Date.now });
  const url = await createDatabase({ empty: true });
  admin = openDatabase(url);
  const owner = await createLogin(url, 'pgfresh_evaluator');
  const give = (to: string) =>
    admin.query(`do $$ begin execute format('alter database %I owner to ${to}', current_database()); end $$`);
  await give(owner.name);
  atEnd(async () => void (await give('current_user')));
  ownerUrl = owner.url;
  for (const name of names) logins.set(name, await createLogin(url));
  // The schema first, because the example's tables use it; then its tables, then its data types.
  expect(await runCli(['migrate'], { cwd, env: envOf(ownerUrl) })).toMatchObject({ code: 0 });
  const tables = openDatabase(ownerUrl, { poolSize: 1 });
  await tables.query(await readFile('examples/market/schema.sql', 'utf8'));
  await tables.close();
  expect(await cli(ownerUrl, 'migrate')).toMatchObject({ code: 0 });
}, 60_000);

async function ready(child: CliProcess): Promise<string> {
  await child.printed(/"pid": \d+[^}]*\}/);
  return (JSON.parse(child.stdout) as { url: string }).url;
}

it('truth 18: without its rights no process starts, and each names the role that it lacks', async () => {
  for (const name of names) {
    const { code, stderr } = await cli(logins.get(name)!.url, 'run', '--roles', processes[name]);
    expect(code).toBe(4);
    expect(stderr).toContain(`PGF_DATABASE_RIGHTS The login "${logins.get(name)!.name}" lacks a right`);
    expect(stderr).toMatch(/grant pgfresh_(worker|gateway|planner|operator) to/);
  }
}, 60_000);

it('truth 18: the whole market runs with a login per role and exactly the grants that are printed', async () => {
  const printed = await cli(ownerUrl, 'migrate', '--grants', wanted());
  expect([printed.code, printed.stderr]).toEqual([0, '']);
  // Whoever may grant roles runs them; the owner may not.
  const refused = await cli(ownerUrl, 'migrate', '--grants', wanted(), '--apply');
  expect([refused.code, refused.stderr]).toEqual([
    4,
    expect.stringMatching(/PGF_DATABASE_RIGHTS.*\n.*grant pgfresh_worker to/),
  ]);
  await admin.query(printed.stdout);

  for (const name of names) {
    const { code, stdout } = await cli(logins.get(name)!.url, 'check', '--json');
    const { findings } = JSON.parse(stdout) as { findings: { name: string; state: string; detail: string }[] };
    // No scheduler runs yet, and that is told.
    const troubles = findings.flatMap((finding) => (finding.state === 'ok' ? [] : [finding.name]));
    expect([name, code, troubles]).toEqual([name, 0, ['jobs', 'scheduler']]);
    expect(findings).toContainEqual({
      name: 'login',
      state: 'ok',
      detail: `${logins.get(name)!.name} may run ${name === 'scheduler' ? 'planner, scheduler' : name}`,
    });
  }

  const children = new Map<Login, CliProcess>();
  // What they have said is the first thing that one wants to know.
  onTestFailed(() => children.forEach((child, name) => void process.stderr.write(`${name}: ${child.stderr}\n`)));
  const urls = new Map<Login, string>();
  for (const name of names) {
    const options = { cwd, env: envOf(logins.get(name)!.url) };
    children.set(name, new CliProcess(['run', '--roles', processes[name], '--json', ...config], options));
  }
  for (const [name, child] of children) urls.set(name, await ready(child));

  // A viewer gets rows of every type: planned, fetched, written and read by four logins.
  const rows = await admin.query<{ type: string }>('select data_type as type from pgfresh.data_type_registry');
  const types = rows.map(({ type }) => type).toSorted();
  const live = await LiveClient.open(urls.get('gateway')!);
  live.say({ type: 'hello', protocol: 1 });
  live.say({ type: 'want', pairs: types.flatMap((type) => ['AAPL', 'KO'].map((key) => [type, key])) });
  const shown = new Set<string>();
  while (shown.size < types.length) {
    const { pair, rows: read } = (await live.next()) as { pair?: [string, string]; rows?: unknown[] };
    if (pair && read && read.length > 0) shown.add(pair[0]);
  }
  expect([...shown].toSorted()).toEqual(types);

  // An operator sees it, and decides about jobs of both kinds.
  const consoleUrl = urls.get('console')!;
  const post = async (path: string, body: object = {}) => {
    const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' };
    const response = await fetch(`${consoleUrl}/api/jobs/${path}`, {
      method: 'POST',
      headers,
      body: JSON.stringify(body),
    });
    return (await response.json()) as Record<string, unknown>;
  };
  expect(await (await fetch(`${consoleUrl}/api/overview`)).json()).toMatchObject({ workers: 1 });
  expect(await post('daily_cleanup/run')).toMatchObject({ ok: true, ran: true, state: 'succeeded' });
  expect(await post('refresh_opening_signals/run')).toMatchObject({ ok: true, ran: true, state: 'succeeded' });
  expect(await post('daily_cleanup/pause', { reason: 'a test' })).toMatchObject({ job: { paused_reason: 'a test' } });
  expect(await post('daily_cleanup/resume')).toMatchObject({ job: { name: 'daily_cleanup' } });

  for (const [name, child] of children) {
    expect([name, (await fetch(`${urls.get(name)!}/readyz`)).status]).toEqual([name, 200]);
    child.signal('SIGTERM');
    expect([name, await child.exit]).toEqual([name, 0]);
    expect(child.stderr).not.toMatch(/permission denied|42501/);
  }
  // A sweep before the worker was there, or after it stopped, has said so.
  expect(await admin.query(`select code, message from pgfresh.warnings where code <> 'no_worker'`)).toEqual([]);
}, 60_000);
