/*
  How changes reach those who watch. Triggers on users' tables, and the end of every job, append a mark to
  pgfresh_engine.change, in the transaction that writes. They do so only for data types that somebody watches; else
  they look at one row and return.

  Transactions end in another order than they begin, so neither a sequence nor a time can say what was read already.
  A snapshot can: what is visible now and was not visible in the snapshot of the last read is new, and each mark is new
  exactly once.

  The end of a job tells the gateways itself, when it commits: whoever waits for a first row does not wait for the pump.
  A notification takes a lock of the whole cluster until its transaction has reached the disk. So only one end at a time
  takes it, and the others, and those of many pairs, leave it to the pump: no end waits for another one.
*/
create or replace function pgfresh_engine.mark_pairs(p_type_id int, p_keys text[]) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_is_watched boolean := exists (
    select from pgfresh_engine.watched_type where type_id = p_type_id and watched_until > pgfresh.clock());
  v_payload text;
begin
  -- A transaction with one snapshot for all of its statements would not see that somebody has begun to watch meanwhile,
  -- so it always marks.
  if not v_is_watched and current_setting('transaction_isolation') in ('read committed', 'read uncommitted') then
    return;
  end if;
  if v_is_watched and cardinality(p_keys) <= 50 and pg_try_advisory_xact_lock(7041, 4) then
    v_payload := json_build_array(
      json_build_array(p_type_id, p_keys, array[pg_current_xact_id()::text::bigint]))::text;
    -- PostgreSQL takes fewer than 8000 bytes.
    if octet_length(v_payload) > 7900 then
      v_payload := null;
    end if;
  end if;
  insert into pgfresh_engine.change (type_id, keys, told) values (p_type_id, p_keys, v_payload is not null);
  if v_payload is not null then
    perform pg_notify('pgfresh_change', v_payload);
  end if;
end
$$;
comment on function pgfresh_engine.mark_pairs(int, text[]) is
  'Marks pairs whose jobs have ended, if anybody watches their data type, and tells the gateways of up to 50 of them '
  'when the transaction commits, unless another end is just doing that. A part of every end.';

create or replace function pgfresh_engine.key_expression(p_type pgfresh.data_type_registry, p_alias text) returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select case p_type.normalise when 'none' then joined.parts else format('%s(%s)', p_type.normalise, joined.parts) end
  from (
    select string_agg(format('%s.%I::text', p_alias, k.name), ' || ''|'' || ' order by k.place) as parts
    from unnest(p_type.key_columns) with ordinality as k(name, place)
  ) as joined
$$;
comment on function pgfresh_engine.key_expression(pgfresh.data_type_registry, text) is
  'The expression that spells the key of a row as the registry does.';

/*
  Each data type has a trigger function and a function that reads its rows of its own, so that their plans are kept.
  They are made by the schema's owner, whoever writes the row of the registry.

  A user's statement must not fail because of us. What reads the rows can fail, for instance after a column of the key
  was renamed: then the whole type is marked. Nothing is written inside of that block, so it costs the user's
  transaction no number of a subtransaction.
*/
create or replace function pgfresh_engine.write_mark_function(p_type pgfresh.data_type_registry) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_id int := p_type.type_id;
  v_key text := format('(%s) collate "C"', pgfresh_engine.key_expression(p_type, 'x'));
