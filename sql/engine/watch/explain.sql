-- An age or a wait as people say it.
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

-- Of a data type that does not resolve or does not answer, the pairs are explained all the same.
create or replace function pgfresh_engine.explained_key(p_type pgfresh.data_type_registry, p_key text) returns text
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if not pgfresh_engine.is_quarantined(p_type.type_id, pgfresh.clock()) then
    begin
      return (pgfresh_engine.admit_keys(p_type, array[p_key]))[1];
    exception
      when lock_not_available then null;
      when sqlstate 'PGF01' then
        if sqlerrm not like 'PGF_REGISTRY_INVALID:%' then
          raise;
        end if;
    end;
  end if;
  return pgfresh_engine.canonical_key(p_key, p_type.normalise);
end
$$;
comment on function pgfresh_engine.explained_key(pgfresh.data_type_registry, text) is
  'A key as the data type spells it, also where its table of keys is gone or locked. A part of explain_pair.';

create or replace function pgfresh_engine.hold_words(
  p_pair pgfresh_engine.pairs, p_state text, p_now timestamptz)
returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select case
    when p_pair.outcome = 'older_source' and p_state = 'missing' then
      format('The table took nothing of its answer; it is asked again in %s.',
        pgfresh_engine.in_words(p_pair.next_ask_at - p_now))
    when p_pair.outcome = 'older_source' then
      format('The source answers with something older than what is here%s; it is asked again in %s.',
        coalesce(': its own data is ' || pgfresh_engine.in_words(p_now - p_pair.source_at) || ' old', ''),
        pgfresh_engine.in_words(p_pair.next_ask_at - p_now))
    when p_pair.outcome = 'unchanged' and p_state = 'missing' then
      format('The source answers that nothing has changed, but there is no row; it is asked again in %s.',
        pgfresh_engine.in_words(p_pair.next_ask_at - p_now))
    when p_pair.outcome in ('fresh', 'unchanged') and p_pair.lapses > 1 then
      format('Others have deleted it or set it back %s times after it was written; it is fetched again in %s.',
        p_pair.lapses, pgfresh_engine.in_words(p_pair.next_ask_at - p_now))
    when p_pair.outcome in ('fresh', 'unchanged') then
      format('It was stale as soon as it was written, so it is fetched once per TTL, and again in %s.',
        pgfresh_engine.in_words(p_pair.next_ask_at - p_now))
    else
      format('The last outcome was %s; it is not asked for again before %s have passed.',
        p_pair.outcome, pgfresh_engine.in_words(p_pair.next_ask_at - p_now))
  end
$$;
comment on function pgfresh_engine.hold_words(pgfresh_engine.pairs, text, timestamptz) is
  'Why a pair without a job is left alone until its time. A part of explain_pair.';

-- What keeps the jobs of a source from being claimed. An end of its own has only what ends by itself.
create or replace function pgfresh_engine.source_obstacles(p_source pgfresh.sources, p_job pgfresh_engine.job,
  p_now timestamptz)
returns setof pgfresh_engine.obstacle
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_stop pgfresh.spending_stop;
  v_rate record;
  v_running record;
  v_until timestamptz := case when isfinite(p_source.paused_until) then p_source.paused_until end;
