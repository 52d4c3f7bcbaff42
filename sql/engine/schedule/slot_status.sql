create or replace function pgfresh_engine.count_job_statistics(p_jobs int default 2000) returns int
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := pgfresh.clock();
  v_count int;
begin
  perform pgfresh_engine.require_range('p_jobs', p_jobs, 1, 10000);
  -- Runs of a job that has been idle since may have left the seven days.
  delete from pgfresh_engine.job_statistics
  where job_id in (
    select t.job_id
    from pgfresh_engine.job_statistics as t
    where t.counted_at < v_now - interval '1 day' and t.p50_ms is not null
    limit p_jobs
  );
  insert into pgfresh_engine.job_statistics as t
    (job_id, runs, counted_at, success_rate_percent_7d, p50_ms, p95_ms, lateness_p95_ms)
  select s.job_id, s.total_runs, v_now, s.success_rate_percent_7d, s.p50_ms, s.p95_ms, s.lateness_p95_ms
  from pgfresh.scheduled_job_status as s
  where s.job_id = any (array(
    select c.job_id
    from pgfresh_engine.job_cursor as c
    left join pgfresh_engine.job_statistics as t on t.job_id = c.job_id
    where c.runs <> coalesce(t.runs, 0)
    limit p_jobs
  ))
  on conflict (job_id) do update
  set runs = excluded.runs, counted_at = excluded.counted_at,
    success_rate_percent_7d = excluded.success_rate_percent_7d,
    p50_ms = excluded.p50_ms, p95_ms = excluded.p95_ms, lateness_p95_ms = excluded.lateness_p95_ms;
  get diagnostics v_count = row_count;
  return v_count;
-- A job was just removed: the others follow the next time.
exception when foreign_key_violation then
  return 0;
end
$$;
comment on function pgfresh_engine.count_job_statistics(int) is
  'Counts how the newest runs of jobs went that have run since they were last counted, of at most p_jobs. '
  'Returns of how many. A part of pgfresh.tidy.';
grant execute on function pgfresh_engine.count_job_statistics(int) to pgfresh_planner;
