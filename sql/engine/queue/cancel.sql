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
  -- Lock all jobs before any ledger, which is settled below: the lock order of all ends.
  v_ids := array(select j.id from pgfresh_engine.job as j where j.id = any (p_ids) order by j.id for update);
  for v_first in 1..cardinality(v_ids) by 10000 loop
    select array_agg(row(
      j.id, j.attempt, j.request,
      -- The cost of a cancelled call is unknown, so charge what was reserved.
      j.reserved, (j.state = 'x')::int, 1,
      null, null, 'cancelled', null, false, false,
      j.type_id, j.key, j.source_id, coalesce(j.api_key, 1::smallint), j.priority, j.claimed_at, j.reserved,
      j.retries, 0, j.lost, j.put_backs, j.rerun,
      'cancelled', v_now)::pgfresh_engine.job_end order by j.id)
    into v_ends
    from pgfresh_engine.job as j
    where j.id = any (v_ids[v_first:v_first + 9999]);
    perform pgfresh_engine.mark_pairs(e.type_id, array_agg(e.key)) from unnest(v_ends) as e group by e.type_id;
    perform pgfresh_engine.write_ends(v_ends, v_now);
    perform pgfresh_engine.settle_ends(v_ends);
  end loop;
  return cardinality(v_ids);
end
$$;
comment on function pgfresh_engine.cancel_jobs(bigint[]) is
  'Cancels open jobs, whatever their state, and returns how many there were. '
  'What a running one does afterwards has no effect; what it has cost is booked as it was reserved.';
