import type { ConnectionState } from './connection-state.ts';
import { FreshError } from './fresh-error.ts';
import { refusalOf, type Fresh, type Refusal } from './fresh.ts';
import { createFollowers, type Followers } from './followers.ts';
import type { Pair, Pairs } from './pairs.ts';
import type { PairName, RefreshResult } from './protocol.ts';

/** The state of the leader's connection. */
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

/** The connection that tabs share. */
export interface SharedConnection {
  /** This tab has become the leader. */
  lead(): void;
  /** The leader sent its state. */
  receive(report: Report): void;
  /** The state of this tab's connection. */
  report(): Report;
  /** Whether this tab wants viewer counts. */
  readonly wantsCounts: boolean;
  /** A tab that follows this one wants viewer counts. */
  count(): void;
  refreshNow(pair: PairName): Promise<RefreshResult>;
}

interface Locks {
  request(name: string, options: { signal?: AbortSignal }, held: () => Promise<unknown> | undefined): Promise<unknown>;
}

const noReport: Report = { status: 'connecting', error: null, aheadMs: 0 };

/**
 * Tabs of one browser that share the connection of one of them, the leader, which holds a lock. The other tabs send it
 * the pairs that they view, and receive their states. When the leader closes or crashes, the browser grants the lock to
 * the next tab.
 */
export class Tabs {
  /** The last report of the leader. */
  report = noReport;
  leads = false;
  readonly #name: string;
  readonly #pairs: Pairs;
  readonly #locks: Locks;
  readonly #followers: Followers;
  #connection!: SharedConnection;
  #channel: InstanceType<typeof BroadcastChannel> | undefined;
  #tab = '';
  #leader = '';
  #isPresent = false;
  #leaving = new AbortController();

  private constructor(name: string, pairs: Pairs, locks: Locks) {
    this.#name = name;
    this.#pairs = pairs;
    this.#locks = locks;
    this.#followers = createFollowers(pairs, ({ pair, fresh, viewers }) => {
      if (fresh.state !== 'loading') this.#post({ kind: 'state', pair, fresh, viewers });
    });
  }

  /** Undefined if the browser has no locks; each tab then has its own connection. */
  static of(name: string | undefined, pairs: Pairs): Tabs | undefined {
    const { locks }: { readonly locks?: Locks } = globalThis.navigator ?? {};
    return name !== undefined && locks ? new Tabs(`pgfresh ${name}`, pairs, locks) : undefined;
  }

  begin(connection: SharedConnection): void {
    this.#connection = connection;
  }

  /** Follows the leader, or becomes it if there is none. */
  join(): void {
    if (this.#channel) return;
    this.#leaving = new AbortController();
    this.#tab = crypto.randomUUID();
    this.#channel = new BroadcastChannel(this.#name);
    this.#channel.onmessage = ({ data }: { data: unknown }) => this.#receive(data as TabMessage);
    // The leader learns from this lock that this tab has closed, so it is taken before any pair is requested.
    this.#hold(`${this.#name} ${this.#tab}`, () => {
      this.#isPresent = true;
      this.want();
    });
    this.#hold(this.#name, () => {
      this.leads = true;
      this.#connection.lead();
    });
  }

  leave(): void {
    if (!this.#channel) return;
    this.#followers.forgetAll();
    this.#leaving.abort();
    this.#channel.close();
    this.#channel = undefined;
    this.leads = this.#isPresent = false;
    this.report = noReport;
    this.#leader = '';
  }

  /** Sends the leader the pairs of this tab. */
  want(): void {
    if (this.leads || !this.#isPresent) return;
    const pairs = [...this.#pairs].map(({ pair }) => pair);
    this.#post({ kind: 'want', tab: this.#tab, pairs, counts: this.#connection.wantsCounts });
  }

  /** Asks the leader to refresh a pair, once there is one. */
  refresh({ pair }: Pair): void {
    if (this.#leader !== '') this.#post({ kind: 'refresh', pair });
  }

  /** Sends the other tabs a report, if this tab is the leader. */
  tell(): void {
    if (this.leads) this.#post({ kind: 'lead', tab: this.#tab, ...this.#connection.report() });
  }

  #receive(message: TabMessage): void {
    if (message.kind === 'want' || message.kind === 'refresh') {
      if (!this.leads) return;
      if (message.kind === 'refresh') return void this.#refreshFor(message.pair);
      if (message.counts) this.#connection.count();
      this.#addFollower(message.tab);
      return this.#followers.serve(message.tab, message.pairs);
    }
    if (this.leads) return;
    if (message.kind === 'lead') {
      this.report = message;
      if (message.tab !== this.#leader) this.#follow(message.tab);
      return this.#connection.receive(message);
    }
    const pair = this.#pairs.find(message.pair);
    if (message.kind === 'state') {
      pair?.update(message.fresh);
      return pair?.count(message.viewers);
    }
    return pair?.settle(({ resolve, reject }) => {
      if (typeof message.result === 'string') resolve(message.result);
      else reject(new FreshError(message.result));
    });
  }

  /** Sends a new leader, which knows nothing of this tab, its pairs and refreshes. */
  #follow(leader: string): void {
    this.#leader = leader;
    this.want();
    for (const pair of this.#pairs) if (pair.refreshes.length > 0) this.refresh(pair);
  }

  #addFollower(tab: string): void {
    this.tell();
    if (this.#followers.has(tab)) return;
    // Granted when that tab has closed.
    this.#hold(`${this.#name} ${tab}`, () => {
      this.#followers.forget(tab);
      return true;
    });
  }

  async #refreshFor(pair: PairName): Promise<void> {
    const result = await this.#connection.refreshNow(pair).catch((error: unknown) => refusalOf(error as FreshError));
    this.#post({ kind: 'refreshed', pair, result });
  }

  /** Holds a lock until this tab leaves, or releases it at once if `held` returns true. */
  #hold(name: string, held: () => boolean | void): void {
    const { signal } = this.#leaving;
    const left = new Promise<unknown>((resolve) => signal.addEventListener('abort', resolve));
    this.#locks
      .request(name, { signal }, () => (signal.aborted || held() === true ? undefined : left))
      // The request was aborted before the lock was granted.
      .catch(() => {});
  }

  #post(message: TabMessage): void {
    this.#channel?.postMessage(message);
  }
}
