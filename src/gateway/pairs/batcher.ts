import { PgfreshError } from '../../errors/index.ts';

interface Pending<Item, Answer> {
  readonly item: Item;
  readonly resolve: (answer: Answer) => void;
  readonly reject: (reason: unknown) => void;
}

/**
 * Collects single queries into batches and runs one batch at a time, so that the database sees few statements, however
 * many connections ask.
 */
export class Batcher<Item, Answer> {
  readonly #run: (items: readonly Item[]) => Promise<readonly Answer[]>;
  readonly #batchSize: number;
  readonly #maxPending: number;
  #pending: Pending<Item, Answer>[] = [];
  #isRunning = false;

  constructor(run: (items: readonly Item[]) => Promise<readonly Answer[]>, batchSize: number, maxPending: number) {
    this.#run = run;
    this.#batchSize = batchSize;
    this.#maxPending = maxPending;
  }

  ask(item: Item): Promise<Answer> {
    if (this.#pending.length >= this.#maxPending) return Promise.reject(new PgfreshError('PGF_LIVE_BUSY', {}));
    return new Promise((resolve, reject) => {
      this.#pending.push({ item, resolve, reject });
      if (this.#isRunning) return;
      this.#isRunning = true;
      // Wait for the end of this tick, so that its other queries join the batch.
      setImmediate(() => void this.#runBatches());
    });
  }

  async #runBatches(): Promise<void> {
    while (this.#pending.length > 0) {
      const batch = this.#pending.splice(0, this.#batchSize);
      try {
        const answers = await this.#run(batch.map(({ item }) => item));
        for (const [index, { resolve }] of batch.entries()) resolve(answers[index]!);
      } catch (error) {
        for (const { reject } of batch) reject(error);
      }
    }
    this.#isRunning = false;
  }
}
