import { setTimeout as wait } from 'node:timers/promises';
import type { Queryable } from '../database/index.ts';
import { asPgfreshError, problemOf } from '../errors/index.ts';
import type { Events } from '../events/index.ts';
import { Service } from '../lifecycle/index.ts';

export interface NodeDemandOptions {
  readonly db: Queryable;
  readonly events: Events;
  readonly nodeName: string;
}

interface Count {
  readonly dataType: string;
  readonly key: string;
  readonly viewers: number;
}

const flushEveryMs = 250;
const renewEveryMs = 10_000;
const largestBatch = 5_000;
const ofOnePair: readonly string[] = ['PGF_TYPE_UNKNOWN', 'PGF_KEY_UNKNOWN', 'PGF_KEY_INVALID', 'PGF_REGISTRY_INVALID'];

/**
 * How many distinct users look at each pair through this process, kept in the database under a lease. Viewers come and
 * go in memory; what is written follows the pairs whose number has changed, in batches. When the process dies, its
 * counts end with its lease.
 */
export class NodeDemand extends Service {
  readonly name = 'node demand';
  readonly #options: NodeDemandOptions;
  readonly #counts = new Map<string, Count>();
  #changed = new Map<string, Count>();
  #node: number | undefined;
  #loops: Promise<unknown> | undefined;

  constructor(options: NodeDemandOptions) {
    super();
    this.#options = options;
  }

  /** Says how many distinct users look at a pair through this process now. */
  set(dataType: string, key: string, viewers: number): void {
    const count = { dataType, key, viewers };
    const pair = nameOf(count);
    if (viewers > 0) this.#counts.set(pair, count);
    else this.#counts.delete(pair);
    this.#changed.set(pair, count);
  }

  /** Writes what has changed until now. What changes meanwhile, and what fails, is written by the next one. */
  async flush(): Promise<void> {
    let left = this.#take();
    while (left.length > 0) {
      try {
        await this.#write(left.slice(0, largestBatch));
        left = left.slice(largestBatch);
      } catch (error) {
        // What was said meanwhile is newer.
        this.#changed = new Map([...left.map((count) => [nameOf(count), count] as const), ...this.#changed]);
        if (codeOf(error) !== 'PGF_LEASE_LOST') throw error;
        await this.renew();
        left = this.#take();
      }
    }
  }

  #take(): Count[] {
    const changed = [...this.#changed.values()];
    this.#changed = new Map();
    return changed;
  }

  /** Renews the lease; if it is lost, begins another and says everything again. */
  async renew(): Promise<void> {
    const beat = 'select pgfresh.heartbeat_node($1::bigint) as alive';
    const [row] = await this.#options.db.query<{ alive: boolean }>(beat, [this.#node]);
    if (row!.alive) return;
    await this.#register();
    this.#changed = new Map([...this.#changed, ...this.#counts]);
  }

  protected async onStart(): Promise<void> {
    await this.#register();
    this.#loops = Promise.all([
      this.#every(flushEveryMs, () => this.flush()),
      this.#every(renewEveryMs, () => this.renew()),
    ]);
  }

  protected async onStop(): Promise<void> {
    await this.#loops;
    if (this.#node !== undefined) await this.#options.db.query('select pgfresh.retire_node($1::bigint)', [this.#node]);
  }

  async #register(): Promise<void> {
    const register = 'select pgfresh.register_node($1::text) as id';
    const [row] = await this.#options.db.query<{ id: number }>(register, [this.#options.nodeName]);
    this.#node = row!.id;
  }

  async #write(counts: readonly Count[]): Promise<void> {
    try {
      await this.#send(counts);
    } catch (error) {
      if (!ofOnePair.includes(codeOf(error))) throw error;
      // A pair can become one that is not there, for instance when its data type is removed. The others must not suffer.
      const middle = Math.floor(counts.length / 2);
      if (middle > 0) for (const half of [counts.slice(0, middle), counts.slice(middle)]) await this.#write(half);
      else this.#options.events.emit({ type: 'demand.failed', problem: problemOf(error) });
    }
  }

  async #send(counts: readonly Count[]): Promise<void> {
    await this.#options.db.query('select pgfresh.set_node_demand($1::bigint, $2::text[], $3::text[], $4::int[])', [
      this.#node,
      counts.map(({ dataType }) => dataType),
      counts.map(({ key }) => key),
      counts.map(({ viewers }) => viewers),
    ]);
  }

  async #every(periodMs: number, work: () => Promise<void>): Promise<void> {
    while (!this.stopSignal.aborted) {
      await wait(periodMs, undefined, { signal: this.stopSignal }).catch(() => {});
      if (this.stopSignal.aborted) return;
      await work().catch((error: unknown) =>
        this.#options.events.emit({ type: 'demand.failed', problem: problemOf(error) }),
      );
    }
  }
}

function nameOf({ dataType, key }: Count): string {
  return JSON.stringify([dataType, key]);
}

function codeOf(error: unknown): string {
  return asPgfreshError(error).code;
}
