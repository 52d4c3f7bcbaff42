/*
  Generated for each data type: mark_<type>, the trigger function that marks what statements change in its
  table, and rows_<type>, which reads rows. One of each per data type, so that their plans are kept. The owner of the
  schema creates them, no matter who writes the row of the registry.

  A user's statement must not fail because of pgfresh. What reads the rows can fail, for instance after a column of the
  key was renamed: then the whole type is marked. Nothing is written inside of that block, so the user's transaction
  spends no subtransaction id on it.
*/
create or replace function pgfresh_engine.write_mark_function(p_type pgfresh.data_type_registry) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_id int := p_type.type_id;
  -- By canonical_key, like every key: upper or lower in the column's collation would name other pairs.
  v_key text := (
    select format(
      case p_type.normalise
        when 'none' then '(%s) collate "C"' else 'pgfresh_engine.canonical_key(%s, %L) collate "C"'
      end,
      string_agg(format('x.%I::text', k.name), ' || ''|'' || ' order by k.place), p_type.normalise)
    from unnest(p_type.key_columns) with ordinality as k(name, place)
  );
begin
  execute format($f$
    create or replace function pgfresh_engine.mark_%1$s() returns trigger
    language plpgsql security definer set search_path = pg_catalog, pg_temp as $body$
declare
  v_keys text[];
  v_rows bigint;
begin
  -- The end of a job marks its pair itself, even if it writes no row. It does not know what users' own triggers write.
  if current_setting('pgfresh.ending', true) = '%1$s' and pg_trigger_depth() = 1
      -- As in mark_pairs. Every statement of users pays for this, and a call would double it.
      or (current_setting('transaction_isolation') in ('read committed', 'read uncommitted')
      and not exists (select from pgfresh_engine.watched_type where type_id = %1$s
        and watched_until > pgfresh.clock())) then
    return null;
  end if;
  if tg_op <> 'TRUNCATE' then
    begin
      if tg_op = 'INSERT' then
        select count(*), coalesce(array_agg(distinct k.key) filter (where octet_length(k.key) <= 512), '{}')
        into v_rows, v_keys
        from (select %2$s as key from fresh as x limit 5001) as k;
      elsif tg_op = 'DELETE' then
        select count(*), coalesce(array_agg(distinct k.key) filter (where octet_length(k.key) <= 512), '{}')
        into v_rows, v_keys
        from (select %2$s as key from gone as x limit 5001) as k;
      else
        select count(*) / 2, coalesce(array_agg(distinct k.key) filter (where octet_length(k.key) <= 512), '{}')
        into v_rows, v_keys
        from (
          (select %2$s as key from fresh as x limit 5001)
          union all
          (select %2$s from gone as x limit 5001)
        ) as k;
      end if;
      if v_keys = '{}' then
        return null;
      end if;
      if v_rows > 5000 or cardinality(v_keys) > 1000 then
        v_keys := null;
      end if;
    exception when others then
      v_keys := null;
    end;
  end if;
  insert into pgfresh_engine.change (type_id, keys) values (%1$s, v_keys);
  return null;
end
$body$ $f$, v_id, v_key);
  execute format('comment on function pgfresh_engine.mark_%s() is %L', v_id,
    'Marks what statements have changed in the table of a data type. Written by the registry.');
  execute format('revoke all on function pgfresh_engine.mark_%s() from public', v_id);
end
$$;
comment on function pgfresh_engine.write_mark_function(pgfresh.data_type_registry) is
  'Makes the function that marks what statements change in the table of a data type. A part of the registry.';

create or replace function pgfresh_engine.write_rows_function(p_type pgfresh.data_type_registry) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_id int := p_type.type_id;
  v_table oid := (select r.tables[1] from pgfresh_engine.type_resolution as r where r.type_id = p_type.type_id);
  v_is_key text;
  v_ttl text := 'null::interval';
  v_rows text;
begin
  -- With -1, because char and bit without a length have the length 1.
  select string_agg(
    format('x.%I = %s::%s', k.name,
      case
        when cardinality(p_type.key_columns) = 1 then 'k.key'
        else format('split_part(k.key, ''|'', %s)', k.place)
      end,
      format_type(a.atttypid, -1)),
    ' and ' order by k.place)
  into v_is_key
  from unnest(p_type.key_columns) with ordinality as k(name, place)
  join pg_attribute as a on a.attrelid = v_table and a.attname = k.name;
  if p_type.ttl_column is not null then
    v_ttl := format(
      case
        when (select atttypid from pg_attribute where attrelid = v_table and attname = p_type.ttl_column)
          = 'interval'::regtype then 'x.%I'
        else 'make_interval(mins => x.%I::int)'
      end,
      p_type.ttl_column);
  end if;
  v_rows := format('select row_to_json(x)::text as rows, x.%I as fetched_at, %s as ttl from %s as x where %s',
    p_type.timestamp_column, v_ttl, v_table::regclass, v_is_key);
  -- If a key has one row, there is nothing to aggregate and sort, which is most of the work.
  if not exists (
    select from pg_index as i
    where i.indrelid = v_table and i.indisunique and i.indisvalid and i.indimmediate
      and i.indpred is null and i.indexprs is null
      and not exists (
        select from unnest(i.indkey) with ordinality as k(attnum, place)
        join pg_attribute as a on a.attrelid = v_table and a.attnum = k.attnum
        where k.place <= i.indnkeyatts and a.attname <> all (p_type.key_columns)
      )
  ) then
    v_rows := format(
      'select string_agg(x.rows, '','' order by x.fetched_at desc nulls last, x.rows collate "C") as rows, '
      'max(x.fetched_at) as fetched_at, '
      '(array_agg(x.ttl order by x.fetched_at desc nulls last))[1] as ttl from (%s) as x', v_rows);
  end if;
  -- One lookup per key (offset 0): a join could read the whole table while its statistics do not know its size.
  v_rows := format(
    'select k.key, r.rows, r.fetched_at, r.ttl '
    'from unnest($1) as k(key) left join lateral (%s offset 0) as r on true', v_rows);
  update pgfresh_engine.type_resolution set rows_sql = v_rows where type_id = v_id;
  execute format($f$
    create or replace function pgfresh_engine.rows_%1$s(text[])
    returns table (key text, rows text, fetched_at timestamptz, ttl interval) language plpgsql stable as $body$
#variable_conflict use_column
begin
  return query %2$s;
end
$body$ $f$, v_id, v_rows);
  execute format('comment on function pgfresh_engine.rows_%s(text[]) is %L', v_id,
    'The rows of pairs of a data type, as JSON. Written by the registry.');
  execute format('revoke all on function pgfresh_engine.rows_%s(text[]) from public', v_id);
  execute format('grant execute on function pgfresh_engine.rows_%s(text[]) to pgfresh_evaluator', v_id);
