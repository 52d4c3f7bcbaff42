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
      -- Whether a lost call was made, and its cost, are unknown, so charge what was reserved.
      v_end.bytes := v_end.reserved;
      v_end.calls := 1;
      v_end.lost := v_end.lost + 1;
      v_end.status := case when v_end.lost >= 3 then 'failed' else 'pending' end;
      v_end.next_at := v_now;
    else
      v_end := pgfresh_engine.decide_end(v_end, v_now, true);
    end if;
    v_ends[i] := v_end;
  end loop;
  if p_lost or exists (select from unnest(v_ends) as e where e.status <> 'pending') then
    perform pgfresh_engine.mark_pairs(e.type_id, array_agg(e.key)) from unnest(v_ends) as e group by e.type_id;
  end if;
  perform pgfresh_engine.write_ends(v_ends, v_now);
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
