import type { EventType } from '../events/index.ts';

/** Events that can occur hundreds of times per second, for instance while a provider is down. */
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

const linesPerSecond = 10;

/** Rate limit of the log: at most ten lines per second for frequent events, with a count of omitted lines. */
export class LineBudget {
  readonly #now: () => number;
  #since = -Infinity;
  #lines = 0;
  #omitted = 0;

  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  /** The number of lines omitted before this one; undefined if this one is omitted too. */
  ask(type: EventType): number | undefined {
    if (!frequent.has(type)) return this.#takeOmitted();
    const now = this.#now();
    if (now - this.#since >= 1_000) {
      this.#since = now;
      this.#lines = 0;
    }
    if (++this.#lines <= linesPerSecond) return this.#takeOmitted();
    this.#omitted++;
    return undefined;
  }

  #takeOmitted(): number {
    const omitted = this.#omitted;
    this.#omitted = 0;
    return omitted;
  }
}
