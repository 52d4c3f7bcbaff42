/*
  A database restored from a dump, or copied as a template, has the rows of the old one but not its environment:
  other oids of tables, functions and roles, another xid counter, and none of the processes that held leases. It is
  recognised by its identity: the server, the database, and a table of ours.
*/
-- With the owner's rights, so that what it may read of the server does not depend on the caller.
create or replace function pgfresh_engine.current_identity() returns text
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_server text;
begin
  -- Some hosting providers do not grant it.
  if has_function_privilege('pg_control_system()', 'execute') then
    v_server := (select c.system_identifier from pg_control_system() as c);
  end if;
  return concat_ws('/', v_server, (select d.oid from pg_database as d where d.datname = current_database()),
    'pgfresh_engine.database_identity'::regclass::oid);
end
$$;
comment on function pgfresh_engine.current_identity() is
  'What this database is recognised by: the server, the database and a table, by their numbers.';

create or replace function pgfresh_engine.follow_restore() returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_identity text := pgfresh_engine.current_identity();
  v_schema oid := (select relnamespace from pg_class where oid = 'pgfresh_engine.database_identity'::regclass);
  v_now timestamptz := pgfresh.clock();
  v_function text;
begin
  if exists (select from pgfresh_engine.database_identity where identity in (v_identity, ''))
      or current_setting('transaction_read_only') = 'on' then
    return false;
  end if;
  -- One at a time; later callers find it done.
  perform from pgfresh_engine.database_identity for update;
  if exists (select from pgfresh_engine.database_identity where identity = v_identity) then
    return false;
  end if;
  -- Restored without owners, these functions would read users' tables with the rights of the role that restored them.
  if exists (
    select from pg_proc
    where pronamespace = v_schema and proname in ('ask_stale', 'ask_gate', 'ask_keys', 'ask_next_keys', 'ask_rows')
      and proowner is distinct from to_regrole('pgfresh_evaluator')
  ) then
    perform pgfresh_engine.refuse('PGF_RESTORE_OWNERS',
      'this database was restored without the owners of its functions',
      'Run pgfresh migrate as the owner of the schema: it gives them back.');
  end if;

  -- Changes are read by xid, and xids of the old database may be in the future here.
  delete from pgfresh_engine.change;
  delete from pgfresh_engine.watched_type;
  delete from pgfresh_engine.change_epoch;
  delete from pgfresh_engine.viewer_calls;
  -- Functions whose roles or owners were not restored. Each is recreated when needed.
  for v_function in
    select oid::regprocedure::text
    from pg_proc
    where pronamespace = v_schema and proname ~ '^(run|read)_as_[0-9]+$'
      and not exists (
        select from pgfresh_engine.acting_role as a
        where a.id = substring(proname from '[0-9]+$')::bigint and to_regrole(quote_ident(a.name)) = proowner)
  loop
    execute format('drop function %s', v_function);
  end loop;
  perform pgfresh_engine.renew_types(true);
  perform pgfresh_engine.renew_jobs();

  -- No process of the old database exists here. Their jobs and runs are recovered like those of dead processes.
  delete from pgfresh_engine.duty;
  update pgfresh_engine.process
  set lease_until = v_now, idle = false
  where kind = 'worker' and lease_until > v_now;
  delete from pgfresh_engine.node_demand;
  delete from pgfresh_engine.process where kind = 'gateway';
  delete from pgfresh_engine.subscription where last_seen_at < v_now - pgfresh_engine.longest_silence();
  update pgfresh.refresh_schedule
  set locked_until = null, locked_by = null, locked_at = null
  where locked_until is not null;
  -- Tokens issued after the dump was made must not be issued again.
  perform setval('pgfresh_engine.lock_token', nextval('pgfresh_engine.lock_token') + 1000000);
  -- Calls made after the dump, or by the database that this is a copy of, are unknown.
  perform pgfresh_engine.count_unknown_calls(id, api_keys) from pgfresh.sources where rate_limit_per_minute is not null;

  update pgfresh_engine.database_identity set identity = v_identity, since = v_now;
  perform pgfresh_engine.warn('database_restored', current_database(),
    'this database was restored from a dump or copied from another: leases of its processes have ended, '
    'and sources with a rate wait for a minute',
    'Nothing, if it takes the place of the other one. A copy that is to call no provider: '
    'insert into pgfresh.spending_stop (reason) values (''a copy'');');
  return true;
end
$$;
comment on function pgfresh_engine.follow_restore() is
  'Ends in a restored or copied database what belonged to the one that it was: leases, watches and marks; '
  'and has sources with a rate wait for a minute. Returns whether it was one. '
  'Called when a process registers, by the sweep, and by "pgfresh migrate".';

-- For new installations, and those made by an earlier version.
update pgfresh_engine.database_identity set identity = pgfresh_engine.current_identity() where identity = '';
