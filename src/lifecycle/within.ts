const tooLate = Symbol('too late');

/**
 * Awaits the work for at most `ms` milliseconds, and then calls `late`, whose result or error counts instead. Late work
 * continues in the background.
 */
export async function within<T, Late = undefined>(
  ms: number,
  work: T | Promise<T>,
  late: () => Late = () => undefined as Late,
): Promise<T | Late> {
  const over = Promise.withResolvers<typeof tooLate>();
  const timer = setTimeout(() => over.resolve(tooLate), ms);
  try {
    const first = await Promise.race([work, over.promise]);
    return first === tooLate ? late() : first;
  } finally {
    clearTimeout(timer);
  }
}
