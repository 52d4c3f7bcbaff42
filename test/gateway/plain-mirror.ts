import { createHash } from 'node:crypto';
import { setTimeout as wait } from 'node:timers/promises';
import type { Queryable } from '../../src/database/index.ts';
import { Service } from '../../src/lifecycle/index.ts';
import { explainPair } from '../../src/planner/index.ts';

export class PlainMirror extends Service {
  readonly name = 'mirror';
  readonly #db: Queryable;
  readonly #watches = new Set<{ dataType: string; key: string; onState: (s: any) => void; state: any }>();
  #loop: Promise<void> | undefined;
  constructor(db: Queryable) {
    super();
    this.#db = db;
  }
  watch(dataType: string, key: string, onState: (s: any) => void) {
    const w = { dataType, key, onState, state: undefined, close: () => void this.#watches.delete(w) };
    this.#watches.add(w);
    return w;
  }
  protected async onStart() {
    this.#loop = this.#run();
  }
  protected async onStop() {
    await this.#loop;
  }
  async #run() {
    while (!this.stopSignal.aborted) {
      for (const w of this.#watches) {
        try {
          const [row] = await this.#db.query<any>(
            `select coalesce(json_agg(q order by key), '[]')::text as rows, max(fetched_at) as at, pg_snapshot_xmax(pg_current_snapshot())::text as v from ${w.dataType} q where key = $1::text`,
            [w.key],
          );
          const e = await explainPair(this.#db, w.dataType, w.key);
          const digest = createHash('sha256').update(row.rows).digest('base64url').slice(0, 16).replaceAll('-', '_');
          const state = {
            version: `1.${row.v.padStart(16, '0')}`,
            digest,
            rows: row.rows,
            fetchedAt: row.at?.toISOString() ?? null,
            dueAt: e.due_at,
            state: e.job ? 'refreshing' : e.state,
            reason: e.reason,
            words: e.words,
          };
          if (w.state === undefined || w.state.version < state.version) {
            w.state = state as any;
            w.onState(state);
          }
        } catch {}
      }
      await wait(20, undefined, { signal: this.stopSignal }).catch(() => {});
    }
  }
}
