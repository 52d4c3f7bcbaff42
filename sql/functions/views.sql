create or replace view pgfresh.open_jobs with (security_invoker = true) as
select j.id, j.key, r.data_type, s.name as source,
  case j.state
    when 'x' then 'running'
    when 'r' then 'pending'
    else case when j.retries > 0 then 'retryable' else 'pending' end
  end as status,
  j.priority, j.est_bytes as estimated_data_size_bytes,
  j.created_at, j.claimed_at as processed_at, null::timestamptz as completed_at,
  j.retries as retry_count, j.attempt as attempts, j.lost, j.error as error_message, j.metadata,
  n.name as locked_by, j.claimed_at as locked_at, greatest(j.progress_at, w.renewed_at) as heartbeat_at,
  case when j.state = 'w' then j.run_at end as next_retry_at,
  null::text as outcome, null::bigint as data_size_bytes,
  -- A worker that has no row any more has ended.
  least(case when n.has_lease then coalesce(w.lease_until, n.last_seen_at) end, j.progress_at + r.max_run)
    as lease_until
from pgfresh.job as j
join pgfresh.data_type_registry as r on r.type_id = j.type_id
join pgfresh.sources as s on s.id = j.source_id
left join pgfresh.worker_name as n on n.id = j.worker
left join pgfresh.worker as w on w.id = j.worker;
comment on view pgfresh.open_jobs is
  'Jobs that wait or run. heartbeat_at is the last sign of life: of the worker''s lease, or of the job itself. '
  'At lease_until the job is taken back if nothing more is heard: when the worker''s lease ends, '
  'or when the job has made no progress for the max_run of its data type, whichever comes first.';

create or replace view pgfresh.api_call_queue with (security_invoker = true) as
select id, key, data_type, status, priority, estimated_data_size_bytes, created_at, processed_at, completed_at,
  retry_count, attempts, error_message, metadata, locked_by, locked_at, heartbeat_at, next_retry_at,
  source, outcome, data_size_bytes
from pgfresh.open_jobs
union all
select h.id, h.key, r.data_type, h.status, h.priority, h.bytes, h.created_at, h.claimed_at, h.ended_at,
  h.retries, h.attempt, h.error, h.metadata, coalesce(n.name, 'worker ' || h.worker), h.claimed_at, null, null,
  s.name, h.outcome, h.bytes
from (
  select id, key, type_id, source_id, status, priority, bytes, created_at, claimed_at, ended_at,
    retries, attempt, error, metadata, worker, outcome
  from pgfresh.history_succeeded
  union all
  select id, key, type_id, source_id, status, priority, bytes, created_at, claimed_at, ended_at,
    retries, attempt, error, metadata, worker, outcome
  from pgfresh.history_other
) as h
join pgfresh.data_type_registry as r on r.type_id = h.type_id
join pgfresh.sources as s on s.id = h.source_id
left join pgfresh.worker_name as n on n.id = h.worker;
comment on view pgfresh.api_call_queue is
  'Every job, open or ended, as the one table that it looks like from outside. '
  'locked_by is the name of the worker or SQL client that has it, or that had it last.';

create or replace view pgfresh.job_attempts with (security_invoker = true) as
select h.id, h.attempt as attempts, h.key, r.data_type, s.name as source, h.status, h.outcome, h.error as error_message,
  h.calls, h.bytes as data_size_bytes, h.claimed_at as processed_at, h.ended_at as completed_at,
  h.fetch_ms, h.validate_ms, h.commit_ms, h.retries as retry_count, h.lost, h.metadata
