create or replace function pgfresh.queue_scheduled_refreshes(
  p_max_depth int default 1000, p_data_types text[] default null)
returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  -- The walk waits while more pairs than these are locked.
  c_most_busy constant int := 10000;
  v_began timestamptz := clock_timestamp();
  v_now timestamptz := pgfresh.clock();
  v_types int[];
  v_cycle record;
  -- Keys that this call may still walk over, and data types that have yet to get their part of them.
  v_left int := p_max_depth;
  v_to_come int;
  v_turn int;
  -- Of its turn: keys to walk over, and busy ones to ask for again.
  v_steps int;
  v_repeats int;
  v_keys text[];
  v_again text[];
  v_at_end boolean;
  v_walked boolean;
  v_done boolean;
  v_good text[];
  v_queued int;
  v_refused int;
  v_answered text[];
  v_locked text[];
  v_busy text[];
  v_counts jsonb := jsonb_build_object(
    'queued', 0, 'merged', 0, 'busy', 0, 'skipped', 0, 'failed', 0, 'finished', 0);
begin
  perform pgfresh_engine.require_primary();
  perform pgfresh_engine.require_range('p_max_depth', p_max_depth, 1, 1000);
  if not pg_try_advisory_xact_lock(7041, 3) then
    return jsonb_build_object('skipped', 'locked');
  end if;
  -- In a random order: where not every type fits into one call, each is as likely to have its turn.
  v_types := array(
    select c.type_id
    from pgfresh_engine.refresh_cycle as c
    where c.done_at is null and (p_data_types is null
      or c.type_id in (select r.type_id from pgfresh.data_type_registry as r where r.data_type = any (p_data_types)))
    order by random()
    limit 100);
  if cardinality(v_types) = 0 then
    return v_counts;
  end if;
  perform pgfresh_engine.limit_lock_waits();
  for v_cycle in
    select open.*, count(*) filter (where obstacle is null and room > 0) over () as types
    from (
      select t.place, c.type_id, c.slot, c.cursor_key, c.last_key, c.wraps, c.opened_at, c.busy_keys,
        c.walked, r as registered, res.keys_sql,
        o.reason as obstacle,
        -- The depth is per source, and each of its types has a part of it that no other type can fill.
        ceil(p_max_depth::float8
          / greatest(count(*) filter (where o.reason is null) over (partition by r.source_id), 1))::int - (
          select count(*)
          from (
            select from pgfresh_engine.job as j
            where j.source_id = r.source_id and j.type_id = c.type_id and j.band = -1 and j.state <> 'x'
            limit p_max_depth
          ) as waiting
        ) as room
      from unnest(v_types) with ordinality as t(type_id, place)
      join pgfresh_engine.refresh_cycle as c on c.type_id = t.type_id and c.done_at is null
      -- A type may have lost its schedule meanwhile.
      join pgfresh.data_type_registry as r on r.type_id = c.type_id and r.refresh_strategy = 'scheduled'
      join pgfresh_engine.type_resolution as res on res.type_id = c.type_id
      left join pgfresh_engine.planning_obstacles(v_types, v_now) as o on o.type_id = c.type_id
    ) as open
    order by open.place
  loop
    if v_cycle.obstacle is not null then
      v_counts := pgfresh_engine.add_counts(v_counts,
        jsonb_build_object('skipped', 1, 'skipped_' || v_cycle.obstacle, 1));
      continue;
    end if;
    continue when v_cycle.room <= 0;
    v_to_come := coalesce(v_to_come, v_cycle.types);
    v_turn := least(v_cycle.room, ceil(v_left / v_to_come::float8));
    v_to_come := v_to_come - 1;
    continue when v_turn <= 0;
    -- Busy ones at most in half of the turn, as long as others have not had theirs.
    v_repeats := least(cardinality(v_cycle.busy_keys), case when v_cycle.walked then v_turn else v_turn / 2 end);
    v_steps := case
      when v_cycle.walked or cardinality(v_cycle.busy_keys) >= c_most_busy then 0
      else v_turn - v_repeats
    end;
    begin
      v_keys := '{}';
      v_at_end := v_cycle.walked;
      if v_steps > 0 then
        v_keys := array(select k from pgfresh_engine.ask_next_keys(v_cycle.keys_sql, v_cycle.cursor_key, v_steps) as k);
        v_at_end := cardinality(v_keys) < v_steps;
      end if;
      v_walked := v_at_end and not v_cycle.wraps;
      v_left := v_left - cardinality(v_keys) - v_repeats;
      if not v_cycle.wraps and v_cycle.last_key = any (v_keys) then
        v_keys := v_keys[:array_position(v_keys, v_cycle.last_key)];
        v_walked := true;
      end if;
      -- Whoever had the pair locked may have refreshed it.
      v_again := array(
        select k
        from unnest(v_cycle.busy_keys[:v_repeats]) as k
        where not exists (
          select from pgfresh_engine.pairs as p
          where p.type_id = v_cycle.type_id and p.key = k collate "C" and p.ok_at >= v_cycle.opened_at));
      -- A key that is none of the type, or a pair that is locked, costs only itself.
      v_good := array(
        select k.key
        from pgfresh_engine.canonical_keys(v_cycle.registered, v_keys, p_listed => true) as k
        where k.code is null and k.key = v_keys[k.place]
        order by k.place
      ) || array(
        select k.key
        from pgfresh_engine.canonical_keys(v_cycle.registered, v_again) as k
        where k.code is null and k.key = v_again[k.place]
        order by k.place
      );
      v_refused := cardinality(v_again || v_keys) - cardinality(v_good);
      -- No viewer waits for it: -1, whatever the registry says.
      select count(*) filter (where q.result = 'queued'),
        coalesce(array_agg(q.key) filter (where q.result <> 'busy'), '{}')
      into v_queued, v_answered
      from pgfresh_engine.queue_refreshes((v_cycle.registered).data_type, v_good, -1) as q;
      -- Also those without an answer: another transaction is adding their pairs.
      v_locked := array(select k from unnest(v_good) as k except select k from unnest(v_answered) as k);
    exception
    when lock_not_available then
      perform pgfresh_engine.note_type_timeout(v_cycle.type_id, 'keys', sqlerrm);
      v_counts := pgfresh_engine.add_counts(v_counts, jsonb_build_object('failed', 1));
      continue;
    when others then
      perform pgfresh_engine.warn('keys_raised', (v_cycle.registered).data_type, sqlerrm,
        'Correct key_table and its columns.');
      v_counts := pgfresh_engine.add_counts(v_counts, jsonb_build_object('failed', 1));
      continue;
    end;
    if v_refused > 0 then
      perform pgfresh_engine.warn('keys_raised', (v_cycle.registered).data_type,
        'key_table has keys that the data type cannot have, or that are not written as it writes them',
        'Correct them; the others had their turn.', v_refused);
    end if;
    v_busy := v_cycle.busy_keys[v_repeats + 1:] || v_locked;
    v_done := v_walked and v_busy = '{}';
    v_counts := pgfresh_engine.add_counts(v_counts, jsonb_build_object(
      'queued', v_queued, 'busy', cardinality(v_busy),
      'merged', cardinality(v_again || v_keys) - v_queued - v_refused - cardinality(v_locked),
      'failed', v_refused, 'finished', v_done::int
    ));
    update pgfresh_engine.refresh_cycle
    set cursor_key = case when not v_at_end or v_walked then coalesce(v_keys[cardinality(v_keys)], cursor_key) end,
      wraps = wraps and not v_at_end, queued = queued + v_queued, busy_keys = v_busy, walked = v_walked,
      done_at = case when v_done then v_now end
    where type_id = v_cycle.type_id and slot = v_cycle.slot and done_at is null;
  end loop;
  delete from pgfresh_engine.refresh_cycle where done_at < v_now - interval '30 days';
  if (v_counts ->> 'queued')::int > 0 then
    perform pgfresh_engine.record_run('schedule', date_trunc('minute', v_now),
      1000 * extract(epoch from clock_timestamp() - v_began), v_counts);
  end if;
  return v_counts;
