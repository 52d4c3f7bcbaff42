import type { PairAnswer, PairName, WantedPair } from '#protocol';
import type { RlsReader } from '../../changes/index.ts';
import type { GatewayPair, GatewayUser } from '../../config/index.ts';
import { PgfreshError } from '../../errors/index.ts';
import type { UserUsage } from '../auth/usage-limits.ts';
import { errorResponse } from '../http/error-response.ts';
import { admitPair } from '../pairs/admission.ts';
import { parseVersion, type ResolvedPair, type Subscriber, type Subscription } from '../pairs/watched-pair.ts';
import { reasonSentences } from '../sentences.ts';
import { PairRequest, settledWithin } from './pair-request.ts';
import type { SendQueue } from './send-queue.ts';
import type { SessionParts } from './session-parts.ts';

export interface SubscriptionsOptions {
  readonly parts: SessionParts;
  readonly usage: UserUsage;
  readonly queue: SendQueue;
  /** The user with the claims of their newest token. */
  readonly user: () => GatewayUser;
}

// A pair that a viewer just had refreshed is not refreshed again.
const refreshPauseMs = 5_000;
// Pairs whose result is known within this time are answered together.
const answerTogetherMs = 250;

/** The pairs that one client has requested. */
export class Subscriptions implements Subscriber {
  /** Whether the client wants to know how many viewers its pairs have. */
  wantsViewerCounts = false;
  readonly #options: SubscriptionsOptions;
  readonly #subscriptions = new Map<string, Subscription>();
  /** Names of pairs as the client spells them, where the registry spells the key differently. */
  readonly #spellings = new Map<string, string>();
  /** Requests that are answered later, by name as the client spells it. */
  readonly #late = new Map<string, PairRequest>();
  /** While one message is answered: the reader of pairs that the client saw as another reader before. */
  #freshReader: RlsReader | undefined;
  #isOpen = true;

  constructor(options: SubscriptionsOptions) {
    this.#options = options;
  }

