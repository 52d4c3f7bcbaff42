import type { JobContext, JobHandler, JobResult } from '../config/index.ts';
import { problemOf } from '../errors/index.ts';
import { readJobResult } from './job-result.ts';

/** Runs a handler and always returns a result. On abort it returns at once, even if the handler goes on. */
export async function runHandler(handler: JobHandler, context: JobContext): Promise<JobResult> {
  const { signal } = context;
  const aborted = Promise.withResolvers<never>();
  const onAbort = (): void => aborted.reject(signal.reason);
  signal.addEventListener('abort', onAbort, { once: true });
  try {
    signal.throwIfAborted();
    // In a promise, so that a synchronous throw is a failure like any other.
    const running = Promise.resolve().then(() => handler(context));
    return readJobResult(await Promise.race([running, aborted.promise]));
  } catch (error) {
    return { success: false, message: withoutPasswords(problemOf(error)), details: detailsOf(error) };
  } finally {
    signal.removeEventListener('abort', onAbort);
  }
}

const longestStack = 4_000;

function detailsOf(error: unknown): { error: string; code?: string; stack?: string } {
  if (!(error instanceof Error)) return { error: typeof error };
  const code = 'code' in error && typeof error.code === 'string' ? error.code : undefined;
  const stack = stackOf(error);
  return {
    error: error.name,
    ...(code === undefined ? {} : { code }),
    ...(stack === undefined ? {} : { stack }),
  };
}

/** The stack of an error: its one-line message, then the calls. */
function stackOf(error: Error): string | undefined {
  const calls = String(error.stack)
    .split('\n')
    .filter((line) => /^\s+at /.test(line));
  if (calls.length === 0) return undefined;
  return withoutPasswords([`${error.name}: ${problemOf(error)}`, ...calls].join('\n')).slice(0, longestStack);
}

function withoutPasswords(text: string): string {
  return text.replace(/(\w:\/\/)[^\s/@]+@/g, '$1[redacted]@');
}
