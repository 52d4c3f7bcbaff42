create or replace function pgfresh.is_valid_identifier(p_identifier text) returns boolean
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$ select coalesce(p_identifier ~ '^[A-Za-z_][A-Za-z0-9_]*$' and octet_length(p_identifier) <= 63, false) $$;
comment on function pgfresh.is_valid_identifier(text) is
  'Whether a text can be the name of a table, column or function in the registry: letters, digits and underscores, at most 63, no dot.';

create or replace function pgfresh.is_data_stale(p_fetched_at timestamptz, p_ttl interval) returns boolean
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  if p_ttl is null or p_ttl <= interval '0' then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID', format('a TTL must be positive, got %s', coalesce(p_ttl::text, 'null')), 'Pass the TTL of the registry.');
  end if;
  return p_fetched_at is null or p_fetched_at + p_ttl <= pgfresh.clock();
end
$$;
comment on function pgfresh.is_data_stale(timestamptz, interval) is
  'Whether data of that time is older than its TTL. No time at all is stale. The TTL has no default and must be positive.';

create or replace function pgfresh.is_data_stale(p_fetched_at timestamptz, p_ttl_minutes int) returns boolean
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  if p_ttl_minutes is null or p_ttl_minutes <= 0 then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID', format('a TTL must be positive, got %s', coalesce(p_ttl_minutes::text, 'null')), 'Pass the TTL of the registry.');
  end if;
  return pgfresh.is_data_stale(p_fetched_at, make_interval(mins => p_ttl_minutes));
end
$$;
comment on function pgfresh.is_data_stale(timestamptz, int) is 'The same with the TTL in minutes.';

create or replace function pgfresh.refuse_registry(p_message text, p_hint text) returns void
language sql
set search_path = pg_catalog, pg_temp
as $$ select pgfresh.refuse('PGF_REGISTRY_INVALID', p_message, p_hint) $$;
comment on function pgfresh.refuse_registry(text, text) is 'Refuses a row of the registry.';

-- Never by the search path: a name has its schema, or one that is the same for everybody.
create or replace function pgfresh.split_name(p_column text, p_name text) returns text[]
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_parts text[] := string_to_array(p_name, '.');
begin
  if cardinality(v_parts) = 1 then
    v_parts := array['public'] || v_parts;
  end if;
  if cardinality(v_parts) is distinct from 2 or not pgfresh.is_valid_identifier(v_parts[1]) or not pgfresh.is_valid_identifier(v_parts[2]) or v_parts[1] ~ '^pg_' then
    perform pgfresh.refuse_registry(format('%s %s is not a name', p_column, coalesce(left(quote_literal(p_name), 80), 'null')),
      'Expected letters, digits and underscores, at most 63, with the schema and a dot before it if it is not public.');
  end if;
  return v_parts;
end
$$;
comment on function pgfresh.split_name(text, text) is 'Schema and name of something that the registry names; refuses what can not be one.';

create or replace function pgfresh.find_table(p_column text, p_name text, p_may_grant boolean) returns oid
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_parts text[] := pgfresh.split_name(p_column, p_name);
  v_table record;
begin
  if v_parts[1] = 'pgfresh' then
    perform pgfresh.refuse_registry(format('%s: %I.%I is a table of pgfresh itself', p_column, v_parts[1], v_parts[2]), 'Name a table of your own.');
  end if;
  select c.oid, c.relrowsecurity, n.oid as schema into v_table from pg_class as c join pg_namespace as n on n.oid = c.relnamespace
    where n.nspname = v_parts[1] and c.relname = v_parts[2] and c.relkind in ('r', 'p', 'v', 'm', 'f');
  if not found then
    perform pgfresh.refuse_registry(format('%s: there is no table %I.%I', p_column, v_parts[1], v_parts[2]), format('Create it, or correct %s.', p_column));
  end if;
  if not has_schema_privilege('pgfresh_evaluator', v_table.schema, 'usage') or not has_table_privilege('pgfresh_evaluator', v_table.oid, 'select') then
    begin
      if p_may_grant then
        execute format('grant usage on schema %I to pgfresh_evaluator', v_parts[1]);
        execute format('grant select on %I.%I to pgfresh_evaluator', v_parts[1], v_parts[2]);
      end if;
    exception when insufficient_privilege then null;
    end;
    -- Granting without the right to only warns.
    if not has_schema_privilege('pgfresh_evaluator', v_table.schema, 'usage') or not has_table_privilege('pgfresh_evaluator', v_table.oid, 'select') then
      perform pgfresh.refuse_registry(format('%s: the planner may not read %I.%I', p_column, v_parts[1], v_parts[2]),
        format('Run: grant usage on schema %1$I to pgfresh_evaluator; grant select on %1$I.%2$I to pgfresh_evaluator;', v_parts[1], v_parts[2]));
    end if;
  end if;
  -- A policy for everybody may show the planner nothing, and all rows would seem to be missing. So it must be one for the planner.
  if v_table.relrowsecurity and not (select rolbypassrls or rolsuper from pg_roles where rolname = 'pgfresh_evaluator')
    and not exists (select from pg_policy where polrelid = v_table.oid and polpermissive and polcmd in ('r', '*') and 'pgfresh_evaluator'::regrole = any (polroles)) then
    perform pgfresh.refuse_registry(format('%s: row security hides the rows of %I.%I from the planner', p_column, v_parts[1], v_parts[2]),
      format('Run: create policy pgfresh on %I.%I for select to pgfresh_evaluator using (true);', v_parts[1], v_parts[2]));
  end if;
  return v_table.oid;
