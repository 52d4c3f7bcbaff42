import type { RefreshResult } from '#protocol';
import type { PairId } from '../../changes/index.ts';
import type { GatewayPair } from '../../config/index.ts';
import type { Queryable } from '../../database/index.ts';
import type { NodeDemand } from '../../demand/index.ts';
import { PgfreshError } from '../../errors/index.ts';
import type { Activity, DataState, Reason } from '../../planner/index.ts';
import { Batcher } from './batcher.ts';
import { KnownTypes } from './known-types.ts';
import { lookUpAndPlanPairs, lookUpPairs, pairColumns, type PairLookup, type Visibility } from './pair-lookup.ts';
import { TypeBatcher } from './type-batcher.ts';
import type { TypeStatements } from './type-statements.ts';

/** The part of a pair's explanation that viewers may see, without the details for operators. */
export interface PairExplanation {
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
 * A gateway's queries about pairs, batched over all its connections. Queries that use users' tables or functions run as
 * statements of their data type; the others use only pgfresh's own tables.
 */
export class PairQueries {
  readonly #db: Queryable;
  readonly #statements: TypeStatements;
  readonly #demand: Pick<NodeDemand, 'node' | 'counted'>;
  readonly #types: KnownTypes;
  readonly #lookups: TypeBatcher<PairLookup>;
  readonly #plans: TypeBatcher<PairLookup | undefined>;
  readonly #explanations: TypeBatcher<PairExplanation | 'unresponsive'>;
  readonly #advances: Batcher<void, void>;

  constructor(db: Queryable, statements: TypeStatements, demand: Pick<NodeDemand, 'node' | 'counted'>) {
    this.#db = db;
    this.#statements = statements;
    this.#demand = demand;
    this.#types = new KnownTypes(db);
    this.#lookups = new TypeBatcher({ statements, topic: 'keys', ask: lookUpPairs, batchSize: 1_000 });
    this.#plans = new TypeBatcher<PairLookup | undefined>({
      statements,
      topic: 'want',
      ask: (from, pairs) => this.#lookUpAndPlan(from, pairs),
      batchSize: 100,
      unresponsive: { answer: undefined },
    });
    this.#explanations = new TypeBatcher<PairExplanation | 'unresponsive'>({
      statements,
      topic: 'plan',
      ask: (from, pairs) => from.query<PairExplanation>(explain, pairColumns(pairs)),
      batchSize: 100,
      unresponsive: { answer: 'unresponsive' },
    });
    this.#advances = new Batcher((calls) => this.#advanceVersions(calls), 1_000, 20_000);
  }

  /** Looks a pair up, and writes nothing. Waits while the table of the data type's keys does not answer. */
  async lookUp(pair: GatewayPair): Promise<PairLookup> {
    const { dataType } = pair;
    const visibility = await this.#types.visibility(dataType);
    if (!visibility) return unknownType(dataType);
    const lookup = await this.#lookups.ask(pair);
    if (isOutdated(lookup, visibility)) this.#types.forget(dataType);
    return lookup;
  }

  /**
   * Looks a pair up and, in the same statement, queues it if it is missing or stale. Undefined if its rows are not for
   * everyone, or if it cannot be planned now.
   */
  async lookUpAndPlan(pair: GatewayPair): Promise<PairLookup | undefined> {
    const { dataType } = pair;
    if ((await this.#types.visibility(dataType)) !== 'shared') return undefined;
    const lookup = await this.#plans.ask(pair).catch(() => undefined);
    if (lookup && isOutdated(lookup, 'shared')) this.#types.forget(dataType);
    return lookup;
  }

  /** Whether the table of a data type's keys does not answer. */
  isUnresponsive(dataType: string): boolean {
    return this.#statements.isUnresponsive(dataType, 'keys');
  }

  /** Queues the pair if it is missing or stale. While its data type is unresponsive, this is left to the planner. */
  async plan(pair: GatewayPair): Promise<void> {
    await this.#plans.ask(pair);
  }

  /** Why the pair waits, or that its data type does not answer. */
  explain(pair: GatewayPair): Promise<PairExplanation | 'unresponsive'> {
    return this.#explanations.ask(pair);
  }

  /** Makes every later read have a greater version than all earlier ones. */
  advanceVersions(): Promise<void> {
    return this.#advances.ask();
  }

  /** Queues the pair even if it is fresh. */
  async refresh({ dataType, key }: GatewayPair): Promise<RefreshResult> {
    const refresh = 'select pgfresh_engine.refresh_pair($1::text, $2::text) as answer';
    if (this.#statements.waitMs(dataType, 'refresh') > 0) throw new PgfreshError('PGF_LIVE_BUSY', {});
    const [row] = await this.#statements.run(dataType, 'refresh', (db) =>
      db.query<{ answer: { result: RefreshResult } }>(refresh, [dataType, key]),
    );
    return row!.answer.result;
  }

  /** How many viewers each pair has, over all gateways. */
  async countViewers(pairs: readonly PairId[]): Promise<number[]> {
    const [row] = await this.#db.query<{ viewers: number[] }>(count, [
      pairs.map(({ type }) => type),
      pairs.map(({ key }) => key),
    ]);
    return row!.viewers;
  }

  async #lookUpAndPlan(db: Queryable, pairs: readonly GatewayPair[]): Promise<readonly PairLookup[]> {
    const { node } = this.#demand;
    const { lookups, counted } = await lookUpAndPlanPairs(db, pairs, node);
    for (const { type, key } of counted) this.#demand.counted(node!, type, key);
    return lookups;
  }

  async #advanceVersions(calls: readonly void[]): Promise<void[]> {
    // Assigns a transaction id, with which versions begin.
    await this.#db.query('select pg_current_xact_id()');
    return calls.map(() => {});
  }
}

/** Whether the cached visibility of the data type no longer holds. */
function isOutdated(lookup: PairLookup, visibility: Visibility): boolean {
  if ('found' in lookup) return lookup.found.visibility !== visibility;
  return lookup.refused.code === 'PGF_TYPE_UNKNOWN';
}

function unknownType(dataType: string): PairLookup {
  return { refused: { code: 'PGF_TYPE_UNKNOWN', problem: `there is no data type '${dataType}'` } };
}
