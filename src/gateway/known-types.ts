import type { Queryable } from '../database/index.ts';
import { Batch } from './batch.ts';

const find = {
  name: 'pgfresh.find_types',
  text: `select n.name in (select data_type from pgfresh.data_type_registry) as known
    from unnest($1::text[]) with ordinality as n(name, place) order by n.place`,
};

/**
 * Names of data types. Anybody can make names up, so a name is looked up in the registry before there is a lane for it;
 * one that was there stays known until it is forgotten.
 */
export class KnownTypes {
  readonly #known = new Set<string>();
  readonly #names: Batch<string, boolean>;

  constructor(db: Queryable) {
    this.#names = new Batch(
      async (names) => {
        const rows = await db.query<{ known: boolean }>(find, [names]);
        return rows.map(({ known }) => known);
      },
      1_000,
      20_000,
    );
  }

  async has(name: string): Promise<boolean> {
    if (this.#known.has(name)) return true;
    const isKnown = await this.#names.ask(name);
    if (isKnown) this.#known.add(name);
    return isKnown;
  }

  forget(name: string): void {
    this.#known.delete(name);
  }
}
