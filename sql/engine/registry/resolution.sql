/*
  Resolves the names of a registry row, and builds the statements from them;
  refuses a row that does not resolve.
  Every name in a statement was looked up in the catalog first and is quoted.
*/
create or replace function pgfresh_engine.resolve_type(p_type pgfresh.data_type_registry, p_may_grant boolean)
returns pgfresh_engine.type_resolution
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_resolution pgfresh_engine.type_resolution;
  v_table record := pgfresh_engine.find_table('table_name', p_type.table_name, p_may_grant);
  v_from text := v_table.id::regclass::text;
  v_types text[] := '{}';
  v_type oid;
  v_is_key text;
  v_ttl text := '$5';
  v_function record := pgfresh_engine.find_function('staleness_function', p_type.staleness_function, 'boolean',
    array['timestamp with time zone, interval', 'timestamp with time zone, integer']);
  v_by_minutes boolean := (select proargtypes[1] = 'integer'::regtype from pg_proc where oid = v_function.id);
  v_own boolean;
  v_text boolean;
  v_stale text;
  /*
    The time that decides freshness: the row's own, or the source's confirmation if that is later. A confirmation is for
    the row as it was then, so a row older than pgfresh left it is judged by its own time.
    Confirmed at -infinity: the source has denied the row. A time more than a day ahead is ignored, or the row would be
    fresh until then.
  */
  v_known text := 'case when k.confirmed_at > %1$s and (%1$s < k.row_at) is not true then k.confirmed_at '
    'when k.confirmed_at = ''-infinity'' then null when %1$s > $6 + interval ''1 day'' then k.confirmed_at '
    'else %1$s end';
  v_asked text := '(select unnest($1) as key, unnest($2) as confirmed_at, unnest($3) as row_at, unnest($4) as due_at)';
  v_newest text;
  v_marks jsonb := jsonb_build_object('staleness_function', v_function.mark);
  v_column text;
  v_gate record;
  v_keys oid;
  v_keys_mark text;
  v_key_type oid;
  v_active text := '';
