import type { LimitedQueryable, StatementLimits } from '../database/index.ts';
import type { Events } from '../events/index.ts';
import { Service, stopAll } from '../lifecycle/index.ts';
import { PostgresBus } from './buses/postgres.ts';
import { OutboxFeed } from './outbox-feed.ts';
import { OutboxPump } from './outbox-pump.ts';
import { ReadCache } from './read-cache.ts';
import { pairReader } from './read-pairs.ts';
import { reportTimeout } from './timeout-report.ts';

export interface ChangesOptions {
  readonly db: LimitedQueryable;
  /** Pool that reads users' tables; defaults to `db`. */
  readonly dataDb?: LimitedQueryable | undefined;
  /** Pool that reads under row security as a user; defaults to `db`. */
  readonly rlsDb?: LimitedQueryable | undefined;
  /** Limits of a statement about one data type. */
  readonly typeLimits?: StatementLimits | undefined;
  /** Time limit of a read under row security. */
  readonly policyTimeoutMs?: number | undefined;
  /** A connection on which LISTEN works; undefined behind a transaction pooler. */
  readonly listenUrl: string | undefined;
  readonly events: Events;
  /** Identifies this process as the holder of duties. */
  readonly holder?: string | undefined;
}

/** With a bus, polling the outbox is only a fallback. Without one, it is the only way to learn of changes. */
const pollMs = { withBus: 1_000, withoutBus: 100 } as const;

/** Keeps the newest state of every pair that is watched through this process. */
export class Changes extends Service {
  readonly name = 'changes';
  readonly cache: ReadCache;
  readonly #parts: readonly Service[];

  constructor(options: ChangesOptions) {
    super();
    const { db, dataDb = db, rlsDb = db, typeLimits, policyTimeoutMs, listenUrl, events, holder } = options;
    const bus = new PostgresBus({ db, listenUrl, events });
    const feed = new OutboxFeed({
      db,
      bus,
      events,
      pollMs: listenUrl === undefined ? pollMs.withoutBus : pollMs.withBus,
      onWatching: () => pump.wake(),
    });
    const pump: OutboxPump = new OutboxPump({ db, bus, events, isNeeded: () => feed.isWatching, holder });
    this.cache = new ReadCache({
      feed,
      read: pairReader({ dataDb, rlsDb, limits: typeLimits, policyTimeoutMs }),
      events,
      onTimeout: (type, problem) => void reportTimeout(db, { type, where: 'read', problem }),
    });
    this.#parts = [bus, feed, pump, this.cache];
  }

  protected async onStart(): Promise<void> {
    for (const part of this.#parts) await part.start();
  }

  protected async onStop(): Promise<void> {
    await stopAll(this.#parts);
  }
}
