/*
  What monitors read, with the rights of the schemas' owner: no one needs any on the tables of the engine. The functions
  in them still run with the rights of the reader.
*/
create or replace view pgfresh.api_call_queue as
select id, key, data_type, status, priority, estimated_data_size_bytes, created_at, processed_at, completed_at,
  retry_count, attempts, error_message, metadata, locked_by, locked_at, heartbeat_at, next_retry_at,
  source, outcome, data_size_bytes
from pgfresh_engine.open_jobs
union all
select h.id, h.key, r.data_type, h.status, h.priority, h.bytes, h.created_at, h.claimed_at, h.ended_at,
  h.retries, h.attempt, h.error, h.metadata, coalesce(n.name, 'worker ' || h.worker), h.claimed_at, null, null,
  s.name, h.outcome, h.bytes
from (
  select id, key, type_id, source_id, status, priority, bytes, created_at, claimed_at, ended_at,
    retries, attempt, error, metadata, worker, outcome
  from pgfresh_engine.history_succeeded
  union all
  select id, key, type_id, source_id, status, priority, bytes, created_at, claimed_at, ended_at,
    retries, attempt, error, metadata, worker, outcome
  from pgfresh_engine.history_other
) as h
join pgfresh.data_type_registry as r on r.type_id = h.type_id
join pgfresh.sources as s on s.id = h.source_id
left join pgfresh_engine.worker_name as n on n.id = h.worker;
comment on view pgfresh.api_call_queue is
  'Every job, open or ended, one row per job. locked_by is the name of the worker or SQL client that has it, or had '
  'it last.';
grant select on pgfresh.api_call_queue to pgfresh_monitor, pgfresh_operator;

create or replace view pgfresh.job_attempts as
select h.id, h.attempt as attempts, h.key, r.data_type, s.name as source, h.status, h.outcome, h.error as error_message,
  h.calls, h.bytes as data_size_bytes, h.claimed_at as processed_at, h.ended_at as completed_at,
  h.fetch_ms, h.validate_ms, h.commit_ms, h.retries as retry_count, h.lost, h.metadata
from (
  select id, attempt, key, type_id, source_id, status, outcome, error, calls, bytes, claimed_at, ended_at,
    fetch_ms, validate_ms, commit_ms, retries, lost, metadata
  from pgfresh_engine.history_succeeded
  union all
  select id, attempt, key, type_id, source_id, status, outcome, error, calls, bytes, claimed_at, ended_at,
    fetch_ms, validate_ms, commit_ms, retries, lost, metadata
  from pgfresh_engine.history_other
  union all
  select id, attempt, key, type_id, source_id, status, outcome, error, calls, bytes, claimed_at, ended_at,
    fetch_ms, validate_ms, commit_ms, retries, lost, metadata
  from pgfresh_engine.history_attempt
) as h
join pgfresh.data_type_registry as r on r.type_id = h.type_id
join pgfresh.sources as s on s.id = h.source_id;
comment on view pgfresh.job_attempts is
  'Every ended attempt with its outcome, calls and bytes; status is what became of its job. A job that was tried '
  'three times has three rows.';
grant select on pgfresh.job_attempts to pgfresh_monitor, pgfresh_operator;

create or replace view pgfresh.failed_jobs as
select h.id, h.key, r.data_type, s.name as source, h.outcome, h.error as error_message,
  h.attempt as attempts, h.retries as retry_count, h.lost, h.priority, h.metadata,
  h.created_at, h.ended_at, h.redriven_at
from pgfresh_engine.history_other as h
join pgfresh.data_type_registry as r on r.type_id = h.type_id
join pgfresh.sources as s on s.id = h.source_id
where h.status = 'failed';
comment on view pgfresh.failed_jobs is
  'Dead letters: jobs that failed for good, and whether retry_failed_jobs enqueued them again.';
grant select on pgfresh.failed_jobs to pgfresh_monitor, pgfresh_operator;

