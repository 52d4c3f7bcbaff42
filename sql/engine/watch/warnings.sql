/*
  A row that another transaction inserted and has not committed is invisible, and SKIP LOCKED cannot skip it: an
  insert of the same row waits for that transaction, so it gives up after a few milliseconds. A separate function,
  because only a new warning needs the subtransaction.
*/
create or replace function pgfresh_engine.add_warning(
  p_code text, p_subject text, p_message text, p_next_step text, p_count int)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '5ms'
as $$
begin
  insert into pgfresh.warnings (code, subject, message, next_step, first_at, last_at, count)
  values (p_code, p_subject, p_message, p_next_step, pgfresh.clock(), pgfresh.clock(), p_count)
  on conflict do nothing;
exception when lock_not_available then
  null;
end
$$;
comment on function pgfresh_engine.add_warning(text, text, text, text, int) is
  'Adds the row of a warning, unless another transaction adds it. A part of warn.';

create or replace function pgfresh_engine.warn(
  p_code text, p_subject text, p_message text, p_next_step text, p_count int default 1)
returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if coalesce(p_code, '') !~ '^[a-z][a-z0-9_]{0,59}$' or p_subject is null or p_message is null
      or p_next_step is null or p_count is null or p_count < 1 then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      'a warning needs a code in lower case, a subject, a message, a next step and a count',
      'Pass all of them.');
  end if;
  -- Viewers warn too, in transactions of their own, which may stay open: so this never waits for a row.
  perform from pgfresh.warnings where code = p_code and subject = left(p_subject, 200) for no key update skip locked;
  if found then
    update pgfresh.warnings
    set message = left(p_message, 1000), next_step = left(p_next_step, 1000), last_at = pgfresh.clock(),
      count = count + p_count
    where code = p_code and subject = left(p_subject, 200);
  elsif not exists (select from pgfresh.warnings where code = p_code and subject = left(p_subject, 200)) then
    perform pgfresh_engine.add_warning(p_code, left(p_subject, 200), left(p_message, 1000), left(p_next_step, 1000),
      p_count);
  end if;
end
$$;
comment on function pgfresh_engine.warn(text, text, text, text, int) is
  'Records a warning: one row for each code and subject, with a count. Leaves it out if another open transaction '
  'records the same one.';
grant execute on function pgfresh_engine.warn(text, text, text, text, int) to
  pgfresh_worker, pgfresh_planner, pgfresh_gateway, pgfresh_monitor, pgfresh_operator;

create or replace function pgfresh_engine.clear_old_warnings(p_keep interval default '30 days') returns int
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_count int;
begin
  perform pgfresh_engine.require_range('p_keep in seconds', extract(epoch from p_keep), 60, 315360000);
  delete from pgfresh.warnings
  where ctid = any (array(
    select ctid from pgfresh.warnings where last_at < (select pgfresh.clock()) - p_keep for update skip locked));
  get diagnostics v_count = row_count;
  return v_count;
end
$$;
comment on function pgfresh_engine.clear_old_warnings(interval) is
  'Forgets warnings that have not come again for so long. Returns how many.';
grant execute on function pgfresh_engine.clear_old_warnings(interval) to pgfresh_planner;
