create or replace function pgfresh.open_refresh_cycle(p_data_type text, p_slot timestamptz) returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_type pgfresh.data_type_registry := pgfresh.require_type(p_data_type);
begin
  perform pgfresh.require_primary();
  if v_type.refresh_strategy <> 'scheduled' then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      format('%s is refreshed on demand, not by a schedule', p_data_type),
      'Set its refresh_strategy, refresh_schedule and key_table.');
  end if;
  if p_slot is null or not isfinite(p_slot) then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      format('p_slot must be a time, got %s', coalesce(p_slot::text, 'null')),
      'Pass the time of the schedule that has come.');
  end if;
  insert into pgfresh.refresh_cycle (type_id, slot, opened_at)
  values (v_type.type_id, p_slot, pgfresh.clock())
  on conflict do nothing;
  return found;
end
$$;
comment on function pgfresh.open_refresh_cycle(text, timestamptz) is
  'Opens a round over all keys of a scheduled data type, one for each slot. Returns whether it is new.';

create or replace function pgfresh.queue_scheduled_refreshes(p_max_depth int default 1000) returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_began timestamptz := clock_timestamp();
  v_now timestamptz := pgfresh.clock();
  v_room int;
  v_cycle record;
  v_obstacle record;
  v_keys text[];
  v_good text[];
  v_counts jsonb := jsonb_build_object('queued', 0, 'merged', 0, 'skipped', 0, 'failed', 0, 'finished', 0);
  v_queued int;
begin
  perform pgfresh.require_primary();
  perform pgfresh.require_range('p_max_depth', p_max_depth, 1, 1000);
  if not pg_try_advisory_xact_lock(7041, 3) then
    return jsonb_build_object('skipped', 'locked');
  end if;
  if not exists (select from pgfresh.refresh_cycle where done_at is null) then
    return v_counts;
  end if;
  v_room := p_max_depth - (
    select count(*)
    from (select from pgfresh.job where state in ('r', 'w') limit p_max_depth) as waiting
  );
  for v_cycle in
    select c.type_id, c.slot, c.cursor_key, r as registered, res.keys_sql
    from pgfresh.refresh_cycle as c
    join pgfresh.data_type_registry as r on r.type_id = c.type_id
    join pgfresh.type_resolution as res on res.type_id = c.type_id
    where c.done_at is null
    order by c.slot, c.type_id
    limit 100
  loop
    exit when v_room <= 0;
    select * into v_obstacle from pgfresh.planning_obstacles(array[v_cycle.type_id], v_now);
    if found then
      v_counts := pgfresh.add_counts(v_counts, jsonb_build_object('skipped', 1, 'skipped_' || v_obstacle.reason, 1));
      continue;
    end if;
    begin
      v_keys := array(select k from pgfresh.ask_next_keys(v_cycle.keys_sql, v_cycle.cursor_key, v_room) as k);
      v_good := array(
        select k
        from unnest(v_keys) as k
        where k <> '' and octet_length(k) <= 512 and k !~ '[[:cntrl:]]'
          and k = case (v_cycle.registered).normalise when 'upper' then upper(k) when 'lower' then lower(k) else k end
          and length(k) - length(replace(k, '|', '')) >= cardinality((v_cycle.registered).key_columns) - 1
      );
      -- Nobody waits for it: -1, whatever the registry says.
      select count(*) filter (where q.result = 'queued')
      into v_queued
      from pgfresh.queue_refreshes((v_cycle.registered).data_type, v_good, -1) as q;
    exception when others then
      perform pgfresh.warn('keys_raised', (v_cycle.registered).data_type, sqlerrm,
        'Correct key_table and its columns.');
      v_counts := pgfresh.add_counts(v_counts, jsonb_build_object('failed', 1));
      continue;
    end;
    if cardinality(v_good) < cardinality(v_keys) then
      perform pgfresh.warn('keys_raised', (v_cycle.registered).data_type,
        'key_table has keys that are empty, too long or not written as the data type writes them',
        'Correct them; the others had their turn.', cardinality(v_keys) - cardinality(v_good));
    end if;
    v_counts := pgfresh.add_counts(v_counts, jsonb_build_object(
      'queued', v_queued, 'merged', cardinality(v_good) - v_queued,
      'failed', cardinality(v_keys) - cardinality(v_good), 'finished', (cardinality(v_keys) < v_room)::int
    ));
    update pgfresh.refresh_cycle
    set cursor_key = coalesce(v_keys[cardinality(v_keys)], cursor_key), queued = queued + v_queued,
      done_at = case when cardinality(v_keys) < v_room then v_now end
    where type_id = v_cycle.type_id and slot = v_cycle.slot;
    v_room := v_room - cardinality(v_keys);
  end loop;
  delete from pgfresh.refresh_cycle where done_at < v_now - interval '30 days';
  if (v_counts ->> 'queued')::int > 0 then
    perform pgfresh.record_run('schedule', date_trunc('minute', v_now),
      1000 * extract(epoch from clock_timestamp() - v_began), v_counts);
  end if;
  return v_counts;
end
$$;
comment on function pgfresh.queue_scheduled_refreshes(int) is
  'Walks on through the open cycles of scheduled data types, key by key, '
  'as long as fewer than p_max_depth (at most 1000) jobs wait. Always with priority -1. Returns counts.';
