/*
  What a source may still use now. The cap is the quota times its buffer. Two limits hold together:
  - the cap itself: what was used in the rolling window, plus what is reserved;
  - the pace: a leaky bucket, so that a window never ends in a blackout. Its depth is one day of the quota, at most
    half of it, and it drains the rest of the cap evenly over the window, so that a full bucket and a window of
    draining together are exactly the cap. A job larger than the bucket may start when it is empty, and is paid
    back by waiting.
*/
create or replace function pgfresh_engine.source_budget(p_source_id int)
returns table (
  cap bigint, used bigint, reserved bigint, depth bigint, rate double precision, level double precision,
  free bigint)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_now timestamptz := pgfresh.clock();
  v_source pgfresh.sources;
  v_state pgfresh_engine.source_state;
  v_seconds double precision;
begin
  select * into v_source from pgfresh.sources where id = p_source_id;
  select * into v_state from pgfresh_engine.source_state where source_id = p_source_id;
  if v_source.quota_bytes is null then
    return;
  end if;
  v_seconds := extract(epoch from v_source.quota_window);
  cap := floor(v_source.quota_bytes * v_source.quota_buffer);
  -- The oldest hour counts whole, so the window is never shorter than the provider's.
  -- A correction of usage that has left the window no longer counts.
  select greatest(0, coalesce(sum(bytes), 0))
  into used
  from pgfresh_engine.usage
  where source_id = p_source_id and hour > v_now - v_source.quota_window - interval '1 hour';
  reserved := v_state.reserved;
  depth := floor(cap * least(0.5, 86400 / v_seconds));
  rate := (cap - depth) / v_seconds;
  -- Usage that has left the window has left the bucket too.
  -- If the clock was set back, nothing drains; it must not fill the bucket.
  level := least(used + reserved,
    greatest(0, v_state.level - rate * extract(epoch from greatest(v_now - v_state.level_at, interval '0'))));
  free := floor(greatest(0, least(cap - used - reserved, depth - level)));
  return next;
end
$$;
comment on function pgfresh_engine.source_budget(int) is
  'What a source with a quota has used, reserved and free now, in bytes. No row for a source without one.';
grant execute on function pgfresh_engine.source_budget(int) to
  pgfresh_worker, pgfresh_planner, pgfresh_gateway, pgfresh_monitor, pgfresh_operator;

/*
  A job of unknown size reserves the last measured size of its type, or the largest of the other types of its source. If
  nothing was measured yet, it reserves a sixteenth of what may be used at once: so at most sixteen such jobs run before
  the first of them shows its size.
*/
create or replace function pgfresh_engine.unknown_size(p_source_id int, p_type_id int, p_depth bigint) returns bigint
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select coalesce(
    (select t.estimated_bytes from pgfresh_engine.type_stats as t where t.type_id = p_type_id
      and t.estimated_bytes > 0),
    (
      select max(t.estimated_bytes)
      from pgfresh.data_type_registry as r
      join pgfresh_engine.type_stats as t on t.type_id = r.type_id
      where r.source_id = p_source_id and t.samples > 0 and t.estimated_bytes > 0
    ),
    greatest(1, p_depth / 16))
$$;
comment on function pgfresh_engine.unknown_size(int, int, bigint) is
  'The bytes that a job of unknown size reserves: what its type or its source was measured at, '
  'or a sixteenth of what the source may use at once.';

/*
  When the smallest job of a source, or one of p_bytes, fits: once the bucket has drained far enough and, if the cap is
  reached, enough hours have left the window. Sooner if reservations turn out too large.
*/
create or replace function pgfresh_engine.quota_until(p_source_id int, p_now timestamptz, p_bytes bigint default null)
returns timestamptz
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_budget record;
  v_bytes bigint := p_bytes;
  v_window interval;
  v_until timestamptz := p_now;
