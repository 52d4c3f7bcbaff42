import { protocol, version, type Queryable } from '../database/index.ts';
import { asPgfreshError, problemOf } from '../errors/index.ts';
import type { Events } from '../events/index.ts';
import { every, Service } from '../lifecycle/index.ts';

export interface NodeDemandOptions {
  readonly db: Queryable;
  readonly events: Events;
  readonly nodeName: string;
  /** Identifies this process as the holder of duties. */
  readonly holder?: string;
}

interface Count {
  /** The number of the data type, which a rename does not change. */
  readonly type: number;
  readonly key: string;
  readonly viewers: number;
}

const flushEveryMs = 250;
const renewEveryMs = 10_000;
const maxBatch = 5_000;
const retryRefusedMs = 5_000;
/** Longer than PostgreSQL takes to flush an asynchronous commit; shorter than a pair stays warm without a count. */
const confirmAfterMs = 5_000;

interface WriteResult {
  readonly refused: readonly { readonly place: number; readonly problem: string }[];
}

/**
 * Writes the number of distinct viewers of each pair through this process to the database, under a lease. Counts are kept
 * in memory, and changed ones are written in batches. A count that the database refuses, for instance because its key is
 * gone, is retried every few seconds until it is accepted or its viewers have left. If the process dies, its counts
 * expire with its lease.
 */
export class NodeDemand extends Service {
  readonly name = 'node demand';
  readonly #options: NodeDemandOptions;
  readonly #counts = new Map<string, Count>();
  #changed = new Map<string, Count>();
  /** Pairs whose count was refused, with the time of the retry, earliest first. */
  readonly #refused = new Map<string, number>();
  /** Pairs whose first viewer the planning statement counted, with the time at which to confirm the count. */
  readonly #counted = new Map<string, { readonly count: Count; readonly confirmAt: number; isWritten: boolean }>();
  #node: number | undefined;
  #loops: Promise<unknown> | undefined;

  constructor(options: NodeDemandOptions) {
    super();
    this.#options = options;
  }

  /** The number of this process in the database, once registered. */
  get node(): number | undefined {
    return this.#node;
  }

  /**
   * A statement counted one viewer of a pair, with an asynchronous commit and before the viewer subscribed. The count is
   * written again after a while, because a crash may have lost it, or the viewer may not have come.
   */
  counted(node: number, type: number, key: string): void {
    if (node !== this.#node) return;
    const count = { type, key, viewers: 1 };
    const pair = nameOf(count);
    const isWritten = !this.#counts.has(pair) && !this.#changed.has(pair);
    this.#counted.delete(pair);
    this.#counted.set(pair, { count, confirmAt: performance.now() + confirmAfterMs, isWritten });
  }

  /** Sets the number of distinct viewers of a pair through this process. */
  set(type: number, key: string, viewers: number): void {
    const count = { type, key, viewers };
    const pair = nameOf(count);
    const isWritten = viewers === 1 && this.#counted.get(pair)?.isWritten === true;
    if (viewers > 0) this.#counts.set(pair, count);
    else {
      this.#counts.delete(pair);
      this.#refused.delete(pair);
    }
    if (isWritten) return;
    // From here on the count is written by flush, and needs no confirmation.
    this.#counted.delete(pair);
    this.#changed.set(pair, count);
  }

  /** Writes all changed counts. Later changes, and counts that fail, are left to the next flush. */
  async flush(now = performance.now()): Promise<void> {
    for (const [pair, at] of this.#refused) {
      if (at > now) break;
      const count = this.#counts.get(pair);
      if (count && !this.#changed.has(pair)) this.#changed.set(pair, count);
    }
    for (const [pair, { count, confirmAt }] of this.#counted) {
      if (confirmAt > now) break;
      this.#counted.delete(pair);
      if (!this.#changed.has(pair)) this.#changed.set(pair, this.#counts.get(pair) ?? { ...count, viewers: 0 });
    }
    let left = this.#take();
    while (left.length > 0) {
      try {
        await this.#write(left.slice(0, maxBatch));
        left = left.slice(maxBatch);
      } catch (error) {
        // Counts that changed in the meantime are newer.
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

  /** Renews the lease. If it is lost, registers again and writes all counts. */
  async renew(): Promise<void> {
    const renew = 'select pgfresh_engine.heartbeat_process($1::bigint) as answer';
    const { db, events } = this.#options;
    const [row] = await db.query<{ answer: { alive: boolean; stop?: boolean } }>(renew, [this.#node]);
    const { alive, stop } = row!.answer;
    if (stop) events.emit({ type: 'process.outdated' });
    if (alive) return;
    await this.#register();
    this.#changed = new Map([...this.#changed, ...this.#counts]);
  }

  protected async onStart(): Promise<void> {
    await this.#register();
    const { events } = this.#options;
    const loop = {
      signal: this.stopSignal,
      failed: (error: unknown) => events.emit({ type: 'demand.failed', problem: problemOf(error) }),
    };
    this.#loops = Promise.all([
      every(flushEveryMs, () => this.flush(), loop),
      every(renewEveryMs, () => this.renew(), loop),
    ]);
  }

  protected async onStop(): Promise<void> {
    await this.#loops;
    if (this.#node !== undefined)
      await this.#options.db.query('select pgfresh_engine.retire_process($1::bigint)', [this.#node]);
  }

  async #register(): Promise<void> {
    const { db, nodeName, holder } = this.#options;
    const [row] = await db.query<{ id: number }>(
      `select pgfresh_engine.register_process('gateway', $1::text, $2::text, $3::int, $4::uuid) as id`,
      [nodeName, version, protocol.own, holder],
    );
    this.#node = row!.id;
    // Counts under the old number are gone.
    this.#counted.clear();
  }

  async #write(counts: readonly Count[]): Promise<void> {
    const write = 'select pgfresh_engine.set_node_demand($1::bigint, $2::int[], $3::text[], $4::int[]) as written';
    const [row] = await this.#options.db.query<{ written: WriteResult }>(write, [
      this.#node,
      counts.map(({ type }) => type),
      counts.map(({ key }) => key),
      counts.map(({ viewers }) => viewers),
    ]);
    const refused = new Map(row!.written.refused.map(({ place, problem }) => [place - 1, problem]));
    for (const [place, count] of counts.entries()) this.#note(nameOf(count), refused.get(place));
  }

  #note(pair: string, problem: string | undefined): void {
    const isKnown = this.#refused.delete(pair);
    if (problem === undefined) return;
    this.#refused.set(pair, performance.now() + retryRefusedMs);
    if (!isKnown) this.#options.events.emit({ type: 'demand.failed', problem });
  }
}

function nameOf({ type, key }: Count): string {
  return `${type} ${key}`;
}

function codeOf(error: unknown): string {
  return asPgfreshError(error).code;
}
