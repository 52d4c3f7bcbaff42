/*
  The only way from a check to a job. Every pair that is checked gets the time of its next check,
  or a job whose end sets one, so nothing is checked in a loop.
  Pairs that have a job or are in backoff are checked too, so that their displayed state is correct.
  Each data type is checked by itself; the decisions are written for all of them together.
  Lock order: pairs, then jobs; pairs that another transaction has locked are left to the next check.
*/

/*
  Decides for pairs of one data type: a job (queue; or places, if only the position of the pair is needed), or the
  time of the next check (later). Unchanged pairs are not returned.
  User code runs in subtransactions: the check, the key table and the gate.
*/
create or replace function pgfresh_engine.decide_looks(
  p_type pgfresh.data_type_registry, p_pairs pgfresh_engine.looks, p_gate_sql text,
  p_obstacle text, p_until timestamptz, p_dependent boolean, p_now timestamptz,
  out queue pgfresh_engine.look[], out places tid[], out later pgfresh_engine.look[], out counts jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_next_sweep timestamptz := p_now + interval '1 minute';
  v_scheduled boolean := p_type.refresh_strategy = 'scheduled';
  -- What is known of pairs is joined to their answers only where there is any.
  v_known pgfresh_engine.looks := case
    when p_pairs.rests or num_nonnulls(p_pairs.places, p_pairs.priorities) > 0 then p_pairs
  end;
  -- Whether all stale pairs get a job. Building rows of them and reading these again made a tick 7 % longer.
  v_plain boolean := p_pairs.places is not null and p_pairs.priorities is null and not p_dependent
    and num_nulls(p_obstacle, p_gate_sql) = 2 and not pgfresh_engine.has_key_rules(p_type);
  v_awake int := cardinality(p_pairs.keys);
  v_resting record;
  v_asked record;
  v_settled record;
  v_unlisted text[];
begin
  counts := '{}';
  if p_pairs.rests then
    select count(l.job_id)::int as open,
      count(*) filter (where l.job_id is null and l.next_ask_at > p_now)::int as held
    into v_resting
    from unnest(p_pairs.jobs, p_pairs.next_ask) as l(job_id, next_ask_at);
    v_awake := v_awake - v_resting.open - v_resting.held;
    counts := jsonb_build_object(
      'merged', v_resting.open, 'skipped', v_resting.held, 'skipped_held', nullif(v_resting.held, 0));
  end if;
  if p_obstacle in ('unresolved', 'quarantined') then
    if p_obstacle = 'quarantined' and not pgfresh_engine.note_hold(p_type.type_id, p_until, p_obstacle, p_now) then
      p_until := p_now + interval '1 second';
    end if;
    -- It cannot be checked. A type without a table has no rows.
    later := array(
      select row(p_type.type_id, l.key, l.place, l.job_id, l.due_at, l.next_at, null,
        case when gone.table then true end, null, null, p_obstacle)::pgfresh_engine.look
      from (
        select not exists (select from pg_class as c where c.oid = r.tables[1]) as table
        from pgfresh_engine.type_resolution as r
        where r.type_id = p_type.type_id
      ) as gone
      cross join lateral (
        select l.*,
          case
            when l.job_id is not null then 'infinity'
            when l.next_ask_at > p_now then l.next_ask_at
            else p_until
          end as next_at
        from unnest(p_pairs.keys, p_pairs.places, p_pairs.jobs, p_pairs.next_ask, p_pairs.rows, p_pairs.due)
          as l(key, place, job_id, next_ask_at, row_at, due_at)
      ) as l
      -- Pairs of a type in quarantine are checked when it ends.
      where (l.due_at <> l.next_at and (p_obstacle = 'unresolved' or l.due_at <= p_now))
        or (gone.table and l.row_at is not null and l.due_at is not null));
    counts := pgfresh_engine.add_counts(counts,
      jsonb_build_object('skipped', v_awake, 'skipped_' || p_obstacle, v_awake));
    return;
  end if;

  begin
    select
      array_agg(row(p_type.type_id, c.key, c.place, null, c.due_at, null, c.priority,
        c.changed, c.row_at, p_now, null)::pgfresh_engine.look) filter (where c.turn = 'stale') as stale,
      array_agg(c.place) filter (where c.turn = 'plain') as plain,
      array_agg(row(p_type.type_id, c.key, c.place, c.job_id, c.due_at, c.next_at, null,
        c.changed, c.row_at, case when c.stale then p_now else c.fresh_until end, null)::pgfresh_engine.look)
        filter (where c.turn = 'later' and (c.due_at <> c.next_at or (c.changed and c.due_at is not null))) as later,
      array_agg(row(p_type.type_id, c.key, c.place, null, c.due_at, null, c.priority,
        c.changed, c.row_at, c.fresh_until, null)::pgfresh_engine.look) filter (where c.turn = 'doubt') as doubt,
      count(*) filter (where c.stale is null)::int as undecided,
      count(*) filter (where c.stale and c.found and c.awake)::int as found_stale,
      count(*) filter (where not c.found and c.awake)::int as found_missing,
      count(c.raised)::int as raised, max(c.raised) as raised_with
    into v_asked
    from (
      select c.*,
        -- Undecided pairs come again soon, but behind those of other types.
        case
          when c.job_id is not null then 'infinity'
          when not c.awake then c.next_ask_at
          when c.stale is null then p_now + interval '5 seconds'
          when v_scheduled and c.found then 'infinity'
          when c.ttl_ends > p_now then c.ttl_ends
          else v_next_sweep
        end as next_at
      from (
        select c.*,
          case
            when c.job_id is not null or not c.stale or c.stale is null then 'later'
            when v_scheduled and c.found then 'later'
            when c.doubtful and (c.awake or c.changed) then 'doubt'
            when c.awake and v_plain and not c.changed then 'plain'
            when c.awake then 'stale'
            else 'later'
          end as turn
        from (
          select c.key, c.found, c.stale, c.next_at as ttl_ends, c.raised, c.due_at,
            l.place, l.job_id, l.next_ask_at, l.priority,
            l.job_id is null and (l.next_ask_at > p_now) is not true as awake,
            seen.row_at, case when c.found is not null then seen.row_at is distinct from c.row_at end as changed,
            -- A row that a function calls fresh beyond its TTL is fresh until the next check.
            case
              when not c.stale and (c.next_at > p_now) is not true then v_next_sweep + interval '10 seconds'
              else c.next_at
            end as fresh_until,
            c.found is null or (not c.found and c.row_at is not null)
              or (c.found and (seen.row_at < c.row_at or c.row_at = '-infinity' or (c.next_at <= p_now) is not true))
            as doubtful
          from pgfresh_engine.ask_stale(
            p_type.type_id, p_pairs.keys, p_pairs.confirmed, p_pairs.rows, p_pairs.due, p_type.ttl, p_now
          ) as c
          cross join lateral (
            select case when c.found then coalesce(c.at, '-infinity') end as row_at
          ) as seen
          left join (
            -- In the select list, because a function in FROM is materialised and read back.
            select unnest(v_known.keys) as key, unnest(v_known.places) as place, unnest(v_known.jobs) as job_id,
              unnest(v_known.next_ask) as next_ask_at, unnest(v_known.priorities) as priority
          ) as l on l.key = c.key
        ) as c
        -- OFFSET 0: computed once instead of in each of the aggregates.
        offset 0
      ) as c
    ) as c;
  exception when lock_not_available then
    -- Other types proceed. These pairs come again soon, unless it happens again.
    perform pgfresh_engine.note_type_timeout(p_type.type_id, 'check', sqlerrm);
    later := array(
      select row(p_type.type_id, l.key, l.place, l.job_id, l.due_at, p_now + interval '1 second', null,
        null, null, null, null)::pgfresh_engine.look
      from unnest(p_pairs.keys, p_pairs.places, p_pairs.jobs, p_pairs.due) as l(key, place, job_id, due_at)
      where l.job_id is null and l.due_at <= p_now);
    counts := counts || jsonb_build_object('undecided', v_awake);
    return;
  end;
  queue := v_asked.stale;
  places := v_asked.plain;
  later := v_asked.later;
  counts := counts || jsonb_build_object(
    'checked', v_awake - v_asked.undecided, 'undecided', nullif(v_asked.undecided, 0), 'failed', v_asked.raised,
    'stale', v_asked.found_stale, 'missing', v_asked.found_missing);
  if v_asked.raised > 0 then
    perform pgfresh_engine.warn('check_raised', p_type.data_type, v_asked.raised_with,
      format('Correct the data, or the function %s.', p_type.staleness_function), v_asked.raised);
  end if;
  if v_asked.doubt is not null then
    select
      array_agg(row(l.type_id, l.key, case when l.place is not null then d.place end, null, l.due_at, null,
        l.priority, null, l.row_at, null, null)::pgfresh_engine.look) filter (where d.until is null) as stale,
      array_agg(row(l.type_id, l.key, case when l.place is not null then d.place end, null, l.due_at, d.until,
        null, null, null, null, null)::pgfresh_engine.look) filter (where d.until <> l.due_at) as later
    into v_settled
    from pgfresh_engine.note_lapses(p_type, v_asked.doubt, p_now) as d
    join unnest(v_asked.doubt) as l on l.key = d.key;
    queue := queue || v_settled.stale;
    later := later || v_settled.later;
  end if;
  if queue is null then
    return;
  end if;

  -- What is no longer a key is not fetched, even if it has viewers. Pairs needed by another type follow that type's
  -- request.
  if p_pairs.priorities is null and pgfresh_engine.has_key_rules(p_type) then
    v_unlisted := pgfresh_engine.unlisted_keys(p_type, array(select l.key from unnest(queue) as l));
    if v_unlisted <> '{}' then
      perform pgfresh_engine.revoke_pairs(p_type.type_id, v_unlisted, p_now);
      queue := array(
        select l
        from unnest(queue) as l
        where not exists (select from unnest(v_unlisted) as u where u = l.key));
    end if;
  end if;
  if p_obstacle is not null and cardinality(queue) > 0 then
    if not pgfresh_engine.note_hold(p_type.type_id, p_until, p_obstacle, p_now) then
      p_until := p_now + interval '1 second';
    end if;
    later := later || array(
      select row(l.type_id, l.key, l.place, null, l.due_at, p_until, null,
        l.changed, l.row_at, p_now, p_obstacle)::pgfresh_engine.look
      from unnest(queue) as l
      where l.due_at <> p_until or (l.changed and l.due_at is not null));
    counts := pgfresh_engine.add_counts(counts, jsonb_build_object(
      'skipped', cardinality(queue), 'skipped_' || p_obstacle, cardinality(queue)));
    queue := null;
  elsif p_gate_sql is not null then
    v_settled := pgfresh_engine.hold_at_gate(p_type, queue, p_gate_sql, p_now);
    queue := v_settled.queue;
    later := later || v_settled.later;
    counts := pgfresh_engine.add_counts(counts, v_settled.counts);
  end if;
end
$$;
comment on function pgfresh_engine.decide_looks(
  pgfresh.data_type_registry, pgfresh_engine.looks, text, text, timestamptz, boolean, timestamptz) is
  'Decides about pairs of one data type that were read: which get a job, and when to look at others again. '
  'Prerequisites are not asked for here. A part of the planner.';

-- A gate holds only pairs that have rows; it never delays a first fetch.
create or replace function pgfresh_engine.hold_at_gate(
  p_type pgfresh.data_type_registry, p_queue pgfresh_engine.look[], p_gate_sql text, p_now timestamptz,
  out queue pgfresh_engine.look[], out later pgfresh_engine.look[], out counts jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_open_end timestamptz := pgfresh_engine.open_end(p_now);
  v_keys text[] := array(select l.key from unnest(p_queue) as l where l.row_at is not null);
  v_closed text[];
begin
  queue := p_queue;
  counts := '{}';
  if v_keys = '{}' then
    return;
  end if;
  -- Pairs that are already held are not written.
  select array_agg(g.key),
    array_agg(row(
      l.type_id, l.key, l.place, null, l.due_at, g.next_at, null, l.changed, l.row_at, p_now, 'gate'
    )::pgfresh_engine.look) filter (where l.due_at is not null and (l.due_at <> g.next_at or l.changed))
  into v_closed, later
  from (
    select g.key, case when g.opens_at > p_now then g.opens_at else v_open_end end as next_at
    from pgfresh_engine.ask_gate(p_gate_sql, v_keys, p_type.data_type) as g
    where not g.open
  ) as g
  join unnest(p_queue) as l on l.key = g.key;
  if v_closed is not null then
    queue := array(
      select l
      from unnest(p_queue) as l
      left join unnest(v_closed) as c(key) on c.key = l.key
      where c.key is null);
    counts := jsonb_build_object('gated', cardinality(v_closed));
    if not pgfresh_engine.note_hold(p_type.type_id, v_open_end, 'gate', p_now) then
      later := array(
        select row(l.type_id, l.key, l.place, null, l.due_at, p_now + interval '1 second', null,
          l.changed, l.row_at, p_now, 'gate')::pgfresh_engine.look
        from unnest(p_queue) as l
        join unnest(v_closed) as c(key) on c.key = l.key
        where l.due_at is not null);
    end if;
  end if;
exception
  when lock_not_available then
    perform pgfresh_engine.note_type_timeout(p_type.type_id, 'gate', sqlerrm);
    queue := null;
    later := array(
      select row(l.type_id, l.key, l.place, null, l.due_at, p_now + interval '1 second', null,
        l.changed, l.row_at, p_now, null)::pgfresh_engine.look
      from unnest(p_queue) as l
      where l.due_at is not null);
    counts := jsonb_build_object('undecided', cardinality(p_queue));
  when others then
    perform pgfresh_engine.warn('gate_raised', p_type.data_type, sqlerrm,
      format('Correct the function %s; until then the gate counts as open.', p_type.gate_function));
    counts := jsonb_build_object('failed', cardinality(v_keys));
end
$$;
comment on function pgfresh_engine.hold_at_gate(
  pgfresh.data_type_registry, pgfresh_engine.look[], text, timestamptz) is
  'Of pairs that would get a job, those whose gate is open; and when to look at the others again. '
  'A part of the planner.';

/*
  Pairs wait while a prerequisite has no row. It is requested in the same call,
  with the priority of the pair that needs it.
*/
create or replace function pgfresh_engine.hold_for_prerequisites(
  p_type pgfresh.data_type_registry, p_queue pgfresh_engine.look[], p_now timestamptz,
  out queue pgfresh_engine.look[], out waiting pgfresh_engine.look[], out needed pgfresh_engine.look[])
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_needs record;
  v_missing text[];
begin
  queue := p_queue;
  for v_needs in
    select d.needs_id, res.missing_sql
    from pgfresh_engine.type_dependency as d
    join pgfresh_engine.type_resolution as res on res.type_id = d.needs_id
    where d.type_id = p_type.type_id and not pgfresh_engine.is_quarantined(d.needs_id, p_now)
    order by d.needs_id
  loop
    exit when cardinality(queue) = 0;
    begin
      v_missing := array(
        select k
        from pgfresh_engine.ask_keys(v_needs.missing_sql, array(select l.key from unnest(queue) as l)) as k
        order by k collate "C");
    exception
    when lock_not_available then
      perform pgfresh_engine.note_type_timeout(v_needs.needs_id, 'check', sqlerrm);
      continue;
    when others then
      -- It is skipped with its own warning; the pair that needs it does not wait for ever.
      continue;
    end;
    continue when v_missing = '{}';
    -- A pair that another transaction is adding right now comes at the next check.
    perform pgfresh_engine.make_pairs(v_needs.needs_id, v_missing);
    needed := needed || array(
      select row(v_needs.needs_id, l.key, null, null, null, null,
        greatest(
          1, pgfresh_engine.priority_of(p.viewers, p_type.ui_threshold, p_type.background_priority), l.priority),
        null, null, null, null)::pgfresh_engine.look
      from unnest(v_missing) as m(key)
      join unnest(queue) as l on l.key = m.key
      join pgfresh_engine.pairs as p on p.type_id = p_type.type_id and p.key = m.key);
    waiting := waiting || array(
      select l from unnest(queue) as l where exists (select from unnest(v_missing) as m where m = l.key));
    queue := array(
      select l from unnest(queue) as l where not exists (select from unnest(v_missing) as m where m = l.key));
  end loop;
end
$$;
comment on function pgfresh_engine.hold_for_prerequisites(
  pgfresh.data_type_registry, pgfresh_engine.look[], timestamptz) is
  'Of pairs that would get a job, those whose prerequisites are there; the others, and what they need. '
  'A part of the planner.';

create or replace function pgfresh_engine.plan_looks(p_looks pgfresh_engine.looks[], p_now timestamptz) returns jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
-- Otherwise each call would plan every statement again, which looks a little cheaper for the few keys at hand.
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
  v_type record;
  v_decided record;
  v_held record;
  v_queue pgfresh_engine.look[];
  v_places tid[];
  v_types int[];
  v_later pgfresh_engine.look[];
  v_waiting pgfresh_engine.look[];
  v_needed pgfresh_engine.look[];
  v_needed_before pgfresh_engine.look[] := '{}';
  v_counts jsonb[];
  v_queued int;
  v_prerequisites int := 0;
begin
  -- First the pairs themselves, then what they need, then what that needs.
  for v_depth in 0..100 loop
    v_queue := null;
    v_places := null;
    v_types := null;
    v_later := null;
    v_needed := null;
    v_queued := 0;
    for v_type in
      select r as registered, g as pairs, res.gate_sql, o.reason, o.until,
        exists (select from pgfresh_engine.type_dependency as d where d.type_id = r.type_id) as dependent
      from unnest(p_looks) as g
      join pgfresh.data_type_registry as r on r.type_id = g.type_id
      join pgfresh_engine.type_resolution as res on res.type_id = g.type_id
      left join pgfresh_engine.planning_obstacles(array(select distinct g.type_id from unnest(p_looks) as g),
        p_now) as o
        on o.type_id = g.type_id
      order by g.type_id
    loop
      v_decided := pgfresh_engine.decide_looks(
        v_type.registered, v_type.pairs, v_type.gate_sql, v_type.reason, v_type.until, v_type.dependent, p_now);
      if v_type.dependent and cardinality(v_decided.queue) > 0 then
        v_held := pgfresh_engine.hold_for_prerequisites(v_type.registered, v_decided.queue, p_now);
        v_decided.queue := v_held.queue;
        v_waiting := v_waiting || v_held.waiting;
        v_needed := v_needed || v_held.needed;
      end if;
      if num_nonnulls(v_decided.queue, v_decided.places) > 0 then
        v_queue := v_queue || v_decided.queue;
        v_places := v_places || v_decided.places;
        v_types := v_types || (v_type.pairs).type_id;
      end if;
      v_later := v_later || v_decided.later;
      if v_depth = 0 then
        v_counts := v_counts || v_decided.counts;
      end if;
    end loop;
    if cardinality(v_later) > 0 then
      perform pgfresh_engine.look_again(v_later);
    end if;
    if v_types is not null then
      v_queued := pgfresh_engine.open_jobs_for(v_types, v_queue, v_places, p_now);
    end if;
    if v_depth = 0 then
      v_counts := v_counts || jsonb_build_object('queued', v_queued, 'waiting', cardinality(v_waiting));
    else
      v_prerequisites := v_prerequisites + v_queued;
    end if;
    exit when v_needed is null;
    p_looks := array(
      select l
      from (
        select n.type_id, array_agg(n.key) as keys, array_agg(n.priority) as priorities
        from (
          select n.type_id, n.key, max(n.priority) as priority
          from unnest(v_needed) as n
          left join unnest(v_needed_before) as b on b.type_id = n.type_id and b.key = n.key
          where b.key is null
          group by n.type_id, n.key
        ) as n
        group by n.type_id
      ) as n
      cross join lateral unnest(pgfresh_engine.looks_at(n.type_id, n.keys, n.priorities)) as l);
    v_needed_before := v_needed_before || v_needed;
  end loop;

  /*
    The end of a prerequisite wakes the pairs that wait for it, except those being planned at that moment, which it
    cannot see. So a waiting pair is checked again, soon and then less and less often: each time after as long as the
    job of its prerequisite has been open by then.
  */
  if v_waiting is not null then
    v_counts := v_counts || jsonb_build_object('prerequisites', nullif(v_prerequisites, 0));
    v_later := pgfresh_engine.lock_looks(array(
      select distinct on (w.type_id, w.key)
        row(w.type_id, w.key, w.place, null, w.due_at, n.look_at, null,
          w.changed, w.row_at, p_now, 'dependency')::pgfresh_engine.look
      from unnest(v_waiting) as w
      join (
        select d.type_id, n.key,
          least(p_now + interval '1 minute', (
            select case
              when p.job_id is not null then p_now + greatest(p_now - j.created_at, interval '1 second')
              -- It has just ended. If it has no job for another reason, such as a paused source, it can take long.
              when p.ok_at > p_now - interval '5 seconds' then p_now + interval '1 second'
            end
            from pgfresh_engine.pairs as p
            left join pgfresh_engine.job as j on j.id = p.job_id
            where p.type_id = n.type_id and p.key = n.key collate "C"
          )) as look_at
        from unnest(v_needed_before) as n
        join pgfresh_engine.type_dependency as d on d.needs_id = n.type_id
      ) as n on n.type_id = w.type_id and n.key = w.key
      where w.due_at <> n.look_at
      order by w.type_id, w.key, n.look_at));
    if cardinality(v_later) > 0 then
      perform pgfresh_engine.look_again(v_later);
    end if;
  end if;
  return jsonb_strip_nulls(
    '{"checked": 0, "stale": 0, "missing": 0, "queued": 0, "merged": 0, "gated": 0, "failed": 0, "skipped": 0}'
    || pgfresh_engine.add_counts(variadic v_counts));
end
$$;
comment on function pgfresh_engine.plan_looks(pgfresh_engine.looks[], timestamptz) is
  'Decides about pairs that were read, and queues those that are missing or stale, '
  'within gate, prerequisites and quota. Returns counts. A part of the planner.';