begin
  select * into v_budget from pgfresh_engine.source_budget(p_source_id);
  if not found then
    return null;
  end if;
  if coalesce(v_bytes, 0) = 0 then
    select coalesce(min(coalesce(
      nullif(s.estimated_bytes, 0),
      nullif(r.estimated_data_size_bytes, 0),
      pgfresh_engine.unknown_size(p_source_id, r.type_id, v_budget.depth))), 1)
    into v_bytes
    from pgfresh.data_type_registry as r
    left join pgfresh_engine.type_stats as s on s.type_id = r.type_id
    where r.source_id = p_source_id;
  end if;
  if v_budget.used + v_budget.reserved < v_budget.cap and v_bytes <= v_budget.free then
    return null;
  end if;
  -- A job that is larger than the bucket starts when the bucket is empty.
  v_until := p_now + make_interval(secs => coalesce(
    greatest(0, v_budget.level - greatest(0, v_budget.depth - v_bytes)) / nullif(v_budget.rate, 0), 0));
  if v_budget.used + v_budget.reserved + v_bytes > v_budget.cap then
    select quota_window into v_window from pgfresh.sources where id = p_source_id;
    select greatest(v_until, min(h.hour) + v_window + interval '1 hour')
    into v_until
    from (
      select u.hour, sum(sum(u.bytes)) over (order by u.hour) as gone
      from pgfresh_engine.usage as u
      where u.source_id = p_source_id and u.hour > p_now - v_window - interval '1 hour'
      group by u.hour
    ) as h
    where v_budget.used + v_budget.reserved + least(v_bytes, v_budget.cap) - h.gone <= v_budget.cap;
  end if;
  -- Whole seconds: the result stays the same as long as nothing is used.
  return greatest(date_trunc('second', v_until), p_now) + interval '1 second';
end
$$;
comment on function pgfresh_engine.quota_until(int, timestamptz, bigint) is
  'When the quota of a source lets its smallest job run, or one of so many bytes; null if it does now.';
grant execute on function pgfresh_engine.quota_until(int, timestamptz, bigint) to
  pgfresh_worker, pgfresh_planner, pgfresh_gateway, pgfresh_monitor, pgfresh_operator;

-- Replaces a reservation by actual usage, even if the quota was removed meanwhile, because it may come back.
-- Without a quota and a reservation, no shared row is written.
create or replace function pgfresh_engine.settle_usage(
  p_source_id int, p_reserved bigint, p_bytes bigint, p_calls bigint)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_metered boolean := (select s.quota_bytes is not null from pgfresh.sources as s where s.id = p_source_id);
begin
  if p_reserved > 0 or (p_bytes <> 0 and v_metered) then
    update pgfresh_engine.source_state
    set reserved = greatest(0, reserved - p_reserved), level = greatest(0, level + p_bytes - p_reserved)
    where source_id = p_source_id;
  end if;
  if p_bytes <> 0 or p_calls <> 0 then
    insert into pgfresh_engine.usage as u (source_id, hour, shard, bytes, calls)
    values (
      p_source_id,
      date_trunc('hour', pgfresh.clock(), 'UTC'),
      -- The usage of a source with a quota is summed at every claim, and its ends wait for its state row anyway:
      -- one row per hour is right for it.
      case when v_metered then 0 else pg_backend_pid() % 16 end,
      p_bytes,
      p_calls)
    on conflict (source_id, hour, shard)
    do update set bytes = u.bytes + excluded.bytes, calls = u.calls + excluded.calls;
  end if;
end
$$;
comment on function pgfresh_engine.settle_usage(int, bigint, bigint, bigint) is
  'Turns a reservation into what was really used.';

create or replace function pgfresh_engine.count_calls(p_source_id int, p_calls int, p_bytes bigint) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform pgfresh_engine.require_range('p_calls', p_calls, 0, 1000000);
  perform pgfresh_engine.require_range('p_bytes', p_bytes, 0, 1e15);
  if not exists (select from pgfresh.sources where id = p_source_id) then
    perform pgfresh_engine.refuse('PGF_SOURCE_UNKNOWN',
      format('there is no source %s', coalesce(p_source_id::text, 'null')),
      'Pass the source_id of the data type.');
  end if;
  perform pgfresh_engine.settle_usage(p_source_id, 0, p_bytes, p_calls);
end
$$;
comment on function pgfresh_engine.count_calls(int, int, bigint) is
  'Adds calls that no job has made, such as that of pgfresh try, to the ledger of a source, '
  'and the bytes that they used. take_call asks for them before.';
