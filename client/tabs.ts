import type { ConnectionState } from './connection-state.ts';
import { FreshError } from './fresh-error.ts';
import type { Fresh, Refusal } from './fresh.ts';
import type { Pair, Pairs } from './pairs.ts';
import type { PairName, RefreshResult } from './protocol.ts';

/** How the tab with the connection is. */
interface Report {
  readonly status: ConnectionState;
  readonly error: Refusal | null;
  readonly aheadMs: number;
}

type TabMessage =
  | ({ readonly kind: 'lead'; readonly tab: string } & Report)
  | { readonly kind: 'want'; readonly tab: string; readonly pairs: readonly PairName[]; readonly counts: boolean }
  | { readonly kind: 'state'; readonly pair: PairName; readonly fresh: Fresh; readonly viewers: number | undefined }
  | { readonly kind: 'refresh'; readonly pair: PairName }
  | { readonly kind: 'refreshed'; readonly pair: PairName; readonly result: RefreshResult | Refusal };

interface Host {
  readonly lead: () => void;
  /** The tab with the connection has said how it is. */
  readonly hear: () => void;
  readonly report: () => Report;
  /** Whether somebody here wants to know how many look. */
  readonly counts: () => boolean;
  /** Somebody in another tab does. */
  readonly count: () => void;
  readonly refreshNow: (pair: PairName) => Promise<RefreshResult>;
}

interface Locks {
  request(name: string, options: { signal?: AbortSignal }, held: () => Promise<void> | undefined): Promise<unknown>;
}

const unknown: Report = { status: 'connecting', error: null, aheadMs: 0 };

/**
 * Tabs of one browser that share the connection of one of them. Who holds the lock has it. The others tell it what they
 * want and are told what it hears. When it goes, however it goes, the browser gives the lock to the next.
 */
export class Tabs {
  /** How the tab with the connection is. */
  report = unknown;
  leads = false;
  readonly #name: string;
  readonly #pairs: Pairs;
  readonly #locks: Locks;
  /** What other tabs want of this one. */
  readonly #guests = new Map<string, Pair[]>();
  /** Of the pairs that other tabs want: how many do, and how they are told. */
  readonly #told = new Map<Pair, { guests: number; readonly post: () => void }>();
  #host!: Host;
  #channel: InstanceType<typeof BroadcastChannel> | undefined;
  #tab = '';
  #leader = '';
  #isPresent = false;
  #leaving = new AbortController();

  private constructor(name: string, pairs: Pairs, locks: Locks) {
    this.#name = name;
    this.#pairs = pairs;
    this.#locks = locks;
  }

  /** Nothing where there are no locks; each tab then has a connection of its own. */
  static of(name: string | undefined, pairs: Pairs): Tabs | undefined {
    const { locks } = (globalThis.navigator ?? {}) as { locks?: Locks };
    if (name === undefined || !locks || typeof BroadcastChannel === 'undefined') return undefined;
    return new Tabs(`pgfresh ${name}`, pairs, locks);
  }

  begin(host: Host): void {
    this.#host = host;
  }

