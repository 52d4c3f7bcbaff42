import type { GatewayPair, GatewayUser, LimitSettings } from '../../config/index.ts';
import { PgfreshError } from '../../errors/index.ts';
import type { Admitted, Verdict } from './pair-lookup.ts';
import type { Permission } from '../auth/authorizer.ts';
import type { Questions } from './pair-queries.ts';
import type { Readers } from '../auth/rls-readers.ts';
import type { Account, Tally } from '../auth/usage-limits.ts';
import type { NamedPair } from './watched-pair.ts';
import { refusalOf, type Viewings } from './watched-pairs.ts';

interface EntranceParts {
  readonly limits: LimitSettings;
  readonly permission: Permission;
  readonly questions: Questions;
  readonly readers: Readers;
  readonly viewings: Viewings;
  readonly tally: Tally;
}

/** What of a wish may be done before it is accepted. */
interface Haste {
  /** Whether the user has room for the pair, so that it may be queued by the statement that admits it. */
  readonly mayPlan: boolean;
}

const longestKey = 512;

/**
 * The pair as its data type writes it, if there can be such a pair and the user may look at it. What costs least is
 * asked first, and nothing is left behind for a pair that is refused. So a pair is queued along only where nobody but the
 * registry can refuse it any more: its rows are for everybody, there is no `authorize`, and no limit is reached.
 */
export async function admitted(
  pair: GatewayPair,
  user: GatewayUser,
  account: Account,
  parts: EntranceParts,
  haste: Haste = { mayPlan: true },
): Promise<NamedPair> {
  requirePlausible(pair);
  const reader = parts.readers.known(user);
  const open = parts.viewings.find(pair) ?? (reader && parts.viewings.find(pair, reader));
  const named: NamedPair = open ?? (await judged(pair, user, account, parts, haste));
  const refusal = await parts.permission.refusal(user, { dataType: named.dataType, key: named.key });
  if (refusal) throw refusal;
  const isPlanned = !open && named.isPlanned === true;
  return { dataType: named.dataType, type: named.type, key: named.key, reader: named.reader, isPlanned };
}

async function judged(
  asked: GatewayPair,
  user: GatewayUser,
  account: Account,
  parts: EntranceParts,
  { mayPlan }: Haste,
): Promise<NamedPair> {
  const { questions, readers, limits, tally, permission } = parts;
  const { dataType } = asked;
  const planned = mayPlan && !permission.isAsked ? await wanted(asked, account, parts) : undefined;
  const verdict = planned ?? (await questions.admit(asked));
  const refusal = refusalOf(verdict);
  if (refusal) throw refusal;
  const { type, key, known, visibility } = (verdict as { admitted: Admitted }).admitted;
  const reader = visibility === 'rls' ? await readers.of(user, dataType) : undefined;
  if (!known && !planned && !(await tally.mayAskFor(account, { dataType, key }))) {
    const limit = limits.newPairsPerMinute;
    throw new PgfreshError('PGF_LIVE_TOO_MANY_NEW_PAIRS', { pair: `${dataType} ${key}`, limit });
  }
  return { dataType, type, key, reader, isPlanned: planned !== undefined };
}

/** What came of a pair that was planned too; nothing if the user may have no new one, or if it cannot be planned now. */
async function wanted(
  asked: GatewayPair,
  account: Account,
  { questions, tally }: Pick<EntranceParts, 'questions' | 'tally'>,
): Promise<Verdict | undefined> {
  if (!tally.reserve(account, asked)) return undefined;
  let isNew: GatewayPair | undefined;
  try {
    const verdict = await questions.want(asked);
    if (verdict && 'admitted' in verdict && !verdict.admitted.known)
      isNew = { dataType: asked.dataType, key: verdict.admitted.key };
    return verdict;
  } finally {
    tally.release(asked, isNew);
  }
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