create or replace view pgfresh.stuck_jobs as
select q.*,
  -- Of a worker that lives and a job that does not get on, the job's own.
  c.now - case when w.lease_until > c.now then j.progress_at else q.heartbeat_at end as time_since_heartbeat
from pgfresh_engine.open_jobs as q
join pgfresh_engine.job as j on j.id = q.id
left join pgfresh_engine.process as w on w.id = j.worker
cross join (select pgfresh.clock() as now) as c
where j.state = 'x' and (q.lease_until < c.now or w.lease_until <= c.now);
comment on view pgfresh.stuck_jobs is
  'Running jobs that recovery would take back: without progress for their maximum, or held by a worker whose lease '
  'has ended. time_since_heartbeat is how long the sign of life that counts has been missing.';
grant select on pgfresh.stuck_jobs to pgfresh_monitor, pgfresh_operator;

create or replace view pgfresh.api_data_usage as
select s.name as source, u.hour, sum(u.bytes)::bigint as data_size_bytes, sum(u.calls)::bigint as calls
from pgfresh_engine.usage as u
join pgfresh.sources as s on s.id = u.source_id
group by s.name, u.hour;
comment on view pgfresh.api_data_usage is 'The ledger: bytes and calls by source and hour, corrections included.';
grant select on pgfresh.api_data_usage to pgfresh_monitor, pgfresh_operator;

create or replace view pgfresh.source_health as
select s.name as source,
  case
    when exists (select from pgfresh.spending_stop) then 'stopped'
    when not s.enabled then 'off'
    when s.paused_until > c.now then
      case s.paused_by when 'breaker' then 'breaker' when 'provider' then 'held' else 'paused' end
    when s.breaker_opened_at is not null then 'probing'
    when quota.until is not null then 'quota'
    when s.rate_limit_per_minute is not null and calls.viewed = 0 then 'rate'
    else 'ok'
  end as state,
  s.enabled, s.failure_streak, s.last_success_at, s.last_failure_at,
  -- A pause that has ended is none.
  case when s.paused_until > c.now then s.paused_until end as paused_until,
  case when s.paused_until > c.now then s.paused_by end as paused_by,
  case when s.paused_until > c.now then s.pause_reason end as pause_reason,
  -- A source all of whose API keys are refused is tried as with a breaker, but has not failed.
  case when cardinality(s.denied_keys) < s.api_keys then s.breaker_opened_at end as breaker_opened_at,
  s.rate_limit_per_minute, s.api_keys, calls.viewed as calls_free, calls.next_at as next_call_at,
  s.max_concurrency, s.one_key_at_a_time,
  b.cap as quota_cap, b.used as quota_used, b.reserved as quota_reserved, b.free as quota_free,
  quota.until as quota_until,
  s.denied_keys,
  (
    select coalesce(
      jsonb_agg(
        jsonb_build_object(
          'data_type', r.data_type, 'kind', p.kind, 'until', p.paused_until, 'reason', p.reason)
        order by r.data_type),
      '[]')
    from pgfresh_engine.breaker as p
    join pgfresh.data_type_registry as r on r.type_id = p.type_id
    where r.source_id = s.id and p.opened_at is not null
  ) as paused_types,
  s.breaker_failures, s.breaker_window, s.breaker_pause, s.managed_by, s.overrides, b.rate as quota_pace
from pgfresh.sources as s
cross join (select pgfresh.clock() as now) as c
left join lateral pgfresh_engine.calls_now(s, c.now) as calls on s.rate_limit_per_minute is not null
left join lateral pgfresh_engine.source_budget(s.id) as b on true
cross join lateral (
  select case when s.quota_bytes is not null then pgfresh_engine.quota_until(s.id, c.now) end as until
) as quota;
comment on view pgfresh.source_health is
  'The state of each source: ok, or why it is not called now (stopped, off, paused, held by the provider, breaker, '
  'probing, quota, rate), with its last success and failure, the calls and bytes free now, and its paused API keys '
  'and data types.';
grant select on pgfresh.source_health to
  pgfresh_worker, pgfresh_planner, pgfresh_gateway, pgfresh_monitor, pgfresh_operator;