end
$$;
comment on function pgfresh_engine.write_rows_function(pgfresh.data_type_registry) is
  'Makes the function that reads the rows of a data type. A part of the registry.';

create or replace function pgfresh_engine.drop_change_functions(p_type_id int) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
-- Dropping a trigger waits for all readers of the table, and later readers queue behind it.
set lock_timeout = '2s'
as $$
begin
  execute format('drop function if exists pgfresh_engine.rows_%s(text[])', p_type_id);
  begin
    -- With the triggers, even on a table of another owner.
    execute format('drop function if exists pgfresh_engine.mark_%s() cascade', p_type_id);
  exception when lock_not_available then
    perform pgfresh_engine.warn('triggers_left', format('mark_%s', p_type_id),
      'a table was in use, so triggers of a data type that is gone are still on it; they do nothing any more',
      format('Run: drop function pgfresh_engine.mark_%s() cascade;', p_type_id));
  end;
end
$$;
comment on function pgfresh_engine.drop_change_functions(int) is
  'Drops the functions that mark and read the rows of a data type, and the triggers. A part of the registry.';

/*
  Runs with the rights of the role that writes the registry, which needs the right to make triggers on the table.
  Without triggers, what pgfresh itself writes is still marked, because the end of a job does that.
*/
create or replace function pgfresh_engine.keep_change_triggers(p_type pgfresh.data_type_registry) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
-- Creating a trigger waits for all writers of the table, and later writers queue behind it.
set lock_timeout = '2s'
as $$
declare
  v_table record;
  v_trigger record;
  v_problem text;
  v_next text := format(
    'Then run: update pgfresh.data_type_registry set data_type = data_type where data_type = %L;', p_type.data_type);
begin
  select c.oid::regclass as name, c.oid, c.relkind
  into v_table
  from pgfresh_engine.type_resolution as r
  join pg_class as c on c.oid = r.tables[1]
  where r.type_id = p_type.type_id;
  -- A dropped table takes its triggers along. The type is unresolved until its row is written again.
  if not found then
    return;
  end if;
  if exists (
    select from pg_trigger
    where tgfoid = to_regproc(format('pgfresh_engine.mark_%s', p_type.type_id)) and tgrelid <> v_table.oid
  ) then
    perform pgfresh_engine.drop_change_functions(p_type.type_id);
  end if;
  perform pgfresh_engine.write_mark_function(p_type);
  perform pgfresh_engine.write_rows_function(p_type);
  if v_table.relkind not in ('r', 'p') then
    perform pgfresh_engine.warn('changes_unseen', p_type.data_type,
      format('%s is no plain table: viewers hear of what pgfresh writes, and not of what others write', v_table.name),
      'Name the table itself, if viewers are to hear of everything.');
    return;
  end if;
  for v_trigger in
    select format('pgfresh_%s_%s', p_type.type_id, t.done) as name, t.event, t.rows
    from (values
      ('inserted', 'insert', 'referencing new table as fresh'),
      ('updated', 'update', 'referencing old table as gone new table as fresh'),
      ('deleted', 'delete', 'referencing old table as gone'),
      ('truncated', 'truncate', '')
    ) as t(done, event, rows)
    where not exists (
      select from pg_trigger as g
      where g.tgrelid = v_table.oid and g.tgname = format('pgfresh_%s_%s', p_type.type_id, t.done)
    )
  loop
    begin
      execute format('create trigger %I after %s on %s %s for each statement execute function pgfresh_engine.mark_%s()',
        v_trigger.name, v_trigger.event, v_table.name, v_trigger.rows, p_type.type_id);
    exception
      when insufficient_privilege then
        v_problem := format('%I may not make triggers on it', current_user);
        v_next := format('Run: grant trigger on %s to %I; %s', v_table.name, current_user, v_next);
      when lock_not_available then
        v_problem := 'it was being written to for longer than we would let others wait';
      when feature_not_supported or wrong_object_type or invalid_object_definition then
        v_problem := sqlerrm;
    end;
    if v_problem is not null then
      perform pgfresh_engine.warn('changes_unseen', p_type.data_type,
        format('%s has no trigger: %s. Viewers hear of what pgfresh writes, and not of what others write',
          v_table.name, v_problem),
        v_next);
      return;
    end if;
  end loop;
end
$$;
comment on function pgfresh_engine.keep_change_triggers(pgfresh.data_type_registry) is
  'Makes the triggers that mark what others write to the table of a data type. A part of the registry.';
