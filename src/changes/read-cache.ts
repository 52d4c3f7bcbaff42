import { failureOf, isTimeout, type Failure } from '../database/index.ts';
import { PgfreshError, problemOf } from '../errors/index.ts';
import type { Events } from '../events/index.ts';
import { pause, Service, TokenBucket } from '../lifecycle/index.ts';
import type { Change, ChangeNotice } from './bus.ts';
import { FairQueue, type QueueName } from './fair-queue.ts';
import type { OutboxFeed } from './outbox-feed.ts';
import { hasEnded, type PgSnapshot } from './pg-snapshot.ts';
import { applyReadings, ReadGroup, type CachedPair, type LossReason, type PairWatcher } from './read-group.ts';
import type { PairId, ReadPairs } from './read-pairs.ts';
import type { RlsReader } from './rls-reader.ts';

export interface ReadCacheOptions {
  readonly feed: Pick<OutboxFeed, 'subscribe' | 'watch' | 'unwatch'>;
  readonly read: ReadPairs;
  readonly events: Events;
  /** Called for timeouts that should be reported. */
  readonly onTimeout?: (type: number, problem: string) => void;
}

interface CachedType {
  readonly id: number;
  /** By the group name of their reader; '' for rows that everyone may see. */
  readonly groups: Map<string, ReadGroup>;
  /** For each key, its pair in each group that has it. */
  readonly pairs: Map<string, Map<ReadGroup, CachedPair>>;
}

export const maxReads = 4;
/** Concurrent reads under row security per data type. A type without row security has one group, so one read at a time. */
const maxRlsReadsPerType = 3;
/** Reads under row security. One change of a pair with many readers must leave room for everything else. */
const rlsReadsPerSecond = 500;
const slowMs = 1_000;
const retryBudgetMs = 20;
/** A notice about more pairs than this goes to the queue 'many'. */
const fewPairs = 50;
const minBackoffMs = 100;
const maxBackoffMs = 5_000;
/** After this many failed reads of a pair in a row, its policies count as undecided. */
const maxFailures = 2;

/** Transient failures, unrelated to authorization. */
const transient: ReadonlySet<Failure> = new Set([
  'connection',
  'deadlock',
  'serialization',
  'lock_timeout',
  'resources',
]);

/**
 * The newest state of every pair that is watched through this process, read once for all viewers that see it alike.
 * A type is watched before its pairs are read, and a pair that changes during a read is read again. Each pair has at
 * most one read at a time, so a later read has a later snapshot.
 */
export class ReadCache extends Service {
  readonly name = 'read cache';
  readonly #options: ReadCacheOptions;
  readonly #types = new Map<number, CachedType>();
  readonly #sharedReads = new FairQueue<ReadGroup>(maxReads);
  readonly #rlsReads = new FairQueue<ReadGroup>(maxReads, maxRlsReadsPerType);
  readonly #rlsBudget = new TokenBucket(rlsReadsPerSecond, rlsReadsPerSecond / 5);
  readonly #running = new Set<Promise<void>>();
  #budgetTimer: NodeJS.Timeout | undefined;
  readonly #probeTimers = new Set<NodeJS.Timeout>();
  #unsubscribe: (() => void) | undefined;

  constructor(options: ReadCacheOptions) {
    super();
    this.#options = options;
  }

  /**
   * Calls the watcher with the cached state, if there is one, and with every newer one until the returned function is
   * called. With a reader, the state has the rows that the reader may see.
   */
  watch({ type: id, key }: PairId, watcher: PairWatcher, reader?: RlsReader): () => void {
    const type = this.#type(id);
    const group = groupOf(type, reader);
    const pair = type.pairs.get(key)?.get(group) ?? this.#add(type, group, key);
    pair.watchers.add(watcher);
    if (pair.state) watcher.onState(pair.state);
    else pair.isUnresponsive ||= this.#queue(group).isUnresponsive(id);
    if (pair.isUnresponsive) watcher.onUnresponsive();
    return () => this.#unwatch(type, pair, watcher);
  }

  /** Reads all pairs under row security again: what readers may see can change without a mark. */
  rereadRls(): void {
    for (const type of this.#types.values()) {
      const [first] = type.groups.values();
      if (!first?.reader) continue;
      for (const pair of pairsOf(type)) if (pair.group.reader) this.#markDirty(pair, 'many');
    }
  }

  protected async onStart(): Promise<void> {
    this.#unsubscribe = this.#options.feed.subscribe((notice) => this.#receive(notice));
    this.#startReads();
  }

