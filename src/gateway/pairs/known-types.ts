import type { Queryable } from '../../database/index.ts';
import { Batcher } from './batcher.ts';
import type { Visibility } from './pair-lookup.ts';

const find = {
  name: 'pgfresh.find_types',
  text: `select r.visibility from unnest($1::text[]) with ordinality as n(name, place)
    left join pgfresh.data_type_registry as r on r.data_type = n.name order by n.place`,
};

/**
 * Caches which data types exist, and who may see their rows. Clients can send any name, so a name is looked up before
 * resources are kept for it. A name that was found stays cached until it is forgotten.
 */
export class KnownTypes {
  readonly #visibilities = new Map<string, Visibility>();
  readonly #lookups: Batcher<string, Visibility | undefined>;

  constructor(db: Queryable) {
    this.#lookups = new Batcher(
      async (names) => {
        const rows = await db.query<{ visibility: Visibility | null }>(find, [names]);
        return rows.map(({ visibility }) => visibility ?? undefined);
      },
      1_000,
      20_000,
    );
  }

  /** The visibility of a data type's rows; undefined if there is no such type. */
  async visibility(name: string): Promise<Visibility | undefined> {
    const known = this.#visibilities.get(name);
    if (known) return known;
    const found = await this.#lookups.ask(name);
    if (found) this.#visibilities.set(name, found);
    return found;
  }

  forget(name: string): void {
    this.#visibilities.delete(name);
  }
}
