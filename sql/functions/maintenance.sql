/*
  Days ahead are made, days behind are dropped. A new day is made apart and then attached, which takes no lock that a
  reader or an end would wait for, as long as the default partition is empty: the server reads all of it under a lock
  that nobody gets past. So it is kept empty. Ends land there when nobody has made their day; then the whole partition
  is set aside, an empty one takes its place, and its rows move to their days in bounded sets, while ends go on.
*/
create or replace function pgfresh.make_history_days(p_tree text, p_days date[]) returns int
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_day date;
  v_name text;
  v_made int := 0;
begin
  foreach v_day in array p_days loop
    v_name := format('%s_%s', p_tree, to_char(v_day, 'YYYYMMDD'));
    continue when to_regclass('pgfresh.' || v_name) is not null;
    execute format('create table pgfresh.%I (like pgfresh.%I including defaults)', v_name, p_tree);
    execute format('alter table pgfresh.%I attach partition pgfresh.%I for values from (%L) to (%L)',
      p_tree, v_name, v_day::text || ' 00:00:00+00', (v_day + 1)::text || ' 00:00:00+00');
    v_made := v_made + 1;
  end loop;
  return v_made;
end
$$;
comment on function pgfresh.make_history_days(text, date[]) is
  'Makes the partitions of these days that one part of the history lacks. A part of maintain_queue_partitions.';

create or replace function pgfresh.history_aside() returns table (tree text, name text)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select left(c.relname, -15), c.relname
  from pg_class as c
  where c.relnamespace = 'pgfresh'::regnamespace and c.relname ~ '^history_[a-z]+_aside_\d{8}$'
$$;
comment on function pgfresh.history_aside() is
  'Tables whose rows were set aside and have yet to move to their days, by the part of the history they belong to.';

create or replace function pgfresh.set_history_aside(p_tree text, p_today date) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_name text := format('%s_aside_%s', p_tree, to_char(p_today, 'YYYYMMDD'));
begin
  -- Twice on one day: the rows of the first time move first.
  if to_regclass('pgfresh.' || v_name) is not null then
    return;
  end if;
  execute format('alter table pgfresh.%I detach partition pgfresh.%I', p_tree, p_tree || '_default');
  execute format('alter table pgfresh.%I rename to %I', p_tree || '_default', v_name);
  execute format('create table pgfresh.%I partition of pgfresh.%I default', p_tree || '_default', p_tree);
end
$$;
comment on function pgfresh.set_history_aside(text, date) is
  'Puts an empty default partition in the place of one that has rows. A part of maintain_queue_partitions.';

create or replace function pgfresh.move_history(
  p_tree text, p_aside text, p_since timestamptz, p_limit int, out moved bigint, out made int)
language plpgsql
set search_path = pg_catalog, pg_temp
-- Rows are deleted by their place. Without statistics all 25000 of a table were read to delete 500.
set enable_seqscan = off
set jit = off
as $$
declare
  v_places tid[];
  v_days date[];
  v_columns text := (
    select string_agg(format('%I', attname), ', ' order by attnum)
    from pg_attribute
    where attrelid = ('pgfresh.' || p_tree)::regclass and attnum > 0 and not attisdropped);
begin
  execute format('select array_agg(ctid), array_agg(distinct (ended_at at time zone ''UTC'')::date) '
    'filter (where ended_at >= $2) from (select ctid, ended_at from pgfresh.%I limit $1) as next', p_aside)
  into v_places, v_days
  using p_limit, p_since;
  made := pgfresh.make_history_days(p_tree, coalesce(v_days, '{}'));
  execute format('with gone as (delete from pgfresh.%1$I where ctid = any ($1) returning *) '
    'insert into pgfresh.%2$I (%3$s) select %3$s from gone where ended_at >= $2', p_aside, p_tree, v_columns)
  using v_places, p_since;
  get diagnostics moved = row_count;
  if coalesce(cardinality(v_places), 0) < p_limit then
    execute format('drop table pgfresh.%I', p_aside);
  end if;
end
$$;
comment on function pgfresh.move_history(text, text, timestamptz, int) is
  'Moves the next rows that were set aside to their days, and forgets older ones. A part of maintain_queue_partitions.';

create or replace function pgfresh.maintain_queue_partitions(
  p_keep_succeeded_days int default 7, p_keep_other_days int default 30)
