import type { GatewayPair } from '../../config/index.ts';
import type { PgfreshError } from '../../errors/index.ts';
import type { Pair as NumberedPair, PairState, Reader } from '../../changes/index.ts';
import type { Explained } from './pair-queries.ts';
import type { Audience } from './viewer-count.ts';
import type { StateHead } from '../protocol.ts';
import { stateSentences } from '../sentences.ts';
import {
  asViewed,
  held,
  isPast,
  isPlainlyFresh,
  saysTheSame,
  show,
  type Explanation,
  type Showing,
} from './pair-status.ts';

/** A pair with its names in the configuration and in the database. */
export interface NamedPair extends GatewayPair, NumberedPair {
  /** As whom it is read, if not all see the same of it. */
  readonly reader?: Reader | undefined;
  /** Whether it was queued a moment ago, if it had to be. */
  readonly isPlanned?: boolean;
}

/** Somebody's wish to see a pair. */
export interface Subscription {
  readonly viewing: Viewing;
  readonly viewer: Viewer;
  /** The version that he has, or an empty text. */
  version: string;
  /** The digest of the rows that he has. */
  digest: string | undefined;
  /** Whether he has been sent nothing yet. */
  isNew: boolean;
  /** How many look, as he was told. */
  viewers?: number;
}

export interface Viewer {
  /** There is something newer than he has. */
  offer(subscription: Subscription): void;
  /** There is no such pair any more. */
  lose(subscription: Subscription, why: PgfreshError): void;
  /** Its data type does not answer, and nothing was read of it yet. */
  tellHeld(subscription: Subscription): void;
  /** Whether he wants to know how many look. */
  readonly counts: boolean;
  tellViewers(subscription: Subscription, viewers: number): void;
}

// Re-explain unhealthy pairs, with backoff; those of a type that does not answer without, because it costs nothing. Most
// jobs that are queued for a first viewer have ended before somebody has explained why they wait.
const askAgainMs = { queued: 250, first: 2_000, last: 30_000, held: 1_000 } as const;

/** Explains a pair; undefined if that has failed. */
export type Explain = (pair: GatewayPair) => Promise<Explained | 'held' | undefined>;

/** A pair that somebody looks at through this process, with all who see the same of it. */
export class Viewing implements NamedPair {
  readonly dataType: string;
  readonly type: number;
  readonly key: string;
  readonly reader: Reader | undefined;
  /** All who look at the pair, also those who see something else of it. */
  readonly audience: Audience;
  readonly subscriptions = new Set<Subscription>();
  readonly #messages = new Map<string, Buffer>();
  readonly #explain: Explain;
  #state: PairState | undefined;
  #heardAt = 0;
  #shown: Showing | undefined;
  #turn = 0;
  #askAt = Infinity;
  #askedMs: number = askAgainMs.first;
  #isAsking = false;
  #isHeld = false;
  #looking = 0;

  constructor({ dataType, type, key, reader }: NamedPair, audience: Audience, explain: Explain) {
    this.dataType = dataType;
    this.type = type;
    this.key = key;
    this.reader = reader;
    this.audience = audience;
    this.#explain = explain;
  }

  /** What is shown now; nothing before it was read. */
  get shown(): Showing | undefined {
    return this.#shown;
  }

  /** How old the newest row is, by the database's clock. */
  get ageMs(): number {
    const { fetchedAt = null, asOf } = this.#state ?? {};
    return fetchedAt === null || !asOf ? Infinity : asOf.getTime() - fetchedAt.getTime() + this.#sinceMs;
  }

  get isEmpty(): boolean {
    return this.#looking === 0;
  }

