-- Full jitter: anything up to the doubled base, so that what failed together does not come back together.
create or replace function pgfresh.retry_delay(p_retries int, p_priority int) returns interval
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  select random() * least(
    interval '24 hours',
    (case when p_priority > 0 then interval '15 seconds' else interval '1 minute' end) * power(2, least(p_retries, 20)))
$$;
comment on function pgfresh.retry_delay(int, int) is
  'How long a job waits before its next try: up to base * 2^retries (15 s viewed, 1 min background), at most 24 h.';

create or replace function pgfresh.failure_hold(p_ttl interval, p_fails int) returns interval
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
  select least(
    interval '24 hours',
    greatest(p_ttl, interval '1 minute') * power(2, least(greatest(p_fails, 1), 12) - 1))
$$;
comment on function pgfresh.failure_hold(interval, int) is
  'How long a pair that failed for good is left alone: its TTL, at least a minute, '
  'doubled by each failure in a row, at most 24 h.';

create or replace function pgfresh.is_refused_answer(p_outcome text) returns boolean
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
  select p_outcome in ('schema', 'sanity', 'wrong_key', 'too_large', 'write_conflict', 'suspicious', 'config') is true
$$;
comment on function pgfresh.is_refused_answer(text) is
  'Whether an outcome says that answers of a data type can not be used as it is defined, though the source answers.';

/*
  A pair that the provider refuses must not stop its whole source. It is refused alone if the source has answered others
  since it was refused before, by this job or by the last one: then it says nothing about the API key.
*/
create or replace function pgfresh.refused_alone(p_ids bigint[]) returns bigint[]
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select coalesce(array_agg(j.id), '{}')
  from pgfresh.job as j
  join pgfresh.sources as s on s.id = j.source_id
  join pgfresh.pairs as p on p.type_id = j.type_id and p.key = j.key
  cross join lateral (
    select h.ended_at from pgfresh.history_attempt as h
    where h.id = j.id and h.outcome in ('unauthorized', 'forbidden')
    union all
    select h.ended_at from pgfresh.history_other as h
    where h.id = p.last_job and h.outcome in ('unauthorized', 'forbidden')
    order by 1 desc
    limit 1
  ) as before
  where j.id = any (p_ids) and before.ended_at <= s.last_success_at
$$;
comment on function pgfresh.refused_alone(bigint[]) is
  'Those of these jobs whose pair the provider refuses while it answers others. A part of turn_back_jobs.';

/*
  Every other end, and every way back into the queue. p_verdict:
    retry      a transient failure: waits and tries again, or fails when its retries are used up
    fail       a permanent failure
    put_back   nobody's fault: ready again at once, nothing counted
    lost       its worker is gone or it was silent too long: ready again at once, failed as worker_lost the third time
    cancel     not wanted any more; the only one that also ends jobs that wait, and asks for no attempt
*/
create or replace function pgfresh.turn_back_jobs(
  p_ids bigint[], p_attempts int[], p_bytes bigint[], p_verdict text, p_outcome text default null,
  p_error text default null, p_calls int[] default null, p_counts boolean default false, p_fetch_ms int[] default null,
  p_validate_ms int[] default null, p_requests uuid[] default null)
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
  v_ids bigint[]; v_statuses text[]; v_times timestamptz[]; v_sources int[];
  v_reserved bigint[]; v_bytes bigint[]; v_calls int[]; v_again bigint[];
  v_claimed timestamptz[]; v_api_keys smallint[]; v_names text[]; v_spent boolean[]; v_alone bigint[] := '{}';
  v_opened_at timestamptz;
  v_refused boolean := coalesce(p_verdict in ('retry', 'fail'), false) and pgfresh.is_refused_answer(p_outcome);
  v_after timestamptz;
  v_pairs record;
  v_total record;
