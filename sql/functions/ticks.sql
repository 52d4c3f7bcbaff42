create or replace function pgfresh.record_run(
  p_kind text, p_started_at timestamptz, p_ms double precision, p_counts jsonb)
returns void
language sql
set search_path = pg_catalog, pg_temp
as $$
  insert into pgfresh.planner_run as r (kind, started_at, last_at, calls, ms, counts)
  values (p_kind, p_started_at, pgfresh.clock(), 1, p_ms, p_counts)
  on conflict (kind, started_at) do update
  set last_at = excluded.last_at, calls = r.calls + 1, ms = r.ms + excluded.ms,
    counts = pgfresh.add_counts(r.counts, excluded.counts)
$$;
comment on function pgfresh.record_run(text, timestamptz, double precision, jsonb) is
  'Adds a call of the planner to its record.';

/*
  Pairs that somebody else has locked keep their entries, and do not take the place of others: then it reads on.
  An entry whose pair says another time is taken away too, and means nothing.
  Pairs are read by the keys of a data type, because one walk of the index finds many.
*/
create or replace function pgfresh.take_due(
  p_now timestamptz, p_limit int, p_types int[], out looks pgfresh.looks[], out taken int)
language plpgsql
set search_path = pg_catalog, pg_temp
-- Planned once for any number of entries: by the index, and what was read is put together by a hash.
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
    select array_agg(d.ctid) as entries, array_agg(d.due_at) as due, array_agg(d.type_id) as types,
      array_agg(d.key) as keys, count(*)::int as count
    into v_read
    from (
      select d.ctid, d.*
      from pgfresh.due as d
      where d.due_at <= p_now and (d.due_at, d.type_id, d.key) > (v_after, v_after_type, v_after_key)
        and (p_types is null or d.type_id = any (p_types))
      order by d.due_at, d.type_id, d.key
      limit p_limit - taken
    ) as d;
    exit when v_read.count = 0;
    with locked as materialized (
      select d.entry, p.*, p.demanded and p.due_at = d.due_at as meant
      from (
        select t.type_id, array_agg(t.key) as keys
        from unnest(v_read.types, v_read.keys) as t(type_id, key)
        group by t.type_id
      ) as t
      cross join lateral (
        select p.type_id, p.key, p.demanded, p.job_id, p.next_ask_at, p.due_at, p.ctid as place,
          pgfresh.confirmed_of(p) as confirmed, pgfresh.row_time_of(p) as row_time
        from pgfresh.pairs as p
        where p.type_id = t.type_id and p.key = any (t.keys)
        for update skip locked
      ) as p
      join unnest(v_read.entries, v_read.due, v_read.types, v_read.keys) as d(entry, due_at, type_id, key)
        on d.type_id = p.type_id and d.key = p.key
    ), gone as (
      delete from pgfresh.due where ctid = any (array(select l.entry from locked as l))
    )
    select (select count(*)::int from locked) as count,
      array(
        select row(
          l.type_id, bool_or(l.job_id is not null or l.next_ask_at > p_now), array_agg(l.key), array_agg(l.place),
          array_agg(l.job_id), array_agg(l.next_ask_at), array_agg(l.confirmed), array_agg(l.row_time),
          array_agg(l.due_at), null
        )::pgfresh.looks
        from locked as l
        where l.meant
        group by l.type_id
      ) as looks
    into v_locked;
    looks := looks || v_locked.looks;
    taken := taken + v_locked.count;
    exit when v_read.count = v_locked.count or taken >= p_limit;
    v_after := v_read.due[v_read.count];
    v_after_type := v_read.types[v_read.count];
    v_after_key := v_read.keys[v_read.count];
  end loop;
end
$$;
comment on function pgfresh.take_due(timestamptz, int, int[]) is
  'Takes the entries that are due, and locks and reads their pairs. A part of the tick.';

/*
  An obstacle gives all pairs of a data type that it holds the same due time, so they are found together by the index of
  due times when it ends before that.
*/
create or replace function pgfresh.note_hold(p_type_id int, p_until timestamptz, p_reason text, p_now timestamptz)
returns void
language sql
set search_path = pg_catalog, pg_temp
as $$
  insert into pgfresh.hold (type_id, until, reason, asked_at)
  values (p_type_id, p_until, p_reason, p_now)
  on conflict (type_id, until) do update set reason = excluded.reason
  where hold.reason <> excluded.reason