begin
  execute format($f$
    create or replace function pgfresh_engine.mark_%1$s() returns trigger
    language plpgsql security definer set search_path = pg_catalog, pg_temp as $body$
declare
  v_keys text[];
  v_rows bigint;
begin
  -- The end of a job marks its pair itself, also where no row is written. What users' own triggers write besides is not
  -- known to it.
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
  v_table oid := pgfresh_engine.table_named(p_type.table_name);
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
  -- Where a key has one row, there is nothing to put together and to sort, which is most of the work.
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
  -- By itself for each key (offset 0): a join could read the whole table, if nobody knows yet how large it is.
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
-- Who drops a trigger waits for everybody who reads the table, and everybody who comes later waits for him.
set lock_timeout = '2s'
as $$
begin
  execute format('drop function if exists pgfresh_engine.rows_%s(text[])', p_type_id);
  begin
    -- With the triggers, also of a table that somebody else owns.
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
  With the rights of who writes the registry: a trigger is made by one who may. Where that does not work, what pgfresh
  itself writes is still marked, because the end of a job does that.
*/
create or replace function pgfresh_engine.keep_change_triggers(p_type pgfresh.data_type_registry) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
-- Who makes a trigger waits for everybody who writes to the table, and everybody who comes later waits for him.
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
  from pg_class as c
  where c.oid = pgfresh_engine.table_named(p_type.table_name);
  -- A table that was dropped took its triggers along. The type is unresolved, and is resolved anew when it is written.
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

create or replace function pgfresh_engine.changes_since(p_since pg_snapshot) returns jsonb
language plpgsql stable
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
begin
  return (
    select coalesce(
      jsonb_agg(
        jsonb_build_array(c.type_id, case when not c.whole then c.keys end, c.xids)
          || case when c.told then jsonb '[true]' else '[]' end
        order by c.type_id, c.xids),
      '[]')
    from (
      select m.type_id, bool_and(m.told) as told, bool_or(m.many or m.keys is null or m.keys = '{}') as whole,
        array_agg(distinct k.key) filter (where k.key is not null) as keys,
        case when not coalesce(bool_or(m.keys = '{}'), false) then array_agg(distinct m.xid::text::bigint) end as xids
      from (
        -- More keys than a few messages hold are the whole type.
        select c.*, sum(cardinality(c.keys)) over (partition by c.type_id) > 5000 as many
        from (
          select c.xid, c.type_id, c.keys, c.told
          from pgfresh_engine.change as c
          where c.xid >= pg_snapshot_xmax(coalesce(p_since, '1:1:'))
          union all
          select c.xid, c.type_id, c.keys, c.told
          from pgfresh_engine.change as c
          where c.xid = any (array(select pg_snapshot_xip(p_since)))
        ) as c
      ) as m
      left join lateral unnest(case when not m.many then m.keys end) as k(key) on true
      group by m.type_id, case when not m.many then m.xid end, not m.many and m.told
    ) as c);
end
$$;
comment on function pgfresh_engine.changes_since(pg_snapshot) is
  'What is marked now and was not in that snapshot, '
  'as [type, keys or null for all, transactions or null if nobody knows] for each transaction, '
  'and with true at the end if the gateways were told when it committed.';

create or replace function pgfresh_engine.watch_changes(p_types int[], p_since pg_snapshot default null) returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := pgfresh.clock();
  v_answer jsonb;
begin
  perform pgfresh_engine.require_primary();
  if p_types is null or array_position(p_types, null) is not null or cardinality(p_types) > 10000 then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      'p_types must be an array of at most 10000 numbers of data types, with no null in it',
      'Pass the types whose pairs are watched.');
  end if;
  -- Most calls find everything well for a while, and then write nothing.
  if exists (
    select from unnest(p_types) as t(id)
    where not exists (
      select from pgfresh_engine.watched_type as w
      where w.type_id = t.id and w.watched_until >= v_now + interval '20 seconds'
    )
  ) then
    perform set_config('synchronous_commit', 'off', true);
    -- One that an open transaction deletes or renames has its turn in a later call: no one waits for that transaction.
    insert into pgfresh_engine.watched_type as w (type_id, watched_until, since)
    select r.type_id, v_now + interval '30 seconds', v_now
    from (
      select type_id from pgfresh.data_type_registry where type_id = any (p_types)
      order by type_id for key share skip locked
    ) as r
    order by r.type_id
    on conflict (type_id) do update set watched_until = excluded.watched_until,
      -- Somebody may already have found the time past, and not marked. Five seconds are for this transaction, from its
      -- reading of the clock to its commit.
      since = case when w.watched_until < v_now + interval '5 seconds' then v_now else w.since end,
      settled = w.settled and w.watched_until >= v_now + interval '5 seconds';
  end if;
  select jsonb_build_object(
    'snapshot', pg_current_snapshot()::text,
    'changes', case when p_since is null then '[]' else pgfresh_engine.changes_since(p_since) end
      -- That a type is not there any more is a change of all of it.
      || coalesce((
        select jsonb_agg(jsonb_build_array(t.id, null, null))
        from unnest(p_types) as t(id)
        where not exists (select from pgfresh.data_type_registry as r where r.type_id = t.id)
      ), '[]'))
  into v_answer;
  return v_answer;
end
$$;
comment on function pgfresh_engine.watch_changes(int[], pg_snapshot) is
  'Says that pairs of these data types are watched for the next 30 seconds, so that their changes are marked, '
  'and tells what was marked since a snapshot that an earlier call returned. '
  'Returns {"snapshot", "changes": [[type, keys or null for all, transactions or null if nobody knows], …]}; '
  'a type that is not there any more is among them. '
  'Marks are kept for ten seconds: who comes later reads everything anew.';
