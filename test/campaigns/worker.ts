import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { isDeepStrictEqual } from 'node:util';
import { Provider } from '../../examples/market/provider/provider.ts';
import { Database } from '../../src/database/index.ts';
import { Events } from '../../src/events/index.ts';
import { workerFailpoints } from '../../src/lifecycle/index.ts';
import { syncRegistry } from '../../src/registry/index.ts';
import { Worker } from '../../src/worker/index.ts';
import { shiftClock } from '../harness/clock.ts';
import { apiKey, killConfig, killTables, refused, unanswered } from '../worker/kill-types.ts';
import type { Campaign } from './campaign.ts';
import { inLanes } from './lanes.ts';

const child = fileURLToPath(new URL('../worker/worker-process.ts', import.meta.url));
const whileStopping: readonly string[] = ['worker.before-drain', 'worker.before-retire'];
const lanes = 3;
const leaseMs = 12_000;
const takenOverWithinMs = 15_000;
// More than any answer has, so that what a killed call has cost is never more than what was reserved for it.
const estimatedBytes = 2_000;
const good = ['AAPL', 'MSFT', 'NVDA', 'AMZN'];
// Once as an item and once as a part.
const writes = Object.fromEntries(good.map((symbol) => [symbol, 2]));
const outcomes = { fresh: 2 * good.length, write_conflict: refused.length, http_5xx: 1 };

/**
 * A worker process is killed at every failpoint, in turn, and another worker takes over: no job is lost, no row is written
 * twice, it takes no longer than 15 s, and the ledger has what the provider has counted, or more by what was reserved
 * for the calls of the killed one.
 */
export const worker: Campaign = {
  about: 'workers that are killed at every failpoint',
  steps: workerFailpoints.length * 20,
  testSteps: workerFailpoints.length,
  mustMeet: ['killed', 'lost', ...workerFailpoints],
  async run({ url, steps, progress }) {
    const tally: Record<string, number> = { killed: 0, lost: 0, 'slowest ms': 0 };
    let next = 0;
    await inLanes(url, lanes, async (laneUrl) => {
      const lane = await Lane.open(laneUrl);
      try {
        while (next < steps) {
          const step = next++;
          const point = workerFailpoints[step % workerFailpoints.length]!;
          const { lost, ms } = await lane.kill(point);
          tally['killed']!++;
          tally['lost']! += lost;
          tally['slowest ms'] = Math.max(tally['slowest ms']!, Math.round(ms));
          tally[point] = (tally[point] ?? 0) + 1;
          progress(step);
        }
      } finally {
        // The first failure ends the run for all.
        next = steps;
        await lane.close();
      }
    });
    return tally;
  },
};

type ShiftedClock = Awaited<ReturnType<typeof shiftClock>>;

/** A database and a provider, on which one worker after the other is killed. */
class Lane {
  readonly #url: string;
  readonly #provider: Provider;
  readonly #address: string;
  readonly #db: Database;
  readonly #clock: ShiftedClock;

  private constructor(url: string, provider: Provider, address: string, db: Database, clock: ShiftedClock) {
    this.#url = url;
    this.#provider = provider;
    this.#address = address;
    this.#db = db;
    this.#clock = clock;
  }

  static async open(url: string): Promise<Lane> {
    const provider = new Provider({ port: 0, seed: 1, keys: [apiKey], limit: undefined, latencyMs: 0 });
    provider.faults.order({ kind: 'error_500', symbol: unanswered });
    const address = await provider.start();
    const db = new Database({ url, events: new Events(), applicationName: 'pgfresh campaign' });
    await db.query(killTables);
    await syncRegistry(db, killConfig(address), new Events());
    const clock = await shiftClock(db);
    // A server that has just started waits before it declares any process dead.
    await clock.advance('1 minute');
    return new Lane(url, provider, address, db, clock);
  }

  async close(): Promise<void> {
    await this.#db.close();
    await this.#provider.stop();
  }