end
$$;
comment on function pgfresh.queue_scheduled_refreshes(int, text[]) is
  'Continues the open rounds of scheduled data types: at most p_max_depth keys per call, in turns, while fewer than '
  'p_max_depth (at most 1000) scheduled jobs of a source wait. The priority is always -1. Impossible keys are '
  'skipped with a warning, and locked pairs are retried within the round. Returns counts.';
grant execute on function pgfresh.queue_scheduled_refreshes(int, text[]) to pgfresh_planner;

create or replace function pgfresh.queue_refresh_if_not_exists(
  p_key text, p_data_type text, p_priority int default 0, p_estimated_size bigint default null,
  p_metadata jsonb default null, p_run_at timestamptz default null, p_force boolean default false)
returns jsonb
language sql security definer
set search_path = pg_catalog, pg_temp
as $$
  select jsonb_build_object('job_id', q.job_id, 'result', q.result)
  from pgfresh_engine.queue_refreshes(
    p_data_type, array[p_key], p_priority, p_estimated_size, p_metadata, p_run_at, p_force) as q
$$;
comment on function pgfresh.queue_refresh_if_not_exists(text, text, int, bigint, jsonb, timestamptz, boolean) is
  'Enqueues a job for one pair unless it has an open one. Returns {"job_id", "result"}; the result is queued, '
  'merged, running, rerun or busy.';
