import { protocol, version } from '../database/index.ts';
import type { LeaseAnswer, Registration } from '../process/index.ts';

/** Answer to a lease renewal. */
export interface SchedulerAnswer extends LeaseAnswer {
  /** How many other schedulers' leases have expired. */
  readonly dead: number;
  /** Our runs that are to be cancelled. */
  readonly cancel: readonly number[];
  /** Runs assigned to us that we do not hold: the answer was lost. */
  readonly stranded: readonly { readonly run: number; readonly job: number; readonly request: string }[];
}

/** In one statement, so that no scheduler is registered without its handlers. */
export function schedulerRegistration(name: string, handlers: readonly string[]): Registration {
  return {
    text: `select pgfresh_engine.serve_jobs(
      pgfresh_engine.register_process('scheduler', $1::text, $4::text, $5::int), $2::text[], $3::text) as id`,
    values: [name, handlers, process.versions['tz'], version, protocol.own],
  };
}
