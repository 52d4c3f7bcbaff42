do $$ begin
  if to_regtype('pgfresh.claimed_job') is null then
    create type pgfresh.claimed_job as (
      id bigint, attempt int, type_id int, key text, source_id int, band smallint, priority int,
      est_bytes bigint, retries int, metadata jsonb,
      use_by timestamptz, api_key smallint);
  end if;
end $$;
comment on type pgfresh.claimed_job is
  'A job as claim_jobs returns it. Id and attempt together are the token by which it is ended. '
  'Of a source with a rate, it has one call, to be sent by use_by with that API key, or not at all.';

/*
  Picks from sources without limits, best band first, oldest first. One probe of the ready index for each source and
  band: the probe starts at the floor that the caller remembers, so that entries which are dead but can not be removed
  yet, because somebody holds an old snapshot, are not walked over again by every claim.
*/
create or replace function pgfresh.pick_free(
  p_limit int, p_sources int[], p_types int[], p_max_bytes bigint, p_floor_sources int[], p_floor_bands smallint[],
  p_floor_ids bigint[])
returns table (id bigint, band smallint, source_id int, est_bytes bigint)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_sources int[] := p_sources;
begin
  -- Without floors a look at the first entry costs little, and most sources have nothing ready most of the time.
  if cardinality(p_floor_sources) = 0 then
    v_sources := array(
      select s.id
      from unnest(p_sources) as s(id)
      where (
        select true
        from pgfresh.job as j
        where j.state = 'r' and j.source_id = s.id and j.size_class = 0
        order by j.band desc, j.seq
        limit 1
      ));
  end if;
  if cardinality(v_sources) = 1 then
    return query
    select j.id, j.band, j.source_id, j.est_bytes
    from (
      select b.band, coalesce(f.seq, 0) as floor
      from generate_series(20, -1, -1) as b(band)
      left join unnest(p_floor_sources, p_floor_bands, p_floor_ids) as f(source_id, band, seq)
        on f.source_id = v_sources[1] and f.band = b.band
      order by b.band desc
    ) as target
    cross join lateral (
      select j.id, j.band, j.source_id, j.est_bytes
      from pgfresh.job as j
      where j.state = 'r' and j.source_id = v_sources[1] and j.size_class = 0
        and j.band = target.band and j.seq >= target.floor
        and (p_types is null or j.type_id = any (p_types)) and (p_max_bytes is null or j.est_bytes <= p_max_bytes)
      order by j.seq
      limit p_limit for update skip locked
    ) as j
    limit p_limit;
    return;
  end if;
  return query
  select picked.id, picked.band, picked.source_id, picked.est_bytes
  from generate_series(20, -1, -1) as b(band)
  cross join lateral (
    -- Within a band the oldest come first, whatever their source.
    -- What is too much is let go when this transaction ends.
    select j.id, j.band, j.source_id, j.est_bytes
    from unnest(v_sources) as s(source_id)
    left join unnest(p_floor_sources, p_floor_bands, p_floor_ids) as f(source_id, band, seq)
      on f.source_id = s.source_id and f.band = b.band
    cross join lateral (
      select j.id, j.band, j.source_id, j.est_bytes, j.seq
      from pgfresh.job as j
      where j.state = 'r' and j.source_id = s.source_id and j.size_class = 0
        and j.band = b.band and j.seq >= coalesce(f.seq, 0)
        and (p_types is null or j.type_id = any (p_types)) and (p_max_bytes is null or j.est_bytes <= p_max_bytes)
      order by j.seq
      limit p_limit for update skip locked
    ) as j
    order by j.seq
    limit p_limit
  ) as picked
  limit p_limit;
end
$$;
comment on function pgfresh.pick_free(int, int[], int[], bigint, int[], smallint[], bigint[]) is
  'Locks the next ready jobs of sources without limits. A part of claim_jobs.';