  /** Follows the tab that has the connection, or leads if there is none. */
  join(): void {
    if (this.#channel) return;
    this.#leaving = new AbortController();
    this.#tab = crypto.randomUUID();
    this.#channel = new BroadcastChannel(this.#name);
    this.#channel.onmessage = ({ data }: { data: unknown }) => this.#hear(data as TabMessage);
    // By this lock the tab with the connection learns that this one is gone, so it comes before any wish.
    this.#hold(`${this.#name} ${this.#tab}`, () => {
      this.#isPresent = true;
      this.want();
    });
    this.#hold(this.#name, () => {
      this.leads = true;
      this.#host.lead();
    });
  }

  leave(): void {
    if (!this.#channel) return;
    for (const guest of this.#guests.keys()) this.#serve(guest, []);
    this.#leaving.abort();
    this.#channel.close();
    this.#channel = undefined;
    this.leads = this.#isPresent = false;
    this.report = unknown;
    this.#leader = '';
  }

  /** Tells the tab that has the connection what this one wants. */
  want(): void {
    if (this.leads || !this.#isPresent) return;
    const pairs = [...this.#pairs].map(({ pair }) => pair);
    this.#post({ kind: 'want', tab: this.#tab, pairs, counts: this.#host.counts() });
  }

  /** Has it refreshed by the tab that has the connection, as soon as there is one. */
  refresh({ pair }: Pair): void {
    if (this.#leader !== '') this.#post({ kind: 'refresh', pair });
  }

  /** Tells the others how it is, if this is the tab that has the connection. */
  tell(): void {
    if (this.leads) this.#post({ kind: 'lead', tab: this.#tab, ...this.#host.report() });
  }

  #hear(message: TabMessage): void {
    if (message.kind === 'want' || message.kind === 'refresh') {
      if (!this.leads) return;
      if (message.kind === 'refresh') return void this.#refreshFor(message.pair);
      if (message.counts) this.#host.count();
      this.#welcome(message.tab);
      return this.#serve(message.tab, message.pairs);
    }
    if (this.leads) return;
    if (message.kind === 'lead') {
      this.report = message;
      if (message.tab !== this.#leader) this.#greet(message.tab);
      return this.#host.hear();
    }
    const pair = this.#pairs.find(message.pair);
    if (message.kind === 'state') {
      pair?.become(message.fresh);
      return pair?.count(message.viewers);
    }
    return pair?.settle((refresh) => {
      if (typeof message.result === 'string') refresh.resolve(message.result);
      else refresh.reject(new FreshError(message.result));
    });
  }

  /** Another tab has the connection from now on, and knows nothing of this one. */
  #greet(leader: string): void {
    this.#leader = leader;
    this.want();
    for (const pair of this.#pairs) if (pair.refreshes.length > 0) this.refresh(pair);
  }

  #welcome(guest: string): void {
    this.tell();
    if (this.#guests.has(guest)) return;
    this.#guests.set(guest, []);
    // Granted when that tab is gone.
    this.#hold(`${this.#name} ${guest}`, () => {
      this.#serve(guest, []);
      this.#guests.delete(guest);
      return true;
    });
  }

  #serve(guest: string, named: readonly PairName[]): void {
    const before = this.#guests.get(guest)!;
    const held = named.map((pair) => this.#pairs.hold(pair));
    this.#guests.set(guest, held);
    for (const pair of held) this.#tellOf(pair);
    for (const pair of before) {
      const told = this.#told.get(pair)!;
      told.guests -= 1;
      if (told.guests === 0) {
        pair.listeners.delete(told.post);
        this.#told.delete(pair);
      }
      this.#pairs.release(pair);
    }
  }

  #tellOf(pair: Pair): void {
    const post = (): void => {
      const { fresh, viewers } = pair;
      if (fresh.state !== 'loading') this.#post({ kind: 'state', pair: pair.pair, fresh, viewers });
    };
    const told = this.#told.get(pair) ?? { guests: 0, post };
    told.guests += 1;
    this.#told.set(pair, told);
    pair.listeners.add(told.post);
    told.post();
  }

  async #refreshFor(pair: PairName): Promise<void> {
    const result = await this.#host.refreshNow(pair).catch((error: unknown) => {
      const { code, message, next } = error as FreshError;
      return { code, message, next };
    });
    this.#post({ kind: 'refreshed', pair, result });
  }

  /** Holds a lock until this tab leaves, or only for a moment if `held` says true. */
  #hold(name: string, held: () => boolean | void): void {
    const { signal } = this.#leaving;
    const left = new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve()));
    this.#locks
      .request(name, { signal }, () => (signal.aborted || held() === true ? undefined : left))
      // It was given up before it was granted.
      .catch(() => {});
  }

  #post(message: TabMessage): void {
    this.#channel?.postMessage(message);
  }
}
