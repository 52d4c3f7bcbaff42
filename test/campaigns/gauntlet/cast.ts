/** The sources and data types of the gauntlet: what the configuration, the operations and the invariants agree on. */

/** Every API key that the provider accepts. */
export const apiKeys = ['a1', 'a2', 'a3', 'b1', 'c1', 'd1', 'e1'] as const;

export interface Variant {
  /** Calls per minute by source; null for no limit. */
  readonly rates: Readonly<Record<string, number | null>>;
  readonly keys: Readonly<Record<string, readonly string[]>>;
  /** Failures in a row that open the breaker of every source, so a deployment writes all of them. */
  readonly breakerFailures: number;
  readonly placeTtl: '30s' | '45s';
}

/** The two configurations of rolling restarts. */
export const variants = {
  blue: { rates: { alpha: 60, beta: 40 }, keys: { alpha: ['a1'], beta: ['b1'] }, breakerFailures: 5, placeTtl: '30s' },
  green: {
    rates: { alpha: 50, beta: 40 },
    keys: { alpha: ['a1', 'a2'], beta: ['b1'] },
    breakerFailures: 6,
    placeTtl: '45s',
  },
} as const satisfies Record<string, Variant>;
export type VariantName = keyof typeof variants;

/** What is called, and with which limits beside the rates of the variant. */
export const sources = {
  /** Rate, API keys that change, and a quota. */
  alpha: { quotaBytes: '200MB' },
  /** Rate and a limit of jobs at once. */
  beta: { concurrency: 4 },
  /** No limit. */
  gamma: {},
  /** Deleted and added again, with its data type. */
  extra: { rate: 12 },
  /** A low rate, and every call is redirected once. */
  detour: { rate: 10 },
  /** Of one data type with more viewers than calls. */
  crowded: { rate: 60 },
  /** Of the data type with a schedule. */
  rounds: { concurrency: 3 },
  /** Never touched by an operation: slowness here is a side effect on bystanders. */
  calm: {},
} as const;
export type SourceName = keyof typeof sources;
export const shaken: readonly SourceName[] = ['alpha', 'beta', 'gamma'];

export interface TypeCast {
  readonly name: string;
  readonly source: SourceName;
  readonly ttlSeconds: number;
  readonly keys: readonly string[];
  /** Only its own operation looks at it. */
  readonly isApart?: boolean;
  /** Columns of the registry beyond the usual, as SQL. */
  readonly more?: Readonly<Record<string, string>>;
}

const numbered = (word: string, count: number): string[] => Array.from({ length: count }, (_, n) => `${word}${n + 1}`);

export const types: readonly TypeCast[] = [
  { name: 'profile', source: 'alpha', ttlSeconds: 120, keys: numbered('S', 6) },
  {
    name: 'quote',
    source: 'alpha',
    ttlSeconds: 15,
    keys: numbered('S', 6),
    more: {
      depends_on: `'{profile}'`,
      key_table: `'listed'`,
      key_table_column: `'symbol'`,
      key_active_column: `'active'`,
    },
  },
  { name: 'rates', source: 'beta', ttlSeconds: 15, keys: numbered('r', 5), more: { gate_function: `'gate_of_rates'` } },
  { name: 'news', source: 'gamma', ttlSeconds: 8, keys: numbered('n', 5) },
  {
    name: 'street',
    source: 'gamma',
    ttlSeconds: 20,
    keys: ['LANE', 'straße'],
    more: { normalise: `'upper'`, staleness_function: `'stale_street'` },
  },
  { name: 'extra', source: 'extra', ttlSeconds: 30, keys: numbered('e', 2) },
  { name: 'detour', source: 'detour', ttlSeconds: 40, keys: ['way'] },
  { name: 'seat', source: 'crowded', ttlSeconds: 3, keys: numbered('seat', 15), isApart: true },
];
/** Data types that are looked at; a profile comes because its quote needs it. */
export const viewedTypes = types.filter(({ name, isApart }) => name !== 'profile' && !isApart);
export const typeNamed = (name: string): TypeCast => types.find((type) => type.name === name)!;

/** A data type that was renamed, or writes to another table, is still the one of the cast. */
export const originalName = (name: string): string => name.replace(/_(renamed|moved)$/, '');

