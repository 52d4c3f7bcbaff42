/*
  Ends jobs that succeeded, of one data type per call, in the caller's transaction. The fence comes first: only a job
  that still runs in the given attempt is ended. Then follow its history, its pair, the ledger and its size.

  The table of open jobs is empty one minute and full the next, so its statistics are never right. Every table is
  therefore accessed by an array of keys, which leaves the planner only the index; data of the jobs is hash-joined to
  them.
*/
create or replace function pgfresh_engine.complete_jobs(
  p_ids bigint[], p_attempts int[], p_bytes bigint[], p_outcomes text[] default null, p_calls int[] default null,
  p_fetch_ms int[] default null, p_validate_ms int[] default null, p_commit_ms int[] default null,
  p_requests uuid[] default null, p_row_at timestamptz[] default null, p_ages double precision[] default null,
  p_source_at timestamptz[] default null)
returns bigint[]
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_nestloop = off
set enable_mergejoin = off
-- The index returns jobs in the order of their ids, in which all functions lock them; a bitmap would return them in the
-- order of the table.
set enable_bitmapscan = off
as $$
declare
  v_now timestamptz := pgfresh.clock();
  v_done bigint[];
  v_keys text[];
  v_sizes bigint[];
  v_outcomes text[];
  v_rows timestamptz[];
  v_asked timestamptz[];
  v_at_source timestamptz[];
  v_called bigint[];
  v_again bigint[];
  v_ttl interval;
  v_empty_ttl interval;
  v_judged boolean;
  -- Whether an empty answer has deleted the rows.
  v_removes boolean;
  v_noteworthy boolean;
  -- The outcome of all of them; null if they differ.
  v_outcome text := 'fresh';
  v_api_keys smallint[]; v_claimed_at timestamptz;
  v_type_low int; v_type_high int; v_source int; v_reserved bigint; v_bytes bigint; v_calls bigint; v_ended bigint;
  v_oldest bigint; v_newest bigint; v_changed boolean; v_needed boolean;
  -- The source of each job, and what to settle with it.
  v_sources int[]; v_each_reserved bigint[]; v_each_bytes bigint[]; v_each_calls int[];
  v_moved boolean;
