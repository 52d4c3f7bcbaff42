import { listings } from '../../examples/market/provider/listings.ts';
import { Child } from '../child.ts';
import { now, sleep } from '../clock.ts';
import type { Scope } from '../scope.ts';
import type { BenchServer } from '../server.ts';
import { pgfresh } from '../worker/contenders/pgfresh.ts';
import { startMarket } from '../worker/providers.ts';
import { Stage } from '../worker/stage.ts';
import { hello, want } from './conversation.ts';
import type { Plan } from './plan.ts';
import { PlainClient } from '../../test/harness/plain-client.ts';

/** Milliseconds from the first request for a never-requested pair until its row arrives. */
export function timeColdPairs(server: BenchServer, scope: Scope, plan: Plan['coldPairs']): Promise<number[]> {
  return scope.nest(async (inner) => {
    const provider = await startMarket(inner, ['--no-limit', '--latency', String(plan.latencyMs)]);
    const stage = await Stage.build(pgfresh, server, inner, { provider, quotes: 0 });
    const place = await stage.clone(inner);
    const worker = await stage.worker(inner, place);
    await worker.ask('start');
    const { child, value } = await Child.open(inner, new URL('./gateway-host.ts', import.meta.url), [place.url]);
    const times: number[] = [];
    for (const [turn, symbol] of [...listings.keys()].slice(0, plan.warmUp + plan.samples).entries()) {
      // Random, so that it does not align with periodic work.
      await sleep(20 + Math.random() * 100);
      const ms = await child.orFailure(worker.orFailure(timeOne(value as number, symbol)));
      if (turn >= plan.warmUp) times.push(ms);
    }
    return times;
  });
}

function timeOne(port: number, symbol: string): Promise<number> {
  const { promise, resolve, reject } = Promise.withResolvers<number>();
  let began = 0;
  const viewer = new PlainClient({
    port,
    from: undefined,
    onOpen: () => {
      began = now();
      viewer.say(hello, want(symbol));
    },
    onMessage: (message) => {
      const { type, rows = [] } = JSON.parse(message.text()) as { type: string; rows?: unknown[] };
      if ((type !== 'change' && type !== 'snapshot') || rows.length === 0) return;
      if (type === 'snapshot') reject(new Error(`${symbol} was there before anybody wanted it`));
      resolve(now() - began);
      viewer.leave();
    },
    onLost: (problem) => reject(new Error(problem)),
  });
  return promise;
}
