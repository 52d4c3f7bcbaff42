/*
  The lanes of these data types with ready jobs, each with its first job: a loose scan of the ready index, one probe
  per existing lane. If the caller remembers a floor, the scan of that lane starts there, so that claims do not walk
  again over dead entries that an old snapshot keeps from being removed; the gaps between the lanes with floors are
  scanned loosely.
*/
create or replace function pgfresh_engine.ready_lanes(
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
        from pgfresh_engine.job as j
        where j.state = 'r' and j.type_id = t.type_id
        order by j.lane, j.seq
        limit 1
      ) as j
      union all
      select f.type_id, j.lane, j.seq, j.run_at, j.est_bytes
      from found as f
      cross join lateral (
        select j.lane, j.seq, j.run_at, j.est_bytes
        from pgfresh_engine.job as j
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
      from pgfresh_engine.job as j
      where j.state = 'r' and j.type_id = g.type_id and j.lane > g.above and j.lane < g.lane
      order by j.lane, j.seq
      limit 1
    ) as j
    union all
    select f.type_id, j.lane, j.seq, j.run_at, j.est_bytes, f.below
    from found as f
    cross join lateral (
      select j.lane, j.seq, j.run_at, j.est_bytes
      from pgfresh_engine.job as j
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
    from pgfresh_engine.job as j
    where j.state = 'r' and j.type_id = f.type_id and j.lane = f.lane and j.seq >= f.seq
    order by j.seq
    limit 1
  ) as j;
end
$$;
comment on function pgfresh_engine.ready_lanes(int[], int[], smallint[], bigint[]) is
  'The lanes of these data types that have ready jobs: the first job of each, since when it has been ready, '
  'and its bytes. A part of claim_jobs.';

/*
  The oldest jobs of several lanes, without locking more than are taken. First find the position of the last of them,
  then lock each lane up to there. The lane that begins first gives an upper bound of that position, so no lane is read
  beyond it. More are locked than taken only if others have locked some of the oldest.
*/
create or replace function pgfresh_engine.lock_ready(
  p_types int[], p_lanes smallint[], p_from bigint[], p_limit int, p_max_bytes bigint, p_taken bigint[])
returns bigint[]
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_ids bigint[];
  v_last bigint;
