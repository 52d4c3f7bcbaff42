do $$ begin
  if to_regtype('pgfresh.claimed_job') is null then
    create type pgfresh.claimed_job as (
      id bigint, attempt int, type_id int, key text, source_id int, band smallint, lane smallint, priority int,
      est_bytes bigint, retries int, metadata jsonb,
      use_by timestamptz, api_key smallint, definition bigint);
  end if;
end $$;
comment on type pgfresh.claimed_job is
  'A job as claim_jobs returns it. Id and attempt together are the token by which it is ended. '
  'Of a source with a rate, it has one call, to be sent by use_by with that API key, or not at all. '
  'What was fetched under another definition than this one is not written.';

/*
  The lanes of these data types in which jobs are ready, each with its first job: a loose scan of the ready index, one
  probe for each lane that exists. Where the caller remembers a floor, the lane is entered there, so that entries which
  are dead but cannot be removed yet, because of an old snapshot, are not walked over again by every claim; the gaps
  between the lanes with floors are scanned loosely.
*/
create or replace function pgfresh.ready_lanes(
  p_types int[], p_floor_types int[] default '{}', p_floor_lanes smallint[] default '{}',
  p_floor_ids bigint[] default '{}')
returns table (type_id int, lane smallint, seq bigint, since timestamptz, bytes bigint)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  if cardinality(p_floor_types) = 0 then
    return query
    with recursive found as (
      select t.type_id, j.lane, j.seq, j.run_at, j.est_bytes
      from unnest(p_types) as t(type_id)
      cross join lateral (
        select j.lane, j.seq, j.run_at, j.est_bytes
        from pgfresh.job as j
        where j.state = 'r' and j.type_id = t.type_id
        order by j.lane, j.seq
        limit 1
      ) as j
      union all
      select f.type_id, j.lane, j.seq, j.run_at, j.est_bytes
      from found as f
      cross join lateral (
        select j.lane, j.seq, j.run_at, j.est_bytes
        from pgfresh.job as j
        where j.state = 'r' and j.type_id = f.type_id and j.lane > f.lane
        order by j.lane, j.seq
        limit 1
      ) as j
    )
    select * from found;
    return;
  end if;
  return query
  with recursive floors as materialized (
    select f.type_id, f.lane, f.seq
    from unnest(p_floor_types, p_floor_lanes, p_floor_ids) as f(type_id, lane, seq)
    where f.type_id = any (p_types)
  ), gaps as materialized (
    select f.type_id, coalesce(lag(f.lane) over (partition by f.type_id order by f.lane), -1::smallint) as above, f.lane
    from floors as f
    union all
    select t.type_id, coalesce((select max(f.lane) from floors as f where f.type_id = t.type_id), -1::smallint), 127
    from unnest(p_types) as t(type_id)
  ), found as (
    select g.type_id, j.lane, j.seq, j.run_at, j.est_bytes, g.lane as below
    from gaps as g
    cross join lateral (
      select j.lane, j.seq, j.run_at, j.est_bytes
      from pgfresh.job as j
      where j.state = 'r' and j.type_id = g.type_id and j.lane > g.above and j.lane < g.lane
      order by j.lane, j.seq
      limit 1
    ) as j
    union all
    select f.type_id, j.lane, j.seq, j.run_at, j.est_bytes, f.below
    from found as f
    cross join lateral (
      select j.lane, j.seq, j.run_at, j.est_bytes
      from pgfresh.job as j
      where j.state = 'r' and j.type_id = f.type_id and j.lane > f.lane and j.lane < f.below
      order by j.lane, j.seq
      limit 1
    ) as j
  )
  select f.type_id, f.lane, f.seq, f.run_at, f.est_bytes from found as f
  union all
  select f.type_id, f.lane, j.seq, j.run_at, j.est_bytes
  from floors as f
  cross join lateral (
    select j.seq, j.run_at, j.est_bytes
    from pgfresh.job as j
    where j.state = 'r' and j.type_id = f.type_id and j.lane = f.lane and j.seq >= f.seq
    order by j.seq
    limit 1
  ) as j;
end
$$;
comment on function pgfresh.ready_lanes(int[], int[], smallint[], bigint[]) is
  'The lanes of these data types that have ready jobs: the first job of each, since when it has been ready, '
  'and its bytes. A part of claim_jobs.';

/*
  Of several lanes the oldest jobs, without locking more than are taken: first it is found out how far the oldest reach,
  and then each lane is locked up to there. Only where others have locked some of those is more locked than taken.
*/
create or replace function pgfresh.lock_ready(
  p_types int[], p_lanes smallint[], p_from bigint[], p_limit int, p_max_bytes bigint, p_taken bigint[])
