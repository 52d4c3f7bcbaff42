/*
  Rows of data types with row security, as a viewer sees them. A function that belongs to the viewer's role reads them,
  not "set role": policies could reset that, and would go on with the rights of the connection.

  Everything is read in a subtransaction that is rolled back; the result is kept in variables, which survive
  that. So nothing that a policy sets, declares or listens to reaches the next viewer.
*/
create or replace function pgfresh_engine.viewer_role_problem(p_role text) returns table (problem text, next_step text)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_owner oid := (select nspowner from pg_namespace where nspname = 'pgfresh');
  v_role record;
begin
  select r.oid, r.rolname, r.rolsuper, r.rolbypassrls into v_role from pg_roles as r where r.rolname = p_role;
  if not found then
    problem := format('there is no role %s', coalesce(left(quote_literal(p_role), 80), 'null'));
    next_step := coalesce(
      'Those that viewers may have: ' || (
        select string_agg(r.rolname, ', ' order by r.rolname)
        from pg_roles as r
        where pg_has_role(r.oid, 'pgfresh_viewer', 'member') and not r.rolsuper and not r.rolbypassrls
          and r.rolname <> 'pgfresh_viewer'
      ) || '.',
      'Create it, or correct gateway.rls of the configuration.');
  elsif v_role.rolsuper or v_role.rolbypassrls or pgfresh_engine.can_act_as(v_role.oid, v_owner) then
    problem := format('row security does not hold for the role %I', v_role.rolname);
    next_step := format('Use a role that is no superuser, has no BYPASSRLS and is no member of %s.', v_owner::regrole);
  elsif not pg_has_role(v_role.oid, 'pgfresh_viewer', 'member') then
    problem := format('the role %I is not one of viewers', v_role.rolname);
    next_step := format('Run: grant pgfresh_viewer to %I;', v_role.rolname);
  elsif not (pg_has_role(v_owner, v_role.oid, 'usage') and pgfresh_engine.can_act_as(v_owner, v_role.oid)) then
    problem := format('pgfresh may not read as the role %I', v_role.rolname);
    next_step := format('Run as an administrator: grant %I to %s;', v_role.rolname, v_owner::regrole);
  else
    return;
  end if;
  return next;
end
$$;
comment on function pgfresh_engine.viewer_role_problem(text) is
  'Why a role cannot be used to read rows, and what to do; no row if it can.';
grant execute on function pgfresh_engine.viewer_role_problem(text) to
  pgfresh_worker, pgfresh_planner, pgfresh_gateway, pgfresh_monitor, pgfresh_operator;

create or replace function pgfresh_engine.admit_viewer_role(p_role text) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_role oid := (select oid from pg_roles where rolname = p_role);
  v_number int;
  v_signature text;
  v_lends boolean;