begin
  if cardinality(p_types) = 1 then
    return array(
      select j.id
      from pgfresh_engine.job as j
      where j.state = 'r' and j.type_id = p_types[1] and j.lane = p_lanes[1] and j.seq >= p_from[1]
        and (p_max_bytes is null or j.est_bytes <= p_max_bytes) and j.id <> all (p_taken)
      order by j.seq
      limit p_limit for update skip locked);
  end if;
  v_last := (
    select (
        select j.seq
        from pgfresh_engine.job as j
        where j.state = 'r' and j.type_id = l.type_id and j.lane = l.lane and j.seq >= l.seq
          and (p_max_bytes is null or j.est_bytes <= p_max_bytes) and j.id <> all (p_taken)
        order by j.seq
        offset p_limit - 1
        limit 1
      )
    from unnest(p_types, p_lanes, p_from) as l(type_id, lane, seq)
    order by l.seq
    limit 1
  );
  v_last := (
    select j.seq
    from unnest(p_types, p_lanes, p_from) as l(type_id, lane, seq)
    cross join lateral (
      select j.seq
      from pgfresh_engine.job as j
      where j.state = 'r' and j.type_id = l.type_id and j.lane = l.lane
        and j.seq between l.seq and coalesce(v_last, 9223372036854775807)
        and (p_max_bytes is null or j.est_bytes <= p_max_bytes) and j.id <> all (p_taken)
      order by j.seq
      limit p_limit
    ) as j
    order by j.seq
    offset p_limit - 1
    limit 1
  );
  v_ids := array(
    select j.id
    from unnest(p_types, p_lanes, p_from) as l(type_id, lane, seq)
    cross join lateral (
      select j.id
      from pgfresh_engine.job as j
      where j.state = 'r' and j.type_id = l.type_id and j.lane = l.lane
        and j.seq between l.seq and coalesce(v_last, 9223372036854775807)
        and (p_max_bytes is null or j.est_bytes <= p_max_bytes) and j.id <> all (p_taken)
      order by j.seq
      limit p_limit for update skip locked
    ) as j
    limit p_limit);
  if v_last is not null and cardinality(v_ids) < p_limit then
    v_ids := v_ids || array(
      select j.id
      from unnest(p_types, p_lanes, p_from) as l(type_id, lane, seq)
      cross join lateral (
        select j.id, j.seq
        from pgfresh_engine.job as j
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
comment on function pgfresh_engine.lock_ready(int[], smallint[], bigint[], int, bigint, bigint[]) is
  'Locks the oldest ready jobs of these lanes, each from an id on, except those that are taken. A part of claim_jobs.';

/*
  Picks from sources without limits: by band, the oldest first, whatever their source. Waiting jobs wait for workers
  only, so no round-robin state is kept and each claim applies the shares itself: a quarter for the jobs that have been
  ready longest, once that is more than ten seconds, and half for viewed pairs without a row. A fraction of a job is
  a probability, so claims of one job keep the shares too.
*/
create or replace function pgfresh_engine.pick_free(
  p_limit int, p_types int[], p_lanes smallint[], p_from bigint[], p_waits boolean, p_max_bytes bigint,
  out ids bigint[], out shared int)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  -- Whether viewed pairs with a row and others without one are both waiting.
  v_both boolean;
  v_chance double precision;
  v_group record;
  v_most int;
  -- The first and the last lane of a group.
  v_first int := 1;
  v_last int;
begin
  ids := '{}';
  v_both := (
    select count(distinct l.lane & 32) = 2 from unnest(p_lanes) as l(lane) where l.lane & 31 < 21
  );
  if p_waits or v_both then
    v_chance := random();
  end if;
  v_most := case when p_waits then floor(p_limit / 4.0 + v_chance) else 0 end;
  if v_most > 0 then
    select pgfresh_engine.lock_ready(
      array_agg(l.type_id), array_agg(l.lane), array_agg(l.seq), v_most, p_max_bytes, '{}')
    into ids
    from unnest(p_types, p_lanes, p_from) as l(type_id, lane, seq)
    where l.lane & 31 < 20;
  end if;
  if v_both then
    v_most := least(p_limit, cardinality(ids) + floor(p_limit / 2.0 + v_chance)::int
      - (select count(*)::int from pgfresh_engine.job as j where j.id = any (ids) and j.missing));
    for v_group in
      select array_agg(l.type_id) as types, array_agg(l.lane) as lanes, array_agg(l.seq) as from_ids
      from unnest(p_types, p_lanes, p_from) as l(type_id, lane, seq)
      where l.lane & 32 = 0 and l.lane & 31 < 21
      group by l.lane & 31
      order by l.lane & 31
    loop
      exit when cardinality(ids) >= v_most;
      ids := ids || pgfresh_engine.lock_ready(
        v_group.types, v_group.lanes, v_group.from_ids, v_most - cardinality(ids), p_max_bytes, ids);
    end loop;
  end if;
  shared := cardinality(ids);
  -- The rest by band. If both wait, missing pairs have had their share; background work comes last.
  select array_agg(l.type_id), array_agg(l.lane), array_agg(l.seq)
  into p_types, p_lanes, p_from
  from (
    select l.*
    from unnest(p_types, p_lanes, p_from) as l(type_id, lane, seq)
    order by v_both and l.lane & 31 = 21, v_both and l.lane & 32 = 0, l.lane & 31
  ) as l;
  while v_first <= cardinality(p_types) and cardinality(ids) < p_limit loop
    v_last := v_first;
    while p_lanes[v_last + 1] & 31 = p_lanes[v_first] & 31
      and (not v_both or p_lanes[v_last + 1] & 32 = p_lanes[v_first] & 32)
    loop
      v_last := v_last + 1;
    end loop;
    ids := ids || pgfresh_engine.lock_ready(
      p_types[v_first:v_last], p_lanes[v_first:v_last], p_from[v_first:v_last], p_limit - cardinality(ids), p_max_bytes,
      ids);
    v_first := v_last + 1;
  end loop;
end
$$;
comment on function pgfresh_engine.pick_free(int, int[], smallint[], bigint[], boolean, bigint) is
  'Locks the next ready jobs of these lanes of sources without limits. '
  'p_waits: one has waited for more than ten seconds. '
  'The first ones, shared, have a share of the claim. A part of claim_jobs.';
