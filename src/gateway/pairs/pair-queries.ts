import type { RefreshResult } from '#protocol';
import type { Queryable } from '../../database/index.ts';
import type { NodeDemand } from '../../demand/index.ts';
import { PgfreshError } from '../../errors/index.ts';
import type { Activity, DataState, Reason } from '../../planner/index.ts';
import { admitPairs, wantPairs, type Admitted, type Verdict, type WantedPair } from './pair-lookup.ts';
import { Batch } from './batcher.ts';
import { KnownTypes } from './known-types.ts';
import type { Lanes } from './type-statements.ts';
import type { Pair as NumberedPair } from '../../changes/index.ts';
import { TypeBatches } from './type-batcher.ts';

/** What is the matter with a pair, without the words and details that are for operators. */
export interface Explained {
  readonly state: DataState;
  readonly activity: Activity;
  readonly reason: Reason | null;
  readonly until: Date | null;
}

const explain = {
  name: 'pgfresh.explain_pairs',
  text: `select e.answer ->> 'state' as state, e.answer ->> 'activity' as activity, e.answer ->> 'reason' as reason,
      nullif((e.answer ->> 'until')::timestamptz, 'infinity') as until
    from unnest($1::text[], $2::text[]) with ordinality as w(data_type, key, place)
    cross join lateral (select pgfresh.explain_pair(w.data_type, w.key) as answer) as e order by w.place`,
};

const count = {
  name: 'pgfresh.count_viewers',
  text: 'select pgfresh_engine.count_viewers($1::int[], $2::text[]) as viewers',
};

/**
 * What a gateway asks the database about pairs, in sets gathered from all connections. What asks users' tables or functions
 * goes by the lane of its data type; the rest asks only tables of pgfresh.
 */
export class Questions {
  readonly #db: Queryable;
  readonly #lanes: Lanes;
  readonly #demand: Pick<NodeDemand, 'node' | 'counted'>;
  readonly #types: KnownTypes;
  readonly #verdicts: TypeBatches<Verdict>;
  readonly #wants: TypeBatches<Verdict | undefined>;
  readonly #explanations: TypeBatches<Explained | 'held'>;
  readonly #advances: Batch<void, void>;

  constructor(db: Queryable, lanes: Lanes, demand: Pick<NodeDemand, 'node' | 'counted'>) {
    this.#db = db;
    this.#lanes = lanes;
    this.#demand = demand;
    this.#types = new KnownTypes(db);
    this.#verdicts = new TypeBatches({ lanes, topic: 'keys', ask: admitPairs, size: 1_000 });
    this.#wants = new TypeBatches<Verdict | undefined>({
      lanes,
      topic: 'want',
      ask: (from, pairs) => this.#wantPairs(from, pairs),
      size: 100,
      held: { answer: undefined },
    });
    this.#explanations = new TypeBatches<Explained | 'held'>({
      lanes,
      topic: 'plan',
      ask: (from, pairs) => from.query<Explained>(explain, columns(pairs)),
      size: 100,
      held: { answer: 'held' },
    });
    this.#advances = new Batch((asked) => this.#advance(asked), 1_000, 20_000);
  }

  /**
   * Whether there can be such a pair. Costs a look, and leaves nothing behind. Waits as long as the table of its keys does
   * not answer.
   */
  async admit(pair: WantedPair): Promise<Verdict> {
    const { dataType } = pair;
    const visibility = await this.#types.visibility(dataType);
    if (!visibility) return unknownType(dataType);
    const verdict = await this.#verdicts.ask(pair);
    if (isOutdated(verdict, visibility)) this.#types.forget(dataType);
    return verdict;
  }

  /**
   * The same for a pair that whoever asks may look at if its rows are for everybody: then it is queued too, if it is missing
   * or stale, by the same statement. Nothing if they are not, or if the pair cannot be planned now.
   */
  async want(pair: WantedPair): Promise<Verdict | undefined> {
    const { dataType } = pair;
    if ((await this.#types.visibility(dataType)) !== 'shared') return undefined;
    const verdict = await this.#wants.ask(pair).catch(() => undefined);
    if (verdict && isOutdated(verdict, 'shared')) this.#types.forget(dataType);
    return verdict;
  }

  /** Whether the table of keys of a data type does not answer. */
  isHeld(dataType: string): boolean {
    return this.#lanes.isHeld(dataType, 'keys');
  }

  /** Queues the pair if it is missing or stale; not if its data type does not answer, which is left to the planner. */
  async plan(pair: WantedPair): Promise<void> {
    await this.#wants.ask(pair);
  }

  /** Why it waits, or that its data type does not answer. */
  explain(pair: WantedPair): Promise<Explained | 'held'> {
    return this.#explanations.ask(pair);
  }

  /** After this, every read has a greater version than all before it. */
  advance(): Promise<void> {
    return this.#advances.ask();
  }

  /** Queues the pair although it may be fresh; says what came of it. */
  async refresh({ dataType, key }: WantedPair): Promise<RefreshResult> {
    const refresh = 'select pgfresh_engine.refresh_pair($1::text, $2::text) as answer';
    if (this.#lanes.pauseMs(dataType, 'refresh') > 0) throw new PgfreshError('PGF_LIVE_BUSY', {});
    const [row] = await this.#lanes.run(dataType, 'refresh', (db) =>
      db.query<{ answer: { result: RefreshResult } }>(refresh, [dataType, key]),
    );
    return row!.answer.result;
  }

  /** How many look at each pair, everywhere. */
  async viewers(pairs: readonly NumberedPair[]): Promise<number[]> {
    const [row] = await this.#db.query<{ viewers: number[] }>(count, [
      pairs.map(({ type }) => type),
      pairs.map(({ key }) => key),
    ]);
    return row!.viewers;
  }

  async #wantPairs(db: Queryable, pairs: readonly WantedPair[]): Promise<readonly Verdict[]> {
    const { node } = this.#demand;
    const { verdicts, counted } = await wantPairs(db, pairs, node);
    for (const { type, key } of counted) this.#demand.counted(node!, type, key);
    return verdicts;
  }

  async #advance(asked: readonly void[]): Promise<void[]> {
    await this.#db.query('select pg_current_xact_id()');
    return asked.map(() => {});
  }
}

/** Whether what was known of a data type is not true any more. */
function isOutdated(verdict: Verdict, visibility: Admitted['visibility']): boolean {
  if ('admitted' in verdict) return verdict.admitted.visibility !== visibility;
  return verdict.refused.code === 'PGF_TYPE_UNKNOWN';
}

function unknownType(dataType: string): Verdict {
  return { refused: { code: 'PGF_TYPE_UNKNOWN', problem: `there is no data type '${dataType}'` } };
}

function columns(pairs: readonly WantedPair[]): [string[], string[]] {
  return [pairs.map(({ dataType }) => dataType), pairs.map(({ key }) => key)];
}
