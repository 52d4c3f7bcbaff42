import type { LimitedQueryable, StatementLimits } from '../database/index.ts';
import type { Events } from '../events/index.ts';
import { Service, stopAll } from '../lifecycle/index.ts';
import { PostgresBus } from './buses/postgres.ts';
import { Feed } from './outbox-feed.ts';
import { Mirror } from './read-cache.ts';
import { readPairs } from './read-pairs.ts';
import { Pump } from './outbox-pump.ts';
import { noteTimeout } from './timeout-report.ts';

export interface ChangesOptions {
  readonly db: LimitedQueryable;
  /** Where users' tables are read; the same if it is left out. */
  readonly readers?: LimitedQueryable | undefined;
  /** Where it is read as users; the same if it is left out. */
  readonly guests?: LimitedQueryable | undefined;
  /** What a statement about one data type may take. */
  readonly typeLimits?: StatementLimits | undefined;
  /** What policies may take to decide. */
  readonly policyTimeoutMs?: number | undefined;
  /** Where LISTEN works; undefined behind a transaction pooler. */
  readonly listenUrl: string | undefined;
  readonly events: Events;
}

/** Under a bus, the marks are read in case that it fails; without one, they are all that there is. */
const pollMs = { underBus: 1_000, alone: 100 } as const;

/** Everything by which a process knows the newest state of the pairs that are watched through it. */
export class Changes extends Service {
  readonly name = 'changes';
  readonly mirror: Mirror;
  readonly #parts: readonly Service[];

  constructor({ db, readers = db, guests = db, typeLimits, policyTimeoutMs, listenUrl, events }: ChangesOptions) {
    super();
    const bus = new PostgresBus({ db, listenUrl, events });
    const feed = new Feed({
      db,
      bus,
      events,
      pollMs: listenUrl === undefined ? pollMs.alone : pollMs.underBus,
      onWatching: () => pump.wake(),
    });
    const pump: Pump = new Pump({ db, bus, events, isWanted: () => feed.isWatching });
    this.mirror = new Mirror({
      feed,
      read: readPairs({ readers, guests, limits: typeLimits, policyTimeoutMs }),
      events,
      onTimeout: (type, problem) => void noteTimeout(db, { type, where: 'read', problem }),
    });
    this.#parts = [bus, feed, pump, this.mirror];
  }

  protected async onStart(): Promise<void> {
    for (const part of this.#parts) await part.start();
  }

  protected async onStop(): Promise<void> {
    await stopAll(this.#parts);
  }
}
