create or replace function pgfresh.open_refresh_cycle(p_data_type text, p_slot timestamptz) returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_type pgfresh.data_type_registry := pgfresh.require_type(p_data_type);
  v_now timestamptz := pgfresh.clock();
  v_stands_at text;
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
  if exists (select from pgfresh.refresh_cycle where type_id = v_type.type_id and slot = p_slot) then
    return false;
  end if;
  -- Rounds of a source that is away must not pile up: each would ask for every key again when it comes back.
  update pgfresh.refresh_cycle
  set done_at = v_now, next_slot = p_slot
  where type_id = v_type.type_id and done_at is null
  returning case when not walked then cursor_key end into v_stands_at;
  insert into pgfresh.refresh_cycle (type_id, slot, opened_at, cursor_key, last_key, wraps)
  values (v_type.type_id, p_slot, v_now, v_stands_at, v_stands_at, v_stands_at is not null)
  on conflict do nothing;
  return found;
end
$$;
comment on function pgfresh.open_refresh_cycle(text, timestamptz) is
  'Opens a round over all keys of a scheduled data type, one for each slot. '
  'A round that is still open is taken over: the new one goes on where it stood, once around. '
  'Returns whether it is new.';

/*
  One key that is no key of the type, or a pair that somebody has locked, costs only itself: the others are queued, and
  the caller learns which pairs to ask for again. A key without an answer was being added by somebody else.
*/
create or replace function pgfresh.queue_cycle_keys(
  p_type pgfresh.data_type_registry, p_again text[], p_keys text[], out queued int, out busy text[], out refused int)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_good text[] := array(
    select j.key
    from pgfresh.judge_keys(p_type, p_keys, true) as j
    where j.code is null and j.key = p_keys[j.place]
    order by j.place);
  v_answered text[];
begin
  if p_again <> '{}' then
    v_good := v_good || array(
      select j.key
      from pgfresh.judge_keys(p_type, p_again) as j
      where j.code is null and j.key = p_again[j.place]
      order by j.place);
  end if;
  refused := cardinality(p_again || p_keys) - cardinality(v_good);
  -- Nobody waits for it: -1, whatever the registry says.
  select count(*) filter (where q.result = 'queued'), coalesce(array_agg(q.key) filter (where q.result <> 'busy'), '{}')
  into queued, v_answered
  from pgfresh.queue_refreshes(p_type.data_type, v_good, -1) as q;
  busy := array(select k from unnest(v_good) as k except select k from unnest(v_answered) as k);
end
$$;
comment on function pgfresh.queue_cycle_keys(pgfresh.data_type_registry, text[], text[]) is
  'Queues scheduled refreshes of those keys that the data type can have, of some that were busy and of some that were '
  'just read from its key table: how many were queued, which pairs were locked, and how many keys were none. '
  'A part of queue_scheduled_refreshes.';

create or replace function pgfresh.queue_scheduled_refreshes(
  p_max_depth int default 1000, p_data_types text[] default null)
returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  -- The walk waits while more pairs than these are locked.
  c_most_busy constant int := 10000;
  v_began timestamptz := clock_timestamp();
  v_now timestamptz := pgfresh.clock();
  v_types int[];
  v_cycle record;
  -- Keys that this call may still walk over, and data types that have yet to get their part of them.
  v_left int := p_max_depth;
  v_to_come int;
  v_turn int;
  -- Of its turn: keys to walk over, and busy ones to ask for again.
  v_steps int;
  v_repeats int;
  v_keys text[];
  v_again text[];
  v_at_end boolean;
  v_walked boolean;
  v_done boolean;
  v_result record;
  v_busy text[];
  v_counts jsonb := jsonb_build_object(
    'queued', 0, 'merged', 0, 'busy', 0, 'skipped', 0, 'failed', 0, 'finished', 0);
