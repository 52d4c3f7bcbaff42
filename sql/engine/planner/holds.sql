/*
  An obstacle gives all pairs of a data type that it holds the same due time, so that the index of due times finds them
  together if it ends earlier.
*/

-- An insert waits for another transaction that has added the same hold, so it gives up after a few milliseconds.
create or replace function pgfresh_engine.add_hold(p_type_id int, p_until timestamptz, p_reason text, p_now timestamptz)
returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '5ms'
as $$
begin
  insert into pgfresh_engine.hold (type_id, until, reason, asked_at)
  values (p_type_id, p_until, p_reason, p_now)
  on conflict do nothing;
  return found;
exception when lock_not_available then
  return false;
end
$$;
comment on function pgfresh_engine.add_hold(int, timestamptz, text, timestamptz) is
  'Adds a hold; false if another transaction adds or removes it. A part of note_hold.';

/*
  Viewers add holds too, in transactions that may stay open. Many can share the lock that keeps a hold from being
  removed before their entries are visible.
*/
create or replace function pgfresh_engine.note_hold(p_type_id int, p_until timestamptz, p_reason text,
  p_now timestamptz)
returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_reason text;
begin
  select h.reason
  into v_reason
  from pgfresh_engine.hold as h
  where h.type_id = p_type_id and h.until = p_until
  for key share skip locked;
  if not found then
    return pgfresh_engine.add_hold(p_type_id, p_until, p_reason, p_now);
  end if;
  if v_reason <> p_reason then
    perform from pgfresh_engine.hold as h
    where h.type_id = p_type_id and h.until = p_until
    for no key update skip locked;
    if found then
      update pgfresh_engine.hold set reason = p_reason where type_id = p_type_id and until = p_until;
    end if;
  end if;
  return true;
end
$$;
comment on function pgfresh_engine.note_hold(int, timestamptz, text, timestamptz) is
  'Remembers that an obstacle holds pairs of a data type until then. False if another open transaction adds or removes '
  'the same hold: then look at the pairs again soon. A part of the planner.';

/*
  A data type has recovered, or an operator has resumed its source: refused pairs are fetched again at once. A pair that
  is refused again while others are not is skipped by the next recovery, or it could pause its type again and again; an
  operator can still request it.
  Lock order: the pair, then its entry.
*/
create or replace function pgfresh_engine.release_refused(p_type_id int, p_all boolean, p_now timestamptz, p_limit int)
returns int
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
  v_taken record;
begin
  select coalesce(array_agg(t.key), '{}') as keys, coalesce(array_agg(t.key) filter (where t.is_held), '{}') as held
  into v_taken
  from (
    select r.key, p.is_held
    from pgfresh_engine.refused_pair as r
    cross join lateral (
      select p.ok_at, p.job_id is null and p.next_ask_at > p_now
        and pgfresh_engine.is_refused_answer(p.outcome) as is_held
      from pgfresh_engine.pairs as p
      where p.type_id = r.type_id and p.key = r.key
      for update skip locked
    ) as p
    where r.type_id = p_type_id and (p_all or r.released_at is null or p.ok_at > r.released_at)
    limit p_limit
  ) as t;
  with released as (
    update pgfresh_engine.pairs as p
    set next_ask_at = null, due_at = case when p.demanded then p_now else p.due_at end
    where p.type_id = p_type_id and p.key = any (v_taken.held)
    returning p.key, p.demanded
  )
  insert into pgfresh_engine.due (due_at, type_id, key)
  select p_now, p_type_id, r.key from released as r where r.demanded
  on conflict do nothing;
  delete from pgfresh_engine.refused_pair
  where type_id = p_type_id and key = any (v_taken.keys) and (p_all or not key = any (v_taken.held));
  if not p_all then
    update pgfresh_engine.refused_pair
    set released_at = p_now
    where type_id = p_type_id and key = any (v_taken.held);
  end if;
  -- Locked pairs stay for the next tick.
  delete from pgfresh_engine.hold as h
  where h.type_id = p_type_id and h.until = 'infinity' and cardinality(v_taken.keys) < p_limit
    and not exists (
      select from pgfresh_engine.refused_pair as r
      join pgfresh_engine.pairs as p on p.type_id = r.type_id and p.key = r.key
      where r.type_id = p_type_id and (p_all or r.released_at is null or p.ok_at > r.released_at)
    );
  return cardinality(v_taken.keys);
end
$$;
comment on function pgfresh_engine.release_refused(int, boolean, timestamptz, int) is
  'Makes pairs due whose answers were refused, now that their data type has recovered: those for which this was done '
  'before, and which were refused again, only if all are asked for. A part of the tick.';

create or replace function pgfresh_engine.release_held(p_now timestamptz, p_limit int, p_types int[]) returns int
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
  v_hold record;
  v_entries tid[];
  v_keys text[];
  v_count int := 0;
