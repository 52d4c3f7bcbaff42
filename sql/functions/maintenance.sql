/*
  Days ahead are made, days behind are dropped. A new day is made apart and then attached, which takes no lock that a
  reader or an end would wait for. Dropping does, so it waits for a moment only, and gives up with a warning while a
  long reader is there.
*/
create or replace function pgfresh.maintain_queue_partitions(
  p_keep_succeeded_days int default 7, p_keep_other_days int default 30)
returns jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '200ms'
as $$
declare
  v_today date := (pgfresh.clock() at time zone 'UTC')::date;
  v_made int := 0; v_dropped int := 0; v_busy int := 0;
  v_tree text; v_keep int; v_day date; v_name text;
begin
  perform pgfresh.require_range('p_keep_succeeded_days', p_keep_succeeded_days, 1, 3650);
  perform pgfresh.require_range('p_keep_other_days', p_keep_other_days, 1, 3650);
  for v_tree, v_keep in
    values
      ('history_succeeded', p_keep_succeeded_days), ('history_other', p_keep_other_days),
      ('history_attempt', p_keep_other_days)
  loop
    for v_day in select generate_series(v_today, v_today + 3, interval '1 day')::date loop
      v_name := format('%s_%s', v_tree, to_char(v_day, 'YYYYMMDD'));
      continue when to_regclass('pgfresh.' || v_name) is not null;
      begin
        execute format('create table pgfresh.%I (like pgfresh.%I including defaults)', v_name, v_tree);
        execute format('alter table pgfresh.%I attach partition pgfresh.%I for values from (%L) to (%L)',
          v_tree, v_name, v_day::text || ' 00:00:00+00', (v_day + 1)::text || ' 00:00:00+00');
        v_made := v_made + 1;
      exception when lock_not_available or check_violation then
        -- Ends of that day that came before it was made are in the default partition and stay there.
        v_busy := v_busy + 1;
        raise warning 'partition % could not be made now: %', v_name, sqlerrm;
      end;
    end loop;
    for v_name in
      select c.relname
      from pg_inherits as i
      join pg_class as c on c.oid = i.inhrelid
      where i.inhparent = ('pgfresh.' || v_tree)::regclass
        and c.relname ~ '_\d{8}$' and to_date(right(c.relname, 8), 'YYYYMMDD') < v_today - v_keep
    loop
      begin
        execute format('drop table pgfresh.%I', v_name);
        v_dropped := v_dropped + 1;
      exception when lock_not_available then
        v_busy := v_busy + 1;
        raise warning 'partition % is in use and stays until the next run', v_name;
      end;
    end loop;
    execute format('delete from pgfresh.%I where ended_at < %L',
      v_tree || '_default', pgfresh.clock() - make_interval(days => v_keep + 1));
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
  return jsonb_build_object('made', v_made, 'dropped', v_dropped, 'busy', v_busy);
end
$$;
comment on function pgfresh.maintain_queue_partitions(int, int) is
  'Makes the history''s partitions of today and the next three days and drops those older than the days to keep. '
  'Never waits long for a lock: what is in use is left, with a warning, for the next run. '
  'Returns {"made", "dropped", "busy"}.';

select pgfresh.maintain_queue_partitions();
