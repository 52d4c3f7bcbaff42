create or replace function pgfresh_engine.can_act_as(p_user oid, p_role oid) returns boolean
language sql stable
set search_path = pg_catalog, pg_temp
-- Up to version 15, a member may always switch to the role.
as $$
  select pg_has_role(p_user, p_role, 'usage')
    or pg_has_role(p_user, p_role,
      case when current_setting('server_version_num')::int < 160000 then 'member' else 'set' end)
$$;
comment on function pgfresh_engine.can_act_as(oid, oid) is
  'Whether one role has the rights of another, or may become it.';
grant execute on function pgfresh_engine.can_act_as(oid, oid) to pgfresh_scheduler, pgfresh_operator;

/*
  This and the next one run with the rights of the writer, because only then current_user is the writer. Function names
  have their schema: the search path is that of pgfresh, but rights to call functions were granted by name.
*/
create or replace function pgfresh_engine.check_job_right() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_me oid := quote_ident(current_user)::regrole;
  v_pgfresh oid := (select nspowner from pg_namespace where nspname = 'pgfresh');
  v_operators constant text[] := '{enabled, paused_reason, paused_until}';
  v_operates boolean := tg_op <> 'INSERT' and old.owner <> v_me
    and not pgfresh_engine.can_act_as(v_me, old.owner) and not pgfresh_engine.can_act_as(v_me, v_pgfresh);
begin
  if v_operates and not (tg_op = 'UPDATE' and pg_has_role(v_me, 'pgfresh_operator', 'usage')
      and to_jsonb(new) - v_operators = to_jsonb(old) - v_operators) then
    perform pgfresh_engine.refuse('PGF_JOB_RIGHT',
      format('the job %s belongs to %s, and %s is not a member of that role', old.name, old.owner, v_me::regrole),
      format('Ask %s, or an administrator.', old.owner));
  end if;
  if tg_op = 'DELETE' then
    return old;
  end if;
  if (tg_op = 'INSERT' or new.owner is distinct from old.owner)
      and new.owner <> v_me and not pgfresh_engine.can_act_as(v_me, new.owner) then
    perform pgfresh_engine.refuse('PGF_JOB_RIGHT',
      format('%s may not register a job that runs as %s', v_me::regrole, new.owner),
      format('Leave owner out, or run as an administrator: grant %s to %s;', new.owner, v_me::regrole));
  end if;
  -- A handler runs with the rights of its process.
  if new.kind = 'handler' and (tg_op = 'INSERT'
      or (new.kind, new.function_name, new.params) is distinct from (old.kind, old.function_name, old.params))
      and not pgfresh_engine.can_act_as(v_me, v_pgfresh) then
    perform pgfresh_engine.refuse('PGF_JOB_RIGHT',
      format('%s may not register a handler, which runs with the rights of pgfresh', v_me::regrole),
      'Define the job in pgfresh.config.ts, or register an SQL function.');
  end if;

  -- A write that changes nothing accepts the function as it is now. An operator must not do that.
  if v_operates and new is not distinct from old then
    return null;
  end if;
  return new;
end
$$;
comment on function pgfresh_engine.check_job_right() is
  'Trigger of scheduled_jobs: a job is written by those who could do themselves what it does; '
  'operators write enabled, paused_until and paused_reason of every job.';

-- Writers set paused_until and paused_reason; paused_at and paused_by follow from them.
create or replace function pgfresh_engine.note_job_pause() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := pgfresh.clock();
  v_old pgfresh.scheduled_jobs;
