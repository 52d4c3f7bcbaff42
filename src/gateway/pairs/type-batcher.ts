import type { GatewayPair } from '../../config/index.ts';
import { isTimeout, type Queryable } from '../../database/index.ts';
import { PgfreshError } from '../../errors/index.ts';
import { BatchSize } from '../../lifecycle/index.ts';
import type { StatementTopic, TypeStatements } from './type-statements.ts';

interface PendingPair<Answer> {
  readonly pair: GatewayPair;
  readonly resolve: (answer: Answer) => void;
  readonly reject: (reason: unknown) => void;
}

export interface TypeBatcherOptions<Answer> {
  readonly statements: TypeStatements;
  readonly topic: StatementTopic;
  /** Queries pairs of one data type in one statement. */
  readonly ask: (db: Queryable, pairs: readonly GatewayPair[]) => Promise<readonly Answer[]>;
  readonly batchSize: number;
  /** The answer while the data type is unresponsive; without one, callers wait until it answers. */
  readonly unresponsive?: { readonly answer: Answer };
}

/** Per data type. */
const maxPending = 20_000;

/**
 * Collects single queries into batches per data type and runs one batch per type at a time. The database sees few
 * statements, however many connections ask, and a type that does not answer holds up only its own viewers.
 */
export class TypeBatcher<Answer> {
  readonly #options: TypeBatcherOptions<Answer>;
  readonly #pending = new Map<string, PendingPair<Answer>[]>();
  /** Reduced batch sizes of types that timed out: the batch may have been too large. */
  readonly #batchSizes = new Map<string, BatchSize>();

  constructor(options: TypeBatcherOptions<Answer>) {
    this.#options = options;
  }

  ask(pair: GatewayPair): Promise<Answer> {
    const { promise, resolve, reject } = Promise.withResolvers<Answer>();
    const added = { pair, resolve, reject };
    const pending = this.#pending.get(pair.dataType);
    if (!pending) {
      this.#pending.set(pair.dataType, [added]);
      // Wait for the end of this tick, so that its other queries join the batch.
      setImmediate(() => void this.#runBatches(pair.dataType));
    } else if (pending.length >= maxPending) reject(new PgfreshError('PGF_LIVE_BUSY', {}));
    else pending.push(added);
    return promise;
  }

  async #runBatches(dataType: string): Promise<void> {
    const { statements, topic, unresponsive } = this.#options;
    const pending = this.#pending.get(dataType)!;
    while (pending.length > 0) {
      const waitMs = statements.waitMs(dataType, topic);
      if (statements.isStopped)
        for (const { reject } of pending.splice(0)) reject(new PgfreshError('PGF_LIVE_STOPPING', {}));
      else if (waitMs === 0) await this.#runBatch(dataType, pending);
      else if (unresponsive) for (const { resolve } of pending.splice(0)) resolve(unresponsive.answer);
      else await statements.wait(waitMs);
    }
    this.#pending.delete(dataType);
  }

  async #runBatch(dataType: string, pending: PendingPair<Answer>[]): Promise<void> {
    const { statements, topic, ask, unresponsive } = this.#options;
    const batchSize = this.#batchSizes.get(dataType) ?? new BatchSize(this.#options.batchSize);
    const batch = pending.splice(0, statements.isUnresponsive(dataType, topic) ? 1 : batchSize.size);
    const pairs = batch.map(({ pair }) => pair);
    try {
      const answers = await statements.run(dataType, topic, (db) => ask(db, pairs));
      batchSize.grow();
      if (batchSize.isFull) this.#batchSizes.delete(dataType);
      for (const [index, { resolve }] of batch.entries()) resolve(answers[index]!);
    } catch (error) {
      if (isTimeout(error)) {
        batchSize.shrink(batch.length, 4);
        this.#batchSizes.set(dataType, batchSize);
      }
      if (!isTimeout(error)) for (const { reject } of batch) reject(error);
      else if (unresponsive && statements.isUnresponsive(dataType, topic))
        for (const { resolve } of batch) resolve(unresponsive.answer);
      else pending.unshift(...batch);
    }
  }
}
