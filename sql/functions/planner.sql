create or replace function pgfresh.require_primary() returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  if pg_is_in_recovery() then
    perform pgfresh.refuse('PGF_STANDBY', 'this is a standby, whose clock and rows are behind', 'Connect to the primary.');
  end if;
end
$$;
comment on function pgfresh.require_primary() is 'Refuses to decide anything on a standby.';

create or replace function pgfresh.priority_of(p_type pgfresh.data_type_registry, p_viewers int) returns int
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$ select case when p_viewers < p_type.ui_threshold then p_type.background_priority else p_viewers end $$;
comment on function pgfresh.priority_of(pgfresh.data_type_registry, int) is 'The priority of a pair with so many viewers: their number, or below the type''s ui_threshold its background_priority.';

create or replace function pgfresh.add_counts(p_one jsonb, p_other jsonb) returns jsonb
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$ select coalesce(jsonb_object_agg(key, total), '{}') from (select key, sum(value::numeric) as total from (select * from jsonb_each_text(p_one) union all select * from jsonb_each_text(p_other)) as c group by key) as t $$;
comment on function pgfresh.add_counts(jsonb, jsonb) is 'Two objects of counts as one.';

create or replace function pgfresh.record_run(p_kind text, p_started_at timestamptz, p_ms double precision, p_counts jsonb) returns void
language sql
set search_path = pg_catalog, pg_temp
as $$
  insert into pgfresh.planner_run as r (kind, started_at, last_at, calls, ms, counts) values (p_kind, p_started_at, pgfresh.clock(), 1, p_ms, p_counts)
  on conflict (kind, started_at) do update set last_at = excluded.last_at, calls = r.calls + 1, ms = r.ms + excluded.ms, counts = pgfresh.add_counts(r.counts, excluded.counts)
$$;
comment on function pgfresh.record_run(text, timestamptz, double precision, jsonb) is 'Adds a call of the planner to its record.';

-- What keeps a whole data type from being planned now, and until when; no row if nothing does.
create or replace function pgfresh.planning_obstacle(p_type pgfresh.data_type_registry, p_now timestamptz) returns table (reason text, until timestamptz)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_problem record;
begin
  select * into v_problem from pgfresh.type_problem(p_type);
  if found then
    perform pgfresh.warn('type_unresolved', p_type.data_type, v_problem.problem, v_problem.next_step);
    return query select 'unresolved', p_now + interval '1 minute';
    return;
  end if;
  return query select o.reason, o.until from pgfresh.source_obstacle(p_type.source_id, p_now) as o;
end
$$;
comment on function pgfresh.planning_obstacle(pgfresh.data_type_registry, timestamptz) is 'What keeps a data type from being planned: unresolved, or what source_obstacle says of its source.';

/*
  Asks whether pairs are stale, in halves where that raises, until it is known whose fault it is. A pair whose check raises counts
  as stale, once a TTL. At most 50 subtransactions a call; what is not decided by then is left out, in the order of the keys.
*/
create or replace function pgfresh.check_pairs(p_type pgfresh.data_type_registry, p_sql text, p_keys text[], p_checked timestamptz[], p_now timestamptz)
returns table (key text, found boolean, stale boolean, due_at timestamptz, raised text)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_from int := 1;
  v_size int := cardinality(p_keys);
begin
  for v_try in 1..50 loop
    exit when v_from > cardinality(p_keys);
    begin
      -- It answers only when it has asked about all of them, so one that raises has answered about none.
      return query select a.key, a.found, a.stale, a.due_at, null::text
        from pgfresh.ask_stale(p_sql, p_keys[v_from:v_from + v_size - 1], p_checked[v_from:v_from + v_size - 1], p_type.ttl, p_now) as a;
      v_from := v_from + v_size;
      v_size := v_size * 2;
    exception when others then
      if v_size > 1 then
        v_size := least(v_size, cardinality(p_keys) - v_from + 1) / 2;
        v_size := greatest(v_size, 1);
      else
        return query select p_keys[v_from], null::boolean, coalesce(p_checked[v_from] + p_type.ttl <= p_now, true), p_checked[v_from] + p_type.ttl, sqlerrm;
        v_from := v_from + 1;
      end if;
    end;
  end loop;
