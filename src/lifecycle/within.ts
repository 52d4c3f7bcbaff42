const tooLate = Symbol('too late');

/**
 * Waits at most so many milliseconds. Gives what the work gives, or fails as it fails; if that takes longer, gives or
 * throws what `late` does. Work that is late goes on by itself.
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
