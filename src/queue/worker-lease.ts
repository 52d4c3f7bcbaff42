import type { LeaseStatements } from '../process/index.ts';

/** The lease of a worker: what it does not hold of its claims is ready again for others. */
export function workerLease(name: string): LeaseStatements {
  return {
    register: { text: 'select pgfresh.register_worker($1::text) as id', values: [name] },
    renew: `select jsonb_build_object('alive', pgfresh.heartbeat_worker($1::bigint, $2::uuid[])) as answer`,
    retire: 'select pgfresh.retire_worker($1::bigint)',
  };
}