begin
  if tg_op = 'UPDATE' then
    v_old := old;
  end if;
  new.paused_at := v_old.paused_at;
  new.paused_by := v_old.paused_by;
  if (new.paused_until, new.paused_reason) is distinct from (v_old.paused_until, v_old.paused_reason) then
    if new.paused_until > v_now then
      new.paused_at := case when v_old.paused_until > v_now then v_old.paused_at else v_now end;
      new.paused_by := current_user;
    elsif new.paused_until is not null then
      perform pgfresh_engine.refuse('PGF_JOB_INVALID',
        format('paused_until must be in the future, got %s', new.paused_until),
        'Write a later time, ''infinity'' to pause the job until it is resumed, or null to resume it.');
    elsif new.paused_reason is distinct from v_old.paused_reason and new.paused_reason is not null then
      perform pgfresh_engine.refuse('PGF_JOB_INVALID', 'paused_reason needs a paused_until',
        'Write a time too, or ''infinity'' to pause the job until it is resumed.');
    elsif v_old.paused_until > v_now then
      new.paused_at := null;
      new.paused_by := null;
      new.paused_reason := null;
    else
      -- A pause that has ended stays: it tells which of the unsettled slots were paused.
      new.paused_until := v_old.paused_until;
      new.paused_reason := v_old.paused_reason;
    end if;
  end if;
  -- A write that changes nothing accepts the function as it is now. Resuming a job must not.
  if tg_op = 'UPDATE' and new is not distinct from old then
    return null;
  end if;
  return new;
end
$$;
comment on function pgfresh_engine.note_job_pause() is
  'Trigger of scheduled_jobs: a pause is a time in paused_until. Notes since when and by whom a job is paused.';

/*
  The current function of a job; raises if it is missing, has another signature, or cannot be called as the
  job's owner. Never resolved by the search path: a name has its schema, or it means public.
*/
create or replace function pgfresh_engine.resolve_job(p_job pgfresh.scheduled_jobs) returns jsonb
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_parts text[] := string_to_array(p_job.function_name, '.');
  v_function record;
  v_pgfresh oid := (select nspowner from pg_namespace where nspname = 'pgfresh');
begin
  if not exists (select from pg_roles where oid = p_job.owner) then
    perform pgfresh_engine.refuse('PGF_JOB_INVALID', format('owner: there is no role %s', p_job.owner),
      'Give the job to a role that exists.');
  end if;
  if cardinality(v_parts) = 1 then
    v_parts := array['public'] || v_parts;
  end if;
  if p_job.function_name !~ '^([A-Za-z_][A-Za-z0-9_]{0,62}[.])?[A-Za-z_][A-Za-z0-9_]{0,62}$' then
    perform pgfresh_engine.refuse('PGF_JOB_INVALID',
      format('function_name %s is not a name', left(quote_literal(p_job.function_name), 80)),
      'Expected letters, digits and underscores, at most 63, with the schema and a dot before it if it is not public.');
  end if;
  select f.oid, f.xmin || ' ' || f.ctid as stamp, f.proowner, f.prosecdef, f.pronargs, n.oid as schema, n.nspname
  into v_function
  from pg_proc as f
  join pg_namespace as n on n.oid = f.pronamespace
  where n.nspname = v_parts[1] and f.proname = v_parts[2] and oidvectortypes(f.proargtypes) in ('', 'jsonb')
    and f.prorettype = 'jsonb'::regtype and f.prokind = 'f' and not f.proretset
  order by f.pronargs desc
  limit 1;
  if not found then
    perform pgfresh_engine.refuse('PGF_JOB_INVALID',
      format('function_name: there is no function %I.%I() or %I.%I(jsonb) that returns jsonb',
        v_parts[1], v_parts[2], v_parts[1], v_parts[2]),
      coalesce((
        select 'There is ' || string_agg(near.found, ' and ') || '.'
        from (
          select format('%I.%I(%s)%s', n.nspname, f.proname, oidvectortypes(f.proargtypes),
            case
              when f.prokind = 'p' then ', a procedure'
              when f.proretset then ', which returns many rows'
              else ', which returns ' || format_type(f.prorettype, null)
            end) as found
          from pg_proc as f
          join pg_namespace as n on n.oid = f.pronamespace
          where lower(f.proname) = lower(v_parts[2]) and n.nspname !~ '^pg_'
          order by (n.nspname = v_parts[1]) desc, n.nspname, f.oid
          limit 3
        ) as near
      ), 'Create it, or correct function_name.'));
  end if;
  if not has_function_privilege(p_job.owner, v_function.oid, 'execute')
      or not has_schema_privilege(p_job.owner, v_function.schema, 'usage') then
    perform pgfresh_engine.refuse('PGF_JOB_INVALID',
      format('function_name: %s may not call %s', p_job.owner, v_function.oid::regprocedure),
      format('Run: grant usage on schema %s to %s; grant execute on function %s to %s;',
        v_function.schema::regnamespace, p_job.owner, v_function.oid::regprocedure, p_job.owner));
  end if;
  if v_function.pronargs = 0 and p_job.params <> '{}' then
    perform pgfresh_engine.refuse('PGF_JOB_INVALID', format('params: %s takes none', v_function.oid::regprocedure),
      'Leave params out, or give the function an argument of type jsonb.');
  end if;
  -- The function that runs it belongs to the owner, and only a member of the owner can create it.
  if not pg_has_role(v_pgfresh, p_job.owner, 'usage') then
    perform pgfresh_engine.refuse('PGF_JOB_INVALID', format('owner: pgfresh may not run anything as %s', p_job.owner),
      format('Run as an administrator: grant %s to %s;', p_job.owner, v_pgfresh::regrole));
  end if;
  return jsonb_build_object(
    'signature', v_function.oid::regprocedure::text, 'function', v_function.oid, 'stamp', v_function.stamp,
    'schema', v_function.nspname, 'owner', v_function.proowner, 'owner_name', v_function.proowner::regrole::text,
    'definer', v_function.prosecdef,
    'body', case
      when v_function.nspname not in ('pgfresh', 'pgfresh_engine') then md5(pg_get_functiondef(v_function.oid))
    end,
    'call', format('select %I.%I(%s)', v_parts[1], v_parts[2], case when v_function.pronargs = 1 then '$1' else '' end),
    'path', format('%I, public, pg_temp', v_parts[1]));
