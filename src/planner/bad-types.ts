import { problemOf } from '../errors/index.ts';
import { pause } from '../lifecycle/index.ts';
import { probeLimits, type Limits } from './limits.ts';
import { callPlanner, isTimeout, type PlannerAnswer, type PlannerDatabase } from './planner-call.ts';

const probeEveryMs = 1_000;
/** One in this many probes may take as long as any check, so that a merely slow type can recover. */
const longProbeEvery = 10;
/** So few that a timeout is the fault of the data type, not of the server. */
export const pairsAlone = 100;
/** Timeout for recording viewer changes of all data types, which runs no user code. */
const notesMs = 10_000;

interface Type {
  readonly type_id: number;
  readonly data_type: string;
}

/** Records a timeout of a data type. The second within a minute puts it in quarantine. */
export async function noteTimeout(db: PlannerDatabase, type: number, where: string, error: unknown): Promise<void> {
  await db.query('select pgfresh_engine.note_type_timeout($1::int, $2::text, $3::text)', [
    type,
    where,
    problemOf(error),
  ]);
}

/**
 * Checks the data types one by one after checking all together timed out, so that the slow one is found and the
 * others proceed. Types with recent timeouts come last. Returns whether none of them timed out.
 */
export async function askEachType(
  db: PlannerDatabase,
  limits: Limits,
  work: 'pgfresh_engine.plan_due_pairs' | 'pgfresh.queue_scheduled_refreshes',
  answered: (answer: PlannerAnswer) => void,
): Promise<boolean> {
  let isEachWell = true;
  // Separately, so that its timeout is not blamed on a data type.
  if (work === 'pgfresh_engine.plan_due_pairs')
    await callPlanner(db, { ...limits, statementMs: notesMs }, work, { int: pairsAlone, 'text[]': [] });
  const types = await db.query<Type>('select type_id, data_type from pgfresh_engine.types_to_ask()');
  for (const { type_id: id, data_type: name } of types) {
    try {
      for (let isMore = true; isMore;) {
        const answer = await callPlanner(db, limits, work, { int: pairsAlone, 'text[]': [name] });
        answered(answer);
        isMore = answer.more === true;
      }
    } catch (error) {
      if (!isTimeout(error)) throw error;
      isEachWell = false;
      await noteTimeout(db, id, work === 'pgfresh_engine.plan_due_pairs' ? 'tick' : 'schedule', error);
    }
  }
  return isEachWell;
}

/** Probes data types in quarantine, each once per second, until none is left there. */
export async function probeTypes(
  db: PlannerDatabase,
  limits: Limits,
  { signal, recovered }: { readonly signal: AbortSignal; readonly recovered: () => void },
): Promise<void> {
  for (let round = 1; ; round++) {
    const types = await db.query<Type>('select type_id, data_type from pgfresh_engine.quarantined_types()');
    if (types.length === 0 || signal.aborted) return;
    for (const { type_id: id } of types) {
      if (await isWell(db, id, round % longProbeEvery === 0 ? limits.statementMs : probeLimits.statementMs))
        recovered();
    }
    await pause(probeEveryMs, signal);
  }
}

async function isWell(db: PlannerDatabase, type: number, statementTimeoutMs: number): Promise<boolean> {
  try {
    return await db.transact(
      'probe',
      async (tx) => {
        const [row] = await tx.query<{ well: boolean }>('select pgfresh_engine.probe_type($1::int) as well', [type]);
        return row!.well;
      },
      { lockTimeoutMs: probeLimits.lockMs, statementTimeoutMs },
    );
  } catch (error) {
    if (!isTimeout(error)) throw error;
    await noteTimeout(db, type, 'probe', error);
    return false;
  }
}
