create or replace view pgfresh_engine.open_jobs as
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
  -- A worker without a row has ended.
  least(case when n.has_lease then coalesce(w.lease_until, n.last_seen_at) end, j.progress_at + r.max_run)
    as lease_until
from pgfresh_engine.job as j
join pgfresh.data_type_registry as r on r.type_id = j.type_id
join pgfresh.sources as s on s.id = j.source_id
left join pgfresh_engine.worker_name as n on n.id = j.worker
left join pgfresh_engine.process as w on w.id = j.worker;
comment on view pgfresh_engine.open_jobs is
  'Jobs that wait or run. heartbeat_at is the last sign of life: of the worker''s lease, or of the job itself. '
  'At lease_until the job is taken back if nothing more is heard: when the worker''s lease ends, '
  'or when the job has made no progress for the max_run of its data type, whichever comes first.';
grant select on pgfresh_engine.open_jobs to pgfresh_monitor, pgfresh_operator;
