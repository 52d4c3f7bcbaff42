create or replace function pgfresh.running_attempt(p_job_id bigint, p_attempt int) returns int
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_attempt int;
begin
  perform pgfresh.require_range('p_job_id', p_job_id, 1, 9223372036854775807);
  select attempt
  into v_attempt
  from pgfresh.job
  where id = p_job_id and state = 'x' and attempt = coalesce(p_attempt, attempt);
  if v_attempt is null then
    raise warning 'job % is not running%', p_job_id, coalesce(' in attempt ' || p_attempt, '');
  end if;
  return v_attempt;
end
$$;
comment on function pgfresh.running_attempt(bigint, int) is
  'The attempt in which a job runs; warns and returns null if it does not.';

create or replace function pgfresh.complete_queue_job(
  p_job_id bigint, p_data_size_bytes bigint, p_attempt int default null, p_outcome text default 'fresh')
returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_attempt int := pgfresh.running_attempt(p_job_id, p_attempt);
begin
  perform pgfresh.require_range('p_data_size_bytes', p_data_size_bytes, 0, 1e15);
  perform pgfresh.require_outcome(p_outcome);
  if exists (
    select from pgfresh.job as j
    join pgfresh.data_type_registry as r on r.type_id = j.type_id
    where j.id = p_job_id and j.attempt = v_attempt and j.definition <> r.definition
  ) then
    raise warning 'the data type of job % was changed while it ran: it is asked for again', p_job_id;
    perform pgfresh.put_back_jobs(jsonb_build_array(jsonb_build_object(
      'id', p_job_id, 'attempt', v_attempt, 'bytes', p_data_size_bytes, 'calls', 1, 'outcome', 'redefined')));
    return false;
  end if;
  return v_attempt is not null and cardinality(
    pgfresh.complete_jobs(array[p_job_id], array[v_attempt], array[p_data_size_bytes], array[p_outcome])) = 1;
end
$$;
comment on function pgfresh.complete_queue_job(bigint, bigint, int, text) is
  'Ends a running job as succeeded and settles its bytes. '
  'Pass the attempt that the claim returned: a late call of an earlier attempt then has no effect. '
  'A job whose data type was changed while it ran is put back instead. '
  'Returns whether it had an effect; warns if not.';

create or replace function pgfresh.fail_queue_job(
  p_job_id bigint, p_error_message text, p_attempt int default null, p_permanent boolean default false,
  p_data_size_bytes bigint default 0, p_outcome text default null)
returns jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_attempt int := pgfresh.running_attempt(p_job_id, p_attempt);
  v_result jsonb;
begin
  perform pgfresh.require_range('p_data_size_bytes', p_data_size_bytes, 0, 1e15);
  if coalesce(p_error_message, '') = '' or p_permanent is null then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      'p_error_message must not be empty and p_permanent not null',
      'Say what failed, in one line.');
  end if;
  if p_outcome is not null then perform pgfresh.require_outcome(p_outcome); end if;
  if v_attempt is not null then
    select jsonb_build_object('status', t.status, 'next_retry_at', t.next_retry_at)
    into v_result
    from pgfresh.fail_jobs(jsonb_build_array(jsonb_build_object(
      'id', p_job_id, 'attempt', v_attempt, 'bytes', p_data_size_bytes, 'outcome', p_outcome,
      'error', p_error_message, 'permanent', p_permanent, 'counts', not p_permanent))) as t;
  end if;
  return v_result;
end
$$;
comment on function pgfresh.fail_queue_job(bigint, text, int, boolean, bigint, text) is
  'Ends a running attempt as failed. A transient failure waits and is tried again up to the type''s max_retries, '
  'and counts for the breaker of the source; a permanent one is failed at once. '
  'Returns {"status", "next_retry_at"}, or null with a warning if the job does not run in that attempt.';

create or replace function pgfresh.reset_job_immediate(p_job_id bigint, p_attempt int default null) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_attempt int := pgfresh.running_attempt(p_job_id, p_attempt);
begin
  return v_attempt is not null
    and exists (
      select from pgfresh.put_back_jobs(jsonb_build_array(jsonb_build_object('id', p_job_id, 'attempt', v_attempt))));
end
$$;
comment on function pgfresh.reset_job_immediate(bigint, int) is
  'Makes a running job ready again at once, without counting a retry: '
  'for deadlocks and other failures that are not the job''s. After the fifth time it counts as a retry.';

create or replace function pgfresh.cancel_queue_jobs(
  p_job_ids bigint[] default null, p_data_type text default null, p_source text default null,
  p_status text default null, p_key text default null, p_dry_run boolean default false)
returns bigint
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_ids bigint[];
begin
  if p_dry_run is null or num_nonnulls(p_job_ids, p_data_type, p_source, p_status, p_key) = 0 then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      'cancelling needs at least one filter, and p_dry_run must be true or false',
      'Pass ids, a data type, a source, a status or a key.');
  end if;
  if p_data_type is not null then perform pgfresh.require_type(p_data_type); end if;
  if p_source is not null then perform pgfresh.require_source(p_source); end if;
  if p_key is not null then perform pgfresh.require_key(p_key); end if;
  if p_status is not null and p_status not in ('pending', 'retryable', 'running') then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      format('p_status must be pending, retryable or running, got %s', left(quote_literal(p_status), 60)),
      'Only open jobs can be cancelled.');
  end if;
  select array_agg(q.id order by q.id)
  into v_ids
  from pgfresh.open_jobs as q
  where (p_job_ids is null or q.id = any (p_job_ids))
    and (p_data_type is null or q.data_type = p_data_type)
    and (p_source is null or q.source = p_source)
    and (p_status is null or q.status = p_status)
    and (p_key is null or q.key = p_key);
  if p_dry_run or v_ids is null then
    return coalesce(cardinality(v_ids), 0);
  end if;
  return pgfresh.cancel_jobs(v_ids);
end
$$;
comment on function pgfresh.cancel_queue_jobs(bigint[], text, text, text, text, boolean) is
  'Cancels open jobs by filter and returns how many; with p_dry_run only counts them. '
  'What a running one does afterwards has no effect.';

create or replace function pgfresh.retry_failed_jobs(
  p_job_ids bigint[] default null, p_data_type text default null, p_source text default null,
  p_since timestamptz default null, p_dry_run boolean default false)
returns bigint
language plpgsql
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
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      'retrying needs at least one filter, and p_dry_run must be true or false',
      'Pass ids, a data type, a source or a time.');
  end if;
  if p_data_type is not null then perform pgfresh.require_type(p_data_type); end if;
  if p_source is not null then perform pgfresh.require_source(p_source); end if;
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
    -- What is no key any more, or belongs to a type that cannot be asked, must not keep the others from their turn.
    begin
      v_keys := array(
        select j.key
        from pgfresh.judge_keys(pgfresh.require_type(v_group.data_type), v_group.keys) as j
        where j.code is null and j.key = v_group.keys[j.place]);
      if not p_dry_run then
        -- A pair that somebody has locked gets no job, and can be retried later.
        v_keys := array(
          select q.key
          from pgfresh.queue_refreshes(v_group.data_type, v_keys, v_group.priority, null, v_group.metadata) as q
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
      update pgfresh.history_other
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
  'Enqueues failed jobs again, by filter, each once; returns how many. With p_dry_run only counts them. '
  'Those whose key is no key of their data type any more, or whose pair is locked, are skipped, '
  'and a warning says how many.';
