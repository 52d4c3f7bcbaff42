import type { Queryable } from './query.ts';

/**
 * Whether the functions that query users' tables lost their owner or grants: the dump was restored without them, or
 * the server lacked the roles. Then all others did too, and every functions file has to be applied again.
 */
export async function hasLostRights(db: Queryable): Promise<boolean> {
  const found = await db.query(`
    select from pg_catalog.pg_proc join pg_catalog.pg_namespace as schema on schema.oid = pronamespace
    where proname = 'ask_stale' and nspname in ('pgfresh', 'pgfresh_engine')
      and (proacl is null or proowner is distinct from to_regrole('pgfresh_evaluator'))`);
  return found.length > 0;
}

/** In a restored or copied database, ends everything that belonged to the original. */
export async function followRestore(tx: Queryable): Promise<void> {
  // A read-only login has nothing to end.
  const found = await tx.query(`
    select from pg_proc join pg_namespace as schema on schema.oid = pronamespace
    where proname = 'follow_restore' and nspname in ('pgfresh', 'pgfresh_engine')
      and has_schema_privilege(schema.oid, 'usage') and has_function_privilege(pg_proc.oid, 'execute')`);
  if (found.length > 0) await tx.query('select pgfresh_engine.follow_restore()');
}
