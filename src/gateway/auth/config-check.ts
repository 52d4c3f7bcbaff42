import type { GatewaySettings } from '../../config/index.ts';
import type { Queryable } from '../../database/index.ts';
import { asPgfreshError, PgfreshError } from '../../errors/index.ts';
import { Authenticator } from './authenticator.ts';

/** The result of one check; `pgfresh check` prints it beside its own. */
interface GatewayFinding {
  readonly name: string;
  readonly state: 'ok' | 'warning' | 'fatal';
  readonly detail: string;
  readonly code?: string;
  readonly next?: string;
}

interface PrivateType {
  readonly type: string;
  readonly table: string;
  /** The statement that enables row security; null if it is enabled. */
  readonly fix: string | null;
  /** The statements that let the roles read the table. */
  readonly grants: readonly string[];
}

const privateTypes = `select r.data_type as type, c.oid::regclass::text as "table",
    case when c.relkind in ('r', 'p') and not c.relrowsecurity then format('alter table %s enable row level security;', c.oid::regclass)
      when c.relkind = 'v' and not coalesce(c.reloptions && '{security_invoker=true,security_invoker=on,security_invoker=1}', false) then format('alter view %s set (security_invoker = true);', c.oid::regclass) end as fix,
    array(select format('grant usage on schema %s to %I; grant select on %s to %I;', c.relnamespace::regnamespace, p.rolname, c.oid::regclass, p.rolname) from pg_roles as p
      where p.rolname = any ($1::text[]) and not (has_schema_privilege(p.oid, c.relnamespace, 'usage') and has_table_privilege(p.oid, c.oid, 'select')) order by 1) as grants
  from pgfresh.data_type_registry as r
  cross join lateral (select case when position('.' in r.table_name) = 0 then array['public', r.table_name] else string_to_array(r.table_name, '.') end as parts) as p
  join pg_namespace as n on n.nspname = p.parts[1] join pg_class as c on c.relnamespace = n.oid and c.relname = p.parts[2]
  where r.visibility = 'rls' order by r.data_type`;

/** Checks the roles of row security, their grants, and that row security is enabled: mistakes that raise no error. */
export async function examineGateway(
  database: Queryable,
  { gateway }: { readonly gateway: Pick<GatewaySettings, 'rls' | 'jwt' | 'anonymous'> },
): Promise<readonly GatewayFinding[]> {
  const { rls, jwt, anonymous } = gateway;
  const roles = [rls?.role, rls?.anonymousRole].filter((role) => role !== undefined);
  const problems = await database.query<{ problem: string; next: string }>(
    `select p.problem, p.next_step as next from unnest($1::text[]) as role cross join lateral pgfresh_engine.viewer_role_problem(role) as p`,
    [roles],
  );
  const types = await database.query<PrivateType>(privateTypes, [roles]);
  const canServe = rls !== undefined || (jwt === undefined && anonymous === undefined);
  return [
    ...problems.map(({ problem, next }) => ({ ...fatal(problem), next })),
    ...types.flatMap((type) => [...(canServe ? [] : [notServed(type)]), ...warningsOf(type)]),
  ];
}

/** Checks that the secret can be read. Without it a gateway does not start. */
export async function examineGatewaySecret({
  gateway,
}: {
  readonly gateway: Pick<GatewaySettings, 'jwt' | 'anonymous'>;
}): Promise<GatewayFinding[]> {
  try {
    await new Authenticator(gateway).loadKey();
    return [];
  } catch (error) {
    const { code, message, next } = asPgfreshError(error);
    return [{ name: 'gateway', state: 'fatal', detail: message, code, next }];
  }
}

function fatal(problem: string): GatewayFinding {
  const { code, message } = new PgfreshError('PGF_LIVE_ROLE', { problem });
  return { name: 'gateway', state: 'fatal', detail: message, code };
}

function notServed({ type }: PrivateType): GatewayFinding {
  const problem = 'gateway.rls is not configured';
  const { code, message } = new PgfreshError('PGF_LIVE_PRIVATE', { type, problem });
  const next = 'Set gateway.rls in the configuration; docs/guides/access.md shows how.';
  return { name: `data type ${type}`, state: 'warning', detail: message, code, next };
}

function warningsOf({ type, table, fix, grants }: PrivateType): GatewayFinding[] {
  const warning = (detail: string, next: string): GatewayFinding => ({
    name: `data type ${type}`,
    state: 'warning',
    detail,
    next,
  });
  return [
    ...(fix === null
      ? []
      : [warning(`row security is not enabled for ${table}, so every viewer sees every row`, `Run: ${fix}`)]),
    ...grants.map((grant) =>
      warning(`viewers see no rows of ${table}, because their role may not read it`, `Run: ${grant}`),
    ),
  ];
}
