import { protocol, version } from '../database/index.ts';
import type { LeaseAnswer, Registration } from '../process/index.ts';

/** The response to renewing a worker's lease. */
export interface WorkerAnswer extends LeaseAnswer {
  /** Claims of ours in the database that we did not list: perhaps their response was lost. */
  readonly stranded: readonly string[];
}

export function workerRegistration(name: string): Registration {
  return {
    text: `select pgfresh_engine.register_process('worker', $1::text, $2::text, $3::int) as id`,
    values: [name, version, protocol.own],
  };
}
