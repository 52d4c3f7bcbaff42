-- Never uses the search path: a name without a schema is in public, for all roles.
create or replace function pgfresh_engine.split_name(p_column text, p_name text) returns text[]
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_parts text[] := string_to_array(p_name, '.');
begin
  if cardinality(v_parts) = 1 then
    v_parts := array['public'] || v_parts;
  end if;
  if cardinality(v_parts) is distinct from 2
      or not pgfresh.is_valid_identifier(v_parts[1]) or not pgfresh.is_valid_identifier(v_parts[2])
      or v_parts[1] ~ '^pg_' then
    perform pgfresh_engine.refuse('PGF_REGISTRY_INVALID',
      format('%s %s is not a name', p_column, coalesce(left(quote_literal(p_name), 80), 'null')),
      'Expected letters, digits and underscores, at most 63, with the schema and a dot before it if it is not public.');
  end if;
  return v_parts;
end
$$;
comment on function pgfresh_engine.split_name(text, text) is
  'Schema and name of something that the registry names; refuses what cannot be one.';

create or replace function pgfresh_engine.find_table(
  p_column text, p_name text, p_may_grant boolean, out id oid, out mark text)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_parts text[] := pgfresh_engine.split_name(p_column, p_name);
  v_table record;
begin
  if v_parts[1] in ('pgfresh', 'pgfresh_engine') then
    perform pgfresh_engine.refuse('PGF_REGISTRY_INVALID',
      format('%s: %I.%I is a table of pgfresh itself', p_column, v_parts[1], v_parts[2]),
      'Name a table of your own.');
  end if;
  -- From the catalog instead of a cast to regclass, which raises if the schema's owner lacks usage on the table's
  -- schema; only the evaluator needs it.
  select c.oid, c.relrowsecurity, c.relnamespace as schema, c.relkind
  into v_table
  from pg_namespace as n
  join pg_class as c on c.relnamespace = n.oid and c.relname = v_parts[2]
  where n.nspname = v_parts[1] and c.relkind in ('r', 'p', 'v', 'm', 'f');
  if not found then
    perform pgfresh_engine.refuse('PGF_REGISTRY_INVALID',
      format('%s: there is no table %I.%I', p_column, v_parts[1], v_parts[2]),
      format('Create it, or correct %s.', p_column));
  end if;
  if not has_schema_privilege('pgfresh_evaluator', v_table.schema, 'usage')
      or not has_table_privilege('pgfresh_evaluator', v_table.oid, 'select') then
    begin
      if p_may_grant then
        execute format('grant usage on schema %I to pgfresh_evaluator', v_parts[1]);
        execute format('grant select on %I.%I to pgfresh_evaluator', v_parts[1], v_parts[2]);
      end if;
    exception when insufficient_privilege then null;
    end;
    -- GRANT without the right to grant only warns.
    if not has_schema_privilege('pgfresh_evaluator', v_table.schema, 'usage')
        or not has_table_privilege('pgfresh_evaluator', v_table.oid, 'select') then
      perform pgfresh_engine.refuse('PGF_REGISTRY_INVALID',
        format('%s: the planner may not read %I.%I', p_column, v_parts[1], v_parts[2]),
        format('Run: grant usage on schema %1$I to pgfresh_evaluator; grant select on %1$I.%2$I to pgfresh_evaluator;',
          v_parts[1], v_parts[2]));
    end if;
  end if;
  -- A policy for all roles may hide all rows from the planner, and they would seem missing. So there must be a policy
  -- for the planner itself.
  if v_table.relrowsecurity
      and not (select rolbypassrls or rolsuper from pg_roles where rolname = 'pgfresh_evaluator')
      and not exists (
        select from pg_policy
        where polrelid = v_table.oid and polpermissive and polcmd in ('r', '*')
          and 'pgfresh_evaluator'::regrole = any (polroles)
      ) then
    perform pgfresh_engine.refuse('PGF_REGISTRY_INVALID',
      format('%s: row security hides the rows of %I.%I from the planner', p_column, v_parts[1], v_parts[2]),
      format('Run: create policy pgfresh on %I.%I for select to pgfresh_evaluator using (true);',
        v_parts[1], v_parts[2]));
  end if;
  id := v_table.oid;
  -- By name and kind: oids differ in a database restored from a dump.
  mark := case v_table.relkind
    when 'v' then 'view' when 'm' then 'materialized view' when 'f' then 'foreign table' else 'table'
  end || ' ' || id::regclass;