begin
  perform pgfresh_engine.require_primary();
  perform pgfresh_engine.refuse('PGF_LIVE_ROLE', p.problem, p.next_step)
    from pgfresh_engine.viewer_role_problem(p_role) as p;
  for v_turn in 1..2 loop
    -- Its owner may have altered it.
    if exists (
      select from pg_proc
      where oid = to_regprocedure(
          format('pgfresh_engine.read_as_%s(text, text[])', pgfresh_engine.role_number(v_role)))
        and proowner = v_role and prosecdef and not proisstrict and provolatile = 's'
        and proconfig = array['search_path=pg_catalog, public, pg_temp', 'plan_cache_mode=auto', 'enable_seqscan=on']
        -- A role that was renamed since needs another text.
        and strpos(prosrc, format('%L::pg_catalog.name', p_role)) > 0
        and has_function_privilege(current_user, oid, 'execute')
    ) then
      return;
    end if;
    -- Another transaction may be creating it: wait for that one, then look again.
    lock table pgfresh_engine.change_epoch in share update exclusive mode;
  end loop;
  v_number := pgfresh_engine.number_role(v_role);
  v_signature := format('pgfresh_engine.read_as_%s(text, text[])', v_number);
  execute format('drop function if exists %s', v_signature);
  execute format($create$
    create function pgfresh_engine.read_as_%s(p_sql text, p_keys text[])
    returns table (key text, rows text, fetched_at timestamptz, ttl interval)
    language plpgsql stable security definer
    set search_path = pg_catalog, public, pg_temp
    set plan_cache_mode = auto
    set enable_seqscan = on
    as %L $create$,
    v_number,
    -- Its text is quoted as a whole: a role may have any name.
    format($read$
    #variable_conflict use_column
    begin
      if current_user operator(pg_catalog.<>) %L::pg_catalog.name then
        raise exception using errcode = '42501',
          message = 'this function was altered, and does not run as its owner any more';
      end if;
      return query execute p_sql using p_keys;
    end
    $read$, p_role));
  execute format('comment on function %s is %L', v_signature,
    'Reads rows as one role of viewers. Written when the first of them looks.');
  execute format('revoke all on function %s from public', v_signature);
  -- The new owner needs the right to create here while it becomes the owner.
  v_lends := not has_schema_privilege(v_role, 'pgfresh_engine', 'create')
    and not (select rolsuper from pg_roles where rolname = current_user);
  if v_lends then
    execute format('grant create on schema pgfresh_engine to %I', p_role);
  end if;
  execute format('alter function %s owner to %I', v_signature, p_role);
  if v_lends then
    execute format('revoke create on schema pgfresh_engine from %I', p_role);
  end if;
  execute format('revoke all on function %s from public', v_signature);
  execute format('grant execute on function %s to %I', v_signature, current_user);
end
$$;
comment on function pgfresh_engine.admit_viewer_role(text) is
  'Makes the function that reads rows as a role, if it is not there as it was made. The role must be a member of '
  'pgfresh_viewer; refuses a role that cannot be used to read rows.';
grant execute on function pgfresh_engine.admit_viewer_role(text) to pgfresh_gateway;

create or replace function pgfresh_engine.ask_rows_as(p_role oid, p_user_id text, p_claims text, p_sql text,
  p_keys text[])
returns table (key text, rows text, fetched_at timestamptz, ttl interval)
-- Stable, so that it reads by the snapshot of the statement that calls it.
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_keys text[]; v_rows text[]; v_at timestamptz[]; v_ttl interval[];
begin
  begin
    perform set_config('transaction_read_only', 'on', true),
      set_config('pgfresh.user_id', p_user_id, true), set_config('request.jwt.claims', p_claims, true),
      -- Older versions of PostgREST set these; a policy must not find values of another user here.
      set_config('request.jwt.claim.sub', '', true), set_config('request.jwt.claim.role', '', true);
    execute format(
        'select array_agg(r.key), array_agg(r.rows), array_agg(r.fetched_at), array_agg(r.ttl) '
        'from pgfresh_engine.read_as_%s($1, $2) as r', pgfresh_engine.role_number(p_role))
      into v_keys, v_rows, v_at, v_ttl using p_sql, p_keys;
    raise exception using errcode = 'PGF00', message = 'this is undone';
  exception
    when sqlstate 'PGF00' then
      if v_keys is null and cardinality(p_keys) > 0 then
        raise;
      end if;
    -- The viewer may not read the table, or something that its policies call: treated as no rows.
    when insufficient_privilege then
      v_keys := p_keys;
  end;
  -- The only session state that a rollback leaves.
  perform pg_advisory_unlock_all();
  return query select r.* from unnest(v_keys, v_rows, v_at, v_ttl) as r;
end
$$;
comment on function pgfresh_engine.ask_rows_as(oid, text, text, text, text[]) is
  'Reads rows as a viewer, and leaves nothing of that behind. A part of read_pairs_as.';

create or replace function pgfresh_engine.read_pairs_as(
  p_role text, p_user_id text, p_claims jsonb, p_type_id int, p_keys text[])
