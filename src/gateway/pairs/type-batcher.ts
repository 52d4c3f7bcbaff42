import { isTimeout, type Queryable } from '../../database/index.ts';
import { PgfreshError } from '../../errors/index.ts';
import { BatchSize } from '../../lifecycle/index.ts';
import type { WantedPair } from './pair-lookup.ts';
import type { Lanes, Topic } from './type-statements.ts';

interface Waiting<Answer> {
  readonly pair: WantedPair;
  readonly resolve: (answer: Answer) => void;
  readonly reject: (reason: unknown) => void;
}

export interface TypeBatchesOptions<Answer> {
  readonly lanes: Lanes;
  readonly topic: Topic;
  /** Asks about pairs of one data type, in one statement. */
  readonly ask: (db: Queryable, pairs: readonly WantedPair[]) => Promise<readonly Answer[]>;
  readonly size: number;
  /** What is answered about a data type that does not answer; without it, whoever asks waits until it does. */
  readonly held?: { readonly answer: Answer };
}

/** Pairs of one data type that may wait to be asked about. */
const longest = 20_000;

/**
 * Gathers what is asked one by one into sets of one data type, one set of a type under way at a time. So the database sees
 * few statements, however many connections ask, and a type that does not answer keeps nobody waiting but its own viewers.
 */
export class TypeBatches<Answer> {
  readonly #options: TypeBatchesOptions<Answer>;
  readonly #waiting = new Map<string, Waiting<Answer>[]>();
  /** How many pairs of a type to ask about at once, after a timeout: perhaps they were too many. */
  readonly #sizes = new Map<string, BatchSize>();

  constructor(options: TypeBatchesOptions<Answer>) {
    this.#options = options;
  }

  ask(pair: WantedPair): Promise<Answer> {
    const { promise, resolve, reject } = Promise.withResolvers<Answer>();
    const asked = { pair, resolve, reject };
    const waiting = this.#waiting.get(pair.dataType);
    if (!waiting) {
      this.#waiting.set(pair.dataType, [asked]);
      // What else is asked in this turn goes along.
      setImmediate(() => void this.#run(pair.dataType));
    } else if (waiting.length >= longest) reject(new PgfreshError('PGF_LIVE_BUSY', {}));
    else waiting.push(asked);
    return promise;
  }

  async #run(dataType: string): Promise<void> {
    const { lanes, topic, held } = this.#options;
    const waiting = this.#waiting.get(dataType)!;
    while (waiting.length > 0) {
      const pauseMs = lanes.pauseMs(dataType, topic);
      if (lanes.isStopped)
        for (const { reject } of waiting.splice(0)) reject(new PgfreshError('PGF_LIVE_STOPPING', {}));
      else if (pauseMs === 0) await this.#ask(dataType, waiting);
      else if (held) for (const { resolve } of waiting.splice(0)) resolve(held.answer);
      else await lanes.wait(pauseMs);
    }
    this.#waiting.delete(dataType);
  }

  async #ask(dataType: string, waiting: Waiting<Answer>[]): Promise<void> {
    const { lanes, topic, ask, held } = this.#options;
    const batch = this.#sizes.get(dataType) ?? new BatchSize(this.#options.size);
    const set = waiting.splice(0, lanes.isHeld(dataType, topic) ? 1 : batch.size);
    const pairs = set.map(({ pair }) => pair);
    try {
      const answers = await lanes.run(dataType, topic, (db) => ask(db, pairs));
      batch.grow();
      if (batch.isFull) this.#sizes.delete(dataType);
      for (const [place, { resolve }] of set.entries()) resolve(answers[place]!);
    } catch (error) {
      if (isTimeout(error)) {
        batch.shrink(set.length, 4);
        this.#sizes.set(dataType, batch);
      }
      if (!isTimeout(error)) for (const { reject } of set) reject(error);
      else if (held && lanes.isHeld(dataType, topic)) for (const { resolve } of set) resolve(held.answer);
      else waiting.unshift(...set);
    }
  }
}
