create or replace function pgfresh.require_primary() returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  if pg_is_in_recovery() then
    perform pgfresh.refuse('PGF_STANDBY',
      'this is a standby, whose clock and rows are behind',
      'Connect to the primary.');
  end if;
end
$$;
comment on function pgfresh.require_primary() is 'Refuses to decide anything on a standby.';

create or replace function pgfresh.priority_of(p_type pgfresh.data_type_registry, p_viewers int) returns int
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$ select case when p_viewers < p_type.ui_threshold then p_type.background_priority else p_viewers end $$;
comment on function pgfresh.priority_of(pgfresh.data_type_registry, int) is
  'The priority of a pair with so many viewers: '
  'their number, or below the type''s ui_threshold its background_priority.';

create or replace function pgfresh.add_counts(p_one jsonb, p_other jsonb) returns jsonb
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
  select coalesce(jsonb_object_agg(key, total), '{}')
  from (
    select key, sum(value::numeric) as total
    from (
      select * from jsonb_each_text(p_one)
      union all
      select * from jsonb_each_text(p_other)
    ) as c
    group by key
  ) as t
$$;
comment on function pgfresh.add_counts(jsonb, jsonb) is 'Two objects of counts as one.';

do $$ begin
  if to_regtype('pgfresh.looks') is null then
    create type pgfresh.looks as (
      type_id int, rests boolean, keys text[], places tid[], jobs bigint[],
      not_before timestamptz[], checked timestamptz[], due timestamptz[], priorities int[]
    );
  end if;
  if to_regtype('pgfresh.look') is null then
    create type pgfresh.look as (
      type_id int, key text, place tid, job_id bigint, due_at timestamptz, next_at timestamptz, priority int
    );
  end if;
end $$;
comment on type pgfresh.looks is
  'Pairs of one data type as the planner has read them: whether any of them has a job or is to be left alone, '
  'their places if they are locked, '
  'their due times as far as anybody looks at them, and the least priorities of their jobs if there are such.';
comment on type pgfresh.look is
  'A pair about which the planner has decided something: when to look again, or that it gets a job.';

create or replace function pgfresh.looks_at(p_type_id int, p_keys text[], p_priorities int[] default null)
returns pgfresh.looks[]
language plpgsql stable
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
as $$
begin
  return array(
    select row(
      p_type_id, true, array_agg(p.key), null, array_agg(p.job_id), array_agg(p.not_before), array_agg(p.checked_at),
      array_agg(case when p.demanded then p.due_at end),
      case when p_priorities is not null then array_agg(w.priority) end
    )::pgfresh.looks
    from unnest(p_keys, p_priorities) as w(key, priority)
    join pgfresh.pairs as p on p.type_id = p_type_id and p.key = w.key
    having count(*) > 0
  );
end
$$;
comment on function pgfresh.looks_at(int, text[], int[]) is
  'Pairs of one data type, read for the planner. A part of the planner.';

/*
  What keeps whole data types from being planned now, and until when; no row for those that nothing does.
  Nearly always one statement answers for all of them: what a registry row names is looked up again only
  if the catalog has changed.
*/
create or replace function pgfresh.planning_obstacles(p_types int[], p_now timestamptz)
returns table (type_id int, reason text, until timestamptz)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_type record;
  v_problem record;
begin
  for v_type in
    select r as registered, res.stamp = now.stamp as same
    from pgfresh.data_type_registry as r
    join pgfresh.sources as s on s.id = r.source_id
    left join pgfresh.type_resolution as res on res.type_id = r.type_id
    left join pgfresh.catalog_stamps(p_types) as now on now.type_id = r.type_id
    where r.type_id = any (p_types)
      and ((res.stamp = now.stamp) is not true
        or not s.enabled or s.paused_until > p_now or s.quota_bytes is not null
        or exists (select from pgfresh.spending_stop))
  loop
    type_id := (v_type.registered).type_id;
    if v_type.same is not true then
      select * into v_problem from pgfresh.type_problem(v_type.registered);
      if found then
        perform pgfresh.warn('type_unresolved', (v_type.registered).data_type, v_problem.problem, v_problem.next_step);
        reason := 'unresolved';
        until := p_now + interval '1 minute';
        return next;
        continue;
      end if;
    end if;
    select o.reason, o.until
    into reason, until
    from pgfresh.source_obstacle((v_type.registered).source_id, p_now) as o;
    if found then
      return next;
    end if;
  end loop;
end
$$;
comment on function pgfresh.planning_obstacles(int[], timestamptz) is
  'What keeps data types from being planned: unresolved, or what source_obstacle says of their source.';

