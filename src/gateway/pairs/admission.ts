import type { GatewayPair, GatewayUser, LimitSettings } from '../../config/index.ts';
import { PgfreshError } from '../../errors/index.ts';
import type { Authorizer } from '../auth/authorizer.ts';
import type { RlsReaders } from '../auth/rls-readers.ts';
import type { UsageLimits, UserUsage } from '../auth/usage-limits.ts';
import { lookupError, type PairLookup, type RegisteredPair } from './pair-lookup.ts';
import type { PairQueries } from './pair-queries.ts';
import type { ResolvedPair } from './watched-pair.ts';
import type { WatchedPairs } from './watched-pairs.ts';

interface AdmissionParts {
  readonly limits: LimitSettings;
  readonly authorizer: Authorizer;
  readonly queries: PairQueries;
  readonly rlsReaders: RlsReaders;
  readonly watchedPairs: WatchedPairs;
  readonly usageLimits: UsageLimits;
}

interface AdmissionOptions {
  /** Whether the user has room for the pair, so that the statement that looks it up may queue it too. */
  readonly mayPlan: boolean;
}

const maxKeyBytes = 512;

/**
 * Checks that a pair can exist and that the user may view it; returns it as the registry spells it. Cheap checks come
 * first, and a refused pair leaves nothing behind. So the lookup also queues a pair only if nothing but the registry can
 * refuse it: its rows are for everyone, there is no `authorize`, and no limit is reached.
 */
export async function admitPair(
  pair: GatewayPair,
  user: GatewayUser,
  usage: UserUsage,
  parts: AdmissionParts,
  options: AdmissionOptions = { mayPlan: true },
): Promise<ResolvedPair> {
  requireWellFormed(pair);
  const reader = parts.rlsReaders.cached(user);
  const watched = parts.watchedPairs.find(pair) ?? (reader && parts.watchedPairs.find(pair, reader));
  const resolved: ResolvedPair = watched ?? (await resolvePair(pair, user, usage, parts, options));
  const { dataType, type, key } = resolved;
  const refusal = await parts.authorizer.refusal(user, { dataType, key });
  if (refusal) throw refusal;
  const isPlanned = !watched && resolved.isPlanned === true;
  return { dataType, type, key, reader: resolved.reader, isPlanned };
}

async function resolvePair(
  requested: GatewayPair,
  user: GatewayUser,
  usage: UserUsage,
  parts: AdmissionParts,
  { mayPlan }: AdmissionOptions,
): Promise<ResolvedPair> {
  const { queries, rlsReaders, limits, usageLimits, authorizer } = parts;
  const { dataType } = requested;
  const planned = mayPlan && !authorizer.isConfigured ? await lookUpAndPlan(requested, usage, parts) : undefined;
  const lookup = planned ?? (await queries.lookUp(requested));
  const refusal = lookupError(lookup);
  if (refusal) throw refusal;
  const { type, key, known, visibility } = (lookup as { found: RegisteredPair }).found;
  const reader = visibility === 'rls' ? await rlsReaders.readerOf(user, dataType) : undefined;
  if (!known && !planned && !(await usageLimits.takeNewPair(usage, { dataType, key }))) {
    const limit = limits.newPairsPerMinute;
    throw new PgfreshError('PGF_LIVE_TOO_MANY_NEW_PAIRS', { pair: `${dataType} ${key}`, limit });
  }
  return { dataType, type, key, reader, isPlanned: planned !== undefined };
}

/** Undefined if the user has reached the limit of new pairs, or if the pair cannot be planned now. */
async function lookUpAndPlan(
  requested: GatewayPair,
  usage: UserUsage,
  { queries, usageLimits }: Pick<AdmissionParts, 'queries' | 'usageLimits'>,
): Promise<PairLookup | undefined> {
  if (!usageLimits.reserveNewPair(usage, requested)) return undefined;
  let newPair: GatewayPair | undefined;
  try {
    const lookup = await queries.lookUpAndPlan(requested);
    if (lookup && 'found' in lookup && !lookup.found.known)
      newPair = { dataType: requested.dataType, key: lookup.found.key };
    return lookup;
  } finally {
    usageLimits.releaseNewPair(requested, newPair);
  }
}

// Rejects text that PostgreSQL does not accept, or that could be mistaken for another pair.
function requireWellFormed({ dataType, key }: GatewayPair): void {
  if (!/^[a-z][a-z0-9_-]{0,62}$/.test(dataType)) {
    const got = JSON.stringify(dataType.slice(0, 60));
    throw new PgfreshError('PGF_TYPE_UNKNOWN', { problem: `there is no data type ${got}` });
  }
  if (key === '' || Buffer.byteLength(key) > maxKeyBytes || /\p{Cc}/u.test(key) || !key.isWellFormed()) {
    const got = JSON.stringify(key.slice(0, 60));
    throw new PgfreshError('PGF_KEY_INVALID', {
      problem: `a key has 1 to ${maxKeyBytes} bytes and no control characters, got ${got}`,
    });
  }
}
