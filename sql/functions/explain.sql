-- An age or a wait as people say it.
create or replace function pgfresh.in_words(p_time interval) returns text
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
  select case
    when s < 1 then 'less than a second'
    when s < 120 then floor(s) || ' s'
    when s < 7200 then floor(s / 60) || ' min'
    when s < 172800 then floor(s / 3600) || ' h'
    else floor(s / 86400) || ' days'
  end
  from (select abs(extract(epoch from p_time)) as s) as t
$$;
comment on function pgfresh.in_words(interval) is 'A time in the unit that suits it. A part of explain_pair.';

-- Of a data type that does not resolve, the pairs are explained all the same.
create or replace function pgfresh.explained_key(p_type pgfresh.data_type_registry, p_key text) returns text
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  return (pgfresh.admit_keys(p_type, array[p_key]))[1];
exception when sqlstate 'PGF01' then
  if sqlerrm not like 'PGF_REGISTRY_INVALID:%' then
    raise;
  end if;
  return case p_type.normalise when 'upper' then upper(p_key) when 'lower' then lower(p_key) else p_key end;
end
$$;
comment on function pgfresh.explained_key(pgfresh.data_type_registry, text) is
  'A key as the data type spells it, also where its table of keys is gone. A part of explain_pair.';

/*
  Why a pair is or is not being refreshed. What comes first in the way of a job is the reason:
  an open job is asked what it waits for, a pair without one what keeps it from getting one.
*/
create or replace function pgfresh.explain_pair(p_data_type text, p_key text) returns jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := pgfresh.clock();
  v_type pgfresh.data_type_registry := pgfresh.require_type(p_data_type);
  v_key text := pgfresh.explained_key(v_type, p_key);
  v_resolution pgfresh.type_resolution;
  v_pair pgfresh.pairs;
  v_job pgfresh.job;
  v_source pgfresh.sources;
  v_stop pgfresh.spending_stop;
  v_rate record;
  v_running record;
  v_row record;
  v_gate record;
  v_problem record;
  v_sql_viewers bigint; v_gateway_viewers bigint;
  v_place int;
  v_raised text;
  v_stale boolean;
  v_needs text;
  v_reason text; v_since timestamptz; v_until timestamptz; v_words text;
