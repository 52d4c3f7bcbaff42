import { extname } from 'node:path';
import { Worker as Thread } from 'node:worker_threads';
import { Service } from '../lifecycle/index.ts';
import type { FromLease, LeaseData, ToLease } from './lease-messages.ts';
import type { LeaseAnswer } from './renewal.ts';

const threadFile = new URL(`./lease-thread${extname(import.meta.filename)}`, import.meta.url);

interface LeaseOptions<Answer extends LeaseAnswer> extends LeaseData {
  /** Called with the database's answer to each renewal. */
  readonly onAnswer?: (answer: Answer) => void;
}

/** The lease of a process, renewed from a separate thread. */
export class Lease<Answer extends LeaseAnswer = LeaseAnswer> extends Service {
  readonly name = 'lease';
  readonly #options: LeaseOptions<Answer>;
  readonly #lost = new AbortController();
  /** Unfinished pieces of each request. The thread is told only of the first and last, because each message wakes it. */
  readonly #pieces = new Map<string, number>();
  #thread: Thread | undefined;
  #exited: Promise<void> | undefined;
  #id: number | undefined;

  constructor(options: LeaseOptions<Answer>) {
    super();
    this.#options = options;
    // Sent at once, so that a start that waits for an unresponsive database is given up.
    this.stopSignal.addEventListener('abort', () => this.#send({ type: 'stop' }), { once: true });
  }

  /** The number of this process in the database. */
  get id(): number {
    if (this.#id === undefined) throw new Error('the lease has not started');
    return this.#id;
  }

  /** Aborted when the lease is lost: work that was claimed under it may belong to others then. */
  get lost(): AbortSignal {
    return this.#lost.signal;
  }

  /**
   * The main thread learned that the lease is lost before this one did. A lost process does not retire, which would put
   * running calls back as if they had cost nothing.
   */
  lose(): void {
    this.#send({ type: 'lost' });
    this.#lost.abort();
  }

  /** Holds a request with a number of unfinished pieces, even if its answer has not arrived yet. */
  hold(request: string, pieces: number): void {
    if (pieces <= 0) return;
    if (!this.#pieces.has(request)) this.#send({ type: 'hold', request, pieces: 1 });
    this.#pieces.set(request, pieces);
  }

  ended(request: string, pieces: number): void {
    const left = (this.#pieces.get(request) ?? 0) - pieces;
    if (left > 0) return void this.#pieces.set(request, left);
    this.#pieces.delete(request);
    this.#send({ type: 'ended', request, pieces: 1 });
  }

  /** Renews the lease now. */
  hurry(): void {
    this.#send({ type: 'hurry' });
  }

  /** Starts, unless the signal is aborted; then it stops again and rejects. */
  async startUnless(stopped: AbortSignal): Promise<void> {
    const stop = (): void => void this.stop().catch(() => {});
    stopped.throwIfAborted();
    stopped.addEventListener('abort', stop, { once: true });
    await this.start().finally(() => stopped.removeEventListener('abort', stop));
    stopped.throwIfAborted();
  }

  protected async onStart(): Promise<void> {
    const { url, registration, onAnswer } = this.#options;
    const thread = new Thread(threadFile, { workerData: { url, registration } satisfies LeaseData });
    this.#thread = thread;
    const registered = Promise.withResolvers<number>();
    const exited = Promise.withResolvers<void>();
    this.#exited = exited.promise;
    thread.on('message', (message: FromLease) => {
      if (message.type === 'registered') registered.resolve(message.id);
      if (message.type === 'failed') registered.reject(new Error(message.problem));
      if (message.type === 'answered') onAnswer?.(message.answer as Answer);
      if (message.type === 'lost') this.#lost.abort();
    });
    thread.on('error', registered.reject);
    // Once the thread exits, for any reason, the lease is not renewed any more.
    thread.on('exit', (code) => {
      registered.reject(new Error(`the lease thread exited with ${code} before it registered`));
      this.#lost.abort();
      exited.resolve();
    });
    this.#id = await registered.promise;
  }

  /** The thread retires the process, so that others can take its work at once. */
  protected async onStop(): Promise<void> {
    await this.#exited;
  }

  #send(message: ToLease): void {
    this.#thread?.postMessage(message);
  }
}
