create or replace function pgfresh.require_reason(p_name text, p_reason text) returns void
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  if coalesce(p_reason, '') = '' or length(p_reason) > 1000 then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      format('%s must have 1 to 1000 characters, got %s', p_name, coalesce(left(quote_literal(p_reason), 60), 'null')),
      'Say why, in a sentence that others understand.');
  end if;
end
$$;
comment on function pgfresh.require_reason(text, text) is 'Refuses what is no reason.';

create or replace function pgfresh.hold_source(p_source_id int, p_until timestamptz, p_reason text) returns timestamptz
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := pgfresh.clock();
  -- A header is not a reason to stand still for a year.
  v_until timestamptz := least(p_until, v_now + interval '1 day');
  v_source pgfresh.sources;
begin
  perform pgfresh.require_reason('p_reason', p_reason);
  select * into v_source from pgfresh.sources where id = p_source_id for no key update;
  if not found then
    perform pgfresh.refuse('PGF_SOURCE_UNKNOWN',
      format('there is no source %s', coalesce(p_source_id::text, 'null')),
      'Pass the source_id of the claimed job.');
  end if;
  if p_until is null then
    -- What comes back while it is held was called before, and says the same thing once.
    if v_source.paused_until > v_now then
      return v_source.paused_until;
    end if;
    v_until := v_now + least(interval '1 hour', interval '10 seconds' * power(2, least(v_source.unhinted_holds, 12)))
      * (0.75 + random() / 4);
    perform pgfresh.warn('limit_without_hint', v_source.name,
      format('The provider of %s refuses calls as too many and does not say for how long: left alone for %s, '
        'longer each time.', v_source.name, pgfresh.in_words(date_trunc('second', v_until - v_now))),
      'Set rate_limit_per_minute of the source to what the provider allows.');
  end if;
  if v_until > greatest(v_now, v_source.paused_until) then
    update pgfresh.sources
    set paused_until = v_until, paused_by = 'provider', pause_reason = p_reason,
      unhinted_holds = case when p_until is null then least(unhinted_holds + 1, 100) else unhinted_holds end
    where id = p_source_id
    returning paused_until into v_source.paused_until;
  end if;
  return v_source.paused_until;
end
$$;
comment on function pgfresh.hold_source(int, timestamptz, text) is
  'The provider asked to be left alone until then (Retry-After, x-ratelimit): nobody calls the source earlier. '
  'Null if it did not say until when: then for 10 s, doubled each time until a call succeeds, at most an hour. '
  'At most a day from now; never shortens a pause. Returns until when it is paused.';

create or replace function pgfresh.pause_source(
  p_source text, p_until timestamptz default 'infinity', p_reason text default 'paused by hand')
returns timestamptz
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_source pgfresh.sources := pgfresh.require_source(p_source);
begin
  perform pgfresh.require_reason('p_reason', p_reason);
  if (p_until > pgfresh.clock()) is not true then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      format('p_until must be in the future, got %s', coalesce(p_until::text, 'null')),
      'Leave it out to pause the source until resume_source.');
  end if;
  update pgfresh.sources
  set paused_until = p_until, paused_by = 'person', pause_reason = p_reason
  where id = v_source.id;
  return p_until;
end
$$;
comment on function pgfresh.pause_source(text, timestamptz, text) is
  'Claims nothing of a source until then, or until resume_source. What runs goes on.';

create or replace function pgfresh.resume_source(p_source text) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_source pgfresh.sources := pgfresh.require_source(p_source);
  v_parts boolean;
begin
  perform from pgfresh.sources where id = v_source.id for no key update;
  update pgfresh.sources
  set paused_until = null, paused_by = null, pause_reason = null,
    breaker_opened_at = null, probe_job = null, failure_streak = 0, streak_since = null, unhinted_holds = 0,
    recent_retries = '{}', denied_keys = '{}'
  where id = v_source.id
    and (paused_until is not null or breaker_opened_at is not null or failure_streak > 0 or unhinted_holds > 0
      or recent_retries <> '{}' or denied_keys <> '{}');
  with parts as (
    delete from pgfresh.breaker
    where source_id = v_source.id
      or type_id in (select r.type_id from pgfresh.data_type_registry as r where r.source_id = v_source.id)
    returning opened_at
  )
  select exists (select from parts where opened_at is not null) into v_parts;
  -- The next tick asks for what was refused.
  insert into pgfresh.hold (type_id, until, reason, asked_at)
  select r.type_id, 'infinity', 'resumed', pgfresh.clock()
  from pgfresh.data_type_registry as r
  where r.source_id = v_source.id and exists (select from pgfresh.refused_pair as p where p.type_id = r.type_id)
  order by r.type_id
  on conflict (type_id, until) do update set reason = excluded.reason;
  perform pgfresh.wake_workers();
  return coalesce(v_source.paused_until > pgfresh.clock(), false) or v_source.breaker_opened_at is not null or v_parts;
end
$$;
comment on function pgfresh.resume_source(text) is
  'Lets a source be called again at once, with all of its API keys and data types, whoever has paused it: '
  'a person, the provider or a breaker, whose count starts anew. Pairs that are left alone because their answers were '
  'refused are asked for again. Returns whether anything was paused.';

