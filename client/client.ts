import { Connection } from './connection.ts';
import type { Status } from './connection-state.ts';
import type { NameOf, RegisteredTypes, RowOf } from './data-types.ts';
import { FreshError } from './fresh-error.ts';
import { loading, type Fresh, type Refusal } from './fresh.ts';
import { Pairs, tellAll, type Pair } from './pairs.ts';
import type { PairName, RefreshResult } from './protocol.ts';
import { closed, noAddress, noText } from './refusals.ts';
import { ownOrigin } from './surroundings.ts';
import { Tabs } from './tabs.ts';

export interface ClientOptions {
  /** Where the gateway is, such as "https://live.example.com". The server of the page if it is left out. */
  readonly url?: string | undefined;
  /** The user's token, or a function that gets one. The function is asked again before the token expires. */
  readonly token?: string | (() => string | undefined | Promise<string | undefined>) | undefined;
  /** After how many milliseconds a hidden page lets go of its connection: 60000, or never if it is Infinity. */
  readonly hiddenFor?: number | undefined;
  /** Tabs of one browser that give the same name share one connection. Name the user in it: they share what he may see. */
  readonly share?: string | undefined;
  /** By what to connect. If it is left out: a WebSocket, or an event stream where that does not work. */
  readonly transport?: 'auto' | 'websocket' | 'events' | undefined;
}

/** Keeps what a page looks at fresh, over one connection. */
export interface FreshClient<Types extends object = RegisteredTypes> {
  /** Where the connection is. */
  readonly status: Status;
  /** What is wrong with the connection; null while it is live. */
  readonly error: Refusal | null;
  /** Tells when `status` changes. Returns how to stop it. */
  onStatus(listener: (status: Status) => void): () => void;
  /** Looks at a pair until the function that it returns is called. The listener gets what is known, and all that is newer. */
  subscribe<Name extends NameOf<Types>>(
    type: Name,
    key: string,
    listener?: (fresh: Fresh<RowOf<Types, Name>>) => void,
  ): () => void;
  /** What is known of a pair now, without looking at it. It is the same object until something changes. */
  peek<Name extends NameOf<Types>>(type: Name, key: string): Fresh<RowOf<Types, Name>>;
  /** Looks at a pair until something is known of it. */
  get<Name extends NameOf<Types>>(type: Name, key: string): Promise<Fresh<RowOf<Types, Name>>>;
  /** Has a pair refreshed although it may be fresh. What comes of it comes to those who are subscribed. */
  refreshNow(type: NameOf<Types>, key: string): Promise<RefreshResult>;
  /** How many people look at a pair, if that is known. Returns how to stop it. */
  onViewers(type: NameOf<Types>, key: string, listener: (viewers: number | undefined) => void): () => void;
  /** How many people look at a pair, as `onViewers` has heard. */
  viewers(type: NameOf<Types>, key: string): number | undefined;
  /** The server's clock in milliseconds, to tell how old something is. */
  now(): number;
  /** Ends everything. */
  close(): void;
}

/** A client. It connects when somebody looks at something, and not before. */
export function createClient<Types extends object = RegisteredTypes>(options: ClientOptions = {}): FreshClient<Types> {
  const { url, token, hiddenFor = 60_000, share, transport = 'auto' } = options;
  if (url !== undefined) liveUrl(url);
  const place = (): string => liveUrl(url ?? ownOrigin());
  const pairOf = (type: string, key: string): PairName => {
    // Where nobody knows a server, say so to whoever wants something of it.
    place();
    return [requireText(type, 'type'), requireText(key, 'key')];
  };
  const pairs = new Pairs();
  const listeners = new Set<(status: Status) => void>();
  let told: Status = 'idle';
  const connection = new Connection(pairs, {
    url: place,
    token,
    hiddenFor,
    transport,
    tabs: Tabs.of(share, pairs),
    onStatus() {
      if (connection.status === told) return;
      told = connection.status;
      tellAll(listeners, told);
    },
  });

  /** Tells of a pair when what is read of it changes. */
  const follow = <Value>(type: string, key: string, read: (pair: Pair) => Value, tell: (value: Value) => void) => {
    if (connection.status === 'closed') return () => {};
    const pair = pairs.hold(pairOf(type, key));
    let known = read(pair);
    const listener = (): void => {
      const value = read(pair);
      if (value === known) return;
      known = value;
      tell(value);
    };
    pair.listeners.add(listener);
    return () => {
      if (pair.listeners.delete(listener)) pairs.release(pair);
    };
  };

  const subscribe = (type: string, key: string, listener: (fresh: Fresh) => void = () => {}): (() => void) => {
    const stop = follow(type, key, ({ fresh }) => fresh, listener);
    const known = peek(type, key);
    if (known !== loading) tellAll([listener], known);
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
      const look = (): void => {
        const known = peek(type, key);
        const { status } = connection;
        if (status === 'refused' || status === 'closed') reject(new FreshError(connection.error ?? closed));
        else if (known.state === 'refused') reject(new FreshError(known.error!));
        else if (known !== loading) resolve(known);
      };
      const stops = [subscribe(type, key, look), onStatus(look)];
      look();
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
  // What a row looks like is known to whoever wrote the types, and to nobody here.
  return client as unknown as FreshClient<Types>;
}

function liveUrl(given: string | undefined): string {
  const url = given === undefined ? null : URL.parse(given.replace(/^ws/, 'http'));
  if (url && /^https?:$/.test(url.protocol)) return `${url.origin}${url.pathname.replace(/\/$/, '')}/live`;
  throw new FreshError(noAddress(given));
}

function requireText(given: unknown, what: string): string {
  const longestText = 512;
  if (typeof given === 'string' && given !== '' && given.length <= longestText) return given;
  throw new FreshError(noText(what, longestText, given));
}
