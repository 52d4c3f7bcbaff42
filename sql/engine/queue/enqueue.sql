-- Claims go by band, not by priority, so that a raise within a band updates no index entry. Background work is -1.
create or replace function pgfresh_engine.band_of(p_priority int) returns smallint
language sql immutable parallel safe
as $$
  select (pg_catalog.width_bucket(
    p_priority,
    '{0,1,2,4,8,16,32,64,128,256,512,1024,2048,4096,8192,16384,32768,65536,131072,262144,524288}'::int[]) - 1)::smallint
$$;
comment on function pgfresh_engine.band_of(int) is
  'The band of a priority: -1 for background, 0 for 0, then one for each power of two up to 20.';

-- Keep in step with the functions that decode lanes (claim_jobs, pick_free, pick_limited: & 31, & 32, & 96)
-- and the one that adds to a lane (queue_refreshes).
create or replace function pgfresh_engine.lane_of(p_band smallint, p_missing boolean, p_bytes bigint) returns smallint
language sql immutable parallel safe
as $$
  select (20 - p_band
    + case when p_missing then 0 else 32 end
    + case when p_bytes > 1048576 then 64 else 0 end)::smallint
$$;
comment on function pgfresh_engine.lane_of(smallint, boolean, bigint) is
  'The lane of the ready index in which a job stands: 20 less its band, so 0 to 21; '
  'and 32 unless it is for a viewed pair without a row, and 64 if it is large: more than 1 MiB.';

-- Under load no worker is idle, and skipping the notification spares the commit its lock.
create or replace function pgfresh_engine.wake_workers() returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if exists (select from pgfresh_engine.process where idle) then
    perform pg_notify('pgfresh_job', '');
  end if;
end
$$;
comment on function pgfresh_engine.wake_workers() is
  'Notifies the channel pgfresh_job at commit, if any worker waits for work.';

/*
  Lock order: pairs, then jobs. Nothing here waits for a completion: existing pairs are found by the snapshot and locked
  only while they have no open job. Pairs that another transaction has locked, or added and not yet committed, are left
  to that transaction.
*/
create or replace function pgfresh_engine.queue_refreshes(
  p_data_type text, p_keys text[], p_priority int default 0, p_estimated_size bigint default null,
  p_metadata jsonb default null, p_run_at timestamptz default null, p_force boolean default false)
returns table (key text, job_id bigint, result text)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
  v_type int;
  v_source int;
  v_bytes bigint;
  v_choosy boolean;
  v_now timestamptz := pgfresh.clock();
  v_run_at timestamptz := greatest(coalesce(p_run_at, v_now), v_now);
  v_state "char" := case when p_run_at > v_now then 'w' else 'r' end;
  v_band smallint;
  -- The lane of a pair that is not missing.
  v_lane smallint;
  v_keys text[];
  v_longest int;
  v_known bigint;
  v_new_keys text[];
  v_new_ids bigint[];
  v_old_keys text[];
  v_old_ids bigint[];
  v_old_times timestamptz[];
  -- For each existing pair, whether it is viewed and has no row.
  v_old_missing boolean[];
  v_open_ids bigint[];
  v_busy text[];
  v_raised int := 0;
