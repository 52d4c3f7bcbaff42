/** What a process occupies, in bytes. */
export interface Memory {
  readonly resident: number;
  readonly used: number;
}

/** Without garbage, as far as Node.js tells. */
export function measureMemory(): Memory {
  // Twice, because what the first one finalises is garbage for the second.
  globalThis.gc!();
  globalThis.gc!();
  const { rss, heapUsed, external } = process.memoryUsage();
  return { resident: rss, used: heapUsed + external };
}
