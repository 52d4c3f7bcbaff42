/*
  The state at a glance, in one read. It looks at every viewed pair, at the types and at the
  sources, and at nothing that grows with the past: no history, no pair without viewers. Of the queue it counts at
  most 10000 ready jobs per source, and 10000 in all that wait for a time.
*/
create or replace function pgfresh_engine.overview() returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
-- Statistics of pairs and jobs are never right; the index on viewed and ready ones reads nothing else.
set enable_seqscan = off
set jit = off
as $$
declare
  v_now timestamptz := pgfresh.clock();
  v_most constant int := 10000;
  -- What was taken since then is free again later than this.
  v_minute timestamptz := pgfresh_engine.slot_free_at(pgfresh_engine.use_by_of(v_now - interval '1 minute'));
  v_workers int := (select count(*) from pgfresh_engine.process as w where w.kind = 'worker' and w.lease_until > v_now);
  v_freshness jsonb; v_types jsonb; v_sources jsonb; v_problems jsonb;
begin
  with source as materialized (
    select s.id, h.* from pgfresh.source_health as h join pgfresh.sources as s on s.name = h.source
  ), viewed as (
    select p.type_id, p.viewers, p.outcome, p.ok_at, pgfresh_engine.state_of(
        p, null, null, null, coalesce(r.empty_ttl, r.ttl), r.max_source_age, v_now) as state,
      -- A row written but not yet examined is as old as its refresh.
      extract(epoch from v_now - greatest(
        case
          when p.row_at > v_now + interval '1 day' then null
          when p.row_at is not null or p.seen then nullif(p.row_at, '-infinity')
          else p.ok_at
        end, p.confirmed_at
      )) as age,
      extract(epoch from v_now - p.source_at) as source_age,
      case when p.job_id is null and p.due_at > v_now then p.waits_for end as waits_for,
      p.row_at is not null as has_row
    from pgfresh_engine.pairs as p
    join pgfresh.data_type_registry as r on r.type_id = p.type_id
    where p.demanded and p.viewers > 0
  ), aged as (
    select v.*, a.age as seen_age, case when a.age is null then 0 else v.viewers end as weight,
      -- If the source says there is no data, an empty result is correct and a kept row is not.
      v.state = 'fresh' or (v.state = 'empty' and not v.has_row) as good
    from viewed as v
    cross join lateral (
      select case when v.state in ('fresh', 'stale', 'older_source') or v.has_row then v.age end as age
    ) as a
  ), placed as (
    -- Percentiles of what viewers see, so a pair counts once per viewer.
    select a.*,
      sum(a.weight) over (partition by a.type_id order by a.seen_age rows unbounded preceding) as place,
      sum(a.weight) over (partition by a.type_id) as places,
      sum(a.weight) over (order by a.seen_age rows unbounded preceding) as place_of_all,
      sum(a.weight) over () as places_of_all
    from aged as a
  ), counted as (
    select type_id, count(*) as pairs, coalesce(sum(viewers), 0) as viewers,
      count(*) filter (where state = 'fresh') as fresh, count(*) filter (where state = 'stale') as stale,
      count(*) filter (where state = 'missing') as missing, count(*) filter (where state = 'empty') as empty,
      count(*) filter (where state = 'older_source') as older_source,
      count(*) filter (where state = 'empty' and has_row) as kept,
      count(*) filter (where ok_at > v_now - interval '1 minute') as refreshed,
      round(count(*) filter (where good)::numeric / nullif(count(*), 0), 4) as share,
      round(
        coalesce(sum(viewers) filter (where good), 0)::numeric / nullif(sum(viewers), 0), 4) as viewer_share,
      round((percentile_disc(0.5) within group (order by source_age))::numeric, 1) as source_age_p50,
      round(
        case
          when grouping(type_id) = 0 then min(seen_age) filter (where place >= 0.5 * places)
          else min(seen_age) filter (where place_of_all >= 0.5 * places_of_all)
        end, 1) as age_p50,
      round(
        case
          when grouping(type_id) = 0 then min(seen_age) filter (where place >= 0.95 * places)
          else min(seen_age) filter (where place_of_all >= 0.95 * places_of_all)
        end, 1) as age_p95
    from placed
    group by grouping sets ((type_id), ())
  ), outcomes as (
    select o.type_id, jsonb_object_agg(o.outcome, o.pairs) as outcomes
    from (
      select type_id, outcome, count(*) as pairs from viewed where outcome is not null group by type_id, outcome
    ) as o
    group by o.type_id
  ), waits as (
    select w.type_id, jsonb_object_agg(w.waits_for, w.pairs) as reasons
    from (
      select type_id, waits_for, count(*) as pairs
      from viewed
      where waits_for is not null and state not in ('fresh', 'empty')
      group by type_id, waits_for
    ) as w
    group by w.type_id
  ), open as materialized (
    select j.source_id, j.type_id, 'ready' as state, null as error
    from source as s
    cross join lateral (
      select s.id as source_id, q.type_id
      from pgfresh.data_type_registry as r
      cross join lateral (
        select q.type_id from pgfresh_engine.job as q where q.type_id = r.type_id and q.state = 'r' limit v_most
      ) as q
      where r.source_id = s.id
      limit v_most
    ) as j
    union all
    select j.source_id, j.type_id, 'waiting', j.error
    from (
      select w.source_id, w.type_id, w.error
      from pgfresh_engine.job as w
      where w.state = 'w'
      order by w.run_at
      limit v_most
    ) as j
    union all
    select j.source_id, j.type_id, 'running', null
    from pgfresh_engine.job as j
    where j.id = any (array(select unnest(c.job_ids) from pgfresh_engine.claim as c)) and j.state = 'x'
  ), open_by_type as (
    select type_id,
      count(*) filter (where state = 'ready') as ready, count(*) filter (where state = 'waiting') as waiting,
      count(*) filter (where state = 'running') as running, max(error) as error
    from open
    group by type_id
  ), open_by_source as (
    select source_id,
      count(*) filter (where state = 'ready') as ready, count(*) filter (where state = 'waiting') as waiting,
      count(*) filter (where state = 'running') as running
    from open
    group by source_id
  )
  select
    (select to_jsonb(c) - 'type_id' from counted as c where c.type_id is null),
    (
      select coalesce(jsonb_agg(jsonb_build_object(
        'data_type', r.data_type, 'source', r.source, 'ttl_seconds', extract(epoch from r.ttl),
        'pairs', coalesce(c.pairs, 0), 'viewers', coalesce(c.viewers, 0),
        'fresh', coalesce(c.fresh, 0), 'stale', coalesce(c.stale, 0),
        'missing', coalesce(c.missing, 0), 'empty', coalesce(c.empty, 0),
        'older_source', coalesce(c.older_source, 0), 'kept', coalesce(c.kept, 0),
        'share', c.share, 'viewer_share', c.viewer_share, 'age_p50', c.age_p50, 'age_p95', c.age_p95,
        'source_age_p50', c.source_age_p50, 'waits_for', coalesce(w.reasons, '{}'),
        'refreshed', coalesce(c.refreshed, 0),
        'ready', coalesce(j.ready, 0), 'waiting', coalesce(j.waiting, 0), 'running', coalesce(j.running, 0),
        'outcomes', coalesce(o.outcomes, '{}'), 'error', j.error
      ) order by r.data_type), '[]')
      from pgfresh.data_type_registry as r
      left join counted as c on c.type_id = r.type_id
      left join outcomes as o on o.type_id = r.type_id
      left join waits as w on w.type_id = r.type_id
      left join open_by_type as j on j.type_id = r.type_id
    ),
    (
      select coalesce(jsonb_agg(jsonb_build_object(
        'source', s.source, 'state', s.state, 'paused_until', s.paused_until, 'pause_reason', s.pause_reason,
        'failure_streak', s.failure_streak, 'last_success_at', s.last_success_at,
        'calls_limit', s.rate_limit_per_minute * s.api_keys,
        'calls_minute', case
          when s.rate_limit_per_minute is not null
            then (
              select least(coalesce(sum(t.calls), 0), s.rate_limit_per_minute * s.api_keys)
              from pgfresh_engine.rate_slot as t
              where t.source_id = s.id and t.free_at > v_minute
            )
        end,
        'calls_hour', u.calls, 'bytes_hour', u.bytes,
        'quota_cap', s.quota_cap, 'quota_used', s.quota_used,
        'quota_reserved', s.quota_reserved, 'quota_free', s.quota_free, 'quota_until', s.quota_until,
        'ready', coalesce(j.ready, 0), 'waiting', coalesce(j.waiting, 0), 'running', coalesce(j.running, 0)
      ) order by s.source), '[]')
      from source as s
      left join open_by_source as j on j.source_id = s.id
      cross join lateral (
        select coalesce(sum(u.calls), 0) as calls, coalesce(sum(u.bytes), 0) as bytes
        from pgfresh_engine.usage as u
        where u.source_id = s.id and u.hour = date_trunc('hour', v_now, 'UTC')
      ) as u
    ),
    (
      select coalesce(jsonb_agg(to_jsonb(p) - 'place' order by p.place, p.source, p.data_type, p.api_key), '[]')
      from (
        -- Stopped spending stops every source; a paused one stays paused afterwards.
        select 1 as place, s.source, null::text as data_type, null::smallint as api_key,
          case when s.state = 'stopped' then 'paused' else s.state end as reason,
          coalesce(s.paused_until, s.quota_until) as until, s.pause_reason as message,
          case s.state
            when 'quota' then format('Wait, or raise it with "pgfresh source set %s quota_bytes <bytes>".', s.source)
            when 'off' then format('Switch it on with "pgfresh source set %s enabled true".', s.source)
            when 'held' then 'It is called again by itself then.'
            when 'breaker' then
              format('It is tried by itself then; "pgfresh source resume %s" tries at once.', s.source)
            when 'probing' then null
            -- If its API keys are refused, their own lines give the next step.
            else case when s.paused_by is distinct from 'credentials'
              then format('"pgfresh source resume %s" lets it be called again.', s.source) end
          end as next_step
        from source as s
        where s.state not in ('ok', 'rate', 'stopped') or (s.state = 'stopped' and s.paused_until is not null)
        union all
        select 2, s.source, null, b.api_key, 'refused', b.paused_until, b.reason,
          format('Renew the API key, then run "pgfresh source resume %s".', s.source)
        from source as s
        join pgfresh_engine.breaker as b on b.source_id = s.id and b.api_key = any (s.denied_keys)
        union all
        select 3, s.source, t.data_type, null, 'paused', t.until, t.reason,
          format('It is tried by itself then; "pgfresh source resume %s" tries at once.', s.source)
        from source as s
        cross join lateral jsonb_to_recordset(s.paused_types) as t(data_type text, until timestamptz, reason text)
        union all
        select 3, r.source, r.data_type, null, 'no_worker', null, pgfresh_engine.worker_obstacle(r, v_now), null
        from pgfresh.data_type_registry as r
        left join counted as c on c.type_id = r.type_id
        where v_workers > 0 and (c.pairs > 0 or r.refresh_strategy = 'scheduled')
          and pgfresh_engine.worker_obstacle(r, v_now) is not null
        union all
        select 3, r.source, r.data_type, null, 'quarantined', null, q.problem, q.next_step
        from pgfresh_engine.quarantined_types() as q
        join pgfresh.data_type_registry as r on r.type_id = q.type_id
        union all
        select 3, r.source, r.data_type, null, 'unresolved', null, t.problem, t.next_step
        from pgfresh.data_type_registry as r
        cross join lateral pgfresh_engine.type_problem(r) as t
      ) as p
    )
  into v_freshness, v_types, v_sources, v_problems;
  return jsonb_build_object(
    'at', v_now, 'problems', v_problems, 'freshness', v_freshness, 'types', v_types, 'sources', v_sources,
    'stopped', (select jsonb_build_object('since', s.stopped_at, 'reason', s.reason) from pgfresh.spending_stop as s),
    'workers', v_workers,
    'planning', exists (select from pgfresh_engine.duty as d where d.name = 'planner' and d.lease_until > v_now),
    -- A tick that finds nothing due leaves no record, so judge by overdue work.
    'overdue_seconds', (
      select coalesce(round(extract(epoch from v_now - min(d.due_at)), 1), 0)
      from pgfresh_engine.due as d
      where d.due_at <= v_now
    ),
    'planned_at', (
      select r.last_at from pgfresh_engine.planner_run as r where r.kind = 'tick' order by r.started_at desc limit 1
    ));
end
$$;
comment on function pgfresh_engine.overview() is
  'What pgfresh top shows: how fresh what people look at is, the queue, and what each source has used of its limits. '
  'Reads what is viewed, never what is past. '
  'The states are those of pairs as the planner last saw them; shares count every viewed pair, '
  'and what is empty is as it should be, unless an old row is kept (kept). '
  'waits_for says what keeps stale pairs without a job from getting one. '
  'problems says what is not called or refreshed, why and until when: sources, then API keys, then data types. '
  'planned_at is when a tick last found something due, and overdue_seconds how long what is due has waited for one.';
grant execute on function pgfresh_engine.overview() to pgfresh_monitor, pgfresh_operator;
