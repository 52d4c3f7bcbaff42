/*
  What a gateway asks on behalf of those who are connected to it. It asks in sets, gathered from all connections, so one bad pair
  must not spoil the others: where admit_keys raises for the first, judge_keys says of each what it is.
*/
create or replace function pgfresh.judge_keys(p_type pgfresh.data_type_registry, p_keys text[])
returns table (place bigint, key text, code text, problem text)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_parts int := cardinality(p_type.key_columns) - 1;
  v_unknown_sql text := (select unknown_sql from pgfresh.type_resolution where type_id = p_type.type_id);
  v_keys text[];
  v_outside text[] := '{}';
  v_count int; v_from int := 1; v_size int;
begin
  v_keys := array(select case p_type.normalise when 'upper' then upper(k.key) when 'lower' then lower(k.key) else k.key end from unnest(p_keys) with ordinality as k(key, place) order by k.place);
  if p_type.key_table is not null then
    v_count := cardinality(v_keys);
    v_size := v_count;
    -- A key that is not even of the column's type raises for all that are asked with it. Then in halves, until it is known which.
    for v_try in 1..50 loop
      exit when v_from > v_count;
      begin
        v_outside := v_outside || array(select pgfresh.ask_keys(v_unknown_sql, v_keys[v_from:v_from + v_size - 1]));
        v_from := v_from + v_size;
      exception
        when data_exception then
          if v_size > 1 then
            v_size := greatest(least(v_size, v_count - v_from + 1) / 2, 1);
          else
            v_outside := v_outside || v_keys[v_from];
            v_from := v_from + 1;
          end if;
        when others then
          perform pgfresh.refuse_registry(t.problem, t.next_step) from pgfresh.type_problem(p_type) as t;
          raise;
      end;
    end loop;
    v_outside := v_outside || v_keys[v_from:];
  end if;
  return query
    select k.place, k.key, case when k.invalid then 'PGF_KEY_INVALID' when k.outside then 'PGF_KEY_UNKNOWN' end,
      case when k.invalid then format('a key has 1 to 512 bytes and no control characters, got %s', coalesce(left(quote_literal(k.key), 60), 'null'))
        when k.outside then format('%s is not a key of %s', left(quote_literal(k.key), 80), p_type.data_type) end
    from (
      select k.key, k.place, (k.key <> '' and octet_length(k.key) <= 512 and k.key !~ '[[:cntrl:]]') is not true as invalid,
        length(k.key) - length(replace(k.key, '|', '')) <> v_parts and v_parts > 0 or k.key !~ p_type.key_pattern or k.key = any (v_outside) as outside
      from unnest(v_keys) with ordinality as k(key, place)
    ) as k;
end
$$;
comment on function pgfresh.judge_keys(pgfresh.data_type_registry, text[]) is 'Keys as the data type writes them, and for those that it can not have, why. A part of admit_pairs.';

create or replace function pgfresh.admit_pairs(p_data_types text[], p_keys text[])
returns table (place bigint, key text, known boolean, visibility text, code text, problem text)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_type record;
begin
  if (cardinality(p_data_types) = cardinality(p_keys) and cardinality(p_keys) <= 10000) is not true then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID', 'data types and keys must be two arrays of one length, at most 10000', 'Pass a key for each data type.');
  end if;
  for v_type in
    select r as registered, named.data_type, array_agg(named.key order by named.place) as keys, array_agg(named.place order by named.place) as places
    from unnest(p_data_types, p_keys) with ordinality as named(data_type, key, place) left join pgfresh.data_type_registry as r using (data_type) group by r, named.data_type
  loop
    if (v_type.registered).type_id is null then
      return query select p, null, null::boolean, null, 'PGF_TYPE_UNKNOWN', format('there is no data type %s', coalesce(left(quote_literal(v_type.data_type), 80), 'null')) from unnest(v_type.places) as p;
      continue;
    end if;
    begin
      return query
        select v_type.places[j.place], j.key,
          j.code is null and exists (select from pgfresh.pairs as p where p.type_id = (v_type.registered).type_id and p.key = j.key collate "C"),
          (v_type.registered).visibility, j.code, j.problem
        from pgfresh.judge_keys(v_type.registered, v_type.keys) as j;
    exception when sqlstate 'PGF01' then
      -- Its registry row does not resolve any more. The pairs of other types are none the worse for it.
      return query select p, null, null::boolean, null, 'PGF_REGISTRY_INVALID', regexp_replace(sqlerrm, '^PGF_\w+: ', '') from unnest(v_type.places) as p;
    end;
  end loop;
