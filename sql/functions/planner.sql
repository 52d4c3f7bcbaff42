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
      type_id int, rests boolean, keys text[], places tid[], jobs bigint[], next_ask timestamptz[],
      confirmed timestamptz[], rows timestamptz[], due timestamptz[], priorities int[]
    );
  end if;
  if to_regtype('pgfresh.look') is null then
    create type pgfresh.look as (
      type_id int, key text, place tid, job_id bigint, due_at timestamptz, next_at timestamptz, priority int,
      changed boolean, row_at timestamptz, stale_at timestamptz, waits_for text
    );
  end if;
end $$;
comment on type pgfresh.looks is
  'Pairs of one data type as the planner has read them: whether any of them has a job or is to be left alone, '
  'their places if they are locked, when they may be asked for again, when the source confirmed them, '
  'the times of their rows as they were last seen, '
  'their due times as far as anybody looks at them, and the least priorities of their jobs if there are such.';
comment on type pgfresh.look is
  'A pair about which the planner has decided something: when to look again and what it waits for, '
  'or that it gets a job; and whether its row is not as it was known to be, null if nobody looked, and what was seen.';

-- What the source denied is stale when that time is over, however young the row is.
create or replace function pgfresh.confirmed_of(p_pair pgfresh.pairs) returns timestamptz
language sql immutable parallel safe
as $$ select case when p_pair.empty_at is null then p_pair.confirmed_at else '-infinity' end $$;
comment on function pgfresh.confirmed_of(pgfresh.pairs) is
  'When the source last confirmed the row of a pair; -infinity if it has denied it since. A part of the planner.';

-- Nobody knows the time of a row that was written but not looked at yet.
create or replace function pgfresh.row_time_of(p_pair pgfresh.pairs) returns timestamptz
language sql immutable parallel safe
as $$ select case when p_pair.seen then p_pair.row_at else '-infinity' end $$;
comment on function pgfresh.row_time_of(pgfresh.pairs) is
  'The time of the row of a pair as the planner last saw it. A part of the planner.';

