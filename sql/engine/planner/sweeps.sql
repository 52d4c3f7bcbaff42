/*
  A type that has just timed out is left to the next sweep: once the timeout is noted, the sweep continues after it.
*/
create or replace function pgfresh_engine.types_left_out(p_now timestamptz) returns int[]
language sql stable
set search_path = pg_catalog, pg_temp
as $$ select array(select t.type_id from pgfresh_engine.type_timeout as t
  where t.last_at > p_now - interval '1 minute') $$;
comment on function pgfresh_engine.types_left_out(timestamptz) is
  'Data types that have timed out within a minute, which the sweep leaves out. A part of the planner.';

create or replace function pgfresh_engine.next_swept_type() returns int
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select p.type_id
  from pgfresh_engine.pairs as p
  cross join pgfresh_engine.planner_state as s
  where p.demanded and (p.type_id, p.key) > (s.sweep_type, s.sweep_key)
    and not p.type_id = any (pgfresh_engine.types_left_out(pgfresh.clock()))
  order by p.type_id, p.key
  limit 1
$$;
comment on function pgfresh_engine.next_swept_type() is
  'The data type with whose pairs the next chunk of the sweep begins; null at its end.';
grant execute on function pgfresh_engine.next_swept_type() to pgfresh_planner;