returns bigint[]
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_ids bigint[];
  v_last bigint;
  v_there int;
begin
  if cardinality(p_types) = 1 then
    return array(
      select j.id
      from pgfresh.job as j
      where j.state = 'r' and j.type_id = p_types[1] and j.lane = p_lanes[1] and j.seq >= p_from[1]
        and (p_max_bytes is null or j.est_bytes <= p_max_bytes) and j.id <> all (p_taken)
      order by j.seq
      limit p_limit for update skip locked);
  end if;
  select max(oldest.seq), count(*)
  into v_last, v_there
  from (
    select j.seq
    from unnest(p_types, p_lanes, p_from) as l(type_id, lane, seq)
    cross join lateral (
      select j.seq
      from pgfresh.job as j
      where j.state = 'r' and j.type_id = l.type_id and j.lane = l.lane and j.seq >= l.seq
        and (p_max_bytes is null or j.est_bytes <= p_max_bytes) and j.id <> all (p_taken)
      order by j.seq
      limit p_limit
    ) as j
    order by j.seq
    limit p_limit
  ) as oldest;
  v_ids := array(
    select j.id
    from unnest(p_types, p_lanes, p_from) as l(type_id, lane, seq)
    cross join lateral (
      select j.id
      from pgfresh.job as j
      where j.state = 'r' and j.type_id = l.type_id and j.lane = l.lane and j.seq between l.seq and v_last
        and (p_max_bytes is null or j.est_bytes <= p_max_bytes) and j.id <> all (p_taken)
      order by j.seq
      limit p_limit for update skip locked
    ) as j
    limit p_limit);
  if v_there = p_limit and cardinality(v_ids) < p_limit then
    v_ids := v_ids || array(
      select j.id
      from unnest(p_types, p_lanes, p_from) as l(type_id, lane, seq)
      cross join lateral (
        select j.id, j.seq
        from pgfresh.job as j
        where j.state = 'r' and j.type_id = l.type_id and j.lane = l.lane and j.seq > greatest(l.seq - 1, v_last)
          and (p_max_bytes is null or j.est_bytes <= p_max_bytes) and j.id <> all (p_taken)
        order by j.seq
        limit p_limit - cardinality(v_ids) for update skip locked
      ) as j
      order by j.seq
      limit p_limit - cardinality(v_ids));
  end if;
  return v_ids;
end
$$;
comment on function pgfresh.lock_ready(int[], smallint[], bigint[], int, bigint, bigint[]) is
  'Locks the oldest ready jobs of these lanes, each from an id on, except those that are taken. A part of claim_jobs.';

/*
  Picks from sources without limits: by band, the oldest first, whatever their source. What they wait for, if they wait,
  are workers. Then nothing is written down about whose turn it is, so each claim keeps the shares by itself: a quarter
  of it for what has been ready longest, once that is more than ten seconds, and half for viewed pairs without a row.
  What is left of a share is a chance, so claims of one job keep them too.
*/
create or replace function pgfresh.pick_free(
  p_limit int, p_types int[], p_max_bytes bigint, p_floor_types int[], p_floor_lanes smallint[], p_floor_ids bigint[],
  out ids bigint[], out shared int, out first_band smallint)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_types int[];
  v_lanes smallint[];
  v_from bigint[];
  -- Whether one has waited for more than ten seconds, and whether viewed pairs with and without a row wait.
  v_waits boolean;
  v_both boolean;
  v_chance double precision;
  v_group record;
  v_most int;
