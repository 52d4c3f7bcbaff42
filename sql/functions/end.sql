/*
  The end of jobs, one data type a call, in one transaction with whatever the caller did before. Fence first: only a job that
  still runs in the given attempt is ended. Then its history, its pair, the ledger, the size it taught us.

  The table of open jobs is empty one minute and full the next, so its statistics are never right. Every table is therefore
  reached by an array of keys, which leaves nothing to choose but the index; what comes with a job is joined to it by a hash.
*/
create or replace function pgfresh.complete_jobs(
  p_ids bigint[], p_attempts int[], p_bytes bigint[], p_outcomes text[] default null, p_calls int[] default null,
  p_fetch_ms int[] default null, p_validate_ms int[] default null, p_commit_ms int[] default null)
returns bigint[]
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_nestloop = off
set enable_mergejoin = off
-- The index walks the jobs in the order of their ids, as everybody else locks them; a bitmap would go by their place in the table.
set enable_bitmapscan = off
as $$
declare
  v_now timestamptz := pgfresh.clock();
  v_done bigint[];
  v_keys text[];
  v_sizes bigint[];
  v_outcomes text[];
  v_called bigint[];
  v_again bigint[];
  v_ttl interval;
  v_empty_ttl interval;
  v_noteworthy boolean;
  v_due timestamptz;
  -- That of all of them; null where they differ.
  v_outcome text := 'fresh';
  v_type_low int; v_type_high int; v_source int; v_reserved bigint; v_bytes bigint; v_calls bigint; v_ended bigint;