  /** What the rows are known by; equal ones are equal for all who see the same. */
  get tag(): string {
    return [this.#shown!.digest, ...(this.reader ? [this.reader.tag] : [])].join('-');
  }

  enter(user: string): void {
    this.#looking += 1;
    this.audience.enter(user);
  }

  leave(user: string): void {
    this.#looking -= 1;
    this.audience.leave(user);
  }

  /** Whether nothing of it can be shown, because its data type does not answer. */
  get isWaiting(): boolean {
    return this.#isHeld && !this.#state;
  }

  /** Its data type does not answer; the next state ends that. */
  hold(): void {
    this.#isHeld = true;
    if (this.#state) this.#look();
    else for (const subscription of this.subscriptions) subscription.viewer.tellHeld(subscription);
  }

  /** Takes a newer state. */
  hear(state: PairState): void {
    this.#isHeld = false;
    this.#state = state;
    this.#heardAt = performance.now();
    this.#turn = 0;
    this.#askedMs = askAgainMs.first;
    this.#look();
  }

  /** Asks what is the matter, if it is time to: what was fresh may have become too old, and nobody has refreshed it. */
  lookAgain(now: number): void {
    if (now >= this.#askAt && !this.isEmpty) this.#look();
  }

  /** Whether anybody wants to know how many look. */
  get isCounted(): boolean {
    for (const { viewer } of this.subscriptions) if (viewer.counts) return true;
    return false;
  }

  /** So many look, everywhere. */
  count(viewers: number): void {
    for (const subscription of this.subscriptions) {
      if (subscription.viewer.counts && subscription.viewers !== viewers)
        subscription.viewer.tellViewers(subscription, viewers);
    }
  }

  /** What is sent about it, written once for all. Rows that the client has already are left out. */
  message(type: StateHead['type'], withRows: boolean): Buffer {
    // Its viewers know when it goes stale; who comes between that and the next look does not.
    const shown = this.#shown!;
    if (shown.state === 'fresh' && isPast({ ...shown, asOf: this.#state!.asOf }, this.#sinceMs))
      return this.#write(type, withRows, { ...shown, state: 'stale', words: shown.words || stateSentences.stale });
    const name = `${type} ${withRows}`;
    let message = this.#messages.get(name);
    if (!message) this.#messages.set(name, (message = this.#write(type, withRows, shown)));
    return message;
  }

  #look(): void {
    const state = this.#state!;
    const isFresh = isPlainlyFresh(state, this.#sinceMs);
    this.#askAt = this.#staleAt(state);
    if (this.#isHeld) this.#show(held);
    // Why a pair waits may tell of rows that this reader does not see.
    else if (this.reader || isFresh) this.#show();
    else if (!this.#shown && isUnderWay(state)) {
      this.#askAt = performance.now() + askAgainMs.queued;
      this.#show();
    } else if (!this.#isAsking) void this.#ask();
  }

  async #ask(): Promise<void> {
    const asked = this.#state;
    this.#isAsking = true;
    const explained = await this.#explain(this);
    this.#isAsking = false;
    if (this.#state !== asked || this.#isHeld) return this.#look();
    const isQuarantined = explained === 'held' || explained?.reason === 'quarantined';
    if (isQuarantined) this.#askedMs = askAgainMs.held;
    this.#askAt = Math.min(performance.now() + this.#askedMs, this.#staleAt(asked!));
    this.#askedMs = Math.min(askAgainMs.last, this.#askedMs * 2);
    if (explained === 'held') this.#show(held);
    else this.#show(asViewed(explained ?? { ...this.#state!, until: null }));
  }

  // A moment later, by when a planner will have queued it.
  #staleAt({ state, staleAt, asOf }: PairState): number {
    const at = this.#heardAt + (staleAt?.getTime() ?? 0) - asOf.getTime() + askAgainMs.first;
    return (state === 'fresh' || state === 'empty') && at > performance.now() ? at : Infinity;
  }

  get #sinceMs(): number {
    return performance.now() - this.#heardAt;
  }

  #show(explained?: Explanation): void {
    const showing = show(this.#state!, this.#turn, this.#sinceMs, explained);
    if (this.#shown && saysTheSame(this.#shown, showing)) return;
    this.#turn += 1;
    this.#shown = showing;
    this.#messages.clear();
    for (const subscription of this.subscriptions) subscription.viewer.offer(subscription);
  }

  #write(type: StateHead['type'], withRows: boolean, shown: Showing): Buffer {
    const { version, rows, status, state, activity, reason, words, until, error, fetchedAt, staleAt, sourceAt } = shown;
    const head: StateHead = {
      type,
      pair: [this.dataType, this.key],
      version: `${version}-${this.tag}`,
      status,
      state,
      activity,
      reason,
      words,
      until,
      error,
      fetched_at: fetchedAt,
      stale_at: staleAt,
      source_at: sourceAt,
    };
    const text = JSON.stringify(head);
    // The rows are JSON already, and may be large.
    return Buffer.from(withRows ? `${text.slice(0, -1)},"rows":${rows}}` : text);
  }
}

/** Whether a job is open, which nothing is known to hold up. */
function isUnderWay({ activity, reason }: PairState): boolean {
  return activity === 'refreshing' || reason === 'queued';
}

/** The parts of a version as a client has it; nothing if it is none of ours. */
export function readVersion(
  text: string | undefined,
): { readonly version: string; readonly digest: string; readonly reader: string | undefined } | undefined {
  const [, version, digest, reader] = /^([^-]+)-([^-]+)(?:-([^-]+))?$/.exec(text ?? '') ?? [];
  return version === undefined || digest === undefined ? undefined : { version, digest, reader };
}