begin
  foreach v_column in array p_type.key_columns loop
    -- With -1, because char and bit without a length mean length 1.
    v_types := v_types || format_type(pgfresh_engine.find_column('key_columns', v_table.id, v_column), -1);
  end loop;
  if cardinality(p_type.key_columns) <> (select count(distinct name) from unnest(p_type.key_columns) as name) then
    perform pgfresh_engine.refuse('PGF_REGISTRY_INVALID',
      'key_columns names a column twice',
      'Name each column of the key once.');
  end if;
  select string_agg(
    format('x.%I = %s::%s', k.name,
      case when cardinality(v_types) = 1 then 'k.key' else format('split_part(k.key, ''|'', %s)', k.place) end,
      v_types[k.place]),
    ' and ' order by k.place)
  into v_is_key
  from unnest(p_type.key_columns) with ordinality as k(name, place);

  v_type := pgfresh_engine.find_column('timestamp_column', v_table.id, p_type.timestamp_column);
  if v_type <> 'timestamptz'::regtype then
    perform pgfresh_engine.refuse('PGF_REGISTRY_INVALID',
      format('timestamp_column: %I of %s is %s, expected timestamp with time zone',
        p_type.timestamp_column, v_from, format_type(v_type, null)),
      format('Run: alter table %s alter column %I type timestamptz;', v_from, p_type.timestamp_column));
  end if;
  if p_type.source_timestamp_field is not null then
    v_type := pgfresh_engine.find_column('source_timestamp_field', v_table.id, p_type.source_timestamp_field);
    if v_type <> 'timestamptz'::regtype then
      perform pgfresh_engine.refuse('PGF_REGISTRY_INVALID',
        format('source_timestamp_field: %I of %s is %s, expected timestamp with time zone',
          p_type.source_timestamp_field, v_from, format_type(v_type, null)),
        format('Run: alter table %s alter column %I type timestamptz;', v_from, p_type.source_timestamp_field));
    end if;
    if p_type.source_timestamp_field = any (p_type.key_columns || p_type.timestamp_column) then
      perform pgfresh_engine.refuse('PGF_REGISTRY_INVALID',
        format('source_timestamp_field: %I is a column of the key or the timestamp_column',
          p_type.source_timestamp_field),
        'Name the column that says how old the data is at its source.');
    end if;
  end if;
  if p_type.ttl_column is not null then
    v_type := pgfresh_engine.find_column('ttl_column', v_table.id, p_type.ttl_column);
    if v_type = 'interval'::regtype then
      v_ttl := format('coalesce(x.%I, $5)', p_type.ttl_column);
    elsif v_type in ('smallint'::regtype, 'integer'::regtype, 'bigint'::regtype) then
      v_ttl := format('coalesce(make_interval(mins => x.%I::int), $5)', p_type.ttl_column);
    else
      perform pgfresh_engine.refuse('PGF_REGISTRY_INVALID',
        format('ttl_column: %I of %s is %s, expected interval or integer (minutes)',
          p_type.ttl_column, v_from, format_type(v_type, null)),
        'Use another column, or change its type.');
    end if;
    v_types := v_types || format_type(v_type, null);
  end if;
  if v_by_minutes and p_type.ttl <> date_trunc('minute', p_type.ttl) then
    perform pgfresh_engine.refuse('PGF_REGISTRY_INVALID',
      format('ttl: %s counts whole minutes, got %s', v_function.id::regprocedure, p_type.ttl),
      'Give the function an interval as its second argument, or round the ttl.');
  end if;
  v_own := v_function.id = 'pgfresh.is_data_stale(timestamptz, interval)'::regprocedure;
  v_stale := case
    -- The registry's check keeps the type's own TTL positive, so the end of the TTL decides.
    when v_own and p_type.ttl_column is null then null
    when v_own then
      'case when t.ttl > interval ''0'' then t.known + t.ttl <= $6 else pgfresh.is_data_stale(t.known, t.ttl) end'
    -- A single row's TTL of 0 or less is refused by every function;
    -- less than a minute is one minute for those that count minutes.
    else
      format('case when t.ttl > interval ''0'' then %s(t.known, %s) else pgfresh.is_data_stale(t.known, t.ttl) end',
        v_function.id::regproc,
        case when v_by_minutes then 'ceil(extract(epoch from t.ttl) / 60)::int' else 't.ttl' end)
  end;
  v_text := cardinality(v_types) = 1 and v_types[1] in ('text', 'character varying');
  /*
    Text keys are looked up all at once, at half the cost of one by one; other types can be written in several ways.
    Where the plan is ours to choose, see write_check, and a key has one row, that row is joined to it.
    Otherwise no join: planned for any number of keys, it could become a nested loop over both sides.
  */
  v_newest := case
    when v_text and v_own and exists (
      select from pg_index as i
      join pg_attribute as a on a.attrelid = i.indrelid and a.attnum = i.indkey[0]
      where i.indrelid = v_table.id and i.indisunique and i.indisvalid and i.indimmediate
        and i.indnkeyatts = 1 and i.indpred is null and a.attname = p_type.key_columns[1]
    ) then
      format('select k.key, x.%1$I is not null as found, x.%2$I as at, %4$s as known, k.row_at, k.due_at, $5 as ttl '
        'from %5$s as k '
        'left join (select x.%1$I, x.%2$I from %3$s as x where x.%1$I = any ($1)) as x on x.%1$I = k.key',
        p_type.key_columns[1], p_type.timestamp_column, v_from,
        format(v_known, format('x.%I', p_type.timestamp_column)), v_asked)
    when v_text then
      format('select k.key, k.found, k.at, %4$s as known, k.row_at, k.due_at, $5 as ttl from ('
        'select n.key, bool_or(n.found) as found, max(n.at) as at, '
        'max(n.confirmed_at) as confirmed_at, max(n.row_at) as row_at, max(n.due_at) as due_at from ('
        'select k.key collate "C" as key, false as found, null::timestamptz as at, '
        'k.confirmed_at, k.row_at, k.due_at from %5$s as k '
        'union all '
        'select x.%1$I::text collate "C", true, x.%2$I, null, null, null from %3$s as x where x.%1$I = any ($1)'
        ') as n group by n.key) as k',
        p_type.key_columns[1], p_type.timestamp_column, v_from, format(v_known, 'k.at'), v_asked)
    else
      format('select k.key, r.found is true as found, r.at, %5$s as known, k.row_at, k.due_at, '
        'coalesce(r.ttl, $5) as ttl '
        'from %6$s as k '
        'left join lateral (select true as found, x.%1$I as at, %2$s as ttl from %3$s as x where %4$s '
        'order by x.%1$I desc nulls last limit 1) as r on true',
        p_type.timestamp_column, v_ttl, v_from, v_is_key, format(v_known, 'r.at'), v_asked)
  end;
  -- Most are fresh, with the known time and due time. Those are not returned.
  -- The end of the TTL is computed once and compared with the clock: twice would cost a sweep 10 % more.
  v_resolution.check_sql := format('select c.key, c.found, %1$s as stale, c.next_at, c.at, c.row_at, c.due_at from ('
    'select t.key, t.found, %2$s t.known + t.ttl as next_at, t.at, t.row_at, t.due_at '
    'from (%3$s) as t offset 0) as c '
    'where %1$s or c.next_at is distinct from c.due_at or c.at is distinct from c.row_at%4$s',
    case when v_stale is null then '(c.next_at > $6) is not true' else 'c.stale' end,
    't.known is null or coalesce(' || v_stale || ', true) as stale,',
    v_newest,
    -- A user's function may call a row fresh that is older than its TTL.
    -- That is returned too, or the row would be shown as stale.
    case when not v_own then ' or c.next_at <= $6' else '' end);
  -- A subquery per key instead of a join: it uses the index whatever the statistics say.
  v_resolution.missing_sql := format('select k.key from unnest($1::text[]) as k(key) '
    'where (select true from %s as x where %s limit 1) is null',
    v_from, v_is_key);

  if p_type.gate_function is not null then
    v_gate := pgfresh_engine.find_function('gate_function', p_type.gate_function, 'boolean', array['text, text']);
    v_marks := v_marks || jsonb_build_object('gate_function', v_gate.mark);
    v_resolution.gate_sql := format('select k.key, %s(k.key, $2), null::timestamptz from unnest($1::text[]) as k(key)',
      v_gate.id::regproc);
    if p_type.gate_opens_function is not null then
      v_function := pgfresh_engine.find_function('gate_opens_function', p_type.gate_opens_function,
        'timestamptz', array['text, text']);
      v_marks := v_marks || jsonb_build_object('gate_opens_function', v_function.mark);
      v_resolution.gate_sql := format('select k.key, g.open, case when not g.open then %s(k.key, $2) end '
        'from unnest($1::text[]) as k(key) cross join lateral (select %s(k.key, $2) as open) as g',
        v_function.id::regproc, v_gate.id::regproc);
    end if;
  end if;

  if p_type.key_table is not null then
    select f.id, f.mark
    into v_keys, v_keys_mark
    from pgfresh_engine.find_table('key_table', p_type.key_table, p_may_grant) as f;
    v_key_type := pgfresh_engine.find_column('key_table_column', v_keys, p_type.key_table_column);
    if p_type.key_active_column is not null then
      v_type := pgfresh_engine.find_column('key_active_column', v_keys, p_type.key_active_column);
      if v_type <> 'boolean'::regtype then
        perform pgfresh_engine.refuse('PGF_REGISTRY_INVALID',
          format('key_active_column: %I of %s is %s, expected boolean',
            p_type.key_active_column, v_keys::regclass, format_type(v_type, null)),
          'Use a boolean column, or leave it out.');
      end if;
      v_active := format(' and x.%I', p_type.key_active_column);
    end if;
    v_resolution.keys_sql := format('select x.%1$I::text from %2$s as x '
      'where (case when $1 is null then x.%1$I is not null else x.%1$I > $1::%3$s end)%4$s '
      'order by x.%1$I limit $2',
      p_type.key_table_column, v_keys::regclass, format_type(v_key_type, -1), v_active);
    -- Compared as text too: 7 and 007 are one number but would be two pairs, and be paid for twice.
    v_resolution.unknown_sql := format('select k.key from unnest($1::text[]) as k(key) '
      'where (select true from %2$s as x where x.%1$I = k.key::%3$s and x.%1$I::text = k.key%4$s limit 1) is null',
      p_type.key_table_column, v_keys::regclass, format_type(v_key_type, -1), v_active);
    v_types := v_types || format_type(v_key_type, -1);
  end if;
  if p_type.key_pattern is not null then
    begin
      perform '' ~ p_type.key_pattern;
    exception when invalid_regular_expression then
      perform pgfresh_engine.refuse('PGF_REGISTRY_INVALID',
        format('key_pattern %s is not a regular expression: %s', left(quote_literal(p_type.key_pattern), 80), sqlerrm),
        'Correct the pattern, for instance ^[A-Z]{1,5}$.');
    end;
  end if;

  v_resolution.type_id := p_type.type_id;
  v_resolution.tables := array_remove(array[v_table.id, v_keys], null);
  v_resolution.columns := array_remove(
    p_type.key_columns
      || array[
        p_type.timestamp_column, p_type.source_timestamp_field, p_type.ttl_column,
        p_type.key_table_column, p_type.key_active_column],
    null);
  v_resolution.functions := array(
    select reverse(split_part(reverse(f), '.', 1))::name
    from unnest(array[p_type.staleness_function, p_type.gate_function, p_type.gate_opens_function]) as f
    where f is not null
  );
  v_resolution.fingerprint := v_marks
    || jsonb_build_object(
      'table_name', v_table.mark, 'key_table', v_keys_mark,
      'columns', v_types);
  return v_resolution;