end
$$;
comment on function pgfresh_engine.resolve_job(pgfresh.scheduled_jobs) is
  'Looks up the function that a job names; refuses it if it is missing or does not fit.';

create or replace function pgfresh_engine.complete_job() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_missing text;
  v_problem text;
  v_found constant text[] := '{problem, resolution}';
  v_same boolean := tg_op = 'UPDATE' and to_jsonb(new) - v_found = to_jsonb(old) - v_found;
begin
  -- Written by a scheduler or by renew_jobs, not by a user who edits the job.
  if v_same and (new.problem, new.resolution) is distinct from (old.problem, old.resolution) then
    return new;
  end if;
  new.kind := coalesce(new.kind, 'sql');
  if new.kind = 'handler' then
    new.function_name := coalesce(new.function_name, new.name);
  end if;
  if num_nulls(
    new.name, new.function_name, new.timezone, new.enabled, new.params, new.timeout, new.retries, new.retry_base,
    new.catch_up, new.catch_up_max, new.overlap, new.jitter, new.blackout_dates,
    new.owner, new.managed_by
  ) > 0 then
    select key
    into v_missing
    from jsonb_each(to_jsonb(new))
    where value = 'null' and key in (
      'name', 'function_name', 'timezone', 'enabled', 'params', 'timeout', 'retries', 'retry_base',
      'catch_up', 'catch_up_max', 'overlap', 'jitter', 'blackout_dates',
      'owner', 'managed_by'
    )
    order by key
    limit 1;
    perform pgfresh_engine.refuse('PGF_JOB_INVALID', format('%s must not be null', v_missing),
      case
        when v_missing in ('name', 'function_name') then 'Give it a value.'
        else 'Leave the column out to have its default.'
      end);
  end if;
  if new.name !~ '^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$' then
    perform pgfresh_engine.refuse('PGF_JOB_INVALID', format('name %s is not one', left(quote_literal(new.name), 80)),
      'Expected letters, digits, underscores, dots and dashes, at most 100, with a letter or digit first.');
  elsif new.kind not in ('sql', 'handler') or new.catch_up not in ('once', 'skip', 'all')
      or new.overlap not in ('skip', 'queue') or new.managed_by not in ('config', 'sql') then
    perform pgfresh_engine.refuse('PGF_JOB_INVALID',
      format('%s must be %s, got %s', w.word, w.choice, left(quote_literal(w.value), 80)),
      'Choose one of these.')
    from (values
      (1, 'kind', 'sql or handler', new.kind, new.kind in ('sql', 'handler')),
      (2, 'catch_up', 'once, skip or all', new.catch_up, new.catch_up in ('once', 'skip', 'all')),
      (3, 'overlap', 'skip or queue', new.overlap, new.overlap in ('skip', 'queue')),
      (4, 'managed_by', 'config or sql', new.managed_by, new.managed_by in ('config', 'sql'))
    ) as w(place, word, choice, value, good)
    where not w.good
    order by w.place
    limit 1;
  elsif octet_length(new.description) > 4000 or octet_length(new.function_name) not between 1 and 200 then
    perform pgfresh_engine.refuse('PGF_JOB_INVALID',
      format('%s is too long',
        case when octet_length(new.description) > 4000 then 'description' else 'function_name' end),
      'A description has at most 4000 bytes, and the name of a function 1 to 200.');
  elsif new.kind = 'handler' and new.function_name !~ '^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$' then
    perform pgfresh_engine.refuse('PGF_JOB_INVALID',
      format('function_name %s is not the name of a handler', left(quote_literal(new.function_name), 80)),
      'Write the name of a job of pgfresh.config.ts that has a handler.');
  elsif jsonb_typeof(new.params) <> 'object' or octet_length(new.params::text) > 65536 then
    perform pgfresh_engine.refuse('PGF_JOB_INVALID',
      format('params must be an object of at most 65536 bytes, got %s of %s',
        jsonb_typeof(new.params), octet_length(new.params::text)),
      'For instance {"days": 30}.');
  elsif new.retries not between 0 and 100 or new.catch_up_max not between 1 and 10000 then
    perform pgfresh_engine.refuse('PGF_JOB_INVALID',
      case
        when new.retries not between 0 and 100 then format('retries must be from 0 to 100, got %s', new.retries)
        else format('catch_up_max must be from 1 to 10000, got %s', new.catch_up_max)
      end,
      'Pass a value in that range.');
  elsif coalesce(array_ndims(new.blackout_dates), 1) <> 1 or cardinality(new.blackout_dates) > 1000
      or array_position(new.blackout_dates, null) is not null
      or 'infinity' = any (new.blackout_dates) or '-infinity' = any (new.blackout_dates) then
    perform pgfresh_engine.refuse('PGF_JOB_INVALID', 'blackout_dates must be a list of at most 1000 dates',
      'For instance {2026-12-24,2026-12-25}.');
  elsif octet_length(new.paused_reason) > 1000 then
    perform pgfresh_engine.refuse('PGF_JOB_INVALID', 'paused_reason has at most 1000 bytes', 'Write fewer words.');
  end if;

  new.every_max := coalesce(new.every_max, new.every_min);
  new.failure_max := coalesce(new.failure_max, new.failure_min);
  perform pgfresh_engine.refuse('PGF_JOB_INVALID',
    format('%s must be from %s to %s, got %s', b.name, b.low, b.high, b.value),
    format('Correct %s, for instance ''10 minutes''.', b.name))
  from (values
    (1, 'every_min', new.every_min, interval '1 second', interval '366 days'),
    (2, 'every_max', new.every_max, '1 second', '366 days'),
    (3, 'failure_min', new.failure_min, '1 second', '366 days'),
    (4, 'failure_max', new.failure_max, '1 second', '366 days'),
    (5, 'timeout', new.timeout, '1 millisecond', '1 day'),
    (6, 'retry_base', new.retry_base, '1 second', '1 day'),
    (7, 'catch_up_window', new.catch_up_window, '1 second', '366 days'),
    (8, 'jitter', new.jitter, '0', '1 day')
  ) as b(place, name, value, low, high)
  where b.value < b.low or b.value > b.high
  order by b.place
  limit 1;
  -- In hours and less, because a day in the server's zone may have 23 of them.
  new.every_min := make_interval(secs => extract(epoch from new.every_min)::float8);
  new.every_max := make_interval(secs => extract(epoch from new.every_max)::float8);
  new.failure_min := make_interval(secs => extract(epoch from new.failure_min)::float8);
  new.failure_max := make_interval(secs => extract(epoch from new.failure_max)::float8);
  new.timeout := make_interval(secs => extract(epoch from new.timeout)::float8);
  new.retry_base := make_interval(secs => extract(epoch from new.retry_base)::float8);
  new.catch_up_window := make_interval(secs => extract(epoch from new.catch_up_window)::float8);
  new.jitter := make_interval(secs => extract(epoch from new.jitter)::float8);
  new.updated_at := pgfresh.clock();
  new.created_at := case when tg_op = 'INSERT' then new.updated_at else old.created_at end;
  new.problem := null;

  -- A job whose function is gone can still be paused or disabled.
  if tg_op = 'INSERT' or v_same
      or (new.schedule, new.timezone, new.every_min, new.every_max, new.failure_min, new.failure_max)
      is distinct from (old.schedule, old.timezone, old.every_min, old.every_max, old.failure_min, old.failure_max) then
    if (new.schedule is null) = (new.every_min is null) then
      perform pgfresh_engine.refuse('PGF_JOB_INVALID',
        case
          when new.schedule is null then 'a job needs a schedule or every_min'
          else 'a job has a schedule or every_min, not both'
        end,
        'Write schedule = ''0 3 * * *'', or every_min = ''10 minutes'' and every_max = ''15 minutes''.');
    elsif new.every_min > new.every_max or new.failure_min > new.failure_max then
      perform pgfresh_engine.refuse('PGF_JOB_INVALID',
        case
          when new.every_min > new.every_max then 'every_min is more than every_max'
          else 'failure_min is more than failure_max'
        end,
        'Exchange the two.');
    elsif new.every_min is null
        and (new.every_max is not null or new.failure_min is not null or new.failure_max is not null) then
      perform pgfresh_engine.refuse('PGF_JOB_INVALID', 'every_max, failure_min and failure_max need an every_min',
        'Leave them out where there is a schedule; retries say what is done about a failure.');
    elsif new.failure_min is null and new.failure_max is not null then
      perform pgfresh_engine.refuse('PGF_JOB_INVALID', 'failure_max needs a failure_min', 'Give both, or neither.');
    end if;
    v_problem := case when new.schedule is not null then pgfresh_engine.cron_problem(new.schedule) end;
    if v_problem is not null then
      perform pgfresh_engine.refuse('PGF_JOB_INVALID',
        format('schedule %s: %s', left(quote_literal(new.schedule), 80), v_problem),
        'Write minute, hour, day of month, month and day of week, such as 30 2 * * MON-FRI, or a word such as @daily.');
    end if;
    if not pgfresh_engine.is_time_zone(new.timezone) then
      perform pgfresh_engine.refuse('PGF_JOB_INVALID',
        format('timezone: there is no time zone %s', left(quote_literal(new.timezone), 80)),
        coalesce((
          select 'Did you mean ' || string_agg(near.name, ' or ') || '?'
          from (
            select name
            from pg_timezone_names
            where name !~ '^(posix|right)/' and length(new.timezone) between 3 and 50
              and regexp_replace(lower(name), '[^a-z]', '', 'g')
                like '%' || nullif(regexp_replace(lower(new.timezone), '[^a-z]', '', 'g'), '') || '%'
            order by length(name), name
            limit 3
          ) as near
        ), 'Use a name of the IANA database, such as UTC or America/New_York.'));
    end if;
  end if;
  if new.kind = 'handler' then
    new.resolution := null;
  elsif tg_op = 'INSERT' or v_same
      or (new.kind, new.function_name, new.owner, new.params)
      is distinct from (old.kind, old.function_name, old.owner, old.params) then
    new.resolution := pgfresh_engine.resolve_job(new);
    perform pgfresh_engine.make_job_runner(new.owner);
  else
    new.resolution := old.resolution;
    -- Operators may enable a job, which must not accept a function that its runs would refuse.
    if new.enabled and not old.enabled then
      new.resolution := pgfresh_engine.require_job_function(new);
      perform pgfresh_engine.make_job_runner(new.owner);
    end if;
  end if;
  return new;