end
$$;
comment on function pgfresh_engine.find_table(text, text, boolean) is
  'The table that a column of the registry names, and by what it is recognised: its name and its kind. '
  'Refuses one that is not there or that the planner cannot read.';

create or replace function pgfresh_engine.find_column(p_column text, p_table oid, p_name text) returns oid
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_type oid;
begin
  if pgfresh.is_valid_identifier(p_name) then
    select atttypid
    into v_type
    from pg_attribute
    where attrelid = p_table and attname = p_name and attnum > 0 and not attisdropped;
  end if;
  if v_type is null then
    perform pgfresh_engine.refuse('PGF_REGISTRY_INVALID',
      format('%s: the table %s has no column %s',
        p_column, p_table::regclass, coalesce(left(quote_literal(p_name), 80), 'null')),
      format('Its columns: %s.', (
        select string_agg(attname, ', ' order by attnum)
        from pg_attribute
        where attrelid = p_table and attnum > 0 and not attisdropped
      )));
  end if;
  return v_type;
end
$$;
comment on function pgfresh_engine.find_column(text, oid, text) is
  'The type of a column that the registry names; refuses one that is not there.';

create or replace function pgfresh_engine.find_function(
  p_column text, p_name text, p_returns regtype, p_signatures text[], out id oid, out mark jsonb)
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_parts text[] := pgfresh_engine.split_name(p_column, p_name);
  v_function record;
begin
  select f.oid, f.pronamespace as schema, f.proowner as owner
  into v_function
  from unnest(p_signatures) with ordinality as s(arguments, place)
  join pg_proc as f on f.proname = v_parts[2] and oidvectortypes(f.proargtypes) = s.arguments
    and f.prorettype = p_returns and f.prokind = 'f' and not f.proretset
  join pg_namespace as n on n.oid = f.pronamespace
    and (n.nspname = v_parts[1] or (n.nspname = 'pgfresh' and position('.' in p_name) = 0))
  order by n.nspname = 'pgfresh', s.place
  limit 1;
  if not found then
    perform pgfresh_engine.refuse('PGF_REGISTRY_INVALID',
      format('%s: there is no function %I.%I (%s) that returns %s',
        p_column, v_parts[1], v_parts[2], array_to_string(p_signatures, ') or ('), p_returns),
      format('Create it, or correct %s.', p_column));
  end if;
  if not has_function_privilege('pgfresh_evaluator', v_function.oid, 'execute')
      or not has_schema_privilege('pgfresh_evaluator', v_function.schema, 'usage') then
    perform pgfresh_engine.refuse('PGF_REGISTRY_INVALID',
      format('%s: the planner may not call %s', p_column, v_function.oid::regprocedure),
      format('Run: grant usage on schema %s to pgfresh_evaluator; grant execute on function %s to pgfresh_evaluator;',
        v_function.schema::regnamespace, v_function.oid::regprocedure));
  end if;
  id := v_function.oid;
  -- Our functions may change with a new version of pgfresh. A user's function must be the registered one.
  mark := jsonb_build_object('signature', id::regprocedure::text, 'owner', v_function.owner::regrole::text,
    'body', case
      when v_function.schema not in ('pgfresh'::regnamespace, 'pgfresh_engine'::regnamespace)
        then md5(pg_get_functiondef(id))
    end);
end
$$;
comment on function pgfresh_engine.find_function(text, text, regtype, text[]) is
  'A function that the registry names, by the arguments it may have, and by what it is recognised: its signature, its '
  'owner and a hash of its definition. Refuses one that is not there.';
