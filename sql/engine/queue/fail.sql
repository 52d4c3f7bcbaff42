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
  -- Jobs whose API key the provider rejected, and those among them that prove nothing about the key.
  v_denied bigint[];
  v_alone bigint[];
  v_key record;
  v_opened_at timestamptz;
  v_until timestamptz;
  v_type record;
begin
  if v_ends = '{}' then
    return;
  end if;
  for i in 1..cardinality(v_ends) loop
    v_end := pgfresh_engine.decide_end(v_ends[i], v_now, false);
    v_end.outcome := coalesce(v_end.outcome, 'failed');
    v_ends[i] := v_end;
  end loop;

  -- Before locking the rows and ledgers of sources, because this reads users' tables.
  if exists (select from unnest(v_ends) as e where e.outcome = 'dependency') then
    perform pgfresh_engine.queue_lost_prerequisites(v_ends);
  end if;

  -- Lock the rows of sources once, in the order of their ids, before any ledger.
  perform
  from pgfresh.sources as s
  where s.id = any (array(
    select e.source_id
    from unnest(v_ends) as e
    where e.counts or e.outcome in ('unauthorized', 'forbidden') or pgfresh_engine.is_refused_answer(e.outcome)
    union all
    -- A data type that moved counts for the breaker of its current source.
    select r.source_id
    from unnest(v_ends) as e
    join pgfresh.data_type_registry as r on r.type_id = e.type_id
    where pgfresh_engine.is_refused_answer(e.outcome)
  ))
  order by s.id for no key update;

  /*
    A job whose API key is rejected has not failed: it waits for a key that is accepted. A job that probed a rejected
    key uses up a retry and queues behind others: only this pair may be rejected, and would block the source for ever.
    Only the pair is rejected if the source has answered others since the pair was last rejected, by this job or the
    previous one. That proves nothing about the key, and must not stop the whole source.
  */
  v_denied := array(select e.id from unnest(v_ends) as e where e.outcome in ('unauthorized', 'forbidden'));
  if v_denied <> '{}' then
    v_alone := array(
      select j.id
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
      where j.id = any (v_denied) and before.ended_at <= s.last_success_at);
    for i in 1..cardinality(v_ends) loop
      v_end := v_ends[i];
      continue when v_end.id <> all (v_alone);
      v_end.status := 'failed';
      v_ends[i] := v_end;
    end loop;
    for v_key in
      select e.source_id, e.api_key, e.outcome, array_agg(e.type_id || ' ' || e.key) as names,
        max(e.claimed_at) as claimed_at, min(e.error) as error
      from unnest(v_ends) as e
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
        case when v_key.outcome = 'unauthorized' then 1 else 3 end, v_key.claimed_at, v_key.error, v_now);
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
          v_end := pgfresh_engine.decide_end(v_end, v_now, true);
        end if;
        v_ends[i] := v_end;
      end loop;
    end loop;
  end if;

  perform pgfresh_engine.mark_pairs(e.type_id, array_agg(e.key)) from unnest(v_ends) as e group by e.type_id;
  perform pgfresh_engine.write_ends(v_ends, v_now);

  -- Pause a data type after too many refused answers in a row.
  for v_type in
    select e.type_id, r.source_id, s.breaker_failures, s.breaker_pause, array_agg(e.type_id || ' ' || e.key) as names,
      max(e.claimed_at) as claimed_at, min(e.error) as error, min(e.key) filter (where e.status = 'failed') as probe
    from unnest(v_ends) as e
    join pgfresh.data_type_registry as r on r.type_id = e.type_id
    join pgfresh.sources as s on s.id = r.source_id
    where pgfresh_engine.is_refused_answer(e.outcome)
    group by e.type_id, r.source_id, s.breaker_failures, s.breaker_pause
    order by e.type_id
  loop
    perform pgfresh_engine.note_trouble(
      v_type.source_id, null, v_type.type_id, 'refused', v_type.names, v_type.breaker_failures, v_type.claimed_at,
      v_type.error, v_now);
    -- One pair probes when the pause ends, after those already waiting. If all were held, none would.
    with pause as (
      select b.paused_until + interval '30 seconds' as until
      from pgfresh_engine.breaker as b
      -- Paused by this call, not by an earlier one.
      where b.type_id = v_type.type_id and b.paused_until = v_now + v_type.breaker_pause
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

  perform pgfresh_engine.note_failure(f.source_id, f.ids, f.retries, f.claimed_at, f.error, v_now)
  from (
    select e.source_id, array_agg(e.id) as ids, count(*) filter (where e.status = 'retryable')::int as retries,
      max(e.claimed_at) as claimed_at, min(e.error) as error
    from unnest(v_ends) as e
    where e.counts
    group by e.source_id
    order by e.source_id
  ) as f;
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

/*
  If a table refuses a row because of a foreign key, the row of a prerequisite was deleted after the job was opened,
  which the planner could not know. A retry fails too unless that row is fetched first.
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
      -- Not a failure of the pair itself, so it does not lengthen its backoff.
      update pgfresh_engine.pairs as p
      set fails = 0
      where p.ctid = any (array(
        select w.ctid
        from unnest(v_needs.types, v_needs.keys) as e(type_id, key)
        join pgfresh_engine.pairs as w on w.type_id = e.type_id and w.key = e.key
        where w.outcome = 'dependency' and w.fails > 0 and e.key = any (v_missing)
        for update of w skip locked));
    exception when others then
      -- The end must not fail because of this. The planner checks again once the job has failed for good.
      null;
    end;
  end loop;
end
$$;
comment on function pgfresh_engine.queue_lost_prerequisites(pgfresh_engine.job_end[]) is
  'Queues the missing prerequisites of jobs that ended with the outcome dependency. A part of fail_jobs.';