begin
  perform pgfresh_engine.require_ends(p_ids, p_attempts, p_bytes, p_requests);
  if cardinality(p_calls) <> cardinality(p_ids) or array_position(p_calls, null) is not null
      or 0 > any (p_calls) or 1000000 < any (p_calls) then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      'p_calls must be as long as p_ids, and each from 0 to 1000000',
      'Pass how often the provider was called for each job, redirects included.');
  end if;
  if cardinality(p_fetch_ms) <> cardinality(p_ids) or 0 > any (p_fetch_ms)
      or cardinality(p_validate_ms) <> cardinality(p_ids) or 0 > any (p_validate_ms)
      or cardinality(p_commit_ms) <> cardinality(p_ids) or 0 > any (p_commit_ms) then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      'times must be arrays as long as p_ids, and none negative',
      'Pass null for a time that is not known.');
  end if;
  if p_outcomes is not null then
    if cardinality(p_outcomes) <> cardinality(p_ids) then
      perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
        'p_outcomes must be as long as p_ids',
        'Pass an outcome for each job, or leave it out where all are fresh.');
    end if;
    perform pgfresh_engine.require_outcome(said.outcome)
    from (select distinct outcome from unnest(p_outcomes) as outcome) as said;
    v_outcome := case when p_outcomes[1] = all (p_outcomes) then p_outcomes[1] end;
  end if;
  if cardinality(p_row_at) <> cardinality(p_ids) or cardinality(p_ages) <> cardinality(p_ids)
      or cardinality(p_source_at) <> cardinality(p_ids) or 0 > any (p_ages) or 1e9 < any (p_ages) then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      'p_row_at, p_ages and p_source_at must be as long as p_ids, and no age negative',
      'Pass null for a time that is not known.');
  end if;
  with ended as (
    delete from pgfresh_engine.job as j
    where j.id = any (p_ids) and j.state = 'x'
      and pgfresh_engine.token_of(j.id, j.attempt, case when p_requests is not null then j.request end) = any (array(
        select pgfresh_engine.token_of(e.id, e.attempt, e.request)
        from unnest(p_ids, p_attempts, p_requests) as e(id, attempt, request)
      ))
    returning j.*
  ), measured as (
    select ended.*, e.bytes, coalesce(v_outcome, e.outcome) as outcome, coalesce(e.calls, 1) as calls,
      e.fetch_ms, e.validate_ms, e.commit_ms, e.row_at, e.source_at,
      v_now - make_interval(secs => coalesce(e.age, 0)) as asked_at
    from ended
    join unnest(p_ids, p_attempts, p_bytes, p_outcomes, p_calls, p_fetch_ms, p_validate_ms, p_commit_ms,
        p_row_at, p_ages, p_source_at)
        as e(id, attempt, bytes, outcome, calls, fetch_ms, validate_ms, commit_ms, row_at, age, source_at)
      on e.id = ended.id and e.attempt = ended.attempt
  ), history as (
    insert into pgfresh_engine.history_succeeded (
      id, ended_at, created_at, claimed_at, bytes, calls, worker, type_id, source_id, priority, attempt, retries, lost,
      fetch_ms, validate_ms, commit_ms, status, outcome, key, metadata)
    select
      id, v_now, created_at, claimed_at, bytes, calls, worker, type_id, source_id, priority, attempt, retries, lost,
      fetch_ms, validate_ms, commit_ms, 'succeeded', outcome, key, metadata
    from measured
  )
  -- A job that made no call says nothing about the source or the size of an answer.
  select array_agg(id), array_agg(key), array_agg(bytes) filter (where calls > 0),
    array_agg(outcome), array_agg(row_at), array_agg(asked_at), array_agg(source_at),
    array_agg(id) filter (where calls > 0), array_agg(id) filter (where rerun),
    array_agg(coalesce(api_key, 1::smallint)) filter (where calls > 0), max(claimed_at),
    min(type_id), max(type_id), min(source_id), min(definition), max(definition),
    sum(reserved), sum(bytes), sum(calls), (select count(*) from ended),
    array_agg(source_id), array_agg(reserved), array_agg(bytes), array_agg(calls)
  into v_done, v_keys, v_sizes,
    v_outcomes, v_rows, v_asked, v_at_source,
    v_called, v_again,
    v_api_keys, v_claimed_at,
    v_type_low, v_type_high, v_source, v_oldest, v_newest,
    v_reserved, v_bytes, v_calls, v_ended,
    v_sources, v_each_reserved, v_each_bytes, v_each_calls
  from measured;
  -- More than were ended: a job was given twice. Fewer: the attempt belongs to the token of another job.
  if v_type_low <> v_type_high or v_ended <> coalesce(cardinality(v_done), 0) then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      'jobs of several data types in one call, or one job twice',
      'End jobs of one data type per call, and each job once.');
  end if;
  if v_done is null then
    return '{}';
  end if;
  select r.ttl, coalesce(r.empty_ttl, r.ttl),
    -- Where a column or a function decides how long rows are fresh, the planner checks at its next tick.
    r.ttl_column is not null or r.staleness_function <> 'pgfresh.is_data_stale',
    coalesce(r.empty_rows = 'delete', false),
    -- Most ends change nothing about their source. Then its row is not written.
    (
      select s.failure_streak > 0 or s.unhinted_holds > 0 or s.breaker_opened_at is not null
        or s.last_success_at > v_now - interval '10 seconds' is not true
      from pgfresh.sources as s
      where s.id = v_source
    )
  into v_ttl, v_empty_ttl, v_judged, v_removes, v_noteworthy
  from pgfresh.data_type_registry as r
  where r.type_id = v_type_low;
  /*
    The outcome decides when the pair is fetched again, and what is known of the row. Only unchanged confirms it.
    Written rows are fresh by their own time; if that is unknown or already past, the next tick checks.
  */
  with freed as (
    update pgfresh_engine.pairs as p
    set last_job = p.job_id, ok_job = p.job_id, job_id = null, ok_at = v_now, outcome = e.outcome, fails = 0,
      waits_for = null, next_ask_at = e.next_ask_at,
      row_at = case when e.outcome = 'empty' and v_removes then e.row_at else coalesce(e.row_at, p.row_at) end,
      confirmed_at = case e.outcome when 'unchanged' then e.asked_at when 'older_source' then p.confirmed_at end,
      empty_at = case when e.outcome = 'empty' then e.asked_at end,
      source_at = case when e.outcome = 'empty' then null else coalesce(e.source_at, p.source_at) end,
      seen = case when e.confirms then e.stale_at is not null else p.seen end,
      stale_at = case
        when e.confirms then coalesce(e.stale_at, case when e.known + v_ttl <= v_now then v_now else v_now + v_ttl end)
        else coalesce(p.stale_at, e.row_at + v_ttl, v_now)
      end,
      due_at = case when p.demanded then e.due_at else p.due_at end
    from (
      select e.*, coalesce(e.next_ask_at, e.stale_at, v_now) as due_at
      from (
        select e.key, e.outcome, e.row_at, e.source_at, e.asked_at, c.confirms, c.known,
          v_now + case e.outcome when 'empty' then v_empty_ttl when 'older_source' then v_ttl end as next_ask_at,
          case when c.confirms and not v_judged and c.known + v_ttl > v_now then c.known + v_ttl end as stale_at
        from unnest(v_keys, v_outcomes, v_rows, v_asked, v_at_source) as e(key, outcome, row_at, asked_at, source_at)
        cross join lateral (
          select e.outcome in ('fresh', 'unchanged') as confirms,
            case
              when e.outcome = 'fresh' then case when e.row_at <= v_now + interval '1 day' then e.row_at end
              when e.row_at is not null then e.asked_at
            end as known
        ) as c
      ) as e
    ) as e
    where p.type_id = v_type_low and p.key = any (v_keys) and p.key = e.key
    returning p.key, p.demanded, p.due_at
  )
  -- Entries with an earlier time are deleted and ignored when they are due.
  insert into pgfresh_engine.due (due_at, type_id, key)
  select f.due_at, v_type_low, f.key from freed as f where f.demanded
  on conflict do nothing;
  /*
    Answers fetched under another definition of the data type are not written. Checked once the pairs are locked: a
    change that committed before has skipped them, and one that commits later will process them.
  */
  select v_oldest <> r.definition or v_newest <> r.definition,
    exists (select from pgfresh_engine.type_dependency as d where d.needs_id = r.type_id)
  into v_changed, v_needed
  from pgfresh.data_type_registry as r
  where r.type_id = v_type_low;
  if v_changed then
    raise serialization_failure using
      message = 'the data type was changed while its jobs ran',
      hint = 'Run the transaction again, and put back what fence_jobs calls outdated.';
  end if;
  -- Dependent pairs that wait for these are due now; the sweep finds those that are locked. A dependent pair that
  -- failed for lack of them is retried at once too, but only once: a second failure has another cause.
  if v_needed then
    with recursive dependent (type_id) as (
      select type_id from pgfresh_engine.type_dependency where needs_id = v_type_low
      union
      select d.type_id from dependent as n join pgfresh_engine.type_dependency as d on d.needs_id = n.type_id
    ), hastened as (
      -- The same for a job that waits for its retry.
      update pgfresh_engine.job as j
      set run_at = v_now
      where j.id = any (array(
        select j.id
        from dependent as d
        join pgfresh_engine.pairs as w on w.type_id = d.type_id and w.key = any (v_keys)
        join pgfresh_engine.job as j on j.id = w.job_id
        where j.state = 'w' and j.retries > 0 and j.run_at > v_now
          and (
            select a.outcome
            from pgfresh_engine.history_attempt as a
            where a.id = j.id
            order by a.attempt desc
            limit 1
          ) = 'dependency'
        for update of j skip locked))
      returning j.id
    ), woken as (
      update pgfresh_engine.pairs as p
      set due_at = v_now,
        next_ask_at = case when p.outcome = 'dependency' and p.fails = 1 then null else p.next_ask_at end
      from (
        select w.type_id, w.key
        from dependent as d
        cross join lateral (
          select w.type_id, w.key
          from pgfresh_engine.pairs as w
          where w.type_id = d.type_id and w.key = any (v_keys) and w.demanded and w.job_id is null
          for update skip locked
        ) as w
      ) as waiting
      where p.type_id = waiting.type_id and p.key = waiting.key
      returning p.type_id, p.key
    )
    insert into pgfresh_engine.due (due_at, type_id, key)
    select v_now, w.type_id, w.key from woken as w
    on conflict do nothing;
  end if;
  if v_again is not null then
    perform pgfresh_engine.run_again(v_again, v_now);
  end if;
  -- Jobs of a data type that moved were claimed from several sources. Lock rows of sources in the order of their ids,
  -- then those of breakers, then ledgers, again in the order of sources.
  v_moved := v_source <> any (v_sources);
  if v_moved then
    v_api_keys := '{}';
    perform from pgfresh.sources as s where s.id = any (v_sources) order by s.id for no key update;
    perform pgfresh_engine.note_success(s.id, s.called, v_now)
    from (
      select e.source_id as id, array_agg(e.id) as called
      from unnest(v_done, v_sources, v_each_calls) as e(id, source_id, calls)
      where e.calls > 0
      group by e.source_id
      order by e.source_id
    ) as s;
  elsif v_noteworthy and v_called is not null then
    perform pgfresh_engine.note_success(v_source, v_called, v_now);
  end if;
  if v_called is not null and (
      v_outcome = 'older_source'
      or exists (select from pgfresh_engine.breaker as b where b.source_id = v_source)
      or exists (select from pgfresh_engine.breaker as b where b.type_id = v_type_low)) then
    perform pgfresh_engine.note_answers(
      v_source, case when v_outcome is distinct from 'older_source' then v_type_low end, v_api_keys,
      v_claimed_at, v_now);
    if v_outcome = 'older_source' then
      -- Each answer counts, even if all are of the same pair.
      perform pgfresh_engine.note_trouble(
        v_source, null, v_type_low, 'older_source', v_called::text[], s.breaker_failures, v_claimed_at, null, v_now)
      from pgfresh.sources as s
      where s.id = v_source;
    end if;
  end if;
  if v_moved then
    perform pgfresh_engine.settle_usage(s.id, s.reserved, s.bytes, s.calls)
    from (
      select e.source_id as id, sum(e.reserved)::bigint as reserved, sum(e.bytes)::bigint as bytes,
        sum(e.calls) as calls
      from unnest(v_sources, v_each_reserved, v_each_bytes, v_each_calls) as e(source_id, reserved, bytes, calls)
      group by e.source_id
      order by e.source_id
    ) as s;
  else
    perform pgfresh_engine.settle_usage(v_source, v_reserved, v_bytes, v_calls);
  end if;
  if v_sizes is not null then
    perform pgfresh_engine.learn_size(v_type_low, v_sizes, v_calls);
  end if;
  perform pgfresh_engine.mark_pairs(v_type_low, v_keys);
  return v_done;