/** A key as it is compared here: the case of a street does not matter. */
export const comparedKey = (type: string, key: string): string =>
  originalName(type) === 'street' ? key.toUpperCase() : key;

/** A data type of the configuration, with a schedule and keys of two parts. */
export const place = { name: 'place', keys: ['east|1', 'east|2', 'north|1', 'north|2', 'west|1', 'west|2'] } as const;
/** What a table of keys may also have, and no row can: a part too many, a part too few. */
export const noPlaces = ['east|1|x', 'north'] as const;

/** A data type of the configuration whose answers have some of these columns, and no two the same. */
export const wide = { name: 'wide', optional: ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'] } as const;

/** The data type of the bystanders: an own source, an own table, a key for each look. */
export const bystander = { name: 'bystander', source: 'calm', ttlSeconds: 3600 } as const;

/** Tables of one form, with what pgfresh mirrors. Values come from the provider, each once. */
export const schema = `
  create table public.listed (symbol text primary key, active boolean not null default true);
  insert into public.listed select 'S' || n from generate_series(1, 6) as n;
  create table public.switch (name text primary key, value text not null);
  insert into public.switch values ('gate', 'open'), ('staleness', 'answers');
  grant select on public.switch to public;
  create function public.gate_of_rates(p_key text, p_data_type text) returns boolean language plpgsql stable as $$
  begin
    if (select value from public.switch where name = 'gate') = 'hangs' then perform pg_sleep(600); end if;
    return (select value <> 'closed' from public.switch where name = 'gate');
  end $$;
  create function public.stale_street(p_at timestamptz, p_ttl interval) returns boolean language plpgsql stable as $$
  begin
    if (select value from public.switch where name = 'staleness') = 'loops' then perform pg_sleep(600); end if;
    return clock_timestamp() >= p_at + p_ttl;
  end $$;
  create table public.places (key text primary key, active boolean not null default true);
  insert into public.places values ${place.keys.map((key) => `('${key}')`).join(', ')};
  create table public.place (area text, spot text, value bigint not null, note text, served_at timestamptz not null,
    fetched_at timestamptz, primary key (area, spot));
  create table public.wide (key text primary key, value bigint not null, note text, served_at timestamptz not null,
    fetched_at timestamptz, ${wide.optional.map((name) => `${name} text`).join(', ')});
  ${[...types, bystander].map(({ name }) => tableOf(name)).join('\n')}
  ${tableOf('news_moved')}
  alter table public.quote add foreign key (key) references public.profile (key) on delete cascade;
  create table public.limit_change (at timestamptz not null default clock_timestamp(), source text not null,
    rate int, concurrency int, gone boolean not null default false);
  create function public.note_limit() returns trigger language plpgsql as $$
  begin
    if tg_op = 'DELETE' then
      insert into public.limit_change (source, gone) values (old.name, true);
    elsif tg_op = 'INSERT' or (old.rate_limit_per_minute, old.max_concurrency) is distinct from (new.rate_limit_per_minute, new.max_concurrency) then
      insert into public.limit_change (source, rate, concurrency) values (new.name, new.rate_limit_per_minute, new.max_concurrency);
    end if;
    return null;
  end $$;
  create trigger note_limit after insert or update or delete on pgfresh.sources for each row execute function public.note_limit();
  create function public.doze() returns jsonb language plpgsql as $$
  begin
    perform pg_sleep(7);
    return jsonb_build_object('success', true, 'message', 'slept');
  end $$;`;

function tableOf(name: string): string {
  return `create table public.${name} (key text primary key, value bigint not null, note text, served_at timestamptz not null, fetched_at timestamptz);`;
}

/** The statement that registers a data type as the cast has it. */
export function registration({ name, source, ttlSeconds, more = {} }: Omit<TypeCast, 'keys'>): string {
  const columns = {
    data_type: `'${name}'`,
    source: `'${source}'`,
    fetcher: `'answer'`,
    table_name: `'${name}'`,
    timestamp_column: `'fetched_at'`,
    source_timestamp_field: `'served_at'`,
    ttl: `interval '${ttlSeconds} seconds'`,
    ...more,
  };
  return `insert into pgfresh.data_type_registry (${Object.keys(columns).join(', ')}) values (${Object.values(columns).join(', ')})`;
}
