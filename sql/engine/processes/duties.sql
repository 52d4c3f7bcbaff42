create or replace function pgfresh_engine.hold_duty(p_name text, p_holder uuid, p_lease interval) returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if coalesce(p_name, '') !~ '^[a-z][a-z0-9_]{0,59}$' or p_holder is null then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      'a duty needs a name in lower case and a holder',
      'Pass a uuid of your own making, the same for each renewal.');
  end if;
  perform pgfresh_engine.require_range('p_lease in seconds', extract(epoch from p_lease), 1, 3600);
  insert into pgfresh_engine.duty as d (name, holder, lease_until)
  values (p_name, p_holder, pgfresh.clock() + p_lease)
  on conflict (name) do update set holder = excluded.holder, lease_until = excluded.lease_until
    where d.holder = excluded.holder or d.lease_until <= pgfresh.clock();
  return found;
end
$$;
comment on function pgfresh_engine.hold_duty(text, uuid, interval) is
  'Takes or renews a duty that only one process at a time may do. False while another one has it.';
grant execute on function pgfresh_engine.hold_duty(text, uuid, interval) to pgfresh_gateway, pgfresh_planner;

create or replace function pgfresh_engine.release_duty(p_name text, p_holder uuid) returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  delete from pgfresh_engine.duty where name = p_name and holder = p_holder;
  return found;
end
$$;
comment on function pgfresh_engine.release_duty(text, uuid) is 'Gives a duty back. Returns whether it was held.';
grant execute on function pgfresh_engine.release_duty(text, uuid) to pgfresh_gateway, pgfresh_planner;