begin
  perform pgfresh.require_ends(p_ids, p_attempts, p_bytes);
  if num_nonnulls(p_calls, p_fetch_ms, p_validate_ms, p_commit_ms) > 0 then
    perform pgfresh.require_measures(cardinality(p_ids), p_calls, p_fetch_ms, p_validate_ms, p_commit_ms);
  end if;
  if p_outcomes is not null then
    if cardinality(p_outcomes) <> cardinality(p_ids) then
      perform pgfresh.refuse('PGF_ARGUMENT_INVALID', 'p_outcomes must be as long as p_ids', 'Pass an outcome for each job, or leave it out where all are fresh.');
    end if;
    perform pgfresh.require_outcome(said.outcome) from (select distinct outcome from unnest(p_outcomes) as outcome) as said;
    v_outcome := case when p_outcomes[1] = all (p_outcomes) then p_outcomes[1] end;
  end if;
  with ended as (
    delete from pgfresh.job as j
    where j.id = any (p_ids) and j.state = 'x'
      and pgfresh.token_of(j.id, j.attempt) = any (array(select pgfresh.token_of(e.id, e.attempt) from unnest(p_ids, p_attempts) as e(id, attempt)))
    returning j.*
  ), measured as (
    select ended.*, e.bytes, coalesce(v_outcome, e.outcome) as outcome, coalesce(e.calls, 1) as calls, e.fetch_ms, e.validate_ms, e.commit_ms from ended
    join unnest(p_ids, p_attempts, p_bytes, p_outcomes, p_calls, p_fetch_ms, p_validate_ms, p_commit_ms) as e(id, attempt, bytes, outcome, calls, fetch_ms, validate_ms, commit_ms)
      on e.id = ended.id and e.attempt = ended.attempt
  ), history as (
    insert into pgfresh.history_succeeded (id, ended_at, created_at, claimed_at, bytes, calls, worker, type_id, source_id, priority, attempt, retries, lost, fetch_ms, validate_ms, commit_ms, status, outcome, key, metadata)
    select id, v_now, created_at, claimed_at, bytes, calls, worker, type_id, source_id, priority, attempt, retries, lost, fetch_ms, validate_ms, commit_ms, 'succeeded', outcome, key, metadata from measured
  )
  -- What was known already has asked nobody, so it says nothing about the source and about the size of an answer.
  select array_agg(id), array_agg(key), array_agg(bytes) filter (where calls > 0), array_agg(outcome) filter (where v_outcome is null), array_agg(id) filter (where calls > 0), array_agg(id) filter (where rerun),
      min(type_id), max(type_id), min(source_id), sum(reserved), sum(bytes), sum(calls), (select count(*) from ended)
    into v_done, v_keys, v_sizes, v_outcomes, v_called, v_again, v_type_low, v_type_high, v_source, v_reserved, v_bytes, v_calls, v_ended from measured;
  -- More than was ended: one job twice. Less: attempts that make no sense and are the token of another job.
  if v_type_low <> v_type_high or v_ended <> coalesce(cardinality(v_done), 0) then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID', 'jobs of several data types in one call, or one job twice', 'End one data type a call, and each job once.');
  end if;
  if v_done is null then
    return '{}';
  end if;
  -- Where rows say themselves how long they are good, or a function does, the planner asks them at its next tick.
  select case when r.ttl_column is null and r.staleness_function = 'pgfresh.is_data_stale' then r.ttl else interval '0' end, coalesce(r.empty_ttl, r.ttl),
      -- Most ends change nothing about their source, and then its row is not written.
      (select s.failure_streak > 0 or s.breaker_opened_at is not null or s.last_success_at > v_now - interval '10 seconds' is not true from pgfresh.sources as s where s.id = v_source)
    into v_ttl, v_empty_ttl, v_noteworthy from pgfresh.data_type_registry as r where r.type_id = v_type_low;
  -- A time that is nearer has its entry already, and a look too early does no harm.
  if v_outcome is not null then
    v_due := v_now + case when v_outcome = 'empty' then v_empty_ttl else v_ttl end;
    with freed as (
      update pgfresh.pairs set last_job = job_id, ok_job = job_id, job_id = null, checked_at = v_now, ok_at = v_now, outcome = v_outcome, fails = 0,
        not_before = case when v_outcome = 'empty' then v_due end, due_at = case when demanded then least(due_at, v_due) else due_at end
      where type_id = v_type_low and key = any (v_keys) returning key, demanded, due_at
    )
    insert into pgfresh.due (due_at, type_id, key) select v_due, v_type_low, f.key from freed as f where f.demanded and f.due_at = v_due on conflict do nothing;
  else
    with freed as (
      update pgfresh.pairs as p set last_job = p.job_id, ok_job = p.job_id, job_id = null, checked_at = v_now, ok_at = v_now, outcome = e.outcome, fails = 0,
        not_before = case when e.outcome = 'empty' then e.due_at end, due_at = case when p.demanded then least(p.due_at, e.due_at) else p.due_at end
      from (select e.key, e.outcome, v_now + case when e.outcome = 'empty' then v_empty_ttl else v_ttl end as due_at from unnest(v_keys, v_outcomes) as e(key, outcome)) as e
      where p.type_id = v_type_low and p.key = any (v_keys) and p.key = e.key returning p.key, p.demanded, p.due_at, e.due_at as said
    )
    insert into pgfresh.due (due_at, type_id, key) select f.said, v_type_low, f.key from freed as f where f.demanded and f.due_at = f.said on conflict do nothing;
  end if;
  -- Who needs these and waits for them is looked at now. What somebody has locked, the sweep finds.
  if exists (select from pgfresh.type_dependency where needs_id = v_type_low) then
    with recursive dependent (type_id) as (
      select type_id from pgfresh.type_dependency where needs_id = v_type_low
      union
      select d.type_id from dependent as n join pgfresh.type_dependency as d on d.needs_id = n.type_id
    ), woken as (
      update pgfresh.pairs as p set due_at = v_now from (
        select w.type_id, w.key from dependent as d
        cross join lateral (select w.type_id, w.key from pgfresh.pairs as w where w.type_id = d.type_id and w.key = any (v_keys) and w.demanded and w.job_id is null for update skip locked) as w
      ) as waiting
      where p.type_id = waiting.type_id and p.key = waiting.key returning p.type_id, p.key
    )
    insert into pgfresh.due (due_at, type_id, key) select v_now, w.type_id, w.key from woken as w on conflict do nothing;
  end if;
  if v_again is not null then
    perform pgfresh.run_again(v_again, v_now);
  end if;
  if v_noteworthy and v_called is not null then
    perform pgfresh.note_success(v_source, v_called, v_now);
  end if;
  perform pgfresh.settle_usage(v_source, v_reserved, v_bytes, v_calls);
  if v_sizes is not null then
    perform pgfresh.learn_size(v_type_low, v_sizes);
  end if;
  perform pgfresh.mark_pairs(v_type_low, v_keys);
  return v_done;