end
$$;
comment on function pgfresh.find_table(text, text, boolean) is 'The table that a column of the registry names; refuses one that is not there or that the planner can not read.';

create or replace function pgfresh.find_column(p_column text, p_table oid, p_name text) returns oid
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_type oid;
begin
  if pgfresh.is_valid_identifier(p_name) then
    select atttypid into v_type from pg_attribute where attrelid = p_table and attname = p_name and attnum > 0 and not attisdropped;
  end if;
  if v_type is null then
    perform pgfresh.refuse_registry(format('%s: the table %s has no column %s', p_column, p_table::regclass, coalesce(left(quote_literal(p_name), 80), 'null')),
      format('Its columns: %s.', (select string_agg(attname, ', ' order by attnum) from pg_attribute where attrelid = p_table and attnum > 0 and not attisdropped)));
  end if;
  return v_type;
end
$$;
comment on function pgfresh.find_column(text, oid, text) is 'The type of a column that the registry names; refuses one that is not there.';

create or replace function pgfresh.find_function(p_column text, p_name text, p_returns regtype, variadic p_signatures text[]) returns oid
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_parts text[] := pgfresh.split_name(p_column, p_name);
  v_function record;
begin
  select f.oid, f.pronamespace as schema into v_function from unnest(p_signatures) with ordinality as s(arguments, place)
    join pg_proc as f on f.proname = v_parts[2] and oidvectortypes(f.proargtypes) = s.arguments and f.prorettype = p_returns and f.prokind = 'f' and not f.proretset
    join pg_namespace as n on n.oid = f.pronamespace and (n.nspname = v_parts[1] or (n.nspname = 'pgfresh' and position('.' in p_name) = 0))
    order by n.nspname = 'pgfresh', s.place limit 1;
  if not found then
    perform pgfresh.refuse_registry(format('%s: there is no function %I.%I (%s) that returns %s', p_column, v_parts[1], v_parts[2], array_to_string(p_signatures, ') or ('), p_returns),
      format('Create it, or correct %s.', p_column));
  end if;
  if not has_function_privilege('pgfresh_evaluator', v_function.oid, 'execute') or not has_schema_privilege('pgfresh_evaluator', v_function.schema, 'usage') then
    perform pgfresh.refuse_registry(format('%s: the planner may not call %s', p_column, v_function.oid::regprocedure),
      format('Run: grant usage on schema %s to pgfresh_evaluator; grant execute on function %s to pgfresh_evaluator;', v_function.schema::regnamespace, v_function.oid::regprocedure));
  end if;
  return v_function.oid;
end
$$;
comment on function pgfresh.find_function(text, text, regtype, text[]) is 'A function that the registry names, by the arguments it may have; refuses one that is not there.';

-- Ours may change with a new version of pgfresh. A user's is the one that was registered, or it is not called.
create or replace function pgfresh.function_mark(p_function oid) returns jsonb
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select jsonb_build_object('signature', oid::regprocedure::text, 'owner', proowner::regrole::text,
    'body', case when pronamespace <> 'pgfresh'::regnamespace then md5(pg_get_functiondef(oid)) end)
  from pg_proc where oid = p_function
$$;
comment on function pgfresh.function_mark(oid) is 'By what a function is recognised: its signature, its owner and a hash of its definition.';

/*
  What the names of a registry row mean now, and the statements that are made of them; refuses a row with which that does not work.
  Every name in a statement was looked up in the catalog before and is quoted.
*/
create or replace function pgfresh.resolve_type(p_type pgfresh.data_type_registry, p_may_grant boolean) returns pgfresh.type_resolution
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_resolution pgfresh.type_resolution;
  v_table oid := pgfresh.find_table('table_name', p_type.table_name, p_may_grant);
  v_from text := v_table::regclass::text;
  v_types text[] := '{}';
  v_type oid;
  v_is_key text;
  v_ttl text := '$4';
  v_function oid := pgfresh.find_function('staleness_function', p_type.staleness_function, 'boolean', 'timestamp with time zone, interval', 'timestamp with time zone, integer');
  v_by_minutes boolean := (select proargtypes[1] = 'integer'::regtype from pg_proc where oid = v_function);
  v_own boolean;
  v_text boolean;
  v_stale text;
  v_newest text;
  v_marks jsonb := jsonb_build_object('staleness_function', pgfresh.function_mark(v_function));
  v_column text;
  v_gate oid;
  v_keys oid;
  v_key_type oid;
  v_active text := '';
