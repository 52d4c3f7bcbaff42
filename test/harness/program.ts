import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

/** A test program's process, which prints a first line when it is ready. */
export class Program {
  readonly line: string;
  readonly #child: ChildProcess;

  private constructor(child: ChildProcess, line: string) {
    this.#child = child;
    this.line = line;
  }

  static async start(file: URL, args: readonly string[]): Promise<Program> {
    const env = { ...process.env, NODE_OPTIONS: '' };
    const child = spawn(process.execPath, [fileURLToPath(file), ...args], {
      env,
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const exit = once(child, 'exit').then(() => {
      throw new Error(`${fileURLToPath(file)} ended before it had begun`);
    });
    const [line] = (await Promise.race([once(createInterface(child.stdout), 'line'), exit])) as [string];
    exit.catch(() => {});
    return new Program(child, line);
  }

  get pid(): number {
    return this.#child.pid!;
  }

  /** Kills it. */
  async kill(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    const exit = once(this.#child, 'exit');
    this.#child.kill('SIGKILL');
    await exit;
  }
}
