create or replace function pgfresh_engine.source_for(p_source_id int, p_known jsonb) returns pgfresh.sources
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_source pgfresh.sources;
  v_known int;
begin
  select * into v_source from pgfresh.sources as s where s.id = p_source_id;
  v_known := (p_known ->> v_source.name)::int;
  if v_known < v_source.api_keys then
    v_source.api_keys := v_known;
    v_source.denied_keys := array(select k from unnest(v_source.denied_keys) as k where k <= v_known);
  end if;
  return v_source;
end
$$;
comment on function pgfresh_engine.source_for(int, jsonb) is
  'A source as a worker may use it: with no more API keys than the worker knows of. A part of claim_jobs.';

/*
  Picks from one source with limits only what all of them allow: its breaker, its running jobs, its rate, its bytes.
  Claims of one source are serialised, so concurrent claims cannot exceed a limit; a claim that finds the source locked
  skips it.

  Turns rotate in rounds of four calls, stored with the source: the first goes to the viewed pair that has been ready
  longest, two in all to viewed pairs without a row, the others by band. A turn without a job goes to the others. So a
  quarter of the calls goes by age alone, and a viewed pair waits no longer than all those before it take at a quarter
  of the rate. Background work comes last.
*/
create or replace function pgfresh_engine.pick_limited(
  p_source_id int, p_limit int, p_types int[], p_max_bytes bigint, p_known jsonb)
returns table (id bigint, source_id int, band smallint, seq bigint, bytes bigint)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_now timestamptz := pgfresh.clock();
  v_source pgfresh.sources;
  v_state pgfresh_engine.source_state;
  -- How many jobs may be taken, and after how many of them background work has to wait.
  v_room int := p_limit;
  v_viewed_only int := p_limit;
  v_running int;
  v_busy text[] := '{}';
  v_lowest smallint := -1;
  v_probes int := 0;
  -- Bytes: the budget, what may be used, and how much of that by jobs other than the one that bytes are saved for.
  v_budget record;
  v_metered boolean := false;
  v_left bigint := 9223372036854775807;
  v_small bigint := 9223372036854775807;
  v_saved record;
  v_saved_at int;
  -- The lanes in which jobs are ready.
  v_types int[] := p_types; v_lanes smallint[]; v_from bigint[]; v_since timestamptz[]; v_heads bigint[];
  -- The jobs that may be taken, best band and then oldest first.
  v_ids bigint[]; v_bands smallint[]; v_seqs bigint[]; v_sizes bigint[]; v_keys text[]; v_missing boolean[];
  v_kinds int[];
  -- Data types whose jobs have unknown sizes, and the size assumed for each.
  v_guessed int[]; v_guesses bigint[];
  -- Indexes of these jobs in four lists: by age, without a row, with a row, background; the position and end of each.
  v_lists int[]; v_at int[]; v_end int[];
  v_order int[];
  v_list int;
  v_place int;
  v_first int := 1;
  v_taken boolean[];
  v_picked int[] := '{}';
  v_firsts int[] := '{}';
  v_locked bigint[];
