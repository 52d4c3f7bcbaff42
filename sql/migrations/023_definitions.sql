alter table pgfresh.data_type_registry
  -- Grows with each change of what a fetch or a write depends on, so that an answer to an earlier one is recognised.
  add column definition bigint not null default 1;

/*
  Whoever changes or deletes a data type waits for nobody. Pairs and jobs that others have locked at that moment, and
  what a transaction adds that had read the registry before, follow afterwards: recovery does that for each row here.
*/
create table pgfresh.registry_change (
  id bigint generated always as identity primary key,
  type_id int not null,
  changed_at timestamptz not null,
  -- What pairs have to be told, and which of them were locked.
  effect text not null check (effect in ('plan', 'ask', 'forget', 'clear')),
  keys text[] not null default '{}'
);
comment on table pgfresh.registry_change is
  'Changes of data types of the last minute, which recovery brings to pairs and jobs that were locked at that moment.';

/*
  Gateways and subscribers have some of these rows while they add others; who deletes a data type has its row. A foreign
  key would make each wait for the other, so clear_type deletes them instead.
*/
alter table pgfresh.active_subscriptions drop constraint active_subscriptions_type_id_fkey;
alter table pgfresh.node_demand drop constraint node_demand_type_id_fkey;

-- When recovery last looked for jobs and pairs that have lost their data type or source.
alter table pgfresh.recovery add column strays_at timestamptz not null default '-infinity';

-- Triggers, functions and types whose name, arguments or results have changed; the files of functions make them anew.
drop trigger if exists follow_ttl on pgfresh.data_type_registry;
drop function if exists pgfresh.follow_ttl();
drop type if exists pgfresh.claimed_job cascade;
drop function if exists pgfresh.fence_jobs(int, bigint[], int[], text[], uuid[]);