end
$$;
comment on function pgfresh_engine.resolve_type(pgfresh.data_type_registry, boolean) is
  'Looks up what a registry row names; refuses it if that is missing or does not fit.';

/*
  The versions of the catalog rows that resolutions depend on, and the evaluator's rights on them.
  As long as these are the same, resolving again gives the same result.
  Null if row security is on, because its effect depends on more than these rows.
*/
create or replace function pgfresh_engine.catalog_stamps(p_types int[]) returns table (type_id int, stamp text)
language plpgsql stable
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
begin
  return query select res.type_id, (
    select case when not bool_or(c.relrowsecurity) then
      string_agg(
        concat_ws(' ', c.oid, c.xmin, c.ctid, n.xmin, n.ctid,
          has_table_privilege('pgfresh_evaluator', c.oid, 'select'),
          has_schema_privilege('pgfresh_evaluator', n.oid, 'usage')),
        ',' order by c.oid)
    end
    from pg_class as c
    join pg_namespace as n on n.oid = c.relnamespace
    where c.oid = any (res.tables)
  ) || ';' || (
    select string_agg(concat_ws(' ', a.attrelid, a.xmin, a.ctid), ',' order by a.attrelid, a.attnum)
    from pg_attribute as a
    where a.attrelid = any (res.tables) and a.attname = any (res.columns)
  ) || ';' || (
    -- By name: a new object may be the one that is meant from now on.
    select string_agg(
      concat_ws(' ', f.oid, f.xmin, f.ctid,
        has_function_privilege('pgfresh_evaluator', f.oid, 'execute'),
        has_schema_privilege('pgfresh_evaluator', f.pronamespace, 'usage')),
      ',' order by f.oid)
    from pg_proc as f
    where f.proname = any (res.functions)
  )
  from pgfresh_engine.type_resolution as res
  where res.type_id = any (p_types);
