import { transitions, type ConnectionEvent, type ConnectionState, type Status } from './connection-state.ts';
import { Conversation } from './conversation.ts';
import { openEventStream } from './event-stream.ts';
import { FreshError } from './fresh-error.ts';
import type { Refusal } from './fresh.ts';
import type { Link, OpenLink } from './link.ts';
import type { Pairs } from './pairs.ts';
import type { PairName, RefreshResult, ServerMessage } from './protocol.ts';
import { isHidden, isOffline, watchSurroundings } from './surroundings.ts';
import type { Tabs } from './tabs.ts';
import { openWebSocket } from './web-socket.ts';

export interface ConnectionOptions {
  /** Where /live is. */
  readonly url: () => string;
  readonly token: string | (() => string | undefined | Promise<string | undefined>) | undefined;
  readonly hiddenFor: number;
  readonly transport: 'auto' | 'websocket' | 'events';
  readonly tabs?: Tabs | undefined;
  readonly onStatus: () => void;
}

type TimerName = 'pause' | 'hide' | 'welcome' | 'beat' | 'waking' | 'token' | 'again' | 'update';

const welcomeMs = 10_000;
const [firstPauseMs, longestPauseMs] = [500, 30_000];
/** A connection that ends sooner is as good as none. */
const steadyMs = 5_000;
const beatMs = 10_000;
const wakingMs = 3_000;
const askAgainMs = 60_000;
/** Between two messages about what is wanted; the server takes twenty a second. */
const updateMs = 100;
const longestTimerMs = 2 ** 31 - 1;

/** The one connection of a client: makes it, keeps it, and lets it go, by the table of states. */
export class Connection {
  readonly #pairs: Pairs;
  readonly #options: ConnectionOptions;
  #state: ConnectionState = 'idle';
  #error: Refusal | null = null;
  /** How far the server's clock is ahead. */
  #aheadMs = 0;
  #link: Link | undefined;
  #conversation: Conversation | undefined;
  #unwatch: (() => void) | undefined;
  /** Grows, so that what an earlier attempt still has to say is not heard. */
  #attempt = 0;
  /** Attempts that failed, one after another. */
  #failures = 0;
  #hadWebSocket = false;
  #wantsCounts = false;
  #liveSince = 0;
  /** Whether something was heard since it was last looked at, */
  #isHeard = false;
  /** and whether a sign of life was asked for. */
  #isAsked = false;
  #updatedAt = 0;
  #askedToWaitMs: number | undefined;
  readonly #timers: Partial<Record<TimerName, ReturnType<typeof setTimeout>>> = {};

