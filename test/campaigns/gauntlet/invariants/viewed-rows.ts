import { comparedKey } from '../cast.ts';
import type { World } from '../world.ts';

interface ViewedRow {
  readonly type: string;
  readonly key: string;
  readonly ttl: number;
  readonly state: string;
  readonly read: string | null;
  readonly row: { readonly age: number; readonly confirmed: number; readonly value: number } | undefined;
}

/** The pairs that someone looks at, with their rows and what is shown of them. */
export async function viewedRows(world: World): Promise<ViewedRow[]> {
  const looks = [...world.sql.looks.filter(({ silent }) => !silent), ...world.pages.flatMap((page) => page.looks)];
  const pairs = new Map(looks.map(({ type, key }) => [`${type} ${comparedKey(type, key)}`, { type, key }]));
  const found: ViewedRow[] = [];
  for (const { type, key } of pairs.values()) {
    const { rows } = await world.db.query<{
      ttl: number;
      explained: Record<string, string | null>;
      read: string | null;
      age: number | null;
      value: string | null;
    }>(
      `with explained as materialized (select pgfresh.explain_pair($1::text, $2::text) as said)
       select extract(epoch from r.ttl)::float8 as ttl, e.said as explained,
         (select p.state from pgfresh_engine.read_pairs(r.type_id, array[e.said ->> 'key']) as p) as read,
         extract(epoch from pgfresh.clock() - t.fetched_at)::float8 as age, t.value
       from pgfresh.data_type_registry as r cross join explained as e
       left join public.${type} as t on t.key = e.said ->> 'key'
       where r.data_type = $1::text`,
      [type, key],
    );
    const [one] = rows;
    if (!one) continue;
    const confirmedAt = one.explained['confirmed_at'] ?? null;
    const confirmed = confirmedAt === null ? Infinity : (Date.now() - Date.parse(confirmedAt)) / 1000;
    found.push({
      type,
      key,
      ttl: one.ttl,
      state: one.explained['state']!,
      read: one.read,
      row: one.age === null ? undefined : { age: one.age, confirmed, value: Number(one.value) },
    });
  }
  return found;
}

export async function explain(world: World, type: string, key: string): Promise<string> {
  const { rows } = await world.db.query<{ said: Record<string, unknown> }>(
    'select pgfresh.explain_pair($1::text, $2::text) as said',
    [type, key],
  );
  const names = ['state', 'activity', 'reason', 'age_seconds', 'viewers', 'demanded', 'job', 'last_outcome', 'words'];
  return names.map((name) => `${name} ${JSON.stringify(rows[0]!.said[name])}`).join(', ');
}
