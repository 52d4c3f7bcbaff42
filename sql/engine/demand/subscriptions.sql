/*
  What viewers ask for by SQL, once the request has its caller (request.sql). Each looks up whom the caller speaks for
  before it does anything.
*/
create or replace function pgfresh_engine.subscribe(p_caller name, p_user_id text, p_key text, p_data_type text)
returns jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
-- Planned once and by the index, also on a table that is empty now.
-- Else each call would plan its one row anew, for longer than it takes to write it.
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
declare
  v_user text := pgfresh_engine.require_viewer(p_user_id, p_caller);
  v_type pgfresh.data_type_registry;
  v_type_id int;
  v_normalise text;
  v_key text;
  v_now timestamptz := pgfresh.clock();
  v_seen timestamptz;
  v_counts jsonb;
begin
  -- Nearly every call is a heartbeat, which needs two columns of the type and not all of them.
  select type_id, normalise into v_type_id, v_normalise from pgfresh.data_type_registry where data_type = p_data_type;
  if not found then
    perform pgfresh_engine.require_type(p_data_type);
  end if;
  -- A function call costs more than a comparison, so the functions are only called to refuse.
  if pg_is_in_recovery() then
    perform pgfresh_engine.require_primary();
  end if;
  if not pgfresh_engine.is_valid_key(p_key) then
    perform pgfresh_engine.require_key(p_key);
  end if;
  v_key := pgfresh_engine.canonical_key(p_key, v_normalise);
  select last_seen_at
  into v_seen
  from pgfresh_engine.subscription
  where user_id = v_user and type_id = v_type_id and key = v_key;
  -- A client beats every minute, and its row says so at every second one: a commit costs more than all else here.
  if v_seen <= v_now - interval '75 seconds' then
    update pgfresh_engine.subscription
    set last_seen_at = v_now
    where user_id = v_user and type_id = v_type_id and key = v_key;
  elsif (v_seen <= v_now - interval '30 seconds') is not true then
    -- A heartbeat that takes its time is not counted: there are 500 subscriptions at most.
    perform pgfresh_engine.count_call(v_user);
  end if;
  if v_seen is not null then
    return jsonb_build_object('result', 'seen', 'data_type', p_data_type, 'key', v_key);
  end if;
  v_type := pgfresh_engine.require_type(p_data_type);
  v_key := (pgfresh_engine.admit_new_keys(v_type, array[v_key]))[1];
  if (
    select count(*)
    from (select from pgfresh_engine.subscription where user_id = v_user limit 500) as held
  ) = 500 then
    perform pgfresh_engine.refuse('PGF_TOO_MANY_SUBSCRIPTIONS',
      'more than 500 subscriptions of one user',
      'Remove those that are not on the screen any more.');
  end if;
  insert into pgfresh_engine.subscription (user_id, type_id, key, subscribed_at, last_seen_at)
  values (v_user, v_type.type_id, v_key, v_now, v_now)
  on conflict (user_id, type_id, key) do update set last_seen_at = excluded.last_seen_at;
  -- The first viewer does not wait for the planner. A pair that is locked is left to the planner's next tick. So is one
  -- that has a job: the caller's transaction may stay open, and the end of the job would wait for it.
  perform pgfresh_engine.make_pairs(v_type.type_id, array[v_key]);
  perform from pgfresh_engine.pairs
  where type_id = v_type.type_id and key = v_key and not demanded and job_id is null
  for update skip locked;
  if found then
    update pgfresh_engine.pairs
    set demanded = true, unlisted_at = null, warm_until = v_now + interval '15 seconds', due_at = v_now
    where type_id = v_type.type_id and key = v_key;
    v_counts := pgfresh_engine.plan_new_looks(v_type.type_id, array[v_key], v_now);
  end if;
  return jsonb_build_object('result', 'subscribed', 'data_type', v_type.data_type, 'key', v_key)
    || case when v_counts is null then '{}' else jsonb_build_object('planned', v_counts) end;
end
$$;
comment on function pgfresh_engine.subscribe(name, text, text, text) is
  'Does what upsert_active_subscription asks for.';

-- Never refused: what has become of the key, the data type or its name does not matter to someone who leaves.
create or replace function pgfresh_engine.unsubscribe(p_caller name, p_user_id text, p_key text, p_data_type text)
returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_user text := pgfresh_engine.require_viewer(p_user_id, p_caller);
begin
  perform pgfresh_engine.require_primary();
  if p_key is null or p_data_type is null then
    return false;
  end if;
  delete from pgfresh_engine.subscription as s
  using (
    select r.type_id, pgfresh_engine.canonical_key(p_key, r.normalise) as key
    from pgfresh.data_type_registry as r
    where r.data_type = p_data_type
    union
    -- As it was subscribed, if the data type spells its keys in another way now.
    select r.type_id, p_key from pgfresh.data_type_registry as r where r.data_type = p_data_type
    union
    select f.type_id, k.key
    from pgfresh_engine.former_type_name as f
    join pgfresh.data_type_registry as r on r.type_id = f.type_id
    cross join lateral (values (p_key), (pgfresh_engine.canonical_key(p_key, r.normalise))) as k(key)
    where f.data_type = p_data_type
  ) as left_pair
  where s.user_id = v_user and s.type_id = left_pair.type_id and s.key = left_pair.key;
  if found then
    return true;
  end if;
  -- Only calls without an effect are counted: as many leave as came.
  perform pgfresh_engine.count_call(v_user);
  return false;
