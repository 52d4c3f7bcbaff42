create or replace function pgfresh_engine.worker_called(p_worker bigint) returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select coalesce((select name from pgfresh_engine.worker_name where id = p_worker), 'number ' || p_worker,
    'an SQL client')
$$;
comment on function pgfresh_engine.worker_called(bigint) is 'The name of a worker or SQL client, also when it is gone.';

create or replace function pgfresh_engine.take_back(p_worker bigint, p_lost boolean, p_error text) returns int
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_held jsonb;
begin
  select jsonb_agg(jsonb_build_object('id', held.id, 'attempt', held.attempt, 'error', p_error))
  into v_held
  from (
    select j.id, j.attempt
    from pgfresh_engine.claim as c
    cross join unnest(c.job_ids) as job(id)
    join pgfresh_engine.job as j on j.id = job.id and j.request = c.request
    where c.worker = p_worker and j.state = 'x'
    order by j.id
    limit 10000 for update of j skip locked
  ) as held;
  if v_held is not null then
    perform pgfresh_engine.put_back_jobs(v_held, p_lost);
  end if;
  perform from pgfresh_engine.process where id = p_worker for update;
  delete from pgfresh_engine.claim as c
  where c.worker = p_worker
    and not exists (
      select from unnest(c.job_ids) as job(id)
      join pgfresh_engine.job as j on j.id = job.id and j.request = c.request
    );
  return coalesce(jsonb_array_length(v_held), 0);
end
$$;
comment on function pgfresh_engine.take_back(bigint, boolean, text) is
  'Takes back what a worker holds, except what is being ended this moment. A part of recovery.';

create or replace function pgfresh_engine.recover_silent_jobs(p_limit int) returns int
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := pgfresh.clock();
  v_shortest interval := (select min(max_run) from pgfresh.data_type_registry);
  v_silent record;
  v_count int := 0;
begin
  if not exists (select from pgfresh_engine.claim where claimed_at < v_now - v_shortest) then
    return 0;
  end if;
  -- Holders are settled one by one, so lock all ledgers first, in the order in which ends lock them.
  perform from pgfresh_engine.source_state order by source_id for update;
  for v_silent in
    select jsonb_agg(jsonb_build_object('id', held.id, 'attempt', held.attempt, 'error',
      format('no progress for its maximum, held by %s', pgfresh_engine.worker_called(held.worker)))) as ends
    from (
      select j.id, j.attempt, j.worker
      from pgfresh_engine.claim as c
      cross join unnest(c.job_ids) as job(id)
      join pgfresh_engine.job as j on j.id = job.id and j.request = c.request
      join pgfresh.data_type_registry as r on r.type_id = j.type_id
      where c.claimed_at < v_now - v_shortest and j.state = 'x' and j.progress_at < v_now - r.max_run
      order by j.id
      limit p_limit for update of j skip locked
    ) as held
    group by held.worker
  loop
    perform pgfresh_engine.put_back_jobs(v_silent.ends, true);
    v_count := v_count + jsonb_array_length(v_silent.ends);
  end loop;
  return v_count;
end
$$;
comment on function pgfresh_engine.recover_silent_jobs(int) is
  'Takes back running jobs without progress for their type''s max_run, at most p_limit. A part of recovery.';

create or replace function pgfresh_engine.release_claim(p_worker bigint, p_request uuid) returns int
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_held jsonb;
begin
  if p_worker is null or p_request is null then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      'p_worker and p_request must not be null',
      'Pass the worker, and the name of the claim whose answer did not come.');
  end if;
  select jsonb_agg(jsonb_build_object('id', held.id, 'attempt', held.attempt))
  into v_held
  from (
    select j.id, j.attempt
    from pgfresh_engine.claim as c
    cross join unnest(c.job_ids) as job(id)
    join pgfresh_engine.job as j on j.id = job.id and j.request = c.request
    where c.request = p_request and c.worker = p_worker and j.state = 'x'
    order by j.id for update of j skip locked
  ) as held;
  if v_held is not null then
    perform pgfresh_engine.put_back_jobs(v_held);
  end if;
  return coalesce(jsonb_array_length(v_held), 0);
end
$$;
comment on function pgfresh_engine.release_claim(bigint, uuid) is
  'Puts back what a worker has claimed but was never told of, because the answer was lost on its way. '
  'Returns how many jobs that were.';
grant execute on function pgfresh_engine.release_claim(bigint, uuid) to pgfresh_worker;
