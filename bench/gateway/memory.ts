/** Memory of a process, in bytes. */
export interface Memory {
  readonly resident: number;
  readonly used: number;
}

/** After garbage collection, as Node.js reports it. */
export function measureMemory(): Memory {
  // Twice, because what the first one finalises is garbage for the second.
  globalThis.gc!();
  globalThis.gc!();
  const { rss, heapUsed, external } = process.memoryUsage();
  return { resident: rss, used: heapUsed + external };
}