create or replace function pgfresh.stop_spending(p_reason text) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  perform pgfresh.require_reason('p_reason', p_reason);
  insert into pgfresh.spending_stop (stopped_at, reason) values (pgfresh.clock(), p_reason) on conflict do nothing;
  return found;
end
$$;
comment on function pgfresh.stop_spending(text) is
  'Spends nothing from now on: no source is claimed from or planned for. '
  'What runs goes on. False if it was stopped already.';

create or replace function pgfresh.resume_spending() returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  delete from pgfresh.spending_stop;
  if found then
    perform pgfresh.wake_workers();
    return true;
  end if;
  return false;
end
$$;
comment on function pgfresh.resume_spending() is 'Undoes stop_spending. False if nothing was stopped.';

create or replace function pgfresh.calibrate_source(
  p_source text, p_used_bytes bigint, p_since timestamptz default null,
  p_reason text default 'the provider''s own figure', p_dry_run boolean default false)
returns jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_source pgfresh.sources := pgfresh.require_source(p_source);
  v_now timestamptz := pgfresh.clock();
  v_since timestamptz := coalesce(p_since, v_now - v_source.quota_window);
  v_ledger bigint;
  v_entry bigint;
begin
  perform pgfresh.require_range('p_used_bytes', p_used_bytes, 0, 1e15);
  perform pgfresh.require_reason('p_reason', p_reason);
  if p_dry_run is null or v_since >= v_now or v_since < v_now - interval '366 days' then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      'p_since must lie in the past, at most 366 days, and p_dry_run be true or false',
      'Pass when the provider began to count, or leave it out for the window of the quota.');
  end if;
  select coalesce(sum(u.bytes), 0)
  into v_ledger
  from pgfresh.usage as u
  where u.source_id = v_source.id and u.hour > v_since - interval '1 hour';
  if not p_dry_run and p_used_bytes <> v_ledger then
    v_entry := pgfresh.correct_data_usage(p_source, p_used_bytes - v_ledger, p_reason);
  end if;
  return jsonb_build_object('source', v_source.name, 'since', v_since, 'provider_bytes', p_used_bytes,
    'ledger_bytes', v_ledger, 'gap_bytes', p_used_bytes - v_ledger, 'correction', v_entry);
end
$$;
comment on function pgfresh.calibrate_source(text, bigint, timestamptz, text, boolean) is
  'Compares the ledger of a source with what the provider says was used since a time '
  '(the window of its quota if left out), and enters the gap as a signed correction. '
  'With p_dry_run only says what the gap is.';

-- The same time for all that is held in an hour: it is found together when the obstacle ends, and what is held already
-- is not written again. Each tick sees whether the obstacle has ended, and each sweep whether a gate has opened.
create or replace function pgfresh.open_end(p_now timestamptz) returns timestamptz
language sql stable parallel safe
set search_path = pg_catalog, pg_temp
as $$ select date_trunc('hour', p_now, 'UTC') + interval '2 hours' $$;
comment on function pgfresh.open_end(timestamptz) is
  'When a pair is looked at again at the latest that an obstacle without an end keeps from being planned.';

create or replace function pgfresh.source_obstacle(p_source_id int, p_now timestamptz)
returns table (reason text, until timestamptz)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_source pgfresh.sources;
  v_until timestamptz;
begin
  select * into v_source from pgfresh.sources where id = p_source_id;
  if exists (select from pgfresh.spending_stop) then
    return query select 'stopped', pgfresh.open_end(p_now);
  elsif not v_source.enabled then
    return query select 'paused', pgfresh.open_end(p_now);
  elsif v_source.paused_until > p_now then
    return query
    select case v_source.paused_by when 'breaker' then 'breaker' when 'provider' then 'rate' else 'paused' end,
      case when isfinite(v_source.paused_until) then v_source.paused_until else pgfresh.open_end(p_now) end;
  elsif v_source.quota_bytes is not null then
    v_until := pgfresh.quota_until(p_source_id, p_now);
    if v_until is not null then
      return query select 'quota', v_until;
    end if;
  end if;
end
$$;
comment on function pgfresh.source_obstacle(int, timestamptz) is
  'What keeps a source from being planned for, and until when: stopped, paused, breaker, rate or quota. '
  'No row if nothing does.';

create or replace function pgfresh.type_obstacle(p_type_id int, p_source_id int, p_now timestamptz)
returns table (reason text, until timestamptz)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  -- First: a type in quarantine is not even asked what is stale.
  if pgfresh.is_quarantined(p_type_id, p_now) then
    return query select 'quarantined', pgfresh.open_end(p_now);
    return;
  end if;
  return query select o.reason, o.until from pgfresh.source_obstacle(p_source_id, p_now) as o;
  if not found then
    return query
    select 'paused', b.paused_until
    from pgfresh.breaker as b
    where b.type_id = p_type_id and b.paused_until > p_now;
  end if;
end
$$;
comment on function pgfresh.type_obstacle(int, int, timestamptz) is
  'What keeps a data type from being planned for: its quarantine, what source_obstacle says of its source, '
  'or its own pause.';
