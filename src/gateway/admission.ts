import type { Queryable } from '../database/index.ts';
import type { ErrorCode } from '../errors/index.ts';
import { Batch } from './batch.ts';

interface AskedPair {
  readonly dataType: string;
  readonly key: string;
}

/** How its data type writes the key of a pair, or why there is no such pair. */
export type Verdict =
  | { readonly key: string; readonly known: boolean; readonly visibility: 'shared' | 'rls' }
  | { readonly code: ErrorCode; readonly problem: string };

interface VerdictRow {
  readonly place: number;
  readonly key: string;
  readonly known: boolean;
  readonly visibility: 'shared' | 'rls';
  readonly code: ErrorCode | null;
  readonly problem: string;
}

/** What a gateway asks the database about pairs before and when somebody looks at them, in sets of all connections. */
export class Admission {
  readonly #verdicts: Batch<AskedPair, Verdict>;
  readonly #checks: Batch<AskedPair, void>;
  readonly #db: Queryable;

  constructor(db: Queryable) {
    this.#db = db;
    this.#verdicts = new Batch((pairs) => this.#admit(pairs), 1_000, 20_000);
    this.#checks = new Batch((pairs) => this.#check(pairs), 100, 20_000);
  }

  /** Whether there can be such a pair. Costs a look, and leaves nothing behind. */
  admit(pair: AskedPair): Promise<Verdict> {
    return this.#verdicts.ask(pair);
  }

  /** Queues the pair if it is missing or stale. */
  check(pair: AskedPair): Promise<void> {
    return this.#checks.ask(pair);
  }

  /** Queues the pair although it may be fresh; says what came of it. */
  async refresh({ dataType, key }: AskedPair): Promise<string> {
    const refresh = 'select pgfresh.refresh_pair($1::text, $2::text) as answer';
    const [row] = await this.#db.query<{ answer: { result: string } }>(refresh, [dataType, key]);
    return row!.answer.result;
  }

  async #admit(pairs: readonly AskedPair[]): Promise<Verdict[]> {
    const admit = {
      name: 'pgfresh.admit_pairs',
      text: 'select place, key, known, visibility, code, problem from pgfresh.admit_pairs($1::text[], $2::text[])',
    };
    const verdicts: Verdict[] = [];
    for (const { place, key, known, visibility, code, problem } of await this.#db.query<VerdictRow>(
      admit,
      columns(pairs),
    ))
      verdicts[place - 1] = code === null ? { key, known, visibility } : { code, problem };
    return verdicts;
  }

  async #check(pairs: readonly AskedPair[]): Promise<void[]> {
    const check = { name: 'pgfresh.check_pairs', text: 'select pgfresh.check_pairs($1::text[], $2::text[])' };
    await this.#db.query(check, columns(pairs));
    return pairs.map(() => {});
  }
}

function columns(pairs: readonly AskedPair[]): [string[], string[]] {
  return [pairs.map(({ dataType }) => dataType), pairs.map(({ key }) => key)];
}