begin
  ids := '{}';
  shared := 0;
  select array_agg(l.type_id), array_agg(l.lane), array_agg(l.seq),
    min(l.since) filter (where l.lane & 31 < 20) < pgfresh.clock() - interval '10 seconds',
    bool_or(l.lane & 32 = 0) filter (where l.lane & 31 < 21)
      and bool_or(l.lane & 32 <> 0) filter (where l.lane & 31 < 21),
    20 - min(l.lane & 31)
  into v_types, v_lanes, v_from, v_waits, v_both, first_band
  from pgfresh.ready_lanes(p_types, p_floor_types, p_floor_lanes, p_floor_ids) as l;
  if v_types is null then
    return;
  end if;
  if cardinality(v_types) = 1 then
    ids := pgfresh.lock_ready(v_types, v_lanes, v_from, p_limit, p_max_bytes, '{}');
    return;
  end if;
  if v_waits or v_both then
    v_chance := random();
  end if;
  v_most := case when v_waits then floor(p_limit / 4.0 + v_chance) else 0 end;
  if v_most > 0 then
    select pgfresh.lock_ready(
      array_agg(l.type_id), array_agg(l.lane), array_agg(l.seq), v_most, p_max_bytes, '{}')
    into ids
    from unnest(v_types, v_lanes, v_from) as l(type_id, lane, seq)
    where l.lane & 31 < 20;
  end if;
  if v_both then
    v_most := least(p_limit, cardinality(ids) + floor(p_limit / 2.0 + v_chance)::int
      - (select count(*)::int from pgfresh.job as j where j.id = any (ids) and j.missing));
    for v_group in
      select array_agg(l.type_id) as types, array_agg(l.lane) as lanes, array_agg(l.seq) as from_ids
      from unnest(v_types, v_lanes, v_from) as l(type_id, lane, seq)
      where l.lane & 32 = 0 and l.lane & 31 < 21
      group by l.lane & 31
      order by l.lane & 31
    loop
      exit when cardinality(ids) >= v_most;
      ids := ids || pgfresh.lock_ready(
        v_group.types, v_group.lanes, v_group.from_ids, v_most - cardinality(ids), p_max_bytes, ids);
    end loop;
  end if;
  shared := cardinality(ids);
  -- The rest by band; where both wait, what is missing has had its share, and background work is last.
  for v_group in
    select array_agg(l.type_id) as types, array_agg(l.lane) as lanes, array_agg(l.seq) as from_ids
    from unnest(v_types, v_lanes, v_from) as l(type_id, lane, seq)
    group by l.lane & 31, v_both and l.lane & 32 = 0
    order by l.lane & 31 = 21, v_both and l.lane & 32 = 0, l.lane & 31
  loop
    exit when cardinality(ids) >= p_limit;
    ids := ids || pgfresh.lock_ready(
      v_group.types, v_group.lanes, v_group.from_ids, p_limit - cardinality(ids), p_max_bytes, ids);
  end loop;
end
$$;
comment on function pgfresh.pick_free(int, int[], bigint, int[], smallint[], bigint[]) is
  'Locks the next ready jobs of sources without limits. The first ones, shared, have a share of the claim; '
  'first_band is the highest band in which any is ready. A part of claim_jobs.';

