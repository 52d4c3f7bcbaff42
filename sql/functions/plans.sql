/*
  The one way from a look to a job. Every pair that is looked at gets a time of its next look,
  or a job whose end sets one, so nothing is looked at in a loop.
  Pairs that have a job or are left alone are looked at too, so that what is shown of them is true.
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
  v_open_end timestamptz := pgfresh.open_end(p_now);
  v_scheduled boolean;
  v_type record;
  v_asked record;
  v_gate record;
  v_needs record;
  v_settled record;
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
    select r as registered, res.gate_sql, res.tables[1] as table_id, o.reason, o.until,
      exists (select from pgfresh.type_dependency as d where d.type_id = r.type_id) as dependent, g.*,
      -- What is known of a pair beside its answer, if there is any such thing.
      case when known.any then g.keys end as known_keys,
      case when known.any then g.jobs end as known_jobs, case when known.any then g.next_ask end as known_ask
    from unnest(p_looks) as g
    cross join lateral (select g.rests or num_nonnulls(g.places, g.priorities) > 0 as any) as known
    join pgfresh.data_type_registry as r on r.type_id = g.type_id
    join pgfresh.type_resolution as res on res.type_id = g.type_id
    left join pgfresh.planning_obstacles(array(select distinct g.type_id from unnest(p_looks) as g), p_now) as o
      on o.type_id = g.type_id
    order by g.type_id
  loop
    if v_type.rests then
      select count(l.job_id)::int as open,
        count(*) filter (where l.job_id is null and l.next_ask_at > p_now)::int as held
      into v_settled
      from unnest(v_type.jobs, v_type.next_ask) as l(job_id, next_ask_at);
      v_open := v_open + v_settled.open;
      v_held := v_held + v_settled.held;
    else
      select 0 as open, 0 as held into v_settled;
    end if;
    if v_type.reason in ('unresolved', 'quarantined') then
      -- Those of a type in quarantine are looked at when it ends.
      if v_type.reason = 'quarantined' then
        perform pgfresh.note_hold(v_type.type_id, v_type.until, v_type.reason, p_now);
      end if;
      v_later := v_later || array(
        select row(v_type.type_id, l.key, l.place, l.job_id, l.due_at, l.next_at, null,
          case when gone.table then true end, null, null, v_type.reason)::pgfresh.look
        from (select not exists (select from pg_class as c where c.oid = v_type.table_id) as table) as gone
        cross join lateral (
          select l.*,
            case
              when l.job_id is not null then 'infinity'
              when l.next_ask_at > p_now then l.next_ask_at
              else v_type.until
            end as next_at
          from unnest(v_type.keys, v_type.places, v_type.jobs, v_type.next_ask, v_type.rows, v_type.due)
            as l(key, place, job_id, next_ask_at, row_at, due_at)
        ) as l
        where (l.due_at <> l.next_at and (v_type.reason = 'unresolved' or l.due_at <= p_now))
          or (gone.table and l.row_at is not null and l.due_at is not null)
      );
      v_skipped := v_skipped + cardinality(v_type.keys) - v_settled.open - v_settled.held;
      v_reasons := pgfresh.add_counts(v_reasons, jsonb_build_object(
        'skipped_' || v_type.reason, cardinality(v_type.keys) - v_settled.open - v_settled.held));
      continue;
    end if;

    v_scheduled := (v_type.registered).refresh_strategy = 'scheduled';
    begin
      select
        array_agg(row(v_type.type_id, c.key, c.place, null, c.due_at, null, c.priority,
          c.changed, c.row_at, p_now, null)::pgfresh.look)
          filter (where c.turn = 'stale') as stale,
        coalesce(array_agg(c.key) filter (where c.turn = 'stale' and c.found), '{}') as gated,
        array_agg(row(v_type.type_id, c.key, c.place, c.job_id, c.due_at, c.next_at, null,
          c.changed, c.row_at, case when c.stale then p_now else c.fresh_until end, null)::pgfresh.look)
          filter (where c.turn = 'later' and (c.due_at <> c.next_at or (c.changed and c.due_at is not null))) as later,
        array_agg(row(v_type.type_id, c.key, c.place, null, c.due_at, null, c.priority,
          c.changed, c.row_at, c.fresh_until, null)::pgfresh.look) filter (where c.turn = 'doubt') as doubt,
        -- In the same order. One of their own would sort all pairs, and not only these.
        array_agg(c.found) filter (where c.turn = 'doubt') as doubt_found,
        count(*) filter (where c.stale is null)::int as undecided,
        count(*) filter (where c.stale and c.found and c.awake)::int as found_stale,
        count(*) filter (where not c.found and c.awake)::int as found_missing,
        count(c.raised)::int as raised, max(c.raised) as raised_with
      into v_asked
      from (
        select c.*,
          case
            when c.job_id is not null or not c.stale or c.stale is null then 'later'
            when v_scheduled and c.found then 'later'
            when c.doubtful and (c.awake or c.changed) then 'doubt'
            when c.awake then 'stale'
            else 'later'
          end as turn,
          -- Those that are not decided come soon, but behind those of other types.
          case
            when c.job_id is not null then 'infinity'
            when not c.awake then c.next_ask_at
            when c.stale is null then p_now + interval '5 seconds'
            when v_scheduled and c.found then 'infinity'
            when c.ttl_ends > p_now then c.ttl_ends
            else v_next_sweep
          end as next_at
        from (
          select c.key, c.found, c.stale, c.next_at as ttl_ends, c.raised, c.due_at,
            l.place, l.job_id, l.next_ask_at, l.priority,
            l.job_id is null and (l.next_ask_at > p_now) is not true as awake,
            seen.row_at, case when c.found is not null then seen.row_at is distinct from c.row_at end as changed,
            -- What a function calls fresh beyond its TTL is fresh until it has been asked again.
            case
              when not c.stale and (c.next_at > p_now) is not true then v_next_sweep + interval '10 seconds'
              else c.next_at
            end as fresh_until,
            c.found is null or (not c.found and c.row_at is not null)
              or (c.found and (seen.row_at < c.row_at or c.row_at = '-infinity' or (c.next_at <= p_now) is not true))
            as doubtful
          from pgfresh.ask_stale(
            v_type.type_id, v_type.keys, v_type.confirmed, v_type.rows, v_type.due, (v_type.registered).ttl, p_now
          ) as c
          cross join lateral (
            select case when c.found then coalesce(c.at, '-infinity') end as row_at
          ) as seen
          left join unnest(v_type.known_keys, v_type.places, v_type.known_jobs, v_type.known_ask, v_type.priorities)
            as l(key, place, job_id, next_ask_at, priority) on l.key = c.key
        ) as c
      ) as c;
    exception when lock_not_available then
      -- The others go on. These have their turn soon, unless it happens again.
      perform pgfresh.note_type_timeout(v_type.type_id, 'check', sqlerrm);
      v_later := v_later || array(
        select row(v_type.type_id, l.key, l.place, l.job_id, l.due_at, p_now + interval '1 second', null,
          null, null, null, null)::pgfresh.look
        from unnest(v_type.keys, v_type.places, v_type.jobs, v_type.due) as l(key, place, job_id, due_at)
        where l.job_id is null and l.due_at <= p_now
      );
      v_undecided := v_undecided + cardinality(v_type.keys) - v_settled.open - v_settled.held;
      continue;
    end;
    v_stale := v_asked.stale;
    v_later := v_later || v_asked.later;
    v_checked := v_checked + cardinality(v_type.keys) - v_settled.open - v_settled.held - v_asked.undecided;
    v_undecided := v_undecided + v_asked.undecided;
    v_found_stale := v_found_stale + v_asked.found_stale;
    v_found_missing := v_found_missing + v_asked.found_missing;
    v_failed := v_failed + v_asked.raised;
    if v_asked.raised > 0 then
      perform pgfresh.warn('check_raised', (v_type.registered).data_type, v_asked.raised_with,
        format('Correct the data, or the function %s.', (v_type.registered).staleness_function),
        v_asked.raised);
    end if;
    if v_asked.doubt is not null then
      select
        array_agg(row(l.type_id, l.key, case when l.place is not null then d.place end, null, l.due_at, null,
          l.priority, null, null, null, null)::pgfresh.look) filter (where d.until is null) as stale,
        coalesce(array_agg(l.key) filter (where d.until is null and l.row_at is not null), '{}') as gated,
        array_agg(row(l.type_id, l.key, case when l.place is not null then d.place end, null, l.due_at, d.until,
          null, null, null, null, null)::pgfresh.look) filter (where d.until <> l.due_at) as later
      into v_settled
      from pgfresh.note_lapses(v_type.registered, v_asked.doubt, v_asked.doubt_found, p_now) as d
      join unnest(v_asked.doubt) as l on l.key = d.key;
      v_stale := v_stale || v_settled.stale;
      v_asked.gated := v_asked.gated || v_settled.gated;
      v_later := v_later || v_settled.later;
    end if;
    -- What is no key any more is not fetched, whoever still looks. What another type needs is asked for as it says.
    if cardinality(v_stale) > 0 and v_type.priorities is null then
      v_missing := pgfresh.unlisted_keys(v_type.registered, array(select l.key from unnest(v_stale) as l));
      if v_missing <> '{}' then
        perform pgfresh.revoke_pairs(v_type.type_id, v_missing, p_now);
        v_stale := array(
          select l
          from unnest(v_stale) as l
          where not exists (select from unnest(v_missing) as m where m = l.key));
        v_asked.gated := array(
          select k
          from unnest(v_asked.gated) as k
          where not exists (select from unnest(v_missing) as m where m = k));
      end if;
    end if;
    if v_type.reason is not null and cardinality(v_stale) > 0 then
      perform pgfresh.note_hold(v_type.type_id, v_type.until, v_type.reason, p_now);
      v_later := v_later || array(
        select row(l.type_id, l.key, l.place, null, l.due_at, v_type.until, null,
          l.changed, l.row_at, p_now, v_type.reason)::pgfresh.look
        from unnest(v_stale) as l
        where l.due_at <> v_type.until or (l.changed and l.due_at is not null)
      );
      v_skipped := v_skipped + cardinality(v_stale);
      v_reasons := pgfresh.add_counts(v_reasons,
        jsonb_build_object('skipped_' || v_type.reason, cardinality(v_stale)));
      continue;
    end if;

    -- What is there already waits until the gate opens; what is missing does not.
    if v_type.gate_sql is not null and cardinality(v_asked.gated) > 0 then
      begin
        -- Of a pair that is held already nothing is written.
        select array_agg(g.key) as closed,
          array_agg(row(
            l.type_id, l.key, l.place, null, l.due_at, g.next_at, null, l.changed, l.row_at, p_now, 'gate'
          )::pgfresh.look)
            filter (where l.due_at is not null and (l.due_at <> g.next_at or l.changed)) as later
        into v_gate
        from (
          select g.key, case when g.opens_at > p_now then g.opens_at else v_open_end end as next_at
          from pgfresh.ask_gate(v_type.gate_sql, v_asked.gated, (v_type.registered).data_type) as g
          where not g.open
        ) as g
        join unnest(v_stale) as l on l.key = g.key;
        if v_gate.closed is not null then
          v_stale := array(
            select l
            from unnest(v_stale) as l
            left join unnest(v_gate.closed) as c(key) on c.key = l.key
            where c.key is null);
          v_later := v_later || v_gate.later;
          v_gated := v_gated + cardinality(v_gate.closed);
          perform pgfresh.note_hold(v_type.type_id, v_open_end, 'gate', p_now);
        end if;
      exception
      when lock_not_available then
        perform pgfresh.note_type_timeout(v_type.type_id, 'gate', sqlerrm);
        v_later := v_later || array(
          select row(l.type_id, l.key, l.place, null, l.due_at, p_now + interval '1 second', null,
            l.changed, l.row_at, p_now, null)::pgfresh.look
          from unnest(v_stale) as l
          where l.due_at is not null
        );
        v_undecided := v_undecided + cardinality(v_stale);
        continue;
      when others then
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
        and not pgfresh.is_quarantined(d.needs_id, p_now)
      order by r.type_id
    loop
      begin
        v_missing := array(
          select k
          from pgfresh.ask_keys(v_needs.missing_sql, array(select l.key from unnest(v_stale) as l)) as k
          order by k collate "C"
        );
      exception
      when lock_not_available then
        perform pgfresh.note_type_timeout((v_needs.registered).type_id, 'check', sqlerrm);
        v_missing := '{}';
      when others then
        -- It is skipped with a warning of its own; who needs it does not wait for ever.
        v_missing := '{}';
      end;
      continue when cardinality(v_missing) = 0;
      -- One that another transaction is just adding comes at the next look.
      perform pgfresh.make_pairs((v_needs.registered).type_id, v_missing);
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
        select row(l.type_id, l.key, l.place, null, l.due_at, w.look_at, null,
          l.changed, l.row_at, p_now, 'dependency')::pgfresh.look
        from unnest(v_stale) as l
        cross join lateral (
          select pgfresh.prerequisite_look_at((v_needs.registered).type_id, l.key, p_now, v_next_sweep) as look_at
        ) as w
        where exists (select from unnest(v_missing) as m where m = l.key) and l.due_at <> w.look_at
      );
      v_stale := array(
        select l
        from unnest(v_stale) as l
        where not exists (select from unnest(v_missing) as m where m = l.key));
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
