const closed = new Set<NodeJS.WriteStream>();

/**
 * A closed pipe (EPIPE) or terminal (EIO) ends the output, not the process. Without a listener each failed write would be
 * an uncaught exception, and reporting that is one more write.
 */
export function surviveClosedOutput(): void {
  for (const stream of [process.stdout, process.stderr]) {
    stream.on('error', () => {
      closed.add(stream);
      // Node.js would try to write every further line, with a system call each.
      stream.write = () => true;
    });
  }
}

/** Ends the process once its output is flushed, whatever is still open. */
export async function endProcess(): Promise<never> {
  await Promise.all([process.stdout, process.stderr].map(written));
  process.exit();
}

function written(stream: NodeJS.WriteStream): Promise<unknown> {
  const { promise, resolve } = Promise.withResolvers<unknown>();
  if (closed.has(stream)) resolve(undefined);
  stream.once('error', resolve);
  stream.write('', resolve);
  return promise;
}
