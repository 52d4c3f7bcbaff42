-- Requests of a gateway on behalf of its connected viewers, batched across connections.

/*
  From a request to its jobs in one statement: resolves the pairs, and with p_plan also plans and counts them. A pair is
  planned under its lock and only while it is not demanded, so a concurrent call, or the planner, finds it planned.
*/
create or replace function pgfresh_engine.want_pairs(
  p_data_types text[], p_keys text[], p_plan boolean default false, p_node bigint default null)
returns table (
  place bigint, type_id int, visibility text, key text, known boolean, counted boolean, code text, problem text)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_now timestamptz := pgfresh.clock();
  v_node bigint;
  v_type record;
  v_judged record;
  v_keys text[];
  v_counted text[];
  v_looks pgfresh_engine.looks[];
begin
  perform pgfresh_engine.require_primary();
  if (cardinality(p_data_types) = cardinality(p_keys) and cardinality(p_keys) <= 10000) is not true
      or p_plan is null then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      'p_data_types and p_keys must be arrays of one length, at most 10000, and p_plan must not be null',
      'Pass a data type for each key.');
  end if;
  if p_plan then
    -- If a crash loses this, the gateway's next count of the pair restores it.
    perform set_config('synchronous_commit', 'off', true);
    -- With a lock that does not block the gateway's heartbeat.
    select n.id
    into v_node
    from pgfresh_engine.process as n
    where n.id = p_node and n.kind = 'gateway' and n.lease_until > v_now
    for key share;
  end if;
  -- By type and key, the lock order of all functions.
  for v_type in
    select r as registered, named.data_type, named.keys, named.places
    from (
      select w.data_type, array_agg(w.key order by w.place) as keys, array_agg(w.place order by w.place) as places
      from unnest(p_data_types, p_keys) with ordinality as w(data_type, key, place)
      group by w.data_type
    ) as named
    left join pgfresh.data_type_registry as r on r.data_type = named.data_type
    order by r.type_id
  loop
    if (v_type.registered).type_id is null then
      return query
        select p, null::int, null, null, null::boolean, null::boolean, 'PGF_TYPE_UNKNOWN',
          regexp_replace(
            format('there is no data type %s', coalesce(left(quote_literal(v_type.data_type), 80), 'null')),
            '[[:cntrl:]]', '?', 'g')
        from unnest(v_type.places) as p;
      continue;
    end if;
    begin
      select array_agg(j.key order by j.place) as keys, array_agg(j.code order by j.place) as codes,
        array_agg(j.problem order by j.place) as problems,
        array_agg(
          j.code is null and exists (
            select from pgfresh_engine.pairs as p
            where p.type_id = (v_type.registered).type_id and p.key = j.key collate "C")
          order by j.place) as known
      into v_judged
      from pgfresh_engine.canonical_keys(v_type.registered, v_type.keys) as j;
    exception when sqlstate 'PGF01' then
      -- Its registry row no longer resolves. Pairs of other types are not affected.
      return query
        select p, null::int, null, null, null::boolean, null::boolean, 'PGF_REGISTRY_INVALID',
          regexp_replace(sqlerrm, '^PGF_[A-Z_]+: ', '')
        from unnest(v_type.places) as p;
      continue;
    end;
    v_counted := '{}';
    if p_plan then
      v_keys := array(
        select distinct j.key collate "C"
        from unnest(v_judged.keys, v_judged.codes) as j(key, code)
        where j.code is null
        order by 1);
      perform pgfresh_engine.make_pairs((v_type.registered).type_id, v_keys);
      if v_node is not null then
        -- An existing count is the gateway's own, and may be higher.
        with counted as (
          insert into pgfresh_engine.node_demand (node_id, type_id, key, viewers)
          select v_node, (v_type.registered).type_id, k, 1 from unnest(v_keys) as k
          on conflict do nothing
          returning key
        )
        select coalesce(array_agg(c.key), '{}') into v_counted from counted as c;
      end if;
      -- Pairs with viewers already have a due time. A locked pair is left to the planner's next tick.
      v_keys := array(
        select p.key
        from pgfresh_engine.pairs as p
        where p.type_id = (v_type.registered).type_id and p.key = any (v_keys) and not p.demanded
        order by p.key
        for update skip locked
      );
      if cardinality(v_keys) > 0 then
        update pgfresh_engine.pairs
        set demanded = true, unlisted_at = null, warm_until = v_now + interval '15 seconds',
          due_at = case when job_id is null then v_now else due_at end
        where type_id = (v_type.registered).type_id and key = any (v_keys);
        v_looks := v_looks || pgfresh_engine.looks_at((v_type.registered).type_id, v_keys);
      end if;
    end if;
    return query
      select j.place, (v_type.registered).type_id, (v_type.registered).visibility,
        case when j.code is null then j.key end, j.known, c.key is not null, j.code, j.problem
      from unnest(v_type.places, v_judged.keys, v_judged.known, v_judged.codes, v_judged.problems)
        as j(place, key, known, code, problem)
      left join unnest(v_counted) as c(key) on c.key = j.key and j.code is null;
  end loop;
  if v_looks is not null then
    perform pgfresh_engine.plan_looks(v_looks, v_now);
  end if;