  protected async onStop(): Promise<void> {
    this.#unsubscribe?.();
    clearTimeout(this.#budgetTimer);
    for (const timer of this.#probeTimers) clearTimeout(timer);
    await Promise.all(this.#running);
  }

  #type(id: number): CachedType {
    const known = this.#types.get(id);
    if (known) return known;
    const type: CachedType = { id, groups: new Map(), pairs: new Map() };
    this.#types.set(id, type);
    return type;
  }

  #add(type: CachedType, group: ReadGroup, key: string): CachedPair {
    const pair = {
      key,
      group,
      watchers: new Set<PairWatcher>(),
      state: undefined,
      snapshot: undefined,
      failures: 0,
      isUnresponsive: false,
    };
    const ofKey = type.pairs.get(key);
    if (ofKey) ofKey.set(group, pair);
    else type.pairs.set(key, new Map([[group, pair]]));
    group.size += 1;
    group.unread.add(pair);
    this.#enqueue(group, 'first');
    return pair;
  }

  #unwatch(type: CachedType, pair: CachedPair, watcher: PairWatcher): void {
    pair.watchers.delete(watcher);
    if (pair.watchers.size === 0) this.#remove(type, pair);
  }

  #remove(type: CachedType, pair: CachedPair): void {
    const { key, group } = pair;
    const ofKey = type.pairs.get(key);
    if (ofKey?.get(group) !== pair) return;
    ofKey.delete(group);
    if (ofKey.size === 0) type.pairs.delete(key);
    group.unread.delete(pair);
    group.dirty.delete(pair);
    group.size -= 1;
    if (group.size > 0) return;
    type.groups.delete(group.reader?.group ?? '');
    this.#queue(group).delete(group);
    if (type.groups.size === 0) this.#removeType(type);
  }

  #removeType(type: CachedType): void {
    if (this.#types.get(type.id) !== type) return;
    this.#types.delete(type.id);
    for (const group of type.groups.values()) this.#queue(group).delete(group);
    this.#options.feed.unwatch(type.id, this);
  }

  #receive(notice: ChangeNotice): void {
    const changes: readonly Change[] =
      notice === 'missed' ? [...this.#types.keys()].map((type) => ({ type, keys: undefined })) : notice;
    for (const [id, ofType] of Map.groupBy(changes, ({ type }) => type)) {
      const type = this.#types.get(id);
      if (type) this.#applyChanges(type, ofType);
    }
  }

  #applyChanges(type: CachedType, changes: readonly Change[]): void {
    const changed = changes.map(({ keys, xids }) => ({ pairs: pairsWith(type, keys), xids }));
    const queue = changed.reduce((sum, { pairs }) => sum + pairs.length, 0) > fewPairs ? 'many' : 'few';
    for (const { pairs, xids } of changed) this.#markChanged(pairs, xids, queue);
  }

  #markChanged(pairs: readonly CachedPair[], xids: readonly number[] | undefined, queue: QueueName): void {
    // Pairs that were read together share a snapshot, so the check is made once per snapshot.
    const checked = new Map<PgSnapshot, boolean>();
    for (const pair of pairs) {
      // A change may arrive by the bus and by polling. Skip it if the cached state includes it.
      if (xids && pair.snapshot && includesAll(pair.snapshot, xids, checked)) continue;
      // Unknown transactions may be those after a crash, which can reuse xids.
      if (!xids) pair.snapshot = undefined;
      this.#markDirty(pair, queue, xids);
    }
  }

  #markDirty(pair: CachedPair, queue: QueueName, xids?: readonly number[]): void {
    if (!pair.group.unread.has(pair)) pair.group.markDirty(pair, xids);
    this.#enqueue(pair.group, queue);
  }

  #queue(group: ReadGroup): FairQueue<ReadGroup> {
    return group.reader ? this.#rlsReads : this.#sharedReads;
  }

  #enqueue(group: ReadGroup, queue: QueueName): void {
    // A busy group re-queues itself.
    if (group.isBusy || group.unread.size + group.dirty.size === 0) return;
    this.#queue(group).add(group, queue);
    this.#startReads();
  }

  #startReads(): void {
    if (this.stopSignal.aborted) return;
    for (let group = this.#sharedReads.next(); group; group = this.#sharedReads.next()) this.#start(group);
    while (this.#rlsReads.hasNext) {
      if (!this.#rlsBudget.take()) {
        this.#budgetTimer ??= setTimeout(() => ((this.#budgetTimer = undefined), this.#startReads()), retryBudgetMs);
        return;
      }
      this.#start(this.#rlsReads.next()!);
    }
  }

  #start(group: ReadGroup): void {
    group.isBusy = true;
    const run = this.#run(group).finally(() => this.#running.delete(run));
    this.#running.add(run);
  }

  async #run(group: ReadGroup): Promise<void> {
    const queue = this.#queue(group);
    const startedAt = performance.now();
    const outcome = await this.#read(group, queue);
    const isSlow = performance.now() - startedAt > slowMs;
    if (typeof outcome === 'object') {
      if (queue.end(group, 'timeout')) this.#options.onTimeout?.(group.type, outcome.timeout);
      if (queue.isUnresponsive(group.type)) this.#markUnresponsive(group.type, queue);
    } else queue.end(group, isSlow ? 'slow' : 'done');
    this.#startReads();
    group.backoffMs = outcome === 'failed' ? Math.min(maxBackoffMs, Math.max(minBackoffMs, group.backoffMs * 2)) : 0;
    if (outcome === 'failed') await pause(group.backoffMs, this.stopSignal);
    group.isBusy = false;
    if (group.size > 0) this.#enqueue(group, group.unread.size > 0 ? 'first' : 'few');
  }

  /** Reads a batch of pairs, or a single one as a probe if the type is unresponsive. */
  async #read(
    group: ReadGroup,
    queue: FairQueue<ReadGroup>,
  ): Promise<'done' | 'failed' | { readonly timeout: string }> {
    const { feed, read, events } = this.#options;
    const type = this.#types.get(group.type)!;
    const isProbe = queue.isUnresponsive(group.type);
    let batch: CachedPair[] = [];
    try {
      await feed.watch(group.type, this);
      batch = group.take(isProbe ? 1 : group.batchSize.size);
      const keys = batch.map(({ key }) => key);
      const options = { reader: group.reader, isShortProbe: queue.isShortProbe(group.type) };
      applyReadings(batch, keys.length > 0 ? await read(group.type, keys, options) : []);
      group.batchSize.grow();
      return 'done';
    } catch (error) {
      group.putBack(batch);
      const code = error instanceof PgfreshError ? (error as PgfreshError).code : undefined;
      if (code === 'PGF_TYPE_UNKNOWN') this.#loseType(type);
      if (code === 'PGF_LIVE_ROLE') this.#lose(type, pairsOf(type, group), error as PgfreshError);
      if (code === 'PGF_TYPE_UNKNOWN' || code === 'PGF_LIVE_ROLE') return 'done';
      const problem = problemOf(error);
      if (isProbe && isTimeout(error)) return { timeout: problem };
      events.emit({ type: 'gateway.failed', step: 'read', problem });
      const isPermanent = code === undefined && !transient.has(failureOf(error));
      if (group.reader && batch.length === 1 && isPermanent) this.#countFailure(type, batch[0]!);
      group.batchSize.shrink(batch.length);
      // A timeout under row security may be due to the reader's policies, and not to the data type.
      const isOfType = failureOf(error) === 'lock_timeout' || (isTimeout(error) && !group.reader);
      return isOfType ? { timeout: problem } : 'failed';
    }
  }

  /** Tells the watchers that wait for the type, and schedules a probe. */
  #markUnresponsive(id: number, queue: FairQueue<ReadGroup>): void {
    const groups = [...(this.#types.get(id)?.groups.values() ?? [])].filter((group) => this.#queue(group) === queue);
    for (const pair of groups.flatMap(({ unread, dirty }) => [...unread, ...dirty.keys()])) {
      if (pair.isUnresponsive) continue;
      pair.isUnresponsive = true;
      for (const watcher of pair.watchers) watcher.onUnresponsive();
    }
    this.#scheduleProbe(id, queue);
  }

  #scheduleProbe(id: number, queue: FairQueue<ReadGroup>): void {
    const timer = setTimeout(
      () => {
        this.#probeTimers.delete(timer);
        // Timers can fire a fraction of a millisecond early.
        if (queue.waitMs(id) > 0) this.#scheduleProbe(id, queue);
        else this.#startReads();
      },
      Math.ceil(queue.waitMs(id)),
    );
    this.#probeTimers.add(timer);
  }

  // The watcher is not told what a policy raised: the text may contain data of a row.
  #countFailure(type: CachedType, pair: CachedPair): void {
    pair.failures += 1;
    if (pair.failures >= maxFailures) this.#lose(type, [pair], 'undecided');
  }

  #lose(type: CachedType, pairs: readonly CachedPair[], why: LossReason): void {
    for (const pair of pairs) {
      this.#remove(type, pair);
      for (const watcher of pair.watchers) watcher.onGone(why);
    }
  }

  #loseType(type: CachedType): void {
    this.#removeType(type);
    const watchers = pairsOf(type).flatMap((pair) => [...pair.watchers]);
    for (const group of type.groups.values()) group.size = 0;
    type.pairs.clear();
    for (const watcher of watchers) watcher.onGone('gone');
  }
}

function groupOf(type: CachedType, reader: RlsReader | undefined): ReadGroup {
  const name = reader?.group ?? '';
  const known = type.groups.get(name);
  if (known) return known;
  const group = new ReadGroup(type.id, reader);
  type.groups.set(name, group);
  return group;
}

function pairsOf(type: CachedType, group?: ReadGroup): CachedPair[] {
  const all = [...type.pairs.values()].flatMap((ofKey) => [...ofKey.values()]);
  return group ? all.filter((pair) => pair.group === group) : all;
}

function pairsWith(type: CachedType, keys: readonly string[] | undefined): CachedPair[] {
  return keys?.flatMap((key) => [...(type.pairs.get(key)?.values() ?? [])]) ?? pairsOf(type);
}

function includesAll(snapshot: PgSnapshot, xids: readonly number[], checked: Map<PgSnapshot, boolean>): boolean {
  const answer = checked.get(snapshot) ?? xids.every((xid) => hasEnded(snapshot, xid));
  checked.set(snapshot, answer);
  return answer;
}
