/**
 * Starts the product as a new user would, checks it, stops it as Ctrl-C does, and checks that nothing is left. Twice
 * from the sources, and once from the package as it would be published, in an empty folder.
 */
import { execFileSync, spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { alive } from '../test/harness/alive.ts';
import { temporaryFolder } from '../test/harness/folder.ts';

const dataDir = await temporaryFolder('smoke');
let child: ChildProcess | undefined;
await liveOnce('first start', 15, ['npm', 'start']);
await liveOnce('second start', 2, ['npm', 'start']);
rmSync(dataDir, { recursive: true, force: true });
const installed = await installPackage();
// Without npx, whose exit code is that of the signal and not of the command.
await liveOnce('start of the package', 15, [join(installed, 'node_modules/.bin/pgfresh'), 'demo'], installed);
rmSync(installed, { recursive: true, force: true });
rmSync(dataDir, { recursive: true, force: true });
console.log('stopped with exit code 0, and nothing is left running');

async function liveOnce(name: string, seconds: number, [program, ...words]: string[], cwd = '.'): Promise<void> {
  child = spawn(program!, words, {
    cwd,
    env: { ...process.env, DATABASE_URL: '', PGFRESH_DATA_DIR: dataDir },
    stdio: ['ignore', 'pipe', 'inherit'],
    // A separate group, so that the signal reaches npm and its children, as in a terminal.
    detached: true,
  });
  const exit = once(child, 'exit') as Promise<[number | null, string | null]>;
  const timer = setTimeout(() => fail('it was not ready and stopped within 60 s'), 60_000);

  const output = await bannerOf(child);
  const taken = Number(/ready in ([\d.]+) s/.exec(output)?.[1] ?? fail(`it printed no time:\n${output}`));
  const url = /http:\/\/[\d.]+:\d+/.exec(output)?.[0] ?? fail(`it printed no address:\n${output}`);
  if (taken > seconds) fail(`the ${name} took ${taken} s, and ${seconds} s is the most`);
  console.log(`${name}: ready in ${taken} s at ${url}`);

  for (const path of ['/readyz', '/livez', '/metrics', '/live/client.js']) await read(url + path);
  const parts = [...(await read(`${url}/`)).matchAll(/(?:src|href)="([^"]+)"/g)].map(([, path]) => path!);
  if (parts.length < 3) fail(`the board has no parts:\n${parts.join('\n')}`);
  for (const path of parts) await read(url + path);
  const { postmaster } = JSON.parse(readFileSync(join(dataDir, 'server.json'), 'utf8')) as { postmaster: number };
  if (!alive(postmaster)) fail(`the postmaster ${postmaster} does not run`);

  signal('SIGINT');
  const [code, killer] = await exit;
  clearTimeout(timer);
  if (code !== 0) fail(`it ended with ${code ?? killer} instead of 0`);
  if (alive(postmaster)) fail(`the postmaster ${postmaster} still runs`);
}

/** The packed package, installed into an empty folder. */
async function installPackage(): Promise<string> {
  const folder = await temporaryFolder('package');
  // Its output is mixed with the build's.
  execFileSync('npm', ['pack', '--silent', '--pack-destination', folder], { stdio: ['ignore', 'ignore', 'inherit'] });
  const [filename] = readdirSync(folder);
  execFileSync('npm', ['install', '--no-audit', '--no-fund', '--silent', `./${filename}`], { cwd: folder });
  return folder;
}

async function read(url: string): Promise<string> {
  const response = await fetch(url);
  if (!response.ok) fail(`${url} answered ${response.status}`);
  return response.text();
}

async function bannerOf({ stdout }: ChildProcess): Promise<string> {
  let output = '';
  for await (const chunk of stdout!) {
    output += String(chunk);
    if (output.includes('Ctrl-C')) break;
  }
  return output;
}

function signal(name: NodeJS.Signals): void {
  if (child?.pid !== undefined) process.kill(-child.pid, name);
}

function fail(reason: string): never {
  console.error(`npm start: ${reason}`);
  if (child?.exitCode === null && child.signalCode === null) signal('SIGKILL');
  process.exit(1);
}
