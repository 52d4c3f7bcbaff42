-- The request by which a scheduler has taken a run. Its heartbeat lists the requests that it holds, so that a run whose
-- answer was lost on its way is found.
alter table pgfresh.scheduled_job_runs add column request uuid;
drop function if exists pgfresh.heartbeat_scheduler(bigint);
drop function if exists pgfresh.settle_slots(bigint, jsonb, int);
drop function if exists pgfresh.take_waiting_runs(bigint, text[], int);
drop function if exists pgfresh.due_slots(text[], int);
drop function if exists pgfresh.schedule_pause(text[]);

-- A run that has to wait for the end of another one is queued. It is let go only when nothing of its job runs.
alter table pgfresh.scheduled_job_runs drop constraint scheduled_job_runs_state_check;
update pgfresh.scheduled_job_runs set state = 'queued', run_at = null where state = 'waiting' and run_at = 'infinity';
alter table pgfresh.scheduled_job_runs add constraint scheduled_job_runs_state_check
  check (state in ('queued', 'waiting', 'running', 'succeeded', 'failed', 'cancelled', 'skipped'));
drop index pgfresh.scheduled_job_runs_job_id_idx;
create index scheduled_job_runs_open on pgfresh.scheduled_job_runs (job_id)
  where state in ('queued', 'waiting', 'running');
-- Attempts at the slot that were made before someone asked for it again: they are no failures of this request.
alter table pgfresh.scheduled_job_runs add column earlier int not null default 0;
-- The last slot of which runs were forgotten: whether it succeeded is not known any more.
alter table pgfresh.job_cursor add column forgotten_until timestamptz;
-- Slots in time zones are left to those of the living schedulers whose time zone data is the newest.
alter table pgfresh.scheduler add column zone_data text not null default '';
