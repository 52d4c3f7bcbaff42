import type { PairId, PairState, RlsReader } from '../../changes/index.ts';
import type { GatewayPair } from '../../config/index.ts';
import type { PgfreshError } from '../../errors/index.ts';
import type { StateHead } from '../protocol.ts';
import { stateSentences } from '../sentences.ts';
import type { PairExplanation } from './pair-queries.ts';
import {
  asViewed,
  isFreshAndIdle,
  isSameStatus,
  isStale,
  pairStatus,
  unresponsive,
  type PairStatus,
  type PartialExplanation,
} from './pair-status.ts';
import type { ViewerCount } from './viewer-count.ts';

/** A pair with the name and the number of its data type, and the key as the registry spells it. */
export interface ResolvedPair extends GatewayPair, PairId {
  /** The reader, for a data type with row security. */
  readonly reader?: RlsReader | undefined;
  /** Whether the pair was just planned, that is, queued if it had to be. */
  readonly isPlanned?: boolean;
}

/** One subscriber's view of a pair. */
export interface Subscription {
  readonly pair: WatchedPair;
  readonly subscriber: Subscriber;
  /** The version that the client has, or ''. */
  version: string;
  /** The digest of the rows that the client has. */
  digest: string | undefined;
  /** Whether the client was sent no state yet. */
  isNew: boolean;
  /** The viewer count that the client was last sent. */
  viewers?: number;
}

export interface Subscriber {
  /** The pair has a newer status than the client. */
  offer(subscription: Subscription): void;
  /** The pair can no longer be viewed. */
  revoke(subscription: Subscription, why: PgfreshError): void;
  /** The data type does not answer, and there is no state to send yet. */
  sendUnresponsive(subscription: Subscription): void;
  readonly wantsViewerCounts: boolean;
  sendViewerCount(subscription: Subscription, viewers: number): void;
}

// Re-explain unhealthy pairs, with backoff; pairs of an unresponsive type without, because that costs nothing. A job
// queued for a first viewer usually ends before its wait would be explained, so its explanation is delayed.
const explainAfterMs = { queued: 250, first: 2_000, last: 30_000, unresponsive: 1_000 } as const;

/** Explains a pair; undefined if that failed. */
export type Explain = (pair: GatewayPair) => Promise<PairExplanation | 'unresponsive' | undefined>;

/** A pair that is viewed through this process, with its status and all subscriptions that see the same of it. */
export class WatchedPair implements ResolvedPair {
  readonly dataType: string;
  readonly type: number;
  readonly key: string;
  readonly reader: RlsReader | undefined;
  /** All viewers of the pair, including those that see other rows of it. */
  readonly viewerCount: ViewerCount;
  readonly subscriptions = new Set<Subscription>();
  readonly #messages = new Map<string, Buffer>();
  readonly #explain: Explain;
  #state: PairState | undefined;
  #readAt = 0;
  #status: PairStatus | undefined;
  #revision = 0;
  #explainAt = Infinity;
  #explainPauseMs: number = explainAfterMs.first;
  #isExplaining = false;
  #isUnresponsive = false;
  #viewers = 0;

  constructor({ dataType, type, key, reader }: ResolvedPair, viewerCount: ViewerCount, explain: Explain) {
    this.dataType = dataType;
    this.type = type;
    this.key = key;
    this.reader = reader;
    this.viewerCount = viewerCount;
    this.#explain = explain;
  }

  /** Undefined until the pair was read. */
  get status(): PairStatus | undefined {
    return this.#status;
  }

  /** The age of the newest row, by the database's clock. */
  get ageMs(): number {
    const { fetchedAt = null, asOf } = this.#state ?? {};
    return fetchedAt === null || !asOf ? Infinity : asOf.getTime() - fetchedAt.getTime() + this.#sinceReadMs;
  }

  get hasViewers(): boolean {
    return this.#viewers > 0;
  }

