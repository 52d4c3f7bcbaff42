-- A pause is the column paused_until alone: a time, or infinity until the job is resumed. Since when, and by whom,
-- a trigger notes.
alter table pgfresh.scheduled_jobs disable trigger user;
update pgfresh.scheduled_jobs set paused_until = 'infinity' where paused_at is not null and paused_until is null;
alter table pgfresh.scheduled_jobs enable trigger user;
alter table pgfresh.scheduled_jobs add constraint scheduled_jobs_pause_check
  check ((paused_at is null) = (paused_until is null));

-- Subscriptions are the engine's; what people see of them is the view of the old name.
alter table pgfresh.active_subscriptions set schema pgfresh_engine;
alter table pgfresh_engine.active_subscriptions rename to subscription;
alter table pgfresh_engine.subscription rename constraint active_subscriptions_pkey to subscription_pkey;
alter table pgfresh_engine.subscription
  rename constraint active_subscriptions_user_id_check to subscription_user_id_check;
alter index pgfresh_engine.active_subscriptions_type_id_key_idx rename to subscription_type_id_key_idx;
-- The policies are beside the view.
alter table pgfresh_engine.subscription enable row level security;

-- The functions that run jobs or read rows as a role are numbered by this, and not by the oid of the role, which is
-- another one after a restore.
create table pgfresh_engine.acting_role (
  id int generated always as identity primary key,
  name text collate "C" not null unique
);
comment on table pgfresh_engine.acting_role is
  'Roles for which run_as_ and read_as_ functions were made, by their number.';
-- Made again for each role when it is needed.
do $$
declare
  v_signature text;
begin
  for v_signature in
    select oid::regprocedure::text
    from pg_proc
    where pronamespace = 'pgfresh_engine'::regnamespace and proname ~ '^(read|run)_as_\d+$'
  loop
    execute format('drop function %s', v_signature);
  end loop;
end
$$;

-- Which version of the package a process is, and which protocol it speaks with the database. Processes of a protocol
-- below the minimum are told to stop. 1 is the first protocol by which a process can be told.
alter table pgfresh_engine.process
  add column version text,
  add column protocol int not null default 1,
  -- By which it holds duties.
  add column holder uuid;
alter table pgfresh_engine.installation
  add column if not exists protocol int not null default 1,
  add column if not exists min_protocol int not null default 1,
  add column if not exists drain_until timestamptz;