$$;
comment on function pgfresh.note_hold(int, timestamptz, text, timestamptz) is
  'Remembers that an obstacle holds pairs of a data type until then. A part of the planner.';

/*
  A data type has recovered, or an operator has resumed its source: what was refused is asked for again at once. A pair
  that is refused all the same, while others are not, is not asked for again by the next recovery, or it could pause its
  type again and again; an operator can.
  Lock order: the pair, then its entry.
*/
create or replace function pgfresh.release_refused(p_type_id int, p_all boolean, p_now timestamptz, p_limit int)
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
    from pgfresh.refused_pair as r
    cross join lateral (
      select p.ok_at, p.job_id is null and p.next_ask_at > p_now and pgfresh.is_refused_answer(p.outcome) as is_held
      from pgfresh.pairs as p
      where p.type_id = r.type_id and p.key = r.key
      for update skip locked
    ) as p
    where r.type_id = p_type_id and (p_all or r.released_at is null or p.ok_at > r.released_at)
    limit p_limit
  ) as t;
  with released as (
    update pgfresh.pairs as p
    set next_ask_at = null, due_at = case when p.demanded then p_now else p.due_at end
    where p.type_id = p_type_id and p.key = any (v_taken.held)
    returning p.key, p.demanded
  )
  insert into pgfresh.due (due_at, type_id, key)
  select p_now, p_type_id, r.key from released as r where r.demanded
  on conflict do nothing;
  delete from pgfresh.refused_pair
  where type_id = p_type_id and key = any (v_taken.keys) and (p_all or not key = any (v_taken.held));
  if not p_all then
    update pgfresh.refused_pair
    set released_at = p_now
    where type_id = p_type_id and key = any (v_taken.held);
  end if;
  -- What somebody has locked stays for the next tick.
  delete from pgfresh.hold as h
  where h.type_id = p_type_id and h.until = 'infinity' and cardinality(v_taken.keys) < p_limit
    and not exists (
      select from pgfresh.refused_pair as r
      join pgfresh.pairs as p on p.type_id = r.type_id and p.key = r.key
      where r.type_id = p_type_id and (p_all or r.released_at is null or p.ok_at > r.released_at)
    );
  return cardinality(v_taken.keys);
end
$$;
comment on function pgfresh.release_refused(int, boolean, timestamptz, int) is
  'Makes pairs due whose answers were refused, now that their data type has recovered: those for which this was done '
  'before, and which were refused again, only if all are asked for. A part of the tick.';

create or replace function pgfresh.release_held(p_now timestamptz, p_limit int, p_types int[]) returns int
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
  -- What is due comes by itself.
  delete from pgfresh.hold where until <= p_now;
  for v_hold in
    select h.type_id, h.until, h.reason
    from pgfresh.hold as h
    join pgfresh.data_type_registry as r on r.type_id = h.type_id
    left join lateral pgfresh.type_obstacle(r.type_id, r.source_id, p_now) as o on true
    -- A few seconds sooner is not worth a look at each of them.
    where (o.until is null or (isfinite(h.until) and o.until < h.until - interval '5 seconds'))
      and (p_types is null or h.type_id = any (p_types))
      and (h.reason <> 'gate' or pgfresh.is_gate_open(h, p_now))
    order by h.type_id, h.until
  loop
    exit when v_count >= p_limit;
    if v_hold.reason in ('refused', 'resumed') then
      v_count := v_count + pgfresh.release_refused(
        v_hold.type_id, v_hold.reason = 'resumed', p_now, p_limit - v_count);
      continue;
    end if;
    -- Entries of pairs that somebody has locked stay for the next tick.
    select array_agg(d.ctid), array_agg(d.key)
    into v_entries, v_keys
    from (
      select d.ctid, d.key
      from pgfresh.due as d
      cross join lateral (
        select from pgfresh.pairs as p where p.type_id = d.type_id and p.key = d.key for update skip locked
      ) as p
      where d.due_at = v_hold.until and d.type_id = v_hold.type_id
      limit p_limit - v_count
    ) as d;
    if v_entries is null then
      delete from pgfresh.hold as h
      where h.type_id = v_hold.type_id and h.until = v_hold.until
        and not exists (
          select from pgfresh.due as d where d.due_at = v_hold.until and d.type_id = v_hold.type_id);
      continue;
    end if;
    delete from pgfresh.due where ctid = any (v_entries);
    with moved as (
      update pgfresh.pairs as p
      set due_at = p_now
      where p.type_id = v_hold.type_id and p.key = any (v_keys) and p.due_at = v_hold.until
      returning p.key
    )
    insert into pgfresh.due (due_at, type_id, key)
    select p_now, v_hold.type_id, m.key from moved as m
    on conflict do nothing;
    v_count := v_count + cardinality(v_keys);
  end loop;
  return v_count;