begin
  if not pg_try_advisory_xact_lock(7042, p_source_id) then
    return;
  end if;
  v_source := pgfresh_engine.source_for(p_source_id, p_known);
  if v_source.breaker_opened_at is not null then
    -- Read again, because an end may just have reopened the source. Ends also lock this row before the state.
    perform from pgfresh.sources as s where s.id = p_source_id for no key update skip locked;
    if not found then
      return;
    end if;
    v_source := pgfresh_engine.source_for(p_source_id, p_known);
    if exists (
      select from pgfresh_engine.job as j
      where j.id = v_source.probe_job and j.state = 'x' and j.attempt = v_source.probe_attempt
    ) then
      return;
    end if;
    v_room := 1;
  end if;
  if v_source.paused_until > v_now then
    return;
  end if;
  -- Rejected keys that may be tried again, each by one job.
  if v_source.denied_keys <> '{}' then
    select count(*)
    into v_probes
    from pgfresh_engine.breaker as b
    where b.source_id = p_source_id and b.api_key = any (v_source.denied_keys) and b.paused_until <= v_now;
    if cardinality(v_source.denied_keys) >= v_source.api_keys then
      v_room := least(v_room, v_probes);
    end if;
  end if;
  if v_source.max_concurrency is not null or v_source.one_key_at_a_time then
    delete from pgfresh_engine.source_place as p
    where p.source_id = p_source_id
      and (select true from pgfresh_engine.job as j where j.id = p.job_id and j.state = 'x'
        and j.attempt = p.attempt) is null;
    select count(*), case when v_source.one_key_at_a_time then coalesce(array_agg(p.key), '{}') else '{}' end
    into v_running, v_busy
    from pgfresh_engine.source_place as p
    where p.source_id = p_source_id;
    v_room := least(v_room, v_source.max_concurrency - v_running);
  end if;
  if v_source.rate_limit_per_minute is not null then
    select least(v_room, c.viewed + v_probes), greatest(c.background, v_probes)
    into v_room, v_viewed_only
    from pgfresh_engine.free_calls(v_source, v_now) as c;
    v_lowest := case when v_viewed_only > 0 then -1 else 0 end;
  end if;
  if v_room < 1 then
    return;
  end if;
  select * into v_state from pgfresh_engine.source_state as s where s.source_id = p_source_id for update skip locked;
  if not found then
    return;
  end if;

  if v_source.quota_bytes is not null then
    select * into v_budget from pgfresh_engine.source_budget(p_source_id);
    v_metered := true;
    v_left := v_budget.free;
    if v_budget.used + v_budget.reserved >= v_budget.cap then
      return;
    end if;
    -- From 90 % of the cap on, background work waits.
    if v_budget.used + v_budget.reserved >= v_budget.cap * 0.9 then
      v_lowest := 0;
    end if;
    -- Bytes may be saved for a data type that this worker does not serve.
    v_types := array(select r.type_id from pgfresh.data_type_registry as r where r.source_id = p_source_id);
  end if;
  select array_agg(l.type_id), array_agg(l.lane), array_agg(l.seq), array_agg(l.since), array_agg(l.bytes)
  into v_types, v_lanes, v_from, v_since, v_heads
  from pgfresh_engine.ready_lanes(v_types) as l
  where 20 - (l.lane & 31) >= v_lowest;
  if v_types is null then
    return;
  end if;

  /*
    Once the oldest ready job has waited ten minutes, half of the pace since then is saved for it, up to its size, so
    that small jobs cannot starve it. Not if it is larger than the cap, or if no worker serves it.
  */
  v_small := v_left;
  if v_metered and v_now - interval '10 minutes' > any (v_since) then
    select l.seq, l.bytes,
      floor(least(v_budget.depth, l.bytes, v_budget.rate / 2 * extract(epoch from v_now - l.since)))::bigint as saved
    into v_saved
    from unnest(v_types, v_from, v_since, v_heads) as l(type_id, seq, since, bytes)
    join pgfresh.data_type_registry as r on r.type_id = l.type_id
    where l.since < v_now - interval '10 minutes' and l.bytes <= v_budget.cap
      and not exists (select from pgfresh_engine.breaker as b where b.type_id = l.type_id and b.paused_until > v_now)
      and pgfresh_engine.worker_obstacle(r, v_now) is null
    order by l.seq
    limit 1;
    if found then
      v_small := greatest(0, v_left - v_saved.saved);
      v_saved_at := 0;
    end if;
  end if;

  with ready as (
    select j.*, row_number() over (
        -- The job with the fewest attempts is the probe: a pair that is always refused must not keep the source closed.
        order by case when v_source.breaker_opened_at is null then 0 else j.attempt end, j.band desc, j.seq
      )::int as place
    from unnest(v_types, v_lanes, v_from) as l(type_id, lane, seq)
    cross join lateral (
      select j.id, j.type_id, j.band, j.seq, j.est_bytes, j.key, j.missing, j.attempt
      from pgfresh_engine.job as j
      where j.state = 'r' and j.type_id = l.type_id and j.lane = l.lane and j.seq >= l.seq
        and (p_max_bytes is null or j.est_bytes <= p_max_bytes) and j.key <> all (v_busy)
      order by j.seq
      -- More than there is room for, because some may have more attempts than others, or be too large.
      limit v_room + case
        when v_source.breaker_opened_at is not null then 50
        when v_metered then greatest(10, 50 / cardinality(v_lanes))
        else 0
      end
    ) as j
    where l.type_id = any (p_types)
  )
  select array_agg(r.id order by r.place), array_agg(r.band order by r.place), array_agg(r.seq order by r.place),
    array_agg(r.est_bytes order by r.place), array_agg(r.key order by r.place), array_agg(r.missing order by r.place),
    array_agg(r.type_id order by r.place),
    coalesce(
      array_agg(r.place order by case when v_source.breaker_opened_at is null then r.seq else r.place end)
        filter (where r.band > case when v_source.breaker_opened_at is null then 0 else -1 end), '{}')
      || coalesce(array_agg(r.place order by r.place) filter (where r.band >= 0 and r.missing), '{}')
      || coalesce(array_agg(r.place order by r.place) filter (where r.band >= 0 and not r.missing), '{}')
      || coalesce(array_agg(r.place order by r.place) filter (where r.band < 0), '{}'),
    array[count(*) filter (where r.band > case when v_source.breaker_opened_at is null then 0 else -1 end),
      count(*) filter (where r.band >= 0 and r.missing),
      count(*) filter (where r.band >= 0 and not r.missing), count(*) filter (where r.band < 0)]
  into v_ids, v_bands, v_seqs, v_sizes, v_keys, v_missing, v_kinds, v_lists, v_end
  from ready as r;
  if v_ids is null then
    return;
  end if;
  v_end := array[v_end[1], v_end[1] + v_end[2], v_end[1] + v_end[2] + v_end[3],
    v_end[1] + v_end[2] + v_end[3] + v_end[4]];
  v_at := array[1, v_end[1] + 1, v_end[2] + 1, v_end[3] + 1];
  v_taken := array_fill(false, array[cardinality(v_ids)]);
  if v_metered and 0 = any (v_sizes) then
    -- Sizes may have been measured since these jobs were enqueued. Once per data type; a join would do it per job.
    select array_agg(t.type_id), array_agg(pgfresh_engine.unknown_size(p_source_id, t.type_id, v_budget.depth))
    into v_guessed, v_guesses
    from (select distinct s.type_id from unnest(v_sizes, v_kinds) as s(bytes, type_id) where s.bytes = 0) as t;
    v_sizes := array(
      select case when s.bytes > 0 then s.bytes else v_guesses[array_position(v_guessed, s.type_id)] end
      from unnest(v_sizes, v_kinds) with ordinality as s(bytes, type_id, place)
      order by s.place);
  end if;
  if v_saved_at = 0 then
    v_saved_at := array_position(v_seqs, v_saved.seq);
    if v_sizes[v_saved_at] <= v_left
        or (v_budget.level = 0 and v_sizes[v_saved_at] <= v_budget.cap - v_budget.used - v_budget.reserved) then
      v_small := least(v_small, greatest(0, v_left - v_sizes[v_saved_at]));
    else
      v_saved_at := null;
    end if;
  end if;

  if cardinality(v_lanes) = 1 and not v_metered and not v_source.one_key_at_a_time then
    -- A single lane has no shares.
    v_picked := array(
      select p
      from generate_series(1, least(
        v_room, cardinality(v_ids), case when v_bands[1] = -1 then v_viewed_only end)) as p);
    v_firsts := v_picked;
    v_room := 0;
  end if;
  while cardinality(v_picked) < v_room loop
    v_place := null;
    if v_saved_at is not null then
      v_place := v_saved_at;
      v_saved_at := null;
    else
      v_order := case
        when v_state.turn = 0 or v_source.breaker_opened_at is not null then array[1, 2, 3, 4]
        when v_state.missing_turns < 2 then array[2, 3, 4]
        else array[3, 2, 4]
      end;
      foreach v_list in array v_order loop
        exit when v_list = 4 and cardinality(v_picked) >= v_viewed_only;
        while v_at[v_list] <= v_end[v_list] loop
          v_place := v_lists[v_at[v_list]];
          v_at[v_list] := v_at[v_list] + 1;
          exit when not v_taken[v_place] and (not v_metered or v_sizes[v_place] <= v_small)
            and v_keys[v_place] <> all (v_busy);
          v_place := null;
        end loop;
        exit when v_place is not null;
      end loop;
      exit when v_place is null;
      if v_metered then
        v_small := v_small - v_sizes[v_place];
      end if;
    end if;
    v_taken[v_place] := true;
    v_picked := v_picked || v_place;
    -- Among jobs of other sources it takes the position of the best remaining job.
    v_firsts := v_firsts || least(v_first, v_place);
    while v_taken[v_first] loop
      v_first := v_first + 1;
    end loop;
    if v_source.one_key_at_a_time then
      v_busy := v_busy || v_keys[v_place];
    end if;
    v_state.missing_turns := case when v_state.turn = 3 then 0 else v_state.missing_turns + v_missing[v_place]::int end;
    v_state.turn := (v_state.turn + 1) % 4;
  end loop;

  -- No other claim takes jobs of this source now, but a cancel or a raise may have locked one.
  v_locked := array(
    select j.id
    from pgfresh_engine.job as j
    where j.id = any (array(select v_ids[p] from unnest(v_picked) as p)) and j.state = 'r'
    order by j.id for update skip locked);
  return query
  select v_ids[p.place], p_source_id, v_bands[p.best], v_seqs[p.best],
    case when v_metered then v_sizes[p.place] else 0 end
  from unnest(v_picked, v_firsts) with ordinality as p(place, best, turn)
  join unnest(v_locked) as l(id) on l.id = v_ids[p.place]
  order by p.turn;
