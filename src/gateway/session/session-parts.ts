import type { LimitSettings } from '../../config/index.ts';
import type { Events } from '../../events/index.ts';
import type { Authenticator } from '../auth/authenticator.ts';
import type { Authorizer } from '../auth/authorizer.ts';
import type { RlsReaders } from '../auth/rls-readers.ts';
import type { UsageLimits } from '../auth/usage-limits.ts';
import type { PairQueries } from '../pairs/pair-queries.ts';
import type { WatchedPairs } from '../pairs/watched-pairs.ts';
import type { SlowClients } from './slow-clients.ts';

/** What all sessions of a gateway share. */
export interface SessionParts {
  readonly limits: LimitSettings;
  readonly authenticator: Authenticator;
  readonly authorizer: Authorizer;
  readonly queries: PairQueries;
  readonly rlsReaders: RlsReaders;
  readonly watchedPairs: WatchedPairs;
  readonly usageLimits: UsageLimits;
  readonly events: Events;
  readonly slowClients: SlowClients;
}