begin
  foreach v_column in array p_type.key_columns loop
    -- With -1, because char and bit without a length have the length 1.
    v_types := v_types || format_type(pgfresh.find_column('key_columns', v_table, v_column), -1);
  end loop;
  if cardinality(p_type.key_columns) <> (select count(distinct name) from unnest(p_type.key_columns) as name) then
    perform pgfresh.refuse_registry('key_columns names a column twice', 'Name each column of the key once.');
  end if;
  select string_agg(format('x.%I = %s::%s', k.name, case when cardinality(v_types) = 1 then 'k.key' else format('split_part(k.key, ''|'', %s)', k.place) end, v_types[k.place]), ' and ' order by k.place)
    into v_is_key from unnest(p_type.key_columns) with ordinality as k(name, place);

  v_type := pgfresh.find_column('timestamp_column', v_table, p_type.timestamp_column);
  if v_type <> 'timestamptz'::regtype then
    perform pgfresh.refuse_registry(format('timestamp_column: %I of %s is %s, expected timestamp with time zone', p_type.timestamp_column, v_from, format_type(v_type, null)),
      format('Run: alter table %s alter column %I type timestamptz;', v_from, p_type.timestamp_column));
  end if;
  if p_type.ttl_column is not null then
    v_type := pgfresh.find_column('ttl_column', v_table, p_type.ttl_column);
    if v_type = 'interval'::regtype then
      v_ttl := format('coalesce(x.%I, $4)', p_type.ttl_column);
    elsif v_type in ('smallint'::regtype, 'integer'::regtype, 'bigint'::regtype) then
      v_ttl := format('coalesce(make_interval(mins => x.%I::int), $4)', p_type.ttl_column);
    else
      perform pgfresh.refuse_registry(format('ttl_column: %I of %s is %s, expected interval or integer (minutes)', p_type.ttl_column, v_from, format_type(v_type, null)),
        'Use another column, or change its type.');
    end if;
    v_types := v_types || format_type(v_type, null);
  end if;
  if v_by_minutes and p_type.ttl <> date_trunc('minute', p_type.ttl) then
    perform pgfresh.refuse_registry(format('ttl: %s counts whole minutes, got %s', v_function::regprocedure, p_type.ttl), 'Give the function an interval as its second argument, or round the ttl.');
  end if;
  v_own := v_function = 'pgfresh.is_data_stale(timestamptz, interval)'::regprocedure;
  -- What the last outcome has told counts as if the row had been written then; for planning only.
  v_stale := case
    when v_own then
      'case when t.ttl > interval ''0'' then t.known + t.ttl <= $5 else pgfresh.is_data_stale(t.known, t.ttl) end'
    -- A single row's TTL of 0 or less is refused whoever is asked; less than a minute is one for those who count minutes.
    else format('case when t.ttl > interval ''0'' then %s(t.known, %s) else pgfresh.is_data_stale(t.known, t.ttl) end', v_function::regproc,
      case when v_by_minutes then 'ceil(extract(epoch from t.ttl) / 60)::int' else 't.ttl' end) end;
  v_text := cardinality(v_types) = 1 and v_types[1] in ('text', 'character varying');
  /*
    Texts are looked up all at once, for half of what it costs one by one; other types of keys have several spellings of one value.
    Where the plan is ours to choose, see write_check, and a key has one row, that row is joined to it. Else they are put together without
    a join: planned for any number of keys, that could be a loop over both sides.
  */
  v_newest := case
    when v_text and v_own and exists (select from pg_index as i join pg_attribute as a on a.attrelid = i.indrelid and a.attnum = i.indkey[0]
        where i.indrelid = v_table and i.indisunique and i.indisvalid and i.indimmediate and i.indnkeyatts = 1 and i.indpred is null and a.attname = p_type.key_columns[1]) then
      format('select k.key, x.%1$I is not null as found, x.%2$I as at, greatest(x.%2$I, k.checked_at) as known, k.due_at, $4 as ttl from unnest($1, $2, $3) as k(key, checked_at, due_at) '
        'left join (select x.%1$I, x.%2$I from %3$s as x where x.%1$I = any ($1)) as x on x.%1$I = k.key', p_type.key_columns[1], p_type.timestamp_column, v_from)
    when v_text then
      format('select n.key, bool_or(n.found) as found, max(n.at) as at, greatest(max(n.at), max(n.checked_at)) as known, max(n.due_at) as due_at, $4 as ttl from ('
        'select k.key collate "C" as key, false as found, null::timestamptz as at, k.checked_at, k.due_at from unnest($1, $2, $3) as k(key, checked_at, due_at) '
        'union all select x.%1$I::text collate "C", true, x.%2$I, null, null from %3$s as x where x.%1$I = any ($1)) as n group by n.key',
        p_type.key_columns[1], p_type.timestamp_column, v_from)
    else
      format('select k.key, r.found is true as found, r.at, greatest(r.at, k.checked_at) as known, k.due_at, coalesce(r.ttl, $4) as ttl from unnest($1, $2, $3) as k(key, checked_at, due_at) '
        'left join lateral (select true as found, x.%1$I as at, %2$s as ttl from %3$s as x where %4$s order by x.%1$I desc nulls last limit 1) as r on true',
        p_type.timestamp_column, v_ttl, v_from, v_is_key) end;
  -- Most are fresh, and due when they were said to be. Nobody need hear of those.
  v_resolution.check_sql := format('select c.* from (select t.key, t.found, t.known is null or coalesce(%s, true) as stale, t.known + t.ttl as next_at, t.at, t.due_at from (%s) as t offset 0) as c '
    'where c.stale or c.next_at is distinct from c.due_at', v_stale, v_newest);
  -- A subquery for each key and no join: a few keys are looked up by the index, whatever the statistics say.
  v_resolution.missing_sql := format('select k.key from unnest($1::text[]) as k(key) where (select true from %s as x where %s limit 1) is null', v_from, v_is_key);

  if p_type.gate_function is not null then
    v_gate := pgfresh.find_function('gate_function', p_type.gate_function, 'boolean', 'text, text');
    v_marks := v_marks || jsonb_build_object('gate_function', pgfresh.function_mark(v_gate));
    v_resolution.gate_sql := format('select k.key, %s(k.key, $2), null::timestamptz from unnest($1::text[]) as k(key)', v_gate::regproc);
    if p_type.gate_opens_function is not null then
      v_function := pgfresh.find_function('gate_opens_function', p_type.gate_opens_function, 'timestamptz', 'text, text');
      v_marks := v_marks || jsonb_build_object('gate_opens_function', pgfresh.function_mark(v_function));
      v_resolution.gate_sql := format('select k.key, g.open, case when not g.open then %s(k.key, $2) end from unnest($1::text[]) as k(key) cross join lateral (select %s(k.key, $2) as open) as g',
        v_function::regproc, v_gate::regproc);
    end if;
  end if;

  if p_type.key_table is not null then
    v_keys := pgfresh.find_table('key_table', p_type.key_table, p_may_grant);
    v_key_type := pgfresh.find_column('key_table_column', v_keys, p_type.key_table_column);
    if p_type.key_active_column is not null then
      v_type := pgfresh.find_column('key_active_column', v_keys, p_type.key_active_column);
      if v_type <> 'boolean'::regtype then
        perform pgfresh.refuse_registry(format('key_active_column: %I of %s is %s, expected boolean', p_type.key_active_column, v_keys::regclass, format_type(v_type, null)), 'Use a boolean column, or leave it out.');
      end if;
      v_active := format(' and x.%I', p_type.key_active_column);
    end if;
    v_resolution.keys_sql := format('select x.%1$I::text from %2$s as x where (case when $1 is null then x.%1$I is not null else x.%1$I > $1::%3$s end)%4$s order by x.%1$I limit $2',
      p_type.key_table_column, v_keys::regclass, format_type(v_key_type, -1), v_active);
    -- As text too: 7 and 007 are one number but would be two pairs, and be paid twice.
    v_resolution.unknown_sql := format('select k.key from unnest($1::text[]) as k(key) where (select true from %2$s as x where x.%1$I = k.key::%3$s and x.%1$I::text = k.key%4$s limit 1) is null',
      p_type.key_table_column, v_keys::regclass, format_type(v_key_type, -1), v_active);
    v_types := v_types || format_type(v_key_type, -1);
  end if;
  if p_type.key_pattern is not null then
    begin
      perform '' ~ p_type.key_pattern;
    exception when invalid_regular_expression then
      perform pgfresh.refuse_registry(format('key_pattern %s is not a regular expression: %s', left(quote_literal(p_type.key_pattern), 80), sqlerrm), 'Correct the pattern, for instance ^[A-Z]{1,5}$.');
    end;
  end if;

  v_resolution.type_id := p_type.type_id;
  v_resolution.tables := array_remove(array[v_table, v_keys], null);
  v_resolution.columns := array_remove(p_type.key_columns || array[p_type.timestamp_column, p_type.ttl_column, p_type.key_table_column, p_type.key_active_column], null);
  v_resolution.functions := array(select reverse(split_part(reverse(f), '.', 1))::name from unnest(array[p_type.staleness_function, p_type.gate_function, p_type.gate_opens_function]) as f where f is not null);
  v_resolution.fingerprint := v_marks || jsonb_build_object('table_name', v_table, 'key_table', v_keys, 'columns', v_types);
  return v_resolution;
