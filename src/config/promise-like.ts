/** Whether a value of users' code has to be awaited. To await what is there already costs a promise, and each job has several. */
export function isPromiseLike<T>(value: T | PromiseLike<T>): value is PromiseLike<T> {
  return typeof (value as Partial<PromiseLike<T>> | null | undefined)?.then === 'function';
}
