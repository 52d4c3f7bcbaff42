/*
  Who may do what is said in zz_rights.sql.
  Roles belong to the whole server, so another database may have made them already.
    pgfresh_worker     claims, fetches and ends jobs
    pgfresh_planner    plans, and runs scheduled jobs: for the processes of the roles planner and scheduler
    pgfresh_gateway    says who looks at what, for all of its users
    pgfresh_monitor    reads everything
    pgfresh_operator   reads everything, and decides about jobs, sources and spending: for the console
    pgfresh_scheduler  registers jobs that run at set times, triggers and pauses them: for applications
    pgfresh_viewer     says what the current user looks at, and nothing else
    pgfresh_evaluator  as whom the tables and functions of users are asked; nobody logs in as this
*/
do $$
declare
  v_role text;
begin
  foreach v_role in array array[
    'pgfresh_worker', 'pgfresh_planner', 'pgfresh_gateway', 'pgfresh_monitor', 'pgfresh_operator',
    'pgfresh_scheduler', 'pgfresh_viewer', 'pgfresh_evaluator'
  ] loop
    begin
      if to_regrole(v_role) is null then
        execute format('create role %I nologin', v_role);
      end if;
    -- Somebody who migrates another database of this server was faster.
    exception when duplicate_object or unique_violation then null;
    end;
  end loop;
  -- The functions that ask users' tables are owned by the evaluator, and only one of its members can make them.
  if not pg_has_role(current_user, 'pgfresh_evaluator', 'usage') then
    execute format('grant pgfresh_evaluator to %I', current_user);
  end if;
end
$$;
