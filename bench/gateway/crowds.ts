import { Child } from '../child.ts';
import type { Scope } from '../scope.ts';
import type { Come, Joins } from './crowd-host.ts';

/** Viewers in several processes. */
export class Crowds {
  readonly #children: readonly Child[];

  private constructor(children: readonly Child[]) {
    this.#children = children;
  }

  static async open(scope: Scope, count: number): Promise<Crowds> {
    const open = async (number: number) => {
      const { child } = await Child.open(scope, new URL('./crowd-host.ts', import.meta.url), [String(number)]);
      return child;
    };
    return new Crowds(await Promise.all(Array.from({ length: count }, (_, number) => open(number))));
  }

  /** Adds one viewer per key. Resolves when all have their snapshots. */
  async come(port: number, keys: readonly string[]): Promise<void> {
    await this.#each((child, share) => child.ask('come', { port, keys: share(keys) } satisfies Come));
  }

  /** Milliseconds from request to snapshot, for viewers of one pair that look at another for a while. */
  async joins(who: string, perSecond: number, keys: readonly string[]): Promise<number[]> {
    const rate = perSecond / this.#children.length;
    const all = await this.#each((child, share) =>
      child.ask<number[]>('joins', { who, perSecond: rate, keys: share(keys) } satisfies Joins),
    );
    return all.flat();
  }

  /** Sends something to all viewers of one pair; resolves with the time at which the last one received it. */
  async hear(keys: readonly string[], key: string, tell: () => Promise<void>): Promise<number> {
    const counts = await this.#each((_, share) => Promise.resolve(share(keys).filter((each) => each === key).length));
    await this.#each((child, _, number) => child.ask('listen', counts[number]));
    await tell();
    return Math.max(...(await this.#each((child) => child.ask<number>('heard'))));
  }

  #each<Answer>(
    work: (child: Child, share: (keys: readonly string[]) => string[], number: number) => Promise<Answer>,
  ): Promise<Answer[]> {
    const { length } = this.#children;
    return Promise.all(
      this.#children.map((child, number) =>
        work(child, (keys) => keys.filter((_, place) => place % length === number), number),
      ),
    );
  }
}
