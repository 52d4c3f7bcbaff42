create or replace function pgfresh.complete_queue_job(
  p_job_id bigint, p_data_size_bytes bigint, p_attempt int default null, p_outcome text default 'fresh')
returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_attempt int := pgfresh_engine.running_attempt(p_job_id, p_attempt);
begin
  perform pgfresh_engine.require_range('p_data_size_bytes', p_data_size_bytes, 0, 1e15);
  perform pgfresh_engine.require_outcome(p_outcome);
  if exists (
    select from pgfresh_engine.job as j
    join pgfresh.data_type_registry as r on r.type_id = j.type_id
    where j.id = p_job_id and j.attempt = v_attempt and j.definition <> r.definition
  ) then
    raise warning 'the data type of job % was changed while it ran: it is asked for again', p_job_id;
    perform pgfresh_engine.put_back_jobs(jsonb_build_array(jsonb_build_object(
      'id', p_job_id, 'attempt', v_attempt, 'bytes', p_data_size_bytes, 'calls', 1, 'outcome', 'redefined')));
    return false;
  end if;
  return v_attempt is not null and cardinality(
    pgfresh_engine.complete_jobs(array[p_job_id], array[v_attempt], array[p_data_size_bytes], array[p_outcome])) = 1;
end
$$;
comment on function pgfresh.complete_queue_job(bigint, bigint, int, text) is
  'Ends a running job as succeeded and settles its bytes. Pass the attempt that the claim returned, so that a late '
  'call of an earlier attempt has no effect. A job whose data type changed while it ran is put back instead. '
  'Returns whether it had an effect; warns if not.';
grant execute on function pgfresh.complete_queue_job(bigint, bigint, int, text) to pgfresh_worker;

create or replace function pgfresh.fail_queue_job(
  p_job_id bigint, p_error_message text, p_attempt int default null, p_permanent boolean default false,
  p_data_size_bytes bigint default 0, p_outcome text default null)
returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_attempt int := pgfresh_engine.running_attempt(p_job_id, p_attempt);
  v_result jsonb;
begin
  perform pgfresh_engine.require_range('p_data_size_bytes', p_data_size_bytes, 0, 1e15);
  if coalesce(p_error_message, '') = '' or p_permanent is null then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      'p_error_message must not be empty and p_permanent not null',
      'Say what failed, in one line.');
  end if;
  if p_outcome is not null then perform pgfresh_engine.require_outcome(p_outcome); end if;
  if v_attempt is not null then
    select jsonb_build_object('status', t.status, 'next_retry_at', t.next_retry_at)
    into v_result
    from pgfresh_engine.fail_jobs(jsonb_build_array(jsonb_build_object(
      'id', p_job_id, 'attempt', v_attempt, 'bytes', p_data_size_bytes, 'outcome', p_outcome,
      'error', p_error_message, 'permanent', p_permanent, 'counts', not p_permanent))) as t;
  end if;
  return v_result;
end
$$;
comment on function pgfresh.fail_queue_job(bigint, text, int, boolean, bigint, text) is
  'Ends a running attempt as failed. A transient failure is retried up to the type''s max_retries, and counts for '
  'the breaker of the source; a permanent one is final. Returns {"status", "next_retry_at"}, or null with a warning '
  'if the job does not run in that attempt.';
grant execute on function pgfresh.fail_queue_job(bigint, text, int, boolean, bigint, text) to pgfresh_worker;

create or replace function pgfresh.reset_job_immediate(p_job_id bigint, p_attempt int default null) returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_attempt int := pgfresh_engine.running_attempt(p_job_id, p_attempt);
begin
  return v_attempt is not null
    and exists (
      select from pgfresh_engine.put_back_jobs(
        jsonb_build_array(jsonb_build_object('id', p_job_id, 'attempt', v_attempt))));
end
$$;
comment on function pgfresh.reset_job_immediate(bigint, int) is
  'Makes a running job ready again at once, without counting a retry: for deadlocks and other failures that are not '
  'the job''s fault. From the sixth time on it counts as a retry.';
grant execute on function pgfresh.reset_job_immediate(bigint, int) to pgfresh_worker, pgfresh_operator;

create or replace function pgfresh.cancel_queue_jobs(
  p_job_ids bigint[] default null, p_data_type text default null, p_source text default null,
  p_status text default null, p_key text default null, p_dry_run boolean default false)
