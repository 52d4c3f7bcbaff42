/*
  The one definition of canonical keys: only A to Z change case. The case of other letters depends on the server's
  version and collation and differs in JavaScript, and a key must be the same everywhere.
  canonicalKey in src/registry does the same in TypeScript; test/registry/key-vectors.json tests both.
*/
create or replace function pgfresh_engine.canonical_key(p_key text, p_normalise text) returns text
language sql immutable parallel safe
as $$
  select case p_normalise
    when 'upper' then pg_catalog.upper(p_key collate pg_catalog."C")
    when 'lower' then pg_catalog.lower(p_key collate pg_catalog."C")
    else p_key
  end
$$;
comment on function pgfresh_engine.canonical_key(text, text) is
  'A key in the case of its data type (upper, lower or none). Only the letters A to Z are changed.';

create or replace function pgfresh_engine.is_valid_key(p_key text) returns boolean
language sql immutable parallel safe
as $$ select (p_key <> '' and pg_catalog.octet_length(p_key) <= 512 and p_key !~ '[[:cntrl:]]') is true $$;
comment on function pgfresh_engine.is_valid_key(text) is
  'Whether a text can be a key of any data type: 1 to 512 bytes and no control characters.';

create or replace function pgfresh_engine.has_key_rules(p_type pgfresh.data_type_registry) returns boolean
language sql immutable parallel safe
as $$
  select p_type.key_table is not null or p_type.key_pattern is not null or p_type.normalise <> 'none'
    or pg_catalog.cardinality(p_type.key_columns) > 1
$$;
comment on function pgfresh_engine.has_key_rules(pgfresh.data_type_registry) is
  'Whether a valid text may be no key of the data type, or be spelled otherwise there.';

/*
  Validates texts as keys of a data type, with an answer for each, so that one bad key does not affect the others.
  This is the only place that defines what a key is; require_keys uses it to refuse.
*/
create or replace function pgfresh_engine.canonical_keys(
  p_type pgfresh.data_type_registry, p_keys text[], p_listed boolean default false, p_as_given boolean default false)
returns table (place bigint, key text, code text, problem text, hint text)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_parts int := cardinality(p_type.key_columns) - 1;
  v_unknown_sql text;
  v_spell_sql text;
  v_invalid boolean[];
  v_keys text[];
  v_outside boolean[];
  -- Positions of the keys to look up in users' tables and types, and the keys themselves.
  v_places int[];
  v_asked text[];
  v_unknown text[];
  v_is_unknown boolean[];
  v_count int; v_from int := 1; v_size int;