end
$$;
comment on function pgfresh_engine.complete_job() is
  'Trigger of scheduled_jobs: checks every value, looks up what the function''s name means, '
  'and refuses what does not fit.';

/*
  A run under way belongs to its scheduler, and a function holds its row until it ends. So its
  scheduler is told to stop it, and the end of the run then deletes it. All other runs are deleted
  now, except those that are just ending.
*/
create or replace function pgfresh_engine.forget_job() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if not exists (select from pgfresh.scheduled_jobs where owner = old.owner and kind = 'sql') then
    execute format('drop function if exists pgfresh_engine.run_as_%s(text, text, jsonb)',
      pgfresh_engine.role_number(old.owner));
  end if;
  if tg_op = 'DELETE' then
    delete from pgfresh.scheduled_job_runs
    where id in (
      select id
      from pgfresh.scheduled_job_runs
      where job_id = old.id and state <> 'running'
      order by id
      for update skip locked
    );
    perform pg_notify('pgfresh_schedule', 'cancel');
  end if;
  return null;
end
$$;
comment on function pgfresh_engine.forget_job() is
  'Trigger of scheduled_jobs: drops the function that runs the jobs of a role that has none any more; '
  'deletes the runs of a deleted job, and has its scheduler stop one under way.';

-- Triggers fire in the order of their names: first who, then what.
do $$
declare
  -- The end of every run writes when it began, which needs no check.
  v_columns text := (
    select string_agg(quote_ident(attname), ', ')
    from pg_attribute
    where attrelid = 'pgfresh.scheduled_jobs'::regclass and attnum > 0 and not attisdropped
      and attname <> 'last_run_at'
  );