  constructor(pairs: Pairs, options: ConnectionOptions) {
    this.#pairs = pairs;
    this.#options = options;
    pairs.onChange = () => this.#wish();
    options.tabs?.begin({
      lead: () => this.#happen('lead'),
      hear: options.onStatus,
      report: () => ({ status: this.#state, error: this.#error, aheadMs: this.#aheadMs }),
      counts: () => this.#wantsCounts,
      count: () => this.count(),
      refreshNow: (pair) => this.refreshNow(pair),
    });
  }

  /** As another tab says, if that one has the connection. */
  get status(): Status {
    if (this.#state !== 'following') return this.#state;
    const { status } = this.#options.tabs!.report;
    return status === 'following' ? 'connecting' : status;
  }

  get error(): Refusal | null {
    return this.#state === 'following' ? this.#options.tabs!.report.error : this.#error;
  }

  now(): number {
    const { aheadMs } = this.#state === 'following' ? this.#options.tabs!.report : { aheadMs: this.#aheadMs };
    return Date.now() + aheadMs;
  }

  /** Somebody wants to know how many look. */
  count(): void {
    this.#wantsCounts = true;
    this.#conversation?.count();
    this.#options.tabs?.want();
  }

  /** Has a pair refreshed, now or as soon as there is a connection. */
  async refreshNow(named: PairName): Promise<RefreshResult> {
    if (this.#state === 'refused' || this.#state === 'closed') throw new FreshError(this.#error ?? closed);
    const held = this.#pairs.hold(named);
    const pair = held.meant ?? held;
    const refresh = Promise.withResolvers<RefreshResult>();
    pair.refreshes.push(refresh);
    if (this.#state === 'following') this.#options.tabs!.refresh(pair);
    else {
      // What was never asked for can not be refreshed.
      this.#conversation?.update();
      this.#conversation?.refresh(pair);
    }
    return refresh.promise.finally(() => this.#pairs.release(held));
  }

  close(): void {
    this.#happen('close');
  }

  #wish(): void {
    if (this.#pairs.size === 0) return this.#happen('leave');
    this.#happen('want');
    if (this.#timers.update !== undefined) return;
    // All that a page mounts in one go is said in one message.
    const pauseMs = Math.max(0, this.#updatedAt + updateMs - Date.now());
    this.#after('update', pauseMs, () => {
      this.#updatedAt = Date.now();
      this.#conversation?.update();
      this.#options.tabs?.want();
    });
  }

  #happen(event: ConnectionEvent): void {
    const before = this.#state;
    const state = transitions[before][event];
    if (state === before) return;
    this.#state = state;
    this.#stop('pause');
    if (state !== 'live') this.#unlink();
    if (before === 'idle') this.#watch();
    if (state === 'idle' || state === 'closed') this.#unwatchAll();
    if (state === 'connecting') void this.#connect();
    else if (state === 'waiting') this.#after('pause', this.#pauseMs(), () => this.#happen('retry'));
    else if (state === 'refused' || state === 'closed') this.#giveUp();
    // Another tab may have better luck, or more to do.
    if (!['connecting', 'live', 'waiting', 'following'].includes(this.#state)) this.#options.tabs?.leave();
    this.#options.tabs?.tell();
    this.#options.onStatus();
  }

  async #connect(): Promise<void> {
    const { tabs, url, token } = this.#options;
    if (isOffline() && !isLoopback(url())) return this.#happen('offline');
    if (tabs && !tabs.leads) {
      this.#happen('follow');
      return tabs.join();
    }
    const attempt = ++this.#attempt;
    const ifCurrent =
      <Given extends unknown[]>(act: (...given: Given) => void) =>
      (...given: Given): void => {
        if (attempt === this.#attempt) act(...given);
      };
    this.#after('welcome', welcomeMs, () => this.#lose());
    try {
      const given = typeof token === 'function' ? await token() : token;
      if (attempt !== this.#attempt) return;
      this.#link = this.#openLink()(url(), given, {
        hear: ifCurrent((message: ServerMessage) => this.#hear(message)),
        end: ifCurrent((code: number, refusal?: Refusal) => this.#end(code, refusal)),
      });
    } catch (error) {
      ifCurrent(() => this.#lose(noToken(error)))();
    }
  }

  /** A network that breaks WebSockets lets requests through, and an answer to these says why somebody is refused. */
  #openLink(): OpenLink {
    const { transport } = this.#options;
    const isTime = this.#failures >= (this.#hadWebSocket ? 6 : 2) && this.#failures % 2 === 0;
    return transport === 'events' || (transport === 'auto' && isTime) ? openEventStream : openWebSocket;
  }

  #hear(message: ServerMessage): void {
    this.#isHeard = true;
    switch (message.type) {
      case 'welcome':
        this.#aheadMs = Date.parse(message.now) - Date.now();
        if (this.#state === 'connecting') this.#begin(message.limits.message_bytes, message.session !== undefined);
        return this.#renew(message.expires_at);
      case 'authenticated':
        return this.#renew(message.expires_at);
      case 'reconnect':
        this.#askedToWaitMs = message.after_ms;
        return undefined;
      case 'error':
        this.#error = { code: message.code, message: message.message, next: message.next };
        return undefined;
      default:
        return this.#conversation?.hear(message);
    }
  }

  #begin(messageBytes: number, byEvents: boolean): void {
    const link = this.#link!;
    this.#stop('welcome');
    this.#error = null;
    this.#liveSince = Date.now();
    if (!byEvents) this.#hadWebSocket = true;
    const conversation = new Conversation(this.#pairs, (message) => link.send(message), messageBytes);
    this.#conversation = conversation;
    conversation.begin();
    if (this.#wantsCounts) conversation.count();
    this.#isAsked = false;
    this.#beat();
    this.#askAgain();
    this.#happen('open');
  }

  #end(code: number, refusal?: Refusal): void {
    this.#error = refusal ?? this.#error ?? unreachable(this.#options.url());
    const isFinal = code === 4400 || code === 4403 || (code === 4401 && typeof this.#options.token !== 'function');
    if (isFinal) this.#happen('refuse');
    else this.#lose();
  }

  #lose(why?: Refusal): void {
    const wasSteady = this.#state === 'live' && Date.now() - this.#liveSince > steadyMs;
    this.#failures = wasSteady ? 0 : this.#failures + 1;
    this.#error = why ?? this.#error ?? unreachable(this.#options.url());
    this.#happen('lose');
  }

  #pauseMs(): number {
    const asked = this.#askedToWaitMs;
    this.#askedToWaitMs = undefined;
    // Not all clients of a server at the same moment.
    return asked ?? Math.random() * Math.min(longestPauseMs, firstPauseMs * 2 ** this.#failures);
  }

  /** Asks for a sign of life where nothing was heard, and gives up if there is none. */
  #beat(): void {
    this.#after('beat', beatMs, () => {
      if (this.#isHeard) this.#isAsked = false;
      else if (this.#isAsked) return this.#lose();
      else this.#ping();
      this.#isHeard = false;
      return this.#beat();
    });
  }

  #ping(): void {
    this.#isHeard = false;
    this.#isAsked = true;
    this.#link?.send({ type: 'ping' });
  }

  #askAgain(): void {
    this.#after('again', askAgainMs, () => {
      this.#conversation?.askAgain();
      this.#askAgain();
    });
  }

  /** Sends the next token before this one expires. */
  #renew(expiresAt: string | null): void {
    const { token } = this.#options;
    if (expiresAt === null || typeof token !== 'function') return;
    const leftMs = Date.parse(expiresAt) - this.now();
    const inMs = Math.max(1_000, leftMs - Math.min(30_000, leftMs / 3));
    const attempt = this.#attempt;
    this.#after('token', Math.min(inMs, longestTimerMs), async () => {
      const next = await Promise.resolve()
        .then(token)
        .catch(() => undefined);
      if (attempt !== this.#attempt) return;
      if (next === undefined) this.#renew(expiresAt);
      else this.#link?.send({ type: 'auth', token: next });
    });
  }

  #watch(): void {
    this.#unwatch = watchSurroundings((event) => this.#notice(event));
    this.#notice('visibilitychange');
  }

