import { allowances } from '../allowances.ts';
import type { World } from '../world.ts';

/** Something that must hold. It is looked at again and again, and notes in the journal what does not. */
export interface Invariant {
  readonly name: string;
  /** What it checks, in a sentence. */
  readonly holds: string;
  readonly look: (world: World) => Promise<void> | void;
}

/** For what may be seen for a moment: it counts when it persists. */
export class Persistence {
  readonly #since = new Map<string, number>();

  /** Those of the names that have been seen for long, without a break. */
  seen(names: readonly string[], forMs: number = allowances.persists): string[] {
    const now = Date.now();
    for (const name of this.#since.keys()) if (!names.includes(name)) this.#since.delete(name);
    for (const name of names) if (!this.#since.has(name)) this.#since.set(name, now);
    return names.filter((name) => now - this.#since.get(name)! >= forMs);
  }
}
