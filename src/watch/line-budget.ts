import type { EventType } from '../events/index.ts';

/** What can happen hundreds of times a second, when a provider or the database is away, or because of what clients send. */
const frequent: ReadonlySet<EventType> = new Set<EventType>([
  'refresh.ended',
  'worker.failed',
  'worker.lease_lost',
  'database.connection_lost',
  'transaction.retried',
  'planner.failed',
  'demand.failed',
  'gateway.refused',
  'gateway.failed',
]);

const linesASecond = 10;

/** Keeps a log readable: of what happens often, at most ten lines a second, and how many were left out. */
export class LineBudget {
  readonly #now: () => number;
  #since = -Infinity;
  #lines = 0;
  #leftOut = 0;

  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  /** How many lines were left out before this one; undefined if this one is left out too. */
  ask(type: EventType): number | undefined {
    if (!frequent.has(type)) return this.#tell();
    const now = this.#now();
    if (now - this.#since >= 1_000) {
      this.#since = now;
      this.#lines = 0;
    }
    if (++this.#lines <= linesASecond) return this.#tell();
    this.#leftOut++;
    return undefined;
  }

  #tell(): number {
    const leftOut = this.#leftOut;
    this.#leftOut = 0;
    return leftOut;
  }
}