returns table (
  version text, snapshot text, key text, rows text, fetched_at timestamptz, stale_at timestamptz,
  source_at timestamptz, state text, activity text, reason text, failing boolean, as_of timestamptz
)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
-- Formats times in the rows the same way for every session.
set timezone = 'UTC'
as $$
#variable_conflict use_column
declare
  v_type pgfresh.data_type_registry := pgfresh_engine.require_readable(p_type_id, p_keys);
  v_role oid := (select oid from pg_roles where rolname = p_role);
  v_sql text;
begin
  if v_type.visibility <> 'rls' then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      format('the rows of %s are the same for everybody', v_type.data_type),
      'Read them with read_pairs.');
  end if;
  if p_user_id is null or p_claims is null or jsonb_typeof(p_claims) <> 'object' then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      format('p_user_id must not be null and p_claims must be an object, got %s',
        coalesce(jsonb_typeof(p_claims), 'null')),
      'Pass the user who views, and the claims of their token.');
  end if;
  perform pgfresh_engine.admit_viewer_role(p_role);
  v_sql := (select r.rows_sql from pgfresh_engine.type_resolution as r where r.type_id = p_type_id);
  -- As in read_pairs. A viewer who sees no row does not learn when it was fetched; no viewer learns why it waits.
  return query
    select s.version, s.snapshot, a.key, '[' || coalesce(a.rows, '') || ']', a.fetched_at,
      case when t.state = 'empty' then (p.pair).empty_at + coalesce(v_type.empty_ttl, v_type.ttl) else t.stale_at end,
      case when a.rows is not null then (p.pair).source_at end, t.state,
      case when j.state = 'x' then 'refreshing' when j.state is not null then 'waiting' else 'idle' end,
      case when j.state in ('r', 'w') then 'queued' end,
      coalesce((p.pair).fails > 0 or j.retries > 0, false), s.as_of
    from (
      select pgfresh.clock() as as_of, pgfresh_engine.version_of(pg_current_snapshot()) as version,
        pg_current_snapshot()::text as snapshot
      offset 0
    ) as s
    cross join pgfresh_engine.ask_rows_as(v_role, p_user_id, p_claims::text, v_sql, p_keys) as a
    cross join lateral (
      select (select p from pgfresh_engine.pairs as p where p.type_id = p_type_id and p.key = a.key collate "C") as pair
      offset 0
    ) as p
    left join lateral (
      select j.state, j.retries from pgfresh_engine.job as j where j.id = (p.pair).job_id
    ) as j on true
    cross join lateral (
      select u.stale_at,
        case
          when a.rows is null then 'missing'
          else pgfresh_engine.state_of(p.pair, true, a.fetched_at, u.stale_at,
            coalesce(v_type.empty_ttl, v_type.ttl), v_type.max_source_age, s.as_of)
        end as state
      from (
        select case
          when a.rows is null then null
          -- The viewer may see only some rows, so this uses what the planner knows of all of them.
          when (p.pair).row_at is not null then (p.pair).stale_at
          when a.fetched_at is not null then least(a.fetched_at, '9999-12-31') + coalesce(a.ttl, v_type.ttl)
        end as stale_at
      ) as u
      offset 0
    ) as t;
  -- Checked again, by a later snapshot: the role may have gained the right to see all rows between check and read.
  perform pgfresh_engine.refuse('PGF_LIVE_ROLE', p.problem, p.next_step)
    from pgfresh_engine.viewer_role_problem(p_role) as p;
end
$$;
comment on function pgfresh_engine.read_pairs_as(text, text, jsonb, int, text[]) is
  'The rows and the state of pairs of a data type with row security, as a user sees them: '
  'read with the rights of a role that is a member of pgfresh_viewer, with the user in the setting pgfresh.user_id '
  'and what the token says in request.jwt.claims. A user who sees no row is told nothing of one. '
  'Versions are those of read_pairs. Advisory locks of the session are released.';
grant execute on function pgfresh_engine.read_pairs_as(text, text, jsonb, int, text[]) to pgfresh_gateway;
