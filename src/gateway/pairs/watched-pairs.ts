import type { LossReason, PairState, ReadCache, RlsReader } from '../../changes/index.ts';
import type { GatewayPair } from '../../config/index.ts';
import type { NodeDemand } from '../../demand/index.ts';
import { PgfreshError, problemOf } from '../../errors/index.ts';
import type { Events } from '../../events/index.ts';
import { lookupError, type PairLookup } from './pair-lookup.ts';
import type { PairQueries } from './pair-queries.ts';
import { ViewerCount } from './viewer-count.ts';
import { parseVersion, WatchedPair, type ResolvedPair, type Subscriber, type Subscription } from './watched-pair.ts';

export interface WatchedPairsOptions {
  readonly cache: Pick<ReadCache, 'watch' | 'rereadRls'>;
  readonly queries: Pick<
    PairQueries,
    'lookUp' | 'advanceVersions' | 'plan' | 'explain' | 'isUnresponsive' | 'countViewers'
  >;
  readonly demand: Pick<NodeDemand, 'set'>;
  readonly events: Events;
}

type Step = 'admit' | 'advance' | 'plan' | 'explain' | 'count';

interface Entry {
  readonly pair: WatchedPair;
  unwatch: () => void;
  /** When the last viewer left. */
  emptySince: number;
}

interface SingleView {
  readonly pair: WatchedPair;
  readonly user: string;
  readonly until: number;
}

// Shorter than the database keeps a pair warm, so that a pair that lingers here is still kept fresh.
const lingerMs = 10_000;
const maxLingering = 10_000;
const singleViewMs = 15_000;
const countBatch = 1_000;
const recheckBatch = 200;

/** All pairs that are viewed through this process. */
export class WatchedPairs {
  readonly #options: WatchedPairsOptions;
  readonly #entries = new Map<string, Entry>();
  /** Counts of pairs under row security, which several entries share. */
  readonly #sharedCounts = new Map<string, ViewerCount>();
  readonly #empty = new Set<Entry>();
  readonly #singleViews = new Set<SingleView>();
  /** Data types whose pairs are being looked up again. */
  readonly #rechecking = new Set<string>();

  constructor(options: WatchedPairsOptions) {
    this.#options = options;
  }

  get size(): number {
    return this.#entries.size;
  }

  /** Finds a watched pair by its key as the registry spells it. */
  find(pair: GatewayPair, reader?: RlsReader): WatchedPair | undefined {
    return this.#entries.get(nameOf(pair, reader))?.pair;
  }

  /** Adds a subscription. Nothing is sent until it is offered a status. */
  subscribe(resolved: ResolvedPair, user: string, subscriber: Subscriber, clientVersion?: string): Subscription {
    const pair = this.#addViewer(resolved, user);
    const parsed = parseVersion(clientVersion);
    const subscription = { pair, subscriber, version: parsed?.version ?? '', digest: parsed?.digest, isNew: true };
    pair.subscriptions.add(subscription);
    return subscription;
  }

  unsubscribe(subscription: Subscription, user: string): void {
    subscription.pair.subscriptions.delete(subscription);
    this.#removeViewer(subscription.pair, user);
  }

  /** Counts a user who reads once as a viewer, for a moment. */
  viewOnce(resolved: ResolvedPair, user: string): WatchedPair {
    const pair = this.#addViewer(resolved, user);
    this.#singleViews.add({ pair, user, until: performance.now() + singleViewMs });
    return pair;
  }