begin
  execute format('create or replace trigger a_check_job_right before insert or delete or update of %s '
    'on pgfresh.scheduled_jobs for each row execute function pgfresh_engine.check_job_right()', v_columns);
  execute format('create or replace trigger b_complete_job before insert or update of %s '
    'on pgfresh.scheduled_jobs for each row execute function pgfresh_engine.complete_job()', v_columns);
end
$$;
create or replace trigger a_note_job_pause
  before insert or update of paused_until, paused_reason, paused_at, paused_by on pgfresh.scheduled_jobs
  for each row execute function pgfresh_engine.note_job_pause();
create or replace trigger c_forget_job after delete or update of owner, kind on pgfresh.scheduled_jobs
  for each row execute function pgfresh_engine.forget_job();

/*
  The owner of a function can replace its body and so do everything that the job's owner may do. So the owner of
  the function must be a role that could do that anyway. A function that runs with the rights of its own owner gives
  away no rights of the job's owner.

  Called by functions that run as the schema's owner, which is the role that pg_has_role checks.
*/
create or replace function pgfresh_engine.require_job_function(p_job pgfresh.scheduled_jobs) returns jsonb
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now jsonb;
  v_owner regrole;
  v_change text;
begin
  -- Usually nothing has changed: the same catalogue row is the same function, with the same owner and rights.
  -- Facts outside that row are checked here. Of a dropped role only its oid is left.
  if exists (
    select from pg_proc as f
    join pg_namespace as n on n.oid = f.pronamespace
    where f.oid = (p_job.resolution ->> 'function')::oid and f.xmin || ' ' || f.ctid = p_job.resolution ->> 'stamp'
      and n.nspname = p_job.resolution ->> 'schema'
      and (f.pronargs = 1 or p_job.params = '{}')
      and has_function_privilege(p_job.owner, f.oid, 'execute') and has_schema_privilege(p_job.owner, n.oid, 'usage')
  ) and pg_get_userbyid(p_job.owner) !~ '^unknown' and pg_has_role(p_job.owner, 'usage') then
    return p_job.resolution;
  end if;
  v_now := pgfresh_engine.resolve_job(p_job);
  v_owner := (v_now ->> 'owner')::oid;
  v_change := case
    -- By name: the same role has another oid on another server.
    when v_now -> 'owner_name' is distinct from p_job.resolution -> 'owner_name' then
      format('%s belongs to %s now, and to another role when the job was registered', v_now ->> 'signature', v_owner)
    when v_now -> 'body' is distinct from p_job.resolution -> 'body'
      and not (v_now -> 'definer')::boolean and not pgfresh_engine.can_act_as(v_owner, p_job.owner) then
      format('%s was changed by %s, who could not do as %s', v_now ->> 'signature', v_owner, p_job.owner)
  end;
  if v_change is not null then
    perform pgfresh_engine.refuse('PGF_JOB_INVALID', v_change,
      format('See whether the change is meant, then accept it: '
        'update pgfresh.scheduled_jobs set name = name where name = %L;', p_job.name));
  end if;
  return v_now;