end
$$;
comment on function pgfresh.check_pairs(pgfresh.data_type_registry, text, text[], timestamptz[], timestamptz) is 'Whether pairs of a data type are there and stale, and when they will be. A part of the planner.';

/*
  The one way from a look to a job. Every pair that is looked at gets a time of its next look, or a job whose end sets one, so
  nothing is looked at in a loop. Lock order: pairs, then jobs; what somebody else has locked is left to the next look.
*/
create or replace function pgfresh.plan_pairs(p_type pgfresh.data_type_registry, p_keys text[], p_now timestamptz, p_priorities int[] default null) returns jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
-- Or each statement would be planned anew at every call, because it is a little cheaper for the few keys at hand.
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
  v_next_sweep timestamptz := p_now + interval '1 minute';
  v_scheduled boolean := p_type.refresh_strategy = 'scheduled';
  v_resolution pgfresh.type_resolution;
  v_obstacle record;
  v_pairs record;
  v_checked record;
  v_gate record;
  v_needs record;
  v_missing text[];
  v_later_keys text[]; v_later timestamptz[];
  v_queue text[];
  v_queued int := 0;
  v_counts jsonb;
begin
  select * into v_obstacle from pgfresh.planning_obstacle(p_type, p_now);
  if found then
    perform pgfresh.look_again(p_type.type_id, p_keys, array_fill(v_obstacle.until, array[cardinality(p_keys)]));
    return jsonb_build_object('skipped', cardinality(p_keys), 'skipped_' || v_obstacle.reason, cardinality(p_keys));
  end if;

  -- Most have the right time of their next look already, and only the others are written.
  select count(*) filter (where p.state = 'open') as open, count(*) filter (where p.state = 'held') as held,
      array_agg(p.key) filter (where p.demanded and p.due_at <> p.next_look) as later_keys,
      array_agg(p.next_look) filter (where p.demanded and p.due_at <> p.next_look) as later,
      coalesce(array_agg(p.key) filter (where p.state = 'asked'), '{}') as keys,
      array_agg(p.checked_at) filter (where p.state = 'asked') as checked,
      array_agg(case when p.demanded then p.due_at end) filter (where p.state = 'asked') as due
    into v_pairs from (
      select p.key, p.checked_at, p.demanded, p.due_at,
        case when p.job_id is not null then 'open' when p.not_before > p_now then 'held' else 'asked' end as state,
        case when p.job_id is not null then 'infinity' when p.not_before > p_now then p.not_before end as next_look
      from pgfresh.pairs as p where p.type_id = p_type.type_id and p.key = any (p_keys) order by p.key
    ) as p;
  select * into v_resolution from pgfresh.type_resolution where type_id = p_type.type_id;

  select coalesce(array_agg(c.key) filter (where not c.rests), '{}') as stale,
      coalesce(array_agg(c.key) filter (where c.stale and c.found), '{}') as gated,
      array_agg(c.key) filter (where c.rests and c.due <> c.next_look) as later_keys,
      array_agg(c.next_look) filter (where c.rests and c.due <> c.next_look) as later,
      count(*) as checked, count(*) filter (where c.stale and c.found) as stale_count, count(*) filter (where not c.found) as missing_count,
      count(c.raised) as raised, max(c.raised) as raised_with
    into v_checked from (
      select c.key, c.found, c.stale, c.raised, asked.due, not c.stale or (c.found and v_scheduled) is true as rests,
        case when v_scheduled and c.found then 'infinity' when c.due_at > p_now then c.due_at else v_next_sweep end as next_look
      from pgfresh.check_pairs(p_type, v_resolution.check_sql, v_pairs.keys, v_pairs.checked, p_now) as c join unnest(v_pairs.keys, v_pairs.due) as asked(key, due) on asked.key = c.key
    ) as c;
  v_queue := v_checked.stale;
  v_later_keys := v_pairs.later_keys || v_checked.later_keys;
  v_later := v_pairs.later || v_checked.later;
  v_counts := jsonb_build_object('checked', v_checked.checked, 'stale', v_checked.stale_count, 'missing', v_checked.missing_count,
    'merged', v_pairs.open, 'failed', v_checked.raised, 'skipped', v_pairs.held, 'skipped_held', v_pairs.held);
  if v_checked.raised > 0 then
    perform pgfresh.warn('check_raised', p_type.data_type, v_checked.raised_with, format('Correct the data, or the function %s.', p_type.staleness_function), v_checked.raised::int);
  end if;
  if v_checked.checked < cardinality(v_pairs.keys) then
    -- Soon, but behind those of other types. They are decided in the order of their keys.
    v_missing := v_pairs.keys[v_checked.checked + 1:];
    v_later_keys := v_later_keys || v_missing;
    v_later := v_later || array_fill(p_now + interval '5 seconds', array[cardinality(v_missing)]);
    v_counts := v_counts || jsonb_build_object('undecided', cardinality(v_missing));
  end if;

  -- What is there already waits until the gate opens; what is missing does not.
  if v_resolution.gate_sql is not null and cardinality(v_checked.gated) > 0 and not v_scheduled then
    begin
      select array_agg(g.key) as closed, array_agg(case when g.opens_at > p_now then g.opens_at else v_next_sweep end) as until into v_gate
        from pgfresh.ask_gate(v_resolution.gate_sql, v_checked.gated, p_type.data_type) as g where not g.open;
      if v_gate.closed is not null then
        v_queue := array(select k from unnest(v_queue) as k where not k = any (v_gate.closed));
        v_later_keys := v_later_keys || v_gate.closed;
        v_later := v_later || v_gate.until;
        v_counts := v_counts || jsonb_build_object('gated', cardinality(v_gate.closed));
      end if;
    exception when others then
      perform pgfresh.warn('gate_raised', p_type.data_type, sqlerrm, format('Correct the function %s; until then the gate counts as open.', p_type.gate_function));
      v_counts := v_counts || jsonb_build_object('failed', v_checked.raised + cardinality(v_checked.gated));
    end;
  end if;

  for v_needs in
    select r as registered, res.missing_sql from pgfresh.type_dependency as d
    join pgfresh.data_type_registry as r on r.type_id = d.needs_id join pgfresh.type_resolution as res on res.type_id = d.needs_id
    where d.type_id = p_type.type_id and cardinality(v_queue) > 0 order by r.type_id
  loop
    begin
      v_missing := array(select k from pgfresh.ask_keys(v_needs.missing_sql, v_queue) as k order by k collate "C");
    exception when others then
      -- It is skipped with a warning of its own; who needs it does not wait for ever.
      v_missing := '{}';
    end;
    continue when cardinality(v_missing) = 0;
    insert into pgfresh.pairs (type_id, key) select (v_needs.registered).type_id, k from unnest(v_missing) as k order by k collate "C" on conflict do nothing;
    v_counts := pgfresh.add_counts(v_counts, jsonb_build_object('prerequisites', coalesce(
      (pgfresh.plan_pairs(v_needs.registered, v_missing, p_now, array(
        select greatest(1, pgfresh.priority_of(p_type, p.viewers), w.priority) from unnest(v_missing) with ordinality as m(key, place)
        join pgfresh.pairs as p on p.type_id = p_type.type_id and p.key = m.key
        left join unnest(p_keys, p_priorities) as w(key, priority) on w.key = m.key order by m.place)) ->> 'queued')::int, 0)));
    v_queue := array(select k from unnest(v_queue) as k where not k = any (v_missing));
    v_later_keys := v_later_keys || v_missing;
    v_later := v_later || array_fill(v_next_sweep, array[cardinality(v_missing)]);
    v_counts := pgfresh.add_counts(v_counts, jsonb_build_object('waiting', cardinality(v_missing)));
  end loop;

  if cardinality(v_later_keys) > 0 then
    perform pgfresh.look_again(p_type.type_id, v_later_keys, v_later);
  end if;
  if cardinality(v_queue) > 0 then
    v_queued := pgfresh.open_jobs_for(p_type, v_queue, p_now,
      case when p_priorities is not null then array(
        select w.priority from unnest(v_queue) with ordinality as q(key, place) join unnest(p_keys, p_priorities) as w(key, priority) on w.key = q.key order by q.place) end);
  end if;
  return v_counts || jsonb_build_object('queued', v_queued);
