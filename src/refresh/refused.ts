import { performance } from 'node:perf_hooks';
import type { Database, Queryable } from '../database/index.ts';
import { PgfreshError } from '../errors/index.ts';
import type { ClaimedJob } from '../queue/index.ts';
import { checkAnswer, type OnPassed } from './checks.ts';
import { outcomeOf, writeRows } from './rows.ts';
import { outcomes, Refusal, type OutcomeName, type SuccessName } from './outcomes.ts';
import type { RefreshType } from './refresh-type.ts';
import { contextOf, type RefusedAnswer } from './refresher.ts';
import type { WritableRow } from './row-values.ts';

interface Bad {
  readonly job: Pick<ClaimedJob, 'id' | 'key' | 'metadata'>;
  readonly refusal: Refusal;
  readonly answer?: RefusedAnswer | undefined;
}

// A provider that changes its format causes every answer to be refused; a few of each kind are enough.
const keptAtOnce = 5;
const largestBody = 65_536;

/** Stores the refused answers of one commit, in its transaction. */
export async function keepRefused(tx: Queryable, type: RefreshType, bad: readonly Bad[]): Promise<void> {
  const kept = bad.filter(({ refusal, answer }) => answer && outcomes[refusal.outcome].keepsAnswer);
  for (const { job, refusal, answer } of kept.slice(-keptAtOnce)) {
    const { status, contentType, size, text } = answer!;
    await tx.query(
      `select pgfresh_engine.keep_refused_answer($1::int, $2::text, $3::bigint, $4::text, $5::text, $6::int, $7::text, $8::bigint, $9::bytea, $10::jsonb)`,
      [
        type.id,
        job.key,
        job.id,
        refusal.outcome,
        refusal.message,
        status,
        contentType,
        size,
        Buffer.from(text()).subarray(0, largestBody),
        job.metadata,
      ],
    );
  }
}

/** A stored refused answer, as listed. */
export interface RefusedEntry {
  readonly id: number;
  readonly dataType: string;
  readonly key: string;
  readonly at: Date;
  readonly outcome: OutcomeName;
  readonly error: string;
  readonly status: number | null;
  readonly contentType: string | null;
  readonly size: number;
}

const entry = `a.id, r.data_type as "dataType", a.key, a.at, a.outcome, a.error, a.status, a.content_type as "contentType", a.size`;
const from = 'pgfresh_engine.refused_answer as a join pgfresh.data_type_registry as r on r.type_id = a.type_id';

/** The refused answers, newest first. */
export function listRefused(db: Queryable, dataType?: string): Promise<RefusedEntry[]> {
  return db.query<RefusedEntry>(
    `select ${entry} from ${from} where $1::text is null or r.data_type = $1::text order by a.id desc`,
    [dataType],
  );
}

/** One refused answer, with its body. */
export async function readRefused(
  db: Queryable,
  id: number,
): Promise<RefusedEntry & { body: Buffer; typeId: number; metadata: object | null }> {
  const [row] = await db.query<RefusedEntry & { body: Buffer; typeId: number; metadata: object | null }>(
    `select ${entry}, a.body, a.type_id as "typeId", a.metadata from ${from} where a.id = $1::bigint`,
    [id],
  );
  if (!row) throw new PgfreshError('PGF_REFUSED_UNKNOWN', { id });
  return row;
}

/**
 * Writes a refused answer after all, because an operator vouches for it, however many rows it deletes. It keeps its
 * age: rows written since it was fetched stay, and the outcome is then `older_source`.
 */
export async function acceptRefused(
  db: Database,
  type: RefreshType,
  { id, key, at }: Awaited<ReturnType<typeof readRefused>>,
  rows: readonly WritableRow[],
): Promise<SuccessName> {
  return db.transact(
    'accept',
    async (tx) => {
      const [clock] = await tx.query<{ now: string; ageMs: number }>(
        `select c.now::text, extract(epoch from c.now - $1::timestamptz)::float8 * 1000 as "ageMs" from (select pgfresh.clock() as now) as c`,
        [at],
      );
      const one = { job: { id: 0, key }, rows, fetchedAt: performance.now() - clock!.ageMs };
      const verdicts = await writeRows(tx, type, [one], clock!.now);
      const outcome = outcomeOf(one, verdicts.get(0));
      if (outcome !== 'older_source') {
        const rowAt = verdicts.get(0)?.rowAt;
        const accept = 'select pgfresh_engine.accept_refused_answer($1::bigint, $2::text, $3::timestamptz)';
        await tx.query(accept, [id, outcome, rowAt]);
      }
      return outcome;
    },
    { attempts: 1, immediateConstraints: true },
  );
}

/** Checks a refused answer again with the current schema, without fetching or writing anything. */
export async function replayRefused(
  type: RefreshType,
  refused: Awaited<ReturnType<typeof readRefused>>,
  now: Date,
  onPassed?: OnPassed,
): Promise<{ outcome: OutcomeName; error?: string; rows: readonly WritableRow[] }> {
  const { status, contentType, body, size, at } = refused;
  if (body.length < size) {
    return { outcome: 'too_large', error: `only ${body.length} of ${size} bytes were kept`, rows: [] };
  }
  const headers = new Headers(contentType === null ? {} : { 'content-type': contentType });
  const context = contextOf(type, refused, now, new AbortController().signal);
  const answer = { status: status ?? 200, contentType, body };
  try {
    const rows = await checkAnswer(
      type,
      answer,
      { ...context, fetchedAt: at, status: answer.status, headers },
      onPassed,
    );
    return { outcome: rows.length === 0 ? 'empty' : 'fresh', rows };
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    return { outcome: error.outcome, error: error.message, rows: [] };
  }
}