/*
  The one way from a look to a job. Every pair that is looked at gets a time of its next look,
  or a job whose end sets one, so nothing is looked at in a loop.
  Each data type is asked by itself; what was decided is written for all of them together.
  Lock order: pairs, then jobs; what somebody else has locked is left to the next look.
*/
create or replace function pgfresh.plan_looks(p_looks pgfresh.looks[], p_now timestamptz) returns jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
-- Or each statement would be planned anew at every call, because it is a little cheaper for the few keys at hand.
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
  v_next_sweep timestamptz := p_now + interval '1 minute';
  v_scheduled boolean;
  v_type record;
  v_awake record;
  v_asked record;
  v_gate record;
  v_needs record;
  v_stale pgfresh.look[];
  v_missing text[];
  v_later pgfresh.look[];
  v_queue pgfresh.look[];
  v_reasons jsonb := '{}';
  v_open int := 0; v_held int := 0; v_checked int := 0; v_found_stale int := 0; v_found_missing int := 0;
  v_failed int := 0; v_skipped int := 0;
  v_undecided int := 0; v_gated int := 0; v_prerequisites int := 0; v_waiting int := 0; v_queued int := 0;
begin
  for v_type in
    select r as registered, res.gate_sql, o.reason, o.until,
      exists (select from pgfresh.type_dependency as d where d.type_id = r.type_id) as dependent, g.*,
      -- What is known of a pair beside its answer, if there is any such thing.
      case when num_nonnulls(g.places, g.priorities) > 0 then g.keys else '{}' end as known_keys
    from unnest(p_looks) as g
    join pgfresh.data_type_registry as r on r.type_id = g.type_id
    join pgfresh.type_resolution as res on res.type_id = g.type_id
    left join pgfresh.planning_obstacles(array(select distinct g.type_id from unnest(p_looks) as g), p_now) as o
      on o.type_id = g.type_id
    order by g.type_id
  loop
    select v_type.keys as keys, v_type.places as places, v_type.checked as checked, v_type.due as due into v_awake;
    if v_type.rests then
      -- Those that are not asked now. Most have the right time of their next look already,
      -- and only the others are written.
      select
        array_agg(l.key) filter (where l.rest is null) as keys,
        array_agg(l.place) filter (where l.rest is null) as places,
        array_agg(l.checked_at) filter (where l.rest is null) as checked,
        array_agg(l.due_at) filter (where l.rest is null) as due,
        count(l.job_id)::int as open, (count(l.rest) - count(l.job_id))::int as held,
        array_agg(row(v_type.type_id, l.key, l.place, l.job_id, l.due_at, l.rest, null)::pgfresh.look)
          filter (where l.due_at <> l.rest) as later
      into v_awake
      from (
        select l.*,
          case when l.job_id is not null then 'infinity' when l.not_before > p_now then l.not_before end as rest
        from unnest(v_type.keys, v_type.places, v_type.jobs, v_type.not_before, v_type.checked, v_type.due)
          as l(key, place, job_id, not_before, checked_at, due_at)
      ) as l;
      v_open := v_open + v_awake.open;
      v_held := v_held + v_awake.held;
      v_later := v_later || v_awake.later;
      continue when v_awake.keys is null;
    end if;
    if v_type.reason is not null then
      v_later := v_later || array(
        select row(v_type.type_id, l.key, l.place, null, l.due_at, v_type.until, null)::pgfresh.look
        from unnest(v_awake.keys, v_awake.places, v_awake.due) as l(key, place, due_at)
        where l.due_at <> v_type.until
      );
      v_skipped := v_skipped + cardinality(v_awake.keys);
      v_reasons := pgfresh.add_counts(v_reasons,
        jsonb_build_object('skipped_' || v_type.reason, cardinality(v_awake.keys)));
      continue;
    end if;

    v_scheduled := (v_type.registered).refresh_strategy = 'scheduled';
    select
      array_agg(row(v_type.type_id, c.key, l.place, null, c.due_at, null, l.priority)::pgfresh.look)
        filter (where not c.rests) as stale,
      coalesce(array_agg(c.key) filter (where c.found and not c.rests), '{}') as gated,
      array_agg(row(v_type.type_id, c.key, l.place, null, c.due_at, c.next_at, null)::pgfresh.look)
        filter (where c.rests is not false and c.due_at <> c.next_at) as later,
      count(*) filter (where c.stale is null)::int as undecided,
      count(*) filter (where c.stale and c.found)::int as found_stale,
      count(*) filter (where not c.found)::int as found_missing,
      count(c.raised)::int as raised, max(c.raised) as raised_with
    into v_asked
    from (
      -- Those that are not decided come soon, but behind those of other types.
      select c.key, c.found, c.stale, c.raised, c.due_at,
        not c.stale or (c.found and v_scheduled) is true as rests,
        case
          when c.stale is null then p_now + interval '5 seconds'
          when v_scheduled and c.found then 'infinity'
          when c.next_at > p_now then c.next_at
          else v_next_sweep
        end as next_at
      from pgfresh.ask_stale(
        v_type.type_id, v_awake.keys, v_awake.checked, v_awake.due, (v_type.registered).ttl, p_now
      ) as c
    ) as c
    left join unnest(v_type.known_keys, v_type.places, v_type.priorities) as l(key, place, priority) on l.key = c.key;
    v_stale := v_asked.stale;
    v_later := v_later || v_asked.later;
    v_checked := v_checked + cardinality(v_awake.keys) - v_asked.undecided;
    v_undecided := v_undecided + v_asked.undecided;
    v_found_stale := v_found_stale + v_asked.found_stale;
    v_found_missing := v_found_missing + v_asked.found_missing;
    v_failed := v_failed + v_asked.raised;
    if v_asked.raised > 0 then
      perform pgfresh.warn('check_raised', (v_type.registered).data_type, v_asked.raised_with,
        format('Correct the data, or the function %s.', (v_type.registered).staleness_function),
        v_asked.raised);
    end if;

    -- What is there already waits until the gate opens; what is missing does not.
    if v_type.gate_sql is not null and cardinality(v_asked.gated) > 0 then
      begin
        select array_agg(g.key) as closed,
          array_agg(row(
            l.type_id, l.key, l.place, null, l.due_at,
            case when g.opens_at > p_now then g.opens_at else v_next_sweep end, null
          )::pgfresh.look) filter (where l.due_at is not null) as later
        into v_gate
        from pgfresh.ask_gate(v_type.gate_sql, v_asked.gated, (v_type.registered).data_type) as g
        join unnest(v_stale) as l on l.key = g.key
        where not g.open;
        if v_gate.closed is not null then
          v_stale := array(select l from unnest(v_stale) as l where not l.key = any (v_gate.closed));
          v_later := v_later || v_gate.later;
          v_gated := v_gated + cardinality(v_gate.closed);
        end if;
      exception when others then
        perform pgfresh.warn('gate_raised', (v_type.registered).data_type, sqlerrm,
          format('Correct the function %s; until then the gate counts as open.', (v_type.registered).gate_function));
        v_failed := v_failed + cardinality(v_asked.gated);
      end;
    end if;

    for v_needs in
      select r as registered, res.missing_sql
      from pgfresh.type_dependency as d
      join pgfresh.data_type_registry as r on r.type_id = d.needs_id
      join pgfresh.type_resolution as res on res.type_id = d.needs_id
      where v_type.dependent and d.type_id = v_type.type_id and cardinality(v_stale) > 0
      order by r.type_id
    loop
      begin
        v_missing := array(
          select k
          from pgfresh.ask_keys(v_needs.missing_sql, array(select l.key from unnest(v_stale) as l)) as k
          order by k collate "C"
        );
      exception when others then
        -- It is skipped with a warning of its own; who needs it does not wait for ever.
        v_missing := '{}';
      end;
      continue when cardinality(v_missing) = 0;
      insert into pgfresh.pairs (type_id, key)
      select (v_needs.registered).type_id, k from unnest(v_missing) as k order by k collate "C"
      on conflict do nothing;
      v_prerequisites := v_prerequisites + (pgfresh.plan_looks(
        pgfresh.looks_at((v_needs.registered).type_id, v_missing, array(
          select greatest(1, pgfresh.priority_of(v_type.registered, p.viewers), l.priority)
          from unnest(v_missing) with ordinality as m(key, place)
          join unnest(v_stale) as l on l.key = m.key
          join pgfresh.pairs as p on p.type_id = v_type.type_id and p.key = m.key
          order by m.place
        )),
        p_now
      ) ->> 'queued')::int;
      v_later := v_later || array(
        select row(l.type_id, l.key, l.place, null, l.due_at, v_next_sweep, null)::pgfresh.look
        from unnest(v_stale) as l
        where l.key = any (v_missing) and l.due_at <> v_next_sweep
      );
      v_stale := array(select l from unnest(v_stale) as l where not l.key = any (v_missing));
      v_waiting := v_waiting + cardinality(v_missing);
    end loop;
    v_queue := v_queue || v_stale;
  end loop;

  if cardinality(v_later) > 0 then
    perform pgfresh.look_again(v_later);
  end if;
  if cardinality(v_queue) > 0 then
    v_queued := pgfresh.open_jobs_for(v_queue, p_now);
  end if;
  return jsonb_build_object(
      'checked', v_checked, 'stale', v_found_stale, 'missing', v_found_missing, 'queued', v_queued,
      'merged', v_open, 'gated', v_gated, 'failed', v_failed, 'skipped', v_skipped + v_held)
    || v_reasons
    || jsonb_strip_nulls(jsonb_build_object(
      'skipped_held', nullif(v_held, 0), 'undecided', nullif(v_undecided, 0),
      'prerequisites', nullif(v_prerequisites, 0), 'waiting', nullif(v_waiting, 0)));