returns bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_ids bigint[];
begin
  if p_dry_run is null or num_nonnulls(p_job_ids, p_data_type, p_source, p_status, p_key) = 0 then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      'cancelling needs at least one filter, and p_dry_run must be true or false',
      'Pass ids, a data type, a source, a status or a key.');
  end if;
  if p_data_type is not null then perform pgfresh_engine.require_type(p_data_type); end if;
  if p_source is not null then perform pgfresh_engine.require_source(p_source); end if;
  if p_key is not null then perform pgfresh_engine.require_key(p_key); end if;
  if p_status is not null and p_status not in ('pending', 'retryable', 'running') then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      format('p_status must be pending, retryable or running, got %s', left(quote_literal(p_status), 60)),
      'Only open jobs can be cancelled.');
  end if;
  select array_agg(q.id order by q.id)
  into v_ids
  from pgfresh_engine.open_jobs as q
  where (p_job_ids is null or q.id = any (p_job_ids))
    and (p_data_type is null or q.data_type = p_data_type)
    and (p_source is null or q.source = p_source)
    and (p_status is null or q.status = p_status)
    and (p_key is null or q.key = p_key);
  if p_dry_run or v_ids is null then
    return coalesce(cardinality(v_ids), 0);
  end if;
  return pgfresh_engine.cancel_jobs(v_ids);
end
$$;
comment on function pgfresh.cancel_queue_jobs(bigint[], text, text, text, text, boolean) is
  'Cancels open jobs by filter and returns how many; with p_dry_run it only counts them. Running jobs lose their '
  'effect.';
grant execute on function pgfresh.cancel_queue_jobs(bigint[], text, text, text, text, boolean) to pgfresh_operator;

create or replace function pgfresh.retry_failed_jobs(
  p_job_ids bigint[] default null, p_data_type text default null, p_source text default null,
  p_since timestamptz default null, p_dry_run boolean default false)
returns bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_group record;
  v_keys text[];
  v_ids bigint[];
  v_count bigint := 0;
  v_skipped bigint := 0;
begin
  if p_dry_run is null or num_nonnulls(p_job_ids, p_data_type, p_source, p_since) = 0 then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      'retrying needs at least one filter, and p_dry_run must be true or false',
      'Pass ids, a data type, a source or a time.');
  end if;
  if p_data_type is not null then perform pgfresh_engine.require_type(p_data_type); end if;
  if p_source is not null then perform pgfresh_engine.require_source(p_source); end if;
  for v_group in
    select f.data_type, f.priority, f.metadata, array_agg(f.id) as ids, array_agg(f.key) as keys
    from (
      select f.*, row_number() over (partition by f.data_type, f.priority, f.metadata order by f.id) as place
      from pgfresh.failed_jobs as f
      where f.redriven_at is null
        and (p_job_ids is null or f.id = any (p_job_ids))
        and (p_data_type is null or f.data_type = p_data_type)
        and (p_source is null or f.source = p_source)
        and (p_since is null or f.ended_at >= p_since)
    ) as f
    -- In sets, because queue_refreshes refuses more than 100000 keys.
    group by f.data_type, f.priority, f.metadata, (f.place - 1) / 10000
    order by min(f.id)
  loop
    -- A key that is no longer valid, or a data type that cannot be asked, must not keep the others from being retried.
    begin
      v_keys := array(
        select j.key
        from pgfresh_engine.canonical_keys(pgfresh_engine.require_type(v_group.data_type), v_group.keys) as j
        where j.code is null and j.key = v_group.keys[j.place]);
      if not p_dry_run then
        -- A locked pair gets no job, and can be retried later.
        v_keys := array(
          select q.key
          from pgfresh_engine.queue_refreshes(v_group.data_type, v_keys, v_group.priority, null, v_group.metadata) as q
          where q.result <> 'busy');
      end if;
    exception when sqlstate 'PGF01' then
      v_keys := '{}';
    end;
    v_ids := array(
      select f.id
      from unnest(v_group.ids, v_group.keys) as f(id, key)
      where f.key in (select k from unnest(v_keys) as k));
    v_count := v_count + cardinality(v_ids);
    v_skipped := v_skipped + cardinality(v_group.ids) - cardinality(v_ids);
    if not p_dry_run then
      update pgfresh_engine.history_other
      set redriven_at = pgfresh.clock()
      where id = any (v_ids) and status = 'failed';
    end if;
  end loop;
  if v_skipped > 0 then
    raise warning '% failed jobs were skipped: their keys are not keys of their data types any more, or are locked',
      v_skipped
      using hint = 'They stay in pgfresh.failed_jobs and can be retried later.';
  end if;
  return v_count;
