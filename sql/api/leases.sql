/*
  Never waits, so any number of callers cannot block each other, and there is no deadlock. While the lease is held,
  callers only read its row. Those who see it free at the same moment try to lock the row; a caller that finds it locked
  has lost. A fence may also have locked it: then the last holder is committing what was done under the lease.
*/
create or replace function pgfresh.acquire_refresh_lock(
  p_name text, p_holder text, p_lease interval default '5 minutes', p_manual boolean default false, out reason text,
  out token bigint, out locked_until timestamptz, out next_run_at timestamptz)
returns record
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_row pgfresh.refresh_schedule;
begin
  perform pgfresh_engine.require_label('p_name', p_name,
    'Pass the name of the work, for instance refresh_opening_signals.');
  perform pgfresh_engine.require_label('p_holder', p_holder,
    'Pass something by which people find who it is, for instance the host and the process id.');
  perform pgfresh_engine.require_range('p_lease in seconds', extract(epoch from p_lease), 1, 86400);
  if p_manual is null then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      'p_manual must be true or false, got null',
      'Leave it out to run only what is due.');
  end if;
  perform pgfresh_engine.require_primary();

  select * into v_row from pgfresh.refresh_schedule as s where s.function_name = p_name collate "C";
  if not found then
    -- An insert would wait for another one of the same name, and this does not.
    if not pg_try_advisory_xact_lock(7043, hashtext(p_name collate "C")) then
      reason := 'locked';
      return;
    end if;
    insert into pgfresh.refresh_schedule (function_name) values (p_name) on conflict do nothing;
  else
    reason := pgfresh_engine.why_not_now(v_row, p_manual);
  end if;

  if reason is null then
    select *
    into v_row
    from pgfresh.refresh_schedule as s
    where s.function_name = p_name collate "C"
    for no key update skip locked;
    -- What was free a moment ago may be taken, or have been given back, by now.
    reason := case when found then coalesce(pgfresh_engine.why_not_now(v_row, p_manual), 'acquired') else 'locked' end;
  end if;
  if reason = 'acquired' then
    update pgfresh.refresh_schedule as s
    set locked_until = now.now + make_interval(secs => extract(epoch from p_lease)::float8),
      locked_by = p_holder, locked_at = now.now, lock_token = nextval('pgfresh_engine.lock_token')
    from pgfresh.clock() as now(now)
    where s.function_name = p_name collate "C"
    returning s.* into v_row;
    token := v_row.lock_token;
  end if;
  if reason in ('acquired', 'locked') then
    locked_until := v_row.locked_until;
  end if;
  next_run_at := v_row.next_run_at;
end
$$;
comment on function pgfresh.acquire_refresh_lock(text, text, interval, boolean) is
  'Takes the lease on a piece of work. The reason is acquired, locked (until when), not_due (until when) or '
  'disabled; only the first has a token. The first call with a name creates its row. A manual call need not be due.';
grant execute on function pgfresh.acquire_refresh_lock(text, text, interval, boolean) to
  pgfresh_scheduler, pgfresh_worker, pgfresh_planner;

create or replace function pgfresh.renew_refresh_lock(
  p_name text, p_token bigint, p_lease interval default '5 minutes', out reason text, out locked_until timestamptz)
returns record
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform pgfresh_engine.require_range('p_lease in seconds', extract(epoch from p_lease), 1, 86400);
  reason := 'lost';
  if (pgfresh_engine.lock_lease(p_name, p_token, false)).lost is null then
    update pgfresh.refresh_schedule as s
    set locked_until = pgfresh.clock() + make_interval(secs => extract(epoch from p_lease)::float8)
    where s.function_name = p_name collate "C"
    returning 'renewed', s.locked_until into reason, locked_until;
  end if;
end
$$;
comment on function pgfresh.renew_refresh_lock(text, bigint, interval) is
  'Extends a lease, from now on. The reason is renewed; or lost, if it had ended or another holder took it: then '
  'stop the work.';
grant execute on function pgfresh.renew_refresh_lock(text, bigint, interval) to
  pgfresh_scheduler, pgfresh_worker, pgfresh_planner;

create or replace function pgfresh.release_refresh_lock(
  p_name text, p_token bigint, p_success boolean default null, p_next_in interval default null, out reason text,
  out next_run_at timestamptz)
returns record
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_held record;
  v_row pgfresh.refresh_schedule;
  v_now timestamptz;
  v_low interval;
  v_high interval;
begin
  if p_next_in is not null then
    perform pgfresh_engine.require_range('p_next_in in seconds', extract(epoch from p_next_in), 0, 366 * 86400);
  end if;
  reason := 'lost';
  v_held := pgfresh_engine.lock_lease(p_name, p_token, false);
  if v_held.lost is not null then
    return;
  end if;
  v_row := v_held.lease;
  v_now := pgfresh.clock();
  if p_success then
    v_row.last_status := 'success';
    v_row.failures_in_row := 0;
    v_low := coalesce(p_next_in, v_row.success_wait_min);
    v_high := coalesce(p_next_in, v_row.success_wait_max);
  elsif not p_success then
    v_row.last_status := 'failed';
    v_row.failures_in_row := v_row.failures_in_row + 1;
    v_low := coalesce(p_next_in, v_row.failure_wait_min);
    v_high := coalesce(p_next_in, v_row.failure_wait_max);
  end if;
  if p_success is not null then
    v_row.last_run_at := v_now;
    -- A run ahead of its time, by hand, leaves the next one where it was planned, unless it says when that is.
    if p_next_in is not null or v_row.next_run_at is null or v_row.next_run_at <= v_row.locked_at then
      v_row.next_run_at := v_now
        + make_interval(secs => extract(epoch from v_low + random() * (v_high - v_low))::float8);
    end if;
  end if;
  update pgfresh.refresh_schedule as s
  set locked_until = null, locked_by = null, locked_at = null,
    last_run_at = v_row.last_run_at, last_status = v_row.last_status,
    failures_in_row = v_row.failures_in_row, next_run_at = v_row.next_run_at
  where s.function_name = p_name collate "C"
  returning 'released', s.next_run_at into reason, next_run_at;
end
$$;
comment on function pgfresh.release_refresh_lock(text, bigint, boolean, interval) is
  'Ends a run: releases its lease, records success or failure, and plans the next run after p_next_in or within the '
  'waits of the row. An early manual run leaves the planned time, unless p_next_in is passed. A null success only '
  'releases the lease. The reason is released; or lost, and then nothing was recorded.';
grant execute on function pgfresh.release_refresh_lock(text, bigint, boolean, interval) to
  pgfresh_scheduler, pgfresh_worker, pgfresh_planner;

create or replace function pgfresh.fence_refresh_lock(p_name text, p_token bigint) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  -- Shared, so that several transactions of one holder do not wait for each other. The lock lasts until the commit, so
  -- that no one takes the lease before it.
  v_lost text := (pgfresh_engine.lock_lease(p_name, p_token, true)).lost;
begin
  if v_lost is not null then
    perform pgfresh_engine.refuse('PGF_LOCK_LOST',
      format('the lease of %s with token %s is lost: %s', left(quote_literal(p_name), 60), p_token, v_lost),
      'Write nothing more under it; the next holder of the lease does the work.');
  end if;
end
$$;
comment on function pgfresh.fence_refresh_lock(text, bigint) is
  'Call it last in a transaction that writes work done under a lease: it raises an error if the lease is lost, and '
  'keeps others from taking the lease before the commit.';
grant execute on function pgfresh.fence_refresh_lock(text, bigint) to
  pgfresh_scheduler, pgfresh_worker, pgfresh_planner;
