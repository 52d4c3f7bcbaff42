import type { PgfreshError } from '../errors/index.ts';
import type { Pair as NumberedPair, PairState } from './pair.ts';
import type { Explained } from './questions.ts';
import type { Pair } from './settings.ts';
import { isPlainlyFresh, plainlyFresh, saysTheSame, show, type Showing } from './showing.ts';

/** A pair with its names in the configuration and in the database. */
export type NamedPair = Pair & NumberedPair;

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
  /** Whether he wants to know how many look. */
  readonly counts: boolean;
  tellViewers(subscription: Subscription, viewers: number): void;
}

// While something is the matter, it is asked again what.
const askAgainMs = { first: 2_000, last: 30_000 } as const;

/** A pair that somebody looks at through this process, with all who do. */
export class Viewing implements NamedPair {
  readonly dataType: string;
  readonly type: number;
  readonly key: string;
  readonly subscriptions = new Set<Subscription>();
  readonly #users = new Map<string, number>();
  readonly #messages = new Map<string, Buffer>();
  readonly #explain: (pair: Pair) => Promise<Explained | undefined>;
  #state: PairState | undefined;
  #heardAt = 0;
  #shown: Showing | undefined;
  #turn = 0;
  #askAt = Infinity;
  #askedMs: number = askAgainMs.first;
  #isAsking = false;
  /** When it was last asked for although it may have been fresh. */
  refreshedAt = -Infinity;

  constructor({ dataType, type, key }: NamedPair, explain: (pair: Pair) => Promise<Explained | undefined>) {
    this.dataType = dataType;
    this.type = type;
    this.key = key;
    this.#explain = explain;
  }

  /** What is shown now; nothing before it was read. */
  get shown(): Showing | undefined {
    return this.#shown;
  }

  /** How old the newest row is, by the database's clock. */
  get ageMs(): number {
    const { fetchedAt = null, asOf } = this.#state ?? {};
    return fetchedAt === null || !asOf
      ? Infinity
      : asOf.getTime() - fetchedAt.getTime() + performance.now() - this.#heardAt;
  }

  /** How many distinct users look. */
  get users(): number {
    return this.#users.size;
  }

  enter(user: string): void {
    this.#users.set(user, (this.#users.get(user) ?? 0) + 1);
  }

  leave(user: string): void {
    const left = this.#users.get(user)! - 1;
    if (left > 0) this.#users.set(user, left);
    else this.#users.delete(user);
  }

  /** Takes a newer state. */
  hear(state: PairState): void {
    this.#state = state;
    this.#heardAt = performance.now();
    this.#turn = 0;
    this.#askedMs = askAgainMs.first;
    this.#look();
  }

  /** Asks what is the matter, if it is time to: what was fresh may have become too old, and nobody has refreshed it. */
  lookAgain(now: number): void {
    if (now >= this.#askAt && this.users > 0) this.#look();
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
  message(type: 'snapshot' | 'change', withRows: boolean): Buffer {
    const name = `${type} ${withRows}`;
    let message = this.#messages.get(name);
    if (!message) this.#messages.set(name, (message = this.#write(type, withRows)));
    return message;
  }

  #look(): void {
    const state = this.#state!;
    if (isPlainlyFresh(state, performance.now() - this.#heardAt)) {
      this.#askAt = this.#heardAt + (state.dueAt!.getTime() - state.asOf.getTime()) + askAgainMs.first;
      this.#show(plainlyFresh);
    } else if (!this.#isAsking) void this.#ask();
  }

  async #ask(): Promise<void> {
    const asked = this.#state;
    this.#isAsking = true;
    const explained = await this.#explain(this);
    this.#isAsking = false;
    if (this.#state !== asked) return this.#look();
    this.#askAt = performance.now() + this.#askedMs;
    this.#askedMs = Math.min(askAgainMs.last, this.#askedMs * 2);
    this.#show(explained);
  }

  #show(explained: Explained | undefined): void {
    const showing = show(this.#state!, this.#turn, explained);
    if (this.#shown && saysTheSame(this.#shown, showing)) return;
    this.#turn += 1;
    this.#shown = showing;
    this.#messages.clear();
    for (const subscription of this.subscriptions) subscription.viewer.offer(subscription);
  }

  #write(type: string, withRows: boolean): Buffer {
    const { version, digest, rows, fetchedAt, dueAt, state, reason, words } = this.#shown!;
    const head = JSON.stringify({
      type,
      pair: [this.dataType, this.key],
      version: `${version}-${digest}`,
      state,
      reason,
      words,
      fetched_at: fetchedAt,
      due_at: dueAt,
    });
    // The rows are JSON already, and may be large.
    return Buffer.from(withRows ? `${head.slice(0, -1)},"rows":${rows}}` : head);
  }
}

/** The parts of a version as a client has it; nothing if it is none of ours. */
export function readVersion(text: string | undefined): { version: string; digest: string } | undefined {
  const match = /^([^-]+)-([^-]+)$/.exec(text ?? '');
  return match ? { version: match[1]!, digest: match[2]! } : undefined;
}
