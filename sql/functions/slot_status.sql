create or replace view pgfresh.scheduled_job_status with (security_invoker = true) as
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
join pgfresh.job_cursor as c on c.job_id = j.id
left join pgfresh.job_statistics as t on t.job_id = j.id
cross join lateral (
  select j.paused_at is not null and coalesce(j.paused_until > (select pgfresh.clock()), true) as paused,
    c.runs = coalesce(t.runs, 0) as counted
) as k
left join lateral (
  select q.problem, q.next_step from pgfresh.job_problem(j) as q
  union all
  select j.problem, 'Correct the job; "pgfresh jobs show" says more.' where j.problem is not null
  union all
  select format('no scheduler that runs has the handler %s', j.function_name),
    'Start one with a configuration that has it.'
  -- One that is disabled needs none.
  where j.kind = 'handler' and j.enabled and not exists (
    select from pgfresh.scheduler as s
    where s.lease_until > (select pgfresh.clock()) and j.function_name = any (s.handlers)
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
  'Each job at a glance: its state (problem, disabled, paused, late, failing, running, waiting or ok), '
  'when it runs next, what came of it last and ever, '
  'and how long and how late its runs of the last 7 days were, of the newest 1000.';

create or replace function pgfresh.count_job_statistics(p_jobs int default 2000) returns int
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := pgfresh.clock();
  v_count int;
begin
  perform pgfresh.require_range('p_jobs', p_jobs, 1, 10000);
  -- Of a job that has not run since, runs have left the seven days.
  delete from pgfresh.job_statistics
  where job_id in (
    select t.job_id
    from pgfresh.job_statistics as t
    where t.counted_at < v_now - interval '1 day' and t.p50_ms is not null
    limit p_jobs
  );
  insert into pgfresh.job_statistics as t
    (job_id, runs, counted_at, success_rate_percent_7d, p50_ms, p95_ms, lateness_p95_ms)
  select s.job_id, s.total_runs, v_now, s.success_rate_percent_7d, s.p50_ms, s.p95_ms, s.lateness_p95_ms
  from pgfresh.scheduled_job_status as s
  where s.job_id = any (array(
    select c.job_id
    from pgfresh.job_cursor as c
    left join pgfresh.job_statistics as t on t.job_id = c.job_id
    where c.runs <> coalesce(t.runs, 0)
    limit p_jobs
  ))
  on conflict (job_id) do update
  set runs = excluded.runs, counted_at = excluded.counted_at,
    success_rate_percent_7d = excluded.success_rate_percent_7d,
    p50_ms = excluded.p50_ms, p95_ms = excluded.p95_ms, lateness_p95_ms = excluded.lateness_p95_ms;
  get diagnostics v_count = row_count;
  return v_count;
-- A job that was removed this moment: the others have their turn the next time.
exception when foreign_key_violation then
  return 0;
end
$$;
comment on function pgfresh.count_job_statistics(int) is
  'Counts how the newest runs of jobs went that have run since they were last counted, of at most p_jobs. '
  'Returns of how many. A part of pgfresh.tidy.';

create or replace function pgfresh.check_cron_job_health(p_critical_jobs text[] default null)
returns table (jobname text, last_run timestamptz, last_success timestamptz, healthy boolean, problem text)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select named.name, s.last_run_at, s.last_success_at, v.problem is null, v.problem
  from (
    select j.name::text as name from pgfresh.scheduled_jobs as j where p_critical_jobs is null and j.enabled
    union select n from unnest(p_critical_jobs) as n
  ) as named
  left join pgfresh.scheduled_job_status as s on s.name = named.name collate "C"
  cross join lateral (
    select case
      when s.name is null then 'there is no such job'
      when s.state = 'disabled' then 'it is disabled'
      when s.state = 'paused' then 'it is paused'
      else s.problem
    end as problem
  ) as v
  order by named.name
$$;
comment on function pgfresh.check_cron_job_health(text[]) is
  'Whether these jobs, or all that are enabled, are well: when each last ran and succeeded, and what is wrong. '
  'For a monitor that asks from outside, because nothing inside notices that nothing runs.';
