/*
  Processes as the database sees them: an id, a lease that heartbeats renew, and what the process holds. When the
  lease ends, recover_stuck_jobs, recover_scheduled_runs and expire_nodes hand that to others.
*/
create or replace function pgfresh_engine.caller() returns name
language sql stable
set search_path = pg_catalog, pg_temp
-- Definer functions cannot see their caller, but they see the role that was set and the login.
as $$ select case current_setting('role') when 'none' then session_user else current_setting('role')::name end $$;
comment on function pgfresh_engine.caller() is 'The role that has called a function with the rights of its owner.';

create or replace function pgfresh_engine.require_process_right(p_kind text) returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_needed text := case p_kind
    when 'worker' then 'pgfresh_worker'
    when 'scheduler' then 'pgfresh_planner'
    when 'gateway' then 'pgfresh_gateway'
  end;
  v_caller name := pgfresh_engine.caller();
begin
  if v_needed is null then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      format('p_kind must be worker, scheduler or gateway, got %s', coalesce(left(quote_literal(p_kind), 40), 'null')),
      'Pass one of these.');
  end if;
  if not pg_has_role(v_caller, v_needed, 'member') and not pg_has_role(v_caller, current_user, 'member') then
    raise insufficient_privilege using
      message = format('permission denied for a %s: %s is not a member of %s', p_kind, v_caller, v_needed),
      hint = format('As an administrator: grant %I to %I;', v_needed, v_caller);
  end if;
end
$$;
comment on function pgfresh_engine.require_process_right(text) is
  'Refuses a login that may not speak for this kind of process. A part of the processes.';

create or replace function pgfresh_engine.least_protocol() returns int
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select case when drain_until > pgfresh.clock() then protocol + 1 else min_protocol end
  from pgfresh_engine.installation
  order by id desc
  limit 1
$$;
comment on function pgfresh_engine.least_protocol() is
  'The oldest protocol whose processes may go on. While an upgrade waits for processes to stop, none of those that '
  'are installed now may.';
grant execute on function pgfresh_engine.least_protocol() to
  pgfresh_worker, pgfresh_planner, pgfresh_gateway, pgfresh_operator;

create or replace function pgfresh_engine.register_process(
  p_kind text, p_name text, p_version text default null, p_protocol int default 1, p_holder uuid default null)
returns bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := pgfresh.clock();
  -- A gateway with many viewers may be late, and no work waits for a dead gateway's lease to end.
  v_lease interval := case p_kind when 'gateway' then '30 seconds' else '12 seconds' end;
  v_least int := pgfresh_engine.least_protocol();
  v_id bigint;
begin
  perform pgfresh_engine.require_primary();
  perform pgfresh_engine.require_process_right(p_kind);
  perform pgfresh_engine.require_worker_name('p_name', p_name);
  if p_version is not null then
    perform pgfresh_engine.require_worker_name('p_version', p_version);
  end if;
  perform pgfresh_engine.require_range('p_protocol', p_protocol, 1, 1000000);
  if p_protocol < v_least then
    perform pgfresh_engine.refuse('PGF_PROCESS_OUTDATED',
      format('the process uses protocol %s, and the database requires protocol %s or later', p_protocol, v_least),
      'Start a newer version of pgfresh. If an upgrade is under way, wait until it has ended.');
  end if;
  perform pgfresh_engine.follow_restore();
  insert into pgfresh_engine.process
    (kind, name, version, protocol, holder, started_at, steady_since, renewed_at, lease, lease_until)
  values (p_kind, p_name, p_version, p_protocol, p_holder, v_now, v_now, v_now, v_lease, v_now + v_lease)
  returning id into v_id;
  if p_kind = 'worker' then
    insert into pgfresh_engine.worker_name (id, name, has_lease, last_seen_at) values (v_id, p_name, true, v_now);
  end if;
  return v_id;
end
$$;
comment on function pgfresh_engine.register_process(text, text, text, int, uuid) is
  'Begins an incarnation of a worker, scheduler or gateway: its number, with a lease that heartbeat_process renews, '
  'of 12 s, or of 30 s for a gateway. The name of a worker is kept as long as the history of its jobs. '
  'p_holder is the uuid by which it holds duties. Refuses a protocol below the minimum.';