end
$$;
comment on function pgfresh.complete_jobs(bigint[], int[], bigint[], text[], int[], int[], int[], int[]) is
  'Ends jobs of one data type as succeeded. For each: the bytes that it used; its outcome, fresh if none is given; how often the provider was called for it, once if nothing is said, '
  'and never if the answer was known already; and how long fetching, validating and writing took. Returns the ids of those that were still running '
  'in the given attempt; the others were taken back or cancelled meanwhile, and nothing of them is changed.';

-- Job and attempt as one number, so that a set of both can be asked for at once.
create or replace function pgfresh.token_of(p_id bigint, p_attempt int) returns bigint
language sql immutable parallel safe
as $$ select p_id * 1048576 + p_attempt $$;
comment on function pgfresh.token_of(bigint, int) is 'The fencing token of an attempt: no two attempts have the same.';

-- A refresh was forced while the job ran: its pair gets a new one, with what the ended one had.
create or replace function pgfresh.run_again(p_ended bigint[], p_now timestamptz) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  with ended as (
    select h.*, nextval('pgfresh.job_id') as next_id from (
      select id, type_id, source_id, key, priority, metadata from pgfresh.history_succeeded where id = any (p_ended) and ended_at = p_now
      union all
      select id, type_id, source_id, key, priority, metadata from pgfresh.history_other where id = any (p_ended) and ended_at = p_now
    ) as h
  ), opened as (
    update pgfresh.pairs as p set job_id = e.next_id, due_at = 'infinity', not_before = null from ended as e where p.type_id = e.type_id and p.key = e.key
  )
  insert into pgfresh.job (id, seq, run_at, created_at, est_bytes, type_id, source_id, priority, band, size_class, state, key, metadata)
  select e.next_id, e.next_id, p_now, p_now, bytes.estimate, e.type_id, e.source_id, e.priority, pgfresh.band_of(e.priority),
    pgfresh.size_class_of(bytes.estimate, exists (select from pgfresh.source_state as s where s.source_id = e.source_id)), 'r', e.key, e.metadata
  from ended as e
  cross join lateral (select coalesce((select t.estimated_bytes from pgfresh.type_stats as t where t.type_id = e.type_id),
    (select r.estimated_data_size_bytes from pgfresh.data_type_registry as r where r.type_id = e.type_id), 0) as estimate) as bytes;
end
$$;
comment on function pgfresh.run_again(bigint[], timestamptz) is 'Opens a new job for pairs whose refresh was forced while they were being refreshed. A part of every end.';

create or replace function pgfresh.require_ends(p_ids bigint[], p_attempts int[], p_bytes bigint[]) returns void
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  if p_ids is null or p_attempts is null or p_bytes is null or cardinality(p_ids) <> cardinality(p_attempts) or cardinality(p_ids) <> cardinality(p_bytes) or cardinality(p_ids) > 10000 then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID', 'ids, attempts and bytes must be arrays of one length, at most 10000', 'Pass one attempt and one size for each job.');
  end if;
  -- A larger id has no token.
  if exists (select from unnest(p_ids, p_attempts, p_bytes) as e(id, attempt, bytes)
      where (e.id between 1 and 8796093022207 and e.attempt >= 0 and e.bytes between 0 and 1000000000000000) is not true) then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID', 'ids must be from 1 to 8796093022207, attempts not negative, and bytes from 0 to 1e15; none may be null', 'Pass id and attempt as the claim returned them, and the real size of each answer.');
  end if;
end
$$;
comment on function pgfresh.require_ends(bigint[], int[], bigint[]) is 'Refuses arrays that do not describe ends of jobs.';

create or replace function pgfresh.require_measures(p_count int, p_calls int[], p_fetch_ms int[], p_validate_ms int[], p_commit_ms int[]) returns void
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  if cardinality(p_calls) <> p_count or array_position(p_calls, null) is not null or 0 > any (p_calls) or 1000000 < any (p_calls) then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID', 'p_calls must be as long as p_ids, and each from 0 to 1000000', 'Pass how often the provider was called for each job, redirects included.');
  end if;
  if cardinality(p_fetch_ms) <> p_count or 0 > any (p_fetch_ms) or cardinality(p_validate_ms) <> p_count or 0 > any (p_validate_ms)
      or cardinality(p_commit_ms) <> p_count or 0 > any (p_commit_ms) then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID', 'times must be arrays as long as p_ids, and none negative', 'Pass null for a time that is not known.');
  end if;