create or replace view pgfresh.scheduled_job_status as
select j.id as job_id, j.name, j.description, j.kind, j.enabled, j.managed_by,
  h.state,
  case h.state
    when 'problem' then p.problem
    when 'late' then late.late
    when 'failing' then
      case c.failures_in_a_row
        when 1 then 'its last run has failed'
        else format('its last %s runs have failed', c.failures_in_a_row)
      end || coalesce(': ' || nullif(f.message, ''), '')
  end as problem,
  case h.state
    when 'problem' then p.next_step
    when 'late' then late.next_step
    when 'failing' then
      format('See what it said: pgfresh jobs history %s --state failed. With --json it has the details.', j.name)
  end collate "default" as next_step,
  -- A slot before the end of a pause is skipped, and what comes then is not known here.
  case
    when j.enabled and isfinite(c.due_at) and (not k.paused or c.slot >= j.paused_until) then c.due_at
  end as next_run_at,
  c.slot as next_slot, o.running_since, o.waiting,
  c.last_run_at, c.last_run_success, l.message as last_message, c.last_success_at, c.runs as total_runs,
  round(100.0 * c.successes / nullif(c.runs, 0), 1) as success_rate_percent,
  case when k.counted then t.success_rate_percent_7d else w.success_rate_percent_7d end as success_rate_percent_7d,
  case when k.counted then t.p50_ms else w.p50_ms end as p50_ms,
  case when k.counted then t.p95_ms else w.p95_ms end as p95_ms,
  case when k.counted then t.lateness_p95_ms else w.lateness_p95_ms end as lateness_p95_ms,
  l.lateness_ms as last_lateness_ms, c.failures_in_a_row
from pgfresh.scheduled_jobs as j
join pgfresh_engine.job_cursor as c on c.job_id = j.id
left join pgfresh_engine.job_statistics as t on t.job_id = j.id
cross join lateral (
  select coalesce(j.paused_until > (select pgfresh.clock()), false) as paused,
    c.runs = coalesce(t.runs, 0) as counted
) as k
left join lateral (
  select q.problem, q.next_step from pgfresh_engine.job_problem(j) as q
  union all
  select j.problem, 'Correct the job; "pgfresh jobs show" says more.' where j.problem is not null
  union all
  select format('no scheduler that runs has the handler %s', j.function_name),
    'Start one with a configuration that has it.'
  -- One that is disabled needs none.
  where j.kind = 'handler' and j.enabled and not exists (
    select from pgfresh_engine.scheduler_service as s
    join pgfresh_engine.process as r on r.id = s.scheduler
    where r.lease_until > (select pgfresh.clock()) and j.function_name = any (s.handlers)
  )
  limit 1
) as p on true
cross join lateral (
  select max(r.started_at) filter (where r.state = 'running') as running_since,
    count(*) filter (where r.state <> 'running') as waiting, min(r.run_at) as waiting_since
  from pgfresh.scheduled_job_runs as r
  where r.job_id = j.id and r.state in ('queued', 'waiting', 'running')
) as o
-- What is late by more than a minute. Cron has no shorter period.
cross join lateral (
  select case
      when c.due_at = '-infinity' then
        case when j.updated_at < now.now - interval '1 minute' then 'no scheduler has looked at it yet' end
      when c.due_at < now.now - interval '1 minute' then
        format('no scheduler has come to its slot, which is %s late', date_trunc('second', now.now - c.due_at))
      when o.waiting_since < now.now - interval '1 minute' then
        format('no scheduler has begun its run, which is %s late', date_trunc('second', now.now - o.waiting_since))
      when o.running_since < now.now - j.timeout - interval '1 minute' then
        format('its run has not ended for %s, and its time limit is %s',
          date_trunc('second', now.now - o.running_since), j.timeout)
    end as late,
    case
      when o.running_since < now.now - j.timeout - interval '1 minute' then
        format('Cancel it: pgfresh jobs cancel %s', j.name)
      else 'Start a scheduler: pgfresh run --roles scheduler. If one runs, give it a larger schedulerConcurrency.'
    end as next_step
  from (select pgfresh.clock() as now) as now
) as late
-- The one definition of how a job is: everything that tells it reads it here.
cross join lateral (
  select case
      when p.problem is not null then 'problem'
      when not j.enabled then 'disabled'
      when k.paused then 'paused'
      when late.late is not null then 'late'
      when c.failures_in_a_row > 0 then 'failing'
      when o.running_since is not null then 'running'
      when o.waiting > 0 then 'waiting'
      else 'ok'
    end as state
) as h
left join lateral (
  select r.message, r.lateness_ms
  from pgfresh.scheduled_job_runs as r
  where r.job_id = j.id and r.started_at is not null and r.completed_at is not null
  order by r.id desc
  limit 1
) as l on true
-- Since the last failure runs may have been cancelled.
left join lateral (
  select r.message
  from pgfresh.scheduled_job_runs as r
  where r.job_id = j.id and r.state = 'failed'
  order by r.id desc
  limit 1
) as f on c.failures_in_a_row > 0
cross join lateral (
  select round(100.0 * count(*) filter (where r.success) / nullif(count(*), 0), 1) as success_rate_percent_7d,
    percentile_cont(0.5) within group (order by r.duration_ms) as p50_ms,
    percentile_cont(0.95) within group (order by r.duration_ms) as p95_ms,
    percentile_cont(0.95) within group (order by r.lateness_ms)
      filter (where r.triggered_by = 'scheduler' and r.attempt = 1) as lateness_p95_ms
  from (select * from pgfresh.scheduled_job_runs as n where n.job_id = j.id order by n.id desc limit 1000) as r
  where not k.counted and r.started_at > (select pgfresh.clock()) - interval '7 days' and r.completed_at is not null
) as w;
comment on view pgfresh.scheduled_job_status is
  'Each job at a glance: its state (problem, disabled, paused, late, failing, running, waiting or ok), its next '
  'run, its last result, its success rate, and the duration and lateness of its runs in the last 7 days, of the '
  'newest 1000.';
