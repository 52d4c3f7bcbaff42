import type { Fresh } from 'pgfresh/client';
import { createContext, use } from 'react';
import type { Overview } from './server.ts';

/** For how many milliseconds the values of each data type are good. */
export const LifetimesContext = createContext<ReadonlyMap<string, number>>(new Map());

export function lifetimesOf(overview: Overview | undefined): ReadonlyMap<string, number> {
  return new Map(overview?.types.map(({ data_type: type, ttl_seconds: seconds }) => [type, seconds * 1_000]));
}

/** When the source last said that a value which was fetched earlier still holds; undefined if it has not. */
export function useConfirmation(type: string, fresh: Fresh<unknown>): Date | undefined {
  return confirmationOf(fresh, use(LifetimesContext).get(type));
}

/** What is confirmed is good for its whole time from then on, and not only from when it was fetched. */
export function confirmationOf(
  { state, fetchedAt, staleAt }: Pick<Fresh<unknown>, 'state' | 'fetchedAt' | 'staleAt'>,
  lifetimeMs: number | undefined,
): Date | undefined {
  if (state !== 'fresh' || !fetchedAt || !staleAt || lifetimeMs === undefined) return undefined;
  const at = staleAt.getTime() - lifetimeMs;
  return at - fetchedAt.getTime() >= 1_000 ? new Date(at) : undefined;
}
