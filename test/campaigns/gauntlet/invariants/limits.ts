import { allowances } from '../allowances.ts';
import type { Call } from '../provider.ts';
import type { World } from '../world.ts';

/** A limit as it was set. */
export interface LimitChange {
  readonly at: number;
  readonly source: string;
  readonly rate: number | null;
  readonly concurrency: number | null;
}

/** The highest limit that was in force within a time; Infinity if there was none for a moment. */
function highest(
  changes: readonly LimitChange[],
  kind: 'rate' | 'concurrency',
  { source, from, to }: { source: string; from: number; to: number },
): number {
  const own = changes.filter((change) => change.source === source && change.at <= to);
  const before = own.findLast(({ at }) => at <= from);
  const inForce = own.filter(({ at }) => at > from);
  return Math.max(...[...(before ? [before] : []), ...inForce].map((change) => change[kind] ?? Infinity));
}

export function judgeRate(world: World, changes: readonly LimitChange[], place: number, call: Call): void {
  const limit = highest(changes, 'rate', {
    source: call.source,
    from: call.at - 60_000 - allowances.limitInForce,
    to: call.at,
  });
  if (limit === Infinity) return;
  let count = 1;
  for (let earlier = place - 1; earlier >= 0; earlier--) {
    const other = world.provider.calls[earlier]!;
    if (call.at - other.at >= 60_000) break;
    if (other.source === call.source && other.apiKey === call.apiKey) count++;
  }
  if (count > limit)
    world.journal.violated(
      'calls stay within limits',
      { source: call.source },
      `${call.source} was called ${count} times in 60 s with the key ${call.apiKey}, and ${limit} were allowed at most`,
    );
}

export function judgeConcurrency(world: World, changes: readonly LimitChange[], call: Call): void {
  const from = call.at - allowances.concurrencyInForce;
  const limit = highest(changes, 'concurrency', { source: call.source, from, to: call.at });
  const isExact = world.wasWhole(from) && world.losses.every((at) => at < from || at > call.at);
  if (isExact && call.open > limit)
    world.journal.violated(
      'calls stay within limits',
      { source: call.source },
      `${call.source} had ${call.open} calls open, and ${limit} jobs were allowed at once`,
    );
}
