/** Aborted by SIGINT, SIGTERM or SIGHUP, for a command that waits for work that continues without it. */
export function interruption(): AbortSignal {
  const interrupted = new AbortController();
  const end = (): void => interrupted.abort();
  process.once('SIGINT', end).once('SIGTERM', end).once('SIGHUP', end);
  return interrupted.signal;
}