end
$$;
comment on function pgfresh.admit_pairs(text[], text[]) is
  'Says of each pair how its data type writes the key, and whether anybody ever asked for it (known); or why there can be no such pair (code, problem). Writes nothing.';

create or replace function pgfresh.check_pairs(p_data_types text[], p_keys text[]) returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := pgfresh.clock();
  v_type record;
  v_keys text[];
  v_looks pgfresh.look[];
begin
  perform pgfresh.require_primary();
  if (cardinality(p_data_types) = cardinality(p_keys) and cardinality(p_keys) <= 10000) is not true then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID', 'data types and keys must be two arrays of one length, at most 10000', 'Pass a key for each data type.');
  end if;
  -- By type and key, as everybody else locks them.
  for v_type in
    select pgfresh.require_type(named.data_type) as registered, named.keys
    from (select data_type, array_agg(distinct key collate "C" order by key collate "C") as keys from unnest(p_data_types, p_keys) as named(data_type, key) group by data_type) as named
    left join pgfresh.data_type_registry as r using (data_type) order by r.type_id
  loop
    v_keys := pgfresh.admit_keys(v_type.registered, v_type.keys);
    insert into pgfresh.pairs (type_id, key) select (v_type.registered).type_id, k from unnest(v_keys) as k
      where not exists (select from pgfresh.pairs as p where p.type_id = (v_type.registered).type_id and p.key = k collate "C") order by k collate "C" on conflict do nothing;
    -- Those at which somebody looks already have a time. Who finds one locked leaves it to the one who is just doing this.
    v_keys := array(select p.key from pgfresh.pairs as p where p.type_id = (v_type.registered).type_id and p.key = any (v_keys) and not p.demanded order by p.key for update skip locked);
    continue when cardinality(v_keys) = 0;
    update pgfresh.pairs set demanded = true, warm_until = v_now + interval '15 seconds', due_at = case when job_id is null then v_now else due_at end
      where type_id = (v_type.registered).type_id and key = any (v_keys);
    v_looks := v_looks || pgfresh.looks_at((v_type.registered).type_id, v_keys);
  end loop;
  return case when v_looks is null then '{}' else pgfresh.plan_looks(v_looks, v_now) end;
end
$$;
comment on function pgfresh.check_pairs(text[], text[]) is
  'For the moment in which a gateway''s users begin to look: queues those of the pairs that are missing or stale at once, and keeps them for 15 s until the gateway has said how many look. Returns counts.';

create or replace function pgfresh.refresh_pair(p_data_type text, p_key text) returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_type pgfresh.data_type_registry := pgfresh.require_type(p_data_type);
  v_key text := (pgfresh.admit_keys(v_type, array[p_key]))[1];
  v_viewers int := (select viewers from pgfresh.pairs where type_id = v_type.type_id and key = v_key collate "C");
begin
  perform pgfresh.require_primary();
  return pgfresh.queue_refresh_if_not_exists(v_key, p_data_type, greatest(1, pgfresh.priority_of(v_type, coalesce(v_viewers, 1))));
end
$$;
comment on function pgfresh.refresh_pair(text, text) is
  'Queues a pair although it may be fresh, with the priority of its viewers. Returns {"job_id", "result"}; see queue_refreshes for the results.';
