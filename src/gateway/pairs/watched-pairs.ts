import type { GatewayPair } from '../../config/index.ts';
import type { NodeDemand } from '../../demand/index.ts';
import { PgfreshError, problemOf } from '../../errors/index.ts';
import type { Events } from '../../events/index.ts';
import type { Verdict } from './pair-lookup.ts';
import { Audience } from './viewer-count.ts';
import type { Loss, Mirror, PairState, Reader } from '../../changes/index.ts';
import type { Questions } from './pair-queries.ts';
import { readVersion, Viewing, type NamedPair, type Subscription, type Viewer } from './watched-pair.ts';

export interface ViewingsOptions {
  readonly mirror: Pick<Mirror, 'watch' | 'reread'>;
  readonly questions: Pick<Questions, 'admit' | 'advance' | 'plan' | 'explain' | 'isHeld' | 'viewers'>;
  readonly demand: Pick<NodeDemand, 'set'>;
  readonly events: Events;
}

type Step = 'admit' | 'advance' | 'plan' | 'explain' | 'count';

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
  /** Of pairs of which not all see the same. */
  readonly #audiences = new Map<string, Audience>();
  readonly #empty = new Set<Open>();
  readonly #glances = new Set<Glance>();
  /** Types whose pairs are just being asked about again. */
  readonly #readmitting = new Set<string>();

  constructor(options: ViewingsOptions) {
    this.#options = options;
  }

  get size(): number {
    return this.#open.size;
  }

  /** The pair, if it is open; its key must be written as its data type writes it. */
  find(pair: GatewayPair, reader?: Reader): Viewing | undefined {
    return this.#open.get(nameOf(pair, reader))?.viewing;
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

  /** Asks again whether there are such pairs: keys and whole types come and go, and what their readers may see. */
  readmit(): void {
    this.#options.mirror.reread();
    for (const [dataType, ofType] of Map.groupBy(this.#open.values(), ({ viewing }) => viewing.dataType)) {
      // Each type by itself: one that does not answer is left out, and so is one that was not done the last time.
      if (this.#readmitting.has(dataType) || this.#options.questions.isHeld(dataType)) continue;
      this.#readmitting.add(dataType);
      void this.#readmitType(ofType).finally(() => this.#readmitting.delete(dataType));
    }
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
    const name = nameOf(pair, pair.reader);
    let open = this.#open.get(name);
    if (!open) {
      const { questions } = this.#options;
      const viewing = new Viewing(pair, this.#audience(pair), (asked) =>
        this.#unlessFailed('explain', questions.explain(asked)),
      );
      viewing.audience.viewings += 1;
      open = { viewing, unwatch: () => {}, emptySince: Infinity };
      this.#open.set(name, open);
      void this.#watch(open, pair.isPlanned ?? false);
    }
    this.#empty.delete(open);
    this.#counted(open.viewing, () => open.viewing.enter(user));
    return open.viewing;
  }

  #audience(pair: NamedPair): Audience {
    if (!pair.reader) return new Audience();
    const known = this.#audiences.get(nameOf(pair));
    if (known) return known;
    const audience = new Audience();
    this.#audiences.set(nameOf(pair), audience);
    return audience;
  }

  // First it is queued, if it has to be: then the state that is read says so.
  async #watch(open: Open, isPlanned: boolean): Promise<void> {
    const { viewing } = open;
    const { questions, mirror } = this.#options;
    const { reader } = viewing;
    // If that fails, the planner finds it by the count of its viewers all the same.
    if (!isPlanned) await this.#unlessFailed('plan', questions.plan(viewing));
    this.#known(viewing);
    if (reader && reader.name !== reader.tag) await this.#unlessFailed('advance', questions.advance());
    if (!this.#isOpen(open)) return;
    const watcher = {
      onState: (state: PairState) => viewing.hear(state),
      onHeld: () => viewing.hold(),
      onGone: (why: Loss) => this.#lose(open, lossOf(why, viewing)),
    };
    open.unwatch = mirror.watch(viewing, watcher, reader);
  }

  #isOpen(open: Open): boolean {
    return this.#open.get(nameOf(open.viewing, open.viewing.reader)) === open;
  }

  async #readmitType(ofType: readonly Open[]): Promise<void> {
    const byPair = [...Map.groupBy(ofType, ({ viewing }) => viewing.key).values()];
    // Some at a time, so that who wants a pair meanwhile does not wait for all of them.
    for (let first = 0; first < byPair.length; first += mostReadmitted)
      await Promise.all(byPair.slice(first, first + mostReadmitted).map((opens) => this.#readmit(opens)));
  }

  async #readmit(opens: readonly Open[]): Promise<void> {
    const { dataType, key } = opens[0]!.viewing;
    const verdict = await this.#unlessFailed('admit', this.#options.questions.admit({ dataType, key }));
    if (!verdict) return;
    for (const open of opens) {
      const refusal = refusalOf(verdict) ?? changeOf(verdict, open.viewing);
      if (refusal) this.#lose(open, refusal);
    }
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
    if (!this.#isOpen(open)) return;
    this.#close(open);
    if (viewing.audience.viewings === 0) this.#options.demand.set(viewing.type, viewing.key, 0);
    for (const subscription of viewing.subscriptions) subscription.viewer.lose(subscription, why);
  }

  #left(viewing: Viewing, user: string): void {
    this.#counted(viewing, () => viewing.leave(user));
    const open = this.#open.get(nameOf(viewing, viewing.reader));
    if (!viewing.isEmpty || open?.viewing !== viewing) return;
    open.emptySince = performance.now();
    this.#empty.add(open);
  }

  #counted({ audience, type, key }: Viewing, change: () => void): void {
    const before = audience.size;
    change();
    // One that was lost counts no more; there may be another one by its name.
    if (audience.size !== before && audience.viewings > 0 && audience.isKnown)
      this.#options.demand.set(type, key, audience.size);
  }

  // Not earlier: the statement that plans the pair counts its first viewer, and would wait for the one that writes counts.
  #known({ audience, type, key }: Viewing): void {
    if (audience.isKnown || audience.viewings === 0) return;
    audience.isKnown = true;
    if (audience.size > 0) this.#options.demand.set(type, key, audience.size);
  }

  #close(open: Open): void {
    const { audience, reader } = open.viewing;
    this.#empty.delete(open);
    this.#open.delete(nameOf(open.viewing, reader));
    audience.viewings -= 1;
    if (reader && audience.viewings === 0) this.#audiences.delete(nameOf(open.viewing));
    open.unwatch();
  }
}