grant execute on function pgfresh_engine.register_process(text, text, text, int, uuid) to
  pgfresh_worker, pgfresh_planner, pgfresh_gateway;

/*
  If the answer to a request for work is lost, the database knows of the work and the process does not. So a process
  lists the requests that it holds, and is told of any others. It gives those back itself: the list that
  it sent may be older than what it holds now.

  A scheduler's late heartbeat counts while no other has taken over: its runs are fenced by
  themselves. After a pause of the database all are late, and each has a whole lease to renew before it is declared
  dead.
*/
create or replace function pgfresh_engine.heartbeat_process(p_process bigint, p_held uuid[] default '{}') returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := pgfresh.clock();
  v_process pgfresh_engine.process;
  v_answer jsonb := '{"alive": true}';
begin
  -- Null would mean "holds nothing", and the process's work would be given to others.
  if p_held is null or array_position(p_held, null) is not null then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      'p_held must not be null, and no request in it',
      'Pass every request with work that has not ended, or an empty array.');
  end if;
  update pgfresh_engine.process
  -- The clock may have been set back. 2.5 leases are less than the minute after which others are declared dead, so the
  -- process that judges them notices first.
  set steady_since = case
      when lease_until < v_now or lease_until > v_now + 2.5 * lease then v_now
      else steady_since
    end,
    renewed_at = v_now, lease_until = v_now + lease
  where id = p_process and lease_until > case kind when 'scheduler' then '-infinity' else v_now end
  returning * into v_process;
  if not found then
    return jsonb_build_object('alive', false);
  end if;
  perform pgfresh_engine.require_process_right(v_process.kind);
  if v_process.protocol < pgfresh_engine.least_protocol() then
    v_answer := v_answer || '{"stop": true}';
  end if;
  if v_process.kind = 'worker' then
    delete from pgfresh_engine.claim as c
    where c.worker = p_process and not c.request = any (p_held) and c.claimed_at < v_now - interval '5 seconds'
      and not exists (
        select from unnest(c.job_ids) as job(id)
        join pgfresh_engine.job as j on j.id = job.id and j.request = c.request
      );
    return v_answer || jsonb_build_object('stranded', (
      select coalesce(jsonb_agg(c.request), '[]')
      from pgfresh_engine.claim as c
      where c.worker = p_process and not c.request = any (p_held) and c.claimed_at < v_now - interval '5 seconds'
    ));
  elsif v_process.kind = 'scheduler' then
    return v_answer || jsonb_build_object(
      'dead', case
        when v_process.steady_since <= v_now - v_process.lease then (
          select count(*)
          from pgfresh_engine.process
          where kind = 'scheduler' and (lease_until <= v_now or lease_until > v_now + interval '1 minute')
        )
        else 0
      end,
      'cancel', (
        select coalesce(jsonb_agg(r.id), '[]')
        from pgfresh.scheduled_job_runs as r
        where r.scheduler = p_process and r.state = 'running'
          and (r.cancel_asked or not exists (select from pgfresh.scheduled_jobs as j where j.id = r.job_id))
      ),
      -- The scheduler ends them: that may wait for a writer of the job, and a heartbeat must not.
      'stranded', (
        select coalesce(jsonb_agg(jsonb_build_object('run', r.id, 'job', r.job_id, 'request', r.request)), '[]')
        from pgfresh.scheduled_job_runs as r
        where r.scheduler = p_process and r.state = 'running' and not coalesce(r.request = any (p_held), false)
          and r.started_at < v_now - interval '5 seconds'
      ));
  end if;
  return v_answer;
end
$$;
comment on function pgfresh_engine.heartbeat_process(bigint, uuid[]) is
  'Renews the lease of a process that holds these requests for work. '
  'Answers {"alive"}: whether it still has the lease, without which nothing that it holds is its own any more, '
  'and {"stop": true} if its protocol is below the minimum: then it must end what it holds and stop. '
  'Workers and schedulers are told more: '
  '"stranded", what they were given five seconds ago or more and have not named: of a worker, requests that '
  'release_claim puts back; of a scheduler, runs. "cancel": runs that a scheduler has to cancel. '
  '"dead": how many other schedulers have lost their lease.';
grant execute on function pgfresh_engine.heartbeat_process(bigint, uuid[]) to
  pgfresh_worker, pgfresh_planner, pgfresh_gateway;