returns jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '200ms'
as $$
declare
  -- Rows that a call moves of each part: a tenth of a second.
  c_rows constant int := 10000;
  c_few_rows constant int := 500;
  v_today date := (pgfresh.clock() at time zone 'UTC')::date;
  v_ahead date[] := array(select generate_series(v_today, v_today + 3, interval '1 day')::date);
  v_made int := 0; v_dropped int := 0; v_busy int := 0; v_moved bigint := 0;
  v_trees text[] := '{history_succeeded, history_other, history_attempt}';
  v_keeps int[] := array[p_keep_succeeded_days, p_keep_other_days, p_keep_other_days];
  v_filled text[] := '{}';
  v_tree text; v_keep int; v_name text;
  v_move record;
  v_any boolean;
begin
  perform pgfresh.require_range('p_keep_succeeded_days', p_keep_succeeded_days, 1, 3650);
  perform pgfresh.require_range('p_keep_other_days', p_keep_other_days, 1, 3650);
  if not pg_try_advisory_xact_lock(7041, 5) then
    return jsonb_build_object('skipped', 'locked');
  end if;
  -- First what no end waits for.
  for v_tree, v_keep in select * from unnest(v_trees, v_keeps) loop
    execute format('select exists (select from pgfresh.%I)', v_tree || '_default') into v_any;
    if v_any then
      v_filled := v_filled || v_tree;
      continue;
    end if;
    begin
      v_made := v_made + pgfresh.make_history_days(v_tree, v_ahead);
      for v_name in select a.name from pgfresh.history_aside() as a where a.tree = v_tree order by a.name limit 1 loop
        v_move := pgfresh.move_history(
          v_tree, v_name, (v_today - v_keep)::timestamp at time zone 'UTC', c_rows);
        v_moved := v_moved + v_move.moved;
        v_made := v_made + v_move.made;
      end loop;
    exception when lock_not_available then
      v_busy := v_busy + 1;
      raise warning 'partitions of % could not be made now: %', v_tree, sqlerrm;
    end;
  end loop;
  -- Then what ends wait for. Once one lock is had, others are not waited for: ends would wait as long.
  for v_tree, v_keep, v_name in
    select t.tree, t.keep, c.relname
    from unnest(v_trees, v_keeps) as t(tree, keep)
    join pg_inherits as i on i.inhparent = ('pgfresh.' || t.tree)::regclass
    join pg_class as c on c.oid = i.inhrelid
    where c.relname ~ '_\d{8}$' and to_date(right(c.relname, 8), 'YYYYMMDD') < v_today - t.keep
    order by c.relname
  loop
    begin
      execute format('drop table pgfresh.%I', v_name);
      v_dropped := v_dropped + 1;
      perform set_config('lock_timeout', '10ms', true);
    exception when lock_not_available then
      v_busy := v_busy + 1;
      raise warning 'partition % is in use and stays until the next run', v_name;
    end;
  end loop;
  foreach v_tree in array v_filled loop
    begin
      perform pgfresh.set_history_aside(v_tree, v_today);
      v_made := v_made + pgfresh.make_history_days(v_tree, v_ahead);
      perform set_config('lock_timeout', '10ms', true);
      -- Few rows are moved at once: while ends wait, so only as many as a few milliseconds allow.
      for v_name in select a.name from pgfresh.history_aside() as a where a.tree = v_tree order by a.name limit 1 loop
        v_keep := v_keeps[array_position(v_trees, v_tree)];
        v_move := pgfresh.move_history(
          v_tree, v_name, (v_today - v_keep)::timestamp at time zone 'UTC', c_few_rows);
        v_moved := v_moved + v_move.moved;
        v_made := v_made + v_move.made;
      end loop;
    exception when lock_not_available then
      v_busy := v_busy + 1;
      raise warning 'the default partition of % is in use and stays until the next run', v_tree;
    end;
  end loop;
  -- Names that no row of the history has any more.
  delete from pgfresh.worker_name
  where id = any (array(
    select n.id
    from pgfresh.worker_name as n
    where n.last_seen_at
        < pgfresh.clock() - make_interval(days => greatest(p_keep_succeeded_days, p_keep_other_days) + 2)
      and not exists (select from pgfresh.worker as w where w.id = n.id)
    for update of n skip locked));
  return jsonb_build_object(
    'made', v_made, 'dropped', v_dropped, 'busy', v_busy, 'moved', v_moved,
    'aside', (select count(*) from pgfresh.history_aside()));
end
$$;
comment on function pgfresh.maintain_queue_partitions(int, int) is
  'Makes the history''s partitions of today and the next three days and drops those older than the days to keep. '
  'Never waits long for a lock: what is in use is left, with a warning, for the next run. '
  'Rows of days that nobody had made are set aside and moved to their days, at most 10000 of each part a call: '
  'call it again while "aside" is not 0. '
  'Returns {"made", "dropped", "busy", "moved", "aside"}, or {"skipped"} while another call is at it.';

select pgfresh.maintain_queue_partitions();
