import type { NodeDemand } from '../demand/index.ts';
import { problemOf } from '../errors/index.ts';
import type { Events } from '../events/index.ts';
import type { Admission } from './admission.ts';
import type { PairMirror, Watch } from './pair-state.ts';
import type { Pair } from './settings.ts';
import { readVersion, Viewing, type Subscription } from './viewing.ts';

export interface ViewingsOptions {
  readonly mirror: PairMirror;
  readonly admission: Pick<Admission, 'check'>;
  readonly demand: Pick<NodeDemand, 'set'>;
  readonly events: Events;
}

interface Open {
  readonly viewing: Viewing;
  watch: Watch | undefined;
  /** When the last one left. */
  emptySince: number;
}

interface Glance {
  readonly viewing: Viewing;
  readonly user: string;
  readonly until: number;
}

// Shorter than the database keeps a pair warm, so what lingers here is still kept fresh there.
const lingerMs = 10_000;
const mostLingering = 10_000;
const glanceMs = 15_000;

/** All pairs that are looked at through this process. */
export class Viewings {
  readonly #options: ViewingsOptions;
  readonly #open = new Map<string, Open>();
  readonly #empty = new Set<Open>();
  readonly #glances = new Set<Glance>();

  constructor(options: ViewingsOptions) {
    this.#options = options;
  }

  get size(): number {
    return this.#open.size;
  }

  /** The pair, if it is open; its key must be written as its data type writes it. */
  find(pair: Pair): Viewing | undefined {
    return this.#open.get(nameOf(pair))?.viewing;
  }

  /** Somebody looks from now on. He is sent nothing before he is offered it. */
  join(pair: Pair, user: string, viewer: Subscription['viewer'], has?: string): Subscription {
    const viewing = this.#enter(pair, user);
    const had = readVersion(has);
    const subscription = { viewing, viewer, version: had?.version ?? '', digest: had?.digest, isNew: true };
    viewing.subscriptions.add(subscription);
    return subscription;
  }

  leave(subscription: Subscription, user: string): void {
    subscription.viewing.subscriptions.delete(subscription);
    this.#left(subscription.viewing, user);
  }

  /** Somebody looks once, which counts for a moment. */
  glance(pair: Pair, user: string): Viewing {
    const viewing = this.#enter(pair, user);
    this.#glances.add({ viewing, user, until: performance.now() + glanceMs });
    return viewing;
  }

  /** Lets go of what nobody has looked at for a while. */
  tidy(now = performance.now()): void {
    for (const glance of this.#glances) {
      if (glance.until > now) break;
      this.#glances.delete(glance);
      this.#left(glance.viewing, glance.user);
    }
    for (const open of this.#empty) {
      if (open.emptySince > now - lingerMs && this.#empty.size <= mostLingering) break;
      this.#close(open);
    }
  }

  close(): void {
    for (const open of this.#open.values()) this.#close(open);
  }

  #enter(pair: Pair, user: string): Viewing {
    const name = nameOf(pair);
    let open = this.#open.get(name);
    if (!open) {
      open = { viewing: new Viewing(pair), watch: undefined, emptySince: Infinity };
      this.#open.set(name, open);
      void this.#watch(open);
    }
    this.#empty.delete(open);
    this.#counted(open.viewing, () => open.viewing.enter(user));
    return open.viewing;
  }

  // First it is queued, if it has to be: then the state that is read says so.
  async #watch(open: Open): Promise<void> {
    const { viewing } = open;
    const { admission, mirror, events } = this.#options;
    await admission.check(viewing).catch((error: unknown) =>
      // The planner finds it by the count of its viewers all the same.
      events.emit({ type: 'gateway.failed', problem: problemOf(error) }),
    );
    if (this.#open.get(nameOf(viewing)) !== open) return;
    open.watch = mirror.watch(viewing.dataType, viewing.key, (state) => viewing.update(state));
  }

  #left(viewing: Viewing, user: string): void {
    this.#counted(viewing, () => viewing.leave(user));
    if (viewing.users > 0) return;
    const open = this.#open.get(nameOf(viewing))!;
    open.emptySince = performance.now();
    this.#empty.add(open);
  }

  #counted(viewing: Viewing, change: () => void): void {
    const before = viewing.users;
    change();
    if (viewing.users !== before) this.#options.demand.set(viewing.dataType, viewing.key, viewing.users);
  }

  #close(open: Open): void {
    this.#empty.delete(open);
    this.#open.delete(nameOf(open.viewing));
    open.watch?.close();
  }
}

function nameOf({ dataType, key }: Pair): string {
  return `${dataType} ${key}`;
}
