import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { Problem } from './problem.ts';
import type { Scope } from './scope.ts';

const folder = fileURLToPath(new URL('.', import.meta.url));

export type PeerName = 'pg-boss' | 'graphile-worker';

/**
 * Installs what `bench/package.json` names unless it is there already. The peers are no dependency of pgfresh, so
 * a clone has them only once a bench has run.
 */
export async function installPeers(scope: Scope, progress: (line: string) => void): Promise<void> {
  const missing = Object.entries(wantedPeers()).filter(([name, version]) => installedVersion(name) !== version);
  if (missing.length === 0) return;
  progress(`installing ${missing.map(([name, version]) => `${name} ${version}`).join(', ')} in bench/ (once)`);
  const { code, output } = await scope.nest(npmInstall);
  if (code === 0) return;
  throw new Problem(
    `The peers could not be installed: "npm install" in bench/ ended with ${code}. ` +
      'Run it there by hand to see why, or leave them out with "--only pgfresh,minimum".\n' +
      output.trim().split('\n').slice(-5).join('\n'),
  );
}

/**
 * A peer's module as the few members that the bench uses. The name is not a literal for the compiler, so the type
 * check needs no peer to be installed.
 */
export async function loadPeer<Module>(name: PeerName): Promise<Module> {
  return (await import(name satisfies string)) as Module;
}

export function installedVersion(name: string): string | undefined {
  try {
    return (readJson(`node_modules/${name}/package.json`) as { version: string }).version;
  } catch {
    return undefined;
  }
}

function wantedPeers(): Record<string, string> {
  return (readJson('package.json') as { devDependencies: Record<string, string> }).devDependencies;
}

function readJson(file: string): unknown {
  return JSON.parse(readFileSync(`${folder}${file}`, 'utf8'));
}

function npmInstall(scope: Scope): Promise<{ code: number; output: string }> {
  return new Promise((resolve) => {
    const npm = spawn('npm', ['install', '--no-audit', '--no-fund', '--loglevel=error'], {
      cwd: folder,
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    scope.defer(() => npm.kill());
    let output = '';
    npm.stdout.on('data', (chunk: Buffer) => (output += chunk.toString()));
    npm.stderr.on('data', (chunk: Buffer) => (output += chunk.toString()));
    npm.once('error', (error) => resolve({ code: 127, output: error.message }));
    npm.once('close', (code) => resolve({ code: code ?? 1, output }));
  });
}