  /** Ends single views, explains pairs that are due, and closes pairs that had no viewers for a while. */
  tidy(now = performance.now()): void {
    for (const view of this.#singleViews) {
      if (view.until > now) break;
      this.#singleViews.delete(view);
      this.#removeViewer(view.pair, view.user);
    }
    for (const { pair } of this.#entries.values()) pair.updateIfDue(now);
    for (const entry of this.#empty) {
      if (entry.emptySince > now - lingerMs && this.#empty.size <= maxLingering) break;
      this.#close(entry);
    }
  }

  /** Looks all pairs up again, because keys, data types and readers' rights change, and re-reads those under row security. */
  recheck(): void {
    this.#options.cache.rereadRls();
    for (const [dataType, ofType] of Map.groupBy(this.#entries.values(), ({ pair }) => pair.dataType)) {
      // Each type on its own: skip unresponsive types, and types whose last recheck is still running.
      if (this.#rechecking.has(dataType) || this.#options.queries.isUnresponsive(dataType)) continue;
      this.#rechecking.add(dataType);
      void this.#recheckType(ofType).finally(() => this.#rechecking.delete(dataType));
    }
  }

  /** Sends viewer counts to the subscribers that want them. */
  async sendViewerCounts(): Promise<void> {
    const pairs = [...this.#entries.values()].flatMap(({ pair }) => (pair.wantsViewerCounts ? [pair] : []));
    for (let first = 0; first < pairs.length; first += countBatch) {
      const batch = pairs.slice(first, first + countBatch);
      const counts = await this.#unlessFailed('count', this.#options.queries.countViewers(batch));
      for (const [index, count] of counts?.entries() ?? []) batch[index]!.sendViewerCount(count);
    }
  }

  close(): void {
    for (const entry of this.#entries.values()) this.#close(entry);
  }

  #addViewer(resolved: ResolvedPair, user: string): WatchedPair {
    const name = nameOf(resolved, resolved.reader);
    let entry = this.#entries.get(name);
    if (!entry) {
      const { queries } = this.#options;
      const pair = new WatchedPair(resolved, this.#viewerCount(resolved), (explained) =>
        this.#unlessFailed('explain', queries.explain(explained)),
      );
      pair.viewerCount.watchedPairs += 1;
      entry = { pair, unwatch: () => {}, emptySince: Infinity };
      this.#entries.set(name, entry);
      void this.#watch(entry, resolved.isPlanned ?? false);
    }
    this.#empty.delete(entry);
    this.#updateDemand(entry.pair, () => entry.pair.addViewer(user));
    return entry.pair;
  }

  #viewerCount(resolved: ResolvedPair): ViewerCount {
    if (!resolved.reader) return new ViewerCount();
    const known = this.#sharedCounts.get(nameOf(resolved));
    if (known) return known;
    const count = new ViewerCount();
    this.#sharedCounts.set(nameOf(resolved), count);
    return count;
  }

  // Plans before it reads, so that the first state says that the pair is queued.
  async #watch(entry: Entry, isPlanned: boolean): Promise<void> {
    const { pair } = entry;
    const { queries, cache } = this.#options;
    const { reader } = pair;
    // If planning fails, the planner still finds the pair by its viewer count.
    if (!isPlanned) await this.#unlessFailed('plan', queries.plan(pair));
    this.#startCounting(pair);
    if (reader && reader.group !== reader.tag) await this.#unlessFailed('advance', queries.advanceVersions());
    if (!this.#isOpen(entry)) return;
    const watcher = {
      onState: (state: PairState) => pair.setState(state),
      onUnresponsive: () => pair.setUnresponsive(),
      onGone: (why: LossReason) => this.#lose(entry, lossError(why, pair)),
    };
    entry.unwatch = cache.watch(pair, watcher, reader);
  }

  #isOpen(entry: Entry): boolean {
    return this.#entries.get(nameOf(entry.pair, entry.pair.reader)) === entry;
  }

  async #recheckType(ofType: readonly Entry[]): Promise<void> {
    const byKey = [...Map.groupBy(ofType, ({ pair }) => pair.key).values()];
    // In batches, so that new requests in between do not wait for all of them.
    for (let first = 0; first < byKey.length; first += recheckBatch)
      await Promise.all(byKey.slice(first, first + recheckBatch).map((entries) => this.#recheckPair(entries)));
  }

  async #recheckPair(entries: readonly Entry[]): Promise<void> {
    const { dataType, key } = entries[0]!.pair;
    const lookup = await this.#unlessFailed('admit', this.#options.queries.lookUp({ dataType, key }));
    if (!lookup) return;
    for (const entry of entries) {
      const error = lookupError(lookup) ?? changeError(lookup, entry.pair);
      if (error) this.#lose(entry, error);
    }
  }

  async #unlessFailed<Answer>(step: Step, query: Promise<Answer>): Promise<Answer | undefined> {
    try {
      return await query;
    } catch (error) {
      this.#options.events.emit({ type: 'gateway.failed', step, problem: problemOf(error) });
      return undefined;
    }
  }

  #lose(entry: Entry, why: PgfreshError): void {
    const { pair } = entry;
    if (!this.#isOpen(entry)) return;
    this.#close(entry);
    if (pair.viewerCount.watchedPairs === 0) this.#options.demand.set(pair.type, pair.key, 0);
    for (const subscription of pair.subscriptions) subscription.subscriber.revoke(subscription, why);
  }

  #removeViewer(pair: WatchedPair, user: string): void {
    this.#updateDemand(pair, () => pair.removeViewer(user));
    const entry = this.#entries.get(nameOf(pair, pair.reader));
    if (pair.hasViewers || entry?.pair !== pair) return;
    entry.emptySince = performance.now();
    this.#empty.add(entry);
  }

  #updateDemand({ viewerCount, type, key }: WatchedPair, change: () => void): void {
    const before = viewerCount.size;
    change();
    // A lost pair no longer counts; a new entry may have its name.
    if (viewerCount.size !== before && viewerCount.watchedPairs > 0 && viewerCount.isPlanned)
      this.#options.demand.set(type, key, viewerCount.size);
  }

