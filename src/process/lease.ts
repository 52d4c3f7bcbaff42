import { extname } from 'node:path';
import { Worker as Thread } from 'node:worker_threads';
import { Service } from '../lifecycle/index.ts';
import type { FromLease, LeaseData, ToLease } from './lease-messages.ts';
import type { LeaseAnswer } from './renewal.ts';

const threadFile = new URL(`./lease-thread${extname(import.meta.filename)}`, import.meta.url);

interface LeaseOptions<Answer extends LeaseAnswer> extends LeaseData {
  /** Told what the database answers to each renewal. */
  readonly onAnswer?: (answer: Answer) => void;
}

/** The life of a process as the database sees it, renewed from a thread of its own. */
export class Lease<Answer extends LeaseAnswer = LeaseAnswer> extends Service {
  readonly name = 'lease';
  readonly #options: LeaseOptions<Answer>;
  readonly #lost = new AbortController();
  /** How many pieces of each request have not ended. The thread hears of the first and of the last: each message wakes it. */
  readonly #pieces = new Map<string, number>();
  #thread: Thread | undefined;
  #gone: Promise<void> | undefined;
  #id: number | undefined;

  constructor(options: LeaseOptions<Answer>) {
    super();
    this.#options = options;
    // At once: a start that waits for a database which says nothing is given up.
    this.stopSignal.addEventListener('abort', () => this.#tell({ type: 'stop' }), { once: true });
  }

  /** The number of this incarnation. */
  get id(): number {
    if (this.#id === undefined) throw new Error('the lease has not started');
    return this.#id;
  }

  /** Aborted when the lease is lost: what was taken under it may belong to others then. */
  get lost(): AbortSignal {
    return this.#lost.signal;
  }

  /** Someone was told that it is lost before the thread was. Who has lost it does not retire: calls that are under way would be put back as if they cost nothing. */
  lose(): void {
    this.#tell({ type: 'lost' });
    this.#lost.abort();
  }

  /** A request for work, with so many pieces of it that have not ended; also one whose answer is still on its way. */
  hold(request: string, pieces: number): void {
    if (pieces <= 0) return;
    if (!this.#pieces.has(request)) this.#tell({ type: 'hold', request, pieces: 1 });
    this.#pieces.set(request, pieces);
  }

  ended(request: string, pieces: number): void {
    const left = (this.#pieces.get(request) ?? 0) - pieces;
    if (left > 0) return void this.#pieces.set(request, left);
    this.#pieces.delete(request);
    this.#tell({ type: 'ended', request, pieces: 1 });
  }

  /** Has it renewed now, and answered. */
  hurry(): void {
    this.#tell({ type: 'hurry' });
  }

  /** Starts while the process goes on. If it stops meanwhile, this fails and leaves nothing behind. */
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
    const gone = Promise.withResolvers<void>();
    this.#gone = gone.promise;
    thread.on('message', (message: FromLease) => {
      if (message.type === 'registered') registered.resolve(message.id);
      if (message.type === 'failed') registered.reject(new Error(message.problem));
      if (message.type === 'answered') onAnswer?.(message.answer as Answer);
      if (message.type === 'lost') this.#lost.abort();
    });
    thread.on('error', registered.reject);
    // A thread that has ended, whyever, can renew nothing any more.
    thread.on('exit', (code) => {
      registered.reject(new Error(`the thread of the lease ended with ${code} before it was registered`));
      this.#lost.abort();
      gone.resolve();
    });
    this.#id = await registered.promise;
  }

  /** Retires: what is still held is ready for others at once. */
  protected async onStop(): Promise<void> {
    await this.#gone;
  }

  #tell(message: ToLease): void {
    this.#thread?.postMessage(message);
  }
}