end
$$;
comment on function pgfresh_engine.pick_limited(int, int, int[], bigint, jsonb) is
  'Locks those ready jobs of a source with limits, or with an open breaker, that may run now, in the order in which it '
  'is their turn; band and seq are those of the best job at that turn. A part of claim_jobs.';

/*
  Takes what the picked jobs of a limited source need: calls, bytes, concurrency and the probe. Returns the jobs for
  which a call was left.

  A job that needs several calls gets all of them at its claim, from one API key: one at a time, jobs of a source with a
  low rate would take each other's second call, and none would ever finish.
*/
create or replace function pgfresh_engine.take_limits(
  p_source_id int, p_ids bigint[], p_bytes bigint[], p_known jsonb, p_now timestamptz)
returns table (id bigint, api_key smallint, reserved bigint)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_source pgfresh.sources := pgfresh_engine.source_for(p_source_id, p_known);
  v_ids bigint[] := p_ids;
  v_keys smallint[];
  v_probes smallint[] := '{}';
  v_usable smallint;
  -- The number of calls of each job that does not probe a rejected key.
  v_calls int[];
  v_count int;
  v_reserved bigint[];
  v_state pgfresh_engine.source_state;
  v_missing boolean;
begin
  if v_source.denied_keys <> '{}' then
    -- Rejected API keys that may be tried again, each by one job.
    for v_usable in
      select b.api_key
      from pgfresh_engine.breaker as b
      where b.source_id = p_source_id and b.api_key = any (v_source.denied_keys) and b.paused_until <= p_now
      order by b.api_key
      limit cardinality(v_ids) for update skip locked
    loop
      continue when v_source.rate_limit_per_minute is not null
        and cardinality(pgfresh_engine.take_slots(v_source, v_usable, 1, p_now)) = 0;
      update pgfresh_engine.breaker as b
      set paused_until = p_now + interval '1 minute'
      where b.source_id = p_source_id and b.api_key = v_usable;
      v_probes := v_probes || v_usable;
      -- A single job if the source has no other key.
      exit when v_source.breaker_opened_at is not null;
    end loop;
  end if;
  if v_source.rate_limit_per_minute is not null then
    v_keys := v_probes;
    v_calls := array(
      select least(greatest(j.needs, round(coalesce(s.calls, 1))::int), v_source.rate_limit_per_minute)
      from unnest(v_ids) with ordinality as t(id, place)
      join pgfresh_engine.job as j on j.id = t.id
      left join pgfresh_engine.type_stats as s on s.type_id = j.type_id
      where t.place > cardinality(v_probes)
      order by t.place);
    if 1 < any (v_calls) then
      foreach v_count in array v_calls loop
        v_usable := (
          select k.api_key
          from generate_series(1, v_source.api_keys) as k(api_key)
          left join (
            select s.api_key, sum(s.calls)::int as calls
            from pgfresh_engine.rate_slot as s
            where s.source_id = p_source_id and s.free_at > p_now
            group by s.api_key
          ) as u on u.api_key = k.api_key
          where k.api_key <> all (v_source.denied_keys)
            and coalesce(u.calls, 0) + v_count <= v_source.rate_limit_per_minute
          order by coalesce(u.calls, 0), k.api_key
          limit 1
        );
        -- Jobs behind one that needs more calls than are left wait with it, or it would wait for ever.
        exit when v_usable is null;
        perform pgfresh_engine.take_slots(v_source, v_usable, 1, p_now);
        if v_count > 1 then
          perform pgfresh_engine.take_slots(
            v_source, v_usable, v_count - 1, p_now, pgfresh_engine.calls_until(p_now));
        end if;
        v_keys := v_keys || v_usable;
      end loop;
    else
      -- May return fewer than were picked: the limit may have changed.
      v_keys := v_keys || pgfresh_engine.take_slots(v_source, null, cardinality(v_calls), p_now);
    end if;
    v_ids := v_ids[1:cardinality(v_keys)];
    update pgfresh_engine.job as j
    set calls_left = c.calls - 1
    from unnest(v_ids[cardinality(v_probes) + 1:], v_calls) as c(id, calls)
    where j.id = any (v_ids) and j.id = c.id and c.calls > 1;
  elsif v_source.denied_keys <> '{}' then
    v_usable := (
      select min(k) from generate_series(1, v_source.api_keys) as k where k <> all (v_source.denied_keys)
    );
    v_ids := case when v_usable is null then v_ids[1:cardinality(v_probes)] else v_ids end;
    v_keys := v_probes || array_fill(v_usable, array[cardinality(v_ids) - cardinality(v_probes)]);
  end if;
  if v_ids = '{}' then
    return;
  end if;
  -- Stored with each job, so that setting or removing a quota meanwhile does not change its reservation.
  v_reserved := case
    when v_source.quota_bytes is null then array_fill(0::bigint, array[cardinality(v_ids)])
    else p_bytes[1:cardinality(v_ids)]
  end;
  select * into v_state from pgfresh_engine.source_state as s where s.source_id = p_source_id;
  -- The same round of four calls as in pick_limited.
  for v_missing in
    select j.missing
    from unnest(v_ids) with ordinality as t(id, place)
    join pgfresh_engine.job as j on j.id = t.id
    order by t.place
  loop
    v_state.missing_turns := case when v_state.turn = 3 then 0 else v_state.missing_turns + v_missing::int end;
    v_state.turn := (v_state.turn + 1) % 4;
  end loop;
  if v_source.quota_bytes is not null then
    select b.level into v_state.level from pgfresh_engine.source_budget(p_source_id) as b;
    v_state.level := v_state.level + (select sum(bytes) from unnest(v_reserved) as bytes);
    v_state.level_at := p_now;
    v_state.reserved := v_state.reserved + (select sum(bytes) from unnest(v_reserved) as bytes);
  end if;
  update pgfresh_engine.source_state as s
  set turn = v_state.turn, missing_turns = v_state.missing_turns,
    reserved = v_state.reserved, level = v_state.level, level_at = v_state.level_at
  where s.source_id = p_source_id;
  if v_source.max_concurrency is not null or v_source.one_key_at_a_time then
    insert into pgfresh_engine.source_place as p (source_id, job_id, attempt, key)
    select p_source_id, j.id, j.attempt + 1, j.key from pgfresh_engine.job as j where j.id = any (v_ids)
    on conflict (source_id, job_id) do update set attempt = excluded.attempt;
  end if;
  -- A breaker that has opened since the jobs were picked has paused the source.
  if v_source.breaker_opened_at is not null and (v_source.paused_until > p_now) is not true then
    update pgfresh.sources as s
    set probe_job = v_ids[1],
      probe_attempt = (select j.attempt + 1 from pgfresh_engine.job as j where j.id = v_ids[1])
    where s.id = p_source_id;
  end if;
  return query select t.id, t.api_key, t.reserved from unnest(v_ids, v_keys, v_reserved) as t(id, api_key, reserved);
end
$$;
comment on function pgfresh_engine.take_limits(int, bigint[], bigint[], jsonb, timestamptz) is
  'Takes calls, bytes, places and turns for jobs of one source that are being claimed. A part of claim_jobs.';
