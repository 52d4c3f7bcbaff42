/**
 * Milliseconds of the machine's monotonic clock. Unlike `performance.timeOrigin + performance.now()`, which each
 * process anchors by itself, it is one clock for all processes, so times of a parent and of its children compare.
 */
export function now(): number {
  return Number(process.hrtime.bigint()) / 1e6;
}

export function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

/** The promise, or an error with this message on timeout. */
export async function within<Result>(ms: number, promise: Promise<Result>, sentence: string): Promise<Result> {
  const late = Promise.withResolvers<never>();
  const timer = setTimeout(() => late.reject(new Error(sentence)), ms);
  try {
    return await Promise.race([promise, late.promise]);
  } finally {
    clearTimeout(timer);
  }
}
