import type { Queryable } from '../database/index.ts';
import { pause } from '../lifecycle/index.ts';
import { backfillProgress, type Backfill, type BackfillProgress } from '../schedule/index.ts';

const pollMs = 500;

/** Prints the progress of a backfill, until it has ended or the wait is interrupted. */
export class BackfillWatch {
  readonly #db: Queryable;
  readonly #backfill: Backfill;
  readonly #print: (line: string) => void;
  #printed = '';

  constructor(db: Queryable, backfill: Backfill, print: (line: string) => void) {
    this.#db = db;
    this.#backfill = backfill;
    this.#print = print;
  }

  async end(signal: AbortSignal): Promise<BackfillProgress> {
    this.#print(
      `Queued ${this.#backfill.queued} of ${this.#backfill.slots} slots. Ctrl-C ends the wait, not the backfill.`,
    );
    for (;;) {
      const { job_name: name, first, last } = this.#backfill;
      const progress = await backfillProgress(this.#db, name, first!, last!);
      this.#progress(progress);
      if (progress.open === 0 || signal.aborted) return progress;
      await pause(pollMs, signal);
    }
  }

  #progress({ total, open, failed }: BackfillProgress): void {
    const line = `${total - open} of ${total} done${failed > 0 ? `, ${failed} failed` : ''}`;
    if (line !== this.#printed) this.#print(line);
    this.#printed = line;
  }
}
