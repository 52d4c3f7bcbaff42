import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { Child } from '../child.ts';
import type { Scope } from '../scope.ts';

const market = fileURLToPath(new URL('../../examples/market/provider/main.ts', import.meta.url));

/** The provider of the market example, which counts its calls by itself. Returns its address. */
export async function startMarket(scope: Scope, options: readonly string[]): Promise<string> {
  const child = spawn(process.execPath, [market, '--port', '0', '--attached', ...options], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  scope.defer(async () => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    const exited = once(child, 'exit');
    child.stdin.end();
    await exited;
  });
  const [line] = (await once(createInterface(child.stdout), 'line')) as [string];
  return (JSON.parse(line) as { url: string }).url;
}

/** When each call came to the market's provider, in milliseconds, refused ones too. */
export async function callTimes(provider: string): Promise<number[]> {
  const answer = await fetch(`${provider}/admin/meter/calls`);
  const { calls } = (await answer.json()) as { calls: { at: number }[] };
  return calls.map(({ at }) => at);
}

/** A provider that answers at once, as cheap as can be. */
export async function startBare(scope: Scope): Promise<{ address: string; child: Child }> {
  const { child, value } = await Child.open(scope, new URL('./bare-provider.ts', import.meta.url));
  return { address: value as string, child };
}