end
$$;
comment on function pgfresh_engine.complete_jobs(
  bigint[], int[], bigint[], text[], int[], int[], int[], int[], uuid[], timestamptz[], double precision[],
  timestamptz[]) is
  'Ends jobs of one data type as succeeded. For each: the bytes that it used; its outcome, fresh if none is given; '
  'how often the provider was called for it, once if nothing is said, and never if the answer was known already; '
  'how long fetching, validating and writing took; by which claim it is held, '
  'required when claiming with p_alone; the time of its row as it is now, how many seconds ago its answer was '
  'fetched, and of which time the answer is at the source. '
  'Returns the ids of those that were still running in the given attempt; '
  'the others were taken back or cancelled meanwhile, and nothing of them is changed.';
grant execute on function pgfresh_engine.complete_jobs(bigint[], int[], bigint[], text[], int[], int[], int[], int[],
  uuid[], timestamptz[], double precision[], timestamptz[]) to
  pgfresh_worker;

/*
  Job and attempt as one number, so that a set of both can be looked up at once. A crash can lose a claim that did not
  wait for the disk, and the same numbers are then assigned again. The id of a claim is never reused, so it is part of
  the token of such a claim.
*/
create or replace function pgfresh_engine.token_of(p_id bigint, p_attempt int, p_request uuid) returns bigint
language sql immutable parallel safe
as $$ select (p_id * 1048576 + p_attempt) # coalesce(uuid_hash_extended(p_request, 0), 0) $$;
comment on function pgfresh_engine.token_of(bigint, int, uuid) is
  'The fencing token of an attempt, or of an attempt under a claim: no two have the same.';