create or replace function pgfresh_engine.retire_process(p_process bigint) returns int
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_kind text := (select kind from pgfresh_engine.process where id = p_process);
  v_count int;
begin
  if v_kind is null then
    return 0;
  end if;
  perform pgfresh_engine.require_process_right(v_kind);
  if v_kind = 'worker' then
    v_count := pgfresh_engine.take_back(p_process, false, null);
    update pgfresh_engine.worker_name set last_seen_at = pgfresh.clock() where id = p_process;
  elsif v_kind = 'scheduler' then
    v_count := pgfresh_engine.close_runs_of(p_process, 'its scheduler has stopped');
    if v_count > 0 then
      perform pg_notify('pgfresh_schedule', '');
    end if;
  else
    -- Before its counts, so that what it still writes is removed too.
    perform from pgfresh_engine.process where id = p_process for update;
    -- Separate from the process, so that the trigger sees them.
    delete from pgfresh_engine.node_demand where node_id = p_process;
    get diagnostics v_count = row_count;
  end if;
  perform pgfresh_engine.forget_process(p_process);
  return v_count;
end
$$;
comment on function pgfresh_engine.retire_process(bigint) is
  'Ends an incarnation, and returns how much it still held: the jobs of a worker are ready again at once, the next '
  'attempts of a scheduler''s runs start elsewhere, and the viewers of a gateway have left. '
  'What is locked this moment is taken over when the lease would have run out.';
grant execute on function pgfresh_engine.retire_process(bigint) to pgfresh_worker, pgfresh_planner, pgfresh_gateway;

create or replace function pgfresh_engine.forget_process(p_process bigint) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  delete from pgfresh_engine.process as p
  where p.id = p_process
    and not exists (select from pgfresh_engine.claim as c where c.worker = p.id)
    and not exists (select from pgfresh.scheduled_job_runs as r where r.scheduler = p.id and r.state = 'running');
  -- Something it holds is locked just now. Its lease is over, and recovery takes the rest.
  update pgfresh_engine.process
  set lease_until = least(lease_until, case kind when 'scheduler' then '-infinity' else pgfresh.clock() end),
    idle = false
  where id = p_process;
end
$$;
comment on function pgfresh_engine.forget_process(bigint) is
  'Removes a process that holds nothing any more, and ends the lease of one that does. A part of the processes.';

create or replace function pgfresh_engine.hold_duty(p_name text, p_holder uuid, p_lease interval) returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_needed text := case p_name when 'planner' then 'pgfresh_planner' when 'pump' then 'pgfresh_gateway' end;
  v_caller name := pgfresh_engine.caller();
begin
  if v_needed is null or p_holder is null then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      'p_name must be planner or pump, and p_holder must not be null',
      'Pass a uuid of your own making, the same for each renewal.');
  end if;
  perform pgfresh_engine.require_range('p_lease in seconds', extract(epoch from p_lease), 1, 3600);
  if not pg_has_role(v_caller, v_needed, 'member') and not pg_has_role(v_caller, current_user, 'member') then
    perform pgfresh_engine.refuse('PGF_DUTY_RIGHT',
      format('the duty %s is for members of %s, and %s is not one', p_name, v_needed, v_caller),
      format('As an administrator: grant %I to %I;', v_needed, v_caller));
  end if;
  insert into pgfresh_engine.duty as d (name, holder, lease_until)
  values (p_name, p_holder, pgfresh.clock() + p_lease)
  on conflict (name) do update set holder = excluded.holder, lease_until = excluded.lease_until
    where d.holder = excluded.holder or d.lease_until <= pgfresh.clock();
  return found;
end
$$;
comment on function pgfresh_engine.hold_duty(text, uuid, interval) is
  'Takes or renews a duty that only one process at a time may do, and only one with the role that it needs. '
  'False while another one has it.';
grant execute on function pgfresh_engine.hold_duty(text, uuid, interval) to pgfresh_gateway, pgfresh_planner;

create or replace function pgfresh_engine.release_duty(p_name text, p_holder uuid) returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  delete from pgfresh_engine.duty where name = p_name and holder = p_holder;
  return found;
end
$$;
comment on function pgfresh_engine.release_duty(text, uuid) is 'Gives a duty back. Returns whether it was held.';
grant execute on function pgfresh_engine.release_duty(text, uuid) to pgfresh_gateway, pgfresh_planner;
