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