end
$$;
comment on function pgfresh.plan_pairs(pgfresh.data_type_registry, text[], timestamptz, int[]) is
  'Looks at pairs of one data type and queues those that are missing or stale, within gate, prerequisites and quota. Returns counts. A part of the planner.';

-- Here and in open_jobs_for every pair is reached by its key, whatever the statistics say of a table that has just been filled.
create or replace function pgfresh.look_again(p_type_id int, p_keys text[], p_at timestamptz[]) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
begin
  with locked as (
    select l.ctid, w.at from unnest(p_keys, p_at) as w(key, at)
    cross join lateral (select l.ctid from pgfresh.pairs as l where l.type_id = p_type_id and l.key = w.key and l.demanded and l.due_at <> w.at for update skip locked) as l
  )
  update pgfresh.pairs as p set due_at = locked.at from locked where p.ctid = locked.ctid;
end
$$;
comment on function pgfresh.look_again(int, text[], timestamptz[]) is 'Sets when the planner looks at demanded pairs next. A part of the planner.';

create or replace function pgfresh.open_jobs_for(p_type pgfresh.data_type_registry, p_keys text[], p_now timestamptz, p_priorities int[]) returns int
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
declare
  v_bytes bigint := coalesce((select estimated_bytes from pgfresh.type_stats where type_id = p_type.type_id), p_type.estimated_data_size_bytes);
  v_size_class smallint := pgfresh.size_class_of(v_bytes, exists (select from pgfresh.source_state where source_id = p_type.source_id));
  v_count int;