end
$$;
comment on function pgfresh.retry_failed_jobs(bigint[], text, text, timestamptz, boolean) is
  'Enqueues failed jobs again, by filter, each once; returns how many. With p_dry_run it only counts them. Jobs '
  'whose key no longer belongs to their data type, or whose pair is locked, are skipped, and a warning says how '
  'many.';
grant execute on function pgfresh.retry_failed_jobs(bigint[], text, text, timestamptz, boolean) to pgfresh_operator;

create or replace function pgfresh.get_queue_batch(
  p_batch_size int default 50, p_sources text[] default null, p_data_types text[] default null,
  p_max_bytes bigint default null, p_worker text default null)
returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_sources int[];
  v_types int[];
begin
  perform pgfresh_engine.require_range('p_batch_size', p_batch_size, 1, 10000);
  if p_sources is not null then
    select coalesce(array_agg((pgfresh_engine.require_source(name)).id), '{}')
    into v_sources
    from unnest(p_sources) as name;
  end if;
  if p_data_types is not null then
    select coalesce(array_agg((pgfresh_engine.require_type(name)).type_id), '{}')
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
    from pgfresh_engine.claim_jobs(
      null, gen_random_uuid(), p_batch_size, v_sources, v_types, p_max_bytes, p_client => p_worker) as c
    join pgfresh.data_type_registry as r on r.type_id = c.type_id
  );
end
$$;
comment on function pgfresh.get_queue_batch(int, text[], text[], bigint, text) is
  'Claims a batch for an SQL client and returns it as a JSON array. Pass the id and attempt of each job to '
  'complete_queue_job or fail_queue_job. A job without progress for its maximum (300 s by default) is taken back '
  'unless heartbeat_jobs reports progress. p_worker is the name under which the jobs are shown (locked_by); without '
  'it, the application_name (else the user) and the process id of the connection.';
grant execute on function pgfresh.get_queue_batch(int, text[], text[], bigint, text) to pgfresh_worker;

create or replace function pgfresh.claim_next_pending_job(
  p_worker text default null, p_sources text[] default null, p_data_types text[] default null)
returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform pgfresh_engine.recover_silent_jobs(10);
  return pgfresh.get_queue_batch(1, p_sources, p_data_types, p_worker => p_worker) -> 0;
end
$$;
comment on function pgfresh.claim_next_pending_job(text, text[], text[]) is
  'Claims one job under a name, after taking back some without progress. Returns it as get_queue_batch does, or '
  'null.';
grant execute on function pgfresh.claim_next_pending_job(text, text[], text[]) to pgfresh_worker;

create or replace function pgfresh.maintain_queue_partitions(
  p_keep_succeeded_days int default 7, p_keep_other_days int default 30)
returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '200ms'
as $$
declare
  -- Rows that one call moves of each part of the history, in about a tenth of a second.
  c_rows constant int := 10000;
  c_few_rows constant int := 500;
  v_today date := (pgfresh.clock() at time zone 'UTC')::date;
  v_ahead date[] := array(select generate_series(v_today, v_today + 3, interval '1 day')::date);
  v_made int := 0; v_dropped int := 0; v_busy int := 0; v_moved bigint := 0;
  v_trees text[] := '{history_succeeded, history_other, history_attempt}';
  v_keeps int[] := array[p_keep_succeeded_days, p_keep_other_days, p_keep_other_days];
  v_filled text[] := '{}';
  v_tree text; v_keep int; v_name text;
  v_move record;
  v_any boolean;
