/*
  Applied last. New functions are executable by PUBLIC unless revoked, and none of ours may be.
  Monitors and operators read all tables of the schema pgfresh, and views by the grant beside each. Objects that others
  created in the schemas are theirs to grant.
*/
do $$
declare
  v_name text;
begin
  for v_name in
    select p.oid::regprocedure::text
    from pg_proc as p
    where p.pronamespace in ('pgfresh'::regnamespace, 'pgfresh_engine'::regnamespace)
      and p.oid not in (select objid from pgfresh_engine.manifest where kind = 'function' and not ours)
  loop
    execute format('revoke all on routine %s from public', v_name);
  end loop;
  for v_name in
    select c.oid::regclass::text
    from pg_class as c
    where c.relnamespace = 'pgfresh'::regnamespace and c.relkind in ('r', 'p')
      and c.oid not in (select objid from pgfresh_engine.manifest where kind = 'table' and not ours)
  loop
    execute format('grant select on %s to pgfresh_monitor, pgfresh_operator', v_name);
  end loop;
end
$$;
revoke create on schema pgfresh_engine from pgfresh_evaluator;

-- Everything that functions use exists by now. Functions for a data type or a role were checked when created.
set local check_function_bodies = on;
select fmgr_sql_validator(p.oid)
from pg_proc as p
join pg_language as l on l.oid = p.prolang
where p.pronamespace in ('pgfresh'::regnamespace, 'pgfresh_engine'::regnamespace)
  and l.lanname = 'sql' and has_function_privilege(p.oid, 'execute');

select pgfresh.maintain_queue_partitions();

-- Gives registered types this version's functions, and the triggers if they are missing.
select pgfresh_engine.renew_types(false);

-- The functions that run the jobs of a role.
select pgfresh_engine.make_job_runner(j.owner::oid) from (select distinct owner from pgfresh.scheduled_jobs) as j;