begin
  with opened as (
    update pgfresh.pairs as p set job_id = nextval('pgfresh.job_id'), due_at = 'infinity'
    -- By their place: they were found by their keys a moment ago, and can not move while they are locked.
    where p.ctid = any (array(
      select free.ctid from pgfresh.pairs as free
      where free.type_id = p_type.type_id and free.key = any (p_keys) and free.job_id is null
      order by free.key for update skip locked))
    returning p.key, p.job_id, case when p.viewers < p_type.ui_threshold then p_type.background_priority else p.viewers end as priority
  ), ranked as (
    select o.key, o.job_id, greatest(1, o.priority,
      case when p_priorities is not null then (select w.priority from unnest(p_keys, p_priorities) as w(key, priority) where w.key = o.key) end) as priority
    from opened as o
  )
  insert into pgfresh.job (id, seq, run_at, created_at, est_bytes, type_id, source_id, priority, band, size_class, state, key)
  select r.job_id, r.job_id, p_now, p_now, v_bytes, p_type.type_id, p_type.source_id, r.priority, pgfresh.band_of(r.priority), v_size_class, 'r', r.key from ranked as r;
  get diagnostics v_count = row_count;
  if v_count > 0 then
    perform pgfresh.wake_workers();
  end if;
  return v_count;
end
$$;
comment on function pgfresh.open_jobs_for(pgfresh.data_type_registry, text[], timestamptz, int[]) is 'Opens a job for each of these pairs that has none, with the priority of its viewers. A part of the planner.';

create or replace function pgfresh.plan_due_pairs(p_limit int default 2000) returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_began timestamptz := clock_timestamp();
  v_now timestamptz := pgfresh.clock();
  v_counts jsonb := '{}';
  v_due record;
  v_looked int := 0;
  v_folded int;