begin
  select r.type_id, r.source_id,
    coalesce(
      p_estimated_size,
      (select t.estimated_bytes from pgfresh_engine.type_stats as t where t.type_id = r.type_id),
      r.estimated_data_size_bytes),
    pgfresh_engine.has_key_rules(r)
  into v_type, v_source, v_bytes, v_choosy
  from pgfresh.data_type_registry as r
  where r.data_type = p_data_type;
  if not found then
    perform pgfresh_engine.require_type(p_data_type);
  end if;
  if p_keys is null or cardinality(p_keys) > 100000 then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      format('p_keys must have at most 100000 keys, got %s', coalesce(cardinality(p_keys)::text, 'null')),
      'Enqueue in smaller sets.');
  end if;
  -- A function call costs more than a comparison, so the functions are only called to refuse.
  if (p_priority >= -1) is not true then
    perform pgfresh_engine.require_range('p_priority', p_priority, -1, 2147483647);
  end if;
  if p_force is null then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      'p_force must be true or false, got null',
      'Leave it out if the refresh is not forced.');
  end if;
  if p_estimated_size not between 0 and 1000000000000000 then
    perform pgfresh_engine.require_range('p_estimated_size', p_estimated_size, 0, 1e15);
  end if;
  if p_run_at > v_now + interval '366 days' then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID', 'p_run_at is more than 366 days ahead',
      'Pass a nearer time.');
  end if;
  if octet_length(p_metadata::text) > 65536 then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      'p_metadata has more than 65536 bytes',
      'Keep large things in a table of yours and pass their key.');
  end if;
  if v_choosy then
    p_keys := pgfresh_engine.require_keys(pgfresh_engine.require_type(p_data_type), p_keys);
  end if;
  -- Distinct and in key order, so that two calls cannot deadlock.
  select array_agg(wanted.key order by wanted.key), max(octet_length(wanted.key))
  into v_keys, v_longest
  from (select distinct wanted.key collate "C" as key from unnest(p_keys) as wanted(key)) as wanted;
  if v_longest > 512 or array_position(v_keys, null) is not null or '' = any (v_keys)
      or array_to_string(v_keys, '') ~ '[[:cntrl:]]' then
    perform pgfresh_engine.require_key(bad.key) from unnest(p_keys) as bad(key);
  end if;

  v_band := pgfresh_engine.band_of(p_priority);
  v_lane := pgfresh_engine.lane_of(v_band, false, v_bytes);

  -- The whole set in one walk of the index.
  -- Skipped before version 17, whose planner may scan all keys of the type instead.
  if current_setting('server_version_num')::int >= 170000 then
    v_known := (select count(*) from pgfresh_engine.pairs as p where p.type_id = v_type and p.key = any (v_keys));
  end if;
  if v_known = 0 then
    v_new_keys := v_keys;
  elsif v_known is distinct from cardinality(v_keys) then
    -- A subquery per key instead of a join: it uses the index whatever the statistics say.
    v_new_keys := array(
      select wanted.key
      from unnest(v_keys) as wanted(key)
      where (select true from pgfresh_engine.pairs as p where p.type_id = v_type and p.key = wanted.key) is null);
  end if;

  if cardinality(v_new_keys) > 0 then
    -- First assume that no one else adds the same pairs, which is usual and costs a third less.
    v_new_ids := array(select nextval('pgfresh_engine.job_id') from unnest(v_new_keys));
    if not pgfresh_engine.add_pairs(v_type, v_new_keys, v_new_ids) then
      v_busy := pgfresh_engine.make_pairs(v_type, v_new_keys);
      v_new_keys := '{}';
      v_new_ids := '{}';
    end if;
  end if;

  if coalesce(cardinality(v_new_keys), 0) < cardinality(v_keys) then
    -- Before the others are opened, so that these need not be told apart from them.
    v_open_ids := array(
      select p.job_id
      from pgfresh_engine.pairs as p
      where p.type_id = v_type and p.key = any (v_keys) and p.job_id is not null);
    with opened as (
      update pgfresh_engine.pairs as p
      set job_id = nextval('pgfresh_engine.job_id')
      where p.type_id = v_type and p.key = any (array(
        select free.key
        from pgfresh_engine.pairs as free
        where free.type_id = v_type and free.key = any (v_keys) and free.job_id is null
        order by free.key for update skip locked))
      returning p.key, p.job_id, p.demanded and p.row_at is null and p.seen and p.empty_at is null as missing,
        -- A viewed pair does not wait longer than it would without this job.
        case when p.demanded then least(v_run_at, p.due_at) else v_run_at end as run_at
    )
    select array_agg(o.key), array_agg(o.job_id), array_agg(o.run_at), array_agg(o.missing)
    into v_old_keys, v_old_ids, v_old_times, v_old_missing
    from opened as o;

    -- Waiting jobs take over a higher priority or an earlier time. Only force ends the backoff after a
    -- failure. A claim in flight keeps its lock and its job.
    update pgfresh_engine.job as j
    set priority = greatest(j.priority, p_priority),
      asked = greatest(j.asked, p_priority),
      band = greatest(j.band, v_band),
      lane = j.lane + j.band - greatest(j.band, v_band),
      run_at = case
        when j.state = 'w' and (j.retries = 0 or p_force) then least(j.run_at, v_run_at) else j.run_at
      end,
      state = case when j.state = 'w' and (j.retries = 0 or p_force) and v_state = 'r' then 'r' else j.state end
    where j.id = any (array(
      select waiting.id
      from pgfresh_engine.job as waiting
      where waiting.id = any (v_open_ids) and waiting.state <> 'x'
        and (waiting.priority < p_priority
          or (waiting.asked >= p_priority) is not true
          or (waiting.state = 'w' and (waiting.retries = 0 or p_force) and waiting.run_at > v_run_at))
      order by waiting.id for update skip locked));
    get diagnostics v_raised = row_count;

    if p_force then
      update pgfresh_engine.job as j
      set rerun = true
      where j.id = any (array(
        select running.id
        from pgfresh_engine.job as running
        where running.id = any (v_open_ids) and running.state = 'x' and not running.rerun
        order by running.id for update skip locked));
    end if;
  end if;

  insert into pgfresh_engine.job (
    id, seq, run_at, created_at, est_bytes, type_id, source_id, priority, asked, band, lane,
    state, missing, key, metadata)
  select
    added.id, added.id, added.run_at, v_now, v_bytes, v_type, v_source, p_priority, p_priority, v_band,
    v_lane - case when added.missing then 32 else 0 end,
    case when added.run_at > v_now then 'w' else 'r' end, added.missing, added.key, p_metadata
  from (
    select unnest(v_new_ids) as id, unnest(v_new_keys) as key, v_run_at as run_at, false as missing
    union all
    select o.id, o.key, greatest(o.run_at, v_now), o.missing
    from unnest(v_old_ids, v_old_keys, v_old_times, v_old_missing) as o(id, key, run_at, missing)
  ) as added;
  v_new_keys := v_new_keys || v_old_keys;
  v_new_ids := v_new_ids || v_old_ids;

  if (cardinality(v_new_ids) > 0 or v_raised > 0) and (v_state = 'r' or v_now >= any (v_old_times)) then
    perform pgfresh_engine.wake_workers();
  end if;

  return query select unnest(v_new_keys), unnest(v_new_ids), 'queued';
  if coalesce(cardinality(v_new_keys), 0) < cardinality(v_keys) then
    return query
      select p.key, p.job_id,
        coalesce((
          select case
            when j.state <> 'x' then 'merged'
            when not p_force then 'running'
            when j.rerun then 'rerun'
            else 'busy'
          end
          from pgfresh_engine.job as j
          where j.id = p.job_id
        ), 'busy')
      from pgfresh_engine.pairs as p
      -- A set difference, because comparing each with each would be quadratic.
      where p.type_id = v_type and p.key = any (array(
        select unnest(v_keys) collate "C"
        except
        select unnest(v_new_keys) collate "C"));
    return query select unnest(v_busy), null::bigint, 'busy';
  end if;
end
$$;
comment on function pgfresh_engine.queue_refreshes(text, text[], int, bigint, jsonb, timestamptz, boolean) is
  'Enqueues a job for each key of a data type that has none open, in the caller''s transaction. '
  'Says for each key what came of it: '
  'queued; merged (it waits already; a higher priority or an earlier time was taken over, '
  'and with p_force the wait after a failure is over); running; '
  'rerun (it runs, was forced, and will run again); '
  'busy (another transaction is ending or enqueuing it).';
grant execute on function pgfresh_engine.queue_refreshes(text, text[], int, bigint, jsonb, timestamptz, boolean) to
  pgfresh_worker, pgfresh_planner, pgfresh_operator;
