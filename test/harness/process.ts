import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { afterEach } from 'vitest';

const cli = fileURLToPath(new URL('../../bin/pgfresh.js', import.meta.url));
const running = new Set<CliProcess>();

afterEach(async () => {
  for (const child of running) {
    child.signal('SIGKILL');
    await child.exit;
  }
});

export interface CliOptions {
  cwd: string;
  env?: Record<string, string | undefined>;
  node?: string;
}

/** A real process of our own command line. */
export class CliProcess {
  readonly #child: ChildProcess;
  #stdout = '';
  #stderr = '';
  #changed = Promise.withResolvers<void>();
  /** Settles with the exit code, or the name of the signal that ended the process. */
  readonly exit: Promise<number | string>;

  constructor(args: readonly string[], { cwd, env = {}, node = process.execPath }: CliOptions) {
    const clean = Object.fromEntries(
      Object.entries(process.env).filter(
        ([name]) => !/^(PGFRESH_|DATABASE_URL|VITEST|NODE_ENV|NO_COLOR|FORCE_COLOR)/.test(name),
      ),
    );
    this.#child = spawn(node, [cli, ...args], { cwd, env: { ...clean, ...env }, stdio: ['ignore', 'pipe', 'pipe'] });
    this.#child.stdout!.on('data', (chunk: Buffer) => this.#add(() => (this.#stdout += chunk.toString())));
    this.#child.stderr!.on('data', (chunk: Buffer) => this.#add(() => (this.#stderr += chunk.toString())));
    running.add(this);
    this.exit = once(this.#child, 'close').then(([code, signal]) => {
      running.delete(this);
      this.#add(() => {});
      return (code as number | null) ?? (signal as string);
    });
  }

  get pid(): number {
    return this.#child.pid!;
  }

  get stdout(): string {
    return this.#stdout;
  }

  get stderr(): string {
    return this.#stderr;
  }

  /** Closes our ends of its pipes, as `head` does when it has read enough. */
  closeOutput(): void {
    this.#child.stdout!.destroy();
    this.#child.stderr!.destroy();
  }

  signal(name: NodeJS.Signals): void {
    this.#child.kill(name);
  }

  /** Settles with the match as soon as the process has printed it, on either stream; fails if the process ends first. */
  async printed(pattern: RegExp): Promise<RegExpExecArray> {
    for (;;) {
      const match = pattern.exec(this.#stdout) ?? pattern.exec(this.#stderr);
      if (match) return match;
      if (!running.has(this)) throw new Error(`ended without printing ${pattern}:\n${this.#stdout}\n${this.#stderr}`);
      await this.#changed.promise;
    }
  }

  #add(change: () => void): void {
    change();
    this.#changed.resolve();
    this.#changed = Promise.withResolvers();
  }
}

/** Runs a command to its end. */
export async function runCli(
  args: readonly string[],
  options: CliOptions,
): Promise<{ code: number | string; stdout: string; stderr: string }> {
  const child = new CliProcess(args, options);
  const code = await child.exit;
  return { code, stdout: child.stdout, stderr: child.stderr };
}
