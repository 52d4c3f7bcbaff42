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

-- Full jitter: anything up to the doubled base, so that what failed together does not come back together.
create or replace function pgfresh_engine.retry_delay(p_retries int, p_priority int) returns interval
language sql volatile
set search_path = pg_catalog, pg_temp
as $$ select random() * pgfresh_engine.longest_retry_delay(p_retries, p_priority) $$;
comment on function pgfresh_engine.retry_delay(int, int) is
  'How long a job waits before its next try: anything up to its longest_retry_delay.';

create or replace function pgfresh_engine.failure_hold(p_ttl interval, p_fails int) returns interval
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
  select least(
    interval '24 hours',
    greatest(p_ttl, interval '1 minute') * power(2, least(greatest(p_fails, 1), 12) - 1))
$$;
comment on function pgfresh_engine.failure_hold(interval, int) is
  'How long a pair that failed for good is left alone: its TTL, at least a minute, '
  'doubled by each failure in a row, at most 24 h.';

create or replace function pgfresh_engine.is_refused_answer(p_outcome text) returns boolean
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
  select p_outcome in ('schema', 'sanity', 'wrong_key', 'too_large', 'write_conflict', 'suspicious', 'config') is true
$$;
comment on function pgfresh_engine.is_refused_answer(text) is
  'Whether an outcome says that answers of a data type cannot be used as it is defined, though the source answers.';

/*
  A pair that the provider refuses must not stop its whole source. It is refused alone if the source has answered others
  since it was refused before, by this job or by the last one: then it says nothing about the API key.
*/
create or replace function pgfresh_engine.refused_alone(p_ids bigint[]) returns bigint[]
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select coalesce(array_agg(j.id), '{}')
  from pgfresh_engine.job as j
  join pgfresh.sources as s on s.id = j.source_id
  join pgfresh_engine.pairs as p on p.type_id = j.type_id and p.key = j.key
  cross join lateral (
    select h.ended_at from pgfresh_engine.history_attempt as h
    where h.id = j.id and h.outcome in ('unauthorized', 'forbidden')
    union all
    select h.ended_at from pgfresh_engine.history_other as h
    where h.id = p.last_job and h.outcome in ('unauthorized', 'forbidden')
    order by 1 desc
    limit 1
  ) as before
  where j.id = any (p_ids) and before.ended_at <= s.last_success_at
$$;
comment on function pgfresh_engine.refused_alone(bigint[]) is
  'Those of these jobs whose pair the provider refuses while it answers others. A part of fail_jobs.';

/*
  How a job ends other than by success, and how it comes back into the queue:
    fail_jobs       it has failed: it waits and tries again, or is failed for good
    put_back_jobs   it is not to blame: it is ready again at once, or after some times counted as a retry
    cancel_jobs     it is not wanted any more; the only one that also ends jobs that wait
  Each locks its jobs first, in the order of their ids, then decides about each, then writes.
*/

create or replace function pgfresh_engine.require_job_ends(p_ends jsonb) returns void
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  if jsonb_typeof(p_ends) is distinct from 'array' or jsonb_array_length(p_ends) > 10000
      or exists (select from jsonb_array_elements(p_ends) as e(said) where jsonb_typeof(e.said) <> 'object') then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      'p_ends must be a JSON array of at most 10000 objects',
      'Pass {"id", "attempt", "bytes", ...} for each job.');
  end if;
  -- A larger id has no token.
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
end
$$;
comment on function pgfresh_engine.require_job_ends(jsonb) is 'Refuses what does not describe ends of jobs.';

-- Fence first: only a job that still runs in the given attempt, and under the given claim, is ended.
create or replace function pgfresh_engine.lock_ends(p_ends jsonb) returns pgfresh_engine.job_end[]
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_ids bigint[];
  v_ends pgfresh_engine.job_end[];
begin
  perform pgfresh_engine.require_job_ends(p_ends);
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
    -- What is left of a data type that is gone can be ended too.
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
  'Locks the jobs that still run in the given attempts, and returns their ends with what is known of them. '
  'A part of fail_jobs and put_back_jobs.';