  // Not before the pair is planned: that statement counts the first viewer, and would wait for a write of the count.
  #startCounting({ viewerCount, type, key }: WatchedPair): void {
    if (viewerCount.isPlanned || viewerCount.watchedPairs === 0) return;
    viewerCount.isPlanned = true;
    if (viewerCount.size > 0) this.#options.demand.set(type, key, viewerCount.size);
  }

  #close(entry: Entry): void {
    const { viewerCount, reader } = entry.pair;
    this.#empty.delete(entry);
    this.#entries.delete(nameOf(entry.pair, reader));
    viewerCount.watchedPairs -= 1;
    if (reader && viewerCount.watchedPairs === 0) this.#sharedCounts.delete(nameOf(entry.pair));
    entry.unwatch();
  }
}

// Neither a data type nor a key contains a line break.
function nameOf({ dataType, key }: GatewayPair, reader?: RlsReader): string {
  return reader ? `${dataType} ${key}\n${reader.group}` : `${dataType} ${key}`;
}

function changeError(lookup: PairLookup, { dataType, type, key, reader }: WatchedPair): PgfreshError | undefined {
  if (!('found' in lookup)) return undefined;
  const { found } = lookup;
  const isReplaced = found.type !== type;
  if (!isReplaced && (found.visibility === 'rls') === (reader !== undefined)) return undefined;
  const problem = isReplaced
    ? 'its data type was removed and added again'
    : 'the visibility of its data type just changed';
  return new PgfreshError('PGF_LIVE_UNDECIDED', { pair: `${dataType} ${key}`, problem });
}

function lossError(why: LossReason, { dataType, key }: GatewayPair): PgfreshError {
  if (why === 'gone')
    return new PgfreshError('PGF_TYPE_UNKNOWN', { problem: `there is no data type '${dataType}' any more` });
  if (why !== 'undecided') return why;
  const problem = 'its row security failed or took too long';
  return new PgfreshError('PGF_LIVE_UNDECIDED', { pair: `${dataType} ${key}`, problem });
}
