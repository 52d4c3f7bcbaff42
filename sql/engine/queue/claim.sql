create or replace function pgfresh_engine.claim_jobs(
  p_worker bigint, p_request uuid, p_limit int, p_sources int[] default null, p_types int[] default null,
  p_max_bytes bigint default null, p_floor_types int[] default '{}', p_floor_lanes smallint[] default '{}',
  p_floor_ids bigint[] default '{}', p_alone boolean default false, p_client text default null)
returns setof pgfresh_engine.claimed_job
language plpgsql security definer
set search_path = pg_catalog, pg_temp
-- Planned once, including all that it calls: planning would take longer than claiming one job.
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
-- Before version 18, a disabled but unavoidable scan costs so much that the query is JIT-compiled.
set jit = off
as $$
declare
  v_now timestamptz := pgfresh.clock();
  v_idle boolean;
  v_due boolean;
  v_stopped boolean;
  -- Sources without limits, and the others.
  v_free int[];
  v_limited int[];
  -- The lanes with ready jobs of sources without limits: type, lane, first job, and since when that job is ready,
  -- unless it is background work. v_shares: whether one of them has waited for more than ten seconds.
  v_ready int[];
  v_lanes smallint[];
  v_starts bigint[];
  v_since timestamptz[];
  v_count int;
  v_shares boolean;
  -- The source and the definition of each data type that may be claimed.
  v_types int[];
  v_sources_of int[];
  v_definitions bigint[];
  -- How many of the picked jobs, from the first, belong to a share.
  v_shared int := 0;
  v_ids bigint[] := '{}';
  v_bytes bigint[];
  -- The source of each job to be claimed, and the API key of those that take a call with them.
  v_sources int[];
  v_source int;
  v_rated int[] := '{}';
  v_taken record;
  v_called bigint[];
  v_api_keys smallint[];
  v_reserved bigint[];
  -- The number of API keys per source that the worker knows; a newer configuration may have more.
  v_known jsonb;
  v_use_by timestamptz;
  -- Paused data types, and those of them that one job may probe now.
  v_left_alone int[];
  v_probed int[] := '{}';
  v_floors int := cardinality(p_floor_types);
  v_holder bigint := p_worker;
  v_outdated boolean;
