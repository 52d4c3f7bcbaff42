create or replace function pgfresh_engine.record_run(
  p_kind text, p_started_at timestamptz, p_ms double precision, p_counts jsonb)
returns void
language sql
set search_path = pg_catalog, pg_temp
as $$
  insert into pgfresh_engine.planner_run as r (kind, started_at, last_at, calls, ms, counts)
  values (p_kind, p_started_at, pgfresh.clock(), 1, p_ms, p_counts)
  on conflict (kind, started_at) do update
  set last_at = excluded.last_at, calls = r.calls + 1, ms = r.ms + excluded.ms,
    counts = pgfresh_engine.add_counts(r.counts, excluded.counts)
$$;
comment on function pgfresh_engine.record_run(text, timestamptz, double precision, jsonb) is
  'Adds a call of the planner to its record.';

/*
  Pairs that another transaction has locked keep their entries and do not count: reading continues past them.
  Entries whose pair is not due are deleted and ignored.
  Pairs are read by the keys of a data type, because one index scan finds many.
*/
create or replace function pgfresh_engine.take_due(
  p_now timestamptz, p_limit int, p_types int[], out looks pgfresh_engine.looks[], out taken int)
language plpgsql
set search_path = pg_catalog, pg_temp
-- Planned once for any number of entries: index scans and hash joins.
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_nestloop = off
set enable_mergejoin = off
set jit = off
as $$
declare
  v_read record;
  v_locked record;
  v_after timestamptz := '-infinity'; v_after_type int := 0; v_after_key text := '';
begin
  looks := '{}';
  taken := 0;
  loop
    select array_agg(d.ctid) as entries, array_agg(d.type_id) as types, array_agg(d.key) as keys,
      max(d.due_at) as last, count(*)::int as count
    into v_read
    from (
      select d.ctid, d.*
      from pgfresh_engine.due as d
      where d.due_at <= p_now and (d.due_at, d.type_id, d.key) > (v_after, v_after_type, v_after_key)
        and (p_types is null or d.type_id = any (p_types))
      order by d.due_at, d.type_id, d.key
      limit p_limit - taken
    ) as d;
    exit when v_read.count = 0;
    with locked as materialized (
      select p.*
      from (
        select t.type_id, array_agg(t.key) as keys
        from unnest(v_read.types, v_read.keys) as t(type_id, key)
        group by t.type_id
      ) as t
      cross join lateral (
        select p.type_id, p.key, p.job_id, p.next_ask_at, p.due_at, p.ctid as place,
          pgfresh_engine.confirmed_of(p) as confirmed, pgfresh_engine.row_time_of(p) as row_time,
          p.demanded and p.due_at <= p_now as is_due
        from pgfresh_engine.pairs as p
        where p.type_id = t.type_id and p.key = any (t.keys)
        for update skip locked
      ) as p
    ), entries as materialized (
      -- Usually none of them is locked, and all entries read are deleted.
      select case
        when (select count(*) from locked) = v_read.count then v_read.entries
        else array(
          select d.entry
          from unnest(v_read.entries, v_read.types, v_read.keys) as d(entry, type_id, key)
          join locked as l on l.type_id = d.type_id and l.key = d.key)
      end as places
    ), gone as (
      delete from pgfresh_engine.due where ctid = any ((select e.places from entries as e)::tid[])
    )
    select (select cardinality(e.places) from entries as e) as count,
      array(
        select row(
          l.type_id, bool_or(l.job_id is not null or l.next_ask_at > p_now), array_agg(l.key), array_agg(l.place),
          array_agg(l.job_id), array_agg(l.next_ask_at), array_agg(l.confirmed), array_agg(l.row_time),
          array_agg(l.due_at), null
        )::pgfresh_engine.looks
        from locked as l
        where l.is_due
        group by l.type_id
      ) as looks
    into v_locked;
    looks := looks || v_locked.looks;
    taken := taken + v_locked.count;
    exit when v_read.count = v_locked.count or taken >= p_limit;
    v_after := v_read.last;
    v_after_type := v_read.types[v_read.count];
    v_after_key := v_read.keys[v_read.count];
  end loop;
end
$$;
comment on function pgfresh_engine.take_due(timestamptz, int, int[]) is
  'Takes the entries that are due, and locks and reads their pairs. A part of the tick.';

-- Processes of pgfresh set their own limit. Other callers must not wait long for a lock either.
create or replace function pgfresh_engine.limit_lock_waits() returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if current_setting('lock_timeout') = '0' then
    perform set_config('lock_timeout', '100ms', true);
  end if;
end
$$;
comment on function pgfresh_engine.limit_lock_waits() is
  'Sets lock_timeout to 100 ms until the end of the transaction, if it has none. A part of the planner.';

create or replace function pgfresh_engine.types_to_ask() returns table (type_id int, data_type text)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select r.type_id, r.data_type
  from pgfresh.data_type_registry as r
  left join pgfresh_engine.type_timeout as t on t.type_id = r.type_id
  where not pgfresh_engine.is_quarantined(r.type_id, (select pgfresh.clock()))
  order by t.last_at nulls first, r.type_id
