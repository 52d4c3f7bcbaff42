/*
  What viewers request by SQL, once the request has its caller (request.sql). Each function first looks up which user
  the caller acts for. A client that subscribes by SQL holds an application's connection, so it does not wait for a
  table locked, for instance, by ALTER TABLE: the planner checks the pair a second later.
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
  -- Pairs with a job are neither planned nor locked: their ends must not wait for the caller's transaction.
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

create or replace function pgfresh_engine.free_subscriptions(p_user text) returns int
language plpgsql stable
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
begin
  return 500 - (
    select count(*) from (select from pgfresh_engine.subscription where user_id = p_user limit 500) as held
  );
end
$$;
comment on function pgfresh_engine.free_subscriptions(text) is
  'How many subscriptions a user may still add. A part of subscribing.';

create or replace function pgfresh_engine.add_subscriptions(
  p_user text, p_type_id int, p_keys text[], p_now timestamptz)
returns jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
declare
  v_keys text[];
begin
  insert into pgfresh_engine.subscription (user_id, type_id, key, subscribed_at, last_seen_at)
  select p_user, p_type_id, k, p_now, p_now from unnest(p_keys) as k
  on conflict (user_id, type_id, key) do update set last_seen_at = excluded.last_seen_at;
  -- The first viewer does not wait for the planner. A pair that is locked is left to the planner's next tick. So is one
  -- that has a job: the caller's transaction may stay open, and the end of the job would wait for it.
  perform pgfresh_engine.make_pairs(p_type_id, p_keys);
  v_keys := array(
    select p.key
    from pgfresh_engine.pairs as p
    where p.type_id = p_type_id and p.key = any (p_keys) and not p.demanded and p.job_id is null
    order by p.key
    for update skip locked
  );
  if v_keys = '{}' then
    return null;
  end if;
  update pgfresh_engine.pairs
  set demanded = true, unlisted_at = null, warm_until = p_now + interval '15 seconds', due_at = p_now
  where type_id = p_type_id and key = any (v_keys);
  return pgfresh_engine.plan_new_looks(p_type_id, v_keys, p_now);
end
$$;
comment on function pgfresh_engine.add_subscriptions(text, int, text[], timestamptz) is
  'Adds subscriptions of a user to different keys, and checks at once the pairs that no one viewed before. '
  'Returns what came of that, or null. A part of subscribing.';

create or replace function pgfresh_engine.subscribe(p_caller name, p_user_id text, p_key text, p_data_type text)
returns jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
-- Planned once with the index, even while the table is empty.
-- Otherwise each call would plan its one row again, which takes longer than writing it.
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
  -- Nearly every call is a heartbeat, which needs only two columns of the type.
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
  -- Clients send a heartbeat every minute, and only every second one is written: the commit is the main cost here.
  if v_seen <= v_now - interval '75 seconds' then
    update pgfresh_engine.subscription
    set last_seen_at = v_now
    where user_id = v_user and type_id = v_type_id and key = v_key;
  elsif (v_seen <= v_now - interval '30 seconds') is not true then
    -- Heartbeats at the normal interval are not counted: there are at most 500 subscriptions.
    perform pgfresh_engine.count_call(v_user);
  end if;
  if v_seen is not null then
    return jsonb_build_object('result', 'seen', 'data_type', p_data_type, 'key', v_key);
  end if;
  v_type := pgfresh_engine.require_type(p_data_type);
  v_key := (pgfresh_engine.admit_new_keys(v_type, array[v_key]))[1];
  if pgfresh_engine.free_subscriptions(v_user) = 0 then
    perform pgfresh_engine.refuse('PGF_TOO_MANY_SUBSCRIPTIONS',
      'more than 500 subscriptions of one user',
      'Remove those that are not on the screen any more.');
  end if;
  v_counts := pgfresh_engine.add_subscriptions(v_user, v_type.type_id, array[v_key], v_now);
  return jsonb_build_object('result', 'subscribed', 'data_type', v_type.data_type, 'key', v_key)
    || case when v_counts is null then '{}' else jsonb_build_object('planned', v_counts) end;
end
$$;
comment on function pgfresh_engine.subscribe(name, text, text, text) is
  'Does what upsert_active_subscription asks for.';

create or replace function pgfresh_engine.judge_new_keys(
  p_type pgfresh.data_type_registry, p_data_type text, p_keys text[])
returns table (place bigint, key text, code text, problem text)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '100ms'
as $$
begin
  perform pgfresh_engine.require_type(p_data_type) where p_type.type_id is null;
  return query select k.place, k.key, k.code, k.problem from pgfresh_engine.canonical_keys(p_type, p_keys) as k;
exception
  when lock_not_available then
    return query select n::bigint, p_keys[n], 'locked', null from generate_subscripts(p_keys, 1) as n;
  when sqlstate 'PGF01' then
    -- There is no such type, or its registry row no longer resolves.
    return query
      select n::bigint, p_keys[n], split_part(sqlerrm, ': ', 1), regexp_replace(sqlerrm, '^PGF_[A-Z_]+: ', '')
      from generate_subscripts(p_keys, 1) as n;
end
$$;
comment on function pgfresh_engine.judge_new_keys(pgfresh.data_type_registry, text, text[]) is
  'As canonical_keys, with an answer also where the data type is unknown or its table of keys is locked for more than '
  '100 ms. A part of subscribing.';

create or replace function pgfresh_engine.subscribe_all(p_caller name, p_user_id text, p_pairs jsonb) returns jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
declare
  v_user text := pgfresh_engine.require_viewer(p_user_id, p_caller);
  v_now timestamptz := pgfresh.clock();
  -- By position in p_pairs; null for new pairs.
  v_answers jsonb[];
  v_new int;
  v_early boolean;
  v_types int[];
  v_keys text[];
  v_late record;
  v_free int;
  v_type record;
  v_judged record;
  v_added text[];
  v_key text;
  v_code text;
  v_problem text;
begin
  perform pgfresh_engine.require_primary();
  if (case when jsonb_typeof(p_pairs) = 'array' then jsonb_array_length(p_pairs) between 1 and 500 end) is not true then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      'p_pairs must be an array of 1 to 500 objects with data_type and key',
      'Pass the pairs that are on the screen.');
  end if;
  select array_agg(
      case when h.key is not null then jsonb_build_object('result', 'seen', 'data_type', r.data_type, 'key', h.key) end
      order by w.place),
    count(*) filter (where h.key is null),
    coalesce(bool_or(h.last_seen_at > v_now - interval '30 seconds'), false),
    array_agg(h.type_id) filter (where h.last_seen_at <= v_now - interval '75 seconds'),
    array_agg(h.key) filter (where h.last_seen_at <= v_now - interval '75 seconds')
  into v_answers, v_new, v_early, v_types, v_keys
  from jsonb_array_elements(p_pairs) with ordinality as w(pair, place)
  left join pgfresh.data_type_registry as r on r.data_type = w.pair ->> 'data_type'
  -- The LIMIT keeps it a lookup per pair. A join reads all subscriptions of the user for each pair:
  -- 90 ms instead of 10 ms for 500 pairs.
  left join lateral (
    select s.type_id, s.key, s.last_seen_at
    from pgfresh_engine.subscription as s
    where s.user_id = v_user and s.type_id = r.type_id
      and s.key = pgfresh_engine.canonical_key(w.pair ->> 'key', r.normalise)
    limit 1
  ) as h on true;
  -- In a fixed order, so that two calls of one user cannot deadlock.
  for v_late in
    select distinct l.type_id, l.key collate "C" as key from unnest(v_types, v_keys) as l(type_id, key) order by 1, 2
  loop
    update pgfresh_engine.subscription as s
    set last_seen_at = v_now
    where s.user_id = v_user and s.type_id = v_late.type_id and s.key = v_late.key;
  end loop;
  -- Heartbeats at the normal interval are not counted; early ones count as one call. Each new pair counts.
  if v_early or v_new > 0 then
    perform pgfresh_engine.count_call(v_user, v_early::int + v_new);
  end if;
  if v_new = 0 then
    return to_jsonb(v_answers);
  end if;
  v_free := pgfresh_engine.free_subscriptions(v_user);
  for v_type in
    select r as registered, n.data_type, n.keys, n.places
    from (
      select w.pair ->> 'data_type' as data_type, array_agg(w.pair ->> 'key' order by w.place) as keys,
        array_agg(w.place::int order by w.place) as places
      from jsonb_array_elements(p_pairs) with ordinality as w(pair, place)
      where v_answers[w.place::int] is null
      group by w.pair ->> 'data_type'
    ) as n
    left join pgfresh.data_type_registry as r on r.data_type = n.data_type
    -- By type and key, the lock order of all functions.
    order by r.type_id
  loop
    select array_agg(j.key order by j.place) as keys, array_agg(j.code order by j.place) as codes,
      array_agg(j.problem order by j.place) as problems
    into v_judged
    from pgfresh_engine.judge_new_keys(v_type.registered, v_type.data_type, v_type.keys) as j;
    v_added := '{}';
    for i in 1..cardinality(v_type.places) loop
      v_key := v_judged.keys[i];
      v_code := v_judged.codes[i];
      v_problem := v_judged.problems[i];
      if v_code is null and v_key <> all (v_added) then
        if cardinality(v_added) < v_free then
          v_added := v_added || v_key;
        else
          v_code := 'PGF_TOO_MANY_SUBSCRIPTIONS';
          v_problem := 'more than 500 subscriptions of one user';
        end if;
      end if;
      v_answers[v_type.places[i]] := jsonb_build_object(
        'result', case when v_code is null then 'subscribed' when v_code = 'locked' then 'skipped' else 'refused' end,
        'data_type', v_type.data_type, 'key', v_key)
        || case when v_code <> 'locked' then jsonb_build_object('code', v_code, 'problem', v_problem) else '{}' end;
    end loop;
    if v_added <> '{}' then
      v_free := v_free - cardinality(v_added);
      perform pgfresh_engine.add_subscriptions(v_user, (v_type.registered).type_id,
        array(select k collate "C" from unnest(v_added) as k order by 1), v_now);
    end if;
  end loop;
  return to_jsonb(v_answers);
end
$$;
comment on function pgfresh_engine.subscribe_all(name, text, jsonb) is
  'Does what upsert_active_subscriptions asks for.';

-- Never refused: a viewer can leave whatever happened to the key, the data type or its name.
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
    -- As it was subscribed, in case the canonical form of keys has changed since.
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
  -- Only calls without effect are counted: the others are bounded by the number of subscriptions.
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
      -- Its key table is locked. The other types do not wait for it.
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
  Processes, monitors, operators and the owner (the current user here) see everything. Other callers see the codes that
  a gateway sends to viewers, without the sentences, which name tables, functions and errors. Usage on the engine's
  schema grants no such trust: applications that register jobs have it too.
*/
create or replace function pgfresh_engine.explain_to(p_caller name, p_data_type text, p_key text) returns jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_told jsonb;
begin
  if exists (
    select from unnest(array['pgfresh_monitor', 'pgfresh_operator', 'pgfresh_worker', 'pgfresh_planner',
      'pgfresh_gateway', current_user]) as trusted
    where pg_has_role(p_caller, trusted, 'usage')
  ) then
    return pgfresh_engine.explanation_of(p_data_type, p_key, false);
  end if;
  perform pgfresh_engine.count_call(pgfresh_engine.require_viewer(null, p_caller));
  v_told := pgfresh_engine.explanation_of(p_data_type, p_key, false);
  return jsonb_build_object('data_type', v_told -> 'data_type', 'key', v_told -> 'key', 'state', v_told -> 'state',
    'activity', v_told -> 'activity', 'reason', v_told -> 'reason', 'until', v_told -> 'until');
end
$$;
comment on function pgfresh_engine.explain_to(name, text, text) is
  'Does what explain_pair asks for: everything for processes, monitors and operators, the codes for viewers.';
