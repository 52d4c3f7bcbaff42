import type { Queryable } from '../database/index.ts';
import type { Activity, DataState, Reason } from '../planner/index.ts';
import { admitPairs, type Verdict, type WantedPair } from './admission.ts';
import { Batch } from './batch.ts';
import type { Pair as NumberedPair } from './pair.ts';

/** What is the matter with a pair, without the words and details that are for operators. */
export interface Explained {
  readonly state: DataState;
  readonly activity: Activity;
  readonly reason: Reason | null;
  readonly until: Date | null;
}

// Without waiting for the disk: what a crash forgets, the planner finds by the count of those who look.
const check = {
  name: 'pgfresh.check_pairs',
  text: `select set_config('synchronous_commit', 'off', true), pgfresh.check_pairs($1::text[], $2::text[])`,
};
const explain = {
  name: 'pgfresh.explain_pairs',
  text: `select e.answer ->> 'state' as state, e.answer ->> 'activity' as activity, e.answer ->> 'reason' as reason,
      nullif((e.answer ->> 'until')::timestamptz, 'infinity') as until
    from unnest($1::text[], $2::text[]) with ordinality as w(data_type, key, place)
    cross join lateral (select pgfresh.explain_pair(w.data_type, w.key) as answer) as e order by w.place`,
};

const count = {
  name: 'pgfresh.count_viewers',
  text: 'select pgfresh.count_viewers($1::int[], $2::text[]) as viewers',
};

/** What a gateway asks the database about pairs, in sets gathered from all connections. */
export class Questions {
  readonly #db: Queryable;
  readonly #verdicts: Batch<WantedPair, Verdict>;
  readonly #checks: Batch<WantedPair, void>;
  readonly #explanations: Batch<WantedPair, Explained>;
  readonly #advances: Batch<void, void>;

  constructor(db: Queryable) {
    this.#db = db;
    this.#verdicts = new Batch((pairs) => admitPairs(db, pairs), 1_000, 20_000);
    this.#checks = new Batch((pairs) => this.#check(pairs), 100, 20_000);
    this.#explanations = new Batch((pairs) => db.query<Explained>(explain, columns(pairs)), 100, 20_000);
    this.#advances = new Batch((asked) => this.#advance(asked), 1_000, 20_000);
  }

  /** Whether there can be such a pair. Costs a look, and leaves nothing behind. */
  admit(pair: WantedPair): Promise<Verdict> {
    return this.#verdicts.ask(pair);
  }

  /** Queues the pair if it is missing or stale. */
  check(pair: WantedPair): Promise<void> {
    return this.#checks.ask(pair);
  }

  explain(pair: WantedPair): Promise<Explained> {
    return this.#explanations.ask(pair);
  }

  /** After this, every read has a greater version than all before it. */
  advance(): Promise<void> {
    return this.#advances.ask();
  }

  /** Queues the pair although it may be fresh; says what came of it. */
  async refresh({ dataType, key }: WantedPair): Promise<string> {
    const refresh = 'select pgfresh.refresh_pair($1::text, $2::text) as answer';
    const [row] = await this.#db.query<{ answer: { result: string } }>(refresh, [dataType, key]);
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

  async #advance(asked: readonly void[]): Promise<void[]> {
    await this.#db.query('select pg_current_xact_id()');
    return asked.map(() => {});
  }

  async #check(pairs: readonly WantedPair[]): Promise<void[]> {
    await this.#db.query(check, columns(pairs));
    return pairs.map(() => {});
  }
}

function columns(pairs: readonly WantedPair[]): [string[], string[]] {
  return [pairs.map(({ dataType }) => dataType), pairs.map(({ key }) => key)];
}
