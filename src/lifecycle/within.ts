import { setTimeout as wait } from 'node:timers/promises';

/** What the work gives if it does so in time and does not fail; it is not waited for any longer. */
export async function within<T>(ms: number, work: Promise<T> | undefined): Promise<T | undefined> {
  const patience = new AbortController();
  const tired = wait(ms, undefined, { signal: patience.signal }).catch(() => undefined);
  const result = await Promise.race([work?.catch(() => undefined), tired]);
  patience.abort();
  return result;
}