grant select on pgfresh.scheduled_job_status to
  pgfresh_worker, pgfresh_planner, pgfresh_gateway, pgfresh_scheduler, pgfresh_monitor, pgfresh_operator;

create or replace view pgfresh.pairs as
select r.data_type, p.key,
  pgfresh_engine.state_of(p, null, null, null, coalesce(r.empty_ttl, r.ttl), r.max_source_age, c.now) as state,
  p.waits_for as reason, p.viewers, p.due_at, p.next_ask_at, p.job_id, p.outcome, p.fails, p.ok_at as last_success_at
from pgfresh_engine.pairs as p
join pgfresh.data_type_registry as r on r.type_id = p.type_id
cross join (select pgfresh.clock() as now offset 0) as c;
comment on view pgfresh.pairs is
  'Every data type and key that was ever requested: the state of its data as the planner last saw it, why it waits, '
  'its viewers, when the planner checks it next, its open job, and its last outcome and success.';
grant select on pgfresh.pairs to pgfresh_monitor, pgfresh_operator;

create or replace view pgfresh.nodes as
select p.id, p.name, p.kind, p.version, p.protocol, p.started_at, p.lease_until,
  array(
    select d.name from pgfresh_engine.duty as d where d.holder = p.holder and d.lease_until > c.now order by d.name
  ) as duties
from pgfresh_engine.process as p
cross join (select pgfresh.clock() as now) as c
union all
-- A planner has no lease but that of its duty.
select null, null, 'planner', null, null, null, d.lease_until, array[d.name]
from pgfresh_engine.duty as d
where d.name = 'planner' and d.lease_until > pgfresh.clock();
comment on view pgfresh.nodes is
  'The workers, schedulers and gateways that have registered, and the planner that is at work. '
  'A process whose lease_until has passed is gone. duties: what only one process at a time does.';
grant select on pgfresh.nodes to pgfresh_monitor, pgfresh_operator;
