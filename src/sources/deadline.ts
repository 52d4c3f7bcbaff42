import { durationText } from '../config/index.ts';
import { StepFailure } from './step-failure.ts';

/** The deadlines that a signal ends. They share one listener: adding or removing one costs a scan of all listeners. */
interface Watch {
  readonly deadlines: Set<Deadline>;
  readonly listener: () => void;
}

const watches = new WeakMap<AbortSignal, Watch>();

/**
 * The end of a call: its timeout, or cancellation by the caller.
 * Not AbortSignal.any: a signal that lives as long as the process would collect a listener per call.
 */
export class Deadline {
  readonly #listeners = new Set<(failure: StepFailure) => void>();
  readonly #timer: NodeJS.Timeout;
  readonly #signals: readonly AbortSignal[];
  #failure: StepFailure | undefined;

  constructor(ms: number, signals: readonly (AbortSignal | undefined)[]) {
    this.#timer = setTimeout(() => {
      this.#end(new StepFailure('timeout', `no whole answer within ${durationText(ms)}`));
    }, ms);
    this.#signals = signals.filter((signal) => signal !== undefined);
    for (const signal of this.#signals) watch(signal, this);
    if (this.#signals.some((signal) => signal.aborted)) this.abort();
  }

  /** Calls the listener at the deadline, unless the returned function is called first. Throws if already over. */
  onEnd(listener: (failure: StepFailure) => void): () => void {
    if (this.#failure) throw this.#failure;
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  /** The value of the promise; rejects if the deadline ends first. */
  async race<T>(promise: T | Promise<T>): Promise<T> {
    const over = Promise.withResolvers<never>();
    if (this.#failure) over.reject(this.#failure);
    this.#listeners.add(over.reject);
    return Promise.race([over.promise, promise]).finally(() => this.#listeners.delete(over.reject));
  }

  abort(): void {
    this.#end(new StepFailure('aborted', 'it is not wanted any more'));
  }

  clear(): void {
    clearTimeout(this.#timer);
    for (const signal of this.#signals) unwatch(signal, this);
    this.#listeners.clear();
  }

  #end(failure: StepFailure): void {
    this.#failure ??= failure;
    for (const listener of this.#listeners) listener(this.#failure);
  }
}

function watch(signal: AbortSignal, deadline: Deadline): void {
  const known = watches.get(signal);
  if (known) return void known.deadlines.add(deadline);
  const deadlines = new Set([deadline]);
  const listener = (): void => deadlines.forEach((one) => one.abort());
  watches.set(signal, { deadlines, listener });
  signal.addEventListener('abort', listener);
}

function unwatch(signal: AbortSignal, deadline: Deadline): void {
  const known = watches.get(signal);
  if (!known?.deadlines.delete(deadline) || known.deadlines.size > 0) return;
  signal.removeEventListener('abort', known.listener);
  watches.delete(signal);
}