begin
  perform pgfresh.require_primary();
  perform pgfresh.require_range('p_limit', p_limit, 1, 10000);
  if not pg_try_advisory_xact_lock(7041, 1) then
    return jsonb_build_object('skipped', 'locked');
  end if;
  if exists (select from pgfresh.nodes where lease_until <= v_now) and not pgfresh.is_loss_held(v_now) then
    perform pgfresh.expire_nodes(v_now);
  end if;
  v_folded := pgfresh.fold_demand(v_now);
  perform pgfresh.cool_down(v_now);
  for v_due in
    select due.type_id, array_agg(due.key order by due.key) as keys from (
      select type_id, key from pgfresh.pairs where demanded and due_at <= v_now order by due_at limit p_limit for update skip locked
    ) as due group by due.type_id order by due.type_id
  loop
    v_looked := v_looked + cardinality(v_due.keys);
    v_counts := pgfresh.add_counts(v_counts, pgfresh.plan_pairs((select r from pgfresh.data_type_registry as r where r.type_id = v_due.type_id), v_due.keys, v_now));
  end loop;
  if v_looked > 0 or v_folded > 0 then
    perform pgfresh.record_run('tick', date_trunc('minute', v_now), 1000 * extract(epoch from clock_timestamp() - v_began), v_counts);
  end if;
  return v_counts || jsonb_build_object('more', v_looked = p_limit);
end
$$;
comment on function pgfresh.plan_due_pairs(int) is
  'The tick: takes note of who came and went, and looks at the demanded pairs that are due, at most p_limit. Call it every second, and again at once while it says {"more": true}.';

create or replace function pgfresh.check_and_queue_stale_data(p_limit int default 2000) returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_began timestamptz := clock_timestamp();
  v_now timestamptz := pgfresh.clock();
  v_state pgfresh.planner_state;
  v_counts jsonb := jsonb_build_object('checked', 0, 'stale', 0, 'missing', 0, 'queued', 0, 'merged', 0, 'gated', 0, 'failed', 0, 'skipped', 0);
  v_chunk record;
  v_pair record;
  v_looked int := 0;
begin
  perform pgfresh.require_primary();
  perform pgfresh.require_range('p_limit', p_limit, 1, 10000);
  if not pg_try_advisory_xact_lock(7041, 1) then
    return jsonb_build_object('skipped', 'locked', 'done', false);
  end if;
  perform pgfresh.fold_demand(v_now);
  perform pgfresh.cool_down(v_now);
  select * into v_state from pgfresh.planner_state;
  v_state.sweep_started_at := coalesce(v_state.sweep_started_at, v_now);
  for v_chunk in
    select p.type_id, array_agg(p.key order by p.key) as keys, max(p.key) as last from (
      select type_id, key from pgfresh.pairs where demanded and (type_id, key) > (v_state.sweep_type, v_state.sweep_key) order by type_id, key limit p_limit
    ) as p group by p.type_id order by p.type_id
  loop
    v_looked := v_looked + cardinality(v_chunk.keys);
    v_counts := pgfresh.add_counts(v_counts, pgfresh.plan_pairs((select r from pgfresh.data_type_registry as r where r.type_id = v_chunk.type_id), v_chunk.keys, v_now));
    v_state.sweep_type := v_chunk.type_id;
    v_state.sweep_key := v_chunk.last;
  end loop;
  perform pgfresh.record_run('sweep', v_state.sweep_started_at, 1000 * extract(epoch from clock_timestamp() - v_began), v_counts);
  if v_looked < p_limit then
    update pgfresh.planner_state set sweep_type = 0, sweep_key = '', sweep_started_at = null;
  else
    update pgfresh.planner_state set sweep_type = v_state.sweep_type, sweep_key = v_state.sweep_key, sweep_started_at = v_state.sweep_started_at;
  end if;
  return v_counts || jsonb_build_object('done', v_looked < p_limit);