begin
  perform pgfresh_engine.require_range('p_keep_succeeded_days', p_keep_succeeded_days, 1, 3650);
  perform pgfresh_engine.require_range('p_keep_other_days', p_keep_other_days, 1, 3650);
  if not pg_try_advisory_xact_lock(7041, 5) then
    return jsonb_build_object('skipped', 'locked');
  end if;
  -- First the steps that no end waits for.
  for v_tree, v_keep in select * from unnest(v_trees, v_keeps) loop
    execute format('select exists (select from pgfresh_engine.%I)', v_tree || '_default') into v_any;
    if v_any then
      v_filled := v_filled || v_tree;
      continue;
    end if;
    begin
      v_made := v_made + pgfresh_engine.make_history_days(v_tree, v_ahead);
      v_move := pgfresh_engine.move_history(v_tree, (v_today - v_keep)::timestamp at time zone 'UTC', c_rows);
      v_moved := v_moved + v_move.moved;
      v_made := v_made + v_move.made;
    exception when lock_not_available then
      v_busy := v_busy + 1;
      raise warning 'partitions of % could not be made now: %', v_tree, sqlerrm;
    end;
  end loop;
  -- Then the steps that ends wait for. Once it holds one lock, it does not wait for another: ends would wait as long.
  for v_tree, v_keep, v_name in
    select t.tree, t.keep, c.relname
    from unnest(v_trees, v_keeps) as t(tree, keep)
    join pg_inherits as i on i.inhparent = ('pgfresh_engine.' || t.tree)::regclass
    join pg_class as c on c.oid = i.inhrelid
    where c.relname ~ '_[0-9]{8}$' and to_date(right(c.relname, 8), 'YYYYMMDD') < v_today - t.keep
    order by c.relname
  loop
    begin
      execute format('drop table pgfresh_engine.%I', v_name);
      v_dropped := v_dropped + 1;
      perform set_config('lock_timeout', '10ms', true);
    exception when lock_not_available then
      v_busy := v_busy + 1;
      raise warning 'partition % is in use and stays until the next run', v_name;
    end;
  end loop;
  foreach v_tree in array v_filled loop
    begin
      v_name := format('%s_aside_%s', v_tree, to_char(v_today, 'YYYYMMDD'));
      -- If this is the second time on one day, the rows of the first time move first.
      if to_regclass('pgfresh_engine.' || v_name) is null then
        execute format('alter table pgfresh_engine.%1$I detach partition pgfresh_engine.%2$I; '
          'alter table pgfresh_engine.%2$I rename to %3$I; '
          'create table pgfresh_engine.%2$I partition of pgfresh_engine.%1$I default',
          v_tree, v_tree || '_default', v_name);
      end if;
      v_made := v_made + pgfresh_engine.make_history_days(v_tree, v_ahead);
      perform set_config('lock_timeout', '10ms', true);
      -- While ends wait, only as many rows are moved as a few milliseconds allow.
      v_keep := v_keeps[array_position(v_trees, v_tree)];
      v_move := pgfresh_engine.move_history(v_tree, (v_today - v_keep)::timestamp at time zone 'UTC', c_few_rows);
      v_moved := v_moved + v_move.moved;
      v_made := v_made + v_move.made;
    exception when lock_not_available then
      v_busy := v_busy + 1;
      raise warning 'the default partition of % is in use and stays until the next run', v_tree;
    end;
  end loop;
  -- Names that no row of the history has any longer.
  delete from pgfresh_engine.worker_name
  where id = any (array(
    select n.id
    from pgfresh_engine.worker_name as n
    where n.last_seen_at
        < pgfresh.clock() - make_interval(days => greatest(p_keep_succeeded_days, p_keep_other_days) + 2)
      and not exists (select from pgfresh_engine.process as w where w.id = n.id)
    for update of n skip locked));
  return jsonb_build_object(
    'made', v_made, 'dropped', v_dropped, 'busy', v_busy, 'moved', v_moved,
    'aside', (select count(*) from pgfresh_engine.history_aside()));
end
$$;
comment on function pgfresh.maintain_queue_partitions(int, int) is
  'Creates the partitions of the history for today and the next three days, and drops those older than the days to '
  'keep. It never waits long for a lock: partitions in use are left for the next run, with a warning. Rows of days '
  'without a partition are moved to it, at most 10000 of each part per call: call it again while "aside" is not 0. '
  'Returns {"made", "dropped", "busy", "moved", "aside"}, or {"skipped"} while another call is running.';
grant execute on function pgfresh.maintain_queue_partitions(int, int) to pgfresh_planner, pgfresh_operator;

create or replace function pgfresh.heartbeat_jobs(p_job_ids bigint[], p_attempts int[] default null) returns bigint[]
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_alive bigint[];
begin
  if p_job_ids is null or cardinality(p_job_ids) > 10000 or cardinality(p_attempts) <> cardinality(p_job_ids) then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      'p_job_ids must be an array of at most 10000 ids, and p_attempts as long as it',
      'Pass the ids that the claim returned.');
  end if;
  with alive as (
    update pgfresh_engine.job
    set progress_at = pgfresh.clock()
    -- In the order of their ids, as every end locks them.
    where id = any (array(
      select j.id
      from pgfresh_engine.job as j
      join unnest(p_job_ids, p_attempts) as b(id, attempt) on j.id = b.id
      where j.state = 'x' and j.attempt = coalesce(b.attempt, j.attempt)
      order by j.id for update of j))
    returning id
  )
  select coalesce(array_agg(id), '{}') into v_alive from alive;
  return v_alive;