end
$$;
comment on function pgfresh.plan_looks(pgfresh.looks[], timestamptz) is
  'Decides about pairs that were read, and queues those that are missing or stale, '
  'within gate, prerequisites and quota. Returns counts. A part of the planner.';

/*
  Here every pair is reached by its key, whatever the statistics say of a table that has just been filled.
  One that somebody has locked, or that has changed since it was read, is left alone.
  The entries of the others go, as those that the tick takes do.
*/
create or replace function pgfresh.lock_looks(p_looks pgfresh.look[]) returns pgfresh.look[]
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
declare
  v_looks pgfresh.look[] := array(
    select row(l.type_id, l.key, p.ctid, l.job_id, l.due_at, l.next_at, l.priority)::pgfresh.look
    from unnest(p_looks) as l
    cross join lateral (
      select p.ctid
      from pgfresh.pairs as p
      where p.type_id = l.type_id and p.key = l.key
        and p.job_id is not distinct from l.job_id
        and (p.due_at = l.due_at or l.due_at is null)
      for update skip locked
    ) as p
  );
begin
  delete from pgfresh.due as d
  using unnest(v_looks) as l
  where d.due_at = l.due_at and d.type_id = l.type_id and d.key = l.key;
  return v_looks;
end
$$;
comment on function pgfresh.lock_looks(pgfresh.look[]) is
  'Locks pairs that were read without, as far as they are still as they were. A part of the planner.';

