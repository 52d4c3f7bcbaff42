import { PgfreshError } from '../errors/index.ts';
import type { Admission } from './admission.ts';
import type { Permission } from './permission.ts';
import type { Limits, Pair, User } from './settings.ts';
import type { Account } from './tally.ts';
import type { Viewings } from './viewings.ts';

interface EntranceParts {
  readonly limits: Limits;
  readonly permission: Permission;
  readonly admission: Admission;
  readonly viewings: Viewings;
}

const longestKey = 512;

/**
 * The pair as its data type writes it, if there can be such a pair and the user may look at it. What costs least is
 * asked first, and nothing is left behind for a pair that is refused.
 */
export async function admitted(pair: Pair, user: User, account: Account, parts: EntranceParts): Promise<Pair> {
  requirePlausible(pair);
  const found = parts.viewings.find(pair) ? pair : await judged(pair, account, parts);
  const refusal = await parts.permission.refusal(user, { dataType: found.dataType, key: found.key });
  if (refusal) throw refusal;
  return found;
}

async function judged({ dataType, key }: Pair, account: Account, { admission, limits }: EntranceParts): Promise<Pair> {
  const verdict = await admission.admit({ dataType, key });
  if ('code' in verdict) throw new PgfreshError(verdict.code as 'PGF_KEY_UNKNOWN', { problem: verdict.problem });
  if (verdict.visibility === 'rls') throw new PgfreshError('PGF_LIVE_PRIVATE', { type: dataType });
  if (!verdict.known && !account.newPairs.take())
    throw new PgfreshError('PGF_LIVE_TOO_MANY_NEW_PAIRS', {
      pair: `${dataType} ${verdict.key}`,
      limit: limits.newPairsPerMinute,
    });
  return { dataType, key: verdict.key };
}

// What PostgreSQL could not even be asked about, or what could be taken for another pair.
function requirePlausible({ dataType, key }: Pair): void {
  if (!/^[a-z][a-z0-9_-]{0,62}$/.test(dataType)) {
    const got = JSON.stringify(dataType.slice(0, 60));
    throw new PgfreshError('PGF_TYPE_UNKNOWN', { problem: `there is no data type ${got}` });
  }
  if (key === '' || Buffer.byteLength(key) > longestKey || /\p{Cc}/u.test(key) || !key.isWellFormed()) {
    const got = JSON.stringify(key.slice(0, 60));
    throw new PgfreshError('PGF_KEY_INVALID', {
      problem: `a key has 1 to ${longestKey} bytes and no control characters, got ${got}`,
    });
  }
}