/*
  Picks from one source with limits only what all of them allow: its breaker, its running jobs, its rate, its bytes.
  Claims of one source count one after the other, so two can not overshoot together; one that comes meanwhile leaves the
  source to the other.
*/
create or replace function pgfresh.pick_limited(p_source_id int, p_limit int, p_types int[], p_max_bytes bigint)
returns table (id bigint, band smallint, source_id int, est_bytes bigint)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_now timestamptz := pgfresh.clock();
  v_source pgfresh.sources;
  v_budget record;
  -- How many jobs may be taken, and after how many nobody's work waits.
  v_room int := p_limit;
  v_viewed_only int := p_limit;
  v_running int;
  v_busy text[] := '{}';
  v_left bigint := 9223372036854775807;
  v_small bigint := 9223372036854775807;
  v_classes int := 0;
  v_saving bigint;
  v_job record;
  v_count int := 0;
  v_lowest smallint := -1;
  v_probes int := 0;
  -- The least size of a job that may be taken: with a quota, none whose size is unknown.
  v_known int := 0;
  -- How often a job may have been tried, where one is to try for all.
  v_tried int := 2147483647;
begin
  if not pg_try_advisory_xact_lock(7042, p_source_id) then
    return;
  end if;
  select * into v_source from pgfresh.sources as s where s.id = p_source_id;
  if v_source.breaker_opened_at is not null then
    -- Once more: an end may just have opened it again. And before its bytes are locked, as ends do it.
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

  if v_source.quota_bytes is not null then
    perform from pgfresh.source_state where source_id = p_source_id for update skip locked;
    if not found then
      return;
    end if;
    select * into v_budget from pgfresh.source_budget(p_source_id);
    v_left := v_budget.free;
    v_saving := v_budget.saving_job;
    v_classes := 25;
    v_known := 1;
    if v_budget.used + v_budget.reserved >= v_budget.cap then
      return;
    end if;
    -- From 90 % of the cap on, nobody's work waits.
    if v_budget.used + v_budget.reserved >= v_budget.cap * 0.9 then
      v_lowest := 0;
    end if;
    -- No more than could start: what is measured meanwhile is a better guess.
    if v_left > 0 then
      perform pgfresh.size_unknown_jobs(p_source_id, v_budget.depth, p_types, v_lowest, least(v_room, 16));
    end if;
    -- What is being saved for a large job is not there for the others.
    v_small := greatest(0, v_left - v_budget.saved);

    if v_saving is not null then
      select j.id, j.band, j.source_id, j.est_bytes, j.key
      into v_job
      from pgfresh.job as j
      where j.id = v_saving and j.state = 'r'
        and (p_types is null or j.type_id = any (p_types)) and (p_max_bytes is null or j.est_bytes <= p_max_bytes)
        and j.band >= v_lowest and j.key <> all (v_busy)
      for update skip locked;
      if found and (v_job.est_bytes <= v_left
          or (v_budget.level = 0 and v_job.est_bytes <= v_budget.cap - v_budget.used - v_budget.reserved)) then
        id := v_job.id; band := v_job.band; source_id := v_job.source_id; est_bytes := v_job.est_bytes;
        return next;
        v_left := greatest(0, v_left - v_job.est_bytes);
        v_small := least(v_small, v_left);
        v_count := 1;
        if v_source.one_key_at_a_time then
          v_busy := v_busy || v_job.key;
        end if;
        update pgfresh.source_state set saving_job = null, saving_since = null where source_id = p_source_id;
      elsif not exists (select from pgfresh.job as j where j.id = v_saving and j.state = 'r') then
        update pgfresh.source_state set saving_job = null, saving_since = null where source_id = p_source_id;
      end if;
    end if;
  end if;

  -- What was tried least tries for all: a pair that is always refused must not keep the source from the others.
  if v_source.breaker_opened_at is not null then
    select min(j.attempt)
    into v_tried
    from pgfresh.job as j
    where j.state = 'r' and j.source_id = p_source_id and j.band >= v_lowest and j.est_bytes between v_known and v_small
      and (p_types is null or j.type_id = any (p_types)) and (p_max_bytes is null or j.est_bytes <= p_max_bytes)
      and j.key <> all (v_busy);
  end if;

  -- Only classes that can fit are read: a job of class c has more than 4^(c-1) bytes.
  for v_job in
    select picked.*
    from generate_series(20, v_lowest, -1) as b(band)
    cross join lateral (
      select j.id, j.band, j.source_id, j.est_bytes, j.key
      from generate_series(0, v_classes) as c(class)
      cross join lateral (
        select j.*
        from pgfresh.job as j
        where j.state = 'r' and j.source_id = p_source_id and j.size_class = c.class
          and j.band = b.band and j.est_bytes between v_known and v_small
          and (p_types is null or j.type_id = any (p_types)) and (p_max_bytes is null or j.est_bytes <= p_max_bytes)
          and j.key <> all (v_busy) and j.id is distinct from v_saving and j.attempt <= v_tried
        order by j.seq
        limit v_room for update skip locked
      ) as j
      where c.class = 0 or power(4, c.class - 1) < v_small
      order by j.seq
    ) as picked
  loop
    exit when v_count >= v_room or (v_job.band = -1 and v_count >= v_viewed_only);
    continue when v_job.est_bytes > v_small or v_job.key = any (v_busy);
    id := v_job.id; band := v_job.band; source_id := v_job.source_id; est_bytes := v_job.est_bytes;
    return next;
    v_small := v_small - v_job.est_bytes;
    v_count := v_count + 1;
    if v_source.one_key_at_a_time then
      v_busy := v_busy || v_job.key;
    end if;
  end loop;

  -- A job that has been too large for ten minutes gets half of the pace put aside,
  -- so that small ones can not starve it.
  if v_source.quota_bytes is not null and v_saving is null and v_count < v_room then
    select j.id, j.est_bytes
    into v_job
    from generate_series(25, 1, -1) as c(class)
    cross join lateral (
      select j.id, j.created_at, j.est_bytes
      from pgfresh.job as j
      where j.state = 'r' and j.source_id = p_source_id and j.size_class = c.class
        and j.band >= v_lowest and j.est_bytes > v_small
      order by j.band desc, j.seq
      limit 1
    ) as j
    where j.created_at < v_now - interval '10 minutes' and j.est_bytes <= v_budget.cap
    order by j.id
    limit 1;
    if found then
      update pgfresh.source_state
      set saving_job = v_job.id, saving_bytes = v_job.est_bytes, saving_since = v_now
      where source_id = p_source_id;
    end if;
  end if;
