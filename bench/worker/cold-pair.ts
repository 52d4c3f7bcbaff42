import { now, sleep } from '../clock.ts';
import type { Scope } from '../scope.ts';
import { connect } from '../server.ts';
import { listings } from '../../examples/market/provider/listings.ts';
import { typeName } from './contenders/pgfresh.ts';
import type { Plan } from './plan.ts';
import type { Stage } from './stage.ts';

/** Times from the call by which a first viewer subscribes to a pair until its row can be read, in milliseconds. */
export function timeColdPairs(stage: Stage, scope: Scope, { warmUp, samples }: Plan['coldPairs']): Promise<number[]> {
  return scope.nest(async (inner) => {
    const place = await stage.clone(inner);
    const viewer = await connect(place.url, inner);
    const reader = await connect(place.url, inner);
    const worker = await stage.worker(inner, place);
    await worker.ask('start');
    const isThere = async (symbol: string) => {
      const read = { name: 'read', text: 'select 1 from quote where symbol = $1::text', values: [symbol] };
      return (await reader.query(read)).rows.length > 0;
    };
    const times: number[] = [];
    for (const [turn, symbol] of [...listings.keys()].slice(0, warmUp + samples).entries()) {
      // The worker has nothing to do by then, and waits.
      await sleep(20);
      const began = now();
      const subscribe = {
        name: 'subscribe',
        text: 'select pgfresh.upsert_active_subscription($1::text, $2::text, $3::text)',
        values: [`viewer-${symbol}`, symbol, typeName],
      };
      await viewer.query(subscribe);
      while (!(await isThere(symbol))) await worker.orFailure(sleep(1));
      if (turn >= warmUp) times.push(now() - began);
    }
    return times;
  });
}