grant execute on function pgfresh.queue_refresh_if_not_exists(text, text, int, bigint, jsonb, timestamptz, boolean) to
  pgfresh_worker, pgfresh_planner, pgfresh_operator, pgfresh_scheduler;

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
  v_state pgfresh_engine.planner_state;
  v_counts jsonb;
  v_looks pgfresh_engine.looks[];
  v_last_type int;
  v_last_key text;
  v_read int;
  v_done boolean;
  v_emptied jsonb;
  v_left_out int[] := pgfresh_engine.types_left_out(v_now);
  v_alone int := case when p_alone then pgfresh_engine.next_swept_type() end;
begin
  perform pgfresh_engine.require_primary();
  perform pgfresh_engine.require_range('p_limit', p_limit, 1, 10000);
  if not pg_try_advisory_xact_lock(7041, 1) then
    return jsonb_build_object('skipped', 'locked', 'done', false);
  end if;
  perform pgfresh_engine.limit_lock_waits();
  perform pgfresh_engine.follow_restore();
  perform pgfresh_engine.fold_demand(v_now);
  perform pgfresh_engine.cool_down(v_now);
  select * into v_state from pgfresh_engine.planner_state;
  select
    coalesce(array_agg(
      row(t.type_id, t.rests, t.keys, null, t.jobs, t.next_ask, t.confirmed, t.rows, t.due, null)::pgfresh_engine.looks
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
        pgfresh_engine.confirmed_of(p) as confirmed, pgfresh_engine.row_time_of(p) as row_time
      from pgfresh_engine.pairs as p
      where p.demanded and (p.type_id, p.key) > (v_state.sweep_type, v_state.sweep_key)
      order by p.type_id, p.key
      limit p_limit
    ) as p
    where v_alone is null or p.type_id <= v_alone
    group by p.type_id
  ) as t;
  v_done := v_read < p_limit and v_alone is null;
  v_counts := pgfresh_engine.plan_looks(v_looks, v_now);
  perform pgfresh_engine.record_run('sweep', coalesce(v_state.sweep_started_at, v_now),
    1000 * extract(epoch from clock_timestamp() - v_began), v_counts);
  update pgfresh_engine.planner_state
  set sweep_started_at = case when not v_done then coalesce(v_state.sweep_started_at, v_now) end,
    sweep_type = case when v_done then 0 else coalesce(v_last_type, sweep_type) end,
    sweep_key = case when v_done then '' else coalesce(v_last_key, sweep_key) end;
  if v_emptied is not null then
    perform pgfresh_engine.warn('many_empty', r.data_type,
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
  'The sweep: checks the next p_limit viewed pairs, with p_alone of one data type only, and queues what is missing '
  'or stale. It continues where the last call stopped; {"done": true} means that all were checked. Returns how many '
  'were checked, stale, missing, queued, merged, gated, failed and skipped, and why.';
grant execute on function pgfresh.check_and_queue_stale_data(int, boolean) to pgfresh_planner, pgfresh_operator;
