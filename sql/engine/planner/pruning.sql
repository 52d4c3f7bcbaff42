/*
  Pairs are kept for what they record about their row and their last refresh. Once none of that matters any more and
  they have not been requested for a long time, they are deleted; a later request starts afresh. They are walked by key
  from a cursor, a bounded number at a time, which needs no additional index.
*/
create or replace function pgfresh_engine.last_use_of(p_pair pgfresh_engine.pairs) returns timestamptz
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
  -- In use, even without viewers, while its row is fresh or its last outcome defers the next fetch.
  select greatest(
    p_pair.unviewed_since, p_pair.ok_at, p_pair.next_ask_at, p_pair.empty_at, p_pair.confirmed_at, p_pair.lapsed_at,
    nullif(p_pair.stale_at, 'infinity'))
$$;
comment on function pgfresh_engine.last_use_of(pgfresh_engine.pairs) is
  'Until when anything that a pair remembers counted; null if it remembers no time.';

create or replace function pgfresh_engine.prune_pairs(p_keep interval default '90 days') returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
  -- Pairs examined per call.
  c_span constant int := 2000;
  v_now timestamptz := pgfresh.clock();
  v_at record;
  v_span record;
  v_deleted int;
begin
  perform pgfresh_engine.require_primary();
  perform pgfresh_engine.require_range('p_keep in seconds', extract(epoch from p_keep), 86400, 315360000);
  -- Do not wait for another call that is already doing this.
  select type_id, key into v_at from pgfresh_engine.pruning for update skip locked;
  if not found then
    return jsonb_build_object('skipped', 'locked');
  end if;
  select count(*) as count, max(s.type_id) as last_type,
    (array_agg((s.pair).key order by s.place desc))[1] as last_key,
    array_agg(s.type_id order by s.place) filter (where s.is_idle and s.used_at < v_now - p_keep) as old_types,
    array_agg((s.pair).key order by s.place) filter (where s.is_idle and s.used_at < v_now - p_keep) as old_keys,
    array_agg(s.type_id order by s.place) filter (where s.is_idle and s.used_at is null) as new_types,
    array_agg((s.pair).key order by s.place) filter (where s.is_idle and s.used_at is null) as new_keys
  into v_span
  from (
    select p.type_id, p as pair, row_number() over (order by p.type_id, p.key) as place,
      pgfresh_engine.last_use_of(p) as used_at,
      not p.demanded and p.viewers = 0 and p.job_id is null and p.warm_until is null as is_idle
    from pgfresh_engine.pairs as p
    where (p.type_id, p.key) > (v_at.type_id, v_at.key)
    order by p.type_id, p.key
    limit c_span
  ) as s;
  -- Pairs without a recorded time count from now.
  update pgfresh_engine.pairs as p
  set unviewed_since = v_now
  from (
    select w.type_id, w.key
    from unnest(v_span.new_types, v_span.new_keys) as n(type_id, key)
    join pgfresh_engine.pairs as w on w.type_id = n.type_id and w.key = n.key
    where not w.demanded and w.job_id is null and pgfresh_engine.last_use_of(w) is null
    order by w.type_id, w.key for update of w skip locked
  ) as n
  where p.type_id = n.type_id and p.key = n.key;
  with locked as (
    select p.type_id, p.key
    from unnest(v_span.old_types, v_span.old_keys) as o(type_id, key)
    join pgfresh_engine.pairs as p on p.type_id = o.type_id and p.key = o.key
    where not p.demanded and p.viewers = 0 and p.job_id is null and p.warm_until is null
      and pgfresh_engine.last_use_of(p) < v_now - p_keep
      -- Eviction finds rows by their pairs.
      and not exists (
        select from pgfresh.data_type_registry as r
        where r.type_id = p.type_id and r.evict_after is not null and (p.row_at is not null or not p.seen))
      and not exists (select from pgfresh_engine.subscription as a where a.type_id = p.type_id and a.key = p.key)
      and not exists (select from pgfresh_engine.node_demand as d where d.type_id = p.type_id and d.key = p.key)
      and not exists (select from pgfresh_engine.demand_change as c where c.type_id = p.type_id and c.key = p.key)
      and not exists (select from pgfresh_engine.demand_waiting as c where c.type_id = p.type_id and c.key = p.key)
    order by p.type_id, p.key for update of p skip locked
  ), refused as (
    delete from pgfresh_engine.refused_pair as r using locked as l where r.type_id = l.type_id and r.key = l.key
  )
  delete from pgfresh_engine.pairs as p using locked as l where p.type_id = l.type_id and p.key = l.key;
  get diagnostics v_deleted = row_count;
  update pgfresh_engine.pruning
  set type_id = case when v_span.count < c_span then 0 else v_span.last_type end,
    key = case when v_span.count < c_span then '' else v_span.last_key end;
  return jsonb_build_object('looked_at', v_span.count, 'deleted', v_deleted, 'done', v_span.count < c_span);
end
$$;
comment on function pgfresh_engine.prune_pairs(interval) is
  'Forgets pairs that nobody views, that have no job, and of which nothing has counted for so long: the last view, '
  'the last success, a row that was fresh, a pause after a failure. Looks at the next 2000 pairs. '
  'Where rows are evicted, a pair stays as long as its row. '
  'Returns {"looked_at", "deleted", "done"}: done when all pairs have had their turn.';
grant execute on function pgfresh_engine.prune_pairs(interval) to pgfresh_planner;

create or replace function pgfresh_engine.prune_usage(p_keep interval default '400 days') returns int
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  -- Rows deleted per call.
  c_rows constant int := 10000;
  v_now timestamptz := pgfresh.clock();
  v_before timestamptz;
  v_count int;
begin
  perform pgfresh_engine.require_primary();
  -- The longest quota window is 366 days.
  perform pgfresh_engine.require_range('p_keep in days', extract(epoch from p_keep) / 86400, 367, 3650);
  v_before := v_now - p_keep;
  with recursive source (id) as (
    (select source_id from pgfresh_engine.usage order by source_id limit 1)
    union all
    -- A loose index scan over source ids; deleted sources have rows too.
    select (select u.source_id from pgfresh_engine.usage as u where u.source_id > s.id order by u.source_id limit 1)
    from source as s
    where s.id is not null
  )
  delete from pgfresh_engine.usage
  where ctid = any (array(
    select u.ctid
    from source as s
    cross join lateral (
      select ctid from pgfresh_engine.usage as o where o.source_id = s.id and o.hour < v_before for update skip locked
    ) as u
    limit c_rows));
  get diagnostics v_count = row_count;
  -- The id of a deleted source is kept for its ledger, and for calls that may still be booked.
  with gone as (
    delete from pgfresh_engine.source_past as p
    where not exists (select from pgfresh_engine.usage as u where u.source_id = p.source_id)
      and not exists (select from pgfresh_engine.rate_slot as s where s.source_id = p.source_id and s.free_at > v_now)
      and not exists (select from pgfresh_engine.job as j where j.source_id = p.source_id)
    returning p.source_id
  ), slots as (
    delete from pgfresh_engine.rate_slot as s using gone as g where s.source_id = g.source_id
  )
  delete from pgfresh_engine.source_state as s using gone as g where s.source_id = g.source_id;
  return v_count;
end
$$;
comment on function pgfresh_engine.prune_usage(interval) is
  'Forgets what sources used before so long, at most 10000 rows of the ledger, and deleted sources without any. '
  'Returns how many rows of the ledger.';
grant execute on function pgfresh_engine.prune_usage(interval) to pgfresh_planner;