end
$$;
comment on function pgfresh.release_held(timestamptz, int, int[]) is
  'Makes pairs due whose obstacle is gone before its time, or is a gate that has opened. A part of the tick.';

-- A gate that does not say when it opens is asked every five seconds, each time about the next twenty keys it holds.
create or replace function pgfresh.is_gate_open(p_hold pgfresh.hold, p_now timestamptz) returns boolean
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
  v_keys := array(
    select d.key
    from pgfresh.due as d
    where d.due_at = p_hold.until and d.type_id = p_hold.type_id and d.key > p_hold.asked_key
    order by d.key
    limit 20);
  update pgfresh.hold
  set asked_at = p_now, asked_key = case when cardinality(v_keys) < 20 then '' else v_keys[20] end
  where type_id = p_hold.type_id and until = p_hold.until;
  select r.data_type, res.gate_sql
  into v_type
  from pgfresh.data_type_registry as r
  join pgfresh.type_resolution as res on res.type_id = r.type_id
  where r.type_id = p_hold.type_id;
  -- At the end of a round there may be none left, and the next one begins anew.
  return (v_keys = '{}' and p_hold.asked_key = '') or v_type.gate_sql is null
    or exists (select from pgfresh.ask_gate(v_type.gate_sql, v_keys, v_type.data_type) as g where g.open);
exception
  when lock_not_available then
    perform pgfresh.note_type_timeout(p_hold.type_id, 'gate', sqlerrm);
    return false;
  -- The planner says what is wrong with it when it is asked there, and takes it for open.
  when others then
    return true;
end
$$;
comment on function pgfresh.is_gate_open(pgfresh.hold, timestamptz) is
  'Whether a gate has opened for one of the pairs that it holds; asked at most every five seconds. '
  'A part of release_held.';

-- Processes of pgfresh come with a limit of their own. Others must not wait for a lock of a stranger either.
create or replace function pgfresh.limit_lock_waits() returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if current_setting('lock_timeout') = '0' then
    perform set_config('lock_timeout', '100ms', true);
  end if;
end
$$;
comment on function pgfresh.limit_lock_waits() is
  'Sets lock_timeout to 100 ms until the end of the transaction, if it has none. A part of the planner.';

create or replace function pgfresh.types_to_ask() returns table (type_id int, data_type text)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select r.type_id, r.data_type
  from pgfresh.data_type_registry as r
  left join pgfresh.type_timeout as t on t.type_id = r.type_id
  where not pgfresh.is_quarantined(r.type_id, (select pgfresh.clock()))
  order by t.last_at nulls first, r.type_id
$$;
comment on function pgfresh.types_to_ask() is
  'The data types that are not in quarantine; those that have timed out lately come last.';

create or replace function pgfresh.plan_due_pairs(p_limit int default 2000, p_data_types text[] default null)
returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_began timestamptz := clock_timestamp();
  v_now timestamptz := pgfresh.clock();
  v_types int[];
  v_quarantined int[];
  v_counts jsonb := '{}';
  v_due record;
  v_folded int;
begin
  perform pgfresh.require_primary();
  perform pgfresh.require_range('p_limit', p_limit, 1, 10000);
  if not pg_try_advisory_xact_lock(7041, 1) then
    return jsonb_build_object('skipped', 'locked');
  end if;
  perform pgfresh.limit_lock_waits();
  if p_data_types is not null then
    v_types := array(select r.type_id from pgfresh.data_type_registry as r where r.data_type = any (p_data_types));
  end if;
  if exists (select from pgfresh.nodes where lease_until <= v_now) and not pgfresh.is_loss_held(v_now) then
    perform pgfresh.expire_nodes(v_now);
  end if;
  v_folded := pgfresh.fold_demand(v_now);
  perform pgfresh.cool_down(v_now);
  if exists (select from pgfresh.pairs where unlisted_at <= v_now - interval '5 seconds') then
    perform pgfresh.list_again(v_now);
  end if;
  if exists (select from pgfresh.hold) then
    perform pgfresh.release_held(v_now, p_limit, v_types);
  end if;
  select * into v_due from pgfresh.take_due(v_now, p_limit, v_types);
  if v_due.looks <> '{}' then
    v_counts := pgfresh.plan_looks(v_due.looks, v_now);
  end if;
  if v_due.looks <> '{}' or v_folded > 0 then
    perform pgfresh.record_run('tick', date_trunc('minute', v_now),
      1000 * extract(epoch from clock_timestamp() - v_began), v_counts);
  end if;
  v_quarantined := array(select q.type_id from pgfresh.quarantined_types() as q);
  return v_counts || jsonb_build_object('more', v_due.taken = p_limit)
    || case when v_quarantined = '{}' then '{}' else jsonb_build_object('quarantined', v_quarantined) end;