begin
  -- Sorted once instead of in each of the aggregates.
  select array_agg(k.invalid), array_agg(k.key),
    array_agg(
      k.invalid
        or length(k.key) - length(replace(k.key, '|', '')) <> v_parts and v_parts > 0
        or coalesce(k.key !~ p_type.key_pattern, false))
  into v_invalid, v_keys, v_outside
  from (
    select pgfresh_engine.canonical_key(k.key, p_type.normalise) as key,
      not pgfresh_engine.is_valid_key(k.key) as invalid
    from unnest(p_keys) with ordinality as k(key, place)
    order by k.place
  ) as k;
  if p_type.key_table is not null or not p_as_given then
    select case when not p_listed then r.unknown_sql end,
      -- Numbers, dates and the like can be written in several ways; a row has only one.
      case
        when not p_as_given and bool_and(a.atttypid is not null)
            and bool_or(a.atttypid not in ('text'::regtype, 'varchar'::regtype)) then
          format('select %s from unnest($1::text[]) with ordinality as k(key, place) order by k.place',
            string_agg(
              format('%s::%s::text',
                case when v_parts = 0 then 'k.key' else format('split_part(k.key, ''|'', %s)', c.place) end,
                format_type(a.atttypid, -1)),
              ' || ''|'' || ' order by c.place))
      end
    into v_unknown_sql, v_spell_sql
    from pgfresh_engine.type_resolution as r
    cross join unnest(p_type.key_columns) with ordinality as c(name, place)
    -- The key table can be queried even if the data table is gone.
    left join pg_attribute as a on a.attrelid = r.tables[1] and a.attname = c.name
    where r.type_id = p_type.type_id
    group by r.unknown_sql;
  end if;
  if v_unknown_sql is not null or v_spell_sql is not null then
    v_places := array(select n from generate_subscripts(v_keys, 1) as n where not v_outside[n]);
    v_count := cardinality(v_places);
    v_size := v_count;
    -- A key that does not fit the column's type fails the whole query. Then bisect until it is found.
    -- Nothing is written, so these subtransactions get no xids, and there may be many of them.
    while v_from <= v_count loop
      v_asked := array(
        select v_keys[n]
        from unnest(v_places[v_from:v_from + v_size - 1]) with ordinality as p(n, place)
        order by p.place
      );
      begin
        if v_spell_sql is not null then
          v_asked := array(select pgfresh_engine.ask_keys(v_spell_sql, v_asked));
        end if;
        v_unknown := case
          when v_unknown_sql is null then '{}'
          else array(select pgfresh_engine.ask_keys(v_unknown_sql, v_asked))
        end;
        -- Hashed: comparing each with each would be quadratic.
        v_is_unknown := array(
          select k.key in (select u from unnest(v_unknown) as u)
          from unnest(v_asked) with ordinality as k(key, place)
          order by k.place
        );
        for i in 1..cardinality(v_asked) loop
          v_keys[v_places[v_from + i - 1]] := v_asked[i];
          v_outside[v_places[v_from + i - 1]] := v_is_unknown[i];
        end loop;
        v_from := v_from + v_size;
      exception
        when data_exception then
          if v_size > 1 then
            v_size := greatest(least(v_size, v_count - v_from + 1) / 2, 1);
          else
            v_outside[v_places[v_from]] := true;
            v_from := v_from + 1;
          end if;
        when others then
          perform pgfresh_engine.refuse('PGF_REGISTRY_INVALID', t.problem, t.next_step)
          from pgfresh_engine.type_problem(p_type) as t;
          raise;
      end;
    end loop;
  end if;
  if (true = any (v_outside)) is not true then
    return query select n::bigint, v_keys[n], null, null, null from generate_subscripts(v_keys, 1) as n;
    return;
  end if;
  return query
    select n::bigint, v_keys[n], c.code,
      -- The input is quoted, and the message must stay on one line.
      regexp_replace(
        case c.code
          when 'PGF_KEY_INVALID' then
            format('a key has 1 to 512 bytes and no control characters, got %s',
              coalesce(left(quote_literal(v_keys[n]), 60), 'null'))
          when 'PGF_KEY_UNKNOWN' then
            format('%s is not a key of %s', left(quote_literal(v_keys[n]), 80), p_type.data_type)
        end,
        '[[:cntrl:]]', '?', 'g'),
      case
        when c.code = 'PGF_KEY_INVALID' then 'Pass the key as the provider writes it, for instance AAPL.'
        when c.code is null then null
        when p_type.key_pattern is not null then format('Its keys match %s.', p_type.key_pattern)
        when p_type.key_table is not null then format('Its keys are those of %s.', p_type.key_table)
        when v_parts > 0 then format('It has %s parts, with | between them.', v_parts + 1)
        else format('Its keys are values of %s of %s.', p_type.key_columns[1], p_type.table_name)
      end
    from generate_subscripts(v_keys, 1) as n
    cross join lateral (
      select case when v_invalid[n] then 'PGF_KEY_INVALID' when v_outside[n] then 'PGF_KEY_UNKNOWN' end as code
    ) as c;
end
$$;
comment on function pgfresh_engine.canonical_keys(pgfresh.data_type_registry, text[], boolean, boolean) is
  'Keys as the data type spells them, and for those that it cannot have, why and what to do. '
  'p_listed: they were just read from its key table and are not looked up there. '
  'p_as_given: only their case follows the data type; numbers, dates and the like stay as they are spelled.';

create or replace function pgfresh_engine.require_keys(p_type pgfresh.data_type_registry, p_keys text[]) returns text[]
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_keys text[];
  v_refused text[];
begin
  -- In the order in which they were given.
  select array_agg(k.key), array_agg(array[k.code, k.problem, k.hint]) filter (where k.code is not null)
  into v_keys, v_refused
  from pgfresh_engine.canonical_keys(p_type, p_keys, p_as_given => true) as k;
  if v_refused is not null then
    perform pgfresh_engine.refuse(v_refused[1][1], v_refused[1][2], v_refused[1][3]);
  end if;
  return coalesce(v_keys, '{}');
end
$$;
comment on function pgfresh_engine.require_keys(pgfresh.data_type_registry, text[]) is
  'Keys in the case of their data type; refuses those that it cannot have.';

create or replace function pgfresh_engine.unlisted_keys(p_type pgfresh.data_type_registry, p_keys text[]) returns text[]
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '100ms'
as $$
begin
  if not pgfresh_engine.has_key_rules(p_type) then
    return '{}';
  end if;
  return array(
    select p_keys[k.place]
    from pgfresh_engine.canonical_keys(p_type, p_keys) as k
    where k.code is not null or k.key <> p_keys[k.place]);
-- If the key table cannot be queried, that pauses the data type; its keys are not refused.
exception when others then
  return null;
end
$$;
comment on function pgfresh_engine.unlisted_keys(pgfresh.data_type_registry, text[]) is
  'Those of these keys that are no keys of the data type any more: gone from its key table or inactive there, '
  'or not as its pattern, its case and its columns want them. Null while its key table cannot be asked.';