begin
  perform pgfresh.require_primary();
  perform pgfresh.require_range('p_max_depth', p_max_depth, 1, 1000);
  if not pg_try_advisory_xact_lock(7041, 3) then
    return jsonb_build_object('skipped', 'locked');
  end if;
  -- In a random order: where not every type fits into one call, each is as likely to have its turn.
  v_types := array(
    select c.type_id
    from pgfresh.refresh_cycle as c
    where c.done_at is null and (p_data_types is null
      or c.type_id in (select r.type_id from pgfresh.data_type_registry as r where r.data_type = any (p_data_types)))
    order by random()
    limit 100);
  if cardinality(v_types) = 0 then
    return v_counts;
  end if;
  perform pgfresh.limit_lock_waits();
  for v_cycle in
    select open.*, count(*) filter (where obstacle is null and room > 0) over () as types
    from (
      select t.place, c.type_id, c.slot, c.cursor_key, c.last_key, c.wraps, c.opened_at, c.busy_keys,
        c.walked, r as registered, res.keys_sql,
        o.reason as obstacle,
        -- The depth is per source, and each of its types has a part of it that no other type can fill.
        ceil(p_max_depth::float8
          / greatest(count(*) filter (where o.reason is null) over (partition by r.source_id), 1))::int - (
          select count(*)
          from (
            select from pgfresh.job as j
            where j.source_id = r.source_id and j.type_id = c.type_id and j.band = -1 and j.state <> 'x'
            limit p_max_depth
          ) as waiting
        ) as room
      from unnest(v_types) with ordinality as t(type_id, place)
      join pgfresh.refresh_cycle as c on c.type_id = t.type_id and c.done_at is null
      -- A type may have lost its schedule meanwhile.
      join pgfresh.data_type_registry as r on r.type_id = c.type_id and r.refresh_strategy = 'scheduled'
      join pgfresh.type_resolution as res on res.type_id = c.type_id
      left join pgfresh.planning_obstacles(v_types, v_now) as o on o.type_id = c.type_id
    ) as open
    order by open.place
  loop
    if v_cycle.obstacle is not null then
      v_counts := pgfresh.add_counts(v_counts, jsonb_build_object('skipped', 1, 'skipped_' || v_cycle.obstacle, 1));
      continue;
    end if;
    continue when v_cycle.room <= 0;
    v_to_come := coalesce(v_to_come, v_cycle.types);
    v_turn := least(v_cycle.room, ceil(v_left / v_to_come::float8));
    v_to_come := v_to_come - 1;
    continue when v_turn <= 0;
    -- Busy ones at most in half of the turn, as long as others have not had theirs.
    v_repeats := least(cardinality(v_cycle.busy_keys), case when v_cycle.walked then v_turn else v_turn / 2 end);
    v_steps := case
      when v_cycle.walked or cardinality(v_cycle.busy_keys) >= c_most_busy then 0
      else v_turn - v_repeats
    end;
    begin
      v_keys := '{}';
      v_at_end := v_cycle.walked;
      if v_steps > 0 then
        v_keys := array(select k from pgfresh.ask_next_keys(v_cycle.keys_sql, v_cycle.cursor_key, v_steps) as k);
        v_at_end := cardinality(v_keys) < v_steps;
      end if;
      v_walked := v_at_end and not v_cycle.wraps;
      v_left := v_left - cardinality(v_keys) - v_repeats;
      if not v_cycle.wraps and v_cycle.last_key = any (v_keys) then
        v_keys := v_keys[:array_position(v_keys, v_cycle.last_key)];
        v_walked := true;
      end if;
      -- Whoever had the pair locked may have refreshed it.
      v_again := array(
        select k
        from unnest(v_cycle.busy_keys[:v_repeats]) as k
        where not exists (
          select from pgfresh.pairs as p
          where p.type_id = v_cycle.type_id and p.key = k collate "C" and p.ok_at >= v_cycle.opened_at));
      v_result := pgfresh.queue_cycle_keys(v_cycle.registered, v_again, v_keys);
    exception
    when lock_not_available then
      perform pgfresh.note_type_timeout(v_cycle.type_id, 'keys', sqlerrm);
      v_counts := pgfresh.add_counts(v_counts, jsonb_build_object('failed', 1));
      continue;
    when others then
      perform pgfresh.warn('keys_raised', (v_cycle.registered).data_type, sqlerrm,
        'Correct key_table and its columns.');
      v_counts := pgfresh.add_counts(v_counts, jsonb_build_object('failed', 1));
      continue;
    end;
    if v_result.refused > 0 then
      perform pgfresh.warn('keys_raised', (v_cycle.registered).data_type,
        'key_table has keys that the data type cannot have, or that are not written as it writes them',
        'Correct them; the others had their turn.', v_result.refused);
    end if;
    v_busy := v_cycle.busy_keys[v_repeats + 1:] || v_result.busy;
    v_done := v_walked and v_busy = '{}';
    v_counts := pgfresh.add_counts(v_counts, jsonb_build_object(
      'queued', v_result.queued, 'busy', cardinality(v_busy),
      'merged', cardinality(v_again || v_keys) - v_result.queued - v_result.refused - cardinality(v_result.busy),
      'failed', v_result.refused, 'finished', v_done::int
    ));
    update pgfresh.refresh_cycle
    set cursor_key = case when not v_at_end or v_walked then coalesce(v_keys[cardinality(v_keys)], cursor_key) end,
      wraps = wraps and not v_at_end, queued = queued + v_result.queued, busy_keys = v_busy, walked = v_walked,
      done_at = case when v_done then v_now end
    where type_id = v_cycle.type_id and slot = v_cycle.slot and done_at is null;
  end loop;
  delete from pgfresh.refresh_cycle where done_at < v_now - interval '30 days';
  if (v_counts ->> 'queued')::int > 0 then
    perform pgfresh.record_run('schedule', date_trunc('minute', v_now),
      1000 * extract(epoch from clock_timestamp() - v_began), v_counts);
  end if;
  return v_counts;
end
$$;
comment on function pgfresh.queue_scheduled_refreshes(int, text[]) is
  'Walks on through the open cycles of scheduled data types, at most p_max_depth keys a call, in turns, '
  'as long as fewer than p_max_depth (at most 1000) scheduled jobs of a source wait, which its data types share. '
  'Always with priority -1. Keys that the data type cannot have are skipped with a warning, '
  'and pairs that are locked are asked for again within the round. Returns counts.';