end
$$;
comment on function pgfresh.require_measures(int, int[], int[], int[], int[]) is 'Refuses calls and times that do not go with so many jobs.';

-- Full jitter: anything up to the doubled base, so that what failed together does not come back together.
create or replace function pgfresh.retry_delay(p_retries int, p_priority int) returns interval
language sql volatile
set search_path = pg_catalog, pg_temp
as $$ select random() * least(interval '24 hours', (case when p_priority > 0 then interval '15 seconds' else interval '1 minute' end) * power(2, least(p_retries, 20))) $$;
comment on function pgfresh.retry_delay(int, int) is 'How long a job waits before its next try: up to base * 2^retries (15 s viewed, 1 min background), at most 24 h.';

create or replace function pgfresh.failure_hold(p_ttl interval, p_fails int) returns interval
language sql immutable
set search_path = pg_catalog, pg_temp
as $$ select least(interval '24 hours', greatest(p_ttl, interval '1 minute') * power(2, least(greatest(p_fails, 1), 12) - 1)) $$;
comment on function pgfresh.failure_hold(interval, int) is
  'How long a pair that failed for good is left alone: its TTL, at least a minute, doubled by each failure in a row, at most 24 h.';

/*
  Every other end, and every way back into the queue. p_verdict:
    retry      a transient failure: waits and tries again, or fails when its retries are used up
    fail       a permanent failure
    put_back   nobody's fault: ready again at once, nothing counted
    lost       its worker is gone or it was silent too long: ready again at once, failed as worker_lost the third time
    cancel     not wanted any more; the only one that also ends jobs that wait, and asks for no attempt
*/
create or replace function pgfresh.turn_back_jobs(
  p_ids bigint[], p_attempts int[], p_bytes bigint[], p_verdict text, p_outcome text default null, p_error text default null,
  p_calls int[] default null, p_counts boolean default false, p_fetch_ms int[] default null, p_validate_ms int[] default null)
returns table (id bigint, status text, next_retry_at timestamptz)
language plpgsql
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
  v_ids bigint[]; v_statuses text[]; v_times timestamptz[]; v_sources int[]; v_reserved bigint[]; v_bytes bigint[]; v_calls int[]; v_again bigint[];
  v_pairs record;
  v_total record;