begin
  select * into v_stop from pgfresh.spending_stop;
  if v_stop.stopped_at is not null then
    return next row('stopped',
      format('Spending was stopped %s ago: %s', pgfresh_engine.in_words(p_now - v_stop.stopped_at), v_stop.reason),
      v_stop.stopped_at, null, 'infinity')::pgfresh_engine.obstacle;
  end if;
  if not p_source.enabled then
    return next row('paused',
      format('The source %s is switched off.', p_source.name), null, null, 'infinity')::pgfresh_engine.obstacle;
  end if;
  if p_source.paused_until > p_now then
    return next row(
      case p_source.paused_by when 'breaker' then 'breaker' when 'provider' then 'rate' else 'paused' end,
      case p_source.paused_by
        -- Without the reason: it has an error of another pair.
        when 'breaker' then format('The source %s failed too often and is left alone for %s more.',
          p_source.name, pgfresh_engine.in_words(v_until - p_now))
        when 'credentials' then format('The provider refuses the API key of the source %s; it is tried again in %s.',
          p_source.name, pgfresh_engine.in_words(v_until - p_now))
        when 'provider' then format('The source %s asked to be left alone for %s more: %s',
          p_source.name, pgfresh_engine.in_words(v_until - p_now), p_source.pause_reason)
        else format('The source %s is paused%s%s.',
          p_source.name,
          coalesce(' for ' || pgfresh_engine.in_words(v_until - p_now) || ' more', ''),
          coalesce(': ' || p_source.pause_reason, ''))
      end,
      null, v_until, p_source.paused_until)::pgfresh_engine.obstacle;
  elsif p_job.id is not null and p_source.breaker_opened_at is not null then
    return next row('breaker',
      format('The source %s failed and is tried with one job at a time, until one succeeds.', p_source.name),
      null, null, p_now + interval '10 seconds')::pgfresh_engine.obstacle;
  end if;
  v_until := pgfresh_engine.quota_until(p_source.id, p_now, p_job.est_bytes);
  if v_until is not null then
    return next row('quota',
      format('The bytes that the source %s may use now are used up; there are more in %s.',
        p_source.name, pgfresh_engine.in_words(v_until - p_now)),
      null, v_until, v_until)::pgfresh_engine.obstacle;
  end if;
  if p_job.id is null then
    return;
  end if;
  select * into v_rate from pgfresh_engine.calls_now(p_source, p_now);
  -- Without a key that the provider accepts, the rate is not what it waits for.
  if p_source.rate_limit_per_minute is not null and cardinality(p_source.denied_keys) < p_source.api_keys
      and (case when p_job.band = -1 then v_rate.background else v_rate.viewed end) = 0 then
    return next row('rate',
      format('The source %s may be called %s times a minute, spread over it, and %s.',
        p_source.name,
        p_source.rate_limit_per_minute * (p_source.api_keys - cardinality(p_source.denied_keys)),
        case
          when v_rate.viewed > 0 then 'what is left is kept for what people look at'
          else 'the next call is free in ' || pgfresh_engine.in_words(v_rate.next_at - p_now)
        end),
      null, v_rate.next_at, coalesce(v_rate.next_at, p_now))::pgfresh_engine.obstacle;
  end if;
  select count(*) as jobs,
    min(r.data_type) filter (where j.key = p_job.key) as of_key,
    min(j.claimed_at) filter (where j.key = p_job.key) as since
  into v_running
  from pgfresh_engine.source_place as p
  join pgfresh_engine.job as j on j.id = p.job_id and j.state = 'x' and j.attempt = p.attempt
  join pgfresh.data_type_registry as r on r.type_id = j.type_id
  where p.source_id = p_source.id;
  if p_source.one_key_at_a_time and v_running.of_key is not null then
    return next row('same_key',
      format('A worker has been fetching the %s of the same key for %s, '
        'and the source %s takes one job per key at a time.',
        v_running.of_key, pgfresh_engine.in_words(p_now - v_running.since), p_source.name),
      v_running.since, null, p_now)::pgfresh_engine.obstacle;
  end if;
  if v_running.jobs >= p_source.max_concurrency then
    return next row('concurrency',
      format('The source %s takes %s jobs at a time, and as many run.', p_source.name, p_source.max_concurrency),
      null, null, p_now)::pgfresh_engine.obstacle;
  end if;
end
$$;
comment on function pgfresh_engine.source_obstacles(pgfresh.sources, pgfresh_engine.job, timestamptz) is
  'What keeps a source from being called, for a job or for planning. A part of explain_pair.';

create or replace function pgfresh_engine.breaker_obstacle(
  p_type pgfresh.data_type_registry, p_job pgfresh_engine.job, p_now timestamptz)
returns setof pgfresh_engine.obstacle
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select 'paused',
    format('The last answers for %s were %s; %s.',
      p_type.data_type,
      case b.kind when 'refused' then 'refused' else 'older than what is here' end,
      case
        when b.paused_until > p_now then format('one is tried again in %s',
          pgfresh_engine.in_words(b.paused_until - p_now))
        else 'one job at a time tries, until one succeeds'
      end),
    b.opened_at, case when b.paused_until > p_now then b.paused_until end,
    greatest(b.paused_until, p_now + interval '10 seconds')
  from pgfresh_engine.breaker as b
  where b.type_id = p_type.type_id and b.opened_at is not null and (b.paused_until > p_now or p_job.id is not null)
$$;
comment on function pgfresh_engine.breaker_obstacle(pgfresh.data_type_registry, pgfresh_engine.job, timestamptz) is
  'That a data type is left alone because of its answers. A part of explain_pair.';

