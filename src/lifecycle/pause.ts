import { Wake } from './wake.ts';

/** Waits for a time, or until the signal is aborted. */
export function pause(ms: number, signal?: AbortSignal): Promise<void> {
  return new Wake().wait(ms, signal);
}
