import { Counter, Gauge, Histogram, Registry } from '@prometheus-io/client';
import type { EventOf, Events, PgfreshEvent } from '../events/index.ts';
import { countedStates, type Overview } from './overview.ts';

/** Prometheus metrics, derived from events; no other part of pgfresh knows about metrics. */
export class Metrics {
  readonly #registry = new Registry();
  readonly #events = this.#counter('pgfresh_events_total', 'Everything that happened, by type.', ['type']);
  readonly #warnings = this.#counter('pgfresh_warnings_total', 'Warnings, by code.', ['code']);
  readonly #retries = this.#counter(
    'pgfresh_transaction_retries_total',
    'Transactions that were repeated, by what failed.',
    ['failure'],
  );
  readonly #migrations = new Histogram({
    name: 'pgfresh_migration_seconds',
    help: 'How long SQL files took to apply.',
    buckets: [0.01, 0.1, 1, 10, 60],
    registers: [this.#registry],
  });

  readonly #planned = this.#counter(
    'pgfresh_planner_pairs_total',
    'Pairs that the planner looked at, by what it found.',
    ['kind', 'result'],
  );
  readonly #planning = new Histogram({
    name: 'pgfresh_planner_seconds',
    help: 'How long ticks and sweeps took.',
    labelNames: ['kind'],
    buckets: [0.001, 0.005, 0.02, 0.1, 0.5, 2, 10, 60],
    registers: [this.#registry],
  });

  readonly #refreshes = this.#counter('pgfresh_refreshes_total', 'Refreshes, by data type and outcome.', [
    'data_type',
    'outcome',
  ]);
  readonly #refreshing = new Histogram({
    name: 'pgfresh_refresh_seconds',
    help: 'How long the steps of refreshes took.',
    labelNames: ['step'],
    buckets: [0.001, 0.005, 0.02, 0.1, 0.5, 2, 10],
    registers: [this.#registry],
  });
  readonly #calls = this.#counter(
    'pgfresh_source_calls_total',
    'Calls that were sent to a source, by what came of them.',
    ['source', 'outcome'],
  );
  readonly #cached = this.#counter('pgfresh_source_cached_total', 'Answers that came from the cache.', ['source']);
  readonly #bytes = this.#counter('pgfresh_source_bytes_total', 'Bytes that came from a source.', ['source']);
  readonly #called = new Histogram({
    name: 'pgfresh_source_seconds',
    help: 'How long a source took to answer.',
    labelNames: ['source'],
    buckets: [0.01, 0.03, 0.1, 0.3, 1, 3, 10],
    registers: [this.#registry],
  });

  readonly #runs = this.#counter(
    'pgfresh_scheduled_runs_total',
    'Runs of scheduled jobs, by job and what came of them.',
    ['job', 'outcome'],
  );
  readonly #skips = this.#counter(
    'pgfresh_scheduled_skips_total',
    'Slots of scheduled jobs that did not run, by reason.',
    ['job', 'reason'],
  );
  readonly #running = new Histogram({
    name: 'pgfresh_scheduled_run_seconds',
    help: 'How long runs of scheduled jobs took.',
    buckets: [0.01, 0.05, 0.2, 1, 5, 30, 300],
    registers: [this.#registry],
  });
  readonly #lateness = new Histogram({
    name: 'pgfresh_scheduled_lateness_seconds',
    help: 'How long after its time a run of a scheduled job began, of those that were not missed before.',
    buckets: [0.01, 0.05, 0.2, 1, 5, 30, 300],
    registers: [this.#registry],
  });
  readonly #connections = new Gauge({
    name: 'pgfresh_gateway_connections',
    help: 'Clients that are connected to this gateway.',
    labelNames: ['transport'],
    registers: [this.#registry],
  });
  readonly #refusals = this.#counter('pgfresh_gateway_refusals_total', 'What the gateway refused, by code.', ['code']);
  readonly #skipped = this.#counter(
    'pgfresh_gateway_skipped_total',
    'States that were left out for clients that read slowly.',
    [],
  );

  constructor(events: Events) {
    this.#gauge('process_resident_memory_bytes', 'Memory of this process.', () => process.memoryUsage.rss());
    this.#gauge('process_uptime_seconds', 'Age of this process.', () => process.uptime());
    this.#gauge('process_cpu_seconds_total', 'Processor time of this process.', cpuSeconds);
    events.subscribe((event) => this.#count(event));
  }

  /** Viewed pairs by state, read when someone asks. Where they cannot be read there are none, rather than old ones. */
  showPairs(overview: () => Promise<Overview | undefined>): void {
    const gauge = new Gauge({
      name: 'pgfresh_viewed_pairs',
      help: 'Viewed pairs, by data type and state.',
      labelNames: ['data_type', 'state'],
      registers: [],
      async collect() {
        const types = await overview().then(
          (read) => read?.types ?? [],
          () => [],
        );
        this.reset();
        for (const type of types)
          for (const state of countedStates) this.set({ data_type: type.data_type, state }, type[state]);
      },
    });
    this.#registry.registerMetric(gauge);
  }

  get contentType(): string {
    return this.#registry.contentType;
  }

  text(): Promise<string> {
    return this.#registry.metrics();
  }

  #count(event: PgfreshEvent): void {
    this.#events.inc({ type: event.type });
    if (event.type === 'warning') this.#warnings.inc({ code: event.code });
    if (event.type === 'transaction.retried') this.#retries.inc({ failure: event.failure });
    if (event.type === 'planner.ran') {
      this.#planning.observe({ kind: event.kind }, event.ms / 1000);
      for (const [result, count] of Object.entries(event.counts))
        this.#planned.inc({ kind: event.kind, result }, count);
    }
    if (event.type === 'refresh.ended') this.#countRefresh(event);
    if (event.type === 'source.called') this.#countCall(event);
    if (event.type === 'job.ended') this.#countRun(event);
    if (event.type === 'job.skipped') this.#skips.inc({ job: event.job, reason: event.reason }, event.count);
    if (event.type === 'gateway.opened') this.#connections.inc({ transport: event.transport });
    if (event.type === 'gateway.closed') this.#connections.dec({ transport: event.transport });
    if (event.type === 'gateway.refused') this.#refusals.inc({ code: event.code });
    if (event.type === 'gateway.slow') this.#skipped.inc(event.skipped);
    if (event.type === 'migration.applied') this.#migrations.observe(event.ms / 1000);
  }

  #countRefresh({ dataType, outcome, fetchMs, validateMs, commitMs }: EventOf<'refresh.ended'>): void {
    this.#refreshes.inc({ data_type: dataType, outcome });
    for (const [step, ms] of Object.entries({ fetch: fetchMs, validate: validateMs, commit: commitMs }))
      this.#refreshing.observe({ step }, ms / 1000);
  }

  #countCall({ source, outcome, calls, wireBytes, ms }: EventOf<'source.called'>): void {
    if (outcome === 'cached') return this.#cached.inc({ source });
    this.#calls.inc({ source, outcome }, calls);
    this.#bytes.inc({ source }, wireBytes);
    this.#called.observe({ source }, ms / 1000);
  }

  #countRun({ job, outcome, ms, latenessMs, triggeredBy }: EventOf<'job.ended'>): void {
    this.#runs.inc({ job, outcome });
    this.#running.observe(ms / 1000);
    if (triggeredBy !== 'catchup') this.#lateness.observe(latenessMs / 1000);
  }

  #counter<Label extends string>(name: string, help: string, labelNames: Label[]): Counter<Label> {
    return new Counter({ name, help, labelNames, registers: [this.#registry] });
  }

  #gauge(name: string, help: string, read: () => number): void {
    const gauge = new Gauge({
      name,
      help,
      registers: [],
      collect() {
        this.set(read());
      },
    });
    this.#registry.registerMetric(gauge);
  }
}

function cpuSeconds(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1e6;
}
