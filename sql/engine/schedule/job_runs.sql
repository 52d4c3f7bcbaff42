create or replace function pgfresh_engine.role_number(p_role oid) returns int
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select a.id from pg_roles as r join pgfresh_engine.acting_role as a on a.name = r.rolname where r.oid = p_role
$$;
comment on function pgfresh_engine.role_number(oid) is
  'The number in the names of the functions that are made for a role; null if it has none yet.';

create or replace function pgfresh_engine.number_role(p_role oid) returns int
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_number int := pgfresh_engine.role_number(p_role);
begin
  if v_number is null then
    insert into pgfresh_engine.acting_role as a (name)
    select rolname from pg_roles where oid = p_role
    on conflict (name) do update set name = excluded.name
    returning a.id into v_number;
  end if;
  return v_number;
end
$$;
comment on function pgfresh_engine.number_role(oid) is
  'The same, which a role gets by this. Not its oid, which is another one after a restore.';

/*
  Users' functions run as the owner of their job and cannot change role: "set role" and "reset role" are refused inside
  a function that runs with its owner's rights. So each such role has one, run_as_ and a number,
  created here.

  It belongs to the role, which may alter it to run with the caller's rights. So it first checks its current role, by
  schema-qualified names, and it is called from another function of this kind, so that none of its settings can
  choose a role either. Its text cannot be replaced: that needs the right to create in this schema.
*/
create or replace function pgfresh_engine.make_job_runner(p_role oid) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_number int := pgfresh_engine.number_role(p_role);
  v_signature text := format('pgfresh_engine.run_as_%s(text, text, jsonb)', v_number);
  -- The role it must run as. A role that was renamed since needs another text.
  v_name text := format('%L::pg_catalog.name', pg_get_userbyid(p_role));
  v_lends boolean;
begin
  -- The role no longer exists.
  if v_number is null then
    return;
  end if;
  for v_turn in 1..2 loop
    if exists (
      select from pg_proc
      where oid = to_regprocedure(v_signature) and proowner = p_role
        and prosecdef and not proisstrict and provolatile = 'v'
        and proconfig = array['search_path=pg_catalog, pg_temp'] and strpos(prosrc, v_name) > 0
        and has_function_privilege(current_user, oid, 'execute')
    ) then
      return;
    end if;
    -- Another transaction may be creating it: wait for that one, then look again. Writers of jobs go on.
    lock table pgfresh.scheduled_jobs in share update exclusive mode;
  end loop;
  v_lends := not has_schema_privilege(p_role, 'pgfresh_engine', 'create')
    and not (select rolsuper from pg_roles where rolname = current_user);
  if to_regprocedure(v_signature) is not null then
    execute format('drop function %s', v_signature);
  end if;
  execute format($create$
    create function pgfresh_engine.run_as_%s(p_call text, p_path text, p_params jsonb) returns jsonb
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
    as %L $create$,
    v_number,
    -- The text is quoted as a whole: a role may have any name.
    format($run$
    declare
      v_result pg_catalog.jsonb;
    begin
      if current_user operator(pg_catalog.<>) %s then
        raise exception using errcode = '42501',
          message = 'this function was altered, and does not run as its owner any more';
      end if;
      perform pg_catalog.set_config('search_path', p_path, true);
      execute p_call into v_result using p_params;
      -- Deferred to the commit, these would run as another role.
      set constraints all immediate;
      return v_result;
    end
    $run$, v_name));
  execute format('comment on function %s is %L',
    v_signature, 'Runs the jobs of one role. Written when a job is registered.');
  execute format('revoke all on function %s from public', v_signature);
  if p_role <> quote_ident(current_user)::regrole then
    -- The new owner needs the right to create here while it becomes the owner.
    if v_lends then
      execute format('grant create on schema pgfresh_engine to %s', p_role::regrole);
    end if;
    execute format('alter function %s owner to %s', v_signature, p_role::regrole);
    if v_lends then
      execute format('revoke create on schema pgfresh_engine from %s', p_role::regrole);
    end if;
    execute format('grant execute on function %s to %I', v_signature, current_user);
  end if;
end
$$;
comment on function pgfresh_engine.make_job_runner(oid) is
  'Makes the function that runs the jobs of a role, if it is not there or was altered.';

-- What the function wrote is kept whatever it returns: only raising undoes it.
create or replace function pgfresh_engine.job_result(p_result jsonb) returns jsonb
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_problem text;
  v_expected constant text :=
    'expected {"success": true or false, "message": "a text", "details": anything}, of which details may be left out';
  v_besides jsonb;
  v_details jsonb;
