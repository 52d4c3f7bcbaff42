create or replace function pgfresh_engine.open_refresh_cycle(p_data_type text, p_slot timestamptz) returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_type pgfresh.data_type_registry := pgfresh_engine.require_type(p_data_type);
  v_now timestamptz := pgfresh.clock();
  v_stands_at text;
begin
  perform pgfresh_engine.require_primary();
  if v_type.refresh_strategy <> 'scheduled' then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      format('%s is refreshed on demand, not by a schedule', p_data_type),
      'Set its refresh_strategy, refresh_schedule and key_table.');
  end if;
  if p_slot is null or not isfinite(p_slot) then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      format('p_slot must be a time, got %s', coalesce(p_slot::text, 'null')),
      'Pass the time of the schedule that has come.');
  end if;
  if exists (select from pgfresh_engine.refresh_cycle where type_id = v_type.type_id and slot = p_slot) then
    return false;
  end if;
  -- Cycles of an unavailable source must not pile up: each would fetch every key again when it comes back.
  update pgfresh_engine.refresh_cycle
  set done_at = v_now, next_slot = p_slot
  where type_id = v_type.type_id and done_at is null
  returning case when not walked then cursor_key end into v_stands_at;
  insert into pgfresh_engine.refresh_cycle (type_id, slot, opened_at, cursor_key, last_key, wraps)
  values (v_type.type_id, p_slot, v_now, v_stands_at, v_stands_at, v_stands_at is not null)
  on conflict do nothing;
  return found;
end
$$;
comment on function pgfresh_engine.open_refresh_cycle(text, timestamptz) is
  'Opens a round over all keys of a scheduled data type, one for each slot. '
  'A round that is still open is taken over: the new one goes on where it stood, once around. '
  'Returns whether it is new.';
grant execute on function pgfresh_engine.open_refresh_cycle(text, timestamptz) to pgfresh_planner;
