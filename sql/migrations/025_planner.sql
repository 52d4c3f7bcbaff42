/*
  Data types whose code or tables have kept the planner, a gateway or a worker waiting. Two timeouts within a minute put
  a type into quarantine, which lasts as long as a probe finds it still hanging.
*/
create table pgfresh.type_timeout (
  type_id int primary key references pgfresh.data_type_registry (type_id) on delete cascade,
  since timestamptz not null,
  last_at timestamptz not null,
  timeouts int not null check (timeouts > 0),
  -- What was asked the last time, and what PostgreSQL said.
  last_where text not null,
  last_message text not null
) with (fillfactor = 50);
comment on table pgfresh.type_timeout is
  'Data types that have timed out lately. From two timeouts within a minute on a type is in quarantine.';

-- Functions with other arguments now; the files of functions make them anew.
drop function if exists pgfresh.plan_due_pairs(int);
drop function if exists pgfresh.check_and_queue_stale_data(int);
drop function if exists pgfresh.queue_scheduled_refreshes(int);
drop function if exists pgfresh.take_due(timestamptz, int);
drop function if exists pgfresh.release_held(timestamptz, int);
