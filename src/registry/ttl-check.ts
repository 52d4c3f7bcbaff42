import type { Queryable } from '../database/index.ts';
import type { RegistryFinding } from './finding.ts';

interface TtlColumn {
  readonly type: string;
  readonly table: string;
  readonly column: string;
  readonly unit: 'interval' | 'minutes';
  readonly checks: readonly { name: string; text: string; valid: boolean }[];
}

/** A row with a TTL of zero would always be stale. Only a constraint on the table can keep such rows out. */
export async function ttlFindings(database: Queryable): Promise<RegistryFinding[]> {
  const columns = await database.query<TtlColumn>(`
    select r.data_type as type, format('%I.%I', n.nspname, c.relname) as "table", quote_ident(a.attname) as "column",
      case when a.atttypid = 'interval'::regtype then 'interval' else 'minutes' end as unit,
      coalesce((select jsonb_agg(jsonb_build_object('name', quote_ident(k.conname), 'text', pg_get_expr(k.conbin, k.conrelid), 'valid', k.convalidated))
        from pg_constraint as k where k.conrelid = c.oid and k.contype = 'c' and a.attnum = any (k.conkey)), '[]') as checks
    from pgfresh.data_type_registry as r
    cross join lateral (select case when position('.' in r.table_name) = 0 then array['public', r.table_name] else string_to_array(r.table_name, '.') end as parts) as p
    join pg_namespace as n on n.nspname = p.parts[1]
    join pg_class as c on c.relnamespace = n.oid and c.relname = p.parts[2] and c.relkind in ('r', 'p')
    join pg_attribute as a on a.attrelid = c.oid and a.attname = r.ttl_column and not a.attisdropped
    order by r.data_type`);
  return columns.flatMap(findingOf);
}

function findingOf({ type, table, column, unit, checks }: TtlColumn): RegistryFinding[] {
  const found = checks.filter(({ text }) => keepsPositive(text, column));
  if (found.some(({ valid }) => valid)) return [];
  const zero = unit === 'interval' ? `interval '0'` : '0';
  const next = found[0]
    ? `Run: alter table ${table} validate constraint ${found[0].name};`
    : `Run: alter table ${table} add check (${column} > ${zero});`;
  const problem = found[0] ? 'was not checked for the rows that are there' : 'is missing';
  const detail = `ttl_column: the check that keeps ${column} of ${table} positive ${problem}`;
  return [{ name: `data type ${type}`, state: 'warning', detail, next }];
}

/**
 * Whether a check constraint, as PostgreSQL prints it, rejects every TTL of zero or less. Null is allowed: it means the
 * TTL of the data type. Expressions too complex to analyse count as no.
 */
export function keepsPositive(expression: string, column: string): boolean {
  const name = column.replace(/[.*+?^${}()|[\]\\]/g, String.raw`\$&`);
  const plain = expression.replace(new RegExp(String.raw`\(${name} IS (NOT )?NULL\) OR `), '');
  if (/\b(OR|NOT|CASE)\b/.test(plain.replace(/ IS NOT NULL/g, ''))) return false;
  const value = String.raw`\(?'?(-?[\w:. -]*?)'?\)?(?:::[a-z ]+)?`;
  const above = new RegExp(String.raw`\(${name} (>=?) ${value}\)`).exec(plain);
  const below = new RegExp(String.raw`\(${value} (<=?) ${name}\)`).exec(plain);
  const [operator, limit] = above ? [above[1]!, above[2]!] : below ? [below[2]!, below[1]!] : ['', ''];
  if (!/\d/.test(limit) || limit.includes('-')) return false;
  return !operator.endsWith('=') || /[1-9]/.test(limit);
}