/*
  Picks from one source with limits only what all of them allow: its breaker, its running jobs, its rate, its bytes.
  Claims of one source count one after the other, so two cannot overshoot together; one that comes meanwhile leaves the
  source to the other.

  Whose turn it is goes round, four calls a round, and is kept with the source: the first goes to the viewed pair that
  has been ready longest, and two in all to viewed pairs without a row, the others by band. Where one of these has no
  job, the others take its turn. So of any calls of the source a quarter goes by age alone, and no viewed pair waits for
  longer than all that wait before it take at a quarter of the rate. Background work is last.
*/
create or replace function pgfresh.pick_limited(p_source_id int, p_limit int, p_types int[], p_max_bytes bigint)
returns table (id bigint, source_id int, band smallint, seq bigint, bytes bigint)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_now timestamptz := pgfresh.clock();
  v_source pgfresh.sources;
  v_state pgfresh.source_state;
  -- How many jobs may be taken, and after how many nobody's work waits.
  v_room int := p_limit;
  v_viewed_only int := p_limit;
  v_running int;
  v_busy text[] := '{}';
  v_lowest smallint := -1;
  v_probes int := 0;
  -- Bytes: the budget; what may be used, and what of it by jobs for which nothing is saved.
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
  -- Their places in four lists: by age, without a row, with one, background. And where each list is, and ends.
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
  select * into v_source from pgfresh.sources as s where s.id = p_source_id;
  if v_source.breaker_opened_at is not null then
    -- Once more: an end may just have opened it again. And before its state is locked, as ends do it.
    select * into v_source from pgfresh.sources as s where s.id = p_source_id for no key update skip locked;
    if not found or exists (
      select from pgfresh.job as j
      where j.id = v_source.probe_job and j.state = 'x' and j.attempt = v_source.probe_attempt
    ) then
      return;
    end if;
    v_room := 1;
  end if;
  if v_source.paused_until > v_now then
    return;
  end if;
  -- Keys that were refused and may be tried again, each by one job.
  if v_source.denied_keys <> '{}' then
    select count(*)
    into v_probes
    from pgfresh.breaker as b
    where b.source_id = p_source_id and b.api_key = any (v_source.denied_keys) and b.paused_until <= v_now;
    if cardinality(v_source.denied_keys) >= v_source.api_keys then
      v_room := least(v_room, v_probes);
    end if;
  end if;
  if v_source.max_concurrency is not null or v_source.one_key_at_a_time then
    delete from pgfresh.source_place as p
    where p.source_id = p_source_id
      and (select true from pgfresh.job as j where j.id = p.job_id and j.state = 'x' and j.attempt = p.attempt) is null;
    select count(*), case when v_source.one_key_at_a_time then coalesce(array_agg(p.key), '{}') else '{}' end
    into v_running, v_busy
    from pgfresh.source_place as p
    where p.source_id = p_source_id;
    v_room := least(v_room, v_source.max_concurrency - v_running);
  end if;
  if v_source.rate_limit_per_minute is not null then
    select least(v_room, c.viewed + v_probes), greatest(c.background, v_probes)
    into v_room, v_viewed_only
    from pgfresh.calls_now(v_source, v_now) as c;
    v_lowest := case when v_viewed_only > 0 then -1 else 0 end;
  end if;
  if v_room < 1 then
    return;
  end if;
  select * into v_state from pgfresh.source_state as s where s.source_id = p_source_id for update skip locked;
  if not found then
    return;
  end if;

  if v_source.quota_bytes is not null then
    select * into v_budget from pgfresh.source_budget(p_source_id);
    v_metered := true;
    v_left := v_budget.free;
    if v_budget.used + v_budget.reserved >= v_budget.cap then
      return;
    end if;
    -- From 90 % of the cap on, nobody's work waits.
    if v_budget.used + v_budget.reserved >= v_budget.cap * 0.9 then
      v_lowest := 0;
    end if;
    -- Also what this worker does not serve may be what bytes are saved for.
    v_types := array(select r.type_id from pgfresh.data_type_registry as r where r.source_id = p_source_id);
  end if;
  select array_agg(l.type_id), array_agg(l.lane), array_agg(l.seq), array_agg(l.since), array_agg(l.bytes)
  into v_types, v_lanes, v_from, v_since, v_heads
  from pgfresh.ready_lanes(v_types) as l
  where 20 - (l.lane & 31) >= v_lowest;
  if v_types is null then
    return;
  end if;

  /*
    For the job that has been ready longest, once that is ten minutes, half of the pace since then is saved, up to its
    size, so that small ones cannot starve it. Not if it is larger than the cap, or if no worker takes it.
  */
  v_small := v_left;
  if v_metered and v_now - interval '10 minutes' > any (v_since) then
    select l.seq, l.bytes,
      floor(least(v_budget.depth, l.bytes, v_budget.rate / 2 * extract(epoch from v_now - l.since)))::bigint as saved
    into v_saved
    from unnest(v_types, v_from, v_since, v_heads) as l(type_id, seq, since, bytes)
    join pgfresh.data_type_registry as r on r.type_id = l.type_id
    where l.since < v_now - interval '10 minutes' and l.bytes <= v_budget.cap
      and not exists (select from pgfresh.breaker as b where b.type_id = l.type_id and b.paused_until > v_now)
      and pgfresh.worker_obstacle(r, v_now) is null
    order by l.seq
    limit 1;
    if found then
      v_small := greatest(0, v_left - v_saved.saved);
      v_saved_at := 0;
    end if;
  end if;

  with ready as (
    select j.*, row_number() over (
        -- What was tried least tries for all: a pair that is always refused must not keep the source from the others.
        order by case when v_source.breaker_opened_at is null then 0 else j.attempt end, j.band desc, j.seq
      )::int as place
    from unnest(v_types, v_lanes, v_from) as l(type_id, lane, seq)
    cross join lateral (
      select j.id, j.type_id, j.band, j.seq, j.est_bytes, j.key, j.missing, j.attempt
      from pgfresh.job as j
      where j.state = 'r' and j.type_id = l.type_id and j.lane = l.lane and j.seq >= l.seq
        and (p_max_bytes is null or j.est_bytes <= p_max_bytes) and j.key <> all (v_busy)
      order by j.seq
      -- More than there is room for, where some may be too large, or were tried more often than others.
      limit v_room + case when v_metered or v_source.breaker_opened_at is not null then 50 else 0 end
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
    -- Measured now, and not when they were enqueued: what was measured meanwhile is a better guess.
    v_sizes := array(
      select case when s.bytes > 0 then s.bytes else u.bytes end
      from unnest(v_sizes, v_kinds) with ordinality as s(bytes, type_id, place)
      join (
        select t.type_id, pgfresh.unknown_size(p_source_id, t.type_id, v_budget.depth) as bytes
        from (select distinct type_id from unnest(v_kinds) as type_id) as t
      ) as u on u.type_id = s.type_id
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
    -- It stands for the best that is left, when this is put in one order with other sources.
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

  -- Others claim nothing of this source now, but who cancels or raises a job may have it.
  v_locked := array(
    select j.id
    from pgfresh.job as j
    where j.id = any (array(select v_ids[p] from unnest(v_picked) as p)) and j.state = 'r'
    order by j.id for update skip locked);
  return query
  select v_ids[p.place], p_source_id, v_bands[p.best], v_seqs[p.best],
    case when v_metered then v_sizes[p.place] else 0 end
  from unnest(v_picked, v_firsts) with ordinality as p(place, best, turn)
  where v_ids[p.place] = any (v_locked)
  order by p.turn;
end
$$;
comment on function pgfresh.pick_limited(int, int, int[], bigint) is
  'Locks those ready jobs of a source with limits, or with an open breaker, that may run now, in the order in which it '
  'is their turn; band and seq are those of the best job at that turn. A part of claim_jobs.';

/*
  The number of an SQL client's name. It is written once, and then once an hour, and waits for nobody: who does not see
  the name that another one is just writing writes it a second time.
*/
create or replace function pgfresh.client_number(p_name text) returns bigint
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := pgfresh.clock();
  v_name text := coalesce(p_name,
    coalesce(nullif(current_setting('application_name', true), ''), session_user) || ':' || pg_backend_pid());
  v_client pgfresh.worker_name;
begin
  select *
  into v_client
  from pgfresh.worker_name
  where name = v_name and not has_lease
  order by last_seen_at desc
  limit 1;
  if not found then
    insert into pgfresh.worker_name (name, has_lease, last_seen_at)
    values (v_name, false, v_now)
    returning * into v_client;
  elsif v_client.last_seen_at < v_now - interval '1 hour' then
    update pgfresh.worker_name set last_seen_at = v_now
    where id = (select n.id from pgfresh.worker_name as n where n.id = v_client.id for update skip locked);
  end if;
  return v_client.id;
end
$$;
comment on function pgfresh.client_number(text) is
  'The number under which a client that speaks only SQL claims: that of its name, '
  'or of its application_name (else its user) and process id. A part of claim_jobs.';

-- Locked until this claim ends, so nobody else tries them meanwhile.
create or replace function pgfresh.type_probes(p_left_alone int[], p_types int[], p_now timestamptz) returns int[]
language sql
set search_path = pg_catalog, pg_temp
as $$
  select coalesce(array_agg(b.type_id), '{}')
  from (
    select b.type_id
    from pgfresh.breaker as b
    where b.type_id = any (p_left_alone) and b.paused_until <= p_now and (p_types is null or b.type_id = any (p_types))
    for update skip locked
  ) as b
$$;
comment on function pgfresh.type_probes(int[], int[], timestamptz) is
  'Data types that were left alone and may be tried again, each by one job. A part of claim_jobs.';

create or replace function pgfresh.one_of_each(p_ids bigint[], p_types int[]) returns bigint[]
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select coalesce(array_agg(c.id order by c.place), '{}')
  from (
    select c.id, c.place, j.type_id,
      -- First one whose last answer was not the same trouble: a pair that always has it must not answer for all.
      row_number() over (
        partition by j.type_id
        order by p.fails > 0 or (p.outcome = 'older_source') is true, c.place
      ) as turn
    from unnest(p_ids) with ordinality as c(id, place)
    join pgfresh.job as j on j.id = c.id
    join pgfresh.pairs as p on p.type_id = j.type_id and p.key = j.key
  ) as c
  where c.turn = 1 or c.type_id <> all (p_types)
$$;
comment on function pgfresh.one_of_each(bigint[], int[]) is
  'These jobs, but of each of these data types only one, if there is one whose pair had no trouble last. '
  'A part of claim_jobs.';

create or replace function pgfresh.claim_jobs(
  p_worker bigint, p_request uuid, p_limit int, p_sources int[] default null, p_types int[] default null,
  p_max_bytes bigint default null, p_floor_types int[] default '{}', p_floor_lanes smallint[] default '{}',
  p_floor_ids bigint[] default '{}', p_alone boolean default false, p_client text default null)
returns setof pgfresh.claimed_job
language plpgsql
set search_path = pg_catalog, pg_temp
-- Planned once, with all that it calls: for a claim of one job, planning would take longer than claiming.
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
-- Before version 18 a scan that is switched off but cannot be avoided costs so much that it is compiled.
set jit = off
as $$
declare
  v_now timestamptz := pgfresh.clock();
  v_idle boolean;
  v_due boolean;
  v_stopped boolean;
  -- The data types that may be claimed, with the source and the definition of each; those of sources without limits,
  -- and the other sources.
  v_types int[];
  v_sources_of int[];
  v_definitions bigint[];
  v_free int[];
  v_limited int[];
  v_picked record;
  v_ids bigint[];
  v_bytes bigint[];
  -- Of each that is to be claimed, its source; and of those that take a call with them, its API key.
  v_sources int[];
  v_source int;
  v_rated int[] := '{}';
  v_taken record;
  v_called bigint[];
  v_api_keys smallint[];
  v_reserved bigint[];
  v_use_by timestamptz;
  -- Data types that are left alone, and those of them of which one job may try now.
  v_left_alone int[];
  v_probed int[] := '{}';
  v_floors int := cardinality(p_floor_types);
  v_holder bigint := p_worker;
begin
  -- One comparison in the usual case;
  -- which refusal it is, and whether several floors are one too many, is asked only then.
  if (p_limit between 1 and 10000 and p_request is not null and coalesce(p_max_bytes, 0) >= 0 and v_floors <= 1
      and v_floors = cardinality(p_floor_lanes) and v_floors = cardinality(p_floor_ids)) is not true then
    perform pgfresh.require_range('p_limit', p_limit, 1, 10000);
    if p_request is null then
      perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
        'p_request must not be null',
        'Pass a uuid of your own making, a new one for each claim.');
    end if;
    if p_max_bytes < 0 then
      perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
        format('p_max_bytes must not be negative, got %s', p_max_bytes),
        'Leave it out to claim jobs of every size.');
    end if;
    -- A place named twice would be looked at twice, and its jobs be claimed twice.
    if (v_floors = cardinality(p_floor_lanes) and v_floors = cardinality(p_floor_ids)
        and v_floors = (
          select count(distinct (f.type_id, f.lane))
          from unnest(p_floor_types, p_floor_lanes) as f(type_id, lane)
        )) is not true then
      perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
        'the floors must be three arrays of one length that name each data type and lane once',
        'Leave them out, or pass one data type, lane and id for each.');
    end if;
  end if;

  -- All that a claim has to know before it looks for jobs, in one statement,
  -- because each costs more to begin than to run.
  select
    (select w.idle from pgfresh.worker as w where w.id = p_worker and w.lease_until > v_now),
    (select true from pgfresh.job as j where j.state = 'w' and j.run_at <= v_now order by j.run_at limit 1),
    (select true from pgfresh.spending_stop),
    array(select b.type_id from pgfresh.breaker as b where b.type_id is not null and b.opened_at is not null),
    t.types, t.sources, t.definitions, t.free, t.limited
  into v_idle, v_due, v_stopped, v_left_alone, v_types, v_sources_of, v_definitions, v_free, v_limited
  from (
    select array_agg(r.type_id) as types, array_agg(r.source_id) as sources, array_agg(r.definition) as definitions,
      array_agg(r.type_id) filter (where not g.guarded) as free,
      array_agg(distinct r.source_id) filter (where g.guarded) as limited
    from pgfresh.data_type_registry as r
    join pgfresh.sources as s on s.id = r.source_id
    cross join lateral (
      select s.limited or s.breaker_opened_at is not null or s.denied_keys <> '{}' as guarded
    ) as g
    where s.enabled and (s.paused_until is null or s.paused_until <= v_now)
      and (p_sources is null or s.id = any (p_sources)) and (p_types is null or r.type_id = any (p_types))
  ) as t;
  if p_client is not null then
    perform pgfresh.require_worker_name('the name of a worker', p_client);
  end if;
  if p_worker is not null and v_idle is null then
    perform pgfresh.refuse('PGF_LEASE_LOST',
      format('worker %s has no lease', p_worker),
      'Register again with register_worker and forget what was claimed.');
  end if;
  if v_due then
    perform pgfresh.promote_jobs(v_now);
  end if;
  if v_left_alone <> '{}' then
    v_probed := pgfresh.type_probes(v_left_alone, p_types, v_now);
    v_left_alone := array(select t from unnest(v_left_alone) as t where t <> all (v_probed));
    v_free := array(select t from unnest(v_free) as t where t <> all (v_left_alone));
  end if;

  if v_stopped or v_types is null then
    v_ids := '{}';
  elsif v_limited is null then
    select p.ids into v_ids
    from pgfresh.pick_free(p_limit, v_free, p_max_bytes, p_floor_types, p_floor_lanes, p_floor_ids) as p;
  else
    -- What was picked from each is put in one order; what is too much is let go when this transaction ends.
    select * into v_picked
    from pgfresh.pick_free(p_limit, v_free, p_max_bytes, p_floor_types, p_floor_lanes, p_floor_ids);
    with picked as (
      select j.id, v_sources_of[array_position(v_types, j.type_id)] as source_id,
        case when p.place <= v_picked.shared then v_picked.first_band else j.band end as band,
        case when p.place <= v_picked.shared then 0 else j.seq end as seq, 0::bigint as bytes, p.place
      from unnest(v_picked.ids) with ordinality as p(id, place)
      join pgfresh.job as j on j.id = p.id
      union all
      select picked.*
      from unnest(v_limited) as s(id)
      cross join lateral pgfresh.pick_limited(
        s.id, p_limit,
        array(
          select t.type_id
          from unnest(v_types, v_sources_of) as t(type_id, source_id)
          where t.source_id = s.id and t.type_id <> all (v_left_alone)),
        p_max_bytes) with ordinality as picked
    ), chosen as (
      select * from picked order by band desc, seq, place limit p_limit
    )
    select coalesce(array_agg(c.id order by c.band desc, c.seq, c.place), '{}'),
      coalesce(array_agg(c.source_id order by c.band desc, c.seq, c.place), '{}'),
      coalesce(array_agg(c.bytes order by c.band desc, c.seq, c.place), '{}')
    into v_ids, v_sources, v_bytes
    from chosen as c;
    if v_probed <> '{}' then
      select coalesce(array_agg(c.id order by c.place), '{}'), coalesce(array_agg(c.source_id order by c.place), '{}'),
        coalesce(array_agg(c.bytes order by c.place), '{}')
      into v_ids, v_sources, v_bytes
      from unnest(v_ids, v_sources, v_bytes) with ordinality as c(id, source_id, bytes, place)
      where c.id = any (pgfresh.one_of_each(v_ids, v_probed));
    end if;
    foreach v_source in array v_limited loop
      continue when not v_source = any (v_sources);
      select array_agg(t.id) as ids, array_agg(t.api_key) as api_keys, array_agg(t.reserved) as reserved
      into v_taken
      from (
        select array_agg(c.id order by c.place) as ids, array_agg(c.bytes order by c.place) as bytes
        from unnest(v_ids, v_sources, v_bytes) with ordinality as c(id, source_id, bytes, place)
        where c.source_id = v_source
      ) as c
      cross join lateral pgfresh.take_limits(v_source, c.ids, c.bytes, v_now) as t;
      select array_agg(c.id), array_agg(c.source_id), array_agg(c.bytes)
      into v_ids, v_sources, v_bytes
      from unnest(v_ids, v_sources, v_bytes) as c(id, source_id, bytes)
      where c.source_id <> v_source or c.id = any (v_taken.ids);
      v_called := v_called || v_taken.ids;
      v_api_keys := v_api_keys || v_taken.api_keys;
      v_reserved := v_reserved || v_taken.reserved;
    end loop;
    v_ids := coalesce(v_ids, '{}');
    v_use_by := pgfresh.use_by_of(v_now);
    v_rated := array(
      select s.id from pgfresh.sources as s where s.id = any (v_limited) and s.rate_limit_per_minute is not null);
  end if;
  if v_probed <> '{}' then
    v_ids := pgfresh.one_of_each(v_ids, v_probed);
    -- Only those of which there is a job to try with: the others may still be tried, and planned for.
    update pgfresh.breaker as b
    set paused_until = v_now + interval '1 minute'
    where b.type_id = any (v_probed) and b.type_id in (select j.type_id from pgfresh.job as j where j.id = any (v_ids));
  end if;

  -- Who got less than it asked for will soon wait for more, and wants to be woken.
  if v_idle <> (cardinality(v_ids) < p_limit) then
    update pgfresh.worker as w set idle = not v_idle where w.id = p_worker;
  end if;
  if v_ids = '{}' then
    return;
  end if;
  -- A claim that a crash of the database forgets has cost nothing where nothing is metered.
  -- The job is ready again, and who had it is fenced off: his claim has another name.
  if p_alone and (v_sources && v_limited) is not true then
    perform set_config('synchronous_commit', 'off', true);
  end if;
  if p_worker is null then
    v_holder := pgfresh.client_number(p_client);
  end if;
  return query
    with named as (
      insert into pgfresh.claim (request, worker, claimed_at, job_ids)
      values (p_request, p_worker, v_now, v_ids)
      on conflict do nothing
      returning true as new
    )
    update pgfresh.job as j
    set state = 'x', worker = v_holder, request = p_request, claimed_at = v_now, progress_at = v_now,
      attempt = j.attempt + 1,
      -- That by whose limits it was picked, whatever its data type's source was when it was enqueued.
      source_id = v_sources_of[array_position(v_types, j.type_id)],
      reserved = coalesce(v_reserved[array_position(v_called, j.id)], 0),
      -- What was not known is now what is reserved for it.
      est_bytes = case
        when j.est_bytes = 0 then coalesce(v_reserved[array_position(v_called, j.id)], 0) else j.est_bytes
      end,
      definition = v_definitions[array_position(v_types, j.type_id)],
      api_key = v_api_keys[array_position(v_called, j.id)]
    where j.id = any (v_ids) and (select named.new from named)
    returning j.id, j.attempt, j.type_id, j.key, j.source_id, j.band, j.lane, j.priority,
      j.est_bytes, j.retries::int, j.metadata,
      case when j.source_id = any (v_rated) then v_use_by end,
      j.api_key, j.definition;
  if not found then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      format('p_request %s has named a claim before', p_request),
      'Pass a uuid of your own making, a new one for each claim.');
  end if;
