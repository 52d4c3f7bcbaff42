/** Aborted by Ctrl-C and its kin, for a command that waits for something which goes on without it. */
export function interruption(): AbortSignal {
  const interrupted = new AbortController();
  const end = (): void => interrupted.abort();
  process.once('SIGINT', end).once('SIGTERM', end).once('SIGHUP', end);
  return interrupted.signal;
}
