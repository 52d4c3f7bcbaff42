import { Wake } from './wake.ts';

/** Waits so long, or until the signal is aborted. */
export function pause(ms: number, signal?: AbortSignal): Promise<void> {
  return new Wake().wait(ms, signal);
}
