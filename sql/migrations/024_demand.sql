-- By the number of a data type: one that is renamed takes its demand along, and whoever counts it can still leave.
drop function if exists pgfresh.set_node_demand(bigint, text[], text[], int[]);

alter table pgfresh.pairs
  -- When its key was last found to be none of its data type's, though there are viewers. It is not demanded until then.
  add column unlisted_at timestamptz;
create index pairs_unlisted on pgfresh.pairs (unlisted_at) where unlisted_at is not null;

-- The priority with which somebody other than viewers asked for the job: a schedule, an application, an operator.
-- Null: only viewers want it, and it goes when they do.
alter table pgfresh.job add column asked int;
update pgfresh.job set asked = priority;

-- Demand of pairs that another transaction had locked, or had added without being committed yet.
-- Apart from demand_change, so that they are not in the way of others. Only the planner writes it.
create table pgfresh.demand_waiting (
  type_id int not null,
  key text collate "C" not null,
  delta bigint not null,
  tries int not null default 1,
  next_at timestamptz not null,
  primary key (type_id, key)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
create index on pgfresh.demand_waiting (next_at);
comment on table pgfresh.demand_waiting is
  'Viewers that came and went while their pair was locked, until the planner has added them to it.';

-- Names that data types had before, so that a viewer who knows only the old one can leave.
create table pgfresh.former_type_name (
  data_type text primary key,
  type_id int not null references pgfresh.data_type_registry (type_id) on delete cascade
);
create index on pgfresh.former_type_name (type_id);
comment on table pgfresh.former_type_name is 'Former names of data types.';

alter table pgfresh.planner_state
  -- The open job after which the review of open jobs goes on.
  add column reviewed_job bigint not null default 0;
