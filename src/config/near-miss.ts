/** The candidate that a mistyped word most likely meant, if one is close enough. */
export function nearMiss(word: string, candidates: readonly string[]): string | undefined {
  const scored = candidates.map((candidate) => ({
    candidate,
    distance: editDistance(word.toLowerCase(), candidate.toLowerCase()),
  }));
  const best = scored.toSorted((a, b) => a.distance - b.distance)[0];
  if (best && best.distance <= Math.max(2, Math.floor(word.length / 3))) return best.candidate;
  // A name that was cut short, such as rateLimit for rateLimitPerMinute.
  const longer = candidates.filter((candidate) => candidate.toLowerCase().startsWith(word.toLowerCase()));
  return longer.length === 1 && word.length >= 4 ? longer[0] : undefined;
}

function editDistance(a: string, b: string): number {
  let previous = Array.from({ length: b.length + 1 }, (_, index) => index);
  for (let i = 1; i <= a.length; i++) {
    const current = [i];
    for (let j = 1; j <= b.length; j++) {
      const replaced = previous[j - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1);
      current.push(Math.min(previous[j]! + 1, current[j - 1]! + 1, replaced));
    }
    previous = current;
  }
  return previous[b.length]!;
}
