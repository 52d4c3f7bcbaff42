import type { Queryable } from '../../database/index.ts';
import { Batch } from './batcher.ts';

type Visibility = 'shared' | 'rls';

const find = {
  name: 'pgfresh.find_types',
  text: `select r.visibility from unnest($1::text[]) with ordinality as n(name, place)
    left join pgfresh.data_type_registry as r on r.data_type = n.name order by n.place`,
};

/**
 * Names of data types, and whose their rows are. Anybody can make names up, so a name is looked up in the registry before
 * there is a lane for it; one that was there stays known until it is forgotten.
 */
export class KnownTypes {
  readonly #known = new Map<string, Visibility>();
  readonly #names: Batch<string, Visibility | undefined>;

  constructor(db: Queryable) {
    this.#names = new Batch(
      async (names) => {
        const rows = await db.query<{ visibility: Visibility | null }>(find, [names]);
        return rows.map(({ visibility }) => visibility ?? undefined);
      },
      1_000,
      20_000,
    );
  }

  /** Whose rows a data type has, as far as is known; undefined if there is no such type. */
  async visibility(name: string): Promise<Visibility | undefined> {
    const known = this.#known.get(name);
    if (known) return known;
    const found = await this.#names.ask(name);
    if (found) this.#known.set(name, found);
    return found;
  }

  forget(name: string): void {
    this.#known.delete(name);
  }
}
