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

create or replace function pgfresh_engine.lock_lease(
  p_name text, p_token bigint, p_shared boolean, out lease pgfresh.refresh_schedule, out lost text)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz;
begin
  perform pgfresh_engine.require_label('p_name', p_name,
    'Pass the name of the work, for instance refresh_opening_signals.');
  if p_token is null then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      'p_token must be a number, got null',
      'Pass the token that acquire_refresh_lock has answered with the reason acquired.');
  end if;
  if p_shared then
    select * into lease from pgfresh.refresh_schedule as s where s.function_name = p_name collate "C" for share;
  else
    select * into lease from pgfresh.refresh_schedule as s where s.function_name = p_name collate "C" for no key update;
  end if;
  -- Read after the row is locked: a caller that had to wait may have lost the lease.
  v_now := pgfresh.clock();
  lost := case
    when lease.lock_token = p_token and lease.locked_until > v_now then null
    when lease.function_name is null then 'there is no such lease'
    when lease.lock_token <> p_token then format('it was taken with token %s', lease.lock_token)
    when lease.locked_until is null then 'it was given back'
    else format('it ended %s s ago', round(extract(epoch from v_now - lease.locked_until), 1))
  end;
end
$$;
comment on function pgfresh_engine.lock_lease(text, bigint, boolean) is
  'The row of a lease, locked, and why this token does not hold it any more; lost is null if it does.';
