import type { LeaseAnswer, LeaseStatements } from '../process/index.ts';

/** What a worker is told when it renews its lease. */
export interface WorkerAnswer extends LeaseAnswer {
  /** Claims that the database has given us and that we have not named: perhaps the answer was lost on its way. */
  readonly stranded: readonly string[];
}

export function workerLease(name: string): LeaseStatements {
  return {
    register: { text: 'select pgfresh_engine.register_worker($1::text) as id', values: [name] },
    renew: 'select pgfresh_engine.heartbeat_worker($1::bigint, $2::uuid[]) as answer',
    retire: 'select pgfresh_engine.retire_worker($1::bigint)',
  };
}
