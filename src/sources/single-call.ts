import { timeText } from '../config/index.ts';
import type { Queryable } from '../database/index.ts';
import { showSource, type SourceHealth } from './health.ts';
import { takeCall } from './pause.ts';

/** Why no call may be made, in words for the operator. */
const obstacles: Readonly<Record<SourceHealth['state'], string>> = {
  ok: 'its calls of this minute are used up',
  rate: 'its calls of this minute are used up',
  stopped: 'nothing is spent now; "pgfresh resume-spending" ends that',
  off: 'it is switched off',
  paused: 'it is paused',
  held: 'the provider asked for a pause',
  breaker: 'it failed too often and is left alone for a while',
  probing: 'it failed too often and is being tried',
  quota: 'its bytes are used up',
};

/** Why no call may be made now, and the resulting outcome. */
interface CallObstacle {
  readonly outcome: 'rate_limited' | 'unauthorized';
  readonly problem: string;
}

/** Takes a call outside any job, within all limits of the source; returns the reason if none is available. */
export async function takeSingleCall(
  db: Queryable,
  source: { readonly id: number; readonly name: string },
): Promise<CallObstacle | undefined> {
  const [quota] = await db.query<{ used: boolean }>('select pgfresh.is_quota_exceeded($1::text) as used', [
    source.name,
  ]);
  if (!quota!.used && (await takeCall(db, source.id, 1))) return undefined;
  const { state, pause_reason: reason, paused_until, paused_by, next_call_at } = await showSource(db, source.name);
  const until = paused_until === 'infinity' ? null : (paused_until ?? next_call_at);
  const details = [reason === null ? '' : `: ${reason}`, until === null ? '' : ` (until ${timeText(until)})`].join('');
  return {
    outcome: paused_by === 'credentials' ? 'unauthorized' : 'rate_limited',
    problem: `the source ${source.name} may not be called now, because ${obstacles[state]}${details}`,
  };
}

/** Records calls made outside any job, and their bytes, in the ledger. */
export async function countCalls(db: Queryable, sourceId: number, calls: number, bytes: number): Promise<void> {
  await db.query('select pgfresh_engine.count_calls($1::int, $2::int, $3::bigint)', [sourceId, calls, bytes]);
}
