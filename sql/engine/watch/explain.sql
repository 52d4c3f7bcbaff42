-- A duration in words.
create or replace function pgfresh_engine.in_words(p_time interval) returns text
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
comment on function pgfresh_engine.in_words(interval) is 'A time in the unit that suits it. A part of explain_pair.';

/*
  Everything that can keep a pair from being refreshed, each with its sentence for operators. An
  obstacle has an end (until) only if it ends by itself. lasts is the time by which obstacles are compared.
*/
create or replace function pgfresh_engine.obstacles_of(
  p_type pgfresh.data_type_registry, p_key text, p_pair pgfresh_engine.pairs, p_job pgfresh_engine.job, p_state text,
  p_found boolean, p_is_stale boolean, p_stale_at timestamptz, p_now timestamptz)
returns table (obstacle pgfresh_engine.obstacle, needs text)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_source pgfresh.sources;
  v_stop pgfresh.spending_stop;
  v_breaker pgfresh_engine.breaker;
  v_quarantine pgfresh_engine.type_timeout;
  v_resolution pgfresh_engine.type_resolution;
  v_rate record;
  v_running record;
  v_gate record;
  v_until timestamptz;
  v_wait text;
  v_no_worker text;
  v_needed jsonb;
begin
  -- The source.
  select * into v_source from pgfresh.sources where id = p_type.source_id;
  select * into v_stop from pgfresh.spending_stop;
  if v_stop.stopped_at is not null then
    obstacle := row('stopped',
      format('Spending was stopped %s ago: %s', pgfresh_engine.in_words(p_now - v_stop.stopped_at), v_stop.reason),
      v_stop.stopped_at, null, 'infinity');
    return next;
  end if;
  if not v_source.enabled then
    obstacle := row('paused', format('The source %s is switched off.', v_source.name), null, null, 'infinity');
    return next;
  end if;
  if v_source.paused_until > p_now then
    v_until := case when isfinite(v_source.paused_until) then v_source.paused_until end;
    v_wait := pgfresh_engine.in_words(v_until - p_now);
    obstacle := row(
      case v_source.paused_by when 'breaker' then 'breaker' when 'provider' then 'rate' else 'paused' end,
      case v_source.paused_by
        -- Without the reason, which quotes another pair's error.
        when 'breaker' then
          format('The source %s failed too often and is left alone for %s more.', v_source.name, v_wait)
        when 'credentials' then
          format('The provider refuses the API key of the source %s; it is tried again in %s.', v_source.name, v_wait)
        when 'provider' then
          format('The source %s asked to be left alone for %s more: %s', v_source.name, v_wait, v_source.pause_reason)
        else
          format('The source %s is paused%s%s.',
            v_source.name, coalesce(' for ' || v_wait || ' more', ''), coalesce(': ' || v_source.pause_reason, ''))
      end,
      null, v_until, v_source.paused_until);
    return next;
  elsif p_job.id is not null and v_source.breaker_opened_at is not null then
    obstacle := row('breaker',
      format('The source %s failed and is tried with one job at a time, until one succeeds.', v_source.name),
      null, null, p_now + interval '10 seconds');
    return next;
  end if;
  v_until := pgfresh_engine.quota_until(v_source.id, p_now, p_job.est_bytes);
  if v_until is not null then
    obstacle := row('quota',
      format('The bytes that the source %s may use now are used up; there are more in %s.',
        v_source.name, pgfresh_engine.in_words(v_until - p_now)),
      null, v_until, v_until);
    return next;
  end if;
  if p_job.id is not null then
    select * into v_rate from pgfresh_engine.calls_now(v_source, p_now);
    -- Without an API key that the provider accepts, the job does not wait for the rate.
    if v_source.rate_limit_per_minute is not null and cardinality(v_source.denied_keys) < v_source.api_keys
        and (case when p_job.band = -1 then v_rate.background else v_rate.viewed end) = 0 then
      obstacle := row('rate',
        format('The source %s may be called %s times a minute, spread over it, and %s.',
          v_source.name,
          v_source.rate_limit_per_minute * (v_source.api_keys - cardinality(v_source.denied_keys)),
          case
            when v_rate.viewed > 0 then 'what is left is kept for what people look at'
            else 'the next call is free in ' || pgfresh_engine.in_words(v_rate.next_at - p_now)
          end),
        null, v_rate.next_at, coalesce(v_rate.next_at, p_now));
      return next;
    end if;
    select count(*) as jobs,
      min(r.data_type) filter (where j.key = p_job.key) as of_key,
      min(j.claimed_at) filter (where j.key = p_job.key) as since
    into v_running
    from pgfresh_engine.source_place as p
    join pgfresh_engine.job as j on j.id = p.job_id and j.state = 'x' and j.attempt = p.attempt
    join pgfresh.data_type_registry as r on r.type_id = j.type_id
    where p.source_id = v_source.id;
    if v_source.one_key_at_a_time and v_running.of_key is not null then
      obstacle := row('same_key',
        format('A worker has been fetching the %s of the same key for %s, '
          'and the source %s takes one job per key at a time.',
          v_running.of_key, pgfresh_engine.in_words(p_now - v_running.since), v_source.name),
        v_running.since, null, p_now);
      return next;
    end if;
    if v_running.jobs >= v_source.max_concurrency then
      obstacle := row('concurrency',
        format('The source %s takes %s jobs at a time, and as many run.', v_source.name, v_source.max_concurrency),
        null, null, p_now);
      return next;
    end if;
  end if;

  -- The data type.
  select * into v_breaker from pgfresh_engine.breaker where type_id = p_type.type_id and opened_at is not null;
  if v_breaker.paused_until > p_now or (v_breaker.opened_at is not null and p_job.id is not null) then
    obstacle := row('paused',
      format('The last answers for %s were %s; %s.',
        p_type.data_type,
        case v_breaker.kind when 'refused' then 'refused' else 'older than what is here' end,
        case
          when v_breaker.paused_until > p_now then
            format('one is tried again in %s', pgfresh_engine.in_words(v_breaker.paused_until - p_now))
          else 'one job at a time tries, until one succeeds'
        end),
      v_breaker.opened_at, case when v_breaker.paused_until > p_now then v_breaker.paused_until end,
      greatest(v_breaker.paused_until, p_now + interval '10 seconds'));
    return next;
  end if;
  select * into v_resolution from pgfresh_engine.type_resolution where type_id = p_type.type_id;
  select * into v_quarantine
  from pgfresh_engine.type_timeout
  where type_id = p_type.type_id and pgfresh_engine.is_quarantined(p_type.type_id, p_now);
  -- A job waits for the end of a quarantine only if workers could not write its row.
  if v_quarantine.type_id is not null
      and (p_job.id is null or pgfresh_engine.is_write_locked(v_resolution.tables[1])) then
    obstacle := row('quarantined',
      format('%s has not answered in time %s times, last %s ago (%s: %s); it is probed every second.',
        p_type.data_type, v_quarantine.timeouts, pgfresh_engine.in_words(p_now - v_quarantine.last_at),
        v_quarantine.last_where, v_quarantine.last_message),
      v_quarantine.since, null, p_now + interval '1 minute');
    return next;
  end if;
  v_no_worker := pgfresh_engine.worker_obstacle(p_type, p_now);
  if v_no_worker is not null then
    obstacle := row('no_worker', v_no_worker, p_job.created_at, null, 'infinity');
    return next;
  end if;

  -- The job, or what keeps the pair from getting one.
  if p_job.state = 'w' then
    v_wait := pgfresh_engine.in_words(p_job.run_at - p_now);
    obstacle := row('retry',
      case
        when p_job.retries > 0 then
          format('It failed and is tried again in %s: %s', v_wait, coalesce(p_job.error, 'no reason given'))
        else format('Its job is for later, in %s.', v_wait)
      end,
      null, p_job.run_at, p_job.run_at);
    return next;
  end if;
  if p_job.id is not null then
    return;
  end if;
  if p_pair.next_ask_at > p_now then
    v_wait := pgfresh_engine.in_words(p_pair.next_ask_at - p_now);
    -- A pair that another pair needs is wanted, even without viewers.
    p_pair.demanded := true;
    obstacle := row(
      (pgfresh_engine.activity_of(p_pair, p_state, null, null, false, null, null, p_now)).reason,
      case
        when p_pair.outcome = 'older_source' and p_state = 'missing' then
          format('The table took nothing of its answer; it is asked again in %s.', v_wait)
        when p_pair.outcome = 'older_source' then
          format('The source answers with something older than what is here%s; it is asked again in %s.',
            coalesce(': its own data is ' || pgfresh_engine.in_words(p_now - p_pair.source_at) || ' old', ''), v_wait)
        when p_pair.outcome = 'unchanged' and p_state = 'missing' then
          format('The source answers that nothing has changed, but there is no row; it is asked again in %s.', v_wait)
        when p_pair.outcome in ('fresh', 'unchanged') and p_pair.lapses > 1 then
          format('Others have deleted it or set it back %s times after it was written; it is fetched again in %s.',
            p_pair.lapses, v_wait)
        when p_pair.outcome in ('fresh', 'unchanged') then
          format('It was stale as soon as it was written, so it is fetched once per TTL, and again in %s.', v_wait)
        else
          format('The last outcome was %s; it is not asked for again before %s have passed.', p_pair.outcome, v_wait)
      end,
      null, p_pair.next_ask_at, p_pair.next_ask_at);
    return next;
  elsif not p_is_stale then
    obstacle := row('retry',
      format('The source''s own data is %s old, and may be %s; it is asked again in %s.',
        pgfresh_engine.in_words(p_now - p_pair.source_at), pgfresh_engine.in_words(p_type.max_source_age),
        pgfresh_engine.in_words(p_stale_at - p_now)),
      null, p_stale_at, p_stale_at);
    return next;
  end if;
  if v_quarantine.type_id is not null then
    return;
  end if;
  if p_found and v_resolution.gate_sql is not null then
    begin
      select g.open, g.opens_at
      into v_gate
      from pgfresh_engine.ask_gate(v_resolution.gate_sql, array[p_key], p_type.data_type) as g;
    exception when others then
      select true as open, null::timestamptz as opens_at into v_gate;
    end;
    if not v_gate.open then
      obstacle := row('gate',
        format('The gate %s is closed%s.',
          p_type.gate_function, coalesce(', and opens in ' || pgfresh_engine.in_words(v_gate.opens_at - p_now), '')),
        null, v_gate.opens_at, coalesce(v_gate.opens_at, p_now + interval '1 minute'));
      return next;
    end if;
  end if;
  for v_gate in
    select r.data_type, res.missing_sql
    from pgfresh_engine.type_dependency as d
    join pgfresh.data_type_registry as r on r.type_id = d.needs_id
    join pgfresh_engine.type_resolution as res on res.type_id = d.needs_id
    where d.type_id = p_type.type_id and not pgfresh_engine.is_quarantined(r.type_id, p_now)
    order by r.data_type
  loop
    begin
      needs := (select v_gate.data_type from pgfresh_engine.ask_keys(v_gate.missing_sql, array[p_key]) limit 1);
    exception when others then
      -- As in the planner: do not wait for what cannot be queried.
      needs := null;
    end;
    if needs is not null then
      v_needed := pgfresh_engine.explanation_of(needs, p_key, true);
      obstacle := row('dependency',
        format('It needs the %s of the same key first: %s',
          needs, lower(left(v_needed ->> 'words', 1)) || substr(v_needed ->> 'words', 2)),
        v_needed ->> 'since', v_needed ->> 'until', coalesce((v_needed ->> 'until')::timestamptz, p_now));
      return next;
      return;
    end if;
  end loop;
