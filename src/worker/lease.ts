import { extname } from 'node:path';
import { Worker as Thread } from 'node:worker_threads';
import { Service } from '../lifecycle/index.ts';
import type { FromLease, LeaseData, ToLease } from './lease-messages.ts';

const threadFile = new URL(`./lease-thread${extname(import.meta.filename)}`, import.meta.url);

/** A worker's life as the queue sees it, renewed from a thread of its own. */
export class Lease extends Service {
  readonly name = 'lease';
  readonly #data: LeaseData;
  readonly #lost = new AbortController();
  #thread: Thread | undefined;
  #gone: Promise<void> | undefined;
  #worker: number | undefined;

  constructor(data: LeaseData) {
    super();
    this.#data = data;
  }

  get worker(): number {
    if (this.#worker === undefined) throw new Error('the lease has not started');
    return this.#worker;
  }

  /** Aborted when the lease is lost: what was claimed under it may belong to others then. */
  get lost(): AbortSignal {
    return this.#lost.signal;
  }

  /** Somebody was told that it is lost before the thread was. Who has lost it does not retire: calls that are under way would be put back as if they cost nothing. */
  lose(): void {
    this.#tell({ type: 'lost' });
    this.#lost.abort();
  }

  /** A claim with so many jobs that have not ended; also one whose answer is still on its way. */
  hold(request: string, jobs: number): void {
    this.#tell({ type: 'hold', request, jobs });
  }

  ended(request: string, jobs: number): void {
    this.#tell({ type: 'ended', request, jobs });
  }

  protected async onStart(): Promise<void> {
    const thread = new Thread(threadFile, { workerData: this.#data });
    this.#thread = thread;
    const registered = Promise.withResolvers<number>();
    const gone = Promise.withResolvers<void>();
    this.#gone = gone.promise;
    thread.on('message', (message: FromLease) => {
      if (message.type === 'registered') registered.resolve(message.worker);
      if (message.type === 'failed') registered.reject(new Error(message.problem));
      if (message.type === 'lost') this.#lost.abort();
    });
    thread.on('error', registered.reject);
    // A thread that has ended, whyever, can renew nothing any more.
    thread.on('exit', (code) => {
      registered.reject(new Error(`the thread of the lease ended with ${code} before it was registered`));
      this.#lost.abort();
      gone.resolve();
    });
    this.#worker = await registered.promise;
  }

  /** Retires: what is still held is ready for others at once. */
  protected async onStop(): Promise<void> {
    this.#tell({ type: 'stop' });
    await this.#gone;
  }

  #tell(message: ToLease): void {
    this.#thread?.postMessage(message);
  }
}