end
$$;
comment on function pgfresh_engine.require_job_function(pgfresh.scheduled_jobs) is
  'What the function of a job is now, as resolve_job returns it; refuses it if it cannot be called, '
  'or was changed since the job was registered in a way that matters.';

create or replace function pgfresh_engine.job_problem(p_job pgfresh.scheduled_jobs)
returns table (problem text, next_step text)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if p_job.kind = 'sql' then
    perform pgfresh_engine.require_job_function(p_job);
  end if;
exception when sqlstate 'PGF01' then
  get stacked diagnostics problem = message_text, next_step = pg_exception_hint;
  problem := regexp_replace(problem, '^PGF_[A-Z_]+: ', '');
  return next;
end
$$;
comment on function pgfresh_engine.job_problem(pgfresh.scheduled_jobs) is
  'Why a job cannot run now, and what to do; no row if it can. '
  'What only a scheduler can see is in the column problem.';
grant execute on function pgfresh_engine.job_problem(pgfresh.scheduled_jobs) to
  pgfresh_worker, pgfresh_planner, pgfresh_gateway, pgfresh_monitor, pgfresh_operator, pgfresh_scheduler;

create or replace function pgfresh_engine.renew_jobs() returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  -- What changes when a function is restored from a dump.
  v_numbers constant text[] := '{function, stamp, owner}';
  v_job pgfresh.scheduled_jobs;
  v_now jsonb;