end
$$;
comment on function pgfresh_engine.unsubscribe(name, text, text, text) is
  'Does what remove_active_subscription asks for.';

create or replace function pgfresh_engine.check_key(p_caller name, p_key text, p_data_types text[]) returns jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_user text := pgfresh_engine.require_viewer(null, p_caller);
  v_type record;
  v_keys text[];
  v_answer jsonb;
  v_counts jsonb := '{}';
begin
  perform pgfresh_engine.require_primary();
  perform pgfresh_engine.count_call(v_user);
  perform pgfresh_engine.require_key(p_key);
  if p_data_types is null or cardinality(p_data_types) not between 1 and 50 then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      'p_data_types must name 1 to 50 data types',
      'Pass the data types that are on the screen.');
  end if;
  for v_type in
    select pgfresh_engine.require_type(named.data_type) as registered
    from (select distinct data_type from unnest(p_data_types) as data_type order by data_type) as named
  loop
    begin
      v_keys := pgfresh_engine.admit_new_keys(v_type.registered, array[p_key]);
      perform pgfresh_engine.make_pairs((v_type.registered).type_id, v_keys);
      v_answer := pgfresh_engine.plan_new_looks((v_type.registered).type_id, v_keys, pgfresh.clock());
    exception when lock_not_available then
      -- Its table of keys is locked. The other types do not wait for it.
      v_answer := jsonb_build_object('skipped', 'locked');
    end;
    v_counts := v_counts || jsonb_build_object((v_type.registered).data_type, v_answer);
  end loop;
  return v_counts;
end
$$;
comment on function pgfresh_engine.check_key(name, text, text[]) is
  'Does what check_and_queue_stale_batch asks for.';

/*
  A caller who may use the schema of the engine, as processes and monitors do, is told everything. Viewers are told the
  codes that a gateway sends them, and no words: those name tables, functions and errors.
*/
create or replace function pgfresh_engine.explain_to(p_caller name, p_data_type text, p_key text) returns jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_told jsonb;
begin
  if has_schema_privilege(p_caller, 'pgfresh_engine', 'usage') then
    return pgfresh_engine.explanation_of(p_data_type, p_key, false);
  end if;
  perform pgfresh_engine.count_call(pgfresh_engine.require_viewer(null, p_caller));
  v_told := pgfresh_engine.explanation_of(p_data_type, p_key, false);
  return jsonb_build_object('data_type', v_told -> 'data_type', 'key', v_told -> 'key', 'state', v_told -> 'state',
    'activity', v_told -> 'activity', 'reason', v_told -> 'reason', 'until', v_told -> 'until');
end
$$;
comment on function pgfresh_engine.explain_to(name, text, text) is
  'Does what explain_pair asks for: everything for processes and monitors, the codes for viewers.';

/*
  What subscribing asks of users' tables. A client that subscribes by SQL has a connection of an application, and does
  not wait with it for a locked table, as ALTER TABLE locks it: the planner looks at the pair a second later.
*/
create or replace function pgfresh_engine.admit_new_keys(p_type pgfresh.data_type_registry, p_keys text[])
returns text[]
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '100ms'
as $$
begin
  return pgfresh_engine.require_keys(p_type, p_keys);
end
$$;
comment on function pgfresh_engine.admit_new_keys(pgfresh.data_type_registry, text[]) is
  'As require_keys, but waits at most 100 ms for a lock on the table of keys. A part of subscribing.';

create or replace function pgfresh_engine.plan_new_looks(p_type_id int, p_keys text[], p_now timestamptz) returns jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '100ms'
as $$
declare
  -- Those with a job are neither planned nor locked: their ends must not wait for the transaction of a stranger.
  v_open text[] := array(
    select p.key
    from pgfresh_engine.pairs as p
    where p.type_id = p_type_id and p.key = any (p_keys) and p.job_id is not null);
  v_counts jsonb := pgfresh_engine.plan_looks(
    pgfresh_engine.looks_at(p_type_id, array(select k from unnest(p_keys) as k where k <> all (v_open))), p_now);
begin
  return v_counts || jsonb_build_object('merged', (v_counts ->> 'merged')::int + cardinality(v_open));
end
$$;
comment on function pgfresh_engine.plan_new_looks(int, text[], timestamptz) is
  'Looks at pairs of a data type that have just got their first viewer. Leaves them to the planner if their table is '
  'locked for more than 100 ms. A part of subscribing.';