grant execute on function pgfresh_engine.watch_changes(int[], pg_snapshot) to pgfresh_gateway;

create or replace function pgfresh_engine.pump_changes(p_holder uuid, p_since pg_snapshot default null) returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := pgfresh.clock();
  v_answer jsonb;
begin
  perform pgfresh_engine.require_primary();
  if p_holder is null then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      'p_holder must not be null',
      'Pass a uuid of your own making, the same for each call.');
  end if;
  perform set_config('synchronous_commit', 'off', true);
  if not exists (
        select from pgfresh_engine.duty
        where name = 'pump' and holder = p_holder and lease_until > v_now + interval '2 seconds'
      )
      and not pgfresh_engine.hold_duty('pump', p_holder, interval '3 seconds') then
    return null;
  end if;
  select jsonb_build_object(
    'snapshot', s.snapshot::text, 'changes', pgfresh_engine.changes_since(p_since), 'unsettled', w.types)
  into v_answer
  from (select pg_current_snapshot() as snapshot) as s
  cross join (
    select coalesce(jsonb_agg(jsonb_build_array(type_id, since::text)), '[]') as types
    from pgfresh_engine.watched_type
    where not settled
  ) as w;
  if v_answer -> 'unsettled' <> '[]' then
    -- Every transaction that has written so far has a number below this one.
    v_answer := v_answer || jsonb_build_object('next', pg_current_xact_id()::text::bigint);
  end if;
  return v_answer;
end
$$;
comment on function pgfresh_engine.pump_changes(uuid, pg_snapshot) is
  'Takes or renews the duty of the one who tells of changes; null while another one has it. '
  'Else as watch_changes, and besides which types are watched only just now, '
  'and the first transaction that cannot have missed that.';
grant execute on function pgfresh_engine.pump_changes(uuid, pg_snapshot) to pgfresh_gateway;

create or replace function pgfresh_engine.settle_changes(
  p_from pg_snapshot, p_to pg_snapshot, p_unmarked int[] default '{}', p_types int[] default '{}',
  p_since timestamptz[] default '{}')
returns bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
  v_first bigint := 0;
  v_more bigint := 0;
begin
  perform pgfresh_engine.require_primary();
  if p_types is null or p_since is null or cardinality(p_types) <> cardinality(p_since) or cardinality(p_types) > 10000
      or p_unmarked is null or cardinality(p_unmarked) > 10000 or array_position(p_unmarked, null) is not null then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      'p_unmarked must be types with no null, and p_types and p_since arrays of one length, each at most 10000',
      'Pass them as pump_changes returned them.');
  end if;
  perform set_config('synchronous_commit', 'off', true);
  if p_to is not null then
    delete from pgfresh_engine.change as c
    where c.xid >= pg_snapshot_xmax(coalesce(p_from, '1:1:')) and c.xid < pg_snapshot_xmax(p_to)
      and pg_visible_in_snapshot(c.xid, p_to);
    get diagnostics v_first = row_count;
    delete from pgfresh_engine.change as c
    where c.xid = any (array(select pg_snapshot_xip(p_from))) and pg_visible_in_snapshot(c.xid, p_to);
    get diagnostics v_more = row_count;
  end if;
  if cardinality(p_unmarked) > 0 then
    insert into pgfresh_engine.change (type_id, keys) select t.id, '{}' from unnest(p_unmarked) as t(id);
  end if;
  if cardinality(p_types) > 0 then
    -- One that an open transaction deletes stays unsettled until a later call.
    update pgfresh_engine.watched_type as w
    set settled = true
    from (
      select o.type_id
      from unnest(p_types, p_since) as t(type_id, since)
      join pgfresh_engine.watched_type as o on o.type_id = t.type_id and o.since = t.since
      order by o.type_id for update of o skip locked
    ) as s
    where w.type_id = s.type_id;
  end if;
  return v_first + v_more;
end
$$;
comment on function pgfresh_engine.settle_changes(pg_snapshot, pg_snapshot, int[], int[], timestamptz[]) is
  'Forgets the marks between two snapshots, which everybody has heard of; '
  'marks whole types to which somebody has written who could not know that they are watched; '
  'and notes of types that nobody writes to them any more who could not. Returns how many marks are forgotten.';
grant execute on function pgfresh_engine.settle_changes(pg_snapshot, pg_snapshot, int[], int[], timestamptz[]) to
  pgfresh_gateway;

