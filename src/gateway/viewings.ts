import type { NodeDemand } from '../demand/index.ts';
import { PgfreshError, problemOf } from '../errors/index.ts';
import type { Events } from '../events/index.ts';
import type { Verdict } from './admission.ts';
import type { Mirror } from './mirror.ts';
import type { Questions } from './questions.ts';
import type { Pair } from './settings.ts';
import { readVersion, Viewing, type NamedPair, type Subscription, type Viewer } from './viewing.ts';

export interface ViewingsOptions {
  readonly mirror: Pick<Mirror, 'watch'>;
  readonly questions: Pick<Questions, 'admit' | 'check' | 'explain' | 'viewers'>;
  readonly demand: Pick<NodeDemand, 'set'>;
  readonly events: Events;
}

type Step = 'admit' | 'check' | 'explain' | 'count';

interface Open {
  readonly viewing: Viewing;
  unwatch: () => void;
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
const mostCounted = 1_000;
const mostReadmitted = 200;

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
  join(pair: NamedPair, user: string, viewer: Viewer, has?: string): Subscription {
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
  glance(pair: NamedPair, user: string): Viewing {
    const viewing = this.#enter(pair, user);
    this.#glances.add({ viewing, user, until: performance.now() + glanceMs });
    return viewing;
  }

  /** Asks what has become of pairs that should be fresh, and lets go of what nobody has looked at for a while. */
  tidy(now = performance.now()): void {
    for (const glance of this.#glances) {
      if (glance.until > now) break;
      this.#glances.delete(glance);
      this.#left(glance.viewing, glance.user);
    }
    for (const { viewing } of this.#open.values()) viewing.lookAgain(now);
    for (const open of this.#empty) {
      if (open.emptySince > now - lingerMs && this.#empty.size <= mostLingering) break;
      this.#close(open);
    }
  }

  /** Asks again whether there are such pairs: keys and whole types come and go, and may become private. */
  async readmit(): Promise<void> {
    const readmit = async (open: Open): Promise<void> => {
      const { dataType, key } = open.viewing;
      const verdict = await this.#unlessFailed('admit', this.#options.questions.admit({ dataType, key }));
      const refusal = verdict && refusalOf(verdict, dataType);
      if (refusal) this.#lose(open, refusal);
    };
    const all = [...this.#open.values()];
    // Some at a time, so that who wants a pair meanwhile does not wait for all of them.
    for (let first = 0; first < all.length; first += mostReadmitted)
      await Promise.all(all.slice(first, first + mostReadmitted).map(readmit));
  }

  /** Tells those who want to know how many look. */
  async count(): Promise<void> {
    const counted = [...this.#open.values()].flatMap(({ viewing }) => (viewing.isCounted ? [viewing] : []));
    for (let first = 0; first < counted.length; first += mostCounted) {
      const some = counted.slice(first, first + mostCounted);
      const viewers = await this.#unlessFailed('count', this.#options.questions.viewers(some));
      for (const [place, count] of viewers?.entries() ?? []) some[place]!.count(count);
    }
  }

  close(): void {
    for (const open of this.#open.values()) this.#close(open);
  }

  #enter(pair: NamedPair, user: string): Viewing {
    const name = nameOf(pair);
    let open = this.#open.get(name);
    if (!open) {
      const { questions } = this.#options;
      const viewing = new Viewing(pair, (asked) => this.#unlessFailed('explain', questions.explain(asked)));
      open = { viewing, unwatch: () => {}, emptySince: Infinity };
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
    // If that fails, the planner finds it by the count of its viewers all the same.
    await this.#unlessFailed('check', this.#options.questions.check(viewing));
    if (this.#open.get(nameOf(viewing)) !== open) return;
    open.unwatch = this.#options.mirror.watch(viewing, {
      onState: (state) => viewing.hear(state),
      onGone: () => this.#lose(open, gone(viewing.dataType)),
    });
  }

  async #unlessFailed<Answer>(step: Step, asking: Promise<Answer>): Promise<Answer | undefined> {
    try {
      return await asking;
    } catch (error) {
      this.#options.events.emit({ type: 'gateway.failed', step, problem: problemOf(error) });
      return undefined;
    }
  }

  #lose(open: Open, why: PgfreshError): void {
    const { viewing } = open;
    if (this.#open.get(nameOf(viewing)) !== open) return;
    this.#options.demand.set(viewing.dataType, viewing.key, 0);
    this.#close(open);
    for (const subscription of viewing.subscriptions) subscription.viewer.lose(subscription, why);
  }

  #left(viewing: Viewing, user: string): void {
    this.#counted(viewing, () => viewing.leave(user));
    const open = this.#open.get(nameOf(viewing));
    if (viewing.users > 0 || open?.viewing !== viewing) return;
    open.emptySince = performance.now();
    this.#empty.add(open);
  }

  #counted(viewing: Viewing, change: () => void): void {
    const before = viewing.users;
    change();
    // One that was lost counts no more; there may be another one by its name.
    if (viewing.users !== before && this.find(viewing) === viewing)
      this.#options.demand.set(viewing.dataType, viewing.key, viewing.users);
  }

  #close(open: Open): void {
    this.#empty.delete(open);
    this.#open.delete(nameOf(open.viewing));
    open.unwatch();
  }
}

function nameOf({ dataType, key }: Pair): string {
  return `${dataType} ${key}`;
}

/** Why a pair can not be had, if it can not. */
export function refusalOf(verdict: Verdict, dataType: string): PgfreshError | undefined {
  if ('refused' in verdict) {
    const { code, problem } = verdict.refused;
    return new PgfreshError(code as 'PGF_KEY_UNKNOWN', { problem });
  }
  return verdict.admitted.visibility === 'rls' ? new PgfreshError('PGF_LIVE_PRIVATE', { type: dataType }) : undefined;
}

function gone(dataType: string): PgfreshError {
  return new PgfreshError('PGF_TYPE_UNKNOWN', { problem: `there is no data type '${dataType}' any more` });
}
