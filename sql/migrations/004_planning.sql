-- Who looks at what, as told by clients that speak SQL. No index on last_seen_at, so that a heartbeat rewrites none.
-- Ids are compared byte by byte, whatever the collation of the caller's own columns:
-- with another one the index could not be used.
create table pgfresh.active_subscriptions (
  user_id text collate "C" not null check (user_id <> '' and octet_length(user_id) <= 200),
  type_id int not null references pgfresh.data_type_registry (type_id) on delete cascade,
  key text collate "C" not null,
  subscribed_at timestamptz not null,
  last_seen_at timestamptz not null,
  primary key (user_id, type_id, key)
) with (fillfactor = 70);
create index on pgfresh.active_subscriptions (type_id, key);
comment on table pgfresh.active_subscriptions is
  'Subscriptions of clients that speak SQL, each alive for five minutes after its last heartbeat. '
  'last_seen_at is written at most every 75 seconds.';

-- How often each user called in the current minute. Unlogged: after a crash the minute begins anew.
create unlogged table pgfresh.viewer_calls (
  user_id text collate "C" primary key,
  minute timestamptz not null,
  calls int not null
) with (fillfactor = 50);
comment on table pgfresh.viewer_calls is 'Calls of each user in the current minute, for their cap.';

create table pgfresh.nodes (
  id bigint generated always as identity primary key,
  name text not null,
  started_at timestamptz not null,
  lease_until timestamptz not null
) with (fillfactor = 50);
comment on table pgfresh.nodes is 'Gateway processes, each alive until its lease ends.';

create table pgfresh.node_demand (
  node_id bigint not null references pgfresh.nodes on delete cascade,
  type_id int not null references pgfresh.data_type_registry (type_id) on delete cascade,
  key text collate "C" not null,
  viewers int not null check (viewers > 0),
  primary key (node_id, type_id, key)
) with (fillfactor = 70);
create index on pgfresh.node_demand (type_id, key);
comment on table pgfresh.node_demand is 'How many distinct users look at a pair through each node.';

-- Every change of the two above, until the planner has added it to the pair.
-- Appended, so that viewers of one pair do not wait for each other.
create table pgfresh.demand_change (
  id bigint generated always as identity primary key,
  type_id int not null,
  key text collate "C" not null,
  delta int not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
comment on table pgfresh.demand_change is 'Viewers that came and went since the planner last looked.';

create table pgfresh.planner_state (
  single boolean primary key default true check (single),
  -- Where the sweep goes on.
  sweep_type int not null default 0,
  sweep_key text collate "C" not null default '',
  sweep_started_at timestamptz,
  -- All demand fell silent at once, and is believed only from then on.
  demand_held_until timestamptz
);
insert into pgfresh.planner_state default values;
comment on table pgfresh.planner_state is 'Where the sweep stands, and whether a total loss of demand is being held.';

create table pgfresh.planner_run (
  kind text not null check (kind in ('tick', 'sweep', 'schedule')),
  -- Ticks of one minute are one row; so is one sweep over everything.
  started_at timestamptz not null,
  last_at timestamptz not null,
  calls int not null,
  ms double precision not null,
  counts jsonb not null,
  primary key (kind, started_at)
);
comment on table pgfresh.planner_run is
  'What the planner did: ticks by minute, sweeps and scheduled refreshes, with their time and counts.';

create table pgfresh.refresh_cycle (
  type_id int not null references pgfresh.data_type_registry (type_id) on delete cascade,
  slot timestamptz not null,
  opened_at timestamptz not null,
  -- The last key that had its turn; null before the first.
  cursor_key text,
  queued bigint not null default 0,
  done_at timestamptz,
  primary key (type_id, slot)
);
create index on pgfresh.refresh_cycle (slot, type_id) where done_at is null;
comment on table pgfresh.refresh_cycle is 'Rounds over all keys of a scheduled data type, each opened by its slot.';

-- Duties that one process at a time does, as long as it says so.
create table pgfresh.duty (
  name text primary key,
  holder uuid not null,
  lease_until timestamptz not null
) with (fillfactor = 50);
comment on table pgfresh.duty is 'Who does each duty of which there must be only one, and until when.';
