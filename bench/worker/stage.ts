import { Child } from '../child.ts';
import type { Scope } from '../scope.ts';
import { type BenchServer, connect } from '../server.ts';
import type { Contender, Place } from './contender.ts';
import { oldRows, table } from './mirror.ts';

/** Where one contender is measured: a clone of its database, which has the quotes and an empty queue. */
export class Stage {
  readonly contender: Contender;
  readonly server: BenchServer;
  readonly #template: Place;

  private constructor(contender: Contender, server: BenchServer, template: Place) {
    this.contender = contender;
    this.server = server;
    this.#template = template;
  }

  /** A template with so many old quotes. */
  static async build(
    contender: Contender,
    server: BenchServer,
    scope: Scope,
    { quotes, ...where }: Omit<Place, 'url'> & { quotes: number },
  ): Promise<Stage> {
    const place = { ...where, url: await server.createDatabase(scope) };
    await scope.nest(async (inner) => {
      const client = await connect(place.url, inner);
      await client.query(table);
      await client.query(oldRows, [quotes]);
      await client.query('vacuum (analyze) quote');
    });
    await contender.setup(place);
    return new Stage(contender, server, place);
  }

  async clone(scope: Scope): Promise<Place> {
    return { ...this.#template, url: await this.server.createDatabase(scope, this.#template.url) };
  }

  /** A worker in a process of its own, that has not begun. */
  async worker(scope: Scope, place: Place, flags: readonly string[] = []): Promise<Child> {
    const { child } = await Child.open(
      scope,
      new URL('./worker-host.ts', import.meta.url),
      [this.contender.name, JSON.stringify(place)],
      flags,
    );
    return child;
  }
}
