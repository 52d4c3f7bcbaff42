import { PgfreshError } from '../../errors/index.ts';

interface Waiting<Item, Answer> {
  readonly item: Item;
  readonly resolve: (answer: Answer) => void;
  readonly reject: (reason: unknown) => void;
}

/**
 * Gathers what is asked one by one into sets, one set under way at a time. So the database sees few statements,
 * however many connections ask, and never more than it can answer.
 */
export class Batch<Item, Answer> {
  readonly #work: (items: readonly Item[]) => Promise<readonly Answer[]>;
  readonly #size: number;
  readonly #longest: number;
  #waiting: Waiting<Item, Answer>[] = [];
  #running = false;

  constructor(work: (items: readonly Item[]) => Promise<readonly Answer[]>, size: number, longest: number) {
    this.#work = work;
    this.#size = size;
    this.#longest = longest;
  }

  ask(item: Item): Promise<Answer> {
    if (this.#waiting.length >= this.#longest) return Promise.reject(new PgfreshError('PGF_LIVE_BUSY', {}));
    return new Promise((resolve, reject) => {
      this.#waiting.push({ item, resolve, reject });
      if (this.#running) return;
      this.#running = true;
      // What else is asked in this turn goes along.
      setImmediate(() => void this.#run());
    });
  }

  async #run(): Promise<void> {
    while (this.#waiting.length > 0) {
      const set = this.#waiting.splice(0, this.#size);
      try {
        const answers = await this.#work(set.map(({ item }) => item));
        for (const [place, { resolve }] of set.entries()) resolve(answers[place]!);
      } catch (error) {
        for (const { reject } of set) reject(error);
      }
    }
    this.#running = false;
  }
}