end
$$;
comment on function pgfresh.resolve_type(pgfresh.data_type_registry, boolean) is 'Looks up what a registry row names; refuses it if that is missing or does not fit.';

/*
  Which versions of which rows of the catalog resolutions were made of, and what the evaluator may do with them. As long as these are
  the same, resolving again gives the same. Null where row security is on, because what that hides depends on more than these rows.
*/
create or replace function pgfresh.catalog_stamps(p_types int[]) returns table (type_id int, stamp text)
language plpgsql stable
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
begin
  return query select res.type_id, (
    select case when not bool_or(c.relrowsecurity) then string_agg(concat_ws(' ', c.oid, c.xmin, c.ctid, n.xmin, n.ctid,
      has_table_privilege('pgfresh_evaluator', c.oid, 'select'), has_schema_privilege('pgfresh_evaluator', n.oid, 'usage')), ',' order by c.oid) end
    from pg_class as c join pg_namespace as n on n.oid = c.relnamespace where c.oid = any (res.tables)
  ) || ';' || (
    select string_agg(concat_ws(' ', a.attrelid, a.xmin, a.ctid), ',' order by a.attrelid, a.attnum) from pg_attribute as a where a.attrelid = any (res.tables) and a.attname = any (res.columns)
  ) || ';' || (
    -- By name: one that is new may be meant from now on.
    select string_agg(concat_ws(' ', f.oid, f.xmin, f.ctid, has_function_privilege('pgfresh_evaluator', f.oid, 'execute'), has_schema_privilege('pgfresh_evaluator', f.pronamespace, 'usage')), ',' order by f.oid)
    from pg_proc as f where f.proname = any (res.functions)
  )
  from pgfresh.type_resolution as res where res.type_id = any (p_types);
