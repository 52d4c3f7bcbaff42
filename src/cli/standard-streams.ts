/**
 * A closed pipe (EPIPE) or terminal (EIO) ends the output, not the process. Without a listener each failed write would be
 * an uncaught exception, and reporting that is one more write.
 */
export function surviveClosedOutput(): void {
  for (const stream of [process.stdout, process.stderr]) {
    stream.on('error', () => {
      // Node would try each further line again, at the price of a system call.
      stream.write = () => true;
    });
  }
}

/** Ends the process soon, whatever is still open. Output that its reader has not taken yet is waited for. */
export function endProcessSoon(afterMs = 1_000): void {
  const end = (): void => {
    if (process.stdout.writableLength + process.stderr.writableLength > 0) endProcessSoon(afterMs);
    else process.exit();
  };
  setTimeout(end, afterMs).unref();
}
