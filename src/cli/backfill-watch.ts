import type { Queryable } from '../database/index.ts';
import { pause } from '../lifecycle/index.ts';
import { backfillProgress, type Backfill, type BackfillProgress } from '../schedule/index.ts';

const pollMs = 500;

/** Tells how a backfill gets on, until it has ended or nobody waits any more. */
export class BackfillWatch {
  readonly #db: Queryable;
  readonly #begun: Backfill;
  readonly #tell: (line: string) => void;
  #told = '';

  constructor(db: Queryable, begun: Backfill, tell: (line: string) => void) {
    this.#db = db;
    this.#begun = begun;
    this.#tell = tell;
  }

  async end(signal: AbortSignal): Promise<BackfillProgress> {
    this.#tell(`Queued ${this.#begun.queued} of ${this.#begun.slots} slots. Ctrl-C ends the wait, not the backfill.`);
    for (;;) {
      const { job_name: name, first, last } = this.#begun;
      const progress = await backfillProgress(this.#db, name, first!, last!);
      this.#progress(progress);
      if (progress.open === 0 || signal.aborted) return progress;
      await pause(pollMs, signal);
    }
  }

  #progress({ total, open, failed }: BackfillProgress): void {
    const line = `${total - open} of ${total} done${failed > 0 ? `, ${failed} failed` : ''}`;
    if (line !== this.#told) this.#tell(line);
    this.#told = line;
  }
}