end
$$;
comment on function pgfresh_engine.obstacles_of(pgfresh.data_type_registry, text, pgfresh_engine.pairs,
  pgfresh_engine.job, text, boolean, boolean, timestamptz, timestamptz) is
  'What keeps a pair from being refreshed: what its open job waits for or, without a job, why it gets none; '
  'and the data type that must be there first. A part of explain_pair.';

/*
  Why a pair is or is not being refreshed, on two axes: the state of its data, and its activity. Of several obstacles
  the one that lasts longest is the answer; the others follow.
*/
create or replace function pgfresh_engine.explanation_of(p_data_type text, p_key text, p_is_needed boolean)
returns jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
-- Explaining why a pair waits must not wait for the same lock.
set lock_timeout = '200ms'
as $$
declare
  v_now timestamptz := pgfresh.clock();
  v_type pgfresh.data_type_registry := pgfresh_engine.require_type(p_data_type);
  v_quarantined boolean := pgfresh_engine.is_quarantined(v_type.type_id, v_now);
  v_key text;
  v_pair pgfresh_engine.pairs;
  v_job pgfresh_engine.job;
  v_row record;
  v_problem record;
  v_sql_viewers bigint; v_gateway_viewers bigint;
  v_place int;
  v_raised text;
  v_asked boolean;
  v_needs text;
  v_hold text;
  v_state text; v_stale_at timestamptz;
  v_obstacles pgfresh_engine.obstacle[];
  v_answer pgfresh_engine.obstacle;
  v_activity text := 'waiting';
  v_outcomes jsonb;
  v_last jsonb;
