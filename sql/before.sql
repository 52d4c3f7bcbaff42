/*
  What everything else needs: roles and types. Applied first, after the migration has revoked all rights that an
  earlier version granted; then engine/, then api/, then after.sql, all of them whenever one of them changed.
  A function may use objects that are created after it: after.sql checks that they exist.
*/
set local check_function_bodies = off;

/*
  Grants are beside each object.
  Roles belong to the whole server, so another database may have created them already.
    pgfresh_worker     claims, fetches and ends jobs
    pgfresh_planner    plans, and runs scheduled jobs: for the processes of the roles planner and scheduler
    pgfresh_gateway    says who looks at what, for all of its users
    pgfresh_monitor    reads the tables and views of pgfresh
    pgfresh_operator   reads the same, and decides about jobs, sources and spending: for the console
    pgfresh_scheduler  registers jobs that run at set times, triggers and pauses them: for applications
    pgfresh_viewer     says what the current user looks at, and nothing else
    pgfresh_evaluator  queries users' tables and calls their functions; cannot log in
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
    -- A migration of another database on this server created it first.
    exception when duplicate_object or unique_violation then null;
    end;
  end loop;
  -- The functions that query users' tables are owned by the evaluator, and only its members can create them.
  if not pg_has_role(current_user, 'pgfresh_evaluator', 'usage') then
    execute format('grant pgfresh_evaluator to %I', current_user);
  end if;
end
$$;

grant usage on schema pgfresh to
  pgfresh_worker, pgfresh_planner, pgfresh_gateway, pgfresh_monitor, pgfresh_operator,
  pgfresh_scheduler, pgfresh_viewer, pgfresh_evaluator;
-- Not to viewers: what they call and read has parsed bodies, which need no right to use this schema.
grant usage on schema pgfresh_engine to
  pgfresh_worker, pgfresh_planner, pgfresh_gateway, pgfresh_monitor, pgfresh_operator,
  pgfresh_scheduler, pgfresh_evaluator;
-- While it becomes the owner of the functions that query users' tables; after.sql revokes it.
grant create on schema pgfresh_engine to pgfresh_evaluator;

do $$ begin
  if to_regtype('pgfresh_engine.claimed_job') is null then
    create type pgfresh_engine.claimed_job as (
      id bigint, attempt int, type_id int, key text, source_id int, band smallint, lane smallint, priority int,
      est_bytes bigint, retries int, metadata jsonb,
      use_by timestamptz, api_key smallint, definition bigint);
  end if;
end $$;

comment on type pgfresh_engine.claimed_job is
  'A job as claim_jobs returns it. Id and attempt together are the token by which it is ended. '
  'Of a source with a rate, it has one call, to be sent by use_by with that API key, or not at all. '
  'What was fetched under another definition than this one is not written.';


do $$ begin
  if to_regtype('pgfresh_engine.obstacle') is null then
    create type pgfresh_engine.obstacle as (reason text, words text, since timestamptz, until timestamptz,
      lasts timestamptz);
  end if;
end $$;

comment on type pgfresh_engine.obstacle is
  'Something that keeps a pair from being refreshed, since and until when if that is known, '
  'and for how long at least, by which several of them are ordered.';


do $$ begin
  if to_regtype('pgfresh_engine.looks') is null then
    create type pgfresh_engine.looks as (
      type_id int, rests boolean, keys text[], places tid[], jobs bigint[], next_ask timestamptz[],
      confirmed timestamptz[], rows timestamptz[], due timestamptz[], priorities int[]
    );
  end if;
  if to_regtype('pgfresh_engine.look') is null then
    create type pgfresh_engine.look as (
      type_id int, key text, place tid, job_id bigint, due_at timestamptz, next_at timestamptz, priority int,
      changed boolean, row_at timestamptz, stale_at timestamptz, waits_for text
    );
  end if;
end $$;

comment on type pgfresh_engine.looks is
  'Pairs of one data type as the planner has read them: whether any of them has a job or is to be left alone, '
  'their places if they are locked, when they may be asked for again, when the source confirmed them, '
  'the times of their rows as they were last seen, '
  'their due times as far as anybody looks at them, and the least priorities of their jobs if there are such.';


comment on type pgfresh_engine.look is
  'A pair about which the planner has decided something: when to look again and what it waits for, '
  'or that it gets a job; and whether its row is not as it was known to be, null if nobody looked, and what was seen.';


do $$ begin
  if to_regtype('pgfresh_engine.job_end') is null then
    create type pgfresh_engine.job_end as (
      -- What the caller says.
      id bigint, attempt int, request uuid, bytes bigint, calls int, needs int, fetch_ms int, validate_ms int,
      outcome text, error text, permanent boolean, counts boolean,
      -- What the job is.
      type_id int, key text, source_id int, api_key smallint, priority int, claimed_at timestamptz, reserved bigint,
      retries int, max_retries int, lost int, put_backs int, rerun boolean,
      -- What becomes of it.
      status text, next_at timestamptz);
  end if;
end $$;

comment on type pgfresh_engine.job_end is
  'The end of a job other than by success. '
  'fail_jobs and put_back_jobs take its first fields as a JSON array of objects, and decide about the rest.';
