import { Connection } from './connection.ts';
import type { Status } from './connection-state.ts';
import type { NameOf, RegisteredTypes, RowOf } from './data-types.ts';
import { FreshError } from './fresh-error.ts';
import { loading, type Fresh, type Refusal } from './fresh.ts';
import { notifyAll, Pairs, type Pair } from './pairs.ts';
import type { PairName, RefreshResult } from './protocol.ts';
import { closed, invalidUrl, invalidName } from './refusals.ts';
import { pageOrigin } from './page.ts';
import { Tabs } from './tabs.ts';

export interface ClientOptions {
  /** The URL of the gateway, such as "https://live.example.com". Defaults to the origin of the page. */
  readonly url?: string | undefined;
  /** The user's token, or a function that returns one. The function is called again before the token expires. */
  readonly token?: string | (() => string | undefined | Promise<string | undefined>) | undefined;
  /** Milliseconds after which a hidden page closes its connection. Defaults to 60000; Infinity means never. */
  readonly hiddenFor?: number | undefined;
  /** Tabs of one browser with the same name share one connection. Include the user: the tabs see the same data. */
  readonly share?: string | undefined;
  /** Defaults to 'auto': a WebSocket, or an event stream if WebSockets do not work. */
  readonly transport?: 'auto' | 'websocket' | 'events' | undefined;
}

/** Keeps the pairs that a page views fresh, over one connection. */
export interface FreshClient<Types extends object = RegisteredTypes> {
  /** The status of the connection. */
  readonly status: Status;
  /** What is wrong with the connection; null while it is live. */
  readonly error: Refusal | null;
  /** Calls the listener when `status` changes. Returns a function that stops it. */
  onStatus(listener: (status: Status) => void): () => void;
  /** Views a pair until the returned function is called. The listener gets the current state and every newer one. */
  subscribe<Name extends NameOf<Types>>(
    type: Name,
    key: string,
    listener?: (fresh: Fresh<RowOf<Types, Name>>) => void,
  ): () => void;
  /** The current state of a pair, without viewing it. Returns the same object until something changes. */
  peek<Name extends NameOf<Types>>(type: Name, key: string): Fresh<RowOf<Types, Name>>;
  /** Views a pair until its state is known, and returns it. */
  get<Name extends NameOf<Types>>(type: Name, key: string): Promise<Fresh<RowOf<Types, Name>>>;
  /** Requests a refresh of a pair, even if it is fresh. Subscribers receive the new state. */
  refreshNow(type: NameOf<Types>, key: string): Promise<RefreshResult>;
  /** Calls the listener with the number of viewers of a pair, when known. Returns a function that stops it. */
  onViewers(type: NameOf<Types>, key: string, listener: (viewers: number | undefined) => void): () => void;
  /** The number of viewers of a pair, as last passed to `onViewers`. */
  viewers(type: NameOf<Types>, key: string): number | undefined;
  /** The server's clock in milliseconds, to compute ages. */
  now(): number;
  /** Closes the connection and ends all subscriptions. */
  close(): void;
}

/** Creates a client. It connects when the first pair is viewed. */
export function createClient<Types extends object = RegisteredTypes>(options: ClientOptions = {}): FreshClient<Types> {
  const { url, token, hiddenFor = 60_000, share, transport = 'auto' } = options;
  if (url !== undefined) liveUrl(url);
  const endpoint = (): string => liveUrl(url ?? pageOrigin());
  const pairOf = (type: string, key: string): PairName => {
    // Throws here, to the caller, if there is no URL to connect to.
    endpoint();
    return [requireText(type, 'type'), requireText(key, 'key')];
  };
  const pairs = new Pairs();
  const listeners = new Set<(status: Status) => void>();
  let lastStatus: Status = 'idle';
  const connection = new Connection(pairs, {
    url: endpoint,
    token,
    hiddenFor,
    transport,
    tabs: Tabs.of(share, pairs),
    onStatus() {
      if (connection.status === lastStatus) return;
      lastStatus = connection.status;
      notifyAll(listeners, lastStatus);
    },
  });

  /** Calls the listener when the value that `read` returns changes. */
  const follow = <Value>(type: string, key: string, read: (pair: Pair) => Value, notify: (value: Value) => void) => {
    if (connection.status === 'closed') return () => {};
    const pair = pairs.hold(pairOf(type, key));
    let known = read(pair);
    const listener = (): void => {
      const value = read(pair);
      if (value === known) return;
      known = value;
      notify(value);
    };
    pair.listeners.add(listener);
    return () => {
      if (pair.listeners.delete(listener)) pairs.release(pair);
    };
  };

  const subscribe = (type: string, key: string, listener: (fresh: Fresh) => void = () => {}): (() => void) => {
    const stop = follow(type, key, ({ fresh }) => fresh, listener);
    const known = peek(type, key);
    if (known !== loading) notifyAll([listener], known);
    return stop;
  };
  const peek = (type: string, key: string): Fresh => pairs.find([type, key])?.fresh ?? loading;
  const onStatus = (listener: (status: Status) => void): (() => void) => {
    listeners.add(listener);
    return () => void listeners.delete(listener);
  };

  const client = {
    get status() {
      return connection.status;
    },
    get error() {
      return connection.error;
    },
    onStatus,
    subscribe,
    peek,
    async get(type: string, key: string): Promise<Fresh> {
      const { promise, resolve, reject } = Promise.withResolvers<Fresh>();
      const check = (): void => {
        const known = peek(type, key);
        const { status } = connection;
        if (status === 'refused' || status === 'closed') reject(new FreshError(connection.error ?? closed));
        else if (known.state === 'refused') reject(new FreshError(known.error!));
        else if (known !== loading) resolve(known);
      };
      const stops = [subscribe(type, key, check), onStatus(check)];
      check();
      return promise.finally(() => stops.forEach((stop) => stop()));
    },
    refreshNow: async (type: string, key: string): Promise<RefreshResult> => connection.refreshNow(pairOf(type, key)),
    onViewers(type: string, key: string, listener: (viewers: number | undefined) => void): () => void {
      const stop = follow(type, key, ({ viewers }) => viewers, listener);
      connection.count();
      return stop;
    },
    viewers: (type: string, key: string): number | undefined => pairs.find([type, key])?.viewers,
    now: () => pairs.clock.now(),
    close(): void {
      connection.close();
      pairs.clear();
    },
  };
  // Only the caller knows the type of a row.
  return client as unknown as FreshClient<Types>;
}

function liveUrl(given: string | undefined): string {
  const url = given === undefined ? null : URL.parse(given.replace(/^ws/, 'http'));
  if (url && /^https?:$/.test(url.protocol)) return `${url.origin}${url.pathname.replace(/\/$/, '')}/live`;
  throw new FreshError(invalidUrl(given));
}

function requireText(given: unknown, what: string): string {
  const longestText = 512;
  if (typeof given === 'string' && given !== '' && given.length <= longestText) return given;
  throw new FreshError(invalidName(what, longestText, given));
}