  #notice(event: string): void {
    if (event === 'offline' && !isLoopback(this.#options.url())) return this.#happen('offline');
    if (event === 'online') this.#happen('online');
    if (isHidden()) {
      const { hiddenFor } = this.#options;
      if (this.#timers.hide === undefined && hiddenFor < longestTimerMs)
        this.#after('hide', hiddenFor, () => this.#happen('hide'));
      return undefined;
    }
    this.#stop('hide');
    this.#happen('show');
    return this.#wake();
  }

  /** Whoever slept does not know whether his connection is still there. */
  #wake(): void {
    if (this.#state !== 'live') return;
    this.#ping();
    this.#after('waking', wakingMs, () => {
      if (this.#isAsked && !this.#isHeard) this.#lose();
    });
  }

  #unwatchAll(): void {
    this.#unwatch?.();
    this.#stop('hide');
  }

  #unlink(): void {
    this.#attempt += 1;
    this.#link?.close();
    this.#link = undefined;
    this.#conversation = undefined;
    for (const name of ['welcome', 'beat', 'waking', 'token', 'again', 'update'] as const) this.#stop(name);
  }

  #giveUp(): void {
    const why = this.#error ?? closed;
    for (const pair of this.#pairs) pair.settle((refresh) => refresh.reject(new FreshError(why)));
  }

  #after(name: TimerName, ms: number, act: () => unknown): void {
    clearTimeout(this.#timers[name]);
    this.#timers[name] = setTimeout(() => {
      delete this.#timers[name];
      act();
    }, ms);
  }

  #stop(name: TimerName): void {
    clearTimeout(this.#timers[name]);
    delete this.#timers[name];
  }
}

export const closed: Refusal = {
  code: 'PGF_CLIENT_CLOSED',
  message: 'This client is closed.',
  next: 'Make another one with createClient.',
};

function unreachable(url: string): Refusal {
  return {
    code: 'PGF_CLIENT_UNREACHABLE',
    message: `There is no connection to ${url}.`,
    next: 'It is tried again. Does the server run, and is this page one of its origins?',
  };
}

function noToken(error: unknown): Refusal {
  const problem = error instanceof Error ? error.message : String(error);
  return {
    code: 'PGF_CLIENT_TOKEN',
    message: `There is no token to connect with: ${problem}`,
    next: 'It is tried again. Look at the token that you gave to createClient.',
  };
}

// A machine without a network still reaches itself.
function isLoopback(url: string): boolean {
  return /^https?:\/\/(localhost|127\.[\d.]+|\[::1\])[:/]/.test(url);
}