end
$$;
comment on function pgfresh_engine.want_pairs(text[], text[], boolean, bigint) is
  'Pairs as the registry spells them: for each, the number of its data type, who may see it, its key, '
  'and whether it was ever asked for; or the code of an error and what is wrong. '
  'Without p_plan it writes nothing. With it, those that are missing or stale are queued at once and kept for 15 s, '
  'until their viewers are counted; of a node that has a lease, one viewer is counted where it had none.';
grant execute on function pgfresh_engine.want_pairs(text[], text[], boolean, bigint) to
  pgfresh_gateway, pgfresh_worker, pgfresh_operator;

create or replace function pgfresh_engine.refresh_pair(p_data_type text, p_key text) returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_type pgfresh.data_type_registry := pgfresh_engine.require_type(p_data_type);
  v_key text := (pgfresh_engine.require_keys(v_type, array[p_key]))[1];
  v_pair pgfresh_engine.pairs;
begin
  perform pgfresh_engine.require_primary();
  select * into v_pair from pgfresh_engine.pairs where type_id = v_type.type_id and key = v_key collate "C";
  return (
    select jsonb_build_object('job_id', q.job_id, 'result', q.result)
    from pgfresh_engine.queue_refreshes(
      p_data_type, array[v_key],
      greatest(1, pgfresh_engine.priority_of(
        coalesce(v_pair.viewers, 1), v_type.ui_threshold, v_type.background_priority)),
      -- A failed job is retried now; a running one is not run again.
      p_force => exists (select from pgfresh_engine.job where id = v_pair.job_id and state = 'w')) as q
  );
end
$$;
comment on function pgfresh_engine.refresh_pair(text, text) is
  'Queues a pair although it may be fresh, with the priority of its viewers. Ends the wait of a job that failed. '
  'Returns {"job_id", "result"}; see queue_refreshes for the results.';
grant execute on function pgfresh_engine.refresh_pair(text, text) to pgfresh_gateway;

create or replace function pgfresh_engine.count_viewers(p_types int[], p_keys text[]) returns int[]
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
begin
  if (cardinality(p_types) = cardinality(p_keys) and cardinality(p_keys) <= 10000) is not true then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      'p_types and p_keys must be arrays of one length, at most 10000',
      'Pass the number of a data type for each key.');
  end if;
  return array(
    select coalesce((
      select p.viewers from pgfresh_engine.pairs as p where p.type_id = w.type_id and p.key = w.key collate "C"
    ), 0)
    from unnest(p_types, p_keys) with ordinality as w(type_id, key, place)
    order by w.place
  );
end
$$;
comment on function pgfresh_engine.count_viewers(int[], text[]) is
  'How many look at each of these pairs, through all gateways and from SQL, as of the planner''s last tick.';
grant execute on function pgfresh_engine.count_viewers(int[], text[]) to pgfresh_gateway;