create or replace function pgfresh.looks_at(p_type_id int, p_keys text[], p_priorities int[] default null)
returns pgfresh.looks[]
language plpgsql stable
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
as $$
begin
  return array(
    select row(
      p_type_id, true, array_agg(p.key), null, array_agg(p.job_id), array_agg(p.next_ask_at),
      array_agg(pgfresh.confirmed_of(p)), array_agg(pgfresh.row_time_of(p)),
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
        or exists (select from pgfresh.breaker as b where b.type_id = r.type_id and b.paused_until > p_now)
        or exists (select from pgfresh.type_timeout as t where t.type_id = r.type_id)
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
    from pgfresh.type_obstacle((v_type.registered).type_id, (v_type.registered).source_id, p_now) as o;
    if found then
      return next;
    end if;
  end loop;
end
$$;
comment on function pgfresh.planning_obstacles(int[], timestamptz) is
  'What keeps data types from being planned: unresolved, or what type_obstacle says.';

create or replace function pgfresh.lapse_pause(p_lapses int, p_ttl interval) returns interval
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
  select case
    when p_lapses <= 1 then interval '0'
    else least(interval '15 seconds' * power(2, least(p_lapses, 20) - 2), p_ttl, interval '24 hours')
  end
$$;
comment on function pgfresh.lapse_pause(int, interval) is
  'How long a pair is left alone whose row was deleted or set back by others so many times in a row: '
  'the first time not at all, then 15 s, doubled each time, at most its TTL and a day.';

-- Also where its check raises, for instance because of another column of the row.
create or replace function pgfresh.has_row(p_type_id int, p_key text) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  return not exists (
    select from pgfresh.ask_keys(
      (select r.missing_sql from pgfresh.type_resolution as r where r.type_id = p_type_id), array[p_key])
  );
exception
  when lock_not_available then
    return null;
  when others then
    -- A key that is not of the type of its column can have none.
    return false;
end
$$;
comment on function pgfresh.has_row(int, text) is
  'Whether a pair has a row; null if that can not be seen now. A part of the planner.';

/*
  Pairs that are stale for another reason than their age. A row that is gone or older than we left it was changed by
  others: it is fetched again at once, but if that happens again within a TTL the pause doubles, because a trigger that
  deletes what we write must not spend the budget. A row that is stale although it was only just written, or whose
  check raises, would be fetched in a loop: that is done once per TTL.
*/
create or replace function pgfresh.note_lapses(
  p_type pgfresh.data_type_registry, p_looks pgfresh.look[], p_found boolean[], p_now timestamptz)
returns table (key text, place tid, until timestamptz)
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  v_verdict record;
  v_lost int := 0; v_longest interval; v_early int := 0; v_example text;
begin
  for v_verdict in
    select l.key, l.pair, l.row_at, l.stale_at, l.found, (l.pair).ok_at + p_type.ttl as paced,
      (l.pair).outcome in ('fresh', 'unchanged', 'older_source') as succeeded,
      l.row_at > (l.pair).empty_at as denied_before,
      coalesce(case
        when l.found then l.row_at < (l.pair).row_at
        else not l.found and ((l.pair).row_at is not null or not (l.pair).seen)
      end, false) as lost,
      case
        when (l.pair).lapsed_at + pgfresh.lapse_pause((l.pair).lapses, p_type.ttl) + p_type.ttl > p_now
          then (l.pair).lapses + 1
        else 1
      end as lapses
    from (
      select l.key, l.row_at, l.stale_at, p_found[l.ordinal] as found, p.pair
      from unnest(p_looks) with ordinality as l(type_id, key, place, job_id, due_at, next_at, priority,
        changed, row_at, stale_at, waits_for, ordinal)
      cross join lateral (
        select p as pair
        from pgfresh.pairs as p
        where p.type_id = p_type.type_id and p.key = l.key
        for update skip locked
      ) as p
      offset 0
    ) as l
  loop
    key := v_verdict.key;
    until := case when (v_verdict.pair).next_ask_at > p_now then (v_verdict.pair).next_ask_at end;
    if v_verdict.lost and v_verdict.succeeded then
      until := case
        when v_verdict.lapses > 1 then p_now + pgfresh.lapse_pause(v_verdict.lapses, p_type.ttl)
      end;
      if v_verdict.lapses > 1 then
        v_lost := v_lost + 1;
        v_longest := greatest(v_longest, until - p_now);
        v_example := key;
      end if;
    elsif v_verdict.denied_before then
      -- Others have written a row since the source said that there is nothing.
      until := case when v_verdict.row_at + p_type.ttl > p_now then v_verdict.row_at + p_type.ttl end;
    elsif v_verdict.paced > p_now and (
      v_verdict.found is null or (not (v_verdict.pair).seen and v_verdict.succeeded
        and (v_verdict.stale_at > p_now or (v_verdict.stale_at > (v_verdict.pair).ok_at) is not true))
    ) then
      until := greatest(until, v_verdict.paced);
      if v_verdict.found is not null then
        v_early := v_early + 1;
        v_example := key;
      end if;
    end if;
    update pgfresh.pairs as p
    set seen = p.seen or v_verdict.found is not null,
      row_at = case
        when v_verdict.found is not null then v_verdict.row_at
        when pgfresh.has_row(p.type_id, p.key) then coalesce(p.row_at, '-infinity')
      end,
      confirmed_at = case when not v_verdict.lost then p.confirmed_at end,
      empty_at = case when v_verdict.denied_before is not true then p.empty_at end,
      stale_at = case
        when v_verdict.denied_before then until
        else p_now
      end,
      lapses = case when v_verdict.lost and v_verdict.succeeded then v_verdict.lapses else p.lapses end,
      lapsed_at = case when v_verdict.lost and v_verdict.succeeded then p_now else p.lapsed_at end,
      next_ask_at = case when v_verdict.denied_before is not true then until end
    where p.type_id = p_type.type_id and p.key = v_verdict.key
    returning p.ctid into place;
    return next;
  end loop;
  if v_lost > 0 then
    perform pgfresh.warn('row_lost', p_type.data_type,
      format('Rows of %s, such as that of %s, are gone or set back again and again after a refresh that left them; '
        'the last pause before they are fetched again is %s',
        p_type.table_name, quote_literal(left(v_example, 80)), pgfresh.in_words(v_longest)),
      format('Find what changes them: a trigger, a cleanup job, another writer of %s.', p_type.table_name), v_lost);
  end if;
  if v_early > 0 then
    perform pgfresh.warn('stale_when_written', p_type.data_type,
      format('Rows of %s, such as that of %s, are stale as soon as they are written, so they are fetched once per TTL',
        p_type.table_name, quote_literal(left(v_example, 80))),
      format('See what %s says of a row that was just written, and what is in %s.',
        p_type.staleness_function, p_type.timestamp_column),
      v_early);
  end if;
end
$$;
comment on function pgfresh.note_lapses(
  pgfresh.data_type_registry, pgfresh.look[], boolean[], timestamptz) is
  'Decides about pairs that are stale although they should not be: until when each is left alone, or null if it is '
  'fetched now. Pairs that somebody else has locked are left out. A part of the planner.';

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
    select row(l.type_id, l.key, p.ctid, l.job_id, l.due_at, l.next_at, l.priority,
      l.changed, l.row_at, l.stale_at, l.waits_for)::pgfresh.look
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
  update pgfresh.pairs as p
  set due_at = l.next_at, waits_for = l.waits_for, seen = p.seen or l.changed is not null,
    row_at = case when l.changed then l.row_at else p.row_at end,
    -- What the source confirmed is not this row.
    confirmed_at = case when l.changed and (l.row_at >= p.row_at) is not true then null else p.confirmed_at end,
    stale_at = coalesce(l.stale_at, p.stale_at)
  from unnest(p_looks) as l
  where p.ctid = l.place;
  insert into pgfresh.due (due_at, type_id, key)
  select l.next_at, l.type_id, l.key from unnest(p_looks) as l where l.next_at < 'infinity'
  on conflict do nothing;
end
$$;
comment on function pgfresh.look_again(pgfresh.look[]) is
  'Sets when the planner looks at pairs next, and what it has seen of them. A part of the planner.';

create or replace function pgfresh.note_rows(p_looks pgfresh.look[]) returns pgfresh.look[]
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_mergejoin = off
set jit = off
as $$
declare
  v_looks pgfresh.look[];
begin
  with noted as (
    update pgfresh.pairs as p
    set seen = true, row_at = l.row_at,
      confirmed_at = case when (l.row_at >= p.row_at) is not true then null else p.confirmed_at end
    from unnest(p_looks) as l
    where l.changed and p.ctid = l.place
    returning p.type_id, p.key, p.ctid as place
  )
  select array_agg(row(l.type_id, l.key, coalesce(n.place, l.place), l.job_id, l.due_at, l.next_at, l.priority,
    false, null, l.stale_at, l.waits_for)::pgfresh.look)
  into v_looks
  from unnest(p_looks) as l
  left join noted as n on n.type_id = l.type_id and n.key = l.key;
  return v_looks;
end
$$;
comment on function pgfresh.note_rows(pgfresh.look[]) is
  'Notes the rows of locked pairs that were not as they were known to be. A part of the planner.';

create or replace function pgfresh.open_jobs_for(p_looks pgfresh.look[], p_now timestamptz) returns int
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
  v_count int;
  v_changed boolean;
  v_raised boolean;
begin
  if p_looks[1].place is null then
    p_looks := pgfresh.lock_looks(p_looks);
  end if;
  select bool_or(l.changed), bool_or(l.priority is not null) into v_changed, v_raised from unnest(p_looks) as l;
  if v_changed then
    p_looks := pgfresh.note_rows(p_looks);
  end if;
  with kinds as materialized (
    select r.type_id, r.source_id, r.ui_threshold, r.background_priority, b.bytes
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
    set job_id = nextval('pgfresh.job_id'), due_at = 'infinity', next_ask_at = null, waits_for = null,
      stale_at = least(p.stale_at, p_now)
    where p.ctid = any (array(select l.place from unnest(p_looks) as l))
    returning p.type_id, p.key, p.job_id, p.viewers, p.row_at is null and p.seen and p.empty_at is null as missing
  ), ranked as (
    select o.key, o.job_id, o.missing, k.*,
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
      priority, band, missing, state, key)
  select r.job_id, r.job_id, p_now, p_now, r.bytes, r.type_id, r.source_id,
    r.priority, pgfresh.band_of(r.priority), r.missing, 'r', r.key
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