  /** Kills a worker at its work and lets another do the rest. Returns how many jobs were lost, and when all ended. */
  async kill(point: string): Promise<{ lost: number; ms: number }> {
    await this.#db.query(
      `truncate public.audit; update pgfresh.sources set failure_streak = 0, recent_retries = '{}', breaker_opened_at = null, paused_until = null`,
    );
    const before = await this.#counted();
    const last = await this.#value<number>('select coalesce(max(id), 0)::int from pgfresh.api_call_queue');
    await this.#db.transact('enqueue', async (tx) => {
      const enqueue = 'select count(*) from pgfresh_engine.queue_refreshes($1::text, $2::text[], 1, $3::bigint)';
      await tx.query(enqueue, ['item', [...good, unanswered, ...refused], estimatedBytes]);
      await tx.query(enqueue, ['part', good, estimatedBytes]);
    });
    await this.#startAndKill(point);
    const killedAt = await this.#clock.now();
    const lost = await this.#value<number>(`select count(*)::int from pgfresh_engine.job where state = 'x'`);
    const reserved = await this.#value<number>(
      `select coalesce(sum(reserved), 0)::int from pgfresh_engine.job where state = 'x'`,
    );

    const events = new Events();
    let rescuerId = 0;
    events.on('worker.started', (started) => void (rescuerId = started.worker));
    const rescuer = this.#worker(events);
    await rescuer.start();
    // The lease of the dead one runs out, without the wait for it; the living one would renew its own meanwhile.
    const jump = `${Math.max(0, leaseMs - (await this.#clock.now()) + killedAt)} milliseconds`;
    await this.#db.query(
      `with clock as (update public.test_clock set ahead = ahead + $1::interval) update pgfresh_engine.process set lease_until = lease_until + $1::interval where id = $2::bigint`,
      [jump, rescuerId],
    );
    let ms = 0;
    while (ms <= takenOverWithinMs && (await this.#value('select count(*)::int from pgfresh_engine.job')) !== 0) {
      await nextMoment();
      ms = (await this.#clock.now()) - killedAt;
    }
    await rescuer.stop();
    if (ms > takenOverWithinMs) throw new Error(`killed at ${point}: not all was done after ${ms} ms`);

    const ended = await this.#db.query<{ outcome: string; count: number }>(
      'select outcome, count(*)::int as count from pgfresh.api_call_queue where id > $1::bigint group by outcome',
      [last],
    );
    this.#expect(point, 'ends', Object.fromEntries(ended.map(({ outcome, count }) => [outcome, count])), outcomes);
    const written = await this.#db.query<{ symbol: string; times: number }>(
      'select symbol, count(*)::int as times from audit group by symbol',
    );
    this.#expect(point, 'writes', Object.fromEntries(written.map(({ symbol, times }) => [symbol, times])), writes);
    const after = await this.#counted();
    const surplus = {
      bytes: after.ledger.bytes - before.ledger.bytes - (after.meter.bytes - before.meter.bytes),
      calls: after.ledger.calls - before.ledger.calls - (after.meter.calls - before.meter.calls),
    };
    if (surplus.bytes < 0 || surplus.bytes > reserved || surplus.calls < 0 || surplus.calls > lost)
      throw new Error(
        `killed at ${point}: the ledger has ${JSON.stringify(surplus)} more than the provider, reserved were ${reserved} bytes of ${lost} calls`,
      );
    return { lost, ms };
  }

  async #startAndKill(point: string): Promise<void> {
    const env = { ...process.env, PGFRESH_FAILPOINTS: `${point}=kill`, NODE_OPTIONS: '' };
    const killed = spawn(process.execPath, [child, this.#url, this.#address], {
      env,
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const exit = once(killed, 'exit');
    // A place that is not reached must fail the campaign, and not stop it.
    const patience = setTimeout(() => killed.kill('SIGTERM'), 20_000);
    killed.stdout.on('data', () => {
      if (whileStopping.includes(point)) killed.kill('SIGTERM');
    });
    const [, signal] = (await exit) as [number | null, string | null];
    clearTimeout(patience);
    if (signal !== 'SIGKILL') throw new Error(`${point} was not reached: the worker ended by ${signal ?? 'itself'}`);
  }

  #worker(events: Events): Worker {
    const { sources, dataTypes = [] } = killConfig(this.#address);
    return new Worker({
      db: this.#db,
      url: this.#url,
      listenUrl: this.#url,
      events,
      sources,
      dataTypes,
      concurrency: 100,
      drainMs: 5_000,
    });
  }

  /** What the ledger and the provider have counted so far. */
  async #counted() {
    while (this.#provider.meter.report().open > 0) await nextMoment();
    const [ledger] = await this.#db.query<{ bytes: number; calls: number }>(
      'select coalesce(sum(bytes), 0)::int as bytes, coalesce(sum(calls), 0)::int as calls from pgfresh_engine.usage',
    );
    return { ledger: ledger!, meter: this.#provider.meter.report() };
  }

  #expect(point: string, what: string, found: object, expected: Record<string, number>): void {
    if (!isDeepStrictEqual(found, expected))
      throw new Error(`killed at ${point}: expected ${what} ${JSON.stringify(expected)}, got ${JSON.stringify(found)}`);
  }

  async #value<T>(statementText: string): Promise<T> {
    const [row] = await this.#db.query<Record<string, T>>(statementText);
    return Object.values(row!)[0]!;
  }
}

function nextMoment(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, 5));
}