create or replace function pgfresh_engine.due_answer(p_pair pgfresh_engine.pairs, p_now timestamptz)
returns pgfresh_engine.obstacle
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select row('due',
    case
      when h.reason = 'gate' then 'Its gate has opened; the planner sees that within seconds.'
      when h.reason is null and p_pair.due_at > p_now + interval '1 second' and isfinite(p_pair.due_at) then
        format('The planner looks at it again within %s.',
          pgfresh_engine.in_words(least(p_pair.due_at - p_now, interval '1 minute')))
      else 'It will be queued by the planner''s next tick.'
    end,
    null, null, null)::pgfresh_engine.obstacle
  from (select) as one
  left join pgfresh_engine.hold as h on h.type_id = p_pair.type_id and h.until = p_pair.due_at
$$;
comment on function pgfresh_engine.due_answer(pgfresh_engine.pairs, timestamptz) is
  'When the planner sees that nothing is in the way of a pair any more. A part of explain_pair.';

-- What keeps a stale pair without a job from getting one.
create or replace function pgfresh_engine.pair_obstacles(
  p_type pgfresh.data_type_registry, p_key text, p_found boolean, p_now timestamptz)
returns table (obstacle pgfresh_engine.obstacle, needs text)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_gate record;
  v_needed jsonb;
  v_sql text := (select r.gate_sql from pgfresh_engine.type_resolution as r where r.type_id = p_type.type_id);
begin
  if p_found and v_sql is not null then
    begin
      select g.open, g.opens_at into v_gate from pgfresh_engine.ask_gate(v_sql, array[p_key], p_type.data_type) as g;
    exception when others then
      select true as open, null::timestamptz as opens_at into v_gate;
    end;
    if not v_gate.open then
      obstacle := row('gate',
        format('The gate %s is closed%s.',
          p_type.gate_function, coalesce(', and opens in ' || pgfresh_engine.in_words(v_gate.opens_at - p_now), '')),
        null, v_gate.opens_at, coalesce(v_gate.opens_at, p_now + interval '1 minute'))::pgfresh_engine.obstacle;
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
      -- As for the planner: what cannot be asked is not waited for.
      needs := null;
    end;
    if needs is not null then
      v_needed := pgfresh_engine.explanation_of(needs, p_key, true);
      obstacle := row('dependency',
        format('It needs the %s of the same key first: %s', needs,
          lower(left(v_needed ->> 'words', 1)) || substr(v_needed ->> 'words', 2)),
        v_needed ->> 'since', v_needed ->> 'until',
        coalesce((v_needed ->> 'until')::timestamptz, p_now))::pgfresh_engine.obstacle;
      return next;
      return;
    end if;
  end loop;
end
$$;
comment on function pgfresh_engine.pair_obstacles(pgfresh.data_type_registry, text, boolean, timestamptz) is
  'What keeps a stale pair without a job from getting one: its gate, and what must be there first. '
  'A part of explain_pair.';

/*
  Why a pair is or is not being refreshed, on two axes: the state of its data, and what happens with it. An open job is
  asked what it waits for, a pair without one what keeps it from getting one. Of several obstacles the one that lasts
  longest is the answer, and the others follow.
*/
create or replace function pgfresh_engine.explanation_of(p_data_type text, p_key text, p_is_needed boolean)
returns jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
-- Who asks why something waits does not wait for it.
set lock_timeout = '200ms'
as $$
declare
  v_now timestamptz := pgfresh.clock();
  v_type pgfresh.data_type_registry := pgfresh_engine.require_type(p_data_type);
  v_key text := pgfresh_engine.explained_key(v_type, p_key);
  v_pair pgfresh_engine.pairs; v_wanted pgfresh_engine.pairs;
  v_job pgfresh_engine.job;
  v_source pgfresh.sources;
  v_row record;
  v_problem record;
  v_quarantine pgfresh_engine.obstacle[] := array(select o from pgfresh_engine.quarantine_obstacle(v_type, v_now) as o);
  v_sql_viewers bigint; v_gateway_viewers bigint;
  v_place int;
  v_raised text;
  v_asked boolean;
  v_needs text;
  v_no_worker text;
  v_state text; v_stale_at timestamptz;
  v_obstacles pgfresh_engine.obstacle[];
  v_more pgfresh_engine.obstacle[];
  v_answer pgfresh_engine.obstacle;
  v_activity text := 'waiting';
  v_outcomes jsonb;
  v_last jsonb;