from (
  select id, attempt, key, type_id, source_id, status, outcome, error, calls, bytes, claimed_at, ended_at,
    fetch_ms, validate_ms, commit_ms, retries, lost, metadata
  from pgfresh.history_succeeded
  union all
  select id, attempt, key, type_id, source_id, status, outcome, error, calls, bytes, claimed_at, ended_at,
    fetch_ms, validate_ms, commit_ms, retries, lost, metadata
  from pgfresh.history_other
  union all
  select id, attempt, key, type_id, source_id, status, outcome, error, calls, bytes, claimed_at, ended_at,
    fetch_ms, validate_ms, commit_ms, retries, lost, metadata
  from pgfresh.history_attempt
) as h
join pgfresh.data_type_registry as r on r.type_id = h.type_id
join pgfresh.sources as s on s.id = h.source_id;
comment on view pgfresh.job_attempts is
  'Every attempt that has ended, with its outcome, calls and bytes; status is what became of its job by it. '
  'A job that was tried three times has three rows.';

create or replace view pgfresh.failed_jobs with (security_invoker = true) as
select h.id, h.key, r.data_type, s.name as source, h.outcome, h.error as error_message,
  h.attempt as attempts, h.retries as retry_count, h.lost, h.priority, h.metadata,
  h.created_at, h.ended_at, h.redriven_at
from pgfresh.history_other as h
join pgfresh.data_type_registry as r on r.type_id = h.type_id
join pgfresh.sources as s on s.id = h.source_id
where h.status = 'failed';
comment on view pgfresh.failed_jobs is
  'The dead letters: what failed for good, and whether it was enqueued again by retry_failed_jobs.';

create or replace view pgfresh.stuck_jobs with (security_invoker = true) as
select q.*,
  -- Of a worker that lives and a job that does not get on, the job's own.
  c.now - case when w.lease_until > c.now then j.progress_at else q.heartbeat_at end as time_since_heartbeat
from pgfresh.open_jobs as q
join pgfresh.job as j on j.id = q.id
left join pgfresh.worker as w on w.id = j.worker
cross join (select pgfresh.clock() as now) as c
where j.state = 'x' and (q.lease_until < c.now or w.lease_until <= c.now);
comment on view pgfresh.stuck_jobs is
  'Running jobs that recovery would take back: silent for their maximum, or held by a worker whose lease has ended. '
  'time_since_heartbeat is how long the sign of life that counts has been missing.';

create or replace view pgfresh.job_status with (security_invoker = true) as
select data_type, source, status, count(*) as jobs, min(created_at) as oldest, max(priority) as highest_priority
from pgfresh.open_jobs
group by data_type, source, status;
comment on view pgfresh.job_status is 'How many jobs wait and run, by data type and state.';

create or replace view pgfresh.api_data_usage with (security_invoker = true) as
select s.name as source, u.hour, sum(u.bytes)::bigint as data_size_bytes, sum(u.calls)::bigint as calls
from pgfresh.usage as u
join pgfresh.sources as s on s.id = u.source_id
group by s.name, u.hour;
comment on view pgfresh.api_data_usage is 'The ledger: bytes and calls by source and hour, corrections included.';

create or replace view pgfresh.source_health with (security_invoker = true) as
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
    from pgfresh.breaker as p
    join pgfresh.data_type_registry as r on r.type_id = p.type_id
    where r.source_id = s.id and p.opened_at is not null
  ) as paused_types,
  s.breaker_failures, s.breaker_window, s.breaker_pause, s.managed_by, s.overrides, b.rate as quota_pace
from pgfresh.sources as s
cross join (select pgfresh.clock() as now) as c
left join lateral pgfresh.calls_now(s, c.now) as calls on s.rate_limit_per_minute is not null
left join lateral pgfresh.source_budget(s.id) as b on true
cross join lateral (
  select case when s.quota_bytes is not null then pgfresh.quota_until(s.id, c.now) end as until
) as quota;
comment on view pgfresh.source_health is
  'How each source is: ok, or why it is not called now (stopped, off, paused, held by the provider, '
  'breaker, probing, quota, rate), with its last success and failure, the calls and bytes that are free now, '
  'and what of it is left alone: API keys, data types.';
