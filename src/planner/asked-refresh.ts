import type { Queryable } from '../database/index.ts';
import { pause } from '../lifecycle/index.ts';
import { explainPair, type Explanation } from './explanation.ts';

type Attempt = Explanation['outcomes'][number];

/** The result of a requested refresh. */
export interface AskedRefresh {
  readonly job_id: number;
  /** The request was `queued`, `merged` with a waiting job, already `running`, or `busy`. */
  readonly result: string;
  /** How the first attempt since then ended; null if it has not. */
  readonly attempt: Attempt | null;
  /** The pair as last read. */
  readonly pair: Explanation;
}

interface AskOptions {
  /** Ends the wait, not the refresh. */
  readonly signal?: AbortSignal;
  /** Called when the reason for waiting changes. */
  readonly onWaiting?: (words: string) => void;
}

const pollMs = 200;
// Above nearly all viewed pairs: an operator requested this one and waits for it.
const priority = 1_000;
const ask = `select pgfresh.queue_refresh_if_not_exists($2::text, $1::text, $3::int, p_force => $4::boolean) as answer`;

/**
 * Queues a pair even if it is fresh, skips the retry delay of a failed job, and waits for the next attempt. A running
 * job is waited for, not run twice.
 */
export async function askForRefresh(
  db: Queryable,
  dataType: string,
  key: string,
  { signal, onWaiting }: AskOptions = {},
): Promise<AskedRefresh> {
  const before = new Set((await explainPair(db, dataType, key)).outcomes.map(nameOf));
  const queue = async (force: boolean): Promise<Pick<AskedRefresh, 'job_id' | 'result'>> => {
    const [row] = await db.query<{ answer: Pick<AskedRefresh, 'job_id' | 'result'> }>(ask, [
      dataType,
      key,
      priority,
      force,
    ]);
    return row!.answer;
  };
  let asked = await queue(false);
  if (asked.result === 'merged') asked = await queue(true);
  for (let told = ''; ;) {
    const pair = await explainPair(db, dataType, key);
    const attempt = pair.outcomes.find((one) => one.job >= asked.job_id && isEnd(one) && !before.has(nameOf(one)));
    if (attempt || signal?.aborted || pair.reason === 'no_worker') return { ...asked, attempt: attempt ?? null, pair };
    if (pair.words !== told) onWaiting?.(pair.words);
    told = pair.words;
    await pause(pollMs, signal);
  }
}

/** A put-back says nothing about the pair. */
function isEnd({ status }: Attempt): boolean {
  return status !== 'pending';
}

function nameOf({ job, attempt }: Attempt): string {
  return `${job} ${attempt}`;
}