end
$$;
comment on function pgfresh.catalog_stamps(int[]) is 'By what it is seen, for less than resolving costs, that what registry rows name has not changed.';

create or replace function pgfresh.complete_registry_row() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  -- By name or by number; the name decides if both are there and differ.
  if new.source is null or (tg_op = 'UPDATE' and new.source_id is distinct from old.source_id and new.source is not distinct from old.source) then
    select name into new.source from pgfresh.sources where id = new.source_id;
  else
    select id into new.source_id from pgfresh.sources where name = new.source;
  end if;
  if new.source_id is null then
    perform pgfresh.refuse_registry(format('source: there is no source %s', coalesce(left(quote_literal(new.source), 80), 'null')),
      coalesce('The known ones: ' || (select string_agg(name, ', ' order by name) from pgfresh.sources) || '.', 'Insert one into pgfresh.sources first.'));
  end if;
  new.fetcher := coalesce(new.fetcher, new.data_type);
  return new;
end
$$;
comment on function pgfresh.complete_registry_row() is 'Trigger of the registry: a source is given by its name.';

/*
  Whether pairs are stale is asked all the time, so each data type has a function of its own for it, whose plan is kept. It is made by the
  schema's owner, whoever writes the row, and runs with the rights of its caller, who is the evaluator.
*/
create or replace function pgfresh.write_check(p_type_id int, p_sql text, p_calls_users boolean) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_signature text := format('pgfresh.check_%s(text[], timestamptz[], timestamptz[], interval, timestamptz)', p_type_id);
begin
  if p_sql is null then
    execute format('drop function if exists %s', v_signature);
    return;
  end if;
  execute format('create or replace function pgfresh.check_%s(text[], timestamptz[], timestamptz[], interval, timestamptz) '
    'returns table (key text, found boolean, stale boolean, next_at timestamptz, at timestamptz, due_at timestamptz) '
    'language plpgsql %s as %L', p_type_id,
    -- Planned once, for the index and a hash. What users' functions do is not to be planned like that.
    case when not p_calls_users then 'set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_nestloop = off set enable_mergejoin = off set jit = off' else '' end,
    format(E'#variable_conflict use_column\nbegin\n  return query %s;\nend', p_sql));
  execute format('comment on function %s is %L', v_signature, 'Whether pairs of a data type are stale. Written by the registry.');
  execute format('revoke all on function %s from public', v_signature);
  execute format('grant execute on function %s to pgfresh_evaluator', v_signature);
