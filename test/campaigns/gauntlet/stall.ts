import { setTimeout as wait } from 'node:timers/promises';
import type pg from 'pg';

const everyMs = 500;
const keptMs = 30_000;
/** What a viewer waits for is a chain of about so many statements, in several processes. */
const chain = 10;

/**
 * How slow the machine is, whatever pgfresh does: how late timers come, and how long a chain of statements takes that
 * read nothing and wait for no lock. On a quiet machine it is some milliseconds.
 */
export class Stall {
  readonly #db: pg.Pool;
  readonly #seen: { readonly at: number; readonly ms: number }[] = [];
  #worst = 0;

  constructor(db: pg.Pool) {
    this.#db = db;
  }

  /** Measures once; to be called again and again. */
  async measure(): Promise<void> {
    const began = performance.now();
    await wait(everyMs);
    const late = Math.max(0, performance.now() - began - everyMs);
    const asked = performance.now();
    const client = await this.#db.connect();
    try {
      for (let n = 0; n < chain; n++) await client.query('select');
    } finally {
      client.release();
    }
    const ms = late + performance.now() - asked;
    const now = Date.now();
    this.#seen.push({ at: now, ms });
    while (this.#seen[0]!.at < now - keptMs) this.#seen.shift();
    this.#worst = Math.max(this.#worst, ms);
  }

  /** By how many milliseconds the machine was slow in the last half minute. */
  get recent(): number {
    return Math.max(0, ...this.#seen.map(({ ms }) => ms));
  }

  /** The same, of the whole run. */
  get worst(): number {
    return this.#worst;
  }
}