begin
  perform pgfresh.require_ends(p_ids, coalesce(p_attempts, array_fill(0, array[coalesce(cardinality(p_ids), 0)])), p_bytes);
  if p_outcome is not null then perform pgfresh.require_outcome(p_outcome); end if;
  if p_verdict is null or p_verdict not in ('retry', 'fail', 'put_back', 'lost', 'cancel') or (p_attempts is null and p_verdict <> 'cancel') then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID', format('p_verdict must be retry, fail, put_back, lost or cancel, and all but cancel need attempts; got %s', coalesce(left(quote_literal(p_verdict), 60), 'null')), 'See the comment of turn_back_jobs.');
  end if;
  perform pgfresh.require_measures(cardinality(p_ids), p_calls, p_fetch_ms, p_validate_ms, null);
  if p_counts is null or (p_counts and p_verdict not in ('retry', 'fail')) then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID', 'p_counts must be true or false, and only a retry or a failure can be the source''s', 'Leave it out where the source is not to blame.');
  end if;
  -- Each step by itself, on the rows that the first one has locked.
  select array_agg(t.id), array_agg(t.status), array_agg(t.next_at), array_agg(t.source_id), array_agg(t.reserved),
      -- Nobody knows whether a lost or cancelled call was made and what it has cost, so it counts as it was reserved.
      array_agg(case when p_verdict in ('lost', 'cancel') then t.reserved else t.said end),
      array_agg(case when p_verdict not in ('lost', 'cancel') then coalesce(t.calls, (t.said > 0)::int) else t.ran::int end), array_agg(t.id) filter (where t.rerun and t.status = 'failed')
    into v_ids, v_statuses, v_times, v_sources, v_reserved, v_bytes, v_calls, v_again
  from (
    select j.id, j.source_id, j.reserved, j.rerun, j.state = 'x' as ran, e.bytes as said, e.calls,
      case
        when p_verdict = 'cancel' then 'cancelled'
        when p_verdict = 'fail' or (p_verdict = 'lost' and j.lost >= 2) or (p_verdict = 'retry' and j.retries >= r.max_retries) then 'failed'
        when p_verdict = 'retry' then 'retryable'
        else 'pending'
      end as status,
      case when p_verdict = 'retry' then v_now + pgfresh.retry_delay(j.retries, j.priority) else v_now end as next_at
    from pgfresh.job as j
    join unnest(p_ids, p_attempts, p_bytes, p_calls) as e(id, attempt, bytes, calls) on e.id = j.id
    join pgfresh.data_type_registry as r on r.type_id = j.type_id
    where j.id = any (p_ids) and (p_verdict = 'cancel' or (j.state = 'x' and j.attempt = e.attempt))
    order by j.id for update of j
  ) as t;
  if v_ids is null then
    return;
  end if;
  if cardinality(v_ids) <> (select count(distinct named.id) from unnest(v_ids) as named(id)) then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID', 'one job twice', 'Name each job once.');
  end if;

  if p_verdict <> 'put_back' then
    perform pgfresh.mark_pairs(j.type_id, array_agg(j.key)) from pgfresh.job as j where j.id = any (v_ids) group by j.type_id;
  end if;

  update pgfresh.job as j set
      state = case when t.status = 'retryable' then 'w' else 'r' end::"char", run_at = t.next_at,
      worker = null, request = null, claimed_at = null, progress_at = null, reserved = 0,
      retries = j.retries + (p_verdict = 'retry')::int, lost = j.lost + (p_verdict = 'lost')::int, error = coalesce(left(p_error, 4000), j.error)
    from unnest(v_ids, v_statuses, v_times) as t(id, status, next_at)
    where j.id = any (v_ids) and j.id = t.id and t.status in ('retryable', 'pending');

  with gone as (
    delete from pgfresh.job as j using unnest(v_ids, v_statuses, v_bytes, v_calls) as t(id, status, bytes, calls)
    where j.id = any (v_ids) and j.id = t.id and t.status in ('failed', 'cancelled')
    returning j.*, t.status, t.bytes, t.calls, p_fetch_ms[array_position(p_ids, j.id)] as fetch_ms, p_validate_ms[array_position(p_ids, j.id)] as validate_ms
  ), history as (
    insert into pgfresh.history_other (id, ended_at, created_at, claimed_at, bytes, calls, worker, type_id, source_id, priority, attempt, retries, lost, fetch_ms, validate_ms, status, outcome, key, error, metadata)
    select id, v_now, created_at, claimed_at, bytes, calls, worker, type_id, source_id, priority, attempt, retries, lost + (p_verdict = 'lost')::int, fetch_ms, validate_ms, status,
      coalesce(p_outcome, case when p_verdict = 'lost' then 'worker_lost' else status end), key, coalesce(left(p_error, 4000), error), metadata
    from gone
  )
  select array_agg(type_id) as types, array_agg(key) as keys into v_pairs from gone;
  for v_total in select g.type_id, array_agg(g.key) as keys from unnest(v_pairs.types, v_pairs.keys) as g(type_id, key) group by g.type_id order by g.type_id loop
    with freed as (
      update pgfresh.pairs as p set last_job = p.job_id, job_id = null, checked_at = v_now, fails = p.fails + (p_verdict <> 'cancel')::int,
        outcome = coalesce(p_outcome, case p_verdict when 'lost' then 'worker_lost' when 'cancel' then 'cancelled' else 'failed' end),
        not_before = hold.until, due_at = case when p.demanded then least(p.due_at, hold.until) else p.due_at end
      from (
        select h.key, v_now + case when p_verdict = 'cancel' then r.ttl else pgfresh.failure_hold(r.ttl, h.fails + 1) end as until
        from pgfresh.pairs as h join pgfresh.data_type_registry as r on r.type_id = h.type_id where h.type_id = v_total.type_id and h.key = any (v_total.keys)
      ) as hold
      where p.type_id = v_total.type_id and p.key = any (v_total.keys) and p.key = hold.key returning p.key, p.demanded, p.due_at, hold.until
    )
    insert into pgfresh.due (due_at, type_id, key) select f.until, v_total.type_id, f.key from freed as f where f.demanded and f.due_at = f.until on conflict do nothing;
  end loop;
  if v_again is not null then
    perform pgfresh.run_again(v_again, v_now);
  end if;

  for v_total in
    select s.source_id, sum(s.reserved)::bigint as reserved, sum(s.bytes)::bigint as bytes, sum(s.calls)::bigint as calls, array_agg(s.id) as ids, count(*) filter (where s.status = 'retryable')::int as retries
    from unnest(v_ids, v_statuses, v_sources, v_reserved, v_bytes, v_calls) as s(id, status, source_id, reserved, bytes, calls) group by s.source_id order by s.source_id
  loop
    if p_counts then
      perform pgfresh.note_failure(v_total.source_id, v_total.ids, v_total.retries, v_now);
    end if;
    perform pgfresh.settle_usage(v_total.source_id, v_total.reserved, v_total.bytes, v_total.calls);
  end loop;
  if 'pending' = any (v_statuses) then
    perform pgfresh.wake_workers();
  end if;
  return query select t.id, t.status, case when t.status = 'retryable' then t.next_at end from unnest(v_ids, v_statuses, v_times) as t(id, status, next_at);
