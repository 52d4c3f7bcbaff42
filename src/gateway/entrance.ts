import type { GatewayPair, GatewayUser, LimitSettings } from '../config/index.ts';
import { PgfreshError } from '../errors/index.ts';
import type { Admitted } from './admission.ts';
import type { Permission } from './permission.ts';
import type { Questions } from './questions.ts';
import type { Readers } from './readers.ts';
import type { Account, Tally } from './tally.ts';
import type { NamedPair } from './viewing.ts';
import { refusalOf, type Viewings } from './viewings.ts';

interface EntranceParts {
  readonly limits: LimitSettings;
  readonly permission: Permission;
  readonly questions: Questions;
  readonly readers: Readers;
  readonly viewings: Viewings;
  readonly tally: Tally;
}

const longestKey = 512;

/**
 * The pair as its data type writes it, if there can be such a pair and the user may look at it. What costs least is
 * asked first, and nothing is left behind for a pair that is refused.
 */
export async function admitted(
  pair: GatewayPair,
  user: GatewayUser,
  account: Account,
  parts: EntranceParts,
): Promise<NamedPair> {
  requirePlausible(pair);
  const reader = parts.readers.known(user);
  const open = parts.viewings.find(pair) ?? (reader && parts.viewings.find(pair, reader));
  const named = open ?? (await judged(pair, user, account, parts));
  const refusal = await parts.permission.refusal(user, { dataType: named.dataType, key: named.key });
  if (refusal) throw refusal;
  return { dataType: named.dataType, type: named.type, key: named.key, reader: named.reader };
}

async function judged(
  asked: GatewayPair,
  user: GatewayUser,
  account: Account,
  parts: EntranceParts,
): Promise<NamedPair> {
  const { questions, readers, limits, tally } = parts;
  const { dataType } = asked;
  const verdict = await questions.admit(asked);
  const refusal = refusalOf(verdict);
  if (refusal) throw refusal;
  const { type, key, known, visibility } = (verdict as { admitted: Admitted }).admitted;
  const reader = visibility === 'rls' ? await readers.of(user, dataType) : undefined;
  if (!known && !tally.mayAskFor(account, { dataType, key })) {
    const limit = limits.newPairsPerMinute;
    throw new PgfreshError('PGF_LIVE_TOO_MANY_NEW_PAIRS', { pair: `${dataType} ${key}`, limit });
  }
  return { dataType, type, key, reader };
}

// What PostgreSQL could not even be asked about, or what could be taken for another pair.
function requirePlausible({ dataType, key }: GatewayPair): void {
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