begin
  v_problem := case
    when p_result is null then 'got null'
    when jsonb_typeof(p_result) <> 'object' then
      'got ' || case jsonb_typeof(p_result)
        when 'array' then 'an array'
        when 'null' then 'null'
        else 'a ' || jsonb_typeof(p_result)
      end
    when p_result -> 'success' is null or jsonb_typeof(p_result -> 'success') <> 'boolean' then
      'got ' || coalesce('a success that is ' || left(p_result ->> 'success', 40), 'no success')
    when p_result -> 'message' is null or jsonb_typeof(p_result -> 'message') <> 'string' then
      'got ' || coalesce('a message that is a ' || jsonb_typeof(p_result -> 'message'), 'no message')
    when octet_length(p_result::text) > 1048576 then 'got more than a megabyte'
  end;
  if v_problem is not null then
    return jsonb_build_object('success', false, 'message', format('%s; %s', v_expected, v_problem),
      'details', jsonb_build_object('code', 'PGF_JOB_RESULT',
        'next', 'Return jsonb_build_object(''success'', true, ''message'', ''Deleted 5 rows'').'));
  end if;
  -- Keys other than these three are details too.
  v_besides := p_result - array['success', 'message', 'details'];
  v_details := nullif(p_result -> 'details', 'null');
  if v_besides <> '{}' then
    v_details := v_besides || case
      when v_details is null then '{}'
      when jsonb_typeof(v_details) = 'object' then v_details
      else jsonb_build_object('details', v_details)
    end;
  end if;
  return jsonb_build_object('success', p_result -> 'success', 'message', left(p_result ->> 'message', 4000))
    || case when v_details is null then '{}' else jsonb_build_object('details', v_details) end;
end
$$;
comment on function pgfresh_engine.job_result(jsonb) is
  'What a job has returned: success, message and details, into which other keys go. '
  'What is not of that form is a failure that says so.';

create or replace function pgfresh_engine.call_job_function(p_job_id int, p_params jsonb) returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_job pgfresh.scheduled_jobs;
  v_now jsonb;
  v_result jsonb;
  v_table regclass;
begin
  select * into v_job from pgfresh.scheduled_jobs where id = p_job_id and kind = 'sql';
  if not found then
    perform pgfresh_engine.refuse('PGF_JOB_UNKNOWN',
      format('there is no job with the number %s that calls a function', coalesce(p_job_id::text, 'null')),
      'Pass the id of a row of pgfresh.scheduled_jobs.');
  end if;
  if p_params is null or jsonb_typeof(p_params) <> 'object' then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      format('p_params must be an object, got %s', coalesce(jsonb_typeof(p_params), 'null')),
      'Pass the params of the run.');
  end if;
  v_job.params := p_params;
  v_now := pgfresh_engine.require_job_function(v_job);
  perform pgfresh_engine.make_job_runner(v_job.owner);

  execute format('select pgfresh_engine.run_as_%s($1, $2, $3)', pgfresh_engine.role_number(v_job.owner))
    into v_result
    using v_now ->> 'call', v_now ->> 'path', p_params;

  -- The function may have changed this, which must not affect what follows.
  set local search_path = pg_catalog, pg_temp;
  -- The commit reads a cursor "with hold" to its end, and not as the role that declared it.
  execute 'close all';
  -- A function of another owner may have been replaced between the check and the call.
  if not (v_now -> 'definer')::boolean and (v_now ->> 'owner')::oid <> v_job.owner
      and not pgfresh_engine.can_act_as((v_now ->> 'owner')::oid, v_job.owner)
      and v_now ->> 'stamp' is distinct from (
        select xmin || ' ' || ctid from pg_proc where oid = to_regprocedure(v_now ->> 'signature')
      ) then
    perform pgfresh_engine.refuse('PGF_JOB_INVALID', format('%s was changed while it ran', v_now ->> 'signature'),
      'See who changed it.');
  end if;
  /*
    The same holds for triggers deferred to the commit. Only foreign keys and the registry's own trigger are safe.
    PostgreSQL does not tell which triggers are pending, but their tables were written and are still locked.
  */
  if not pg_has_role(v_job.owner, session_user, 'usage')
      and not pgfresh_engine.can_act_as(v_job.owner, quote_ident(session_user)::regrole)
      and exists (
        select from pg_trigger
        where tgdeferrable and tgfoid <> 'pgfresh_engine.follow_registry()'::regprocedure and tgfoid not in (
          select oid from pg_proc where proname ~ '^RI_FKey_' and pronamespace = 'pg_catalog'::regnamespace
        )
      ) then
    select t.tgrelid
    into v_table
    from pg_trigger as t
    join pg_locks as l on l.locktype = 'relation' and l.relation = t.tgrelid
      and l.pid = pg_backend_pid() and l.mode ~ '^(Row|ShareRow|Access)?Exclusive'
    where t.tgdeferrable and t.tgfoid <> 'pgfresh_engine.follow_registry()'::regprocedure
      and t.tgfoid not in (
        select oid from pg_proc where proname ~ '^RI_FKey_' and pronamespace = 'pg_catalog'::regnamespace
      )
      and not exists (
        select from pg_index as i
        where i.indexrelid = t.tgconstrindid and t.tgfoid = 'pg_catalog.unique_key_recheck()'::regprocedure
          and i.indexprs is null and i.indpred is null
      )
    limit 1;
    if found then
      perform pgfresh_engine.refuse('PGF_JOB_INVALID',
        format('a job of %s may not write %s, which has a trigger that can be put off until the commit',
          v_job.owner, v_table),
        'Make that constraint not deferrable.');
    end if;
  end if;
  return pgfresh_engine.job_result(v_result);
end
$$;
comment on function pgfresh_engine.call_job_function(int, jsonb) is
  'Runs the function of a job as the job''s owner, and returns its result. '
  'Raises what it raises; a result of another form is a failure that says so. '
  'To be called at the top of a transaction, under a statement_timeout; '
  'what the function has set lasts until the session is reset.';
grant execute on function pgfresh_engine.call_job_function(int, jsonb) to pgfresh_planner;
