import type { ConnectionState } from './connection-state.ts';
import { FreshError } from './fresh-error.ts';
import { refusalOf, type Fresh, type Refusal } from './fresh.ts';
import { guestsOf, type Guests } from './guests.ts';
import type { Pair, Pairs } from './pairs.ts';
import type { PairName, RefreshResult } from './protocol.ts';

/** How the tab with the connection is. */
export interface Report {
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

/** What is shared: the connection that this tab has or would have. */
export interface Host {
  /** It is this tab's turn to have it. */
  lead(): void;
  /** The tab that has it has said how it is. */
  hear(report: Report): void;
  /** How it is here. */
  tell(): Report;
  /** Whether somebody here wants to know how many look. */
  readonly wantsCounts: boolean;
  /** Somebody in another tab does. */
  count(): void;
  refreshNow(pair: PairName): Promise<RefreshResult>;
}

interface Locks {
  request(name: string, options: { signal?: AbortSignal }, held: () => Promise<unknown> | undefined): Promise<unknown>;
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
  readonly #guests: Guests;
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
    this.#guests = guestsOf(pairs, ({ pair, fresh, viewers }) => {
      if (fresh.state !== 'loading') this.#post({ kind: 'state', pair, fresh, viewers });
    });
  }

  /** Nothing where there are no locks; each tab then has a connection of its own. */
  static of(name: string | undefined, pairs: Pairs): Tabs | undefined {
    const { locks }: { readonly locks?: Locks } = globalThis.navigator ?? {};
    return name !== undefined && locks ? new Tabs(`pgfresh ${name}`, pairs, locks) : undefined;
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
    this.#guests.forgetAll();
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
    this.#post({ kind: 'want', tab: this.#tab, pairs, counts: this.#host.wantsCounts });
  }

  /** Has it refreshed by the tab that has the connection, as soon as there is one. */
  refresh({ pair }: Pair): void {
    if (this.#leader !== '') this.#post({ kind: 'refresh', pair });
  }

  /** Tells the others how it is, if this is the tab that has the connection. */
  tell(): void {
    if (this.leads) this.#post({ kind: 'lead', tab: this.#tab, ...this.#host.tell() });
  }

  #hear(message: TabMessage): void {
    if (message.kind === 'want' || message.kind === 'refresh') {
      if (!this.leads) return;
      if (message.kind === 'refresh') return void this.#refreshFor(message.pair);
      if (message.counts) this.#host.count();
      this.#welcome(message.tab);
      return this.#guests.serve(message.tab, message.pairs);
    }
    if (this.leads) return;
    if (message.kind === 'lead') {
      this.report = message;
      if (message.tab !== this.#leader) this.#greet(message.tab);
      return this.#host.hear(message);
    }
    const pair = this.#pairs.find(message.pair);
    if (message.kind === 'state') {
      pair?.become(message.fresh);
      return pair?.count(message.viewers);
    }
    return pair?.settle(({ resolve, reject }) => {
      if (typeof message.result === 'string') resolve(message.result);
      else reject(new FreshError(message.result));
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
    // Granted when that tab is gone.
    this.#hold(`${this.#name} ${guest}`, () => {
      this.#guests.forget(guest);
      return true;
    });
  }

  async #refreshFor(pair: PairName): Promise<void> {
    const result = await this.#host.refreshNow(pair).catch((error: unknown) => refusalOf(error as FreshError));
    this.#post({ kind: 'refreshed', pair, result });
  }

  /** Holds a lock until this tab leaves, or only for a moment if `held` says true. */
  #hold(name: string, held: () => boolean | void): void {
    const { signal } = this.#leaving;
    const left = new Promise<unknown>((resolve) => signal.addEventListener('abort', resolve));
    this.#locks
      .request(name, { signal }, () => (signal.aborted || held() === true ? undefined : left))
      // It was given up before it was granted.
      .catch(() => {});
  }

  #post(message: TabMessage): void {
    this.#channel?.postMessage(message);
  }
}
