/*
  Undoes what a user's function leaves behind. The commit reads a cursor "with hold" to its end,
  as the role that commits and in a transaction that may write. A search path that was set without "local" outlives
  the function, even one with its own search path, and would apply to the planner's next statement;
  so this is called by schema-qualified names, and sets another path in the same way.
*/
create or replace function pgfresh_engine.clear_leftovers(p_search_path text) returns void
language plpgsql
as $$
declare
  v_name pg_catalog.text;
begin
  if p_search_path operator(pg_catalog.<>) 'pg_catalog, public, pg_temp' then
    perform pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false);
  end if;
  for v_name in
    select name
    from pg_catalog.pg_cursors
    where is_holdable and creation_time operator(pg_catalog.>=) pg_catalog.statement_timestamp()
  loop
    execute pg_catalog.format('close %I', v_name);
  end loop;
end
$$;
comment on function pgfresh_engine.clear_leftovers(text) is
  'Undoes what a user''s function has left in the session by which it could act as another role.';
grant execute on function pgfresh_engine.clear_leftovers(text) to pgfresh_evaluator;

/*
  The statements of type_resolution run as pgfresh_evaluator and with no other rights,
  and so do users' functions.
  The search path is for the bodies of those functions; the names in the statements themselves have their schema.
  Read-only, because what runs as the owner of these four functions could otherwise drop them,
  or alter them to run with all rights.
  PostgreSQL 15 still lets a function reset that; later ones do not.
  The planner's own query settings do not apply to users' tables.
*/
create or replace function pgfresh_engine.ask_stale(
  p_type_id int, p_keys text[], p_confirmed timestamptz[], p_rows timestamptz[], p_due timestamptz[], p_ttl interval,
  p_now timestamptz)
returns table (
  key text, found boolean, stale boolean, next_at timestamptz, at timestamptz, row_at timestamptz, due_at timestamptz,
  raised text
)
language plpgsql security definer
set search_path = pg_catalog, public, pg_temp
set plan_cache_mode = auto
set enable_seqscan = on
-- Viewed rows are in memory: find a few dozen by index rather than by a scan.
set random_page_cost = 1.1
as $$
declare
  v_check text := format('select c.*, null::text from pgfresh_engine.check_%s($1, $2, $3, $4, $5, $6) as c', p_type_id);
  v_count int := cardinality(p_keys);
  v_from int := 1;
  v_size int := v_count;
begin
  -- If that raises, bisect until the faulty row is known.
  for v_try in 1..50 loop
    exit when v_from > v_count;
    -- A subtransaction, after which the transaction may write again.
    begin
      perform set_config('transaction_read_only', 'on', true);
      if v_size >= v_count then
        return query execute v_check using p_keys, p_confirmed, p_rows, p_due, p_ttl, p_now;
      else
        return query execute v_check using
          p_keys[v_from:v_from + v_size - 1],
          p_confirmed[v_from:v_from + v_size - 1],
          p_rows[v_from:v_from + v_size - 1],
          p_due[v_from:v_from + v_size - 1],
          p_ttl, p_now;
      end if;
      perform pgfresh_engine.clear_leftovers(pg_catalog.current_setting('search_path'));
      v_from := v_from + v_size;
      v_size := v_size * 2;
    -- It answers for all of them at once, so if it raises it has answered for none.
    exception
    -- No row is at fault. Asking again in halves would wait as long each time.
    when lock_not_available then
      raise;
    when others then
      if v_size > 1 then
        v_size := greatest(least(v_size, v_count - v_from + 1) / 2, 1);
      else
        return query select
          p_keys[v_from], null::boolean, true, null::timestamptz, null::timestamptz, p_rows[v_from], p_due[v_from],
          sqlerrm;
        v_from := v_from + 1;
      end if;
    end;
  end loop;
  return query
    select k.key, null::boolean, null::boolean, null::timestamptz, null::timestamptz, k.row_at, k.due_at, null::text
    from unnest(p_keys[v_from:], p_rows[v_from:], p_due[v_from:]) as k(key, row_at, due_at)
    where v_from <= v_count;
