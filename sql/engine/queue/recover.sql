create or replace function pgfresh_engine.register_worker(p_name text) returns bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := pgfresh.clock();
  v_id bigint;
begin
  perform pgfresh_engine.require_worker_name('p_name', p_name);
  perform pgfresh_engine.follow_restore();
  insert into pgfresh_engine.worker_name (name, has_lease, last_seen_at)
    values (p_name, true, v_now) returning id into v_id;
  insert into pgfresh_engine.worker (id, name, started_at, renewed_at, lease_until)
  values (v_id, p_name, v_now, v_now, v_now + interval '12 seconds');
  return v_id;
end
$$;
comment on function pgfresh_engine.register_worker(text) is
  'Begins an incarnation of a worker process: its number, with a lease of 12 s that heartbeat_worker renews. '
  'Its name is kept as long as the history of its jobs.';
grant execute on function pgfresh_engine.register_worker(text) to pgfresh_worker;

/*
  A claim whose answer was lost on its way is known to us and not to the worker. So the worker says which claims it
  knows, and is told of those that it has not named. It puts them back itself: what it named may be older than what it
  holds by now.
*/
create or replace function pgfresh_engine.heartbeat_worker(p_worker bigint, p_known uuid[]) returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := pgfresh.clock();
begin
  -- Null would read as "knows of none".
  if p_known is null or array_position(p_known, null) is not null then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      'p_known must not be null, and no claim in it',
      'Pass every claim with jobs that have not ended, or an empty array.');
  end if;
  update pgfresh_engine.worker
  set renewed_at = v_now, lease_until = v_now + interval '12 seconds'
  where id = p_worker and lease_until > v_now;
  if not found then
    return jsonb_build_object('alive', false);
  end if;
  delete from pgfresh_engine.claim as c
  where c.worker = p_worker and not c.request = any (p_known) and c.claimed_at < v_now - interval '5 seconds'
    and not exists (
      select from unnest(c.job_ids) as job(id)
      join pgfresh_engine.job as j on j.id = job.id and j.request = c.request
    );
  return jsonb_build_object('alive', true, 'stranded', (
    select coalesce(jsonb_agg(c.request), '[]')
    from pgfresh_engine.claim as c
    where c.worker = p_worker and not c.request = any (p_known) and c.claimed_at < v_now - interval '5 seconds'
  ));
end
$$;
comment on function pgfresh_engine.heartbeat_worker(bigint, uuid[]) is
  'Renews the lease of a worker that knows of these claims. Answers {"alive", "stranded"}: whether it still has the '
  'lease, without which nothing that it holds is its own any more, and the claims that it was given five seconds ago '
  'or more and has not named; release_claim puts back what they hold.';
grant execute on function pgfresh_engine.heartbeat_worker(bigint, uuid[]) to pgfresh_worker;

create or replace function pgfresh_engine.retire_worker(p_worker bigint) returns int
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_count int;
begin
  v_count := pgfresh_engine.take_back(p_worker, false, null);
  delete from pgfresh_engine.worker where id = p_worker
    and not exists (select from pgfresh_engine.claim where worker = p_worker);
  -- What somebody has locked this moment was left out, and is left to recovery.
  update pgfresh_engine.worker set lease_until = least(lease_until, pgfresh.clock()), idle = false where id = p_worker;
  update pgfresh_engine.worker_name set last_seen_at = pgfresh.clock() where id = p_worker and has_lease;
  return v_count;
end
$$;
comment on function pgfresh_engine.retire_worker(bigint) is
  'Ends an incarnation: what it still holds is ready again at once, and returned is how many jobs that were. '
  'What somebody has locked this moment is taken back by recovery.';
grant execute on function pgfresh_engine.retire_worker(bigint) to pgfresh_worker;

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
  perform from pgfresh_engine.worker where id = p_worker for update;
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
  -- Each holder is settled by itself, so the ledgers are taken before,
  -- in the order in which ends of several sources take them.
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
