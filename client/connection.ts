import { startAttempt, type Attempt, type Token } from './attempt.ts';
import { transitions, type ConnectionEvent, type ConnectionState, type Status } from './connection-state.ts';
import { openEventStream } from './event-stream.ts';
import { FreshError } from './fresh-error.ts';
import type { Refusal } from './fresh.ts';
import type { Pairs } from './pairs.ts';
import type { PairName, RefreshResult } from './protocol.ts';
import { closed } from './refusals.ts';
import { isTimeForEvents, pauseAfter } from './retry.ts';
import { followPage, isOffline } from './page.ts';
import type { Report, SharedConnection, Tabs } from './tabs.ts';
import { Timers } from './timers.ts';
import { openWebSocket } from './web-socket.ts';

export interface ConnectionOptions {
  /** The URL of /live. */
  readonly url: () => string;
  readonly token: Token;
  readonly hiddenFor: number;
  readonly transport: 'auto' | 'websocket' | 'events';
  readonly tabs?: Tabs | undefined;
  readonly onStatus: () => void;
}

/** The one connection of a client: opens, keeps and closes it, driven by the table of states. */
export class Connection implements SharedConnection {
  /** Whether this tab, or one that follows it, wants viewer counts. */
  wantsCounts = false;
  readonly #pairs: Pairs;
  readonly #options: ConnectionOptions;
  readonly #timers = new Timers<'pause' | 'update'>();
  #state: ConnectionState = 'idle';
  #error: Refusal | null = null;
  #attempt: Attempt | undefined;
  #unfollowPage = (): void => {};
  /** Failed attempts in a row. */
  #failures = 0;
  #hadWebSocket = false;
  #liveSince = 0;
  #updatedAt = 0;

  constructor(pairs: Pairs, options: ConnectionOptions) {
    this.#pairs = pairs;
    this.#options = options;
    pairs.onChange = () => this.#pairsChanged();
    options.tabs?.begin(this);
  }

  /** That of the leader, if this tab follows one. */
  get status(): Status {
    const state = this.#state === 'following' ? this.#options.tabs!.report.status : this.#state;
    return state === 'following' ? 'connecting' : state;
  }

  get error(): Refusal | null {
    return this.#state === 'following' ? this.#options.tabs!.report.error : this.#error;
  }

  lead(): void {
    this.#dispatch('lead');
  }

  receive({ aheadMs }: Report): void {
    this.#pairs.clock.aheadMs = aheadMs;
    this.#options.onStatus();
  }

  report(): Report {
    return { status: this.#state, error: this.#error, aheadMs: this.#pairs.clock.aheadMs };
  }

  /** Requests viewer counts. */
  count(): void {
    this.wantsCounts = true;
    this.#attempt?.conversation?.count();
    this.#options.tabs?.want();
  }

  /** Requests a refresh of a pair, now or once there is a connection. */
  async refreshNow(named: PairName): Promise<RefreshResult> {
    if (this.#state === 'refused' || this.#state === 'closed') throw new FreshError(this.#error ?? closed);
    const held = this.#pairs.hold(named);
    const pair = held.target ?? held;
    const refresh = Promise.withResolvers<RefreshResult>();
    pair.refreshes.push(refresh);
    if (this.#state === 'following') this.#options.tabs!.refresh(pair);
    this.#attempt?.conversation?.refresh(pair);
    return refresh.promise.finally(() => this.#pairs.release(held));
  }

  close(): void {
    this.#dispatch('close');
  }

  #pairsChanged(): void {
    if (this.#pairs.size === 0) return this.#dispatch('leave');
    this.#dispatch('want');
    if (this.#timers.has('update')) return;
    // The minimum time between two messages about pairs; the server accepts twenty per second.
    const updateMs = 100;
    // Pairs that a page mounts together go into one message.
    this.#timers.start('update', Math.max(0, this.#updatedAt + updateMs - Date.now()), () => {
      this.#updatedAt = Date.now();
      this.#attempt?.conversation?.update();
      this.#options.tabs?.want();
    });
  }

  #dispatch(event: ConnectionEvent): void {
    const before = this.#state;
    const state = transitions[before][event];
    if (state === before) return;
    const { tabs, onStatus } = this.#options;
    this.#state = state;
    this.#timers.stop('pause');
    if (state !== 'live') this.#attempt?.stop();
    if (before === 'idle') this.#followPage();
    if (state === 'idle' || state === 'closed') {
      this.#timers.stop();
      this.#unfollowPage();
    }
    if (state === 'connecting') this.#connect();
    if (state === 'refused' || state === 'closed') {
      const why = new FreshError(this.#error ?? closed);
      for (const pair of this.#pairs) pair.settle(({ reject }) => reject(why));
    }
    // Let another tab lead: it may succeed, or have more to do.
    if (!['connecting', 'live', 'waiting', 'following'].includes(this.#state)) tabs?.leave();
    tabs?.tell();
    onStatus();
  }

  #connect(): void {
    const { tabs, token, transport } = this.#options;
    const url = this.#options.url();
    if (isOffline() && !isLoopback(url)) return this.#dispatch('offline');
    if (tabs && !tabs.leads) {
      this.#dispatch('follow');
      return tabs.join();
    }
    const byEvents =
      transport === 'events' || (transport === 'auto' && isTimeForEvents(this.#failures, this.#hadWebSocket));
    this.#attempt = startAttempt({
      pairs: this.#pairs,
      url,
      token,
      openLink: byEvents ? openEventStream : openWebSocket,
      onOpen: () => {
        this.#error = null;
        this.#liveSince = Date.now();
        this.#hadWebSocket ||= !byEvents;
        if (this.wantsCounts) this.count();
        this.#dispatch('open');
      },
      onEnd: (why, isFinal, afterMs) => {
        // A connection that ends sooner counts as a failed attempt.
        const steadyMs = 5_000;
        const wasSteady = this.#state === 'live' && Date.now() - this.#liveSince > steadyMs;
        this.#failures = wasSteady ? 0 : this.#failures + 1;
        this.#error = why;
        this.#dispatch(isFinal ? 'refuse' : 'lose');
        if (this.#state === 'waiting')
          this.#timers.start('pause', afterMs ?? pauseAfter(this.#failures), () => this.#dispatch('retry'));
      },
    });
  }

  #followPage(): void {
    this.#unfollowPage = followPage(this.#options.hiddenFor, (event) => {
      // A server on this machine is reachable without a network.
      if (event === 'offline' && isLoopback(this.#options.url())) return;
      this.#dispatch(event);
      if (event === 'show') this.#attempt?.wake();
    });
  }
}

function isLoopback(url: string): boolean {
  return /^https?:\/\/(localhost|127\.[\d.]+|\[::1\])[:/]/.test(url);
}