end
$$;
comment on function pgfresh.check_and_queue_stale_data(int) is
  'The sweep: asks the staleness functions about the next p_limit demanded pairs, so that rows which others wrote are seen, and queues what is missing or stale. '
  'Goes on where the last call stopped; {"done": true} says that all have had their turn. Returns how many were checked, stale, missing, queued, merged, gated, failed and skipped, and why.';

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
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID', 'p_data_types must name 1 to 50 data types', 'Pass the data types that are on the screen.');
  end if;
  for v_type in select pgfresh.require_type(named.data_type) as registered from (select distinct data_type from unnest(p_data_types) as data_type order by data_type) as named loop
    v_keys := pgfresh.admit_keys(v_type.registered, array[p_key]);
    insert into pgfresh.pairs (type_id, key) select (v_type.registered).type_id, v_keys[1]
      where not exists (select from pgfresh.pairs as p where p.type_id = (v_type.registered).type_id and p.key = v_keys[1]) on conflict do nothing;
    v_counts := v_counts || jsonb_build_object((v_type.registered).data_type, pgfresh.plan_pairs(v_type.registered, v_keys, pgfresh.clock()));
  end loop;
  return v_counts;
end
$$;
comment on function pgfresh.check_and_queue_stale_batch(text, text[]) is
  'Looks at one key in several data types at once and queues what is missing or stale: for the moment of subscribing. The priority is that of the viewers; the caller can not choose it.';

create or replace function pgfresh.open_refresh_cycle(p_data_type text, p_slot timestamptz) returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_type pgfresh.data_type_registry := pgfresh.require_type(p_data_type);
begin
  perform pgfresh.require_primary();
  if v_type.refresh_strategy <> 'scheduled' then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID', format('%s is refreshed on demand, not by a schedule', p_data_type), 'Set its refresh_strategy, refresh_schedule and key_table.');
  end if;
  if p_slot is null or not isfinite(p_slot) then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID', format('p_slot must be a time, got %s', coalesce(p_slot::text, 'null')), 'Pass the time of the schedule that has come.');
  end if;
  insert into pgfresh.refresh_cycle (type_id, slot, opened_at) values (v_type.type_id, p_slot, pgfresh.clock()) on conflict do nothing;
  return found;
end
$$;
comment on function pgfresh.open_refresh_cycle(text, timestamptz) is 'Opens a round over all keys of a scheduled data type, one for each slot. Returns whether it is new.';

create or replace function pgfresh.queue_scheduled_refreshes(p_max_depth int default 1000) returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_began timestamptz := clock_timestamp();
  v_now timestamptz := pgfresh.clock();
  v_room int;
  v_cycle record;
  v_obstacle record;
  v_keys text[];
  v_good text[];
  v_counts jsonb := jsonb_build_object('queued', 0, 'merged', 0, 'skipped', 0, 'failed', 0, 'finished', 0);
  v_queued int;
