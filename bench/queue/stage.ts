import { Scope } from '../scope.ts';
import { type BenchServer, connect } from '../server.ts';
import type { Contender, Query } from './contender.ts';

/** Where one contender is measured: a clone of its database for each measure, gone when the measure ends. */
export class Stage {
  readonly contender: Contender;
  readonly server: BenchServer;
  readonly #scope: Scope;
  readonly #template: string;

  private constructor(contender: Contender, server: BenchServer, scope: Scope, template: string) {
    this.contender = contender;
    this.server = server;
    this.#scope = scope;
    this.#template = template;
  }

  static async build(contender: Contender, server: BenchServer, scope: Scope): Promise<Stage> {
    const template = await server.createDatabase(scope);
    await contender.setup(template);
    return new Stage(contender, server, scope, template);
  }

  play<Result>(measure: (url: string, scope: Scope) => Promise<Result>): Promise<Result> {
    return this.nest(async (scope) => {
      const url = await this.clone(scope);
      await this.server.settle();
      return measure(url, scope);
    });
  }

  nest<Result>(measure: (scope: Scope) => Promise<Result>): Promise<Result> {
    return this.#scope.nest(measure);
  }

  clone(scope: Scope): Promise<string> {
    return this.server.createDatabase(scope, this.#template);
  }

  /** Fills the queue, then gathers statistics: a full table that the planner believes empty is not a normal case. */
  async load(url: string, jobs: number): Promise<void> {
    const enqueuer = await this.contender.enqueuer(url, 2);
    try {
      const sets = setsOf(jobs, 1000);
      const enqueueNext = async () => {
        for (let set = sets.next(); !set.done; set = sets.next()) await enqueuer.set(set.value);
      };
      await Promise.all([enqueueNext(), enqueueNext()]);
    } finally {
      await enqueuer.close();
    }
    await withQuery(url, (query) => query('analyze'));
  }
}

/** Runs the work with a connection of its own. */
export async function withQuery<Result>(url: string, work: (query: Query) => Promise<Result>): Promise<Result> {
  const scope = new Scope();
  try {
    const client = await connect(url, scope);
    return await work(async (text) => (await client.query<Record<string, unknown>>(text)).rows);
  } finally {
    await scope.close();
  }
}

export function* setsOf(jobs: number, size: number): Generator<number[]> {
  for (let next = 0; next < jobs; next += size) {
    yield Array.from({ length: Math.min(size, jobs - next) }, (_, index) => next + index);
  }
}