end
$$;
comment on function pgfresh_engine.catalog_stamps(int[]) is
  'By what it is seen, for less than resolving costs, that what registry rows name has not changed.';

/*
  The registered objects exist under other oids: a right was granted, a table was recreated unchanged, or the whole
  database was restored from a dump. The statements use names, so they remain valid.
*/
create or replace function pgfresh_engine.renew_resolution(
  p_type pgfresh.data_type_registry, p_now pgfresh_engine.type_resolution, p_stamp text, p_rewrite boolean)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_known pgfresh_engine.type_resolution;
begin
  -- A transaction that has it locked does the same.
  select * into v_known from pgfresh_engine.type_resolution where type_id = p_type.type_id for update skip locked;
  if not found then
    return;
  end if;
  update pgfresh_engine.type_resolution
  set check_sql = p_now.check_sql, missing_sql = p_now.missing_sql, gate_sql = p_now.gate_sql,
    keys_sql = p_now.keys_sql, unknown_sql = p_now.unknown_sql, tables = p_now.tables,
    -- A stamp of other tables is useless. The next check makes a new one.
    stamp = case when p_now.tables = v_known.tables then p_stamp end
  where type_id = p_type.type_id;
  if p_rewrite or p_now.check_sql <> v_known.check_sql then
    perform pgfresh_engine.write_check(p_now);
  end if;
  if p_rewrite or p_now.tables <> v_known.tables then
    perform pgfresh_engine.keep_change_triggers(p_type);
  end if;