begin
  select * into v_resolution from pgfresh.type_resolution where type_id = v_type.type_id;
  select * into v_pair from pgfresh.pairs where type_id = v_type.type_id and key = v_key;
  select * into v_job from pgfresh.job where id = v_pair.job_id;
  select * into v_source from pgfresh.sources where id = v_type.source_id;
  select * into v_stop from pgfresh.spending_stop;
  select * into v_rate from pgfresh.calls_now(v_source, v_now);
  select count(*) as jobs,
    min(r.data_type) filter (where j.key = v_key) as of_key,
    min(j.claimed_at) filter (where j.key = v_key) as since
  into v_running
  from pgfresh.source_place as p
  join pgfresh.job as j on j.id = p.job_id and j.state = 'x' and j.attempt = p.attempt
  join pgfresh.data_type_registry as r on r.type_id = j.type_id
  where p.source_id = v_source.id;
  select count(*)
  into v_sql_viewers
  from pgfresh.active_subscriptions
  where type_id = v_type.type_id and key = v_key;
  select coalesce(sum(viewers), 0)
  into v_gateway_viewers
  from pgfresh.node_demand
  where type_id = v_type.type_id and key = v_key;
  select * into v_problem from pgfresh.type_problem(v_type);
  -- Who can not be asked counts as stale, as for the planner.
  select null::boolean as found, true as stale, null::timestamptz as due_at, null::timestamptz as at into v_row;
  if v_problem.problem is null then
    select a.found, a.stale, a.next_at as due_at, a.at, a.raised
    into v_row
    from pgfresh.ask_stale(
      v_type.type_id, array[v_key], array[v_pair.checked_at], array[null::timestamptz], v_type.ttl, v_now
    ) as a;
    v_raised := v_row.raised;
    v_stale := v_row.stale;
    -- A failure puts off the next look by a TTL, and makes nothing fresh.
    if v_pair.checked_at is distinct from v_pair.ok_at then
      v_stale := (
        select a.stale
        from pgfresh.ask_stale(
          v_type.type_id, array[v_key], array[v_pair.ok_at], array[null::timestamptz], v_type.ttl, v_now) as a
      );
    end if;
  end if;

  if v_job.state = 'x' then
    v_reason := 'running'; v_since := v_job.claimed_at;
    v_words := format('A worker has been fetching it for %s, in attempt %s.',
      pgfresh.in_words(v_now - v_since), v_job.attempt);
  elsif v_job.state = 'w' then
    v_reason := 'retry'; v_until := v_job.run_at;
    v_words := case
      when v_job.retries > 0 then format('It failed and is tried again in %s: %s',
        pgfresh.in_words(v_until - v_now), coalesce(v_job.error, 'no reason given'))
      else format('Its job is for later, in %s.', pgfresh.in_words(v_until - v_now))
    end;
  elsif v_job.id is null and v_problem.problem is not null then
    v_reason := 'unresolved';
    v_words := format('The registry row of %s can not be used: %s. %s',
      v_type.data_type, v_problem.problem, v_problem.next_step);
  elsif v_job.id is null and coalesce(v_pair.demanded, false) = false then
    v_reason := 'not_viewed';
    v_words := 'Nobody looks at it.';
  elsif v_job.id is null and v_pair.not_before > v_now then
    v_reason := 'held'; v_until := v_pair.not_before;
    v_words := format('The last outcome was %s; it is not asked for again before %s have passed.',
      v_pair.outcome, pgfresh.in_words(v_until - v_now));
  elsif v_job.id is null and not v_row.stale then
    v_reason := 'fresh'; v_until := v_row.due_at;
    v_words := case
      when v_row.due_at > v_now then format('It is fresh for %s more.', pgfresh.in_words(v_row.due_at - v_now))
      else 'It is fresh, as its staleness function says.'
    end;
  elsif v_job.id is null and v_row.found and v_type.refresh_strategy = 'scheduled' then
    v_reason := 'schedule';
    v_words := format('It is refreshed by its schedule, %s in %s.', v_type.refresh_schedule, v_type.schedule_zone);
  elsif v_stop.stopped_at is not null then
    v_reason := 'stopped'; v_since := v_stop.stopped_at;
    v_words := format('Spending was stopped %s ago: %s', pgfresh.in_words(v_now - v_since), v_stop.reason);
  elsif not v_source.enabled then
    v_reason := 'paused';
    v_words := format('The source %s is switched off.', v_source.name);
  elsif v_source.paused_until > v_now then
    v_until := case when isfinite(v_source.paused_until) then v_source.paused_until end;
    v_reason := case v_source.paused_by when 'breaker' then 'breaker' when 'provider' then 'rate' else 'paused' end;
    v_words := case v_source.paused_by
      -- Without the reason: it has an error of another pair, and viewers are told these words.
      when 'breaker' then format('The source %s failed too often and is left alone for %s more.',
        v_source.name, pgfresh.in_words(v_until - v_now))
      when 'provider' then format('The source %s asked to be left alone for %s more: %s',
        v_source.name, pgfresh.in_words(v_until - v_now), v_source.pause_reason)
      else format('The source %s is paused%s%s.',
        v_source.name,
        coalesce(' for ' || pgfresh.in_words(v_until - v_now) || ' more', ''),
        coalesce(': ' || v_source.pause_reason, ''))
    end;
  elsif v_job.id is not null and v_source.breaker_opened_at is not null then
    v_reason := 'breaker';
    v_words := format('The source %s failed and is tried with one job at a time, until one succeeds.', v_source.name);
  elsif v_source.quota_bytes is not null and (pgfresh.is_quota_exceeded(v_source.name)
      or (select v_job.est_bytes > b.free from pgfresh.source_budget(v_source.id) as b)) then
    v_reason := 'quota';
    v_words := format('The bytes that the source %s may use now are used up.', v_source.name);
  elsif v_job.id is not null and v_source.rate_limit_per_minute is not null
      and (case when v_job.band = -1 then v_rate.background else v_rate.viewed end) = 0 then
    v_reason := 'rate'; v_until := v_rate.next_at;
    v_words := format('The source %s may be called %s times a minute, spread over it, and %s.',
      v_source.name,
      v_source.rate_limit_per_minute * v_source.api_keys,
      case
        when v_rate.viewed > 0 then 'what is left is kept for what people look at'
        else 'the next call is free in ' || pgfresh.in_words(v_until - v_now)
      end);
  elsif v_job.id is not null and v_source.one_key_at_a_time and v_running.of_key is not null then
    v_reason := 'same_key'; v_since := v_running.since;
    v_words := format('A worker has been fetching the %s of the same key for %s, '
      'and the source %s takes one job a key at a time.',
      v_running.of_key, pgfresh.in_words(v_now - v_since), v_source.name);
  elsif v_job.id is not null and v_running.jobs >= v_source.max_concurrency then
    v_reason := 'concurrency';
    v_words := format('The source %s takes %s jobs at a time, and as many run.',
      v_source.name, v_source.max_concurrency);
  elsif v_job.id is not null then
    v_reason := 'queued'; v_since := v_job.created_at;
    v_place := 1 + (
      select count(*)
      from (
        select from pgfresh.job as j
        where j.state = 'r' and j.source_id = v_job.source_id
          and (j.band > v_job.band or (j.band = v_job.band and j.seq < v_job.seq))
        limit 9999
      ) as ahead
    );
    v_words := format('It has waited in the queue for %s, at place %s of its source.',
      pgfresh.in_words(v_now - v_since), v_place);
  else
    if v_row.found and v_resolution.gate_sql is not null then
      begin
        select g.open, g.opens_at
        into v_gate
        from pgfresh.ask_gate(v_resolution.gate_sql, array[v_key], v_type.data_type) as g;
      exception when others then
        select true as open, null::timestamptz as opens_at into v_gate;
      end;
      if not v_gate.open then
        v_reason := 'gate'; v_until := v_gate.opens_at;
        v_words := format('The gate %s is closed%s.',
          v_type.gate_function, coalesce(', and opens in ' || pgfresh.in_words(v_until - v_now), ''));
      end if;
    end if;
    if v_reason is null then
      for v_gate in
        select r.data_type, res.missing_sql
        from pgfresh.type_dependency as d
        join pgfresh.data_type_registry as r on r.type_id = d.needs_id
        join pgfresh.type_resolution as res on res.type_id = d.needs_id
        where d.type_id = v_type.type_id
        order by r.data_type
      loop
        begin
          v_needs := (
            select v_gate.data_type from pgfresh.ask_keys(v_gate.missing_sql, array[v_key]) limit 1);
        exception when others then
          -- As for the planner: what can not be asked is not waited for.
          v_needs := null;
        end;
        exit when v_needs is not null;
      end loop;
      if v_needs is not null then
        v_reason := 'dependency';
        v_words := format('It needs the %s of the same key first, which is not there yet.', v_needs);
      else
        v_reason := 'due';
        v_words := 'It will be queued by the planner''s next tick.';
      end if;
    end if;
  end if;

  return jsonb_build_object(
    'data_type', v_type.data_type, 'key', v_key,
    'reason', v_reason, 'words', v_words, 'since', v_since, 'until', v_until,
    'viewers', v_sql_viewers + v_gateway_viewers,
    'viewers_by', jsonb_build_object('heartbeat', v_sql_viewers, 'gateway', v_gateway_viewers),
    'demanded', coalesce(v_pair.demanded, false),
    'state', case
      when v_row.found is null then 'unknown'
      when not v_row.found then 'missing'
      when v_stale then 'stale'
      else 'fresh'
    end,
    'data_at', v_row.at,
    'age_seconds', extract(epoch from v_now - v_row.at), 'ttl_seconds', extract(epoch from v_type.ttl),
    'checked_at', v_pair.checked_at,
    'due_at', case when isfinite(v_pair.due_at) then v_pair.due_at end, 'not_before', v_pair.not_before,
    'job', case when v_job.id is not null then jsonb_build_object(
      'id', v_job.id,
      'status', case v_job.state when 'x' then 'running' when 'r' then 'pending' when 'w' then 'retryable' end,
      'priority', v_job.priority, 'attempt', v_job.attempt, 'place', v_place, 'error', v_job.error
    ) end,
    'needs', v_needs, 'problem', coalesce(v_problem.problem, v_raised),
    'last_outcome', v_pair.outcome, 'last_success_at', v_pair.ok_at, 'failures_in_a_row', coalesce(v_pair.fails, 0),
    'outcomes', (
      select coalesce(jsonb_agg(
        jsonb_build_object(
          'job', o.id, 'attempt', o.attempt, 'status', o.status, 'ended_at', o.ended_at,
          'outcome', o.outcome, 'error', o.error, 'bytes', o.bytes, 'calls', o.calls, 'fetch_ms', o.fetch_ms)
        order by o.ended_at desc, o.attempt desc
      ), '[]')
      from (
        (
          select id, attempt, status, ended_at, outcome, error, bytes, calls, fetch_ms
          from pgfresh.history_succeeded
          where id = v_pair.ok_job
        )
        union all
        (
          select id, attempt, status, ended_at, outcome, error, bytes, calls, fetch_ms
          from pgfresh.history_other
          where type_id = v_type.type_id and key = v_key
          order by ended_at desc
          limit 5
        )
        union all
        (
          select id, attempt, status, ended_at, outcome, error, bytes, calls, fetch_ms
          from pgfresh.history_attempt
          where type_id = v_type.type_id and key = v_key
          order by ended_at desc
          limit 5
        )
      ) as o
    )
  );
end
$$;
comment on function pgfresh.explain_pair(text, text) is
  'Why a pair is or is not being refreshed, and until when: '
  'who looks at it, how old it is, what it waits for, and how its last jobs ended. '
  'reason is one word of a fixed list; words says the same in a sentence.';
