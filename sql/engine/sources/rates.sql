/*
  Rate. A source may be called N times in any minute with each of its API keys, as the provider counts. A call slot
  must be used by use_by or not at all, and counts until a minute after that, plus the variation in network latency.
  So N + 1 calls never arrive at the provider within a minute, even if the worker with the slot dies. 1.25 s to send,
  0.75 s of variation and 1.15 s until the next claim make 285 of 300 calls per minute.

  Slots handed out are counted, not slots left: those handed out together are one row, and the limit is compared with
  their sum. So lowering and raising a limit forgets nothing, and a limit of 100,000 costs no more than one of 10.
*/
create or replace function pgfresh_engine.use_by_of(p_now timestamptz) returns timestamptz
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$ select p_now + interval '1.25 seconds' $$;
comment on function pgfresh_engine.use_by_of(timestamptz) is
  'Until when a call must be sent for which a place in the rate was taken now.';

create or replace function pgfresh_engine.slot_free_at(p_use_by timestamptz) returns timestamptz
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$ select p_use_by + interval '60.75 seconds' $$;
comment on function pgfresh_engine.slot_free_at(timestamptz) is
  'When a call that is sent by then counts no more.';

/*
  How many calls a source with a rate may make now: for pairs with viewers, and for background work. Calls made
  together expire together a minute later, and new viewers would wait in between. So calls are spread: at most
  18.5 % of the calls of a minute within ten seconds, or ten.
*/
create or replace function pgfresh_engine.free_calls(p_source pgfresh.sources, p_now timestamptz)
returns table (viewed int, background int, pace int, lately timestamptz)
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_total int := p_source.rate_limit_per_minute * (p_source.api_keys - cardinality(p_source.denied_keys));
  v_free bigint; v_taken bigint;
begin
  pace := greatest(10, ceil(v_total * 0.185));
  lately := pgfresh_engine.slot_free_at(pgfresh_engine.use_by_of(p_now - interval '10 seconds'));
  select coalesce(sum(greatest(0, p_source.rate_limit_per_minute - coalesce(u.calls, 0))), 0),
    coalesce(sum(u.paced), 0)
  into v_free, v_taken
  from generate_series(1, p_source.api_keys) as k(api_key)
  left join (
    select s.api_key, sum(s.calls) as calls, sum(s.calls) filter (where s.free_at > lately) as paced
    from pgfresh_engine.rate_slot as s
    where s.source_id = p_source.id and s.free_at > p_now
    group by s.api_key
  ) as u on u.api_key = k.api_key
  where k.api_key <> all (p_source.denied_keys);
  viewed := greatest(0, least(v_free, pace - v_taken));
  background := greatest(0, least(
    v_free - floor(p_source.viewed_share * v_total),
    ceil(pace * (1 - p_source.viewed_share)) - v_taken
  ));
  return next;
end
$$;
comment on function pgfresh_engine.free_calls(pgfresh.sources, timestamptz) is
  'How many calls the rate of a source leaves now, for pairs with viewers and for background work; '
  'how many it hands out within ten seconds at the most, and the time beyond which the calls of the last ten seconds '
  'count. A part of claim_jobs.';

create or replace function pgfresh_engine.calls_now(p_source pgfresh.sources, p_now timestamptz)
returns table (viewed int, background int, next_at timestamptz)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_rate int := p_source.rate_limit_per_minute;
  v_keys int := p_source.api_keys - cardinality(p_source.denied_keys);
  v_calls record;
begin
  select * into v_calls from pgfresh_engine.free_calls(p_source, p_now);
  viewed := v_calls.viewed;
  background := v_calls.background;
  if viewed = 0 then
    -- When a key is below the rate again, and all keys together are below the pace.
    select greatest(
      case
        when count(distinct s.api_key) filter (where s.used >= v_rate) = v_keys
          then min(s.free_at) filter (where s.later < v_rate)
      end,
      min(p_now + (s.free_at - v_calls.lately))
        filter (where s.free_at > v_calls.lately and s.all_later < v_calls.pace and s.lately >= v_calls.pace)
    )
    into next_at
    from (
      select s.api_key, s.free_at,
        sum(s.calls) over by_key as used,
        sum(s.calls) over by_key - sum(s.calls) over (by_key order by s.free_at) as later,
        sum(s.calls) filter (where s.free_at > v_calls.lately) over () as lately,
        sum(s.calls) over () - sum(s.calls) over (order by s.free_at) as all_later
      from pgfresh_engine.rate_slot as s
      where s.source_id = p_source.id and s.free_at > p_now
        and s.api_key <= p_source.api_keys and s.api_key <> all (p_source.denied_keys)
      window by_key as (partition by s.api_key)
    ) as s;
  end if;
  return next;
end
$$;
comment on function pgfresh_engine.calls_now(pgfresh.sources, timestamptz) is
  'How many calls the rate of a source leaves now, for pairs with viewers and for background work; '
  'and if none, when the next one is free.';
grant execute on function pgfresh_engine.calls_now(pgfresh.sources, timestamptz) to
  pgfresh_worker, pgfresh_planner, pgfresh_gateway, pgfresh_monitor, pgfresh_operator;

create or replace function pgfresh_engine.count_unknown_calls(p_source_id int, p_api_keys int) returns void
language sql
set search_path = pg_catalog, pg_temp
as $$
  insert into pgfresh_engine.rate_slot (source_id, free_at, api_key, calls)
  select p_source_id, pgfresh_engine.slot_free_at(pgfresh_engine.use_by_of(pgfresh.clock())), k, 100000
  from generate_series(1, p_api_keys) as k
  on conflict (source_id, free_at, api_key) do update set calls = excluded.calls