create or replace function pgfresh_engine.requeue_ends(p_ends pgfresh_engine.job_end[], p_now timestamptz) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_ids bigint[] := array(select e.id from unnest(p_ends) as e where e.status in ('retryable', 'pending'));
begin
  if v_ids = '{}' then
    return;
  end if;
  insert into pgfresh_engine.history_attempt (
    id, ended_at, created_at, claimed_at, bytes, calls, worker, type_id, source_id, priority,
    attempt, retries, lost, fetch_ms, validate_ms, status, outcome, key, error, metadata)
  select
    j.id, p_now, j.created_at, j.claimed_at, e.bytes, e.calls, j.worker, j.type_id, j.source_id, j.priority,
    j.attempt, j.retries, j.lost, e.fetch_ms, e.validate_ms, e.status, e.outcome, j.key, e.error, j.metadata
  from pgfresh_engine.job as j
  join unnest(p_ends) as e on e.id = j.id
  where j.id = any (v_ids);
  update pgfresh_engine.job as j
  set state = case when e.status = 'retryable' then 'w' else 'r' end::"char", run_at = e.next_at,
    worker = null, request = null, claimed_at = null, progress_at = null, reserved = 0, api_key = null,
    -- A retry is the run that was asked for while this one ran.
    rerun = j.rerun and e.status = 'pending',
    -- It has settled with the source that it was claimed for, and goes on with the one that its data type has now.
    source_id = coalesce(
      (select r.source_id from pgfresh.data_type_registry as r where r.type_id = j.type_id), j.source_id),
    retries = j.retries + (e.status = 'retryable')::int, lost = e.lost, put_backs = e.put_backs,
    needs = greatest(j.needs, e.needs), calls_left = 0,
    error = coalesce(e.error, j.error)
  from unnest(p_ends) as e
  where j.id = any (v_ids) and j.id = e.id;
  if exists (select from unnest(p_ends) as e where e.status = 'pending') then
    perform pgfresh_engine.wake_workers();
  end if;
end
$$;
comment on function pgfresh_engine.requeue_ends(pgfresh_engine.job_end[], timestamptz) is
  'Puts jobs back into the queue whose status is pending or retryable, and keeps their attempt. '
  'A part of fail_jobs and put_back_jobs.';

create or replace function pgfresh_engine.close_ends(p_ends pgfresh_engine.job_end[], p_now timestamptz) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_ids bigint[] := array(select e.id from unnest(p_ends) as e where e.status in ('failed', 'cancelled'));
  v_again bigint[];
  v_type record;
