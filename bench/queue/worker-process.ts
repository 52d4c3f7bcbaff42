import { type ChildProcess, fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import type { Scope } from '../scope.ts';
import type { Contender } from './contender.ts';
import type { Command, Counts, Report, StartedJob } from './worker-message.ts';

const host = fileURLToPath(new URL('./worker-host.ts', import.meta.url));

/** A worker in a process of its own, seen from the bench. It ends with its scope. */
export class WorkerProcess {
  readonly #child: ChildProcess;
  readonly #ready = Promise.withResolvers<void>();
  readonly #failed = Promise.withResolvers<never>();
  #stopping = false;
  counts: Counts = { started: 0, first: 0, last: 0 };
  onJobs: (jobs: readonly StartedJob[]) => void = () => {};

  private constructor(contender: Contender, url: string) {
    // What a peer prints must not mix with the result on the standard output.
    this.#child = fork(host, [contender.name, url], { stdio: ['ignore', process.stderr, 'inherit', 'ipc'] });
    this.#child.on('message', (report: Report) => this.#hear(report));
    this.#child.once('exit', (code, signal) => {
      if (!this.#stopping) this.#fail(`a worker of ${contender.name} ended by itself (${signal ?? code})`);
    });
    this.#failed.promise.catch(() => {});
  }

  static async open(scope: Scope, contender: Contender, url: string): Promise<WorkerProcess> {
    const worker = new WorkerProcess(contender, url);
    scope.defer(() => worker.#stop());
    await worker.orFailure(worker.#ready.promise);
    return worker;
  }

  start(report: Command['report']): void {
    this.#child.send({ type: 'start', report } satisfies Command);
  }

  /** The promise, or the failure of this worker if that comes first. */
  orFailure<Result>(promise: Promise<Result>): Promise<Result> {
    return Promise.race([promise, this.#failed.promise]);
  }

  #hear(report: Report): void {
    switch (report.type) {
      case 'ready':
        return this.#ready.resolve();
      case 'counts':
        this.counts = report.counts;
        return;
      case 'jobs':
        return this.onJobs(report.jobs);
      case 'failed':
        return this.#fail(report.problem);
    }
  }

  #fail(problem: string): void {
    this.#failed.reject(new Error(problem));
  }

  // Killed, not asked: its database is dropped next, and a polite stop of a peer may wait for seconds.
  async #stop(): Promise<void> {
    this.#stopping = true;
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    const exited = new Promise((resolve) => this.#child.once('exit', resolve));
    this.#child.kill('SIGKILL');
    await exited;
  }
}