end
$$;
comment on function pgfresh_engine.ask_stale(
  int, text[], timestamptz[], timestamptz[], timestamptz[], interval, timestamptz) is
  'Asks as the evaluator whether pairs of a data type are stale, by the time of their row or by the time at which '
  'the source confirmed it. Says nothing of those that are fresh and as they were known to be. '
  'A pair whose check raises counts as stale; a lock that is not free in time is raised. '
  'At most 50 subtransactions per call; of what is not decided by then it says neither.';
alter function pgfresh_engine.ask_stale(int, text[], timestamptz[], timestamptz[], timestamptz[], interval,
  timestamptz) owner to pgfresh_evaluator;
grant execute on function pgfresh_engine.ask_stale(int, text[], timestamptz[], timestamptz[], timestamptz[], interval,
  timestamptz) to current_user;

create or replace function pgfresh_engine.ask_gate(p_sql text, p_keys text[], p_data_type text)
returns table (key text, open boolean, opens_at timestamptz)
language plpgsql security definer
set search_path = pg_catalog, public, pg_temp
set plan_cache_mode = auto
set enable_seqscan = on
as $$
begin
  perform set_config('transaction_read_only', 'on', true);
  return query execute p_sql using p_keys, p_data_type;
  perform pgfresh_engine.clear_leftovers(pg_catalog.current_setting('search_path'));
-- Never raised. It makes this a subtransaction, after which the transaction may write again.
exception when sqlstate 'PGF00' then raise;
end
$$;
comment on function pgfresh_engine.ask_gate(text, text[], text) is 'Runs gate_sql of a data type as the evaluator.';
alter function pgfresh_engine.ask_gate(text, text[], text) owner to pgfresh_evaluator;
grant execute on function pgfresh_engine.ask_gate(text, text[], text) to current_user;

create or replace function pgfresh_engine.ask_keys(p_sql text, p_keys text[]) returns setof text
language plpgsql security definer
set search_path = pg_catalog, public, pg_temp
set plan_cache_mode = auto
set enable_seqscan = on
as $$
begin
  perform set_config('transaction_read_only', 'on', true);
  return query execute p_sql using p_keys;
  perform pgfresh_engine.clear_leftovers(pg_catalog.current_setting('search_path'));
-- Never raised. It makes this a subtransaction, after which the transaction may write again.
exception when sqlstate 'PGF00' then raise;
end
$$;
comment on function pgfresh_engine.ask_keys(text, text[]) is
  'Runs missing_sql or unknown_sql of a data type as the evaluator: those of the keys that it returns.';
alter function pgfresh_engine.ask_keys(text, text[]) owner to pgfresh_evaluator;
grant execute on function pgfresh_engine.ask_keys(text, text[]) to current_user;

create or replace function pgfresh_engine.ask_next_keys(p_sql text, p_after text, p_limit int) returns setof text
language plpgsql security definer
set search_path = pg_catalog, public, pg_temp
set plan_cache_mode = auto
set enable_seqscan = on
as $$
begin
  perform set_config('transaction_read_only', 'on', true);
  return query execute p_sql using p_after, p_limit;
  perform pgfresh_engine.clear_leftovers(pg_catalog.current_setting('search_path'));
-- Never raised. It makes this a subtransaction, after which the transaction may write again.
exception when sqlstate 'PGF00' then raise;
end
$$;
comment on function pgfresh_engine.ask_next_keys(text, text, int) is
  'Runs keys_sql of a data type as the evaluator: the next keys after one.';
alter function pgfresh_engine.ask_next_keys(text, text, int) owner to pgfresh_evaluator;
grant execute on function pgfresh_engine.ask_next_keys(text, text, int) to current_user;