end
$$;
comment on function pgfresh.turn_back_jobs(bigint[], int[], bigint[], text, text, text, int[], boolean, int[], int[]) is
  'Ends jobs other than by success, or puts them back: retry, fail, put_back, lost, cancel. p_calls is how often the provider was called for each (once where bytes were used, if nothing is said); '
  'p_counts says that it is a failure of the source, which its breaker counts. Returns what became of each that was still running in the given attempt.';

create or replace function pgfresh.running_attempt(p_job_id bigint, p_attempt int) returns int
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_attempt int;
begin
  perform pgfresh.require_range('p_job_id', p_job_id, 1, 9223372036854775807);
  select attempt into v_attempt from pgfresh.job where id = p_job_id and state = 'x' and attempt = coalesce(p_attempt, attempt);
  if v_attempt is null then
    raise warning 'job % is not running%', p_job_id, coalesce(' in attempt ' || p_attempt, '');
  end if;
  return v_attempt;
end
$$;
comment on function pgfresh.running_attempt(bigint, int) is 'The attempt in which a job runs; warns and returns null if it does not.';

create or replace function pgfresh.complete_queue_job(p_job_id bigint, p_data_size_bytes bigint, p_attempt int default null, p_outcome text default 'fresh') returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_attempt int := pgfresh.running_attempt(p_job_id, p_attempt);
begin
  perform pgfresh.require_range('p_data_size_bytes', p_data_size_bytes, 0, 1e15);
  perform pgfresh.require_outcome(p_outcome);
  return v_attempt is not null and cardinality(pgfresh.complete_jobs(array[p_job_id], array[v_attempt], array[p_data_size_bytes], array[p_outcome])) = 1;
end
$$;
comment on function pgfresh.complete_queue_job(bigint, bigint, int, text) is
  'Ends a running job as succeeded and settles its bytes. Pass the attempt that the claim returned: a late call of an earlier attempt then has no effect. '
  'Returns whether it had an effect; warns if not.';

create or replace function pgfresh.fail_queue_job(
  p_job_id bigint, p_error_message text, p_attempt int default null, p_permanent boolean default false, p_data_size_bytes bigint default 0, p_outcome text default null)
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
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID', 'p_error_message must not be empty and p_permanent not null', 'Say what failed, in one line.');
  end if;
  if p_outcome is not null then perform pgfresh.require_outcome(p_outcome); end if;
  if v_attempt is not null then
    select jsonb_build_object('status', t.status, 'next_retry_at', t.next_retry_at) into v_result
    from pgfresh.turn_back_jobs(array[p_job_id], array[v_attempt], array[p_data_size_bytes], case when p_permanent then 'fail' else 'retry' end,
      p_outcome, left(p_error_message, 4000), p_counts => not p_permanent) as t;
  end if;
  return v_result;
end
$$;
comment on function pgfresh.fail_queue_job(bigint, text, int, boolean, bigint, text) is
  'Ends a running attempt as failed. A transient failure waits and is tried again up to the type''s max_retries, and counts for the breaker of the source; a permanent one is failed at once. '
  'Returns {"status", "next_retry_at"}, or null with a warning if the job does not run in that attempt.';

