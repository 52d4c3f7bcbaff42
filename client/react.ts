import { createContext, createElement, useCallback, useContext, useMemo, useSyncExternalStore } from 'react';
import type { ReactNode } from 'react';
import { loading } from './fresh.ts';
import type { Fresh, FreshClient, JsonRow, NameOf, RefreshResult, RegisteredTypes, RowOf, Status } from './index.ts';

const Context = createContext<FreshClient | undefined>(undefined);

/** Gives a client to all components below it. */
export function FreshProvider({ client, children }: { readonly client: FreshClient; readonly children?: ReactNode }) {
  return createElement(Context.Provider, { value: client }, children);
}

/** The client of the nearest provider. */
export function useFreshClient(): FreshClient {
  const client = useContext(Context);
  if (client) return client;
  throw new Error('There is no client here. Put <FreshProvider client={createClient()}> around this component.');
}

/** What is known of a pair, and how to have it refreshed. */
export interface UseFresh<Row> extends Fresh<Row> {
  readonly refreshNow: () => Promise<RefreshResult>;
}

/** Looks at a pair as long as the component is mounted. */
export function useFresh<Name extends NameOf<RegisteredTypes>>(
  type: Name,
  key: string,
): UseFresh<RowOf<RegisteredTypes, Name>> {
  const client = useUntyped();
  const subscribe = useCallback((tell: () => void) => client.subscribe(type, key, tell), [client, type, key]);
  const fresh = useSyncExternalStore(subscribe, () => client.peek(type, key), onServer);
  const refreshNow = useCallback(() => client.refreshNow(type, key), [client, type, key]);
  const used: UseFresh<JsonRow> = useMemo(() => ({ ...fresh, refreshNow }), [fresh, refreshNow]);
  return used as UseFresh<RowOf<RegisteredTypes, Name>>;
}

/** What is known of one of many pairs. */
export interface KeyedFresh<Row> extends Fresh<Row> {
  readonly key: string;
}

/** Looks at many pairs of one data type. The answer has the order of the keys. */
export function useFreshMany<Name extends NameOf<RegisteredTypes>>(
  type: Name,
  keys: readonly string[],
): readonly KeyedFresh<RowOf<RegisteredTypes, Name>>[] {
  const client = useUntyped();
  // A list of the same keys is the same list.
  const named = JSON.stringify(keys);
  const store = useMemo(() => manyOf(client, type, JSON.parse(named) as string[]), [client, type, named]);
  const shown = useSyncExternalStore(store.subscribe, store.read, store.readOnServer);
  return shown as readonly KeyedFresh<RowOf<RegisteredTypes, Name>>[];
}

/** How many people look at a pair, through all gateways; this component is one of them. */
export function usePresence(type: NameOf<RegisteredTypes>, key: string): number | undefined {
  const client = useUntyped();
  const subscribe = useCallback((tell: () => void) => client.onViewers(type, key, tell), [client, type, key]);
  return useSyncExternalStore(
    subscribe,
    () => client.viewers(type, key),
    () => undefined,
  );
}

/** Where the connection is. */
export function useFreshStatus(): Status {
  const client = useFreshClient();
  return useSyncExternalStore(
    useCallback((tell: () => void) => client.onStatus(tell), [client]),
    () => client.status,
    () => 'idle',
  );
}

type Untyped = FreshClient<{ readonly [name: string]: JsonRow }>;

// What a row looks like is known to whoever registers types, and to nobody here.
function useUntyped(): Untyped {
  return useFreshClient() as object as Untyped;
}

// A server shows what a page shows before anything has come.
function onServer(): Fresh {
  return loading;
}

/** Many pairs as one thing to look at, which is the same object until one of them changes. */
function manyOf(client: Untyped, type: string, keys: readonly string[]) {
  const before = keys.map((key): KeyedFresh<JsonRow> => ({ ...loading, key }));
  let seen: readonly Fresh[] = keys.map(onServer);
  let shown: readonly KeyedFresh<JsonRow>[] = before;
  return {
    subscribe: (tell: () => void): (() => void) => {
      const stops = keys.map((key) => client.subscribe(type, key, tell));
      return () => stops.forEach((stop) => stop());
    },
    read: (): readonly KeyedFresh<JsonRow>[] => {
      const now = keys.map((key) => client.peek(type, key));
      if (now.every((fresh, place) => fresh === seen[place])) return shown;
      shown = now.map((fresh, place) => (fresh === seen[place] ? shown[place]! : { ...fresh, key: keys[place]! }));
      seen = now;
      return shown;
    },
    readOnServer: () => before,
  };
}
