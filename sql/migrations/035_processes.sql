-- drops: table scheduler, table nodes
-- One table of processes, whatever they do, instead of one for each kind. What only some kinds have is in tables of its
-- own: worker_service, scheduler_service, node_demand. Renamed and not made anew, because views hang on it.
alter table pgfresh_engine.worker rename to process;
alter table pgfresh_engine.process rename constraint worker_pkey to process_pkey;

-- Of processes and of SQL clients, which have no lease and are known by a number too.
create sequence pgfresh_engine.process_number;
-- Above all that there are, so that no number is met twice while they change.
select setval('pgfresh_engine.process_number', greatest(
  nextval(pg_get_serial_sequence('pgfresh_engine.worker_name', 'id')),
  (select max(id) + 1 from pgfresh_engine.scheduler),
  (select max(id) + 1 from pgfresh_engine.nodes)), false);
alter table pgfresh_engine.worker_name alter column id drop identity;
alter table pgfresh_engine.worker_name alter column id set default nextval('pgfresh_engine.process_number');

alter table pgfresh_engine.process
  add column kind text not null default 'worker' check (kind in ('worker', 'scheduler', 'gateway')),
  -- How long it lives after each heartbeat.
  add column lease interval not null default '12 seconds',
  -- Since when its heartbeats have come without a gap. A process that had one cannot tell which others are gone.
  add column steady_since timestamptz not null default '-infinity';
alter table pgfresh_engine.process
  alter column id set default nextval('pgfresh_engine.process_number'),
  alter column kind drop default, alter column lease drop default,
  alter column steady_since drop default, alter column renewed_at drop default;
comment on table pgfresh_engine.process is 'Incarnations of processes, each alive until its lease ends.';
comment on column pgfresh_engine.process.renewed_at is 'When the process last said that it is alive.';
comment on column pgfresh_engine.process.idle is 'Of a worker: it waits for work, and is woken when some comes.';

-- Apart from the process, whose row is written by every heartbeat.
create table pgfresh_engine.scheduler_service (
  scheduler bigint primary key references pgfresh_engine.process on delete cascade,
  -- The handlers that it can run.
  handlers text[] not null,
  -- Slots in time zones are left to those of the living schedulers whose time zone data is the newest.
  zone_data text not null
);
comment on table pgfresh_engine.scheduler_service is 'What schedulers can run, as they have said it.';

-- Its processes go on, under new numbers.
with moved as materialized (
  select s.*, nextval('pgfresh_engine.process_number') as number from pgfresh_engine.scheduler as s
), registered as (
  insert into pgfresh_engine.process (id, kind, name, started_at, steady_since, renewed_at, lease, lease_until)
  select number, 'scheduler', name, started_at, steady_since, started_at, '12 seconds', lease_until from moved
), serving as (
  insert into pgfresh_engine.scheduler_service (scheduler, handlers, zone_data)
  select number, handlers, zone_data from moved
)
update pgfresh.scheduled_job_runs as r
set scheduler = m.number
from moved as m
where r.scheduler = m.id and r.state = 'running';
-- The view reads the table. It keeps its columns until it is replaced, so that views of users over it stay.
do $$
declare
  v_columns text := (
    select string_agg(
      format('null::%s%s as %I', format_type(a.atttypid, a.atttypmod),
        case when a.attcollation <> 0 then ' collate ' || a.attcollation::regcollation end, a.attname),
      ', ' order by a.attnum)
    from pg_attribute as a
    where a.attrelid = to_regclass('pgfresh.scheduled_job_status') and a.attnum > 0 and not a.attisdropped);
begin
  if v_columns is not null then
    execute format('create or replace view pgfresh.scheduled_job_status as select %s', v_columns);
  end if;
end
$$;
drop table pgfresh_engine.scheduler;

alter table pgfresh_engine.node_demand drop constraint node_demand_node_id_fkey;
-- No count changes, and the functions of triggers are those of the version before.
alter table pgfresh_engine.node_demand disable trigger user;
with moved as materialized (
  select n.*, nextval('pgfresh_engine.process_number') as number from pgfresh_engine.nodes as n
), registered as (
  insert into pgfresh_engine.process (id, kind, name, started_at, steady_since, renewed_at, lease, lease_until)
  select number, 'gateway', name, started_at, started_at, started_at, '30 seconds', lease_until from moved
)
update pgfresh_engine.node_demand as d set node_id = m.number from moved as m where d.node_id = m.id;
alter table pgfresh_engine.node_demand enable trigger user;
alter table pgfresh_engine.node_demand add constraint node_demand_node_id_fkey
  foreign key (node_id) references pgfresh_engine.process on delete cascade;
drop table pgfresh_engine.nodes;
