/*
  A bad type must affect only itself. A gate that hangs, a staleness function that loops, a lock on a mirrored table:
  each timeout is recorded here. The second within a minute puts the type in quarantine: planner, gateways and
  workers skip it, and the planner probes it once per second, for at most 100 ms and on its own connection.
  The first probe that gets an answer ends the quarantine. A minute without a probe ends it too, so that it does not
  outlive the planner.
*/
create or replace function pgfresh_engine.is_quarantined(p_type_id int, p_now timestamptz) returns boolean
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select exists (
    select from pgfresh_engine.type_timeout as t
    where t.type_id = p_type_id and t.timeouts > 1 and t.last_at > p_now - interval '1 minute'
  )
$$;
comment on function pgfresh_engine.is_quarantined(int, timestamptz) is
  'Whether a data type is in quarantine: it has timed out twice within a minute, and no probe has succeeded since.';

create or replace function pgfresh_engine.quarantined_types()
returns table (
  type_id int, data_type text, since timestamptz, timeouts int, last_where text, last_message text,
  problem text, next_step text
)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select r.type_id, r.data_type, t.since, t.timeouts, t.last_where, t.last_message,
    format('it has not answered in time since %s (%s: %s)',
      to_char(t.since, 'YYYY-MM-DD HH24:MI:SSOF'), t.last_where, t.last_message),
    format('See what holds it up: a lock on %s, or a function of its registry row. It is probed every second.',
      r.table_name)
  from pgfresh_engine.type_timeout as t
  join pgfresh.data_type_registry as r on r.type_id = t.type_id
  where pgfresh_engine.is_quarantined(r.type_id, (select pgfresh.clock()))
  order by r.data_type
$$;
comment on function pgfresh_engine.quarantined_types() is
  'The data types that are in quarantine: since when, how often they have timed out, where and with what message; '
  'the same as a sentence, and what to do.';
grant execute on function pgfresh_engine.quarantined_types() to
  pgfresh_worker, pgfresh_planner, pgfresh_gateway, pgfresh_monitor, pgfresh_operator;

create or replace function pgfresh_engine.note_type_timeout(p_type_id int, p_where text, p_message text) returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '100ms'
as $$
declare
  v_now timestamptz := pgfresh.clock();
  v_timeouts int;
begin
  -- Nothing for a type that is gone, or being deleted by an open transaction: the foreign key would wait for that.
  insert into pgfresh_engine.type_timeout as t (type_id, since, last_at, timeouts, last_where, last_message)
  select r.type_id, v_now, v_now, 1, left(p_where, 60), left(p_message, 500)
  from (
    select type_id from pgfresh.data_type_registry where type_id = p_type_id for key share skip locked
  ) as r
  on conflict (type_id) do update
  set since = case when t.last_at > v_now - interval '1 minute' then t.since else v_now end,
    timeouts = case when t.last_at > v_now - interval '1 minute' then t.timeouts + 1 else 1 end,
    last_at = v_now, last_where = excluded.last_where, last_message = excluded.last_message
  returning t.timeouts into v_timeouts;
  if v_timeouts = 2 then
    perform pgfresh_engine.warn('type_quarantined', q.data_type,
      format('%s timed out twice (%s: %s), so it is neither planned nor read; the other data types go on',
        q.data_type, q.last_where, q.last_message),
      q.next_step)
    from pgfresh_engine.quarantined_types() as q
    where q.type_id = p_type_id;
  end if;
  return coalesce(v_timeouts > 1, false);
exception when foreign_key_violation or lock_not_available then
  -- The type is being deleted right now, or an open transaction of a viewer records the same.
  return false;
end
$$;
comment on function pgfresh_engine.note_type_timeout(int, text, text) is
  'Notes that a data type has kept a process waiting for too long: where (tick, sweep, read, commit …) and with what '
  'message. The second time within a minute puts it into quarantine. Returns whether it is in quarantine.';
grant execute on function pgfresh_engine.note_type_timeout(int, text, text) to
  pgfresh_worker, pgfresh_planner, pgfresh_gateway;

-- Only locks that block workers' commits. Readers find out by reading.
create or replace function pgfresh_engine.is_write_locked(p_table oid) returns boolean
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  select exists (
    select from pg_locks as l
    where l.locktype = 'relation' and l.relation = p_table and l.pid <> pg_backend_pid()
      and l.database = (select d.oid from pg_database as d where d.datname = current_database())
      and l.mode in ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
  )
$$;
comment on function pgfresh_engine.is_write_locked(oid) is
  'Whether another session has, or waits for, a lock on a table that keeps others from writing rows. '
  'A part of probe_type.';

create or replace function pgfresh_engine.probe_type(p_type_id int) returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := pgfresh.clock();
  v_type record;
  v_keys text[] := array(
    select p.key from pgfresh_engine.pairs as p where p.type_id = p_type_id and p.demanded order by p.key limit 100);
  v_none timestamptz[];
begin
  perform pgfresh_engine.require_primary();
  select r.data_type, r.ttl, res.gate_sql, res.unknown_sql, res.keys_sql, res.tables[1] as table_id
  into v_type
  from pgfresh.data_type_registry as r
  join pgfresh_engine.type_resolution as res on res.type_id = r.type_id
  where r.type_id = p_type_id;
  if not found then
    return false;
  end if;
  if pgfresh_engine.is_write_locked(v_type.table_id) then
    perform pgfresh_engine.note_type_timeout(p_type_id, 'probe', 'its table is locked');
    return false;
  end if;
  if v_keys = '{}' then
    v_keys := '{x}';
  end if;
  v_none := array_fill(null::timestamptz, array[cardinality(v_keys)]);
  begin
    perform from pgfresh_engine.ask_stale(p_type_id, v_keys, v_none, v_none, v_none, v_type.ttl, v_now);
    if v_type.gate_sql is not null then
      perform from pgfresh_engine.ask_gate(v_type.gate_sql, v_keys, v_type.data_type);
    end if;
    if v_type.unknown_sql is not null then
      perform from pgfresh_engine.ask_keys(v_type.unknown_sql, v_keys);
      perform from pgfresh_engine.ask_next_keys(v_type.keys_sql, null, 100);
    end if;
  exception
    when lock_not_available then
      perform pgfresh_engine.note_type_timeout(p_type_id, 'probe', sqlerrm);
      return false;
    -- An error also counts as an answer.
    when others then null;
  end;
  delete from pgfresh_engine.type_timeout where type_id = p_type_id;
  return true;
end
$$;
comment on function pgfresh_engine.probe_type(int) is
  'Asks a data type in quarantine about up to 100 viewed pairs, and ends the quarantine if that works. '
  'Call it once per second with a lock_timeout and a statement_timeout of 100 ms. Returns whether it works again.';
grant execute on function pgfresh_engine.probe_type(int) to pgfresh_planner;
