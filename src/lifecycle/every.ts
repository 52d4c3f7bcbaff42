import type { Backoff } from './backoff.ts';
import { pause } from './pause.ts';
import { Wake } from './wake.ts';

interface EveryOptions {
  /** Ends the loop: a wait ends at once, running work is finished first. */
  readonly signal: AbortSignal;
  /** Called for each failure, except while the loop is ending, which may have caused it. */
  readonly failed: (error: unknown) => void;
  /** Starts with the work instead of a wait. */
  readonly now?: boolean;
  /** Ends a wait early, except one after a failure. */
  readonly wake?: Wake;
  /** Random variation of the period, as a fraction, so that many processes do not work at the same moment. */
  readonly jitter?: number;
  /** The waits after failures; defaults to one period. */
  readonly backoff?: Backoff;
}

/**
 * The loop of all background work. Runs the work once per period until the signal is aborted, and resolves when the last
 * run has ended; it never rejects. If the work returns a number, that is the next wait in milliseconds.
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