end
$$;
comment on function pgfresh.write_check(int, text, boolean) is 'Makes the function that asks whether pairs of a data type are stale, or drops it. A part of the registry.';

create or replace function pgfresh.keep_resolution() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_resolution pgfresh.type_resolution := pgfresh.resolve_type(new, true);
  v_unknown text;
begin
  delete from pgfresh.type_resolution where type_id = new.type_id;
  insert into pgfresh.type_resolution select (v_resolution).*;
  perform pgfresh.write_check(new.type_id, v_resolution.check_sql, v_resolution.fingerprint #>> '{staleness_function,signature}' <> 'pgfresh.is_data_stale(timestamp with time zone,interval)');
  update pgfresh.type_resolution as r set stamp = s.stamp from pgfresh.catalog_stamps(array[new.type_id]) as s where r.type_id = new.type_id;

  select name into v_unknown from unnest(new.depends_on) as name where not exists (select from pgfresh.data_type_registry as r where r.data_type = name) or name = new.data_type;
  if found then
    perform pgfresh.refuse_registry(format('depends_on: there is no other data type %s', coalesce(left(quote_literal(v_unknown), 80), 'null')), 'Add the data types that it needs first.');
  end if;
  delete from pgfresh.type_dependency where type_id = new.type_id;
  insert into pgfresh.type_dependency (type_id, needs_id)
    select distinct new.type_id, r.type_id from unnest(new.depends_on) as name join pgfresh.data_type_registry as r on r.data_type = name;
  if exists (
    with recursive needed (type_id) as (
      select needs_id from pgfresh.type_dependency where type_id = new.type_id
      union
      select d.needs_id from needed as n join pgfresh.type_dependency as d on d.type_id = n.type_id
    ) select from needed where type_id = new.type_id
  ) then
    perform pgfresh.refuse_registry(format('depends_on: %s needs itself by way of another', new.data_type), 'Break the circle.');
  end if;
  return null;
end
$$;
comment on function pgfresh.keep_resolution() is 'Trigger of the registry: looks up what a row names and refuses what does not resolve.';

-- What nobody can name any more is not fetched any more either; what its calls have cost stays in the ledger.
create or replace function pgfresh.forget_type() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_jobs bigint[] := array(select id from pgfresh.job where type_id = old.type_id order by id);
begin
  -- The row is locked before this runs: who is just subscribing is done, and who comes later finds no data type.
  delete from pgfresh.active_subscriptions where type_id = old.type_id;
  delete from pgfresh.node_demand where type_id = old.type_id;
  -- Without their pairs nobody would ever take them, and they would be in the way of others.
  delete from pgfresh.demand_change where type_id = old.type_id;
  perform pgfresh.turn_back_jobs(v_jobs[first:first + 9999], null, array_fill(0::bigint, array[least(10000, cardinality(v_jobs) - first + 1)]), 'cancel')
    from generate_series(1, cardinality(v_jobs), 10000) as first;
  delete from pgfresh.due where type_id = old.type_id;
  delete from pgfresh.pairs where type_id = old.type_id;
  perform pgfresh.write_check(old.type_id, null, false);
  return old;
end
$$;
comment on function pgfresh.forget_type() is 'Trigger of the registry: cancels the open jobs of a data type that is removed, and forgets its pairs.';

create or replace trigger forget_type before delete on pgfresh.data_type_registry
  for each row execute function pgfresh.forget_type();
create or replace trigger complete_registry_row before insert or update on pgfresh.data_type_registry
  for each row execute function pgfresh.complete_registry_row();
create or replace trigger keep_resolution after insert or update on pgfresh.data_type_registry
  for each row execute function pgfresh.keep_resolution();

/*
  What was registered is compared with what is there now: a table may have been dropped, a function replaced by another body.
  Then the type is left alone, and the row says what to do, until it is written again.
*/
create or replace function pgfresh.type_problem(p_type pgfresh.data_type_registry) returns table (problem text, next_step text)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_known pgfresh.type_resolution;
  v_stamp text := (select s.stamp from pgfresh.catalog_stamps(array[p_type.type_id]) as s);
  v_now jsonb;
begin
  select * into v_known from pgfresh.type_resolution where type_id = p_type.type_id;
  if v_stamp = v_known.stamp then
    return;
  end if;
  begin
    v_now := (pgfresh.resolve_type(p_type, false)).fingerprint;
  exception when sqlstate 'PGF01' then
    get stacked diagnostics problem = message_text, next_step = pg_exception_hint;
    problem := regexp_replace(problem, '^PGF_\w+: ', '');
    return next;
    return;
  end;
  if v_now is distinct from v_known.fingerprint then
    problem := coalesce((select format('%s is not what was registered', string_agg(coalesce(a.key, b.key), ', ' order by coalesce(a.key, b.key)))
      from jsonb_each(v_known.fingerprint) as a full join jsonb_each(v_now) as b on a.key = b.key where a.value is distinct from b.value), 'it was never resolved');
    next_step := format('See whether the change is meant, then accept it: update pgfresh.data_type_registry set data_type = data_type where data_type = %L;', p_type.data_type);
    return next;
  elsif v_stamp is not null and current_setting('transaction_read_only') = 'off' then
    -- Changed, and means the same all the same: a right that was given, a comment of the catalog's own.
    perform from pgfresh.type_resolution where type_id = p_type.type_id for update skip locked;
    if found then
      update pgfresh.type_resolution set stamp = v_stamp where type_id = p_type.type_id;
    end if;
  end if;
end
$$;
comment on function pgfresh.type_problem(pgfresh.data_type_registry) is 'Why a data type can not be planned now, and what to do; no row if it can.';

/*
  What a user's function leaves behind must not work for it. A cursor "with hold" is read to its end by the commit, as whoever commits and
  in a transaction that may write. A search path that was set without "local" outlives the function that has one of its own, and would be
  that of the planner's next statement; so this is called with names that have their schema, and sets another one in the same way.
*/
create or replace function pgfresh.clear_leftovers(p_search_path text) returns void
language plpgsql
as $$
declare
  v_name pg_catalog.text;
begin
  if p_search_path operator(pg_catalog.<>) 'pg_catalog, public, pg_temp' then
    perform pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false);
  end if;
  for v_name in select name from pg_catalog.pg_cursors where is_holdable and creation_time operator(pg_catalog.>=) pg_catalog.statement_timestamp() loop
    execute pg_catalog.format('close %I', v_name);
  end loop;
