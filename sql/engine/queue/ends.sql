/*
  How a job ends or returns to the queue. Each function locks its jobs first, in the order of their ids, then decides
  about each of them, then writes.
    complete_jobs   it succeeded
    fail_jobs       it failed: it waits and is tried again, or has failed for good
    put_back_jobs   the job is not to blame: it is ready again at once, and after five times this counts as a retry
    cancel_jobs     it is no longer wanted; the only one that also ends jobs that do not run
  This file holds what they share.
*/

create or replace function pgfresh_engine.is_refused_answer(p_outcome text) returns boolean
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
  select p_outcome in ('schema', 'sanity', 'wrong_key', 'too_large', 'write_conflict', 'suspicious', 'config') is true
$$;
comment on function pgfresh_engine.is_refused_answer(text) is
  'Whether an outcome says that answers of a data type cannot be used as it is defined, though the source answers.';

create or replace function pgfresh_engine.longest_retry_delay(p_retries int, p_priority int) returns interval
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
  select least(
    interval '24 hours',
    (case when p_priority > 0 then interval '15 seconds' else interval '1 minute' end) * power(2, least(p_retries, 20)))
$$;
comment on function pgfresh_engine.longest_retry_delay(int, int) is
  'How long a job waits before its next try at the most: base * 2^retries (15 s viewed, 1 min background), '
  'at most 24 h.';

/*
  Each put-back may have cost a call, so their number is bounded, whatever the reason: after five, a put-back counts as
  a retry. Retries have full jitter, anything up to the longest delay, so that jobs that failed together do not return
  together. A refresh that was forced while the job ran does not wait.
*/
create or replace function pgfresh_engine.decide_end(
  p_end pgfresh_engine.job_end, p_now timestamptz, p_put_back boolean)
returns pgfresh_engine.job_end
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  p_end.next_at := p_now;
  if p_put_back and p_end.put_backs < 5 then
    p_end.put_backs := p_end.put_backs + 1;
    p_end.status := 'pending';
  elsif p_end.retries >= p_end.max_retries or (p_end.permanent and not p_put_back) then
    p_end.status := 'failed';
  else
    p_end.status := 'retryable';
    if not p_end.rerun then
      p_end.next_at := p_now + random() * pgfresh_engine.longest_retry_delay(p_end.retries, p_end.priority);
    end if;
  end if;
  return p_end;
end
$$;
comment on function pgfresh_engine.decide_end(pgfresh_engine.job_end, timestamptz, boolean) is
  'Decides what becomes of a job that failed or is put back: ready at once, tried again later, or failed. '
  'A part of fail_jobs and put_back_jobs.';

-- The fence: only a job that still runs in the given attempt, and under the given claim, is ended.
create or replace function pgfresh_engine.lock_ends(p_ends jsonb) returns pgfresh_engine.job_end[]
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_ids bigint[];
  v_ends pgfresh_engine.job_end[];
begin
  if jsonb_typeof(p_ends) is distinct from 'array' or jsonb_array_length(p_ends) > 10000
      or exists (select from jsonb_array_elements(p_ends) as e(said) where jsonb_typeof(e.said) <> 'object') then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      'p_ends must be a JSON array of at most 10000 objects',
      'Pass {"id", "attempt", "bytes", ...} for each job.');
  end if;
  -- Larger ids do not fit into a token.
  if exists (
    select from jsonb_populate_recordset(null::pgfresh_engine.job_end, p_ends) as e
    where (
      e.id between 1 and 8796093022207 and e.attempt >= 0
      and coalesce(e.bytes, 0) between 0 and 1000000000000000 and coalesce(e.calls, 0) between 0 and 1000000
      and coalesce(e.needs, 1) between 1 and 1000
      and coalesce(e.fetch_ms, 0) >= 0 and coalesce(e.validate_ms, 0) >= 0
    ) is not true
  ) then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      'each end needs an id from 1 to 8796093022207 and an attempt; bytes are from 0 to 1e15, calls from 0 to 1000000, '
      'needs from 1 to 1000, and no time is negative',
      'Pass id and attempt as the claim returned them, and what the call has cost.');
  end if;
  perform pgfresh_engine.require_outcome(said.outcome)
  from (
    select distinct e.outcome
    from jsonb_populate_recordset(null::pgfresh_engine.job_end, p_ends) as e
    where e.outcome is not null
  ) as said;
  v_ids := array(select e.id from jsonb_populate_recordset(null::pgfresh_engine.job_end, p_ends) as e);
  select coalesce(array_agg(row(
    t.id, t.attempt, t.request, coalesce(t.bytes, 0), coalesce(t.calls, (t.bytes > 0)::int, 0), coalesce(t.needs, 1),
    t.fetch_ms, t.validate_ms, t.outcome, left(t.error, 4000), coalesce(t.permanent, false), coalesce(t.counts, false),
    t.type_id, t.key, t.source_id, coalesce(t.api_key, 1::smallint), t.priority, t.claimed_at, t.reserved,
    t.retries, t.max_retries, t.lost, t.put_backs, t.rerun,
    null, null)::pgfresh_engine.job_end order by t.id), '{}')
  into v_ends
  from (
    select e.id, e.attempt, e.request, e.bytes, e.calls, e.needs, e.fetch_ms, e.validate_ms, e.outcome, e.error,
      e.permanent, e.counts, j.type_id, j.key, j.source_id, j.api_key, j.priority, j.claimed_at, j.reserved,
      j.retries, coalesce(r.max_retries, 0) as max_retries, j.lost, j.put_backs, j.rerun
    from pgfresh_engine.job as j
    join jsonb_populate_recordset(null::pgfresh_engine.job_end, p_ends) as e on e.id = j.id
    -- Jobs of a deleted data type can be ended too.
    left join pgfresh.data_type_registry as r on r.type_id = j.type_id
    where j.id = any (v_ids) and j.state = 'x' and j.attempt = e.attempt and j.request = coalesce(e.request, j.request)
    order by j.id for update of j
  ) as t;
  if cardinality(v_ends) <> (select count(distinct e.id) from unnest(v_ends) as e) then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID', 'one job twice', 'Name each job once.');
  end if;
  return v_ends;