create or replace function pgfresh.reset_job_immediate(p_job_id bigint, p_attempt int default null) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_attempt int := pgfresh.running_attempt(p_job_id, p_attempt);
begin
  return v_attempt is not null and exists (select from pgfresh.turn_back_jobs(array[p_job_id], array[v_attempt], array[0], 'put_back'));
end
$$;
comment on function pgfresh.reset_job_immediate(bigint, int) is
  'Makes a running job ready again at once, without counting a retry: for deadlocks and other failures that are not the job''s.';

create or replace function pgfresh.cancel_queue_jobs(
  p_job_ids bigint[] default null, p_data_type text default null, p_source text default null, p_status text default null, p_key text default null, p_dry_run boolean default false)
returns bigint
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_ids bigint[];
begin
  if p_dry_run is null or num_nonnulls(p_job_ids, p_data_type, p_source, p_status, p_key) = 0 then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID', 'cancelling needs at least one filter, and p_dry_run must be true or false', 'Pass ids, a data type, a source, a status or a key.');
  end if;
  if p_data_type is not null then perform pgfresh.require_type(p_data_type); end if;
  if p_source is not null then perform pgfresh.require_source(p_source); end if;
  if p_key is not null then perform pgfresh.require_key(p_key); end if;
  if p_status is not null and p_status not in ('pending', 'retryable', 'running') then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID', format('p_status must be pending, retryable or running, got %s', left(quote_literal(p_status), 60)), 'Only open jobs can be cancelled.');
  end if;
  select array_agg(q.id order by q.id) into v_ids from pgfresh.open_jobs as q
    where (p_job_ids is null or q.id = any (p_job_ids)) and (p_data_type is null or q.data_type = p_data_type)
      and (p_source is null or q.source = p_source) and (p_status is null or q.status = p_status) and (p_key is null or q.key = p_key);
  if p_dry_run or v_ids is null then
    return coalesce(cardinality(v_ids), 0);
  end if;
  return (
    select coalesce(sum(ended.count), 0) from generate_series(1, cardinality(v_ids), 10000) as chunk(first)
    cross join lateral (
      select count(*) as count from pgfresh.turn_back_jobs(v_ids[chunk.first:chunk.first + 9999], null,
        array_fill(0::bigint, array[least(10000, cardinality(v_ids) - chunk.first + 1)]), 'cancel')
    ) as ended
  );
end
$$;
comment on function pgfresh.cancel_queue_jobs(bigint[], text, text, text, text, boolean) is
  'Cancels open jobs by filter and returns how many; with p_dry_run only counts them. What a running one does afterwards has no effect.';

create or replace function pgfresh.retry_failed_jobs(
  p_job_ids bigint[] default null, p_data_type text default null, p_source text default null, p_since timestamptz default null, p_dry_run boolean default false)
returns bigint
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_group record;
  v_count bigint := 0;
begin
  if p_dry_run is null or num_nonnulls(p_job_ids, p_data_type, p_source, p_since) = 0 then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID', 'retrying needs at least one filter, and p_dry_run must be true or false', 'Pass ids, a data type, a source or a time.');
  end if;
  if p_data_type is not null then perform pgfresh.require_type(p_data_type); end if;
  if p_source is not null then perform pgfresh.require_source(p_source); end if;
  for v_group in
    select f.data_type, f.priority, f.metadata, array_agg(f.id) as ids, array_agg(f.key) as keys from pgfresh.failed_jobs as f
    where f.redriven_at is null and (p_job_ids is null or f.id = any (p_job_ids)) and (p_data_type is null or f.data_type = p_data_type)
      and (p_source is null or f.source = p_source) and (p_since is null or f.ended_at >= p_since)
    group by f.data_type, f.priority, f.metadata
  loop
    v_count := v_count + cardinality(v_group.ids);
    if not p_dry_run then
      perform pgfresh.queue_refreshes(v_group.data_type, v_group.keys, v_group.priority, null, v_group.metadata);
      update pgfresh.history_other set redriven_at = pgfresh.clock() where id = any (v_group.ids) and status = 'failed';
    end if;
  end loop;
  return v_count;
end
$$;
comment on function pgfresh.retry_failed_jobs(bigint[], text, text, timestamptz, boolean) is
  'Enqueues failed jobs again, by filter, each once; returns how many. With p_dry_run only counts them.';