end
$$;
comment on function pgfresh.claim_jobs(
  bigint, uuid, int, int[], int[], bigint, int[], smallint[], bigint[], boolean, text) is
  'Claims up to p_limit ready jobs for a registered worker, best band first, '
  'and only what all limits of their sources allow. '
  'p_request is a uuid made by the caller: it names the claim in heartbeat_worker. '
  'The floors are a hint: per data type and lane, the first id worth looking at. '
  'p_alone says that the transaction is this call alone; '
  'then a claim of sources without limits does not wait for the disk, '
  'and its jobs must be ended with p_request as a part of their token. '
  'p_client is the name of a client that has no number and no lease: p_worker is null then.';

create or replace function pgfresh.promote_jobs(p_now timestamptz) returns int
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_count int;
begin
  -- It has waited since now, so it stands behind those that were ready before.
  update pgfresh.job
  set state = 'r', seq = nextval('pgfresh.job_id')
  where id = any (array(
    select id from pgfresh.job where state = 'w' and run_at <= p_now order by run_at limit 500 for update skip locked));
  get diagnostics v_count = row_count;
  return v_count;
end
$$;
comment on function pgfresh.promote_jobs(timestamptz) is
  'Makes jobs ready whose time has come, at most 500 a call. Every claim does it.';

create or replace function pgfresh.get_queue_batch(
  p_batch_size int default 50, p_sources text[] default null, p_data_types text[] default null,
  p_max_bytes bigint default null, p_worker text default null)