// Neither a data type nor a key has a line break in it.
function nameOf({ dataType, key }: GatewayPair, reader?: Reader): string {
  return reader ? `${dataType} ${key}\n${reader.name}` : `${dataType} ${key}`;
}

/** Why a pair cannot be had, if it cannot. */
export function refusalOf(verdict: Verdict): PgfreshError | undefined {
  if ('admitted' in verdict) return undefined;
  const { code, problem } = verdict.refused;
  return new PgfreshError(code as 'PGF_KEY_UNKNOWN', { problem });
}

function changeOf(verdict: Verdict, { dataType, type, key, reader }: Viewing): PgfreshError | undefined {
  if (!('admitted' in verdict)) return undefined;
  const { admitted } = verdict;
  const isAnother = admitted.type !== type;
  if (!isAnother && (admitted.visibility === 'rls') === (reader !== undefined)) return undefined;
  const problem = isAnother
    ? 'its data type was removed and added again'
    : 'it has just been decided anew whose rows these are';
  return new PgfreshError('PGF_LIVE_UNDECIDED', { pair: `${dataType} ${key}`, problem });
}

function lossOf(why: Loss, { dataType, key }: GatewayPair): PgfreshError {
  if (why === 'gone')
    return new PgfreshError('PGF_TYPE_UNKNOWN', { problem: `there is no data type '${dataType}' any more` });
  if (why !== 'undecided') return why;
  const problem = 'its row security has failed, or taken too long';
  return new PgfreshError('PGF_LIVE_UNDECIDED', { pair: `${dataType} ${key}`, problem });
}