end
$$;
comment on function pgfresh.plan_due_pairs(int, text[]) is
  'The tick: takes note of who came and went, and looks at the demanded pairs that are due, at most p_limit, '
  'of all data types or of some. Call it every second, and again at once while it says {"more": true}. '
  'Waits at most 100 ms for a lock on a table, if lock_timeout is not set. '
  '"quarantined" has the numbers of the data types that are to be probed; see probe_type.';

/*
  What has just timed out is left to the next sweep. So after a timeout is noted the sweep goes on behind that type.
*/
create or replace function pgfresh.types_left_out(p_now timestamptz) returns int[]
language sql stable
set search_path = pg_catalog, pg_temp
as $$ select array(select t.type_id from pgfresh.type_timeout as t where t.last_at > p_now - interval '1 minute') $$;
comment on function pgfresh.types_left_out(timestamptz) is
  'Data types that have timed out within a minute, which the sweep leaves out. A part of the planner.';

create or replace function pgfresh.next_swept_type() returns int
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select p.type_id
  from pgfresh.pairs as p
  cross join pgfresh.planner_state as s
  where p.demanded and (p.type_id, p.key) > (s.sweep_type, s.sweep_key)
    and not p.type_id = any (pgfresh.types_left_out(pgfresh.clock()))
  order by p.type_id, p.key
  limit 1
$$;
comment on function pgfresh.next_swept_type() is
  'The data type with whose pairs the next chunk of the sweep begins; null at its end.';

create or replace function pgfresh.check_and_queue_stale_data(p_limit int default 10000, p_alone boolean default false)
returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
  v_began timestamptz := clock_timestamp();
  v_now timestamptz := pgfresh.clock();
  v_state pgfresh.planner_state;
  v_counts jsonb;
  v_looks pgfresh.looks[];
  v_last_type int;
  v_last_key text;
  v_read int;
  v_done boolean;
  v_emptied jsonb;
  v_left_out int[] := pgfresh.types_left_out(v_now);
  v_alone int := case when p_alone then pgfresh.next_swept_type() end;