create or replace function pgfresh_engine.require_ends(
  p_ids bigint[], p_attempts int[], p_bytes bigint[], p_requests uuid[])
returns void
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  if p_ids is null or p_attempts is null or p_bytes is null
      or cardinality(p_ids) <> cardinality(p_attempts) or cardinality(p_ids) <> cardinality(p_bytes)
      or cardinality(p_ids) > 10000 then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      'ids, attempts and bytes must be arrays of one length, at most 10000',
      'Pass one attempt and one size for each job.');
  end if;
  if cardinality(p_requests) <> cardinality(p_ids) or array_position(p_requests, null) is not null then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      'p_requests must be as long as p_ids, and none may be null',
      'Pass the name of its claim for each job, or leave it out.');
  end if;
  -- Larger ids do not fit into a token.
  if exists (
    select from unnest(p_ids, p_attempts, p_bytes) as e(id, attempt, bytes)
    where (
      e.id between 1 and 8796093022207 and e.attempt >= 0 and e.bytes between 0 and 1000000000000000
    ) is not true
  ) then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      'ids must be from 1 to 8796093022207, attempts not negative, and bytes from 0 to 1e15; none may be null',
      'Pass id and attempt as the claim returned them, and the real size of each answer.');
  end if;
end
$$;
comment on function pgfresh_engine.require_ends(bigint[], int[], bigint[], uuid[]) is
  'Refuses arrays that do not describe ends of jobs.';
