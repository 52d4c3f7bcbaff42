create or replace function pgfresh_engine.expire_nodes(p_now timestamptz) returns int
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_nodes bigint[] := array(
    select id
    from pgfresh_engine.process
    where kind = 'gateway' and lease_until <= p_now
    order by id
    for update skip locked
  );
begin
  if cardinality(v_nodes) > 0 then
    -- Separate from the node, so that the trigger sees them.
    delete from pgfresh_engine.node_demand where node_id = any (v_nodes);
    delete from pgfresh_engine.process where id = any (v_nodes);
  end if;
  return cardinality(v_nodes);
end
$$;
comment on function pgfresh_engine.expire_nodes(timestamptz) is
  'Removes nodes whose lease has ended, with their counts. A part of the planner and of the cleanup.';

/*
  One bad entry must not affect the others, so refused entries are returned. Leaving is never refused, whatever became
  of the key and the data type.
*/
create or replace function pgfresh_engine.set_node_demand(p_node bigint, p_types int[], p_keys text[], p_viewers int[])
returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
-- A locked key table delays only the counts of its own data type.
set lock_timeout = '100ms'
as $$
declare
  v_types int[] := '{}';
  v_keys text[] := '{}';
  v_viewers int[] := '{}';
  v_refused jsonb := '[]';
  v_changed int;
  v_left int;
  v_type record;
  v_judged record;
begin
  perform pgfresh_engine.require_primary();
  if (cardinality(p_types) = cardinality(p_keys) and cardinality(p_keys) = cardinality(p_viewers)
      and cardinality(p_keys) <= 10000) is not true
      or exists (select from unnest(p_viewers) as v(count) where (v.count between 0 and 10000000) is not true) then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      'types, keys and viewers must be three arrays of one length, at most 10000, '
      'and each count from 0 to 10000000',
      'Pass the number of distinct users for each pair, 0 for those who left.');
  end if;
  if not exists (
    select from pgfresh_engine.process
    where id = p_node and kind = 'gateway' and lease_until > (select pgfresh.clock())
    for share
  ) then
    perform pgfresh_engine.refuse('PGF_LEASE_LOST',
      format('node %s has no lease', coalesce(p_node::text, 'null')),
      'Register again with register_process and send all counts.');
  end if;
  for v_type in
    select named.type_id, r as registered, named.keys, named.viewers, named.places
    from (
      select w.type_id, array_agg(w.key order by w.place) as keys, array_agg(w.viewers order by w.place) as viewers,
        array_agg(w.place order by w.place) as places
      from unnest(p_types, p_keys, p_viewers) with ordinality as w(type_id, key, viewers, place)
      where w.viewers > 0
      group by w.type_id
    ) as named
    left join pgfresh.data_type_registry as r on r.type_id = named.type_id
    order by named.type_id
  loop
    begin
      if v_type.registered is null then
        perform pgfresh_engine.refuse('PGF_TYPE_UNKNOWN',
          format('there is no data type with the number %s', coalesce(v_type.type_id::text, 'null')),
          'Ask want_pairs for its number.');
      end if;
      select array_agg(j.key order by j.place) filter (where j.code is null) as keys,
        array_agg(v_type.viewers[j.place] order by j.place) filter (where j.code is null) as viewers,
        jsonb_agg(jsonb_build_object('place', v_type.places[j.place], 'code', j.code, 'problem', j.problem)
          order by j.place) filter (where j.code is not null) as refused
      into v_judged
      from pgfresh_engine.canonical_keys(v_type.registered, v_type.keys) as j;
      v_keys := v_keys || v_judged.keys;
      v_viewers := v_viewers || v_judged.viewers;
      v_types := v_types || array_fill(v_type.type_id, array[coalesce(cardinality(v_judged.keys), 0)]);
      v_refused := v_refused || coalesce(v_judged.refused, '[]');
    exception when others then
      -- The data type is gone, or its keys cannot be queried now. Pairs of other types are not affected.
      v_refused := v_refused || (
        select jsonb_agg(jsonb_build_object(
          'place', p, 'code', coalesce(substring(sqlerrm from '^PGF_[A-Z_]+'), 'PGF_REGISTRY_INVALID'),
          'problem', regexp_replace(sqlerrm, '^PGF_[A-Z_]+: ', '')))
        from unnest(v_type.places) as p
      );
      -- The others may have the same key table: together they wait hardly longer than one.
      if sqlstate = '55P03' then
        perform set_config('lock_timeout', '1ms', true);
      end if;
    end;
  end loop;
  perform set_config('lock_timeout', '100ms', true);
  with wanted as (
    select w.type_id, w.key, max(w.viewers) as viewers
    from unnest(v_types, v_keys, v_viewers) as w(type_id, key, viewers)
    group by w.type_id, w.key
  )
  insert into pgfresh_engine.node_demand as d (node_id, type_id, key, viewers)
  select p_node, w.type_id, w.key, w.viewers from wanted as w order by w.type_id, w.key
  on conflict (node_id, type_id, key) do update set viewers = excluded.viewers where d.viewers <> excluded.viewers;
  get diagnostics v_changed = row_count;
  -- By arrays of keys, not a join: without statistics on a node, a join would compare all rows with all keys.
  for v_type in
    select w.type_id, array_agg(w.key) as keys
    from unnest(p_types, p_keys, p_viewers) as w(type_id, key, viewers)
    where w.viewers = 0
    group by w.type_id
    order by w.type_id
  loop
    delete from pgfresh_engine.node_demand as d
    where d.node_id = p_node and d.type_id = v_type.type_id and d.key = any (v_type.keys);
    get diagnostics v_left = row_count;
    v_changed := v_changed + v_left;
  end loop;
  return jsonb_build_object('changed', v_changed, 'refused', v_refused);
end
$$;
comment on function pgfresh_engine.set_node_demand(bigint, int[], text[], int[]) is
  'Says how many distinct users look at each of these pairs through a node; 0 for pairs that all have left. '
  'Pairs that are not named keep their count. '
  'Returns {"changed", "refused"}: how many changed, and the place, code and problem of each that was not counted. '
  'Leaving is never refused.';
grant execute on function pgfresh_engine.set_node_demand(bigint, int[], text[], int[]) to pgfresh_gateway;
