create or replace function pgfresh_engine.require_label(p_name text, p_value text, p_hint text) returns void
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  if p_value is null or p_value = '' or octet_length(p_value) > 200 or p_value ~ '[[:cntrl:]]' then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      format('%s must have 1 to 200 bytes and no control characters, got %s',
        p_name, coalesce(left(quote_literal(p_value), 60), 'null')),
      p_hint);
  end if;
end
$$;
comment on function pgfresh_engine.require_label(text, text, text) is
  'Refuses what cannot be the name of a lease or of its holder.';

create or replace function pgfresh_engine.require_lease(p_name text, p_token bigint) returns void
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  perform pgfresh_engine.require_label('p_name', p_name,
    'Pass the name of the work, for instance refresh_opening_signals.');
  if p_token is null then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      'p_token must be a number, got null',
      'Pass the token that acquire_refresh_lock has answered with the reason acquired.');
  end if;
end
$$;
comment on function pgfresh_engine.require_lease(text, bigint) is 'Refuses what cannot be a lease and its token.';

create or replace function pgfresh_engine.why_not_now(p_row pgfresh.refresh_schedule, p_manual boolean) returns text
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  select case
    when not p_row.enabled then 'disabled'
    when p_row.locked_until > now.now then 'locked'
    when not p_manual and p_row.next_run_at > now.now then 'not_due'
  end
  from pgfresh.clock() as now(now)
$$;
comment on function pgfresh_engine.why_not_now(pgfresh.refresh_schedule, boolean) is
  'Why a lease cannot be taken this moment; null if it can.';

create or replace function pgfresh_engine.lock_lease(p_name text, p_token bigint) returns pgfresh.refresh_schedule
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_row pgfresh.refresh_schedule;
begin
  perform pgfresh_engine.require_lease(p_name, p_token);
  -- The time is read after the row is locked: who had to wait may have lost it meanwhile.
  select * into v_row from pgfresh.refresh_schedule as s where s.function_name = p_name collate "C" for no key update;
  if v_row.lock_token = p_token and v_row.locked_until > pgfresh.clock() then
    return v_row;
  end if;
  return null;
end
$$;
comment on function pgfresh_engine.lock_lease(text, bigint) is
  'The row of a lease that is held by this token, locked; null if it is lost.';