create or replace function pgfresh.look_again(p_looks pgfresh.look[]) returns void
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
    p_looks := pgfresh.lock_looks(p_looks);
  end if;
  -- By their place: they can not move while they are locked.
  update pgfresh.pairs as p set due_at = l.next_at from unnest(p_looks) as l where p.ctid = l.place;
  insert into pgfresh.due (due_at, type_id, key)
  select l.next_at, l.type_id, l.key from unnest(p_looks) as l where l.next_at < 'infinity'
  on conflict do nothing;
end
$$;
comment on function pgfresh.look_again(pgfresh.look[]) is
  'Sets when the planner looks at pairs next. A part of the planner.';

create or replace function pgfresh.open_jobs_for(p_looks pgfresh.look[], p_now timestamptz) returns int
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
  v_count int;
  v_raised boolean;
begin
  if p_looks[1].place is null then
    p_looks := pgfresh.lock_looks(p_looks);
  end if;
  v_raised := exists (select from unnest(p_looks) as l where l.priority is not null);
  with kinds as materialized (
    select r.type_id, r.source_id, r.ui_threshold, r.background_priority, b.bytes,
      pgfresh.size_class_of(
        b.bytes, exists (select from pgfresh.source_state as s where s.source_id = r.source_id)
      ) as size_class
    from pgfresh.data_type_registry as r
    cross join lateral (
      select coalesce(
        (select t.estimated_bytes from pgfresh.type_stats as t where t.type_id = r.type_id),
        r.estimated_data_size_bytes
      ) as bytes
    ) as b
    where r.type_id = any (array(select distinct l.type_id from unnest(p_looks) as l))
  ), opened as (
    -- By their place: they can not move while they are locked.
    update pgfresh.pairs as p
    set job_id = nextval('pgfresh.job_id'), due_at = 'infinity'
    where p.ctid = any (array(select l.place from unnest(p_looks) as l))
    returning p.type_id, p.key, p.job_id, p.viewers
  ), ranked as (
    select o.key, o.job_id, k.*,
      greatest(
        1,
        case when o.viewers < k.ui_threshold then k.background_priority else o.viewers end,
        case when v_raised then (
          select max(l.priority) from unnest(p_looks) as l where l.type_id = o.type_id and l.key = o.key
        ) end
      ) as priority
    from opened as o
    join kinds as k on k.type_id = o.type_id
  )
  insert into pgfresh.job
    (id, seq, run_at, created_at, est_bytes, type_id, source_id,
      priority, band, size_class, state, key)
  select r.job_id, r.job_id, p_now, p_now, r.bytes, r.type_id, r.source_id,
    r.priority, pgfresh.band_of(r.priority), r.size_class, 'r', r.key
  from ranked as r;
  get diagnostics v_count = row_count;
  if v_count > 0 then
    perform pgfresh.wake_workers();
  end if;
  return v_count;
end
$$;
comment on function pgfresh.open_jobs_for(pgfresh.look[], timestamptz) is
  'Opens a job for each of these pairs, with the priority of its viewers. A part of the planner.';
