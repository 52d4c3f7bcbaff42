const window = 60_000;
const allowed = 5;

/** Delay before a restart that keeps restarts to five per minute, given the times of the earlier ones. */
export function restartDelay(earlier: readonly number[], now: number): number {
  const recent = earlier.filter((at) => at > now - window);
  return recent.length < allowed ? 0 : recent.at(-allowed)! + window - now;
}
