import { protocol, version } from '../database/index.ts';
import type { LeaseAnswer, Registration } from '../process/index.ts';

/** What a scheduler is told when it renews its lease. */
export interface SchedulerAnswer extends LeaseAnswer {
  /** How many other schedulers have let their lease run out. */
  readonly dead: number;
  /** Runs of ours that are to be cancelled. */
  readonly cancel: readonly number[];
  /** Runs that the database has given us and that we do not hold: the answer was lost on its way. */
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