end
$$;
comment on function pgfresh.clear_leftovers(text) is 'Undoes what a user''s function has left in the session by which it could act as another role.';

/*
  The statements of type_resolution run as pgfresh_evaluator and with no other rights: what users' functions do, they do as this role.
  The search path is for the bodies of those functions; the names in the statements themselves have their schema.
  Read-only, because what runs as the owner of these four functions could otherwise drop them, or alter them to run with all rights.
  PostgreSQL 15 still lets a function reset that; later ones do not.
  What the planner has set for its own statements is not meant for users' tables.
*/
create or replace function pgfresh.ask_stale(p_type_id int, p_keys text[], p_checked timestamptz[], p_due timestamptz[], p_ttl interval, p_now timestamptz)
returns table (key text, found boolean, stale boolean, next_at timestamptz, at timestamptz, raised text)
language plpgsql security definer
set search_path = pg_catalog, public, pg_temp
set plan_cache_mode = auto
set enable_seqscan = on
-- Somebody looks at these rows, so they are in memory: a few dozen are found by the index and not by reading the table.
set random_page_cost = 1.1
as $$
declare
  v_check text := format('select c.key, c.found, c.stale, c.next_at, c.at, null::text from pgfresh.check_%s($1, $2, $3, $4, $5) as c', p_type_id);
  v_count int := cardinality(p_keys);
  v_from int := 1;
  v_size int := v_count;
begin
  -- In halves where that raises, until it is known whose fault it is.
  for v_try in 1..50 loop
    exit when v_from > v_count;
    -- A subtransaction, at whose end the transaction may write again.
    begin
      perform set_config('transaction_read_only', 'on', true);
      if v_size >= v_count then
        return query execute v_check using p_keys, p_checked, p_due, p_ttl, p_now;
      else
        return query execute v_check using p_keys[v_from:v_from + v_size - 1], p_checked[v_from:v_from + v_size - 1], p_due[v_from:v_from + v_size - 1], p_ttl, p_now;
      end if;
      perform pgfresh.clear_leftovers(pg_catalog.current_setting('search_path'));
      v_from := v_from + v_size;
      v_size := v_size * 2;
    -- It answers only when it has asked about all of them, so one that raises has answered about none.
    exception when others then
      if v_size > 1 then
        v_size := greatest(least(v_size, v_count - v_from + 1) / 2, 1);
      else
        return query select p_keys[v_from], null::boolean, coalesce(p_checked[v_from] + p_ttl <= p_now, true), p_checked[v_from] + p_ttl, null::timestamptz, sqlerrm;
        v_from := v_from + 1;
      end if;
    end;
  end loop;
  return query select k, null::boolean, null::boolean, null::timestamptz, null::timestamptz, null::text from unnest(p_keys[v_from:]) as k where v_from <= v_count;
end
$$;
comment on function pgfresh.ask_stale(int, text[], timestamptz[], timestamptz[], interval, timestamptz) is
  'Asks as the evaluator whether pairs of a data type are stale. Says nothing of those that are fresh and due at the time that was passed. '
  'A pair whose check raises counts as stale, once a TTL. At most 50 subtransactions a call; of what is not decided by then it says neither.';

