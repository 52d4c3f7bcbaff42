create or replace function pgfresh_engine.running_attempt(p_job_id bigint, p_attempt int) returns int
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_attempt int;
begin
  perform pgfresh_engine.require_range('p_job_id', p_job_id, 1, 9223372036854775807);
  select attempt
  into v_attempt
  from pgfresh_engine.job
  where id = p_job_id and state = 'x' and attempt = coalesce(p_attempt, attempt);
  if v_attempt is null then
    raise warning 'job % is not running%', p_job_id, coalesce(' in attempt ' || p_attempt, '');
  end if;
  return v_attempt;
end
$$;
comment on function pgfresh_engine.running_attempt(bigint, int) is
  'The attempt in which a job runs; warns and returns null if it does not.';
