import type { Backoff } from './backoff.ts';
import { pause } from './pause.ts';
import { Wake } from './wake.ts';

interface EveryOptions {
  /** Ends the loop: a wait ends at once, and work under way is finished first. */
  readonly signal: AbortSignal;
  /** Told of each failure, unless the loop is ending: then it may have failed because of that. */
  readonly failed: (error: unknown) => void;
  /** Begins with the work, not with a wait. */
  readonly now?: boolean;
  /** Ends a wait early, but not the one after a failure. */
  readonly wake?: Wake;
  /** Random share by which a period is longer or shorter, so that many processes do not work at the same moment. */
  readonly jitter?: number;
  /** The waits after failures; a period if it is left out. */
  readonly backoff?: Backoff;
}

/**
 * The one loop of everything that runs by itself. Does the work once per period until the signal is aborted, and settles
 * when the last work has ended; it never fails. Work that gives a number says by it how many milliseconds to wait this time.
 */
export async function every(
  periodMs: number,
  work: () => Promise<void> | Promise<number>,
  { signal, failed, now = false, wake = new Wake(), jitter = 0, backoff }: EveryOptions,
): Promise<void> {
  const period = (): number => periodMs * (1 + jitter * (2 * Math.random() - 1));
  let waitMs = now ? 0 : period();
  for (;;) {
    if (waitMs > 0) await wake.wait(waitMs, signal);
    if (signal.aborted) return;
    try {
      const next = await work();
      waitMs = typeof next === 'number' ? next : period();
      backoff?.reset();
    } catch (error) {
      if (signal.aborted) return;
      failed(error);
      waitMs = 0;
      await (backoff ? backoff.pause(signal) : pause(period(), signal));
    }
  }
}
