create or replace function pgfresh.is_quota_exceeded(p_source text) returns boolean
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select coalesce(
    (select b.used + b.reserved >= b.cap
      from pgfresh_engine.source_budget((pgfresh_engine.require_source(p_source)).id) as b),
    false)
$$;
comment on function pgfresh.is_quota_exceeded(text) is
  'Whether a source has used or reserved all of its buffered quota in the rolling window.';
grant execute on function pgfresh.is_quota_exceeded(text) to
  pgfresh_worker, pgfresh_planner, pgfresh_gateway, pgfresh_monitor, pgfresh_operator;

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
  'Claims no jobs of a source until then, or until resume_source. Running jobs finish.';
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
  'Allows calls of a source again at once, with all of its API keys and data types, whether an operator, the '
  'provider or the breaker paused it. Pairs on hold because their answers were refused are fetched again. Returns '
  'whether anything was paused.';
grant execute on function pgfresh.resume_source(text) to pgfresh_operator;