create or replace function pgfresh.ask_gate(p_sql text, p_keys text[], p_data_type text) returns table (key text, open boolean, opens_at timestamptz)
language plpgsql security definer
set search_path = pg_catalog, public, pg_temp
set plan_cache_mode = auto
set enable_seqscan = on
as $$
begin
  perform set_config('transaction_read_only', 'on', true);
  return query execute p_sql using p_keys, p_data_type;
  perform pgfresh.clear_leftovers(pg_catalog.current_setting('search_path'));
-- Never raised. It makes this a subtransaction, at whose end the transaction may write again.
exception when sqlstate 'PGF00' then raise;
end
$$;
comment on function pgfresh.ask_gate(text, text[], text) is 'Runs gate_sql of a data type as the evaluator.';

create or replace function pgfresh.ask_keys(p_sql text, p_keys text[]) returns setof text
language plpgsql security definer
set search_path = pg_catalog, public, pg_temp
set plan_cache_mode = auto
set enable_seqscan = on
as $$
begin
  perform set_config('transaction_read_only', 'on', true);
  return query execute p_sql using p_keys;
  perform pgfresh.clear_leftovers(pg_catalog.current_setting('search_path'));
-- Never raised. It makes this a subtransaction, at whose end the transaction may write again.
exception when sqlstate 'PGF00' then raise;
end
$$;
comment on function pgfresh.ask_keys(text, text[]) is 'Runs missing_sql or unknown_sql of a data type as the evaluator: those of the keys that it returns.';

create or replace function pgfresh.ask_next_keys(p_sql text, p_after text, p_limit int) returns setof text
language plpgsql security definer
set search_path = pg_catalog, public, pg_temp
set plan_cache_mode = auto
set enable_seqscan = on
as $$
begin
  perform set_config('transaction_read_only', 'on', true);
  return query execute p_sql using p_after, p_limit;
  perform pgfresh.clear_leftovers(pg_catalog.current_setting('search_path'));
-- Never raised. It makes this a subtransaction, at whose end the transaction may write again.
exception when sqlstate 'PGF00' then raise;
end
$$;
comment on function pgfresh.ask_next_keys(text, text, int) is 'Runs keys_sql of a data type as the evaluator: the next keys after one.';

create or replace function pgfresh.admit_keys(p_type pgfresh.data_type_registry, p_keys text[]) returns text[]
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_keys text[] := p_keys;
  v_parts int := cardinality(p_type.key_columns) - 1;
  v_outside text;
begin
  perform pgfresh.require_key(bad.key) from unnest(p_keys) as bad(key)
    where bad.key is null or bad.key = '' or octet_length(bad.key) > 512 or bad.key ~ '[[:cntrl:]]';
  if p_type.normalise <> 'none' then
    v_keys := array(select case p_type.normalise when 'upper' then upper(k.key) else lower(k.key) end from unnest(p_keys) with ordinality as k(key, place) order by k.place);
  end if;
  if v_parts > 0 then
    select k.key into v_outside from unnest(v_keys) as k(key) where length(k.key) - length(replace(k.key, '|', '')) <> v_parts limit 1;
  end if;
  if v_outside is null and p_type.key_pattern is not null then
    select k.key into v_outside from unnest(v_keys) as k(key) where k.key !~ p_type.key_pattern limit 1;
  end if;
  if v_outside is null and p_type.key_table is not null then
    begin
      select k.key into v_outside from pgfresh.ask_keys((select unknown_sql from pgfresh.type_resolution where type_id = p_type.type_id), v_keys) as k(key) limit 1;
    exception
      when data_exception then
        -- A key that is not even of the column's type.
        perform pgfresh.admit_keys(p_type, array[k.key]) from unnest(v_keys) as k(key) where cardinality(v_keys) > 1;
        v_outside := v_keys[1];
      when others then
        perform pgfresh.refuse_registry(t.problem, t.next_step) from pgfresh.type_problem(p_type) as t;
        raise;
    end;
  end if;
  if v_outside is not null then
    perform pgfresh.refuse('PGF_KEY_UNKNOWN', format('%s is not a key of %s', left(quote_literal(v_outside), 80), p_type.data_type),
      case when v_parts > 0 and p_type.key_pattern is null and p_type.key_table is null then format('It has %s parts, with | between them.', v_parts + 1)
        when p_type.key_pattern is not null then format('Its keys match %s.', p_type.key_pattern)
        else format('Its keys are those of %s.', p_type.key_table) end);
  end if;
  return v_keys;
end
$$;
comment on function pgfresh.admit_keys(pgfresh.data_type_registry, text[]) is 'Keys as the data type writes them; refuses those that it can not have.';
