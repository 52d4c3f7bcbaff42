import { listings } from '../../examples/market/provider/listings.ts';
import { sleep } from '../clock.ts';
import type { Scope } from '../scope.ts';
import { type BenchServer, connect } from '../server.ts';
import { pgfresh, typeName } from './contenders/pgfresh.ts';
import type { Plan } from './plan.ts';
import { callTimes, startMarket } from './providers.ts';
import { Stage } from './stage.ts';

export interface Rate {
  readonly usefulAMinute: number;
  /** The most calls in any stretch, as the provider's own record says. */
  readonly most: number;
}

const askEveryMs = 500;

/** Every quote of the market is wanted all the time, which is far more than the limit allows. */
export function rateUnderLimit(
  server: BenchServer,
  scope: Scope,
  plan: Plan['rate'],
  processes: number,
): Promise<Rate> {
  return scope.nest(async (inner) => {
    const provider = await startMarket(inner, ['--limit', String(plan.limit)]);
    const stage = await Stage.build(pgfresh, server, inner, { provider, limit: plan.limit, quotes: 0 });
    const place = await stage.clone(inner);
    const workers = await Promise.all(Array.from({ length: processes }, () => stage.worker(inner, place)));
    const client = await connect(place.url, inner);
    const symbols = [...listings.keys()];
    const wantFor = async (seconds: number) => {
      for (const end = performance.now() + seconds * 1000; performance.now() < end;) {
        await client.query({
          name: 'want',
          text: 'select count(*) from pgfresh_engine.queue_refreshes($1::text, $2::text[], 1)',
          values: [typeName, symbols],
        });
        await Promise.race(workers.map((worker) => worker.orFailure(sleep(askEveryMs))));
      }
    };
    await wantFor(0.001);
    await Promise.all(workers.map((worker) => worker.ask('start')));
    await wantFor(plan.warmUpSeconds);
    const { rows } = await client.query<{ at: string }>('select clock_timestamp()::text as at');
    await wantFor(plan.seconds);
    const useful = await client.query<{ perMinute: number }>(
      `select count(*) * 60 / extract(epoch from clock_timestamp() - $1::timestamptz)::float8 as "perMinute"
       from pgfresh_engine.history_succeeded where ended_at >= $1::timestamptz and outcome in ('fresh', 'unchanged')`,
      [rows[0]!.at],
    );
    const most = busiest(await callTimes(provider), plan.most.seconds * 1000);
    return { usefulAMinute: useful.rows[0]!.perMinute, most };
  });
}

function busiest(times: readonly number[], windowMs: number): number {
  let most = 0;
  for (let first = 0, last = 0; last < times.length; last++) {
    while (times[first]! <= times[last]! - windowMs) first++;
    most = Math.max(most, last - first + 1);
  }
  return most;
}