begin
  if v_ids = '{}' then
    return;
  end if;
  with gone as (
    delete from pgfresh_engine.job as j
    using unnest(p_ends) as e
    where j.id = any (v_ids) and j.id = e.id
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
    where e.id = any (v_ids)
    group by e.type_id
    order by e.type_id
  loop
    with freed as (
      update pgfresh_engine.pairs as p
      set last_job = p.job_id, job_id = null, fails = p.fails + (hold.status = 'failed')::int,
        outcome = hold.outcome, next_ask_at = hold.until, waits_for = null,
        due_at = case when p.demanded then least(p.due_at, hold.until) else p.due_at end
      from (
        select h.key, e.status, e.outcome,
          p_now + case
            when e.status = 'cancelled' then least(r.ttl, interval '24 hours')
            else pgfresh_engine.failure_hold(r.ttl, h.fails + 1)
          end as until
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
comment on function pgfresh_engine.close_ends(pgfresh_engine.job_end[], timestamptz) is
  'Moves jobs to the history whose status is failed or cancelled, and sets when their pairs are asked for again. '
  'A part of fail_jobs, put_back_jobs and cancel_jobs.';

-- After the rows of the sources, if those are needed at all: who needs both takes them in this order.
create or replace function pgfresh_engine.settle_ends(p_ends pgfresh_engine.job_end[]) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_total record;
begin
  for v_total in
    select e.source_id, sum(e.reserved)::bigint as reserved, sum(e.bytes)::bigint as bytes,
      sum(e.calls)::bigint as calls
    from unnest(p_ends) as e
    group by e.source_id
    order by e.source_id
  loop
    perform pgfresh_engine.settle_usage(v_total.source_id, v_total.reserved, v_total.bytes, v_total.calls);
  end loop;
end
$$;
comment on function pgfresh_engine.settle_ends(pgfresh_engine.job_end[]) is
  'Books what jobs have cost, source by source in their order. A part of fail_jobs, put_back_jobs and cancel_jobs.';

create or replace function pgfresh_engine.mark_ends(p_ends pgfresh_engine.job_end[]) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  perform pgfresh_engine.mark_pairs(e.type_id, array_agg(e.key)) from unnest(p_ends) as e group by e.type_id;
end
$$;
comment on function pgfresh_engine.mark_ends(pgfresh_engine.job_end[]) is
  'Tells those who watch the pairs that their state has changed. A part of fail_jobs, put_back_jobs and cancel_jobs.';

-- Each time may have cost a call, so it does not go on without a bound, whoever puts it back and why.
create or replace function pgfresh_engine.put_back_end(p_end pgfresh_engine.job_end, p_now timestamptz)
returns pgfresh_engine.job_end
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  p_end.next_at := p_now;
  if p_end.put_backs < 5 then
    p_end.put_backs := p_end.put_backs + 1;
    p_end.status := 'pending';
  elsif p_end.retries >= p_end.max_retries then
    p_end.status := 'failed';
  else
    p_end.status := 'retryable';
    if not p_end.rerun then
      p_end.next_at := p_now + pgfresh_engine.retry_delay(p_end.retries, p_end.priority);
    end if;
  end if;
  return p_end;
end
$$;
comment on function pgfresh_engine.put_back_end(pgfresh_engine.job_end, timestamptz) is
  'Decides about a job that is put back: ready at once, or after the fifth time as if it had failed. '
  'A part of fail_jobs and put_back_jobs.';

/*
  What the provider refuses because of an API key has not failed: it waits for a key that is accepted. But one that
  tried a refused key has used up one of its retries, and comes after others: it may be this pair that is refused, and
  then the source would wait for it for ever.
*/
create or replace function pgfresh_engine.judge_denials(p_ends pgfresh_engine.job_end[], p_now timestamptz)
returns pgfresh_engine.job_end[]
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_ends pgfresh_engine.job_end[] := p_ends;
  v_end pgfresh_engine.job_end;
  v_denied bigint[] := array(select e.id from unnest(p_ends) as e where e.outcome in ('unauthorized', 'forbidden'));
  v_alone bigint[];
  v_key record;
  v_opened_at timestamptz;
  v_until timestamptz;
begin
  if v_denied = '{}' then
    return v_ends;
  end if;
  v_alone := pgfresh_engine.refused_alone(v_denied);
  for i in 1..cardinality(v_ends) loop
    v_end := v_ends[i];
    continue when v_end.id <> all (v_alone);
    v_end.status := 'failed';
    v_ends[i] := v_end;
  end loop;
  for v_key in
    select e.source_id, e.api_key, e.outcome, array_agg(e.type_id || ' ' || e.key) as names,
      max(e.claimed_at) as claimed_at, min(e.error) as error
    from unnest(p_ends) as e
    where e.id = any (v_denied) and e.id <> all (v_alone)
    group by e.source_id, e.api_key, e.outcome
    order by e.source_id, e.api_key, e.outcome
  loop
    select b.opened_at
    into v_opened_at
    from pgfresh_engine.breaker as b
    where b.source_id = v_key.source_id and b.api_key = v_key.api_key;
    continue when not pgfresh_engine.note_trouble(
      v_key.source_id, v_key.api_key, null, 'denied', v_key.names,
      case when v_key.outcome = 'unauthorized' then 1 else 3 end, v_key.claimed_at, v_key.error, p_now);
    select b.paused_until + interval '30 seconds'
    into v_until
    from pgfresh_engine.breaker as b
    where b.source_id = v_key.source_id and b.api_key = v_key.api_key;
    for i in 1..cardinality(v_ends) loop
      v_end := v_ends[i];
      continue when v_end.source_id <> v_key.source_id or v_end.api_key <> v_key.api_key
        or v_end.outcome <> v_key.outcome or v_end.id = any (v_alone);
      if v_end.claimed_at >= v_opened_at then
        v_end.status := case when v_end.retries >= v_end.max_retries then 'failed' else 'retryable' end;
        v_end.next_at := v_until;
      else
        v_end := pgfresh_engine.put_back_end(v_end, p_now);
      end if;
      v_ends[i] := v_end;
    end loop;
  end loop;
  return v_ends;
end
$$;
comment on function pgfresh_engine.judge_denials(pgfresh_engine.job_end[], timestamptz) is
  'Decides about ends of which the provider does not accept the API key, and counts them for the key. '
  'A part of fail_jobs.';

-- The data type of refused answers is left alone where they are too many in a row.
create or replace function pgfresh_engine.note_refusals(p_ends pgfresh_engine.job_end[], p_now timestamptz) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_type record;
begin
  for v_type in
    select e.type_id, r.source_id, s.breaker_failures, s.breaker_pause, array_agg(e.type_id || ' ' || e.key) as names,
      max(e.claimed_at) as claimed_at, min(e.error) as error, min(e.key) filter (where e.status = 'failed') as probe
    from unnest(p_ends) as e
    join pgfresh.data_type_registry as r on r.type_id = e.type_id
    join pgfresh.sources as s on s.id = r.source_id
    where pgfresh_engine.is_refused_answer(e.outcome)
    group by e.type_id, r.source_id, s.breaker_failures, s.breaker_pause
    order by e.type_id
  loop
    perform pgfresh_engine.note_trouble(
      v_type.source_id, null, v_type.type_id, 'refused', v_type.names, v_type.breaker_failures, v_type.claimed_at,
      v_type.error, p_now);
    -- One of them tries when the pause ends, after those that wait already: or none would, if all are held.
    with pause as (
      select b.paused_until + interval '30 seconds' as until
      from pgfresh_engine.breaker as b
      -- Paused just now, and not by those before it.
      where b.type_id = v_type.type_id and b.paused_until = p_now + v_type.breaker_pause
    ), probe as (
      update pgfresh_engine.pairs as p
      set next_ask_at = pause.until, due_at = case when p.demanded then pause.until else p.due_at end
      from pause
      where p.type_id = v_type.type_id and p.key = v_type.probe and p.job_id is null and p.next_ask_at > pause.until
      returning p.demanded, pause.until
    )
    insert into pgfresh_engine.due (due_at, type_id, key)
    select p.until, v_type.type_id, v_type.probe from probe as p where p.demanded
    on conflict do nothing;
  end loop;
end
$$;
comment on function pgfresh_engine.note_refusals(pgfresh_engine.job_end[], timestamptz) is
  'Counts refused answers for their data types. A part of fail_jobs.';

create or replace function pgfresh_engine.note_failures(p_ends pgfresh_engine.job_end[], p_now timestamptz) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  perform pgfresh_engine.note_failure(f.source_id, f.ids, f.retries, f.claimed_at, f.error, p_now)
  from (
    select e.source_id, array_agg(e.id) as ids, count(*) filter (where e.status = 'retryable')::int as retries,
      max(e.claimed_at) as claimed_at, min(e.error) as error
    from unnest(p_ends) as e
    where e.counts
    group by e.source_id
    order by e.source_id
  ) as f;
end
$$;
comment on function pgfresh_engine.note_failures(pgfresh_engine.job_end[], timestamptz) is
  'Counts failures of sources for their breakers. A part of fail_jobs.';

/*
  A table that refuses a row because what it refers to is missing says what the planner could not know: the row of a
  prerequisite has gone since the job was opened. Trying again is in vain unless that row is fetched first.
*/
create or replace function pgfresh_engine.queue_lost_prerequisites(p_ends pgfresh_engine.job_end[]) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '100ms'
as $$
declare
  v_needs record;
  v_missing text[];
begin
  for v_needs in
    select r.data_type, res.missing_sql, array_agg(e.key) as keys, array_agg(e.type_id) as types,
      greatest(0, max(e.priority)) as priority
    from unnest(p_ends) as e
    join pgfresh_engine.type_dependency as d on d.type_id = e.type_id
    join pgfresh.data_type_registry as r on r.type_id = d.needs_id
    join pgfresh_engine.type_resolution as res on res.type_id = d.needs_id
    where e.outcome = 'dependency'
    group by r.type_id, r.data_type, res.missing_sql
    order by r.type_id
  loop
    begin
      v_missing := array(select pgfresh_engine.ask_keys(v_needs.missing_sql, v_needs.keys));
      perform pgfresh_engine.queue_refreshes(v_needs.data_type, v_missing, v_needs.priority);
      -- It is no failure of the pair itself, and the time for which it is left alone does not grow by it.
      update pgfresh_engine.pairs as p
      set fails = 0
      where p.ctid = any (array(
        select w.ctid
        from unnest(v_needs.types, v_needs.keys) as e(type_id, key)
        join pgfresh_engine.pairs as w on w.type_id = e.type_id and w.key = e.key
        where w.outcome = 'dependency' and w.fails > 0 and e.key = any (v_missing)
        for update of w skip locked));
    exception when others then
      -- The end must not fail by it. The planner asks again when the job has failed for good.
      null;
    end;
  end loop;
end
$$;
comment on function pgfresh_engine.queue_lost_prerequisites(pgfresh_engine.job_end[]) is
  'Queues the missing prerequisites of jobs that ended with the outcome dependency. A part of fail_jobs.';

create or replace function pgfresh_engine.fail_jobs(p_ends jsonb)
returns table (id bigint, status text, next_retry_at timestamptz)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_nestloop = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
  v_now timestamptz := pgfresh.clock();
  v_ends pgfresh_engine.job_end[] := pgfresh_engine.lock_ends(p_ends);
  v_end pgfresh_engine.job_end;
begin
  if v_ends = '{}' then
    return;
  end if;
  for i in 1..cardinality(v_ends) loop
    v_end := v_ends[i];
    v_end.outcome := coalesce(v_end.outcome, 'failed');
    v_end.status := case when v_end.permanent or v_end.retries >= v_end.max_retries then 'failed' else 'retryable' end;
    -- A refresh that was forced while it ran does not wait.
    v_end.next_at := case
      when v_end.rerun then v_now
      else v_now + pgfresh_engine.retry_delay(v_end.retries, v_end.priority)
    end;
    v_ends[i] := v_end;
  end loop;
  -- Before the rows and ledgers of the sources: it reads users' tables, and others would wait with it.
  if exists (select from unnest(v_ends) as e where e.outcome = 'dependency') then
    perform pgfresh_engine.queue_lost_prerequisites(v_ends);
  end if;
  -- The rows of the sources, each once and in their order, before anything of their ledgers.
  perform
  from pgfresh.sources as s
  where s.id = any (array(
    select e.source_id
    from unnest(v_ends) as e
    where e.counts or e.outcome in ('unauthorized', 'forbidden') or pgfresh_engine.is_refused_answer(e.outcome)
    union all
    -- A data type that has moved is counted by the breaker of the source that it has now.
    select r.source_id
    from unnest(v_ends) as e
    join pgfresh.data_type_registry as r on r.type_id = e.type_id
    where pgfresh_engine.is_refused_answer(e.outcome)
  ))
  order by s.id for no key update;
  v_ends := pgfresh_engine.judge_denials(v_ends, v_now);
  perform pgfresh_engine.mark_ends(v_ends);
  perform pgfresh_engine.requeue_ends(v_ends, v_now);
  perform pgfresh_engine.close_ends(v_ends, v_now);
  perform pgfresh_engine.note_refusals(v_ends, v_now);
  perform pgfresh_engine.note_failures(v_ends, v_now);
  perform pgfresh_engine.settle_ends(v_ends);
  return query
    select e.id, e.status, case when e.status = 'retryable' then e.next_at end from unnest(v_ends) as e;
end
$$;
comment on function pgfresh_engine.fail_jobs(jsonb) is
  'Ends attempts that have failed. p_ends is a JSON array with an object for each: id and attempt as the claim '
  'returned them, and if they are known request (the name of its claim, required when claiming with p_alone), bytes, '
  'calls (how often the provider was called; once where bytes were used, if nothing is said), '
  'needs (how many calls it takes, if that is known to be more), fetch_ms, validate_ms, '
  'outcome and error; permanent: true if another try changes nothing; '
  'counts: true if it is a failure of the source, which its breaker counts. '
  'What is not permanent waits and is tried again up to the type''s max_retries. '
  'Returns what became of each that was still running in the given attempt.';
grant execute on function pgfresh_engine.fail_jobs(jsonb) to pgfresh_worker;

create or replace function pgfresh_engine.put_back_jobs(p_ends jsonb, p_lost boolean default false)
returns table (id bigint, status text, next_retry_at timestamptz)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_nestloop = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
  v_now timestamptz := pgfresh.clock();
  v_ends pgfresh_engine.job_end[];
  v_end pgfresh_engine.job_end;
begin
  if p_lost is null then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      'p_lost must be true or false',
      'Pass true only where the holder of the jobs is gone.');
  end if;
  v_ends := pgfresh_engine.lock_ends(p_ends);
  if v_ends = '{}' then
    return;
  end if;
  for i in 1..cardinality(v_ends) loop
    v_end := v_ends[i];
    v_end.outcome := coalesce(v_end.outcome, case when p_lost then 'worker_lost' else 'interrupted' end);
    if p_lost then
      -- Nobody knows whether a lost call was made and what it has cost, so it counts as it was reserved.
      v_end.bytes := v_end.reserved;
      v_end.calls := 1;
      v_end.lost := v_end.lost + 1;
      v_end.status := case when v_end.lost >= 3 then 'failed' else 'pending' end;
      v_end.next_at := v_now;
    else
      v_end := pgfresh_engine.put_back_end(v_end, v_now);
    end if;
    v_ends[i] := v_end;
  end loop;
  if p_lost or exists (select from unnest(v_ends) as e where e.status <> 'pending') then
    perform pgfresh_engine.mark_ends(v_ends);
  end if;
  perform pgfresh_engine.requeue_ends(v_ends, v_now);
  perform pgfresh_engine.close_ends(v_ends, v_now);
  perform pgfresh_engine.settle_ends(v_ends);
  return query
    select e.id, e.status, case when e.status = 'retryable' then e.next_at end from unnest(v_ends) as e;
end
$$;
comment on function pgfresh_engine.put_back_jobs(jsonb, boolean) is
  'Makes running jobs ready again at once, without counting a retry: the job is not to blame. '
  'That happens to a job five times at most; from then on it counts as a retry and waits like one. '
  'p_ends is as for fail_jobs, without permanent and counts. '
  'p_lost says that their holder is gone: what they have cost is booked as it was reserved, '
  'and at the third time the job fails. '
  'Returns what became of each that was still running in the given attempt.';
grant execute on function pgfresh_engine.put_back_jobs(jsonb, boolean) to pgfresh_worker;

create or replace function pgfresh_engine.cancel_jobs(p_ids bigint[]) returns bigint
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_nestloop = off
set enable_mergejoin = off
as $$
declare
  v_now timestamptz := pgfresh.clock();
  v_ids bigint[];
  v_ends pgfresh_engine.job_end[];
begin
  if p_ids is null or array_position(p_ids, null) is not null then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      'p_ids must be an array of ids without a null',
      'Pass the jobs to cancel.');
  end if;
  -- All of them first: the ledger, which is settled below, is locked after jobs by everybody.
  v_ids := array(select j.id from pgfresh_engine.job as j where j.id = any (p_ids) order by j.id for update);
  for v_first in 1..cardinality(v_ids) by 10000 loop
    select array_agg(row(
      j.id, j.attempt, j.request,
      -- Nobody knows what a cancelled call has cost, so it counts as it was reserved.
      j.reserved, (j.state = 'x')::int, 1,
      null, null, 'cancelled', null, false, false,
      j.type_id, j.key, j.source_id, coalesce(j.api_key, 1::smallint), j.priority, j.claimed_at, j.reserved,
      j.retries, 0, j.lost, j.put_backs, j.rerun,
      'cancelled', v_now)::pgfresh_engine.job_end order by j.id)
    into v_ends
    from pgfresh_engine.job as j
    where j.id = any (v_ids[v_first:v_first + 9999]);
    perform pgfresh_engine.mark_ends(v_ends);
    perform pgfresh_engine.close_ends(v_ends, v_now);
    perform pgfresh_engine.settle_ends(v_ends);
  end loop;
  return cardinality(v_ids);
end
$$;
comment on function pgfresh_engine.cancel_jobs(bigint[]) is
  'Cancels open jobs, whatever their state, and returns how many there were. '
  'What a running one does afterwards has no effect; what it has cost is booked as it was reserved.';
