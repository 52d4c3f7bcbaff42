create or replace function pgfresh.is_quota_exceeded(p_source text) returns boolean
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select coalesce(
    (select b.used + b.reserved >= b.cap from pgfresh_engine.source_budget((pgfresh_engine.require_source(p_source)).id) as b),
    false)
$$;
comment on function pgfresh.is_quota_exceeded(text) is
  'Whether a source has used or reserved all of its buffered quota in the rolling window. '
  'Planners ask before they queue.';
grant execute on function pgfresh.is_quota_exceeded(text) to
  pgfresh_worker, pgfresh_planner, pgfresh_gateway, pgfresh_monitor, pgfresh_operator;

create or replace function pgfresh.correct_data_usage(p_source text, p_bytes bigint, p_reason text) returns bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_source pgfresh.sources := pgfresh_engine.require_source(p_source);
  v_id bigint;
begin
  perform pgfresh_engine.require_range('p_bytes', p_bytes, -1e15, 1e15);
  if p_bytes = 0 or coalesce(p_reason, '') = '' or length(p_reason) > 1000 then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      'a correction needs bytes other than 0 and a reason of 1 to 1000 characters',
      'Say where the figure comes from.');
  end if;
  insert into pgfresh_engine.usage_correction (source_id, at, bytes, reason)
  values (v_source.id, pgfresh.clock(), p_bytes, p_reason)
  returning id into v_id;
  -- It tells about the past, so it counts against the cap and not against the pace.
  perform pgfresh_engine.add_usage(v_source.id, p_bytes, 0);
  return v_id;
end
$$;
comment on function pgfresh.correct_data_usage(text, bigint, text) is
  'Adds a signed entry to the ledger of a source, for instance the gap to the provider''s own figure. '
  'Returns its number.';
grant execute on function pgfresh.correct_data_usage(text, bigint, text) to pgfresh_operator;

create or replace function pgfresh.pause_source(
  p_source text, p_until timestamptz default 'infinity', p_reason text default 'paused by hand')
returns timestamptz
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_source pgfresh.sources := pgfresh_engine.require_source(p_source);
begin
  perform pgfresh_engine.require_reason('p_reason', p_reason);
  if (p_until > pgfresh.clock()) is not true then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
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
grant execute on function pgfresh.pause_source(text, timestamptz, text) to pgfresh_operator;

create or replace function pgfresh.resume_source(p_source text) returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_source pgfresh.sources := pgfresh_engine.require_source(p_source);
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
    delete from pgfresh_engine.breaker
    where source_id = v_source.id
      or type_id in (select r.type_id from pgfresh.data_type_registry as r where r.source_id = v_source.id)
    returning opened_at
  )
  select exists (select from parts where opened_at is not null) into v_parts;
  -- The next tick asks for what was refused.
  insert into pgfresh_engine.hold (type_id, until, reason, asked_at)
  select r.type_id, 'infinity', 'resumed', pgfresh.clock()
  from pgfresh.data_type_registry as r
  where r.source_id = v_source.id and exists (select from pgfresh_engine.refused_pair as p where p.type_id = r.type_id)
  order by r.type_id
  on conflict (type_id, until) do update set reason = excluded.reason;
  perform pgfresh_engine.wake_workers();
  return coalesce(v_source.paused_until > pgfresh.clock(), false) or v_source.breaker_opened_at is not null or v_parts;
end
$$;
comment on function pgfresh.resume_source(text) is
  'Lets a source be called again at once, with all of its API keys and data types, whoever has paused it: '
  'a person, the provider or a breaker, whose count starts anew. Pairs that are left alone because their answers were '
  'refused are asked for again. Returns whether anything was paused.';
grant execute on function pgfresh.resume_source(text) to pgfresh_operator;

create or replace function pgfresh.stop_spending(p_reason text) returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform pgfresh_engine.require_reason('p_reason', p_reason);
  insert into pgfresh.spending_stop (stopped_at, reason) values (pgfresh.clock(), p_reason) on conflict do nothing;
  return found;
end
$$;
comment on function pgfresh.stop_spending(text) is
  'Spends nothing from now on: no source is claimed from or planned for. '
  'What runs goes on. False if it was stopped already.';
grant execute on function pgfresh.stop_spending(text) to pgfresh_operator;

create or replace function pgfresh.resume_spending() returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  delete from pgfresh.spending_stop;
  if found then
    perform pgfresh_engine.wake_workers();
    return true;
  end if;
  return false;
end
$$;
comment on function pgfresh.resume_spending() is 'Undoes stop_spending. False if nothing was stopped.';
grant execute on function pgfresh.resume_spending() to pgfresh_operator;

create or replace function pgfresh.calibrate_source(
  p_source text, p_used_bytes bigint, p_since timestamptz default null,
  p_reason text default 'the provider''s own figure', p_dry_run boolean default false)
returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_source pgfresh.sources := pgfresh_engine.require_source(p_source);
  v_now timestamptz := pgfresh.clock();
  v_since timestamptz := coalesce(p_since, v_now - v_source.quota_window);
  v_ledger bigint;
  v_entry bigint;
begin
  perform pgfresh_engine.require_range('p_used_bytes', p_used_bytes, 0, 1e15);
  perform pgfresh_engine.require_reason('p_reason', p_reason);
  if p_dry_run is null or v_since >= v_now or v_since < v_now - interval '366 days' then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      'p_since must lie in the past, at most 366 days, and p_dry_run be true or false',
      'Pass when the provider began to count, or leave it out for the window of the quota.');
  end if;
  select coalesce(sum(u.bytes), 0)
  into v_ledger
  from pgfresh_engine.usage as u
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
grant execute on function pgfresh.calibrate_source(text, bigint, timestamptz, text, boolean) to pgfresh_operator;
