import { performance } from 'node:perf_hooks';
import { problemOf } from '../errors/index.ts';
import type { WarningCode } from './warnings.ts';

export { warnings, type WarningCode } from './warnings.ts';

/**
 * Everything that happens in pgfresh, as one union. Code emits events without knowing the
 * subscribers, such as logs, metrics and alerts.
 */
export type PgfreshEvent =
  | { type: 'process.started'; version: string; roles: readonly string[] }
  | { type: 'process.stopping'; reason: string }
  | { type: 'process.stopped' }
  | { type: 'database.starting'; folder: string; fresh: boolean }
  | { type: 'database.ready'; kind: 'embedded' | 'external'; address: string; version: string; ms: number }
  | { type: 'database.server_died'; problem: string }
  | { type: 'database.connection_lost'; problem: string }
  | { type: 'transaction.retried'; label: string; failure: string; attempt: number }
  | { type: 'migration.applied'; name: string; ms: number }
  | { type: 'schema.migrated'; migrations: number; functions: number; ms: number }
  | { type: 'registry.synced'; added: number; changed: number; removed: number; sources: number }
  | { type: 'jobs.synced'; added: number; changed: number; disabled: number }
  | { type: 'http.listening'; url: string; wanted: number; port: number }
  | { type: 'http.refused'; status: number; reason: string; path: string }
  | { type: 'http.failed'; method: string; path: string; problem: string }
  | { type: 'planner.ran'; kind: 'tick' | 'sweep'; ms: number; counts: Readonly<Record<string, number>> }
  | { type: 'planner.failed'; kind: 'tick' | 'duty' | 'probe'; problem: string }
  | { type: 'demand.failed'; problem: string }
  | { type: 'gateway.opened'; transport: 'websocket' | 'events' }
  | { type: 'gateway.closed'; transport: 'websocket' | 'events' }
  /** A connection, a message or a pair was refused, with a code of the error table. */
  | { type: 'gateway.refused'; code: string; problem: string }
  /** A client read too slowly, so this many states were skipped. */
  | { type: 'gateway.slow'; skipped: number }
  | { type: 'changes.published'; types: number; ms: number }
  | {
      type: 'gateway.failed';
      step: 'round' | 'pump' | 'poll' | 'read' | 'admit' | 'advance' | 'plan' | 'explain' | 'count' | 'answer';
      problem: string;
    }
  | { type: 'worker.started'; worker: number; name: string; types: readonly string[] }
  | {
      type: 'worker.failed';
      step: 'claim' | 'hold' | 'end' | 'catalog' | 'recovery' | 'eviction' | 'lease';
      problem: string;
    }
  | { type: 'worker.evicted'; dataType: string; keys: number }
  /** The table of a data type became locked or unlocked. While locked, its answers wait and it is not fetched. */
  | { type: 'worker.locked'; dataType: string; locked: boolean }
  | { type: 'worker.lease_lost'; worker: number; name: string }
  /** The database answered a heartbeat that this process is too old for it. */
  | { type: 'process.outdated' }
  | { type: 'worker.drained'; finished: number; putBack: number; ms: number }
  | { type: 'scheduler.started'; scheduler: number; handlers: readonly string[] }
  | { type: 'scheduler.failed'; step: 'slots' | 'end' | 'heartbeat'; problem: string }
  | { type: 'scheduler.lease_lost'; scheduler: number }
  | { type: 'scheduler.recovered'; runs: number }
  | { type: 'scheduler.drained'; finished: number; handedOver: number; ms: number }
  | {
      type: 'job.ended';
      job: string;
      run: number;
      slot: Date | null;
      attempt: number;
      triggeredBy: string;
      outcome: 'succeeded' | 'failed' | 'lost' | 'cancelled';
      message: string;
      ms: number;
      latenessMs: number;
    }
  | { type: 'job.skipped'; job: string; reason: string; count: number }
  | { type: 'job.logged'; job: string; run: number; message: string; details?: Readonly<Record<string, unknown>> }
  | {
      type: 'refresh.ended';
      dataType: string;
      key: string;
      source: string;
      outcome: string;
      /** Whether the data is as good as the provider's. */
      ok: boolean;
      bytes: number;
      calls: number;
      fetchMs: number;
      validateMs: number;
      commitMs: number;
      error?: string | undefined;
    }
  | {
      type: 'source.called';
      source: string;
      dataType: string;
      /** `answered`, `cached`, or why there was no answer. */
      outcome: string;
      calls: number;
      wireBytes: number;
      ms: number;
    }
  | {
      type: 'warning';
      code: WarningCode;
      /** The subject, if one code has many: warnings are grouped by both. */
      subject?: string;
      message: string;
      next: string;
      /** Read from the table of warnings; do not write it there again. */
      recorded?: true;
    };

export type EventType = PgfreshEvent['type'];
export type EventOf<Type extends EventType> = Extract<PgfreshEvent, { type: Type }>;

const reportEveryMs = 60_000;

type Listener = (event: PgfreshEvent) => void;

/** The event bus. Emitting never throws, never waits, and reaches every subscriber. */
export class Events {
  readonly #listeners = new Set<Listener>();
  readonly #reportedAt = new WeakMap<Listener, number>();

  /** Calls the listener for every event until the returned function is called. */
  subscribe(listener: Listener): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  /** As `subscribe`, for events of one type. */
  on<Type extends EventType>(type: Type, listener: (event: EventOf<Type>) => void): () => void {
    return this.subscribe((event) => {
      if (event.type === type) listener(event as EventOf<Type>);
    });
  }

  emit(event: PgfreshEvent): void {
    for (const listener of this.#listeners) {
      try {
        listener(event);
      } catch (error) {
        this.#reportFailed(listener, event, error);
      }
    }
  }

  // A failing subscriber must not break the work that it watches. It stays subscribed, because it may handle the next
  // event. The failure is reported to all, once a minute, but not if it came from such a report.
  #reportFailed(listener: Listener, event: PgfreshEvent, error: unknown): void {
    const now = performance.now();
    if (event.type === 'warning' && event.code === 'subscriber_failed') return;
    if (now - (this.#reportedAt.get(listener) ?? -Infinity) < reportEveryMs) return;
    this.#reportedAt.set(listener, now);
    this.emit({
      type: 'warning',
      code: 'subscriber_failed',
      message: `An event subscriber failed at ${event.type}: ${problemOf(error)}`,
      next: 'Correct the subscriber; pgfresh itself is not affected.',
    });
  }
}