  /** Identifies the rows; equal rows have equal tags for all readers that see the same. */
  get tag(): string {
    return [this.#status!.digest, ...(this.reader ? [this.reader.tag] : [])].join('-');
  }

  addViewer(user: string): void {
    this.#viewers += 1;
    this.viewerCount.add(user);
  }

  removeViewer(user: string): void {
    this.#viewers -= 1;
    this.viewerCount.remove(user);
  }

  /** Whether there is nothing to show, because the data type does not answer. */
  get isUnresponsive(): boolean {
    return this.#isUnresponsive && !this.#state;
  }

  /** The data type does not answer; the next state ends this. */
  setUnresponsive(): void {
    this.#isUnresponsive = true;
    if (this.#state) this.#updateStatus();
    else for (const subscription of this.subscriptions) subscription.subscriber.sendUnresponsive(subscription);
  }

  setState(state: PairState): void {
    this.#isUnresponsive = false;
    this.#state = state;
    this.#readAt = performance.now();
    this.#revision = 0;
    this.#explainPauseMs = explainAfterMs.first;
    this.#updateStatus();
  }

  /** Explains the pair again when that is due: fresh data may have gone stale without a refresh. */
  updateIfDue(now: number): void {
    if (now >= this.#explainAt && this.hasViewers) this.#updateStatus();
  }

  get wantsViewerCounts(): boolean {
    for (const { subscriber } of this.subscriptions) if (subscriber.wantsViewerCounts) return true;
    return false;
  }

  /** Sends the number of viewers over all gateways. */
  sendViewerCount(viewers: number): void {
    for (const subscription of this.subscriptions) {
      if (subscription.subscriber.wantsViewerCounts && subscription.viewers !== viewers)
        subscription.subscriber.sendViewerCount(subscription, viewers);
    }
  }

  /** The encoded status, encoded once for all subscribers. Rows are left out for clients that have them. */
  message(type: StateHead['type'], withRows: boolean): Buffer {
    // Clients that have the status know when it goes stale. One that comes between then and the next update does not.
    const status = this.#status!;
    if (status.state === 'fresh' && isStale({ ...status, asOf: this.#state!.asOf }, this.#sinceReadMs))
      return this.#encode(type, withRows, { ...status, state: 'stale', words: status.words || stateSentences.stale });
    const name = `${type} ${withRows}`;
    let message = this.#messages.get(name);
    if (!message) this.#messages.set(name, (message = this.#encode(type, withRows, status)));
    return message;
  }

  #updateStatus(): void {
    const state = this.#state!;
    const isFresh = isFreshAndIdle(state, this.#sinceReadMs);
    this.#explainAt = this.#staleAt(state);
    if (this.#isUnresponsive) this.#setStatus(unresponsive);
    // The reason why a pair waits may reveal rows that this reader may not see.
    else if (this.reader || isFresh) this.#setStatus();
    else if (!this.#status && hasOpenJob(state)) {
      this.#explainAt = performance.now() + explainAfterMs.queued;
      this.#setStatus();
    } else if (!this.#isExplaining) void this.#explainStatus();
  }

  async #explainStatus(): Promise<void> {
    const explained = this.#state;
    this.#isExplaining = true;
    const explanation = await this.#explain(this);
    this.#isExplaining = false;
    if (this.#state !== explained || this.#isUnresponsive) return this.#updateStatus();
    const isQuarantined = explanation === 'unresponsive' || explanation?.reason === 'quarantined';
    if (isQuarantined) this.#explainPauseMs = explainAfterMs.unresponsive;
    this.#explainAt = Math.min(performance.now() + this.#explainPauseMs, this.#staleAt(explained!));
    this.#explainPauseMs = Math.min(explainAfterMs.last, this.#explainPauseMs * 2);
    if (explanation === 'unresponsive') this.#setStatus(unresponsive);
    else this.#setStatus(asViewed(explanation ?? { ...this.#state!, until: null }));
  }

  // Slightly later than the data goes stale, when a planner will have queued the pair.
  #staleAt({ state, staleAt, asOf }: PairState): number {
    const at = this.#readAt + (staleAt?.getTime() ?? 0) - asOf.getTime() + explainAfterMs.first;
    return (state === 'fresh' || state === 'empty') && at > performance.now() ? at : Infinity;
  }

  get #sinceReadMs(): number {
    return performance.now() - this.#readAt;
  }

  #setStatus(explanation?: PartialExplanation): void {
    const status = pairStatus(this.#state!, this.#revision, this.#sinceReadMs, explanation);
    if (this.#status && isSameStatus(this.#status, status)) return;
    this.#revision += 1;
    this.#status = status;
    this.#messages.clear();
    for (const subscription of this.subscriptions) subscription.subscriber.offer(subscription);
  }

  #encode(type: StateHead['type'], withRows: boolean, shown: PairStatus): Buffer {
    const { version, rows, status, state, activity, reason, words, until, error, fetchedAt, staleAt, sourceAt } = shown;
    const head: StateHead = {
      type,
      pair: [this.dataType, this.key],
      version: `${version}-${this.tag}`,
      status,
      state,
      activity,
      reason,
      words,
      until,
      error,
      fetched_at: fetchedAt,
      stale_at: staleAt,
      source_at: sourceAt,
    };
    const text = JSON.stringify(head);
    // The rows are already JSON, and may be large.
    return Buffer.from(withRows ? `${text.slice(0, -1)},"rows":${rows}}` : text);
  }
}

/** Whether the pair has an open job, and no known reason to wait. */
function hasOpenJob({ activity, reason }: PairState): boolean {
  return activity === 'refreshing' || reason === 'queued';
}

/** Parses a version that a client sent; undefined if it is not one of ours. */
export function parseVersion(
  text: string | undefined,
): { readonly version: string; readonly digest: string; readonly readerTag: string | undefined } | undefined {
  const [, version, digest, readerTag] = /^([^-]+)-([^-]+)(?:-([^-]+))?$/.exec(text ?? '') ?? [];
  return version === undefined || digest === undefined ? undefined : { version, digest, readerTag };
}