begin
  -- One comparison in the usual case. Only if it fails are the arguments checked one by one.
  if (p_limit between 1 and 10000 and p_request is not null and coalesce(p_max_bytes, 0) >= 0 and v_floors <= 1
      and v_floors = cardinality(p_floor_lanes) and v_floors = cardinality(p_floor_ids)) is not true then
    perform pgfresh_engine.require_range('p_limit', p_limit, 1, 10000);
    if p_request is null then
      perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
        'p_request must not be null',
        'Pass a uuid of your own making, a new one for each claim.');
    end if;
    if p_max_bytes < 0 then
      perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
        format('p_max_bytes must not be negative, got %s', p_max_bytes),
        'Leave it out to claim jobs of every size.');
    end if;
    -- A lane given twice would have its jobs claimed twice.
    if (v_floors = cardinality(p_floor_lanes) and v_floors = cardinality(p_floor_ids)
        and v_floors = (
          select count(distinct (f.type_id, f.lane))
          from unnest(p_floor_types, p_floor_lanes) as f(type_id, lane)
        )) is not true then
      perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
        'the floors must be three arrays of one length that name each data type and lane once',
        'Leave them out, or pass one data type, lane and id for each.');
    end if;
  end if;

  -- Everything that a claim needs before it looks for jobs, in one statement: starting one costs more than
  -- running it.
  select
    (
      select w.idle
      from pgfresh_engine.process as w
      where w.id = p_worker and w.kind = 'worker' and w.lease_until > v_now
    ),
    (select true from pgfresh_engine.job as j where j.state = 'w' and j.run_at <= v_now order by j.run_at limit 1),
    (select true from pgfresh.spending_stop),
    array(
      select s.id
      from pgfresh.sources as s
      where not s.limited and s.breaker_opened_at is null and s.denied_keys = '{}'
        and s.enabled and (s.paused_until is null or s.paused_until <= v_now)
        and (p_sources is null or s.id = any (p_sources))),
    array(
      select s.id
      from pgfresh.sources as s
      where (s.limited or s.breaker_opened_at is not null or s.denied_keys <> '{}')
        and s.enabled and (s.paused_until is null or s.paused_until <= v_now)
        and (p_sources is null or s.id = any (p_sources))
      order by s.id),
    array(select b.type_id from pgfresh_engine.breaker as b where b.type_id is not null and b.opened_at is not null)
  into v_idle, v_due, v_stopped, v_free, v_limited, v_left_alone;
  if p_client is not null then
    perform pgfresh_engine.require_worker_name('the name of a worker', p_client);
  end if;
  if p_worker is not null and v_idle is null then
    perform pgfresh_engine.refuse('PGF_LEASE_LOST',
      format('worker %s has no lease', p_worker),
      'Register again with register_process and forget what was claimed.');
  end if;
  if v_due then
    -- Jobs whose time has come count as ready from now, behind those that were ready before.
    update pgfresh_engine.job
    set state = 'r', seq = nextval('pgfresh_engine.job_id')
    where id = any (array(
      select j.id
      from pgfresh_engine.job as j
      where j.state = 'w' and j.run_at <= v_now
      order by j.run_at
      limit 500 for update skip locked));
  end if;
  if v_stopped then
    v_free := '{}';
    v_limited := '{}';
  end if;
  if v_left_alone <> '{}' then
    -- Locked until this claim ends, so that no other claim probes them meanwhile.
    v_probed := array(
      select b.type_id
      from pgfresh_engine.breaker as b
      where b.type_id = any (v_left_alone) and b.paused_until <= v_now
        and (p_types is null or b.type_id = any (p_types))
      for update skip locked);
    p_types := array(
      select r.type_id
      from pgfresh.data_type_registry as r
      where (p_types is null or r.type_id = any (p_types))
        and (r.type_id <> all (v_left_alone) or r.type_id = any (v_probed)));
  end if;

  -- Pick jobs of sources without limits.
  if v_free <> '{}' then
    if v_floors = 0 then
      -- A loose scan of the ready index: one probe per existing lane, and one per data type not asked for.
      with recursive found as (
        (
          select j.type_id, j.lane, j.seq, j.run_at
          from pgfresh_engine.job as j
          where j.state = 'r'
          order by j.type_id, j.lane, j.seq
          limit 1
        )
        union all
        select j.*
        from found as f
        cross join lateral (
          select j.type_id, j.lane, j.seq, j.run_at
          from pgfresh_engine.job as j
          where j.state = 'r' and (j.type_id, j.lane)
            > (f.type_id, case when p_types is null or f.type_id = any (p_types) then f.lane else 127 end)
          order by j.type_id, j.lane, j.seq
          limit 1
        ) as j
      )
      select array_agg(f.type_id), array_agg(f.lane), array_agg(f.seq),
        array_agg(case when f.lane & 31 < 20 then f.run_at end)
      into v_ready, v_lanes, v_starts, v_since
      from found as f
      where p_types is null or f.type_id = any (p_types);
    else
      select array_agg(l.type_id), array_agg(l.lane), array_agg(l.seq),
        array_agg(case when l.lane & 31 < 20 then l.since end)
      into v_ready, v_lanes, v_starts, v_since
      from pgfresh_engine.ready_lanes(
        array(
          select r.type_id
          from pgfresh.data_type_registry as r
          where r.source_id = any (v_free) and (p_types is null or r.type_id = any (p_types))),
        p_floor_types, p_floor_lanes, p_floor_ids) as l;
    end if;
    select array_agg(r.type_id), array_agg(r.source_id), array_agg(r.definition)
    into v_types, v_sources_of, v_definitions
    from pgfresh.data_type_registry as r
    where r.type_id = any (v_ready) and r.source_id = any (v_free);
    if (v_ready <@ v_types) is not true then
      select array_agg(l.type_id), array_agg(l.lane), array_agg(l.seq), array_agg(l.since)
      into v_ready, v_lanes, v_starts, v_since
      from unnest(v_ready, v_lanes, v_starts, v_since) as l(type_id, lane, seq, since)
      where l.type_id = any (v_types);
    end if;
    v_count := cardinality(v_ready);
    -- A single lane has no shares.
    v_shares := v_count > 1 and (v_now - interval '10 seconds' > any (v_since)) is true;
    if v_ready[1] = v_ready[v_count] and v_lanes[1] & 96 = v_lanes[v_count] & 96 and not v_shares and v_floors = 0 then
      -- Lanes of one data type that differ only in their band: the index order is the claim order.
      v_ids := array(
        select j.id
        from pgfresh_engine.job as j
        where j.state = 'r' and j.type_id = v_ready[1] and (j.lane, j.seq) >= (v_lanes[1], v_starts[1])
          and (p_max_bytes is null or j.est_bytes <= p_max_bytes)
        order by j.lane, j.seq
        limit p_limit for update skip locked);
    elsif v_lanes[1] = all (v_lanes) and not v_shares then
      v_ids := pgfresh_engine.lock_ready(v_ready, v_lanes, v_starts, p_limit, p_max_bytes, '{}');
    elsif v_count > 0 then
      select picked.ids, picked.shared
      into v_ids, v_shared
      from pgfresh_engine.pick_free(p_limit, v_ready, v_lanes, v_starts, v_shares, p_max_bytes) as picked;
    end if;
  end if;

  -- Pick jobs of sources with limits.
  if v_limited <> '{}' then
    select v_types || array_agg(r.type_id), v_sources_of || array_agg(r.source_id),
      v_definitions || array_agg(r.definition)
    into v_types, v_sources_of, v_definitions
    from pgfresh.data_type_registry as r
    where r.source_id = any (v_limited) and (p_types is null or r.type_id = any (p_types));
    -- Merge the jobs picked from all sources. Those beyond the limit are unlocked when this transaction ends.
    v_known := (select s.api_keys from pgfresh_engine.worker_service as s where s.worker = p_worker);
    with picked as (
      select j.id, v_sources_of[array_position(v_types, j.type_id)] as source_id,
        -- Jobs that belong to a share come first.
        case
          when p.place <= v_shared then (20 - (select min(l.lane & 31) from unnest(v_lanes) as l(lane)))::smallint
          else j.band
        end as band,
        case when p.place <= v_shared then 0 else j.seq end as seq, 0::bigint as bytes, p.place
      from unnest(v_ids) with ordinality as p(id, place)
      join pgfresh_engine.job as j on j.id = p.id
      union all
      select picked.*
      from (
        select r.source_id as id, array_agg(r.type_id) as types
        from pgfresh.data_type_registry as r
        where r.source_id = any (v_limited) and (p_types is null or r.type_id = any (p_types))
        group by r.source_id
        order by r.source_id
      ) as s
      cross join lateral pgfresh_engine.pick_limited(s.id, p_limit, s.types, p_max_bytes,
        v_known) with ordinality as picked
    ), chosen as (
      select * from picked order by band desc, seq, place limit p_limit
    )
    select coalesce(array_agg(c.id order by c.band desc, c.seq, c.place), '{}'),
      coalesce(array_agg(c.source_id order by c.band desc, c.seq, c.place), '{}'),
      coalesce(array_agg(c.bytes order by c.band desc, c.seq, c.place), '{}')
    into v_ids, v_sources, v_bytes
    from chosen as c;
  end if;
  if v_probed <> '{}' then
    -- One job per probed data type, if possible of a pair whose last answer did not have the same problem: a pair that
    -- always has it must not decide for all.
    select coalesce(array_agg(c.id order by c.place), '{}'), coalesce(array_agg(c.source_id order by c.place), '{}'),
      coalesce(array_agg(c.bytes order by c.place), '{}')
    into v_ids, v_sources, v_bytes
    from (
      select c.*, j.type_id, row_number() over (
          partition by j.type_id
          order by p.fails > 0 or (p.outcome = 'older_source') is true, c.place
        ) as turn
      from unnest(v_ids, v_sources, v_bytes) with ordinality as c(id, source_id, bytes, place)
      join pgfresh_engine.job as j on j.id = c.id
      join pgfresh_engine.pairs as p on p.type_id = j.type_id and p.key = j.key
    ) as c
    where c.turn = 1 or c.type_id <> all (v_probed);
  end if;

  -- Take the calls, bytes and places of the limited sources, in the order of their ids.
  if v_limited <> '{}' then
    foreach v_source in array v_limited loop
      continue when not v_source = any (v_sources);
      select array_agg(t.id) as ids, array_agg(t.api_key) as api_keys, array_agg(t.reserved) as reserved
      into v_taken
      from (
        select array_agg(c.id order by c.place) as ids, array_agg(c.bytes order by c.place) as bytes
        from unnest(v_ids, v_sources, v_bytes) with ordinality as c(id, source_id, bytes, place)
        where c.source_id = v_source
      ) as c
      cross join lateral pgfresh_engine.take_limits(v_source, c.ids, c.bytes, v_known, v_now) as t;
      select coalesce(array_agg(c.id), '{}'), coalesce(array_agg(c.source_id), '{}'), coalesce(array_agg(c.bytes), '{}')
      into v_ids, v_sources, v_bytes
      from unnest(v_ids, v_sources, v_bytes) as c(id, source_id, bytes)
      -- A join, because comparing each with each would be quadratic.
      left join unnest(v_taken.ids) as t(id) on t.id = c.id
      where c.source_id <> v_source or t.id is not null;
      v_called := v_called || v_taken.ids;
      v_api_keys := v_api_keys || v_taken.api_keys;
      v_reserved := v_reserved || v_taken.reserved;
    end loop;
    -- What each job takes, ordered by id for the lookup in the update below.
    select coalesce(array_agg(c.id order by c.id), '{}'), array_agg(t.api_key order by c.id),
      array_agg(coalesce(t.reserved, 0) order by c.id)
    into v_ids, v_api_keys, v_reserved
    from unnest(v_ids) as c(id)
    left join unnest(v_called, v_api_keys, v_reserved) as t(id, api_key, reserved) on t.id = c.id;
    v_use_by := pgfresh_engine.use_by_of(v_now);
    v_rated := array(
      select s.id from pgfresh.sources as s where s.id = any (v_limited) and s.rate_limit_per_minute is not null);
  end if;
  if v_probed <> '{}' then
    -- Only data types with a job in this claim; the others may still be probed and planned.
    update pgfresh_engine.breaker as b
    set paused_until = v_now + interval '1 minute'
    where b.type_id = any (v_probed)
      and b.type_id in (select j.type_id from pgfresh_engine.job as j where j.id = any (v_ids));
  end if;

  -- A worker that got fewer jobs than it asked for will soon be idle, and must be woken.
  if v_idle <> (cardinality(v_ids) < p_limit) then
    update pgfresh_engine.process as w set idle = not v_idle where w.id = p_worker;
  end if;
  if v_ids = '{}' then
    return;
  end if;
  -- Where nothing is metered, losing a claim in a database crash costs nothing.
  -- The job is ready again, and its former worker is fenced off, because the new claim has another id.
  if p_alone and (v_sources && v_limited) is not true then
    perform set_config('synchronous_commit', 'off', true);
  end if;
  if p_worker is null then
    -- An SQL client's number belongs to its name, which is written once and renewed hourly. This never
    -- waits: if another transaction is writing the same name, it is written twice.
    p_client := coalesce(p_client,
      coalesce(nullif(current_setting('application_name', true), ''), session_user) || ':' || pg_backend_pid());
    select n.id, n.last_seen_at < v_now - interval '1 hour'
    into v_holder, v_outdated
    from pgfresh_engine.worker_name as n
    where n.name = p_client and not n.has_lease
    order by n.last_seen_at desc
    limit 1;
    if not found then
      insert into pgfresh_engine.worker_name (name, has_lease, last_seen_at)
      values (p_client, false, v_now)
      returning id into v_holder;
    elsif v_outdated then
      update pgfresh_engine.worker_name set last_seen_at = v_now
      where id = (select n.id from pgfresh_engine.worker_name as n where n.id = v_holder for update skip locked);
    end if;
  end if;
  return query
    with named as (
      insert into pgfresh_engine.claim (request, worker, claimed_at, job_ids)
      values (p_request, p_worker, v_now, v_ids)
      on conflict do nothing
      returning true as new
    )
    update pgfresh_engine.job as j
    set state = 'x', worker = v_holder, request = p_request, claimed_at = v_now, progress_at = v_now,
      attempt = j.attempt + 1,
      -- The source whose limits applied, not the one it was enqueued for.
      source_id = v_sources_of[array_position(v_types, j.type_id)],
      reserved = coalesce(v_reserved[width_bucket(j.id, v_ids)], 0),
      definition = v_definitions[array_position(v_types, j.type_id)],
      api_key = v_api_keys[width_bucket(j.id, v_ids)]
    where j.id = any (v_ids) and (select named.new from named)
    returning j.id, j.attempt, j.type_id, j.key, j.source_id, j.band, j.lane, j.priority,
      -- If the size is unknown, what is reserved for it.
      coalesce(nullif(j.est_bytes, 0), j.reserved), j.retries::int, j.metadata,
      case when j.source_id = any (v_rated) then v_use_by end,
      j.api_key, j.definition;
  if not found then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      format('p_request %s has named a claim before', p_request),
      'Pass a uuid of your own making, a new one for each claim.');
  end if;
end
$$;
comment on function pgfresh_engine.claim_jobs(
  bigint, uuid, int, int[], int[], bigint, int[], smallint[], bigint[], boolean, text) is
  'Claims up to p_limit ready jobs for a registered worker, best band first, '
  'and only what all limits of their sources allow. '
  'p_request is a uuid made by the caller: it names the claim in heartbeat_process. '
  'The floors are a hint: per data type and lane, the first id worth looking at. '
  'p_alone says that the transaction is this call alone; '
  'then a claim of sources without limits does not wait for the disk, '
  'and its jobs must be ended with p_request as a part of their token. '
  'p_client is the name of an SQL client, which has no number and no lease: p_worker is null then. '
  'Without it, the client is named by its application_name, else its user, and its process id.';
grant execute on function pgfresh_engine.claim_jobs(bigint, uuid, int, int[], int[], bigint, int[], smallint[],
  bigint[], boolean, text) to
  pgfresh_worker;
