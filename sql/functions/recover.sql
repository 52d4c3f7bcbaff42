create or replace function pgfresh.register_worker(p_name text) returns bigint
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := pgfresh.clock();
  v_id bigint;
begin
  perform pgfresh.require_worker_name('p_name', p_name);
  insert into pgfresh.worker_name (name, has_lease, last_seen_at) values (p_name, true, v_now) returning id into v_id;
  insert into pgfresh.worker (id, name, started_at, renewed_at, lease_until)
  values (v_id, p_name, v_now, v_now, v_now + interval '12 seconds');
  return v_id;
end
$$;
comment on function pgfresh.register_worker(text) is
  'Begins an incarnation of a worker process: its number, with a lease of 12 s that heartbeat_worker renews. '
  'Its name is kept as long as the history of its jobs.';

/*
  A claim whose answer was lost on its way is known to us and not to the worker. So the worker says which claims it
  knows, and is told of those that it has not named. It puts them back itself: what it named may be older than what it
  holds by now.
*/
create or replace function pgfresh.heartbeat_worker(p_worker bigint, p_known uuid[]) returns jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := pgfresh.clock();
begin
  -- Null would read as "knows of none".
  if p_known is null or array_position(p_known, null) is not null then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      'p_known must not be null, and no claim in it',
      'Pass every claim with jobs that have not ended, or an empty array.');
  end if;
  update pgfresh.worker
  set renewed_at = v_now, lease_until = v_now + interval '12 seconds'
  where id = p_worker and lease_until > v_now;
  if not found then
    return jsonb_build_object('alive', false);
  end if;
  delete from pgfresh.claim as c
  where c.worker = p_worker and not c.request = any (p_known) and c.claimed_at < v_now - interval '5 seconds'
    and not exists (
      select from unnest(c.job_ids) as job(id)
      join pgfresh.job as j on j.id = job.id and j.request = c.request
    );
  return jsonb_build_object('alive', true, 'stranded', (
    select coalesce(jsonb_agg(c.request), '[]')
    from pgfresh.claim as c
    where c.worker = p_worker and not c.request = any (p_known) and c.claimed_at < v_now - interval '5 seconds'
  ));
end
$$;
comment on function pgfresh.heartbeat_worker(bigint, uuid[]) is
  'Renews the lease of a worker that knows of these claims. Answers {"alive", "stranded"}: whether it still has the '
  'lease, without which nothing that it holds is its own any more, and the claims that it was given five seconds ago '
  'or more and has not named; release_claim puts back what they hold.';

create or replace function pgfresh.retire_worker(p_worker bigint) returns int
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_count int;
begin
  v_count := pgfresh.take_back(p_worker, false, null);
  delete from pgfresh.worker where id = p_worker and not exists (select from pgfresh.claim where worker = p_worker);
  -- What somebody has locked this moment was left out, and is left to recovery.
  update pgfresh.worker set lease_until = least(lease_until, pgfresh.clock()), idle = false where id = p_worker;
  update pgfresh.worker_name set last_seen_at = pgfresh.clock() where id = p_worker and has_lease;
  return v_count;
end
$$;
comment on function pgfresh.retire_worker(bigint) is
  'Ends an incarnation: what it still holds is ready again at once, and returned is how many jobs that were. '
  'What somebody has locked this moment is taken back by recovery.';

create or replace function pgfresh.worker_called(p_worker bigint) returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select coalesce((select name from pgfresh.worker_name where id = p_worker), 'number ' || p_worker, 'an SQL client')
$$;
comment on function pgfresh.worker_called(bigint) is 'The name of a worker or SQL client, also when it is gone.';

create or replace function pgfresh.take_back(p_worker bigint, p_lost boolean, p_error text) returns int
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
    from pgfresh.claim as c
    cross join unnest(c.job_ids) as job(id)
    join pgfresh.job as j on j.id = job.id and j.request = c.request
    where c.worker = p_worker and j.state = 'x'
    order by j.id
    limit 10000 for update of j skip locked
  ) as held;
  if v_held is not null then
    perform pgfresh.put_back_jobs(v_held, p_lost);
  end if;
  perform from pgfresh.worker where id = p_worker for update;
  delete from pgfresh.claim as c
  where c.worker = p_worker
    and not exists (
      select from unnest(c.job_ids) as job(id)
      join pgfresh.job as j on j.id = job.id and j.request = c.request
    );
  return coalesce(jsonb_array_length(v_held), 0);
end
$$;
comment on function pgfresh.take_back(bigint, boolean, text) is
  'Takes back what a worker holds, except what is being ended this moment. A part of recovery.';

create or replace function pgfresh.heartbeat_jobs(p_job_ids bigint[], p_attempts int[] default null) returns bigint[]
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_alive bigint[];
begin
  if p_job_ids is null or cardinality(p_job_ids) > 10000 or cardinality(p_attempts) <> cardinality(p_job_ids) then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      'p_job_ids must be an array of at most 10000 ids, and p_attempts as long as it',
      'Pass the ids that the claim returned.');
  end if;
  with alive as (
    update pgfresh.job
    set progress_at = pgfresh.clock()
    -- In the order of ids, as every end locks them.
    where id = any (array(
      select j.id
      from pgfresh.job as j
      join unnest(p_job_ids, p_attempts) as b(id, attempt) on j.id = b.id
      where j.state = 'x' and j.attempt = coalesce(b.attempt, j.attempt)
      order by j.id for update of j))
    returning id
  )
  select coalesce(array_agg(id), '{}') into v_alive from alive;
  return v_alive;
