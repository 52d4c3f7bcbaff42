-- What each worker can refresh, so that a job which no worker takes is seen as such.
-- Apart from the worker, whose row is written by every heartbeat.
create table pgfresh.worker_service (
  worker bigint primary key references pgfresh.worker on delete cascade,
  -- The data types that it refreshes now, by number.
  types int[] not null,
  -- The fetchers of its configuration, and the data types that it is limited to; null is no limit.
  fetchers text[] not null,
  limited_to text[]
);
comment on table pgfresh.worker_service is
  'What workers refresh, as they have said it. One without a row here may refresh anything.';