$$;
comment on function pgfresh_engine.types_to_ask() is
  'The data types that are not in quarantine; those that have timed out lately come last.';
grant execute on function pgfresh_engine.types_to_ask() to pgfresh_planner;

create or replace function pgfresh_engine.plan_due_pairs(p_limit int default 2000, p_data_types text[] default null)
returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_began timestamptz := clock_timestamp();
  v_now timestamptz := pgfresh.clock();
  v_types int[];
  v_quarantined int[] := '{}';
  v_counts jsonb := '{}';
  v_todo record;
  v_due record;
  v_folded int := 0;
begin
  perform pgfresh_engine.require_primary();
  perform pgfresh_engine.require_range('p_limit', p_limit, 1, 10000);
  if not pg_try_advisory_xact_lock(7041, 1) then
    return jsonb_build_object('skipped', 'locked');
  end if;
  perform pgfresh_engine.limit_lock_waits();
  if p_data_types is not null then
    v_types := array(select r.type_id from pgfresh.data_type_registry as r where r.data_type = any (p_data_types));
  end if;
  -- Whether there is anything to do, in one statement, because starting one costs more than running it. Each answer is
  -- the first entry of an index: without the ORDER BY, all pairs would be read to find that none matches.
  select
    (select true from pgfresh_engine.process as n where n.kind = 'gateway' and n.lease_until <= v_now limit 1) as nodes,
    (select true from pgfresh_engine.demand_change as c order by c.id limit 1) as changes,
    (select true from pgfresh_engine.demand_waiting as w order by w.next_at limit 1) as waiting,
    (select true from pgfresh_engine.pairs as p where p.warm_until <= v_now order by p.warm_until limit 1) as cold,
    (
      select true
      from pgfresh_engine.pairs as p
      where p.unlisted_at <= v_now - interval '5 seconds'
      order by p.unlisted_at
      limit 1
    ) as unlisted,
    (select true from pgfresh_engine.hold as h limit 1) as held
  into v_todo;
  -- Not when called for some types: time spent here must not be blamed on them.
  if coalesce(p_data_types, '{}') = '{}' then
    if v_todo.nodes and not pgfresh_engine.is_loss_held(v_now) then
      perform pgfresh_engine.expire_nodes(v_now);
    end if;
    if v_todo.changes or v_todo.waiting or v_todo.nodes then
      v_folded := pgfresh_engine.fold_demand(v_now);
    end if;
    if v_todo.cold then
      perform pgfresh_engine.cool_down(v_now);
    end if;
  end if;
  if v_todo.unlisted then
    perform pgfresh_engine.list_again(v_now, v_types);
  end if;
  if v_todo.held then
    perform pgfresh_engine.release_held(v_now, p_limit, v_types);
  end if;
  select * into v_due from pgfresh_engine.take_due(v_now, p_limit, v_types);
  if v_due.looks <> '{}' then
    v_counts := pgfresh_engine.plan_looks(v_due.looks, v_now);
  end if;
  if v_due.looks <> '{}' or v_folded > 0 then
    perform pgfresh_engine.record_run('tick', date_trunc('minute', v_now),
      1000 * extract(epoch from clock_timestamp() - v_began), v_counts);
  end if;
  if exists (select from pgfresh_engine.type_timeout) then
    v_quarantined := array(select q.type_id from pgfresh_engine.quarantined_types() as q);
  end if;
  return v_counts || jsonb_build_object('more', v_due.taken = p_limit)
    || case when v_quarantined = '{}' then '{}' else jsonb_build_object('quarantined', v_quarantined) end;
end
$$;
comment on function pgfresh_engine.plan_due_pairs(int, text[]) is
  'The tick: counts viewers who came and left, and looks at the demanded pairs that are due, at most p_limit. '
  'With data types it only looks at their pairs; with none of them ({}) it only counts. '
  'Call it every second, and again at once while it says {"more": true}. '
  'Waits at most 100 ms for a lock on a table, if lock_timeout is not set. '
  '"quarantined" has the numbers of the data types that are to be probed; see probe_type.';
grant execute on function pgfresh_engine.plan_due_pairs(int, text[]) to pgfresh_planner;

create or replace function pgfresh_engine.clear_planner_runs(p_keep interval default '7 days') returns int
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_count int;
begin
  perform pgfresh_engine.require_range('p_keep in seconds', extract(epoch from p_keep), 60, 315360000);
  delete from pgfresh_engine.planner_run where started_at < (select pgfresh.clock()) - p_keep;
  get diagnostics v_count = row_count;
  return v_count;
end
$$;
comment on function pgfresh_engine.clear_planner_runs(interval) is
  'Forgets the planner''s runs that are older than this. Returns how many.';
grant execute on function pgfresh_engine.clear_planner_runs(interval) to pgfresh_planner;
