import type { NameOf, RegisteredTypes } from './data-types.ts';
import { nameOf } from './pairs.ts';
import { isHidden, watchSurroundings } from './surroundings.ts';

/** The functions of the schema `pgfresh` that are called. */
export type HeartbeatFunction = 'upsert_active_subscription' | 'remove_active_subscription';

export interface HeartbeatArguments {
  readonly p_user_id: string | null;
  readonly p_key: string;
  readonly p_data_type: string;
}

export interface HeartbeatOptions {
  /** Calls an SQL function of the schema `pgfresh` by whatever means you have. An answer with an `error` is a failure. */
  readonly call: (name: HeartbeatFunction, values: HeartbeatArguments) => unknown;
  /** Who looks. Leave it out where the database knows it by the session, as with PostgREST. */
  readonly userId?: string | undefined;
  /** Milliseconds between two heartbeats: 60000. A subscription that is silent for five minutes ends. */
  readonly every?: number | undefined;
  /** Gets what a call failed with. The next heartbeat tries again. */
  readonly onError?: ((error: unknown) => void) | undefined;
}

/** Says to the database what a page looks at. For those who have no gateway. */
export interface Heartbeat<Types extends object = RegisteredTypes> {
  /** Looks at a pair until the function that it returns is called. However many look, it is one subscription. */
  subscribe(type: NameOf<Types>, key: string): () => void;
  /** Ends all subscriptions. Settles when the database knows. */
  close(): Promise<void>;
}

interface Watched {
  readonly values: HeartbeatArguments;
  holders: number;
  timer: ReturnType<typeof setInterval>;
  leaving: ReturnType<typeof setTimeout> | undefined;
  /** Calls go one after another, so that no heartbeat overtakes a leave. */
  called: Promise<void>;
}

const lingerMs = 1_000;

/** A heartbeat for each pair that somebody looks at: at once, every minute, and a word when the last one leaves. */
export function createHeartbeat<Types extends object = RegisteredTypes>(options: HeartbeatOptions): Heartbeat<Types> {
  const { call, userId = null, every = 60_000, onError = () => {} } = options;
  const pairs = new Map<string, Watched>();

  const say = (pair: Watched, name: HeartbeatFunction): void => {
    pair.called = pair.called
      .then(async () => {
        const answer = (await call(name, pair.values)) as { error?: unknown } | null | undefined;
        if (typeof answer === 'object' && answer?.error) onError(answer.error);
      })
      .catch(onError);
  };
  // Nobody sees a hidden page. If it stays hidden, its subscriptions end by their silence.
  const beat = (pair: Watched): void => {
    if (!isHidden()) say(pair, 'upsert_active_subscription');
  };
  const remove = (pair: Watched): void => {
    clearInterval(pair.timer);
    clearTimeout(pair.leaving);
    pairs.delete(nameOf([pair.values.p_data_type, pair.values.p_key]));
    if (pairs.size === 0) unwatch?.();
    say(pair, 'remove_active_subscription');
  };
  let unwatch: (() => void) | undefined;

  return {
    subscribe(type, key) {
      const name = nameOf([type, key]);
      let pair = pairs.get(name);
      if (!pair) {
        if (pairs.size === 0) {
          unwatch = watchSurroundings((event) => {
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
        say(added, 'upsert_active_subscription');
      }
      const held = pair;
      held.holders += 1;
      clearTimeout(held.leaving);
      let isHeld = true;
      return () => {
        // What was closed is let go already.
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
