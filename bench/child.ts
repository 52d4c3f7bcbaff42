import { type ChildProcess, fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import type { Question, Report } from './child-side.ts';
import type { Scope } from './scope.ts';

/** A process of the bench, seen from the bench. It ends with its scope. */
export class Child {
  readonly #process: ChildProcess;
  readonly #ready = Promise.withResolvers<unknown>();
  readonly #failed = Promise.withResolvers<never>();
  readonly #asked = new Map<string, (value: unknown) => void>();
  #stopping = false;
  /** Its last unsolicited message. */
  told: unknown;

  private constructor(file: URL, args: readonly string[], flags: readonly string[]) {
    const program = fileURLToPath(file);
    // What a peer prints must not mix with the result on the standard output.
    const stdio = ['ignore', process.stderr, 'inherit', 'ipc'] as const;
    this.#process = fork(program, [...args], { stdio: [...stdio], execArgv: [...flags] });
    this.#process.on('message', (report: Report) => this.#hear(report));
    this.#process.once('exit', (code, signal) => {
      if (!this.#stopping)
        this.#failed.reject(new Error(`${program} ${args[0] ?? ''} ended by itself (${signal ?? code})`));
    });
    this.#failed.promise.catch(() => {});
  }

  /** Starts the program, and waits until it is ready. */
  static async open(
    scope: Scope,
    file: URL,
    args: readonly string[] = [],
    flags: readonly string[] = [],
  ): Promise<{ child: Child; value: unknown }> {
    const child = new Child(file, args, flags);
    scope.defer(() => child.#stop());
    return { child, value: await child.orFailure(child.#ready.promise) };
  }

  /** Sends a request. Wait for the answer before repeating it. */
  async ask<Answer>(name: string, about?: unknown): Promise<Answer> {
    const answer = Promise.withResolvers<unknown>();
    this.#asked.set(name, answer.resolve);
    this.#process.send({ name, about } satisfies Question);
    return (await this.orFailure(answer.promise)) as Answer;
  }

  /** The promise, or this process's failure if that comes first. */
  orFailure<Result>(promise: Promise<Result>): Promise<Result> {
    return Promise.race([promise, this.#failed.promise]);
  }

  #hear(report: Report): void {
    switch (report.type) {
      case 'ready':
        return this.#ready.resolve(report.value);
      case 'told':
        this.told = report.value;
        return;
      case 'answer':
        return this.#asked.get(report.to)?.(report.value);
      case 'failed':
        return this.#failed.reject(new Error(report.problem));
    }
  }

  // Killed, not asked: its database is dropped next.
  async #stop(): Promise<void> {
    this.#stopping = true;
    if (this.#process.exitCode !== null || this.#process.signalCode !== null) return;
    const exited = new Promise((resolve) => this.#process.once('exit', resolve));
    this.#process.kill('SIGKILL');
    await exited;
  }
}
