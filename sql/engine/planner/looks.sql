-- A row that the source denied is stale once that period is over, however young it is.
create or replace function pgfresh_engine.confirmed_of(p_pair pgfresh_engine.pairs) returns timestamptz
language sql immutable parallel safe
as $$ select case when p_pair.empty_at is null then p_pair.confirmed_at else '-infinity' end $$;
comment on function pgfresh_engine.confirmed_of(pgfresh_engine.pairs) is
  'When the source last confirmed the row of a pair; -infinity if it has denied it since. A part of the planner.';

-- The time of a row that was written but not checked yet is unknown.
create or replace function pgfresh_engine.row_time_of(p_pair pgfresh_engine.pairs) returns timestamptz
language sql immutable parallel safe
as $$ select case when p_pair.seen then p_pair.row_at else '-infinity' end $$;
comment on function pgfresh_engine.row_time_of(pgfresh_engine.pairs) is
  'The time of the row of a pair as the planner last saw it. A part of the planner.';

create or replace function pgfresh_engine.looks_at(p_type_id int, p_keys text[], p_priorities int[] default null)
returns pgfresh_engine.looks[]
language plpgsql stable
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
as $$
begin
  return array(
    select row(
      p_type_id, true, array_agg(p.key), null, array_agg(p.job_id), array_agg(p.next_ask_at),
      array_agg(pgfresh_engine.confirmed_of(p)), array_agg(pgfresh_engine.row_time_of(p)),
      array_agg(case when p.demanded then p.due_at end),
      case when p_priorities is not null then array_agg(w.priority) end
    )::pgfresh_engine.looks
    from unnest(p_keys, p_priorities) as w(key, priority)
    join pgfresh_engine.pairs as p on p.type_id = p_type_id and p.key = w.key
    having count(*) > 0
  );
end
$$;
comment on function pgfresh_engine.looks_at(int, text[], int[]) is
  'Pairs of one data type, read for the planner. A part of the planner.';

/*
  Every pair is accessed by its key, whatever the statistics say of a table that has just been filled. Pairs that
  another transaction has locked, or that changed since they were read, are skipped. The due entries of the others are
  deleted, as in the tick.
*/
create or replace function pgfresh_engine.lock_looks(p_looks pgfresh_engine.look[]) returns pgfresh_engine.look[]
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
declare
  v_looks pgfresh_engine.look[] := array(
    select row(l.type_id, l.key, coalesce(l.place, p.ctid), l.job_id, l.due_at, l.next_at, l.priority,
      l.changed, l.row_at, l.stale_at, l.waits_for)::pgfresh_engine.look
    from unnest(p_looks) as l
    left join lateral (
      select p.ctid
      from pgfresh_engine.pairs as p
      where l.place is null and p.type_id = l.type_id and p.key = l.key
        and p.job_id is not distinct from l.job_id
        and (p.due_at = l.due_at or l.due_at is null)
      for update skip locked
    ) as p on true
    where l.place is not null or p.ctid is not null
  );
begin
  delete from pgfresh_engine.due as d
  using unnest(v_looks) as l
  where d.due_at = l.due_at and d.type_id = l.type_id and d.key = l.key;
  return v_looks;
end
$$;
comment on function pgfresh_engine.lock_looks(pgfresh_engine.look[]) is
  'Locks pairs that were read without, as far as they are still as they were. A part of the planner.';

create or replace function pgfresh_engine.look_again(p_looks pgfresh_engine.look[]) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
begin
  if p_looks[1].place is null then
    p_looks := pgfresh_engine.lock_looks(p_looks);
  end if;
  -- By ctid, which cannot change while they are locked.
  update pgfresh_engine.pairs as p
  set due_at = l.next_at, waits_for = l.waits_for, seen = p.seen or l.changed is not null,
    row_at = case when l.changed then l.row_at else p.row_at end,
    -- The source confirmed another version of the row.
    confirmed_at = case when l.changed and (l.row_at >= p.row_at) is not true then null else p.confirmed_at end,
    stale_at = coalesce(l.stale_at, p.stale_at)
  from unnest(p_looks) as l
  where p.ctid = l.place;
  insert into pgfresh_engine.due (due_at, type_id, key)
  select l.next_at, l.type_id, l.key from unnest(p_looks) as l where l.next_at < 'infinity'
  on conflict do nothing;