begin
  perform pgfresh.require_primary();
  perform pgfresh.require_range('p_limit', p_limit, 1, 10000);
  if not pg_try_advisory_xact_lock(7041, 1) then
    return jsonb_build_object('skipped', 'locked', 'done', false);
  end if;
  perform pgfresh.limit_lock_waits();
  perform pgfresh.fold_demand(v_now);
  perform pgfresh.cool_down(v_now);
  select * into v_state from pgfresh.planner_state;
  select
    coalesce(array_agg(
      row(t.type_id, t.rests, t.keys, null, t.jobs, t.next_ask, t.confirmed, t.rows, t.due, null)::pgfresh.looks
      order by t.type_id
    ) filter (where not t.type_id = any (v_left_out)), '{}'),
    coalesce(sum(t.count), 0), max(t.type_id), (array_agg(t.keys[cardinality(t.keys)] order by t.type_id desc))[1],
    -- As with deletions, a few are nothing to speak of.
    jsonb_object_agg(t.type_id, jsonb_build_array(t.emptied, t.viewed))
      filter (where t.emptied > greatest(10, 0.25 * t.viewed))
  into v_looks, v_read, v_last_type, v_last_key, v_emptied
  from (
    select p.type_id, count(*)::int as count, bool_or(p.job_id is not null or p.next_ask_at > v_now) as rests,
      array_agg(p.key) as keys, array_agg(p.job_id) as jobs, array_agg(p.next_ask_at) as next_ask,
      array_agg(p.confirmed) as confirmed, array_agg(p.row_time) as rows, array_agg(p.due_at) as due,
      count(*) filter (where p.viewers > 0) as viewed, count(*) filter (where p.viewers > 0 and p.emptied) as emptied
    from (
      select p.type_id, p.key, p.job_id, p.next_ask_at, p.due_at, p.viewers,
        p.row_at <= p.empty_at and p.empty_at > v_now - interval '5 minutes' as emptied,
        pgfresh.confirmed_of(p) as confirmed, pgfresh.row_time_of(p) as row_time
      from pgfresh.pairs as p
      where p.demanded and (p.type_id, p.key) > (v_state.sweep_type, v_state.sweep_key)
      order by p.type_id, p.key
      limit p_limit
    ) as p
    where v_alone is null or p.type_id <= v_alone
    group by p.type_id
  ) as t;
  v_done := v_read < p_limit and v_alone is null;
  v_counts := pgfresh.plan_looks(v_looks, v_now);
  perform pgfresh.record_run('sweep', coalesce(v_state.sweep_started_at, v_now),
    1000 * extract(epoch from clock_timestamp() - v_began), v_counts);
  update pgfresh.planner_state
  set sweep_started_at = case when not v_done then coalesce(v_state.sweep_started_at, v_now) end,
    sweep_type = case when v_done then 0 else coalesce(v_last_type, sweep_type) end,
    sweep_key = case when v_done then '' else coalesce(v_last_key, sweep_key) end;
  if v_emptied is not null then
    perform pgfresh.warn('many_empty', r.data_type,
      format('Within five minutes the source %s has said of %s of %s viewed keys of %s that there is nothing, '
        'where there are rows; the rows are kept', r.source, e.value ->> 0, e.value ->> 1, r.data_type),
      'See whether the provider has lost its data. If the answers are true, let the data type say '
      'empty: { rows: ''delete'' }.')
    from jsonb_each(v_emptied) as e
    join pgfresh.data_type_registry as r on r.type_id = e.key::int;
  end if;
  return v_counts || jsonb_build_object('done', v_done);
end
$$;
comment on function pgfresh.check_and_queue_stale_data(int, boolean) is
  'The sweep: asks the staleness functions about the next p_limit demanded pairs, with p_alone of one data type only, '
  'so that rows which others wrote are seen, and queues what is missing or stale. '
  'Goes on where the last call stopped; {"done": true} says that all have had their turn. '
  'Returns how many were checked, stale, missing, queued, merged, gated, failed and skipped, and why.';

create or replace function pgfresh.check_and_queue_stale_batch(p_key text, p_data_types text[]) returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_user text := pgfresh.require_viewer(null);
  v_type record;
  v_keys text[];
  v_counts jsonb := '{}';
begin
  perform pgfresh.require_primary();
  perform pgfresh.count_call(v_user);
  perform pgfresh.require_key(p_key);
  if p_data_types is null or cardinality(p_data_types) not between 1 and 50 then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      'p_data_types must name 1 to 50 data types',
      'Pass the data types that are on the screen.');
  end if;
  for v_type in
    select pgfresh.require_type(named.data_type) as registered
    from (select distinct data_type from unnest(p_data_types) as data_type order by data_type) as named
  loop
    v_keys := pgfresh.admit_keys(v_type.registered, array[p_key]);
    perform pgfresh.make_pairs((v_type.registered).type_id, v_keys);
    v_counts := v_counts || jsonb_build_object(
      (v_type.registered).data_type,
      pgfresh.plan_looks(pgfresh.looks_at((v_type.registered).type_id, v_keys), pgfresh.clock())
    );
  end loop;
  return v_counts;
end
$$;
comment on function pgfresh.check_and_queue_stale_batch(text, text[]) is
  'Looks at one key in several data types at once and queues what is missing or stale: for the moment of subscribing. '
  'The priority is that of the viewers; the caller can not choose it.';

create or replace function pgfresh.clear_planner_runs(p_keep interval default '7 days') returns int
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_count int;
begin
  perform pgfresh.require_range('p_keep in seconds', extract(epoch from p_keep), 60, 315360000);
  delete from pgfresh.planner_run where started_at < (select pgfresh.clock()) - p_keep;
  get diagnostics v_count = row_count;
  return v_count;
end
$$;
comment on function pgfresh.clear_planner_runs(interval) is
  'Forgets the planner''s runs that are older than this. Returns how many.';