begin
  for v_job in select * from pgfresh.scheduled_jobs where kind = 'sql' order by id loop
    begin
      v_now := pgfresh_engine.resolve_job(v_job);
      if v_now - v_numbers = v_job.resolution - v_numbers then
        update pgfresh.scheduled_jobs set resolution = v_now where id = v_job.id;
      end if;
    -- Its function is gone or does not fit; job_problem says why.
    exception when sqlstate 'PGF01' then null;
    end;
  end loop;
end
$$;
comment on function pgfresh_engine.renew_jobs() is
  'Notes under which numbers the functions of jobs are found now, where they are as they were registered. '
  'A part of follow_restore.';

create or replace function pgfresh_engine.require_job_right(p_name text, p_caller name)
returns pgfresh.scheduled_jobs
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_job pgfresh.scheduled_jobs;
  v_me oid := quote_ident(p_caller)::regrole;
begin
  select * into v_job from pgfresh.scheduled_jobs where name = p_name collate "C";
  if not found then
    perform pgfresh_engine.refuse('PGF_JOB_UNKNOWN',
      format('there is no job %s', coalesce(left(quote_literal(p_name), 80), 'null')),
      'The known ones: select name from pgfresh.scheduled_jobs.');
  end if;
  if not pgfresh_engine.can_act_as(v_me, v_job.owner)
      and not pgfresh_engine.can_act_as(v_me, (select nspowner from pg_namespace where nspname = 'pgfresh'))
      and not pg_has_role(v_me, 'pgfresh_operator', 'usage') then
    perform pgfresh_engine.refuse('PGF_JOB_RIGHT',
      format('the job %s belongs to %s, and %s is not a member of that role', v_job.name, v_job.owner, v_me::regrole),
      format('Ask %s, or an administrator.', v_job.owner));
  end if;
  return v_job;
end
$$;
comment on function pgfresh_engine.require_job_right(text, name) is
  'A job by its name. Refuses one that is not there, and one that the caller may not decide about: '
  'they must be a member of its owner, of the schema''s owner, or of pgfresh_operator.';
