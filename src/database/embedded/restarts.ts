const window = 60_000;
const allowed = 5;

/** How long to wait before a restart so that no minute has more than five, given when the earlier ones were. */
export function restartDelay(earlier: readonly number[], now: number): number {
  const recent = earlier.filter((at) => at > now - window);
  return recent.length < allowed ? 0 : recent.at(-allowed)! + window - now;
}