end
$$;
comment on function pgfresh_engine.lock_ends(jsonb) is
  'Refuses what does not describe ends of jobs. Locks the jobs that still run in the given attempts, '
  'and returns their ends with what is known of the jobs. A part of fail_jobs and put_back_jobs.';

create or replace function pgfresh_engine.write_ends(p_ends pgfresh_engine.job_end[], p_now timestamptz) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_open bigint[] := array(select e.id from unnest(p_ends) as e where e.status in ('retryable', 'pending'));
  v_closed bigint[] := array(select e.id from unnest(p_ends) as e where e.status in ('failed', 'cancelled'));
  v_again bigint[];
  v_type record;
begin
  if v_open <> '{}' then
    insert into pgfresh_engine.history_attempt (
      id, ended_at, created_at, claimed_at, bytes, calls, worker, type_id, source_id, priority,
      attempt, retries, lost, fetch_ms, validate_ms, status, outcome, key, error, metadata)
    select
      j.id, p_now, j.created_at, j.claimed_at, e.bytes, e.calls, j.worker, j.type_id, j.source_id, j.priority,
      j.attempt, j.retries, j.lost, e.fetch_ms, e.validate_ms, e.status, e.outcome, j.key, e.error, j.metadata
    from pgfresh_engine.job as j
    join unnest(p_ends) as e on e.id = j.id
    where j.id = any (v_open);
    update pgfresh_engine.job as j
    set state = case when e.status = 'retryable' then 'w' else 'r' end::"char", run_at = e.next_at,
      worker = null, request = null, claimed_at = null, progress_at = null, reserved = 0, api_key = null,
      -- A retry already is the rerun that was requested while this attempt ran.
      rerun = j.rerun and e.status = 'pending',
      -- It settles with the source it was claimed for, and continues with the current source of its data type.
      source_id = coalesce(
        (select r.source_id from pgfresh.data_type_registry as r where r.type_id = j.type_id), j.source_id),
      retries = j.retries + (e.status = 'retryable')::int, lost = e.lost, put_backs = e.put_backs,
      needs = greatest(j.needs, e.needs), calls_left = 0,
      error = coalesce(e.error, j.error)
    from unnest(p_ends) as e
    where j.id = any (v_open) and j.id = e.id;
    if exists (select from unnest(p_ends) as e where e.status = 'pending') then
      perform pgfresh_engine.wake_workers();
    end if;
  end if;
  if v_closed = '{}' then
    return;
  end if;
  with gone as (
    delete from pgfresh_engine.job as j
    using unnest(p_ends) as e
    where j.id = any (v_closed) and j.id = e.id
    returning j.id, j.created_at, j.claimed_at, j.worker, j.type_id, j.source_id, j.priority, j.attempt, j.retries,
      j.key, j.metadata, e.bytes, e.calls, e.lost, e.fetch_ms, e.validate_ms, e.status, e.outcome,
      coalesce(e.error, j.error) as error
  )
  insert into pgfresh_engine.history_other (
    id, ended_at, created_at, claimed_at, bytes, calls, worker, type_id, source_id, priority,
    attempt, retries, lost, fetch_ms, validate_ms, status, outcome, key, error, metadata)
  select
    id, p_now, created_at, claimed_at, bytes, calls, worker, type_id, source_id, priority,
    attempt, retries, lost, fetch_ms, validate_ms, status, outcome, key, error, metadata
  from gone;
  for v_type in
    select e.type_id, array_agg(e.key) as keys
    from unnest(p_ends) as e
    where e.id = any (v_closed)
    group by e.type_id
    order by e.type_id
  loop
    with freed as (
      update pgfresh_engine.pairs as p
      set last_job = p.job_id, job_id = null, fails = p.fails + (hold.status = 'failed')::int,
        outcome = hold.outcome, next_ask_at = hold.until, waits_for = null,
        due_at = case when p.demanded then least(p.due_at, hold.until) else p.due_at end
      from (
        -- Backoff of a failed pair: its TTL, at least a minute, doubled by each consecutive failure.
        select h.key, e.status, e.outcome,
          p_now + least(interval '24 hours', case
            when e.status = 'cancelled' then r.ttl
            else greatest(r.ttl, interval '1 minute') * power(2, least(h.fails, 11))
          end) as until
        from pgfresh_engine.pairs as h
        join unnest(p_ends) as e on e.type_id = h.type_id and e.key = h.key
        join pgfresh.data_type_registry as r on r.type_id = h.type_id
        where h.type_id = v_type.type_id and h.key = any (v_type.keys)
      ) as hold
      where p.type_id = v_type.type_id and p.key = any (v_type.keys) and p.key = hold.key
      returning p.key, p.demanded, p.due_at, hold.until, hold.outcome
    ), refused as (
      insert into pgfresh_engine.refused_pair (type_id, key)
      select v_type.type_id, f.key from freed as f where pgfresh_engine.is_refused_answer(f.outcome) order by f.key
      on conflict do nothing
    )
    insert into pgfresh_engine.due (due_at, type_id, key)
    select f.until, v_type.type_id, f.key from freed as f where f.demanded and f.due_at = f.until
    on conflict do nothing;
  end loop;
  v_again := array(select e.id from unnest(p_ends) as e where e.status = 'failed' and e.rerun);
  if v_again <> '{}' then
    perform pgfresh_engine.run_again(v_again, p_now);
  end if;
