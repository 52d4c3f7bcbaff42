import { protocol, version } from '../database/index.ts';
import type { LeaseAnswer, Registration } from '../process/index.ts';

/** What a worker is told when it renews its lease. */
export interface WorkerAnswer extends LeaseAnswer {
  /** Claims that the database has given us and that we have not named: perhaps the answer was lost on its way. */
  readonly stranded: readonly string[];
}

export function workerRegistration(name: string): Registration {
  return {
    text: `select pgfresh_engine.register_process('worker', $1::text, $2::text, $3::int) as id`,
    values: [name, version, protocol.own],
  };
}