begin
  perform pgfresh.require_primary();
  perform pgfresh.require_range('p_max_depth', p_max_depth, 1, 1000);
  if not pg_try_advisory_xact_lock(7041, 3) then
    return jsonb_build_object('skipped', 'locked');
  end if;
  if not exists (select from pgfresh.refresh_cycle where done_at is null) then
    return v_counts;
  end if;
  v_room := p_max_depth - (select count(*) from (select from pgfresh.job where state in ('r', 'w') limit p_max_depth) as waiting);
  for v_cycle in
    select c.type_id, c.slot, c.cursor_key, r as registered, res.keys_sql from pgfresh.refresh_cycle as c
    join pgfresh.data_type_registry as r on r.type_id = c.type_id join pgfresh.type_resolution as res on res.type_id = c.type_id
    where c.done_at is null order by c.slot, c.type_id limit 100
  loop
    exit when v_room <= 0;
    select * into v_obstacle from pgfresh.planning_obstacle(v_cycle.registered, v_now);
    if found then
      v_counts := pgfresh.add_counts(v_counts, jsonb_build_object('skipped', 1, 'skipped_' || v_obstacle.reason, 1));
      continue;
    end if;
    begin
      v_keys := array(select k from pgfresh.ask_next_keys(v_cycle.keys_sql, v_cycle.cursor_key, v_room) as k);
      v_good := array(select k from unnest(v_keys) as k where k <> '' and octet_length(k) <= 512 and k !~ '[[:cntrl:]]'
        and k = case (v_cycle.registered).normalise when 'upper' then upper(k) when 'lower' then lower(k) else k end
        and length(k) - length(replace(k, '|', '')) >= cardinality((v_cycle.registered).key_columns) - 1);
      -- Nobody waits for it: -1, whatever the registry says.
      select count(*) filter (where q.result = 'queued') into v_queued from pgfresh.queue_refreshes((v_cycle.registered).data_type, v_good, -1) as q;
    exception when others then
      perform pgfresh.warn('keys_raised', (v_cycle.registered).data_type, sqlerrm, 'Correct key_table and its columns.');
      v_counts := pgfresh.add_counts(v_counts, jsonb_build_object('failed', 1));
      continue;
    end;
    if cardinality(v_good) < cardinality(v_keys) then
      perform pgfresh.warn('keys_raised', (v_cycle.registered).data_type, 'key_table has keys that are empty, too long or not written as the data type writes them',
        'Correct them; the others had their turn.', cardinality(v_keys) - cardinality(v_good));
    end if;
    v_counts := pgfresh.add_counts(v_counts, jsonb_build_object('queued', v_queued, 'merged', cardinality(v_good) - v_queued,
      'failed', cardinality(v_keys) - cardinality(v_good), 'finished', (cardinality(v_keys) < v_room)::int));
    update pgfresh.refresh_cycle set cursor_key = coalesce(v_keys[cardinality(v_keys)], cursor_key), queued = queued + v_queued,
      done_at = case when cardinality(v_keys) < v_room then v_now end where type_id = v_cycle.type_id and slot = v_cycle.slot;
    v_room := v_room - cardinality(v_keys);
  end loop;
  delete from pgfresh.refresh_cycle where done_at < v_now - interval '30 days';
  if (v_counts ->> 'queued')::int > 0 then
    perform pgfresh.record_run('schedule', date_trunc('minute', v_now), 1000 * extract(epoch from clock_timestamp() - v_began), v_counts);
  end if;
  return v_counts;
end
$$;
comment on function pgfresh.queue_scheduled_refreshes(int) is
  'Walks on through the open cycles of scheduled data types, key by key, as long as fewer than p_max_depth (at most 1000) jobs wait. Always with priority -1. Returns counts.';

create or replace function pgfresh.hold_duty(p_name text, p_holder uuid, p_lease interval) returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if coalesce(p_name, '') !~ '^[a-z][a-z0-9_]{0,59}$' or p_holder is null then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID', 'a duty needs a name in lower case and a holder', 'Pass a uuid of your own making, the same for each renewal.');
  end if;
  perform pgfresh.require_range('p_lease in seconds', extract(epoch from p_lease), 1, 3600);
  insert into pgfresh.duty as d (name, holder, lease_until) values (p_name, p_holder, pgfresh.clock() + p_lease)
  on conflict (name) do update set holder = excluded.holder, lease_until = excluded.lease_until
    where d.holder = excluded.holder or d.lease_until <= pgfresh.clock();
  return found;
end
$$;
comment on function pgfresh.hold_duty(text, uuid, interval) is 'Takes or renews a duty that only one process at a time may do. False while another one has it.';

create or replace function pgfresh.release_duty(p_name text, p_holder uuid) returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  delete from pgfresh.duty where name = p_name and holder = p_holder;
  return found;
end
$$;
comment on function pgfresh.release_duty(text, uuid) is 'Gives a duty back. Returns whether it was held.';

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
comment on function pgfresh.clear_planner_runs(interval) is 'Forgets the planner''s runs that are older than this. Returns how many.';
