import type { PairState } from './pair-state.ts';
import type { Pair } from './settings.ts';

/** Somebody's wish to see a pair. */
export interface Subscription {
  readonly viewing: Viewing;
  /** Told that there is a newer state than he has. */
  readonly viewer: { offer(subscription: Subscription): void };
  /** The version that he has, or an empty text. */
  version: string;
  /** The digest of the rows that he has. */
  digest: string | undefined;
  /** Whether he has been sent nothing yet. */
  isNew: boolean;
}

/** A pair that somebody looks at through this process, with all who do. */
export class Viewing implements Pair {
  readonly dataType: string;
  readonly key: string;
  readonly subscriptions = new Set<Subscription>();
  readonly #users = new Map<string, number>();
  readonly #messages = new Map<string, Buffer>();
  #state: PairState | undefined;
  /** When it was last asked for although it may have been fresh. */
  refreshedAt = -Infinity;

  constructor({ dataType, key }: Pair) {
    this.dataType = dataType;
    this.key = key;
  }

  get state(): PairState | undefined {
    return this.#state;
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

  /** Takes a newer state, and tells all if it says anything new. */
  update(state: PairState): void {
    const before = this.#state;
    if (before && state.version <= before.version) return;
    this.#state = state;
    this.#messages.clear();
    if (before && saysTheSame(before, state)) return;
    for (const subscription of this.subscriptions) subscription.viewer.offer(subscription);
  }

  /** What is sent about the state, written once for all. Rows that the client has already are left out. */
  message(type: 'snapshot' | 'change', withRows: boolean): Buffer {
    const name = `${type} ${withRows}`;
    let message = this.#messages.get(name);
    if (!message) this.#messages.set(name, (message = this.#write(type, withRows)));
    return message;
  }

  #write(type: string, withRows: boolean): Buffer {
    const { version, digest, rows, fetchedAt, dueAt, state, reason, words } = this.#state!;
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

// Not the words: they tell how long something has been going on.
function saysTheSame(one: PairState, other: PairState): boolean {
  const names = ['digest', 'state', 'reason', 'fetchedAt', 'dueAt'] as const;
  return names.every((name) => one[name] === other[name]);
}

/** The parts of a version as a client has it; nothing if it is none of ours. */
export function readVersion(text: string | undefined): { version: string; digest: string } | undefined {
  const match = /^([^-]+)-([^-]+)$/.exec(text ?? '');
  return match ? { version: match[1]!, digest: match[2]! } : undefined;
}