grant execute on function pgfresh_engine.count_calls(int, int, bigint) to pgfresh_worker;

-- Every completion counts: the first measured size replaces the estimate,
-- after that 0.9 old + 0.1 new, one size after the other. The same for the number of calls.
-- If another end is doing the same, these sizes are skipped instead of waiting.
create or replace function pgfresh_engine.learn_size(p_type_id int, p_bytes bigint[], p_calls bigint) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_old double precision;
  v_samples bigint;
  v_first int := 1;
  v_count int := cardinality(p_bytes);
begin
  select estimated_bytes, samples
  into v_old, v_samples
  from pgfresh_engine.type_stats
  where type_id = p_type_id
  for update skip locked;
  if not found then
    insert into pgfresh_engine.type_stats (type_id, estimated_bytes)
    select type_id, estimated_data_size_bytes
    from pgfresh.data_type_registry as r
    where r.type_id = p_type_id and not exists (select from pgfresh_engine.type_stats as s where s.type_id = p_type_id)
    on conflict do nothing
    returning estimated_bytes, samples into v_old, v_samples;
    if not found then
      return;
    end if;
  end if;
  if v_samples = 0 or v_old = 0 then
    v_old := p_bytes[1];
    v_first := 2;
  end if;
  -- Sizes more than 60 back weigh less than a fifth of a percent.
  for i in greatest(v_first, v_count - 59)..v_count loop
    v_old := 0.9 * v_old + 0.1 * p_bytes[i];
  end loop;
  update pgfresh_engine.type_stats
  set estimated_bytes = round(v_old), samples = samples + v_count,
    calls = (p_calls::real / v_count) + (calls - p_calls::real / v_count)
      * case when v_samples = 0 then 0 else power(0.9, least(v_count, 60)) end
  where type_id = p_type_id;
end
$$;
comment on function pgfresh_engine.learn_size(int, bigint[], bigint) is
  'Corrects the estimates of a data type by answers that really came: how large they were, and how many calls '
  'all of them took.';

create or replace function pgfresh_engine.enter_correction() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_source pgfresh.sources := pgfresh_engine.require_source(new.source);
  v_now timestamptz := pgfresh.clock();
begin
  perform pgfresh_engine.require_reason('reason', new.reason);
  if num_nonnulls(new.bytes, new.provider_bytes) <> 1 or new.bytes = 0 then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      'a correction has either bytes other than 0 or provider_bytes',
      'Pass bytes to add them, or the provider''s own figure as provider_bytes.');
  end if;
  if new.bytes is not null then
    perform pgfresh_engine.require_range('bytes', new.bytes, -1e15, 1e15);
    new.since := null;
  else
    perform pgfresh_engine.require_range('provider_bytes', new.provider_bytes, 0, 1e15);
    new.since := coalesce(new.since, v_now - v_source.quota_window);
    if new.since >= v_now or new.since < v_now - interval '366 days' then
      perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
        'since must lie in the past, at most 366 days',
        'Pass when the provider began to count, or leave it out for the window of the quota.');
    end if;
    select new.provider_bytes - coalesce(sum(u.bytes), 0)
    into new.bytes
    from pgfresh_engine.usage as u
    where u.source_id = v_source.id and u.hour > new.since - interval '1 hour';
  end if;
  new.source_id := v_source.id;
  new.corrected_at := v_now;
  -- A correction is about the past, so it counts against the cap and not against the pace.
  if new.bytes <> 0 then
    insert into pgfresh_engine.usage as u (source_id, hour, shard, bytes, calls)
    values (v_source.id, date_trunc('hour', v_now, 'UTC'), 0, new.bytes, 0)
    on conflict (source_id, hour, shard) do update set bytes = u.bytes + excluded.bytes;
  end if;
  return new;
end
$$;
comment on function pgfresh_engine.enter_correction() is
  'Trigger of usage_corrections: takes the difference to the ledger where a provider''s figure is given, and adds it.';
create or replace trigger enter_correction before insert on pgfresh.usage_corrections
  for each row execute function pgfresh_engine.enter_correction();