begin
  perform pgfresh.require_ends(
    p_ids, coalesce(p_attempts, array_fill(0, array[coalesce(cardinality(p_ids), 0)])), p_bytes, p_requests);
  if p_outcome is not null then perform pgfresh.require_outcome(p_outcome); end if;
  if p_verdict is null or p_verdict not in ('retry', 'fail', 'put_back', 'lost', 'cancel')
      or (p_attempts is null and p_verdict <> 'cancel') then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      format(
        'p_verdict must be retry, fail, put_back, lost or cancel, and all but cancel need attempts; got %s',
        coalesce(left(quote_literal(p_verdict), 60), 'null')),
      'See the comment of turn_back_jobs.');
  end if;
  perform pgfresh.require_measures(cardinality(p_ids), p_calls, p_fetch_ms, p_validate_ms, null);
  if p_counts is null or (p_counts and p_verdict not in ('retry', 'fail')) then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      'p_counts must be true or false, and only a retry or a failure can be the source''s',
      'Leave it out where the source is not to blame.');
  end if;
  -- Each step by itself, on the rows that the first one has locked.
  select array_agg(t.id), array_agg(t.status), array_agg(t.next_at), array_agg(t.source_id), array_agg(t.reserved),
    -- Nobody knows whether a lost or cancelled call was made and what it has cost, so it counts as it was reserved.
    array_agg(case when p_verdict in ('lost', 'cancel') then t.reserved else t.said end),
    array_agg(case
      when p_verdict not in ('lost', 'cancel') then coalesce(t.calls, (t.said > 0)::int)
      else t.ran::int
    end),
    array_agg(t.claimed_at), array_agg(t.api_key), array_agg(t.type_id || ' ' || t.key), array_agg(t.spent)
  into v_ids, v_statuses, v_times, v_sources, v_reserved, v_bytes, v_calls, v_claimed, v_api_keys, v_names, v_spent
  from (
    select j.id, j.source_id, j.reserved, j.state = 'x' as ran, e.bytes as said, e.calls,
      j.type_id, j.key, j.claimed_at, coalesce(j.api_key, 1::smallint) as api_key, j.retries >= r.max_retries as spent,
      case
        when p_verdict = 'cancel' then 'cancelled'
        when p_verdict = 'fail'
          or (p_verdict = 'lost' and j.lost >= 2)
          or (p_verdict = 'retry' and j.retries >= r.max_retries) then 'failed'
        when p_verdict = 'retry' then 'retryable'
        else 'pending'
      end as status,
      -- A refresh that was forced while it ran does not wait.
      case
        when p_verdict = 'retry' and not j.rerun then v_now + pgfresh.retry_delay(j.retries, j.priority)
        else v_now
      end as next_at
    from pgfresh.job as j
    join unnest(p_ids, p_attempts, p_bytes, p_calls, p_requests) as e(id, attempt, bytes, calls, request)
      on e.id = j.id
    join pgfresh.data_type_registry as r on r.type_id = j.type_id
    where j.id = any (p_ids)
      and (p_verdict = 'cancel'
        or (j.state = 'x' and j.attempt = e.attempt and j.request = coalesce(e.request, j.request)))
    order by j.id for update of j
  ) as t;
  if v_ids is null then
    return;
  end if;
  if cardinality(v_ids) <> (select count(distinct named.id) from unnest(v_ids) as named(id)) then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID', 'one job twice', 'Name each job once.');
  end if;

  /*
    What the provider refuses because of an API key has not failed: it waits for a key that is accepted. But one that
    tried a refused key has used up one of its retries, and comes after others: it may be this pair that is refused,
    and then the source would wait for it for ever.
  */
  if p_outcome in ('unauthorized', 'forbidden') and p_verdict in ('fail', 'retry', 'put_back') then
    v_alone := pgfresh.refused_alone(v_ids);
    v_statuses := array(
      select case when t.id = any (v_alone) then 'failed' else t.status end
      from unnest(v_ids, v_statuses) with ordinality as t(id, status, place)
      order by t.place);
    for v_total in
      select t.source_id, t.api_key, array_agg(t.name) as names, max(t.claimed_at) as claimed_at, array_agg(t.id) as ids
      from unnest(v_ids, v_sources, v_api_keys, v_names, v_claimed) as t(id, source_id, api_key, name, claimed_at)
      where t.id <> all (v_alone)
      group by t.source_id, t.api_key
      order by t.source_id, t.api_key
    loop
      select b.opened_at
      into v_opened_at
      from pgfresh.breaker as b
      where b.source_id = v_total.source_id and b.api_key = v_total.api_key;
      if pgfresh.note_trouble(
          v_total.source_id, v_total.api_key, null, 'denied', v_total.names,
          case when p_outcome = 'unauthorized' then 1 else 3 end, v_total.claimed_at, p_error, v_now) then
        select b.paused_until + interval '30 seconds'
        into v_after
        from pgfresh.breaker as b
        where b.source_id = v_total.source_id and b.api_key = v_total.api_key;
        select array_agg(t.status order by t.place),
          array_agg(case when t.is_probe then v_after else t.next_at end order by t.place)
        into v_statuses, v_times
        from (
          select t.place, t.next_at, p.is_probe,
            case
              when t.id <> all (v_total.ids) then t.status
              when not p.is_probe then 'pending'
              when t.spent then 'failed'
              else 'retryable'
            end as status
          from unnest(v_ids, v_statuses, v_times, v_claimed, v_spent)
            with ordinality as t(id, status, next_at, claimed_at, spent, place)
          cross join lateral (
            select t.id = any (v_total.ids) and coalesce(t.claimed_at >= v_opened_at, false) as is_probe
          ) as p
        ) as t;
      end if;
    end loop;
  end if;
  v_again := array(
    select j.id
    from unnest(v_ids, v_statuses) as t(id, status)
    join pgfresh.job as j on j.id = t.id
    where j.id = any (v_ids) and j.rerun and t.status = 'failed');

  if p_verdict <> 'put_back' or v_statuses && array['failed', 'retryable'] then
    perform pgfresh.mark_pairs(j.type_id, array_agg(j.key))
    from pgfresh.job as j
    where j.id = any (v_ids)
    group by j.type_id;
  end if;

  insert into pgfresh.history_attempt (
    id, ended_at, created_at, claimed_at, bytes, calls, worker, type_id, source_id, priority,
    attempt, retries, lost, fetch_ms, validate_ms, status,
    outcome,
    key, error, metadata)
  select
    j.id, v_now, j.created_at, j.claimed_at, t.bytes, t.calls, j.worker, j.type_id, j.source_id, j.priority,
    j.attempt, j.retries, j.lost,
    p_fetch_ms[array_position(p_ids, j.id)], p_validate_ms[array_position(p_ids, j.id)], t.status,
    coalesce(
      p_outcome,
      case p_verdict when 'lost' then 'worker_lost' when 'put_back' then 'interrupted' else 'failed' end),
    j.key, left(p_error, 4000), j.metadata
  from pgfresh.job as j
  join unnest(v_ids, v_statuses, v_bytes, v_calls) as t(id, status, bytes, calls) on t.id = j.id
  where j.id = any (v_ids) and t.status in ('retryable', 'pending');

  update pgfresh.job as j
  set state = case when t.status = 'retryable' then 'w' else 'r' end::"char", run_at = t.next_at,
    worker = null, request = null, claimed_at = null, progress_at = null, reserved = 0, api_key = null,
    rerun = j.rerun and p_verdict <> 'retry',
    retries = j.retries + (t.status = 'retryable')::int, lost = j.lost + (p_verdict = 'lost')::int,
    error = coalesce(left(p_error, 4000), j.error)
  from unnest(v_ids, v_statuses, v_times) as t(id, status, next_at)
  where j.id = any (v_ids) and j.id = t.id and t.status in ('retryable', 'pending');

  with gone as (
    delete from pgfresh.job as j
    using unnest(v_ids, v_statuses, v_bytes, v_calls) as t(id, status, bytes, calls)
    where j.id = any (v_ids) and j.id = t.id and t.status in ('failed', 'cancelled')
    returning j.*, t.status, t.bytes, t.calls,
      p_fetch_ms[array_position(p_ids, j.id)] as fetch_ms,
      p_validate_ms[array_position(p_ids, j.id)] as validate_ms
  ), history as (
    insert into pgfresh.history_other (
      id, ended_at, created_at, claimed_at, bytes, calls, worker, type_id, source_id, priority,
      attempt, retries, lost, fetch_ms, validate_ms, status,
      outcome,
      key, error, metadata)
    select
      id, v_now, created_at, claimed_at, bytes, calls, worker, type_id, source_id, priority,
      attempt, retries, lost + (p_verdict = 'lost')::int, fetch_ms, validate_ms, status,
      coalesce(p_outcome, case when p_verdict = 'lost' then 'worker_lost' else status end),
      key, coalesce(left(p_error, 4000), error), metadata
    from gone
  )
  select array_agg(type_id) as types, array_agg(key) as keys into v_pairs from gone;
  for v_total in
    select g.type_id, array_agg(g.key) as keys
    from unnest(v_pairs.types, v_pairs.keys) as g(type_id, key)
    group by g.type_id
    order by g.type_id
  loop
    with freed as (
      update pgfresh.pairs as p
      set last_job = p.job_id, job_id = null, fails = p.fails + (p_verdict <> 'cancel')::int,
        outcome = coalesce(p_outcome, case p_verdict
          when 'lost' then 'worker_lost'
          when 'cancel' then 'cancelled'
          else 'failed'
        end),
        next_ask_at = hold.until, waits_for = null,
        due_at = case when p.demanded then least(p.due_at, hold.until) else p.due_at end
      from (
        select h.key,
          v_now + case
            when p_verdict = 'cancel' then least(r.ttl, interval '24 hours')
            else pgfresh.failure_hold(r.ttl, h.fails + 1)
          end as until
        from pgfresh.pairs as h
        join pgfresh.data_type_registry as r on r.type_id = h.type_id
        where h.type_id = v_total.type_id and h.key = any (v_total.keys)
      ) as hold
      where p.type_id = v_total.type_id and p.key = any (v_total.keys) and p.key = hold.key
      returning p.key, p.demanded, p.due_at, hold.until
    ), refused as (
      insert into pgfresh.refused_pair (type_id, key)
      select v_total.type_id, f.key from freed as f where v_refused order by f.key
      on conflict do nothing
    )
    insert into pgfresh.due (due_at, type_id, key)
    select f.until, v_total.type_id, f.key from freed as f where f.demanded and f.due_at = f.until
    on conflict do nothing;
  end loop;
  if v_again <> '{}' then
    perform pgfresh.run_again(v_again, v_now);
  end if;

  -- Before the ledger: whoever needs both takes the row of the source first.
  if v_refused then
    perform pgfresh.note_trouble(
      r.source_id, null, t.type_id, 'refused', t.names, s.breaker_failures, t.claimed_at, p_error, v_now)
    from (
      select split_part(n.name, ' ', 1)::int as type_id, array_agg(n.name) as names, max(n.claimed_at) as claimed_at
      from unnest(v_names, v_claimed) as n(name, claimed_at)
      group by 1
      order by 1
    ) as t
    join pgfresh.data_type_registry as r on r.type_id = t.type_id
    join pgfresh.sources as s on s.id = r.source_id;
    -- One of them tries when the pause ends, after those that wait already: or nobody would, if all are held.
    for v_total in
      select g.type_id, min(g.key) as key, b.paused_until + interval '30 seconds' as until
      from unnest(v_pairs.types, v_pairs.keys) as g(type_id, key)
      join pgfresh.data_type_registry as r on r.type_id = g.type_id
      join pgfresh.sources as s on s.id = r.source_id
      join pgfresh.breaker as b on b.type_id = g.type_id
      -- Paused just now, and not by those before it.
      where b.paused_until = v_now + s.breaker_pause
      group by g.type_id, b.paused_until
      order by g.type_id
    loop
      with probe as (
        update pgfresh.pairs as p
        set next_ask_at = v_total.until, due_at = case when p.demanded then v_total.until else p.due_at end
        where p.type_id = v_total.type_id and p.key = v_total.key
          and p.job_id is null and p.next_ask_at > v_total.until
        returning p.demanded
      )
      insert into pgfresh.due (due_at, type_id, key)
      select v_total.until, v_total.type_id, v_total.key from probe as p where p.demanded
      on conflict do nothing;
    end loop;
  end if;

  for v_total in
    select s.source_id, sum(s.reserved)::bigint as reserved, sum(s.bytes)::bigint as bytes,
      sum(s.calls)::bigint as calls, array_agg(s.id) as ids,
      count(*) filter (where s.status = 'retryable')::int as retries, max(s.claimed_at) as claimed_at
    from unnest(v_ids, v_statuses, v_sources, v_reserved, v_bytes, v_calls, v_claimed)
      as s(id, status, source_id, reserved, bytes, calls, claimed_at)
    group by s.source_id
    order by s.source_id
  loop
    if p_counts then
      perform pgfresh.note_failure(
        v_total.source_id, v_total.ids, v_total.retries, v_total.claimed_at, p_error, v_now);
    end if;
    perform pgfresh.settle_usage(v_total.source_id, v_total.reserved, v_total.bytes, v_total.calls);
  end loop;
  if 'pending' = any (v_statuses) then
    perform pgfresh.wake_workers();
  end if;
  return query
    select t.id, t.status, case when t.status = 'retryable' then t.next_at end
    from unnest(v_ids, v_statuses, v_times) as t(id, status, next_at);
end
$$;
comment on function pgfresh.turn_back_jobs(
  bigint[], int[], bigint[], text, text, text, int[], boolean, int[], int[], uuid[]) is
  'Ends jobs other than by success, or puts them back: retry, fail, put_back, lost, cancel. '
  'p_calls is how often the provider was called for each (once where bytes were used, if nothing is said); '
  'p_counts says that it is a failure of the source, which its breaker counts. '
  'Returns what became of each that was still running in the given attempt.';
