import type { LeaseAnswer, LeaseStatements } from '../process/index.ts';

/** What a scheduler is told when it renews its lease. */
export interface SchedulerAnswer extends LeaseAnswer {
  /** How many other schedulers have let their lease run out. */
  readonly dead: number;
  /** Runs of ours that are to be cancelled. */
  readonly cancel: readonly number[];
  /** Runs that the database has given us and that we do not hold: the answer was lost on its way. */
  readonly stranded: readonly { readonly run: number; readonly job: number; readonly request: string }[];
}

export function schedulerLease(name: string, handlers: readonly string[]): LeaseStatements {
  return {
    register: {
      text: 'select pgfresh_engine.register_scheduler($1::text, $2::text[], $3::text) as id',
      values: [name, handlers, process.versions['tz']],
    },
    renew: 'select pgfresh_engine.heartbeat_scheduler($1::bigint, $2::uuid[]) as answer',
    retire: 'select pgfresh_engine.retire_scheduler($1::bigint)',
  };
}