begin
  -- A pair is explained even if its data type does not resolve or answer, or its key table is locked.
  if not v_quarantined then
    begin
      v_key := (pgfresh_engine.require_keys(v_type, array[p_key]))[1];
    exception
      when lock_not_available then null;
      when sqlstate 'PGF01' then
        if sqlerrm not like 'PGF_REGISTRY_INVALID:%' then
          raise;
        end if;
    end;
  end if;
  v_key := coalesce(v_key, pgfresh_engine.canonical_key(p_key, v_type.normalise));
  select * into v_pair from pgfresh_engine.pairs where type_id = v_type.type_id and key = v_key;
  select * into v_job from pgfresh_engine.job where id = v_pair.job_id;
  select count(*)
  into v_sql_viewers
  from pgfresh_engine.subscription
  where type_id = v_type.type_id and key = v_key;
  select coalesce(sum(viewers), 0)
  into v_gateway_viewers
  from pgfresh_engine.node_demand
  where type_id = v_type.type_id and key = v_key;
  select * into v_problem from pgfresh_engine.type_problem(v_type);
  select null::boolean as found, true as stale, null::timestamptz as next_at, null::timestamptz as at into v_row;
  v_asked := v_problem.problem is null and not v_quarantined;
  if v_asked then
    begin
      select a.found, a.stale, a.next_at, a.at, a.raised
      into v_row
      from pgfresh_engine.ask_stale(
        v_type.type_id, array[v_key], array[pgfresh_engine.confirmed_of(v_pair)],
          array[pgfresh_engine.row_time_of(v_pair)],
        array[null::timestamptz], v_type.ttl, v_now
      ) as a;
      v_raised := v_row.raised;
    exception when lock_not_available then
      v_asked := false;
      v_raised := format('it cannot be asked about now: %s', sqlerrm);
    end;
  end if;
  if pgfresh_engine.is_row_lost(v_pair, v_row.found, v_row.at)
    and pgfresh_engine.hasten(v_type.type_id, v_key, v_now) then
    v_pair.due_at := v_now;
  end if;
  if not v_asked then
    -- What cannot be queried is taken as last seen, unless its table is gone.
    v_state := pgfresh_engine.state_of(v_pair,
      case when not exists (
        select from pgfresh_engine.type_resolution as r join pg_class as c on c.oid = r.tables[1]
        where r.type_id = v_type.type_id
      ) then false end,
      null, null,
      coalesce(v_type.empty_ttl, v_type.ttl), v_type.max_source_age, v_now);
    v_stale_at := v_pair.stale_at;
  elsif v_row.found is null then
    -- A check that raises counts as stale, as in the planner.
    v_state := pgfresh_engine.state_of(v_pair, pgfresh_engine.has_row(v_type.type_id, v_key), null, null,
      coalesce(v_type.empty_ttl, v_type.ttl), v_type.max_source_age, v_now);
  else
    v_stale_at := case
      when not v_row.stale then greatest(v_row.next_at, v_now + interval '1 minute')
      else least(v_row.next_at, v_now)
    end;
    v_state := pgfresh_engine.state_of(v_pair, v_row.found, v_row.at, v_stale_at,
      coalesce(v_type.empty_ttl, v_type.ttl), v_type.max_source_age, v_now);
    v_stale_at := case when not v_row.stale then v_row.next_at else v_stale_at end;
  end if;
  if v_state = 'empty' then
    v_stale_at := v_pair.empty_at + coalesce(v_type.empty_ttl, v_type.ttl);
  end if;

  if v_job.state = 'x' then
    v_activity := 'refreshing';
    v_answer := row(null,
      format('A worker has been fetching it for %s, in attempt %s.',
        pgfresh_engine.in_words(v_now - v_job.claimed_at), v_job.attempt),
      v_job.claimed_at, null, null);
  elsif v_job.id is null and v_problem.problem is not null then
    v_answer := row('unresolved',
      format('The registry row of %s cannot be used: %s. %s',
        v_type.data_type, v_problem.problem, v_problem.next_step),
      null, null, null);
  elsif v_job.id is null and coalesce(v_pair.demanded, false) = false and not p_is_needed then
    v_activity := 'idle';
    v_answer := row(null, 'Nobody looks at it.', null, null, null);
  elsif v_job.id is null and v_state = 'empty' then
    v_activity := 'idle';
    v_answer := row(null,
      format('The source says that there is nothing; it is asked again in %s.',
        pgfresh_engine.in_words(coalesce(v_pair.next_ask_at, v_pair.due_at) - v_now)),
      v_pair.empty_at, v_pair.next_ask_at, null);
  elsif v_job.id is null and v_state = 'fresh' then
    v_activity := 'idle';
    v_answer := row(null,
      case
        when v_stale_at > v_now then format('It is fresh for %s more.', pgfresh_engine.in_words(v_stale_at - v_now))
        else 'It is fresh, as its staleness function says.'
      end,
      null, v_stale_at, null);
  elsif v_job.id is null and v_row.found and v_type.refresh_strategy = 'scheduled' then
    v_activity := 'idle';
    v_answer := row(null,
      format('It is refreshed by its schedule, %s in %s.', v_type.refresh_schedule, v_type.schedule_zone),
      null, null, null);
  else
    select array_agg(o.obstacle order by (o.obstacle).lasts desc), max(o.needs)
    into v_obstacles, v_needs
    from pgfresh_engine.obstacles_of(v_type, v_key, v_pair, v_job, v_state,
      v_row.found, v_row.stale, v_stale_at, v_now) as o;
    v_answer := v_obstacles[1];
    if v_answer.reason is null and v_job.id is not null then
      v_place := 1 + (
        select count(*)
        from (
          select from pgfresh_engine.job as j
          where j.state = 'r' and j.source_id = v_job.source_id
            and (j.band > v_job.band or (j.band = v_job.band and j.seq < v_job.seq))
          limit 9999
        ) as ahead
      );
      v_answer := row('queued',
        format('It has waited in the queue for %s, at place %s of its source.',
          pgfresh_engine.in_words(v_now - v_job.created_at), v_place),
        v_job.created_at, null, null);
    elsif v_answer.reason is null and p_is_needed and v_pair.demanded is not true then
      v_answer := row('due', 'It is queued within a minute.', null, null, null);
    elsif v_answer.reason is null then
      -- Nothing is in the way any more, and the planner has not looked since.
      v_hold := (select reason from pgfresh_engine.hold where type_id = v_pair.type_id and until = v_pair.due_at);
      v_answer := row('due',
        case
          when v_hold = 'gate' then 'Its gate has opened; the planner sees that within seconds.'
          when v_hold is null and v_pair.due_at > v_now + interval '1 second' and isfinite(v_pair.due_at) then
            format('The planner looks at it again within %s.',
              pgfresh_engine.in_words(least(v_pair.due_at - v_now, interval '1 minute')))
          else 'It will be queued by the planner''s next tick.'
        end,
        null, null, null);
    end if;
    if v_state = 'older_source' and not (v_job.id is null and v_answer.reason = 'retry') then
      v_answer.words := v_answer.words || format(
        ' The source answers with something older than what is here%s.',
        coalesce(': its own data is ' || pgfresh_engine.in_words(v_now - v_pair.source_at) || ' old', ''));
    end if;
  end if;

  v_outcomes := (
    select coalesce(jsonb_agg(
      jsonb_build_object(
        'job', o.id, 'attempt', o.attempt, 'status', o.status, 'ended_at', o.ended_at,
        'outcome', o.outcome, 'error', o.error, 'bytes', o.bytes, 'calls', o.calls, 'fetch_ms', o.fetch_ms)
      order by o.ended_at desc, o.attempt desc
    ), '[]')
    from (
      (
        select id, attempt, status, ended_at, outcome, error, bytes, calls, fetch_ms
        from pgfresh_engine.history_succeeded
        where id = v_pair.ok_job
      )
      union all
      (
        select id, attempt, status, ended_at, outcome, error, bytes, calls, fetch_ms
        from pgfresh_engine.history_other
        where type_id = v_type.type_id and key = v_key
        order by ended_at desc
        limit 5
      )
      union all
      (
        select id, attempt, status, ended_at, outcome, error, bytes, calls, fetch_ms
        from pgfresh_engine.history_attempt
        where type_id = v_type.type_id and key = v_key
        order by ended_at desc
        limit 5
      )
    ) as o
  );
  -- The attempts of an open job are newer than the pair's record of its last one.
  v_last := (
    select o
    from jsonb_array_elements(v_outcomes) with ordinality as t(o, place)
    where (o ->> 'job')::bigint = v_job.id and o ->> 'outcome' <> 'interrupted'
    order by t.place
    limit 1
  );
  return jsonb_build_object(
    'data_type', v_type.data_type, 'key', v_key,
    'state', v_state, 'activity', v_activity,
    'reason', v_answer.reason, 'words', v_answer.words, 'since', v_answer.since, 'until', v_answer.until,
    'obstacles', coalesce((
      select jsonb_agg(jsonb_build_object(
        'reason', o.reason, 'words', o.words, 'since', o.since, 'until', o.until) order by o.place)
      from unnest(v_obstacles) with ordinality as o(reason, words, since, until, lasts, place)
      where o.place > 1
    ), '[]'),
    'viewers', v_sql_viewers + v_gateway_viewers,
    'viewers_by', jsonb_build_object('heartbeat', v_sql_viewers, 'gateway', v_gateway_viewers),
    'demanded', coalesce(v_pair.demanded, false),
    'data_at', v_row.at, 'confirmed_at', v_pair.confirmed_at, 'stale_at', v_stale_at,
    -- Before version 17, infinite times cannot be subtracted.
    'age_seconds', case when isfinite(v_row.at) then extract(epoch from v_now - v_row.at) end,
    'ttl_seconds', extract(epoch from v_type.ttl), 'source_at', v_pair.source_at,
    'source_age_seconds', case when isfinite(v_pair.source_at) then extract(epoch from v_now - v_pair.source_at) end,
    -- The next event for the pair; if it waits, when the wait ends.
    'due_at', case
      when v_job.id is not null then null
      when v_activity = 'waiting' and v_answer.reason <> 'due' then v_answer.until
      when isfinite(v_pair.due_at) then v_pair.due_at
    end,
    'next_ask_at', v_pair.next_ask_at,
    'job', case when v_job.id is not null then jsonb_build_object(
      'id', v_job.id,
      'status', case v_job.state when 'x' then 'running' when 'r' then 'pending' when 'w' then 'retryable' end,
      'priority', v_job.priority, 'attempt', v_job.attempt, 'place', v_place, 'error', v_job.error
    ) end,
    'needs', v_needs, 'problem', coalesce(v_problem.problem, v_raised),
    'last_outcome', coalesce(v_last ->> 'outcome', v_pair.outcome),
    'last_outcome_at', coalesce(
      v_last ->> 'ended_at',
      (
        select o ->> 'ended_at'
        from jsonb_array_elements(v_outcomes) as o
        where (o ->> 'job')::bigint = v_pair.last_job and o ->> 'outcome' = v_pair.outcome
        limit 1
      ),
      to_jsonb(case when v_pair.fails = 0 then v_pair.ok_at end) #>> '{}'),
    'last_success_at', v_pair.ok_at, 'failures_in_a_row', coalesce(v_pair.fails, 0),
    'outcomes', v_outcomes
  );
end
$$;
comment on function pgfresh_engine.explanation_of(text, text, boolean) is
  'What explain_pair says, also for a pair without viewers that another pair needs.';