end
$$;
comment on function pgfresh.heartbeat_jobs(bigint[], int[]) is
  'Reports progress of running jobs, so that they are not taken back. Returns those that still run; stop working on '
  'the others.';
grant execute on function pgfresh.heartbeat_jobs(bigint[], int[]) to pgfresh_worker;

/*
  One run at a time, which waits for no lock. After a pause of the database every lease has expired although every
  worker is alive. A gap since the last run, or a server that has just started, shows that. Then leases are not trusted
  for one more lease.
*/
create or replace function pgfresh.recover_stuck_jobs(
  p_expected_gap interval default '90 seconds', p_limit int default 500)
returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := pgfresh.clock();
  v_recovery pgfresh_engine.recovery;
  v_worker record;
  v_retired bigint[];
  v_id bigint;
  v_lost int := 0;
  v_workers int := 0;
  v_silent int;
  v_strays boolean;
begin
  perform pgfresh_engine.require_range('p_limit', p_limit, 1, 10000);
  perform pgfresh_engine.require_range('p_expected_gap in seconds', extract(epoch from p_expected_gap), 1, 86400);
  select * into v_recovery from pgfresh_engine.recovery for update skip locked;
  if not found then
    return jsonb_build_object('skipped', true, 'reason', 'locked');
  end if;
  if (v_recovery.ran_at > '-infinity' and v_recovery.ran_at < v_now - p_expected_gap)
      or v_now - pg_postmaster_start_time() between interval '0' and interval '15 seconds' then
    v_recovery.trust_leases_from := v_now + interval '15 seconds';
  end if;
  v_strays := v_recovery.strays_at <= v_now - interval '1 minute' or v_recovery.strays_at > v_now;
  update pgfresh_engine.recovery
  set ran_at = v_now, trust_leases_from = v_recovery.trust_leases_from,
    strays_at = case when v_strays then v_now else strays_at end;
  -- A worker that has retired while its claim was on its way has no row any longer.
  v_retired := array(
    select distinct c.worker
    from pgfresh_engine.claim as c
    where c.worker is not null and not exists (select from pgfresh_engine.process as w where w.id = c.worker)
  );
  if v_now >= v_recovery.trust_leases_from
      and (v_retired <> '{}'
        or exists (select from pgfresh_engine.process where kind = 'worker' and lease_until <= v_now)) then
    -- Each worker is settled by itself, so the ledgers of all sources are locked before, in the order in which ends
    -- lock them.
    perform from pgfresh_engine.source_state order by source_id for update;
    for v_worker in
      select id, name
      from pgfresh_engine.process
      where kind = 'worker' and lease_until <= v_now
      order by id
      limit 100 for update skip locked
    loop
      v_lost := v_lost + pgfresh_engine.take_back(v_worker.id, true, format('worker %s is gone', v_worker.name));
      update pgfresh_engine.worker_name set last_seen_at = v_now where id = v_worker.id;
      perform pgfresh_engine.forget_process(v_worker.id);
      v_workers := v_workers + 1;
    end loop;
    foreach v_id in array v_retired loop
      v_lost := v_lost + pgfresh_engine.take_back(v_id, true,
        format('worker %s has retired', pgfresh_engine.worker_called(v_id)));
    end loop;
  end if;
  v_silent := pgfresh_engine.recover_silent_jobs(p_limit);
  if v_strays or exists (select from pgfresh_engine.registry_change) then
    perform pgfresh_engine.follow_changes(v_now, v_strays);
  end if;
  -- Claims of SQL clients have no worker whose heartbeat would delete them.
  delete from pgfresh_engine.claim as c
  where c.worker is null and c.claimed_at < v_now - interval '1 minute'
    and not exists (
      select from unnest(c.job_ids) as job(id)
      join pgfresh_engine.job as j on j.id = job.id and j.request = c.request
    );
  return jsonb_build_object(
    'skipped', false, 'dead_workers', v_workers, 'lost', v_lost, 'silent', v_silent,
    'leases_trusted', v_now >= v_recovery.trust_leases_from);
end
$$;
comment on function pgfresh.recover_stuck_jobs(interval, int) is
  'Takes back the jobs of workers whose lease has ended and jobs without progress, and applies registry changes to '
  'jobs that were locked. Run it every few seconds, or every minute from cron. A gap between two runs longer than '
  'p_expected_gap counts as a pause of the database.';
grant execute on function pgfresh.recover_stuck_jobs(interval, int) to
  pgfresh_worker, pgfresh_planner, pgfresh_operator;