end
$$;
comment on function pgfresh.heartbeat_jobs(bigint[], int[]) is
  'Reports progress of running jobs, so that they are not taken back as silent. '
  'Returns those that still run; stop working on the others.';

create or replace function pgfresh.recover_silent_jobs(p_limit int) returns int
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := pgfresh.clock();
  v_shortest interval := (select min(max_run) from pgfresh.data_type_registry);
  v_silent record;
  v_count int := 0;
begin
  if not exists (select from pgfresh.claim where claimed_at < v_now - v_shortest) then
    return 0;
  end if;
  -- Each holder is settled by itself, so the ledgers are taken before,
  -- in the order in which ends of several sources take them.
  perform from pgfresh.source_state order by source_id for update;
  for v_silent in
    select jsonb_agg(jsonb_build_object('id', held.id, 'attempt', held.attempt, 'error',
      format('no progress for its maximum, held by %s', pgfresh.worker_called(held.worker)))) as ends
    from (
      select j.id, j.attempt, j.worker
      from pgfresh.claim as c
      cross join unnest(c.job_ids) as job(id)
      join pgfresh.job as j on j.id = job.id and j.request = c.request
      join pgfresh.data_type_registry as r on r.type_id = j.type_id
      where c.claimed_at < v_now - v_shortest and j.state = 'x' and j.progress_at < v_now - r.max_run
      order by j.id
      limit p_limit for update of j skip locked
    ) as held
    group by held.worker
  loop
    perform pgfresh.put_back_jobs(v_silent.ends, true);
    v_count := v_count + jsonb_array_length(v_silent.ends);
  end loop;
  return v_count;
end
$$;
comment on function pgfresh.recover_silent_jobs(int) is
  'Takes back running jobs without progress for their type''s max_run, at most p_limit. A part of recovery.';

/*
  One at a time, and it waits for nobody. After a pause of the database every lease has run out although every worker
  lives; a gap since the last run, or a server that has just started, tells that, and then leases are not believed for
  one more lease.
*/
create or replace function pgfresh.recover_stuck_jobs(
  p_expected_gap interval default '90 seconds', p_limit int default 500)
returns jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := pgfresh.clock();
  v_recovery pgfresh.recovery;
  v_worker record;
  v_retired bigint[];
  v_id bigint;
  v_lost int := 0;
  v_workers int := 0;
  v_silent int;
  v_strays boolean;
begin
  perform pgfresh.require_range('p_limit', p_limit, 1, 10000);
  perform pgfresh.require_range('p_expected_gap in seconds', extract(epoch from p_expected_gap), 1, 86400);
  select * into v_recovery from pgfresh.recovery for update skip locked;
  if not found then
    return jsonb_build_object('skipped', true, 'reason', 'locked');
  end if;
  if (v_recovery.ran_at > '-infinity' and v_recovery.ran_at < v_now - p_expected_gap)
      or v_now - pg_postmaster_start_time() between interval '0' and interval '15 seconds' then
    v_recovery.trust_leases_from := v_now + interval '15 seconds';
  end if;
  v_strays := v_recovery.strays_at <= v_now - interval '1 minute' or v_recovery.strays_at > v_now;
  update pgfresh.recovery
  set ran_at = v_now, trust_leases_from = v_recovery.trust_leases_from,
    strays_at = case when v_strays then v_now else strays_at end;
  -- One that has retired while a claim of it was on its way has no row any more.
  v_retired := array(
    select distinct c.worker
    from pgfresh.claim as c
    where c.worker is not null and not exists (select from pgfresh.worker as w where w.id = c.worker)
  );
  if v_now >= v_recovery.trust_leases_from
      and (v_retired <> '{}' or exists (select from pgfresh.worker where lease_until <= v_now)) then
    -- Each worker is settled by itself, so the ledgers of all sources are taken before, in their order:
    -- ends take them so too.
    perform from pgfresh.source_state order by source_id for update;
    for v_worker in
      select id, name from pgfresh.worker where lease_until <= v_now order by id limit 100 for update skip locked
    loop
      v_lost := v_lost + pgfresh.take_back(v_worker.id, true, format('worker %s is gone', v_worker.name));
      update pgfresh.worker_name set last_seen_at = v_now where id = v_worker.id;
      delete from pgfresh.worker
      where id = v_worker.id and not exists (select from pgfresh.claim where worker = v_worker.id);
      v_workers := v_workers + 1;
    end loop;
    foreach v_id in array v_retired loop
      v_lost := v_lost + pgfresh.take_back(v_id, true, format('worker %s has retired', pgfresh.worker_called(v_id)));
    end loop;
  end if;
  v_silent := pgfresh.recover_silent_jobs(p_limit);
  if v_strays or exists (select from pgfresh.registry_change) then
    perform pgfresh.follow_changes(v_now, v_strays);
  end if;
  -- Claims of SQL clients have no worker whose heartbeat would tidy them up.
  delete from pgfresh.claim as c
  where c.worker is null and c.claimed_at < v_now - interval '1 minute'
    and not exists (
      select from unnest(c.job_ids) as job(id)
      join pgfresh.job as j on j.id = job.id and j.request = c.request
    );
  return jsonb_build_object(
    'skipped', false, 'dead_workers', v_workers, 'lost', v_lost, 'silent', v_silent,
    'leases_trusted', v_now >= v_recovery.trust_leases_from);
end
$$;
comment on function pgfresh.recover_stuck_jobs(interval, int) is
  'Takes back the jobs of workers whose lease has ended and jobs without progress, '
  'and brings changes of the registry to jobs that were locked then. '
  'Run it every few seconds, or every minute from cron; '
  'p_expected_gap is how long the pause between two runs may be before it is taken for a pause of the database.';
