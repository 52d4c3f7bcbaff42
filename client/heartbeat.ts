import type { NameOf, RegisteredTypes } from './data-types.ts';
import { nameOf } from './pairs.ts';
import { isHidden, watchPage } from './page.ts';

/** The SQL functions of the schema `pgfresh` that a heartbeat calls. */
export type HeartbeatFunction = 'upsert_active_subscription' | 'remove_active_subscription';

export interface HeartbeatArguments {
  readonly p_user_id: string | null;
  readonly p_key: string;
  readonly p_data_type: string;
}

export interface HeartbeatOptions {
  /** Calls an SQL function of the schema `pgfresh`, by any database client. A result with an `error` is a failure. */
  readonly call: (name: HeartbeatFunction, values: HeartbeatArguments) => unknown;
  /** The viewer. Leave it out if the database knows the user from the session, as with PostgREST. */
  readonly userId?: string | undefined;
  /** Milliseconds between heartbeats. Defaults to 60000; a subscription without one for five minutes ends. */
  readonly every?: number | undefined;
  /** Called with the error of a failed call. The next heartbeat tries again. */
  readonly onError?: ((error: unknown) => void) | undefined;
}

/** Tells the database which pairs a page views, for applications without a gateway. */
export interface Heartbeat<Types extends object = RegisteredTypes> {
  /** Views a pair until the returned function is called. All views of a pair are one subscription. */
  subscribe(type: NameOf<Types>, key: string): () => void;
  /** Ends all subscriptions. Resolves once the database has been told. */
  close(): Promise<void>;
}

interface Watched {
  readonly values: HeartbeatArguments;
  holders: number;
  timer: ReturnType<typeof setInterval>;
  leaving: ReturnType<typeof setTimeout> | undefined;
  /** Calls run one after another, so that no heartbeat arrives after the removal. */
  called: Promise<void>;
}

const lingerMs = 1_000;

/** Creates a heartbeat: one call per viewed pair at once, then every minute, and one when the last view ends. */
export function createHeartbeat<Types extends object = RegisteredTypes>(options: HeartbeatOptions): Heartbeat<Types> {
  const { call, userId = null, every = 60_000, onError = () => {} } = options;
  const pairs = new Map<string, Watched>();

  const send = (pair: Watched, name: HeartbeatFunction): void => {
    pair.called = pair.called
      .then(async () => {
        const answer = (await call(name, pair.values)) as { error?: unknown } | null | undefined;
        if (typeof answer === 'object' && answer?.error) onError(answer.error);
      })
      .catch(onError);
  };
  // A hidden page has no viewer. If it stays hidden, its subscriptions expire.
  const beat = (pair: Watched): void => {
    if (!isHidden()) send(pair, 'upsert_active_subscription');
  };
  const remove = (pair: Watched): void => {
    clearInterval(pair.timer);
    clearTimeout(pair.leaving);
    pairs.delete(nameOf([pair.values.p_data_type, pair.values.p_key]));
    if (pairs.size === 0) unwatch?.();
    send(pair, 'remove_active_subscription');
  };
  let unwatch: (() => void) | undefined;

  return {
    subscribe(type, key) {
      const name = nameOf([type, key]);
      let pair = pairs.get(name);
      if (!pair) {
        if (pairs.size === 0) {
          unwatch = watchPage((event) => {
            if (event === 'visibilitychange') pairs.forEach(beat);
          });
        }
        const added: Watched = {
          values: { p_user_id: userId, p_key: key, p_data_type: type },
          holders: 0,
          timer: setInterval(() => beat(added), every),
          leaving: undefined,
          called: Promise.resolve(),
        };
        pairs.set(name, (pair = added));
        send(added, 'upsert_active_subscription');
      }
      const held = pair;
      held.holders += 1;
      clearTimeout(held.leaving);
      let isHeld = true;
      return () => {
        // A closed pair was already removed.
        if (!isHeld || pairs.get(name) !== held) return;
        isHeld = false;
        held.holders -= 1;
        if (held.holders === 0) held.leaving = setTimeout(() => remove(held), lingerMs);
      };
    },
    async close() {
      const all = [...pairs.values()];
      all.forEach(remove);
      await Promise.all(all.map(({ called }) => called));
    },
  };
}
