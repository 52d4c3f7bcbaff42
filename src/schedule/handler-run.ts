import type { JobContext, JobHandler, JobResult } from '../config/index.ts';
import { problemOf } from '../errors/index.ts';
import { readJobResult } from './job-result.ts';

/** Runs a handler. Whatever it does, it ends by a result; when the signal is aborted, at once, whether it stops or not. */
export async function runHandler(handler: JobHandler, context: JobContext): Promise<JobResult> {
  const { signal } = context;
  const aborted = Promise.withResolvers<never>();
  const onAbort = (): void => aborted.reject(signal.reason);
  signal.addEventListener('abort', onAbort, { once: true });
  try {
    signal.throwIfAborted();
    // In a promise, so that what it throws at once is a failure like any other.
    const running = Promise.resolve().then(() => handler(context));
    return readJobResult(await Promise.race([running, aborted.promise]));
  } catch (error) {
    return { success: false, message: problemOf(error), details: detailsOf(error) };
  } finally {
    signal.removeEventListener('abort', onAbort);
  }
}

function detailsOf(error: unknown): { error: string; code?: string } {
  const code = error instanceof Error && 'code' in error && typeof error.code === 'string' ? error.code : undefined;
  return { error: error instanceof Error ? error.name : typeof error, ...(code === undefined ? {} : { code }) };
}
