/*
  What subscribing asks of users' tables. A client that subscribes by SQL has a connection of an application, and does
  not wait with it for a locked table, as ALTER TABLE locks it: the planner looks at the pair a second later.
*/
create or replace function pgfresh_engine.admit_new_keys(p_type pgfresh.data_type_registry, p_keys text[])
returns text[]
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '100ms'
as $$
begin
  return pgfresh_engine.require_keys(p_type, p_keys);
end
$$;
comment on function pgfresh_engine.admit_new_keys(pgfresh.data_type_registry, text[]) is
  'As require_keys, but waits at most 100 ms for a lock on the table of keys. A part of subscribing.';

create or replace function pgfresh_engine.plan_new_looks(p_type_id int, p_keys text[], p_now timestamptz) returns jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '100ms'
as $$
declare
  -- Those with a job are neither planned nor locked: their ends must not wait for the transaction of a stranger.
  v_open text[] := array(
    select p.key
    from pgfresh_engine.pairs as p
    where p.type_id = p_type_id and p.key = any (p_keys) and p.job_id is not null);
  v_counts jsonb := pgfresh_engine.plan_looks(
    pgfresh_engine.looks_at(p_type_id, array(select k from unnest(p_keys) as k where k <> all (v_open))), p_now);
begin
  return v_counts || jsonb_build_object('merged', (v_counts ->> 'merged')::int + cardinality(v_open));
end
$$;
comment on function pgfresh_engine.plan_new_looks(int, text[], timestamptz) is
  'Looks at pairs of a data type that have just got their first viewer. Leaves them to the planner if their table is '
  'locked for more than 100 ms. A part of subscribing.';