end
$$;
comment on function pgfresh_engine.write_ends(pgfresh_engine.job_end[], timestamptz) is
  'Returns pending and retryable jobs to the queue and keeps the attempt; moves failed and cancelled ones to the '
  'history and sets when their pairs are asked for again. A part of fail_jobs, put_back_jobs and cancel_jobs.';

-- Locks ledgers in the order of their sources. An end that also locks rows of sources locks those first.
create or replace function pgfresh_engine.settle_ends(p_ends pgfresh_engine.job_end[]) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  perform pgfresh_engine.settle_usage(t.source_id, t.reserved, t.bytes, t.calls)
  from (
    select e.source_id, sum(e.reserved)::bigint as reserved, sum(e.bytes)::bigint as bytes,
      sum(e.calls)::bigint as calls
    from unnest(p_ends) as e
    group by e.source_id
    order by e.source_id
  ) as t;
end
$$;
comment on function pgfresh_engine.settle_ends(pgfresh_engine.job_end[]) is
  'Books what jobs have cost, source by source in their order. A part of fail_jobs, put_back_jobs and cancel_jobs.';

-- The new job takes priority and metadata from the one that ended.
create or replace function pgfresh_engine.run_again(p_ended bigint[], p_now timestamptz) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  with ended as (
    -- With the current source of the data type.
    select h.*, r.source_id, r.estimated_data_size_bytes, nextval('pgfresh_engine.job_id') as next_id
    from (
      select id, type_id, key, priority, metadata
      from pgfresh_engine.history_succeeded
      where id = any (p_ended) and ended_at = p_now
      union all
      select id, type_id, key, priority, metadata
      from pgfresh_engine.history_other
      where id = any (p_ended) and ended_at = p_now
    ) as h
    join pgfresh.data_type_registry as r on r.type_id = h.type_id
  ), opened as (
    update pgfresh_engine.pairs as p
    set job_id = e.next_id, due_at = 'infinity', next_ask_at = null
    from ended as e
    where p.type_id = e.type_id and p.key = e.key
  )
  insert into pgfresh_engine.job (
    id, seq, run_at, created_at, est_bytes, type_id, source_id, priority, asked, band, lane,
    state, key, metadata)
  select
    e.next_id, e.next_id, p_now, p_now, bytes.estimate, e.type_id, e.source_id, e.priority, e.priority,
    pgfresh_engine.band_of(e.priority),
      pgfresh_engine.lane_of(pgfresh_engine.band_of(e.priority), false, bytes.estimate),
    'r', e.key, e.metadata
  from ended as e
  cross join lateral (
    select coalesce(
      (select t.estimated_bytes from pgfresh_engine.type_stats as t where t.type_id = e.type_id),
      e.estimated_data_size_bytes) as estimate
  ) as bytes;
end
$$;
comment on function pgfresh_engine.run_again(bigint[], timestamptz) is
  'Opens a new job for pairs whose refresh was forced while they were being refreshed. A part of every end.';
