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
  -- Rounds of a source that is away must not pile up: each would ask for every key again when it comes back.
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

/*
  One key that is no key of the type, or a pair that somebody has locked, costs only itself: the others are queued, and
  the caller learns which pairs to ask for again. A key without an answer was being added by somebody else.
*/
create or replace function pgfresh_engine.queue_cycle_keys(
  p_type pgfresh.data_type_registry, p_again text[], p_keys text[], out queued int, out busy text[], out refused int)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_good text[] := array(
    select j.key
    from pgfresh_engine.canonical_keys(p_type, p_keys, true) as j
    where j.code is null and j.key = p_keys[j.place]
    order by j.place);
  v_answered text[];
begin
  if p_again <> '{}' then
    v_good := v_good || array(
      select j.key
      from pgfresh_engine.canonical_keys(p_type, p_again) as j
      where j.code is null and j.key = p_again[j.place]
      order by j.place);
  end if;
  refused := cardinality(p_again || p_keys) - cardinality(v_good);
  -- Nobody waits for it: -1, whatever the registry says.
  select count(*) filter (where q.result = 'queued'), coalesce(array_agg(q.key) filter (where q.result <> 'busy'), '{}')
  into queued, v_answered
  from pgfresh_engine.queue_refreshes(p_type.data_type, v_good, -1) as q;
  busy := array(select k from unnest(v_good) as k except select k from unnest(v_answered) as k);
end
$$;
comment on function pgfresh_engine.queue_cycle_keys(pgfresh.data_type_registry, text[], text[]) is
  'Queues scheduled refreshes of those keys that the data type can have, of some that were busy and of some that were '
  'just read from its key table: how many were queued, which pairs were locked, and how many keys were none. '
  'A part of queue_scheduled_refreshes.';