returns jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_sources int[];
  v_types int[];
begin
  perform pgfresh.require_range('p_batch_size', p_batch_size, 1, 10000);
  if p_sources is not null then
    select coalesce(array_agg((pgfresh.require_source(name)).id), '{}')
    into v_sources
    from unnest(p_sources) as name;
  end if;
  if p_data_types is not null then
    select coalesce(array_agg((pgfresh.require_type(name)).type_id), '{}')
    into v_types
    from unnest(p_data_types) as name;
  end if;
  return (
    select coalesce(
      jsonb_agg(
        jsonb_build_object(
          'id', c.id, 'attempt', c.attempt, 'key', c.key, 'data_type', r.data_type, 'priority', c.priority,
          'estimated_size', c.est_bytes, 'retry_count', c.retries, 'metadata', c.metadata,
          'use_by', c.use_by, 'api_key', c.api_key)
        order by c.band desc, c.id),
      '[]')
    from pgfresh.claim_jobs(
      null, gen_random_uuid(), p_batch_size, v_sources, v_types, p_max_bytes, p_client => p_worker) as c
    join pgfresh.data_type_registry as r on r.type_id = c.type_id
  );
end
$$;
comment on function pgfresh.get_queue_batch(int, text[], text[], bigint, text) is
  'Claims a batch for a client that speaks only SQL and returns it as a JSON array. '
  'Pass each job''s id and attempt to complete_queue_job or fail_queue_job; '
  'a job that is silent for its maximum (300 s by default) is taken back unless heartbeat_jobs reports progress. '
  'p_worker is the name under which the jobs are shown (locked_by); '
  'without it, the application_name (else the user) and the process id of the connection.';

create or replace function pgfresh.claim_next_pending_job(
  p_worker text default null, p_sources text[] default null, p_data_types text[] default null)
returns jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  perform pgfresh.recover_silent_jobs(10);
  return pgfresh.get_queue_batch(1, p_sources, p_data_types, p_worker => p_worker) -> 0;
end
$$;
comment on function pgfresh.claim_next_pending_job(text, text[], text[]) is
  'Claims one job under a name, after taking back some that have been silent for their maximum. '
  'Returns it as get_queue_batch does, or null.';
