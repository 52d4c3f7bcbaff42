import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { extname } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

const usualPort = 4010;

/** The provider as a process. It ends with this one, however this one ends: its standard input is closed then. */
export class ProviderProcess {
  readonly url: string;
  readonly #child: ChildProcess;

  private constructor(url: string, child: ChildProcess) {
    this.url = url;
    this.#child = child;
  }

  /** On its usual port, or another one if that is in use. */
  static async start(): Promise<ProviderProcess> {
    return (await ProviderProcess.#on(usualPort)) ?? (await ProviderProcess.#on(0)) ?? failed();
  }

  static async #on(port: number): Promise<ProviderProcess | undefined> {
    const main = fileURLToPath(new URL(`main${extname(import.meta.filename)}`, import.meta.url));
    const child = spawn(process.execPath, [main, '--attached', '--port', String(port)], {
      stdio: ['pipe', 'pipe', port === 0 ? 'inherit' : 'ignore'],
      // Ctrl-C in a terminal reaches the whole group, and open calls need an answer.
      detached: true,
    });
    const lines = createInterface(child.stdout);
    const line = await Promise.race([
      once(lines, 'line').then(([text]) => text as string),
      once(child, 'exit').then(() => undefined),
    ]);
    return line === undefined ? undefined : new ProviderProcess((JSON.parse(line) as { url: string }).url, child);
  }

  async stop(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    const exit = once(this.#child, 'exit');
    this.#child.stdin!.end();
    await exit;
  }
}

function failed(): never {
  throw new Error('the provider ended before it was ready; its own words are above');
}