begin
  select * into v_pair from pgfresh_engine.pairs where type_id = v_type.type_id and key = v_key;
  select * into v_job from pgfresh_engine.job where id = v_pair.job_id;
  select * into v_source from pgfresh.sources where id = v_type.source_id;
  select count(*)
  into v_sql_viewers
  from pgfresh.active_subscriptions
  where type_id = v_type.type_id and key = v_key;
  select coalesce(sum(viewers), 0)
  into v_gateway_viewers
  from pgfresh_engine.node_demand
  where type_id = v_type.type_id and key = v_key;
  select * into v_problem from pgfresh_engine.type_problem(v_type);
  select null::boolean as found, true as stale, null::timestamptz as next_at, null::timestamptz as at into v_row;
  v_asked := v_problem.problem is null and v_quarantine = '{}';
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
    -- What cannot be asked is as it was last seen, unless its table is gone.
    v_state := pgfresh_engine.state_of(v_pair,
      case when not exists (
        select from pgfresh_engine.type_resolution as r join pg_class as c on c.oid = r.tables[1]
        where r.type_id = v_type.type_id
      ) then false end,
      null, null,
      coalesce(v_type.empty_ttl, v_type.ttl), v_type.max_source_age, v_now);
    v_stale_at := v_pair.stale_at;
  elsif v_row.found is null then
    -- A check that raises counts as stale, as for the planner.
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
    v_obstacles := array(
      select o from pgfresh_engine.source_obstacles(v_source, v_job, v_now) as o
      union all
      select o from pgfresh_engine.breaker_obstacle(v_type, v_job, v_now) as o
      union all
      -- A job waits for the end of a quarantine only if workers could not write its row.
      select o from unnest(v_quarantine) as o
      where v_job.id is null or (
        select pgfresh_engine.is_write_locked(r.tables[1]) from pgfresh_engine.type_resolution as r
          where r.type_id = v_type.type_id
      ));
    v_no_worker := pgfresh_engine.worker_obstacle(v_type, v_now);
    if v_no_worker is not null then
      v_obstacles := v_obstacles
        || row('no_worker', v_no_worker, v_job.created_at, null, 'infinity')::pgfresh_engine.obstacle;
    end if;
    if v_job.state = 'w' then
      v_obstacles := v_obstacles || row('retry',
        case
          when v_job.retries > 0 then format('It failed and is tried again in %s: %s',
            pgfresh_engine.in_words(v_job.run_at - v_now), coalesce(v_job.error, 'no reason given'))
          else format('Its job is for later, in %s.', pgfresh_engine.in_words(v_job.run_at - v_now))
        end,
        null, v_job.run_at, v_job.run_at)::pgfresh_engine.obstacle;
    elsif v_job.id is null then
      if v_pair.next_ask_at > v_now then
        -- What another pair needs is wanted, though no one looks at it.
        v_wanted := v_pair;
        v_wanted.demanded := true;
        v_obstacles := v_obstacles || row(
          (pgfresh_engine.activity_of(v_wanted, v_state, null, null, false, null, null, v_now)).reason,
          pgfresh_engine.hold_words(v_pair, v_state, v_now), null, v_pair.next_ask_at,
            v_pair.next_ask_at)::pgfresh_engine.obstacle;
      elsif not v_row.stale then
        v_obstacles := v_obstacles || row('retry',
          format('The source''s own data is %s old, and may be %s; it is asked again in %s.',
            pgfresh_engine.in_words(v_now - v_pair.source_at), pgfresh_engine.in_words(v_type.max_source_age),
            pgfresh_engine.in_words(v_stale_at - v_now)),
          null, v_stale_at, v_stale_at)::pgfresh_engine.obstacle;
      end if;
      if v_quarantine = '{}' then
        select array_agg(o.obstacle), max(o.needs)
        into v_more, v_needs
        from pgfresh_engine.pair_obstacles(v_type, v_key, v_row.found, v_now) as o;
        v_obstacles := v_obstacles || v_more;
      end if;
    end if;
    select array_agg(o order by o.lasts desc) into v_obstacles from unnest(v_obstacles) as o;
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
      v_answer := pgfresh_engine.due_answer(v_pair, v_now);
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
  -- What an open job has tried is newer than what the pair knows of its last one.
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
    -- Before version 17 an infinite time cannot be subtracted.
    'age_seconds', case when isfinite(v_row.at) then extract(epoch from v_now - v_row.at) end,
    'ttl_seconds', extract(epoch from v_type.ttl), 'source_at', v_pair.source_at,
    'source_age_seconds', case when isfinite(v_pair.source_at) then extract(epoch from v_now - v_pair.source_at) end,
    -- When something happens with it next; where it waits for something, when that ends.
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
  'What explain_pair says, also of a pair that nobody looks at but that is needed by another.';