create or replace function pgfresh_engine.clear_unwatched_changes() returns bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_count bigint;
begin
  -- One statement: who sees a mark in it also sees that somebody has begun to watch before.
  delete from pgfresh_engine.change as c
  where not exists (
    select from pgfresh_engine.watched_type as w
    where w.type_id = c.type_id and w.watched_until > (select pgfresh.clock()) - interval '1 minute'
  );
  get diagnostics v_count = row_count;
  return v_count;
end
$$;
comment on function pgfresh_engine.clear_unwatched_changes() is
  'Forgets marks that nobody waits for. Returns how many.';
grant execute on function pgfresh_engine.clear_unwatched_changes() to pgfresh_planner;

create or replace function pgfresh_engine.version_of(p_snapshot pg_snapshot) returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select e.epoch
    || '.' || lpad(to_hex(pg_snapshot_xmax(p_snapshot)::text::bigint), 12, '0')
    || '.' || lpad(to_hex(65535 - least(65535, (select count(*) from pg_snapshot_xip(p_snapshot)))), 4, '0')
  from pgfresh_engine.change_epoch as e
$$;
comment on function pgfresh_engine.version_of(pg_snapshot) is
  'A snapshot as a text that is greater than that of every earlier one, byte by byte: '
  'a later snapshot has a higher end, or the same one and fewer transactions that still run.';

create or replace function pgfresh_engine.ask_rows(p_type_id int, p_keys text[])
returns table (key text, rows text, fetched_at timestamptz, ttl interval)
-- Stable, so that it reads by the snapshot of the statement that calls it.
language plpgsql stable security definer
set search_path = pg_catalog, public, pg_temp
set plan_cache_mode = auto
set enable_seqscan = on
as $$
begin
  perform set_config('transaction_read_only', 'on', true);
  return query execute format('select r.key, r.rows, r.fetched_at, r.ttl from pgfresh_engine.rows_%s($1) as r',
    p_type_id)
    using p_keys;
  perform pgfresh_engine.clear_leftovers(pg_catalog.current_setting('search_path'));
-- Never raised. It makes this a subtransaction, at whose end the transaction may write again.
exception when sqlstate 'PGF00' then raise;
end
$$;
comment on function pgfresh_engine.ask_rows(int, text[]) is 'Reads the rows of pairs of a data type as the evaluator.';
alter function pgfresh_engine.ask_rows(int, text[]) owner to pgfresh_evaluator;
grant execute on function pgfresh_engine.ask_rows(int, text[]) to current_user;

create or replace function pgfresh_engine.require_readable(p_type_id int, p_keys text[])
returns pgfresh.data_type_registry
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_type pgfresh.data_type_registry;
begin
  perform pgfresh_engine.require_primary();
  select * into v_type from pgfresh.data_type_registry where type_id = p_type_id;
  if not found then
    perform pgfresh_engine.refuse('PGF_TYPE_UNKNOWN',
      format('there is no data type with the number %s', coalesce(p_type_id::text, 'null')),
      'The known ones: select type_id, data_type from pgfresh.data_type_registry.');
  end if;
  if p_keys is null or array_position(p_keys, null) is not null or cardinality(p_keys) > 10000 then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      'p_keys must be an array of at most 10000 keys, with no null in it',
      'Pass the keys as want_pairs returned them.');
  end if;
  if not exists (select from pgfresh_engine.change_epoch) then
    -- A restored database begins later than the one that it was. The timeline grows with every failover, and what is on
    -- the disk of the log is there after a crash too.
    insert into pgfresh_engine.change_epoch (epoch)
    select lpad(to_hex(extract(epoch from d.since)::bigint), 10, '0')
      || '.' || lpad(lower(ltrim(left(pg_walfile_name(pg_current_wal_lsn()), 8), '0')), 6, '0')
      || '.' || lpad(to_hex((pg_current_wal_flush_lsn() - '0/0')::bigint), 14, '0')
    from pgfresh_engine.database_identity as d
    on conflict do nothing;
  end if;
  return v_type;
end
$$;
comment on function pgfresh_engine.require_readable(int, text[]) is
  'The data type of pairs that are to be read; refuses what cannot be read. From here on versions have a beginning.';