begin
  -- Pairs already due are found by the tick.
  delete from pgfresh_engine.hold
  where ctid = any (array(select ctid from pgfresh_engine.hold where until <= p_now for update skip locked));
  for v_hold in
    select h.type_id, h.until, h.reason
    from pgfresh_engine.hold as h
    join pgfresh.data_type_registry as r on r.type_id = h.type_id
    left join lateral pgfresh_engine.type_obstacle(r.type_id, r.source_id, p_now) as o on true
    -- A few seconds sooner is not worth a check of each pair.
    where (o.until is null or (isfinite(h.until) and o.until < h.until - interval '5 seconds'))
      and (p_types is null or h.type_id = any (p_types))
      and (h.reason <> 'gate' or pgfresh_engine.is_gate_open(h, p_now))
    order by h.type_id, h.until
  loop
    exit when v_count >= p_limit;
    if v_hold.reason in ('refused', 'resumed') then
      v_count := v_count + pgfresh_engine.release_refused(
        v_hold.type_id, v_hold.reason = 'resumed', p_now, p_limit - v_count);
      continue;
    end if;
    -- Entries of locked pairs stay for the next tick.
    select array_agg(d.ctid), array_agg(d.key)
    into v_entries, v_keys
    from (
      select d.ctid, d.key
      from pgfresh_engine.due as d
      cross join lateral (
        select from pgfresh_engine.pairs as p where p.type_id = d.type_id and p.key = d.key for update skip locked
      ) as p
      where d.due_at = v_hold.until and d.type_id = v_hold.type_id
      limit p_limit - v_count
    ) as d;
    if v_entries is null then
      -- Locked before counting the entries: a transaction that adds an entry holds this lock until it ends.
      continue when not exists (
        select from pgfresh_engine.hold as h where h.type_id = v_hold.type_id and h.until = v_hold.until
        for update skip locked);
      delete from pgfresh_engine.hold as h
      where h.type_id = v_hold.type_id and h.until = v_hold.until
        and not exists (
          select from pgfresh_engine.due as d where d.due_at = v_hold.until and d.type_id = v_hold.type_id);
      continue;
    end if;
    delete from pgfresh_engine.due where ctid = any (v_entries);
    with moved as (
      update pgfresh_engine.pairs as p
      set due_at = p_now
      where p.type_id = v_hold.type_id and p.key = any (v_keys) and p.due_at = v_hold.until
      returning p.key
    )
    insert into pgfresh_engine.due (due_at, type_id, key)
    select p_now, v_hold.type_id, m.key from moved as m
    on conflict do nothing;
    v_count := v_count + cardinality(v_keys);
  end loop;
  return v_count;
end
$$;
comment on function pgfresh_engine.release_held(timestamptz, int, int[]) is
  'Makes pairs due whose obstacle is gone before its time, or is a gate that has opened. A part of the tick.';

-- A gate without an opening time is asked every five seconds, each time about the next twenty keys that it holds.
create or replace function pgfresh_engine.is_gate_open(p_hold pgfresh_engine.hold, p_now timestamptz) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_type record;
  v_keys text[];
begin
  if p_hold.asked_at > p_now - interval '5 seconds' then
    return false;
  end if;
  perform from pgfresh_engine.hold
  where type_id = p_hold.type_id and until = p_hold.until
  for no key update skip locked;
  if not found then
    return false;
  end if;
  v_keys := array(
    select d.key
    from pgfresh_engine.due as d
    where d.due_at = p_hold.until and d.type_id = p_hold.type_id and d.key > p_hold.asked_key
    order by d.key
    limit 20);
  update pgfresh_engine.hold
  set asked_at = p_now, asked_key = case when cardinality(v_keys) < 20 then '' else v_keys[20] end
  where type_id = p_hold.type_id and until = p_hold.until;
  select r.data_type, res.gate_sql
  into v_type
  from pgfresh.data_type_registry as r
  join pgfresh_engine.type_resolution as res on res.type_id = r.type_id
  where r.type_id = p_hold.type_id and not exists (select from pgfresh_engine.type_problem(r));
  -- A changed function is not run until an operator accepts it.
  if not found then
    return false;
  end if;
  -- At the end of a round none may be left; the next round starts over.
  return (v_keys = '{}' and p_hold.asked_key = '') or v_type.gate_sql is null
    or exists (select from pgfresh_engine.ask_gate(v_type.gate_sql, v_keys, v_type.data_type) as g where g.open);
exception
  when lock_not_available then
    perform pgfresh_engine.note_type_timeout(p_hold.type_id, 'gate', sqlerrm);
    return false;
  -- The planner reports the error when it calls the gate itself, and treats it as open.
  when others then
    return true;
end
$$;
comment on function pgfresh_engine.is_gate_open(pgfresh_engine.hold, timestamptz) is
  'Whether a gate has opened for one of the pairs that it holds; asked at most every five seconds. '
  'A part of release_held.';