end
$$;
comment on function pgfresh_engine.look_again(pgfresh_engine.look[]) is
  'Sets when the planner looks at pairs next, and what it has seen of them. A part of the planner.';

create or replace function pgfresh_engine.open_jobs_for(
  p_types int[], p_looks pgfresh_engine.look[], p_places tid[], p_now timestamptz)
returns int
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_mergejoin = off
set jit = off
as $$
declare
  v_count int;
  v_changed boolean;
  v_raised boolean := false;
begin
  if cardinality(p_looks) > 0 then
    if p_looks[1].place is null then
      p_looks := pgfresh_engine.lock_looks(p_looks);
    end if;
    select bool_or(l.changed), bool_or(l.priority is not null) into v_changed, v_raised from unnest(p_looks) as l;
    if v_changed then
      with noted as (
        update pgfresh_engine.pairs as p
        set seen = true, row_at = l.row_at,
          confirmed_at = case when (l.row_at >= p.row_at) is not true then null else p.confirmed_at end
        from unnest(p_looks) as l
        where l.changed and p.ctid = l.place
        returning p.type_id, p.key, p.ctid as place
      )
      select array_agg(row(l.type_id, l.key, coalesce(n.place, l.place), l.job_id, l.due_at, l.next_at, l.priority,
        false, null, l.stale_at, l.waits_for)::pgfresh_engine.look)
      into p_looks
      from unnest(p_looks) as l
      left join noted as n on n.type_id = l.type_id and n.key = l.key;
    end if;
    p_places := p_places || array(select l.place from unnest(p_looks) as l);
  end if;
  with kinds as materialized (
    select r.type_id, r.source_id, r.ui_threshold, r.background_priority, b.bytes
    from pgfresh.data_type_registry as r
    cross join lateral (
      select coalesce(
        (select t.estimated_bytes from pgfresh_engine.type_stats as t where t.type_id = r.type_id),
        r.estimated_data_size_bytes
      ) as bytes
    ) as b
    where r.type_id = any (p_types)
  ), opened as (
    -- By ctid, which cannot change while they are locked.
    update pgfresh_engine.pairs as p
    set job_id = nextval('pgfresh_engine.job_id'), due_at = 'infinity', next_ask_at = null, waits_for = null,
      stale_at = least(p.stale_at, p_now)
    where p.ctid = any (p_places)
    returning p.type_id, p.key, p.job_id, p.viewers, p.row_at is null and p.seen and p.empty_at is null as missing
  ), ranked as (
    select o.key, o.job_id, o.missing, k.*,
      greatest(
        1,
        pgfresh_engine.priority_of(o.viewers, k.ui_threshold, k.background_priority),
        case when v_raised then (
          select max(l.priority) from unnest(p_looks) as l where l.type_id = o.type_id and l.key = o.key
        ) end
      ) as priority
    from opened as o
    join kinds as k on k.type_id = o.type_id
  )
  insert into pgfresh_engine.job
    (id, seq, run_at, created_at, est_bytes, type_id, source_id,
      priority, band, lane, missing, state, key)
  select r.job_id, r.job_id, p_now, p_now, r.bytes, r.type_id, r.source_id,
    r.priority, pgfresh_engine.band_of(r.priority),
      pgfresh_engine.lane_of(pgfresh_engine.band_of(r.priority), r.missing, r.bytes),
    r.missing, 'r', r.key
  from ranked as r;
  get diagnostics v_count = row_count;
  if v_count > 0 then
    perform pgfresh_engine.wake_workers();
  end if;
  return v_count;
end
$$;
comment on function pgfresh_engine.open_jobs_for(int[], pgfresh_engine.look[], tid[], timestamptz) is
  'Opens a job for each of these pairs, with the priority of its viewers: pairs of which something is to be noted, and '
  'the places of others, which are locked. A part of the planner.';