end
$$;
comment on function pgfresh.pick_limited(int, int, int[], bigint) is
  'Locks those ready jobs of a source with limits, or with an open breaker, that may run now. A part of claim_jobs.';

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
  p_max_bytes bigint default null, p_floor_sources int[] default '{}', p_floor_bands smallint[] default '{}',
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
  v_free int[];
  v_limited int[];
  v_ids bigint[];
  v_stopped boolean;
  -- Of each that is to be claimed, its source; and of those that take a call with them, its API key.
  v_sources int[];
  v_source int;
  v_metered int[] := '{}';
  v_rated int[] := '{}';
  v_taken record;
  v_called bigint[];
  v_api_keys smallint[];
  v_use_by timestamptz;
  -- Data types that are left alone, and those of them of which one job may try now.
  v_left_alone int[];
  v_probed int[] := '{}';
  v_floors int := cardinality(p_floor_sources);
  v_holder bigint := p_worker;
begin
  -- One comparison in the usual case;
  -- which refusal it is, and whether several floors are one too many, is asked only then.
  if (p_limit between 1 and 10000 and p_request is not null and coalesce(p_max_bytes, 0) >= 0 and v_floors <= 1
      and v_floors = cardinality(p_floor_bands) and v_floors = cardinality(p_floor_ids)) is not true then
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
    if (v_floors = cardinality(p_floor_bands) and v_floors = cardinality(p_floor_ids)
        and v_floors = (
          select count(distinct (f.source_id, f.band))
          from unnest(p_floor_sources, p_floor_bands) as f(source_id, band)
        )) is not true then
      perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
        'the floors must be three arrays of one length that name each source and band once',
        'Leave them out, or pass one source, band and id for each.');
    end if;
  end if;

  -- All that a claim has to know before it looks for jobs, in one statement,
  -- because each costs more to begin than to run.
  select
    (select w.idle from pgfresh.worker as w where w.id = p_worker and w.lease_until > v_now),
    (select true from pgfresh.job as j where j.state = 'w' and j.run_at <= v_now order by j.run_at limit 1),
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
    array(select b.type_id from pgfresh.breaker as b where b.type_id is not null and b.opened_at is not null)
  into v_idle, v_due, v_stopped, v_free, v_limited, v_left_alone;
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
  if v_stopped then
    v_free := '{}';
    v_limited := '{}';
  end if;
  if v_left_alone <> '{}' then
    v_probed := pgfresh.type_probes(v_left_alone, p_types, v_now);
    p_types := array(
      select r.type_id
      from pgfresh.data_type_registry as r
      where (p_types is null or r.type_id = any (p_types))
        and (r.type_id <> all (v_left_alone) or r.type_id = any (v_probed)));
  end if;

  if v_limited = '{}' and v_floors = 0 and cardinality(v_free) = 1 then
    -- The order of the ready index as it is.
    -- With floors, or several sources, each band has a place of its own to start from.
    v_ids := array(
      select j.id
      from pgfresh.job as j
      where j.state = 'r' and j.source_id = v_free[1] and j.size_class = 0
        and (p_types is null or j.type_id = any (p_types)) and (p_max_bytes is null or j.est_bytes <= p_max_bytes)
      order by j.band desc, j.seq
      limit p_limit for update skip locked);
  elsif v_limited = '{}' then
    v_ids := array(
      select picked.id
      from pgfresh.pick_free(
        p_limit, v_free, p_types, p_max_bytes, p_floor_sources, p_floor_bands, p_floor_ids) as picked);
  else
    -- What was picked from each is put in one order; what is too much is let go when this transaction ends.
    with picked as (
      select *
      from pgfresh.pick_free(
        p_limit, v_free, p_types, p_max_bytes, p_floor_sources, p_floor_bands, p_floor_ids)
      union all
      select picked.*
      from unnest(v_limited) as s(id)
      cross join lateral pgfresh.pick_limited(s.id, p_limit, p_types, p_max_bytes) as picked
    ), chosen as (
      select * from picked order by band desc, id limit p_limit
    )
    select coalesce(array_agg(chosen.id), '{}'), coalesce(array_agg(chosen.source_id), '{}')
    into v_ids, v_sources
    from chosen;
    if v_probed <> '{}' then
      select coalesce(array_agg(c.id order by c.place), '{}'), coalesce(array_agg(c.source_id order by c.place), '{}')
      into v_ids, v_sources
      from unnest(v_ids, v_sources) with ordinality as c(id, source_id, place)
      where c.id = any (pgfresh.one_of_each(v_ids, v_probed));
    end if;
    foreach v_source in array v_limited loop
      continue when not v_source = any (v_sources);
      select array_agg(t.id) as ids, array_agg(t.api_key) as api_keys
      into v_taken
      from pgfresh.take_limits(
        v_source,
        array(
          select c.id
          from unnest(v_ids, v_sources) with ordinality as c(id, source_id, place)
          where c.source_id = v_source
          order by c.place),
        v_now) as t;
      select array_agg(c.id), array_agg(c.source_id)
      into v_ids, v_sources
      from unnest(v_ids, v_sources) as c(id, source_id)
      where c.source_id <> v_source or c.id = any (v_taken.ids);
      v_called := v_called || v_taken.ids;
      v_api_keys := v_api_keys || v_taken.api_keys;
    end loop;
    v_ids := coalesce(v_ids, '{}');
    v_use_by := pgfresh.use_by_of(v_now);
    v_metered := array(
      select s.id from pgfresh.sources as s where s.id = any (v_limited) and s.quota_bytes is not null);
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
      reserved = case when j.source_id = any (v_metered) then j.est_bytes else 0 end,
      api_key = v_api_keys[array_position(v_called, j.id)]
    where j.id = any (v_ids) and (select named.new from named)
    returning j.id, j.attempt, j.type_id, j.key, j.source_id, j.band, j.priority,
      j.est_bytes, j.retries::int, j.metadata,
      case when j.source_id = any (v_rated) then v_use_by end,
      j.api_key;
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
  'The floors are a hint: per source and band, the first id worth looking at. '
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
  update pgfresh.job
  set state = 'r'
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
