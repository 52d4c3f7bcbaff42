import type { IncomingMessage } from 'node:http';
import type { GatewayPair } from '../../config/index.ts';
import { PgfreshError } from '../../errors/index.ts';
import { within } from '../../lifecycle/index.ts';
import { admitPair } from '../pairs/admission.ts';
import type { Subscription, WatchedPair } from '../pairs/watched-pair.ts';
import { PairRequest, settledWithin } from '../session/pair-request.ts';
import type { SessionParts } from '../session/session-parts.ts';
import type { SessionRegistry } from '../session/session-registry.ts';

const firstStatusMs = 5_000;
const freshStatusMs = 10_000;

/** Plain HTTP reads of one pair. The reader counts as a viewer for a moment, so that stale data is refreshed. */
export class PlainReads {
  readonly #registry: SessionRegistry;
  readonly #parts: SessionParts;

  constructor(registry: SessionRegistry, parts: SessionParts) {
    this.#registry = registry;
    this.#parts = parts;
  }

  /** Returns the pair once its status is known; with a `maxAgeMs`, once it is young enough or ten seconds have passed. */
  async read(request: IncomingMessage, asked: GatewayPair, maxAgeMs: number | undefined): Promise<WatchedPair> {
    const { limits, watchedPairs, queries } = this.#parts;
    const { authenticated, usage, address } = await this.#registry.accept(request);
    if (!usage.reads.take()) throw new PgfreshError('PGF_LIVE_TOO_FAST', { limit: limits.messagesPerSecond });
    const { user } = authenticated;
    const pairRequest = new PairRequest([asked.dataType, asked.key], admitPair(asked, user, usage, this.#parts));
    await settledWithin([pairRequest], firstStatusMs);
    const resolved = pairRequest.result ?? new PgfreshError('PGF_LIVE_BUSY', {});
    if (resolved instanceof Error) throw resolved;
    const pair = watchedPairs.viewOnce(resolved, user.anonymous ? `anonymous:${address}` : user.id);
    if (!(await waitUntil(pair, () => true, firstStatusMs))) throw new PgfreshError('PGF_LIVE_BUSY', {});
    if (maxAgeMs === undefined) return pair;
    const isYoung = (): boolean => pair.ageMs <= maxAgeMs;
    if (isYoung()) return pair;
    if (!usage.refreshes.take())
      throw new PgfreshError('PGF_LIVE_TOO_MANY_REFRESHES', { limit: limits.refreshesPerMinute });
    await queries.refresh(pair);
    await waitUntil(pair, isYoung, freshStatusMs);
    return pair;
  }
}

/** Whether the pair has a status that meets the condition, now or before the timeout. Throws if the pair is lost. */
async function waitUntil(pair: WatchedPair, condition: () => boolean, timeoutMs: number): Promise<boolean> {
  if (pair.status && condition()) return true;
  const { promise: met, resolve, reject } = Promise.withResolvers<true>();
  const subscriber = {
    offer: () => void (condition() && resolve(true)),
    revoke: (_: Subscription, why: PgfreshError) => reject(why),
    sendUnresponsive: () => {},
    wantsViewerCounts: false,
    sendViewerCount: () => {},
  };
  const subscription: Subscription = { pair, subscriber, version: '', digest: undefined, isNew: true };
  pair.subscriptions.add(subscription);
  const isInTime = within(timeoutMs, met, () => false);
  return isInTime.finally(() => pair.subscriptions.delete(subscription));
}
