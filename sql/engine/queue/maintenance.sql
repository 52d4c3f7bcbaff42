/*
  Creates partitions of coming days and drops those of past days. A new partition is created apart and then attached.
  That takes no lock that a reader or an end would wait for, as long as the default partition is empty: otherwise the
  server reads all of it under an exclusive lock. So it is kept empty. Ends are written there when the partition of
  their day does not exist. Then the whole default partition is set aside, an empty one replaces it, and its rows move
  to their days in bounded sets, while ends proceed.
*/
create or replace function pgfresh_engine.make_history_days(p_tree text, p_days date[]) returns int
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
    continue when to_regclass('pgfresh_engine.' || v_name) is not null;
    execute format('create table pgfresh_engine.%I (like pgfresh_engine.%I including defaults)', v_name, p_tree);
    execute format('alter table pgfresh_engine.%I attach partition pgfresh_engine.%I for values from (%L) to (%L)',
      p_tree, v_name, v_day::text || ' 00:00:00+00', (v_day + 1)::text || ' 00:00:00+00');
    v_made := v_made + 1;
  end loop;
  return v_made;
end
$$;
comment on function pgfresh_engine.make_history_days(text, date[]) is
  'Makes the partitions of these days that one part of the history lacks. A part of maintain_queue_partitions.';

create or replace function pgfresh_engine.history_aside() returns table (tree text, name text)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select left(c.relname, -15), c.relname
  from pg_class as c
  where c.relnamespace = 'pgfresh_engine'::regnamespace and c.relname ~ '^history_[a-z]+_aside_[0-9]{8}$'
$$;
comment on function pgfresh_engine.history_aside() is
  'Tables whose rows were set aside and have yet to move to their days, by the part of the history they belong to.';

create or replace function pgfresh_engine.move_history(
  p_tree text, p_since timestamptz, p_limit int, out moved bigint, out made int)
language plpgsql
set search_path = pg_catalog, pg_temp
-- Rows are deleted by ctid. Without statistics, all 25000 of a table were read to delete 500.
set enable_seqscan = off
set jit = off
as $$
declare
  v_aside text := (select min(a.name) from pgfresh_engine.history_aside() as a where a.tree = p_tree);
  v_places tid[];
  v_days date[];
  v_columns text := (
    select string_agg(format('%I', attname), ', ' order by attnum)
    from pg_attribute
    where attrelid = ('pgfresh_engine.' || p_tree)::regclass and attnum > 0 and not attisdropped);
begin
  moved := 0;
  made := 0;
  if v_aside is null then
    return;
  end if;
  execute format('select array_agg(ctid), array_agg(distinct (ended_at at time zone ''UTC'')::date) '
    'filter (where ended_at >= $2) from (select ctid, ended_at from pgfresh_engine.%I limit $1) as next', v_aside)
  into v_places, v_days
  using p_limit, p_since;
  made := pgfresh_engine.make_history_days(p_tree, coalesce(v_days, '{}'));
  execute format('with gone as (delete from pgfresh_engine.%1$I where ctid = any ($1) returning *) '
    'insert into pgfresh_engine.%2$I (%3$s) select %3$s from gone where ended_at >= $2', v_aside, p_tree, v_columns)
  using v_places, p_since;
  get diagnostics moved = row_count;
  if coalesce(cardinality(v_places), 0) < p_limit then
    execute format('drop table pgfresh_engine.%I', v_aside);
  end if;
end
$$;
comment on function pgfresh_engine.move_history(text, timestamptz, int) is
  'Moves the next rows of one part of the history that were set aside, if there are any, to their days, '
  'and deletes older ones. A part of maintain_queue_partitions.';
