import { hash, normal } from './random.ts';

export const stepMs = 1_000;

const levels = 17;
const blockSteps = 2 ** levels;
const epoch = Date.UTC(2025, 0, 1) / stepMs;

/**
 * A random walk in steps of a second that can be asked for any step at once: whole blocks of a day and a half are added
 * up, and inside a block the way between its ends is halved again and again, as in a Brownian bridge.
 */
export class Walk {
  readonly #seed: number;
  readonly #deviation: number;
  readonly #ends = [0];

  /** The deviation is that of one step. */
  constructor(seed: number, deviation: number) {
    this.#seed = seed;
    this.#deviation = deviation;
  }

  at(step: number): number {
    const place = Math.max(0, step - epoch);
    const block = Math.floor(place / blockSteps);
    let left = this.#end(block);
    let right = this.#end(block + 1);
    let from = 0;
    for (let size = blockSteps; size > 1; size /= 2) {
      const offset = (place % blockSteps) - from;
      if (offset === 0) return left;
      const bump = normal(hash(this.#seed, block, from), size) * this.#deviation * (Math.sqrt(size) / 2);
      const middle = (left + right) / 2 + bump;
      if (offset < size / 2) right = middle;
      else {
        left = middle;
        from += size / 2;
      }
    }
    return left;
  }

  #end(block: number): number {
    for (let next = this.#ends.length; next <= block; next++) {
      const jump = normal(this.#seed, 'block', next) * this.#deviation * Math.sqrt(blockSteps);
      this.#ends.push(this.#ends[next - 1]! + jump);
    }
    return this.#ends[block]!;
  }
}