$$;
comment on function pgfresh_engine.count_unknown_calls(int, int) is
  'Lets a source that had no rate wait for a minute: its calls were not counted, so they may all have been just now.';

/*
  Distributes calls over the API keys, fewest calls first. The caller holds the advisory lock of the source, so only one
  transaction does this at a time.
*/
create or replace function pgfresh_engine.take_slots(
  p_source pgfresh.sources, p_api_key smallint, p_count int, p_now timestamptz, p_use_by timestamptz default null)
returns smallint[]
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_keys smallint[];
  -- Rounded up to tenths of a second, so that at most 620 rows per key are summed, however many claims there are.
  v_free_at timestamptz := date_bin(
    interval '100 ms', pgfresh_engine.slot_free_at(coalesce(p_use_by,
      pgfresh_engine.use_by_of(p_now))) + interval '99.999 ms',
    timestamptz '2000-01-01 00:00:00+00');
begin
  -- Kept for a minute: another claim may have read the clock before this one, and still counts them.
  delete from pgfresh_engine.rate_slot as s where s.source_id = p_source.id
    and s.free_at <= p_now - interval '1 minute';
  with dealt as (
    select k.api_key::smallint as api_key
    from generate_series(1, p_source.api_keys) as k(api_key)
    left join (
      select s.api_key, sum(s.calls)::int as calls
      from pgfresh_engine.rate_slot as s
      where s.source_id = p_source.id and s.free_at > p_now
      group by s.api_key
    ) as u on u.api_key = k.api_key
    cross join lateral generate_series(
      coalesce(u.calls, 0) + 1,
      least(p_source.rate_limit_per_minute, coalesce(u.calls, 0) + p_count)
    ) as place
    where case when p_api_key is null then k.api_key <> all (p_source.denied_keys) else k.api_key = p_api_key end
    order by place, k.api_key
    limit p_count
  ), noted as (
    insert into pgfresh_engine.rate_slot as s (source_id, free_at, api_key, calls)
    select p_source.id, v_free_at, d.api_key, count(*) from dealt as d group by d.api_key
    on conflict (source_id, free_at, api_key) do update set calls = s.calls + excluded.calls
  )
  select coalesce(array_agg(dealt.api_key), '{}') into v_keys from dealt;
  return v_keys;
end
$$;
comment on function pgfresh_engine.take_slots(pgfresh.sources, smallint, int, timestamptz, timestamptz) is
  'Takes up to so many calls of a source''s rate, of one API key or of any that is not denied, '
  'to be sent by use_by_of now if nothing else is said. '
  'Returns the key of each.';

create or replace function pgfresh_engine.calls_until(p_claimed_at timestamptz) returns timestamptz
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$ select p_claimed_at + interval '30 seconds' $$;
comment on function pgfresh_engine.calls_until(timestamptz) is
  'Until when a job must have sent the further calls that were taken with its claim.';

create or replace function pgfresh_engine.take_call(
  p_source_id int, p_api_key smallint default null, p_job_id bigint default null)
returns timestamptz
language plpgsql security definer
set search_path = pg_catalog, pg_temp
-- A claim of the source takes some milliseconds. A call that waits longer than this would be too late anyway.
set lock_timeout = '500ms'
as $$
declare
  v_now timestamptz := pgfresh.clock();
  v_source pgfresh.sources;
  v_until timestamptz;
begin
  select * into v_source from pgfresh.sources where id = p_source_id;
  if not found then
    perform pgfresh_engine.refuse('PGF_SOURCE_UNKNOWN',
      format('there is no source %s', coalesce(p_source_id::text, 'null')),
      'Pass the source_id of the claimed job.');
  end if;
  if p_api_key not between 1 and v_source.api_keys then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      format('p_api_key must be from 1 to %s, got %s', v_source.api_keys, p_api_key),
      'Pass the api_key of the claimed job.');
  end if;
  if exists (select from pgfresh.spending_stop) or not v_source.enabled or v_source.paused_until > v_now then
    return null;
  end if;
  if p_job_id is not null then
    update pgfresh_engine.job as j
    set calls_left = j.calls_left - 1
    where j.id = p_job_id and j.state = 'x' and j.source_id = p_source_id and j.calls_left > 0
      and pgfresh_engine.calls_until(j.claimed_at) > v_now
    returning least(pgfresh_engine.use_by_of(v_now), pgfresh_engine.calls_until(j.claimed_at)) into v_until;
    if found then
      return v_until;
    end if;
  end if;
  if v_source.rate_limit_per_minute is not null then
    perform pg_advisory_xact_lock(7042, p_source_id);
    if cardinality(pgfresh_engine.take_slots(v_source, p_api_key, 1, v_now)) = 0 then
      return null;
    end if;
  end if;
  return pgfresh_engine.use_by_of(v_now);
exception when lock_not_available then
  return null;
end
$$;
comment on function pgfresh_engine.take_call(int, smallint, bigint) is
  'Asks for one more call than the first of a job, for instance for a redirect: '
  'of those that were taken with the claim of the job, if it is named and has some left, or of the rate. '
  'Returns until when it must be sent, or null if it may not be made now.';
grant execute on function pgfresh_engine.take_call(int, smallint, bigint) to pgfresh_worker;