create or replace function pgfresh_engine.read_pairs(p_type_id int, p_keys text[])
returns table (
  version text, snapshot text, key text, rows text, fetched_at timestamptz, stale_at timestamptz,
  source_at timestamptz, state text, activity text, reason text, failing boolean, as_of timestamptz
)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
-- Times in the rows are written the same way whoever reads them.
set timezone = 'UTC'
as $$
#variable_conflict use_column
declare
  v_type pgfresh.data_type_registry := pgfresh_engine.require_readable(p_type_id, p_keys);
  v_source record;
begin
  if v_type.visibility <> 'shared' then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      format('the rows of %s are not for everybody', v_type.data_type),
      'Read them as the user who looks, with read_pairs_as.');
  end if;
  select coalesce(h.reason, case when b.paused_until > c.now then 'paused' end) as reason,
    coalesce(h.until, case when b.paused_until > c.now then b.paused_until end) as until,
    -- What jobs wait for while one of them tries for all.
    case when s.breaker_opened_at is not null then 'breaker' when b.opened_at is not null then 'paused' end as probed
  into v_source
  from (select pgfresh.clock() as now) as c
  cross join pgfresh_engine.source_hindrance(v_type.source_id, c.now) as h
  join pgfresh.sources as s on s.id = v_type.source_id
  left join pgfresh_engine.breaker as b on b.type_id = v_type.type_id;
  -- It lasts until somebody starts one, so it outlasts what ends by itself.
  if v_source.until is distinct from 'infinity'
    and pgfresh_engine.worker_obstacle(v_type, pgfresh.clock()) is not null then
    v_source.reason := 'no_worker';
    v_source.until := 'infinity';
  end if;
  -- One statement, whose snapshot is the version of everything that it reads. The version is made once (offset 0), and
  -- each pair looked up by itself: a join could read them all.
  return query
    select s.version, s.snapshot, a.key, '[' || coalesce(a.rows, '') || ']', a.fetched_at,
      case when t.state = 'empty' then (p.pair).empty_at + coalesce(v_type.empty_ttl, v_type.ttl) else t.stale_at end,
      (p.pair).source_at, t.state, w.activity, w.reason,
      coalesce((p.pair).fails > 0 or j.retries > 0, false), s.as_of
    from (
      select pgfresh.clock() as as_of, pgfresh_engine.version_of(pg_current_snapshot()) as version,
        pg_current_snapshot()::text as snapshot
      offset 0
    ) as s
    cross join pgfresh_engine.ask_rows(p_type_id, p_keys) as a
    cross join lateral (
      select (select p from pgfresh_engine.pairs as p where p.type_id = p_type_id and p.key = a.key collate "C") as pair
      offset 0
    ) as p
    left join lateral (
      select j.state, j.run_at, j.retries from pgfresh_engine.job as j where j.id = (p.pair).job_id
    ) as j on true
    cross join lateral (
      select u.stale_at,
        pgfresh_engine.state_of(p.pair, a.rows is not null, a.fetched_at, u.stale_at,
          coalesce(v_type.empty_ttl, v_type.ttl), v_type.max_source_age, s.as_of) as state
      from (
        select case
          when a.rows is null then (p.pair).empty_at + coalesce(v_type.empty_ttl, v_type.ttl)
          -- As the planner knows it, if this is the row that it knows.
          when a.fetched_at = (p.pair).row_at then (p.pair).stale_at
          when a.fetched_at is not null then least(a.fetched_at, '9999-12-31') + coalesce(a.ttl, v_type.ttl)
        end as stale_at
      ) as u
      offset 0
    ) as t
    cross join lateral pgfresh_engine.activity_of(p.pair, t.state, j.state, j.run_at,
      v_type.refresh_strategy = 'scheduled',
      coalesce(v_source.reason, case when j.state is not null then v_source.probed end),
      coalesce(v_source.until,
        case when j.state is not null and v_source.probed is not null then s.as_of + interval '10 seconds' end),
      s.as_of) as w
    where not pgfresh_engine.is_row_lost(p.pair, a.rows is not null, a.fetched_at)
      or pgfresh_engine.hasten(p_type_id, a.key, s.as_of) is not null;
end
$$;
comment on function pgfresh_engine.read_pairs(int, text[]) is
  'The rows and the state of pairs of a shared data type, read by one statement, with its version and its snapshot: '
  'when the row was fetched and goes stale, how old it is at the source, the state of the data, what happens with it '
  'and for what it waits, and whether its last refresh has failed. '
  'Versions are texts that compare byte by byte.';
grant execute on function pgfresh_engine.read_pairs(int, text[]) to pgfresh_gateway;