end
$$;
comment on function pgfresh_engine.renew_resolution(
  pgfresh.data_type_registry, pgfresh_engine.type_resolution, text, boolean) is
  'Takes over what the names of a registry row mean now, which must be what was registered. '
  'Makes the triggers of a table that has none yet.';

create or replace function pgfresh_engine.renew_types(p_may_grant boolean) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_type pgfresh.data_type_registry;
  v_now pgfresh_engine.type_resolution;
begin
  for v_type in select * from pgfresh.data_type_registry order by type_id loop
    -- Even if the type does not resolve: writes to its table call this function.
    if to_regproc(format('pgfresh_engine.mark_%s', v_type.type_id)) is not null then
      perform pgfresh_engine.write_mark_function(v_type);
    end if;
    begin
      v_now := pgfresh_engine.resolve_type(v_type, p_may_grant);
      if v_now.fingerprint = (
        select r.fingerprint from pgfresh_engine.type_resolution as r where r.type_id = v_type.type_id
      ) then
        perform pgfresh_engine.renew_resolution(v_type, v_now, null, true);
      end if;
    -- It is skipped until it resolves; type_problem says why.
    exception when sqlstate 'PGF01' then null;
    end;
  end loop;
end
$$;
comment on function pgfresh_engine.renew_types(boolean) is
  'Gives every data type that is as it was registered the functions of this version, and triggers where it has none.';

/*
  Compares what was registered with what exists now:
  a table may have been dropped, the body of a function replaced.
  Then the type is skipped, and the row says what to do, until it is written again.
*/
create or replace function pgfresh_engine.type_problem(p_type pgfresh.data_type_registry)
returns table (problem text, next_step text)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_known pgfresh_engine.type_resolution;
  v_stamp text := (select s.stamp from pgfresh_engine.catalog_stamps(array[p_type.type_id]) as s);
  v_resolution pgfresh_engine.type_resolution;
  v_now jsonb;
begin
  select * into v_known from pgfresh_engine.type_resolution where type_id = p_type.type_id;
  if v_stamp = v_known.stamp then
    return;
  end if;
  begin
    v_resolution := pgfresh_engine.resolve_type(p_type, false);
    v_now := v_resolution.fingerprint;
  exception when sqlstate 'PGF01' then
    get stacked diagnostics problem = message_text, next_step = pg_exception_hint;
    problem := regexp_replace(problem, '^PGF_[A-Z_]+: ', '');
    return next;
    return;
  end;
  if v_now is distinct from v_known.fingerprint then
    problem := coalesce(
      (
        select format('%s is not what was registered',
          string_agg(coalesce(a.key, b.key), ', ' order by coalesce(a.key, b.key)))
        from jsonb_each(v_known.fingerprint) as a
        full join jsonb_each(v_now) as b on a.key = b.key
        where a.value is distinct from b.value
      ),
      'it was never resolved');
    next_step := format('See whether the change is meant, then accept it: '
      'update pgfresh.data_type_registry set data_type = data_type where data_type = %L;', p_type.data_type);
    return next;
  elsif current_setting('transaction_read_only') = 'off'
      and (v_stamp is not null or v_resolution.tables <> v_known.tables) then
    perform pgfresh_engine.renew_resolution(p_type, v_resolution, v_stamp, false);
  end if;
end
$$;
comment on function pgfresh_engine.type_problem(pgfresh.data_type_registry) is
  'Why a data type cannot be planned now, and what to do; no row if it can.';

create or replace function pgfresh_engine.type_problems() returns table (data_type text, problem text, next_step text)
language sql security definer
set search_path = pg_catalog, pg_temp
as $$
  select r.data_type, p.problem, p.next_step
  from pgfresh.data_type_registry as r
  cross join lateral pgfresh_engine.type_problem(r) as p
  order by r.data_type
$$;
comment on function pgfresh_engine.type_problems() is 'The data types that cannot be planned now: why, and what to do.';
grant execute on function pgfresh_engine.type_problems() to
  pgfresh_worker, pgfresh_planner, pgfresh_gateway, pgfresh_monitor, pgfresh_operator;
