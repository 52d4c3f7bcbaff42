import { createContext, createElement, useCallback, useContext, useMemo, useSyncExternalStore } from 'react';
import type { ReactNode } from 'react';
import { loading } from './fresh.ts';
import type { Fresh, FreshClient, JsonRow, NameOf, RefreshResult, RegisteredTypes, RowOf, Status } from './index.ts';

const Context = createContext<FreshClient | undefined>(undefined);

/** Provides a client to all components below it. */
export function FreshProvider({ client, children }: { readonly client: FreshClient; readonly children?: ReactNode }) {
  return createElement(Context.Provider, { value: client }, children);
}

/** The client of the nearest provider. */
export function useFreshClient(): FreshClient {
  const client = useContext(Context);
  if (client) return client;
  throw new Error('There is no client. Wrap this component in <FreshProvider client={createClient()}>.');
}

/** The state of a pair, and a function that refreshes it. */
export interface UseFresh<Row> extends Fresh<Row> {
  readonly refreshNow: () => Promise<RefreshResult>;
}

/** Views a pair while the component is mounted. */
export function useFresh<Name extends NameOf<RegisteredTypes>>(
  type: Name,
  key: string,
): UseFresh<RowOf<RegisteredTypes, Name>> {
  const client = useUntyped();
  const subscribe = useCallback((notify: () => void) => client.subscribe(type, key, notify), [client, type, key]);
  const fresh = useSyncExternalStore(subscribe, () => client.peek(type, key), onServer);
  const refreshNow = useCallback(() => client.refreshNow(type, key), [client, type, key]);
  const used: UseFresh<JsonRow> = useMemo(() => ({ ...fresh, refreshNow }), [fresh, refreshNow]);
  return used as UseFresh<RowOf<RegisteredTypes, Name>>;
}

/** The state of one of many pairs. */
export interface KeyedFresh<Row> extends Fresh<Row> {
  readonly key: string;
}

/** Views many pairs of one data type. The result has the order of the keys. */
export function useFreshMany<Name extends NameOf<RegisteredTypes>>(
  type: Name,
  keys: readonly string[],
): readonly KeyedFresh<RowOf<RegisteredTypes, Name>>[] {
  const client = useUntyped();
  // Lists with equal keys count as the same list.
  const named = JSON.stringify(keys);
  const store = useMemo(() => manyOf(client, type, JSON.parse(named) as string[]), [client, type, named]);
  const shown = useSyncExternalStore(store.subscribe, store.read, store.readOnServer);
  return shown as readonly KeyedFresh<RowOf<RegisteredTypes, Name>>[];
}

/** The number of viewers of a pair over all gateways, including this one. */
export function usePresence(type: NameOf<RegisteredTypes>, key: string): number | undefined {
  const client = useUntyped();
  const subscribe = useCallback((notify: () => void) => client.onViewers(type, key, notify), [client, type, key]);
  return useSyncExternalStore(
    subscribe,
    () => client.viewers(type, key),
    () => undefined,
  );
}

/** The status of the connection. */
export function useFreshStatus(): Status {
  const client = useFreshClient();
  return useSyncExternalStore(
    useCallback((notify: () => void) => client.onStatus(notify), [client]),
    () => client.status,
    () => 'idle',
  );
}

type Untyped = FreshClient<{ readonly [name: string]: JsonRow }>;

// Only the caller, who registers the types, knows the type of a row.
function useUntyped(): Untyped {
  return useFreshClient() as object as Untyped;
}

// A server renders the state before the first message.
function onServer(): Fresh {
  return loading;
}

/** A store of many pairs, which returns the same array until one of them changes. */
function manyOf(client: Untyped, type: string, keys: readonly string[]) {
  const before = keys.map((key): KeyedFresh<JsonRow> => ({ ...loading, key }));
  let seen: readonly Fresh[] = keys.map(onServer);
  let shown: readonly KeyedFresh<JsonRow>[] = before;
  return {
    subscribe: (notify: () => void): (() => void) => {
      const stops = keys.map((key) => client.subscribe(type, key, notify));
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