  /** Requests these pairs, and drops all others. */
  async set(wanted: readonly WantedPair[]): Promise<void> {
    const kept = new Set(wanted.map(([dataType, key]) => this.#nameOf([dataType, key])));
    for (const name of this.#subscriptions.keys()) if (!kept.has(name)) this.#remove(name);
    this.#late.clear();
    return this.add(wanted);
  }

  /**
   * Requests pairs, and answers those with a result in one message. Pairs of a data type whose table of keys does not
   * answer, or which `authorize` has not decided, are answered later; other pairs and later messages do not wait for them.
   */
  async add(wanted: readonly WantedPair[]): Promise<void> {
    const { usage, user, parts } = this.#options;
    const { queries, limits } = parts;
    const unique = [...new Map(wanted.map((pair) => [nameOf(pair[0], pair[1]), pair])).values()];
    const added = unique.filter(([dataType, key]) => !this.#subscriptions.has(this.#nameOf([dataType, key]))).length;
    usage.pendingPairs += added;
    const mayPlan =
      this.#subscriptions.size + added <= limits.pairsPerConnection &&
      usage.pairs + usage.pendingPairs <= limits.pairsPerUser;
    const requests = unique.map((pair) => {
      const [dataType, key] = pair;
      this.#late.delete(nameOf(dataType, key));
      return new PairRequest(pair, admitPair({ dataType, key }, user(), usage, parts, { mayPlan }));
    });
    const responsive = requests.filter(({ dataType }) => !queries.isUnresponsive(dataType));
    await settledWithin(responsive, answerTogetherMs);
    usage.pendingPairs -= added;
    const late = requests.filter(({ result }) => result === undefined);
    for (const request of late) {
      if (this.#late.size < limits.pairsPerConnection) this.#late.set(nameOfRequest(request), request);
      else request.result = tooManyPairs('One connection', limits.pairsPerConnection);
    }
    const settled = requests.filter(({ result }) => result !== undefined);
    if (settled.length > 0 || late.length === 0) this.#answer(settled);
    for (const { pair, result } of late) if (!result) this.#sendWaiting([pair[0], pair[1]]);
    for (const ofType of Map.groupBy(late, ({ dataType }) => dataType).values())
      void Promise.all(ofType.map((request) => request.settled)).then(() => this.#answerLate(ofType));
  }

  drop(pairs: readonly PairName[]): void {
    for (const pair of pairs) {
      this.#late.delete(nameOf(...pair));
      this.#remove(this.#nameOf(pair));
    }
  }

  /** Refreshes a pair, even if it is fresh, and sends what came of it. */
  async refresh(pair: PairName): Promise<void> {
    const { usage, queue, parts } = this.#options;
    const { limits, queries, events } = parts;
    const subscription = this.#subscriptions.get(this.#nameOf(pair));
    try {
      if (!subscription) throw new PgfreshError('PGF_LIVE_FORBIDDEN', { pair: pair.join(' ') });
      const { viewerCount } = subscription.pair;
      if (performance.now() - viewerCount.refreshedAt < refreshPauseMs)
        return queue.send({ type: 'refresh', pair, result: 'recent' });
      if (!usage.refreshes.take())
        throw new PgfreshError('PGF_LIVE_TOO_MANY_REFRESHES', { limit: limits.refreshesPerMinute });
      viewerCount.refreshedAt = performance.now();
      queue.send({ type: 'refresh', pair, result: await queries.refresh(subscription.pair) });
    } catch (error) {
      const { code, message, next } = errorResponse(error, events);
      queue.send({ type: 'refresh', pair, result: 'refused', code, message, next });
    }
  }

  /** Asks `authorize` about all pairs again, and revokes those that the user may no longer view. */
  async recheck(): Promise<void> {
    const { parts, user } = this.#options;
    const all = [...this.#subscriptions.values()].map(async ({ pair: { dataType, key } }) => {
      const refusal = await parts.authorizer.refusal(user(), { dataType, key });
      if (refusal) this.#revoke({ dataType, key }, refusal);
    });
    await Promise.all(all);
  }

  /** Reads all pairs under row security with the claims of a new token. */
  async resubscribe(): Promise<void> {
    const { parts, queue, user } = this.#options;
    const { rlsReaders, watchedPairs } = parts;
    this.#freshReader = undefined;
    const all = [...this.#subscriptions].filter(([, { pair }]) => pair.reader !== undefined);
    for (const [name, subscription] of all) {
      const { pair, version, digest, isNew } = subscription;
      const reader = await rlsReaders.readerOf(user(), pair.dataType).catch((error: unknown) => error as PgfreshError);
      if (this.#subscriptions.get(name) !== subscription) continue;
      if (reader instanceof Error) this.#revoke(pair, reader);
      else if (reader.tag !== pair.reader!.tag) {
        const { dataType, type, key } = pair;
        const resolved = this.#withReader({ dataType, type, key, reader }, version);
        const renewed = Object.assign(watchedPairs.subscribe(resolved, user().id, this), { version, digest, isNew });
        this.#subscriptions.set(name, renewed);
        queue.remove(subscription);
        watchedPairs.unsubscribe(subscription, user().id);
        this.offer(renewed);
      }
    }
  }

  close(): void {
    this.#isOpen = false;
    this.#late.clear();
    for (const name of this.#subscriptions.keys()) this.#remove(name);
  }

  offer(subscription: Subscription): void {
    this.#options.queue.offer(subscription);
  }

  revoke({ pair }: Subscription, why: PgfreshError): void {
    this.#revoke(pair, why);
  }

  sendUnresponsive({ pair }: Subscription): void {
    this.#sendWaiting([pair.dataType, pair.key]);
  }

  sendViewerCount(subscription: Subscription, viewers: number): void {
    const { queue } = this.#options;
    // A slow client has enough to read.
    if (queue.isSlow || subscription.isNew) return;
    const { dataType, key } = subscription.pair;
    subscription.viewers = viewers;
    queue.send({ type: 'viewers', pair: [dataType, key], viewers });
  }

  // Skips requests that were dropped or repeated in the meantime.
  #answerLate(requests: readonly PairRequest[]): void {
    const open = requests.filter((request) => {
      const name = nameOfRequest(request);
      return this.#late.get(name) === request && this.#late.delete(name);
    });
    if (open.length > 0) this.#answer(open);
  }

  // Synchronous, so that no state of a pair is sent before the answer that accepts it.
  #answer(requests: readonly PairRequest[]): void {
    const { queue, parts } = this.#options;
    this.#freshReader = undefined;
    const added: Subscription[] = [];
    const answers = requests.map(({ pair: [dataType, key, version], result }): PairAnswer => {
      const pair: PairName = [dataType, key];
      try {
        if (result instanceof Error) throw result;
        added.push(...this.#subscribe(pair, result!, version));
        return { pair, result: 'accepted', ...(result!.key === key ? {} : { key: result!.key }) };
      } catch (error) {
        const { code, message, next } = errorResponse(error, parts.events);
        return { pair, result: 'refused', code, message, next };
      }
    });
    queue.send({ type: 'answer', pairs: answers });
    for (const subscription of added) {
      this.offer(subscription);
      if (subscription.pair.isUnresponsive) this.sendUnresponsive(subscription);
    }
  }

  /** Returns the new subscription, or none if the client already has one for this pair. */
  #subscribe(requested: PairName, pair: ResolvedPair, clientVersion: string | undefined): Subscription[] {
    const { usage, user, parts } = this.#options;
    const { limits, watchedPairs } = parts;
    const [name, spelling] = [nameOf(pair.dataType, pair.key), nameOf(...requested)];
    if (!this.#isOpen) throw new PgfreshError('PGF_LIVE_STOPPING', {});
    if (this.#subscriptions.has(name)) {
      if (name !== spelling && this.#spellings.size < limits.pairsPerConnection) this.#spellings.set(spelling, name);
      return [];
    }
    if (this.#subscriptions.size >= limits.pairsPerConnection)
      throw tooManyPairs('One connection', limits.pairsPerConnection);
    if (usage.pairs >= limits.pairsPerUser) throw tooManyPairs('One user', limits.pairsPerUser);
    const resolved = this.#withReader(pair, clientVersion);
    const subscription = watchedPairs.subscribe(resolved, user().id, this, clientVersion);
    this.#subscriptions.set(name, subscription);
    if (name !== spelling) this.#spellings.set(spelling, name);
    usage.pairs += 1;
    return [subscription];
  }

  // Rows that the client got with another token may be more than this token may see, and newer than the cached state.
  #withReader(pair: ResolvedPair, clientVersion: string | undefined): ResolvedPair {
    const { reader } = pair;
    if (!reader || clientVersion === undefined || parseVersion(clientVersion)?.readerTag === reader.tag) return pair;
    if (this.#freshReader?.tag !== reader.tag) this.#freshReader = this.#options.parts.rlsReaders.withOwnReads(reader);
    return { ...pair, reader: this.#freshReader };
  }

  #remove(name: string): void {
    const { usage, queue, user, parts } = this.#options;
    const subscription = this.#subscriptions.get(name);
    if (!subscription) return;
    this.#subscriptions.delete(name);
    for (const [spelling, spelled] of this.#spellings) if (spelled === name) this.#spellings.delete(spelling);
    queue.remove(subscription);
    usage.pairs -= 1;
    parts.watchedPairs.unsubscribe(subscription, user().id);
  }

  #revoke({ dataType, key }: GatewayPair, error: PgfreshError): void {
    const { queue, parts } = this.#options;
    const name = nameOf(dataType, key);
    if (!this.#isOpen || !this.#subscriptions.has(name)) return;
    this.#remove(name);
    const { code, message, next } = errorResponse(error, parts.events);
    queue.send({ type: 'revoked', pair: [dataType, key], code, message, next });
  }

  #sendWaiting(pair: PairName): void {
    const reason = 'quarantined';
    this.#options.queue.send({ type: 'waiting', pair, activity: 'waiting', reason, words: reasonSentences[reason] });
  }

  #nameOf(pair: PairName): string {
    const spelling = nameOf(...pair);
    return this.#spellings.get(spelling) ?? spelling;
  }
}

function tooManyPairs(whose: string, limit: number): PgfreshError {
  return new PgfreshError('PGF_LIVE_TOO_MANY_PAIRS', { whose, limit });
}

function nameOf(dataType: string, key: string): string {
  return JSON.stringify([dataType, key]);
}

function nameOfRequest({ pair: [dataType, key] }: PairRequest): string {
  return nameOf(dataType, key);
}
