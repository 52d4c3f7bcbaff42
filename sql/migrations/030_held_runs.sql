-- The request by which a scheduler has taken a run. Its heartbeat lists the requests that it holds, so that a run whose
-- answer was lost on its way is found.
alter table pgfresh.scheduled_job_runs add column request uuid;
drop function if exists pgfresh.heartbeat_scheduler(bigint);
drop function if exists pgfresh.settle_slots(bigint, jsonb, int);
drop function if exists pgfresh.take_waiting_runs(bigint, text[], int);
drop function if exists pgfresh.due_slots(text[], int);
drop function if exists pgfresh.schedule_pause(text[]);
