-- The name of a worker outlives its lease, and SQL clients, which have no lease, have a name too.
create table pgfresh.worker_name (
  id bigint generated always as identity primary key,
  name text not null,
  has_lease boolean not null,
  -- When it registered or ended; of an SQL client, some claim of the last hour that it claimed in.
  last_seen_at timestamptz not null
);
comment on table pgfresh.worker_name is
  'Names of workers and SQL clients, by the number that jobs and history have. Kept as long as the history.';
-- Not unique: two clients of one name that come at once must not wait for each other.
create index worker_name_of_clients on pgfresh.worker_name (name) where not has_lease;

alter table pgfresh.worker add column renewed_at timestamptz not null default '-infinity';
comment on column pgfresh.worker.renewed_at is 'When the worker last said that it is alive.';

insert into pgfresh.worker_name (id, name, has_lease, last_seen_at) overriding system value
select id, name, true, started_at from pgfresh.worker;
select setval(pg_get_serial_sequence('pgfresh.worker_name', 'id'),
  nextval(pg_get_serial_sequence('pgfresh.worker', 'id')), false);
alter table pgfresh.worker alter column id drop identity;

drop view if exists pgfresh.stuck_jobs;
drop function if exists pgfresh.claim_jobs(
  bigint, uuid, int, int[], int[], bigint, int[], smallint[], bigint[], boolean);
drop function if exists pgfresh.get_queue_batch(int, text[], text[], bigint);
drop function if exists pgfresh.claim_next_pending_job(text[], text[]);
