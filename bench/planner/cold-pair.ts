import { now } from '../clock.ts';
import type { Scope } from '../scope.ts';
import { connect } from '../server.ts';
import type { Plan } from './plan.ts';
import { typeName } from './scene.ts';

/** Times from the call by which a first viewer subscribes to a pair until its job can be claimed, in milliseconds. */
export async function timeColdPairs(
  scope: Scope,
  url: string,
  { types, coldPairs: { warmUp, samples } }: Plan,
): Promise<number[]> {
  const viewer = await connect(url, scope);
  const worker = await connect(url, scope);
  const times: number[] = [];
  for (let call = 0; call < warmUp + samples; call++) {
    const key = `cold-${call}`;
    const began = now();
    await viewer.query({
      name: 'subscribe',
      text: 'select pgfresh.upsert_active_subscription($1::text, $2::text, $3::text)',
      values: [`viewer-${call}`, key, typeName((call % types) + 1)],
    });
    // The answer comes after the commit, so from now on every worker sees the job.
    if (call >= warmUp) times.push(now() - began);
    const { rows } = await worker.query<{ claimed: { key: string } | null }>({
      name: 'claim',
      text: 'select pgfresh.claim_next_pending_job() as claimed',
    });
    if (rows[0]!.claimed?.key !== key) throw new Error(`No job of ${key} could be claimed after the subscription.`);
  }
  return times;
}
