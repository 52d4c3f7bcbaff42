/*
  Who looks at what. Subscriptions of SQL clients and the counts of gateway nodes are the truth; every change of them is
  appended to demand_change in the same transaction, and the planner adds those up in pairs.viewers. So the viewers of
  one pair never wait for each other nor for anybody who has locked the pair, and what the planner does follows what has
  changed.
*/
create or replace function pgfresh.note_demand() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if tg_table_name = 'node_demand' then
    if tg_op = 'INSERT' then
      insert into pgfresh.demand_change (type_id, key, delta) select type_id, key, viewers from fresh;
    elsif tg_op = 'UPDATE' then
      -- No join: its plan is kept from the first time, mostly of no rows at all, and is quadratic.
      insert into pgfresh.demand_change (type_id, key, delta)
      select c.type_id, c.key, sum(c.viewers)
      from (
        select type_id, key, viewers from fresh
        union all
        select type_id, key, -viewers from gone
      ) as c
      group by c.type_id, c.key
      having sum(c.viewers) <> 0;
    else
      insert into pgfresh.demand_change (type_id, key, delta) select type_id, key, -viewers from gone;
    end if;
  elsif tg_op = 'INSERT' then
    insert into pgfresh.demand_change (type_id, key, delta)
    select type_id, key, count(*) from fresh group by type_id, key;
  else
    insert into pgfresh.demand_change (type_id, key, delta)
    select type_id, key, -count(*) from gone group by type_id, key;
  end if;
  return null;
end
$$;
comment on function pgfresh.note_demand() is
  'Trigger of active_subscriptions and node_demand: notes every change for the planner.';

create or replace trigger note_added after insert on pgfresh.active_subscriptions
  referencing new table as fresh
  for each statement execute function pgfresh.note_demand();
create or replace trigger note_removed after delete on pgfresh.active_subscriptions
  referencing old table as gone
  for each statement execute function pgfresh.note_demand();
create or replace trigger note_added after insert on pgfresh.node_demand
  referencing new table as fresh
  for each statement execute function pgfresh.note_demand();
create or replace trigger note_changed after update on pgfresh.node_demand
  referencing new table as fresh old table as gone
  for each statement execute function pgfresh.note_demand();
create or replace trigger note_removed after delete on pgfresh.node_demand
  referencing old table as gone
  for each statement execute function pgfresh.note_demand();

create or replace function pgfresh.require_viewer(p_user_id text) returns text
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_claims text := nullif(current_setting('request.jwt.claims', true), '');
  -- Definer functions do not see who called them, but they see the role that was set, and who logged in.
  v_role text := current_setting('role');
  v_caller name := case when v_role = 'none' then session_user else v_role end;
  v_own text;
begin
  if v_claims is not null then
    begin
      v_own := v_claims::jsonb ->> 'sub';
    exception when data_exception then
      perform pgfresh.refuse('PGF_VIEWER_UNKNOWN', 'request.jwt.claims is not JSON', 'Let the API gateway set it.');
    end;
  end if;
  v_own := coalesce(
    v_own,
    nullif(current_setting('request.jwt.claim.sub', true), ''),
    nullif(current_setting('pgfresh.user_id', true), ''));
  -- Gateways, workers and the owner, who is the current user here, speak for everybody; anybody else for himself.
  if pg_has_role(v_caller, 'pgfresh_gateway', 'member') or pg_has_role(v_caller, 'pgfresh_worker', 'member')
      or pg_has_role(v_caller, current_user, 'member') then
    v_own := coalesce(p_user_id, v_own);
  end if;
  if v_own is null then
    perform pgfresh.refuse('PGF_VIEWER_UNKNOWN',
      'the session does not say who is looking',
      'Log in, so that request.jwt.claims has a sub, or set pgfresh.user_id where the session is trusted.');
  elsif p_user_id is not null and p_user_id <> v_own then
    perform pgfresh.refuse('PGF_VIEWER_OTHER',
      'the session belongs to another user',
      'Leave p_user_id out: it is taken from the session.');
  end if;
  if coalesce(v_own, '') = '' or octet_length(v_own) > 200 or v_own ~ '[[:cntrl:]]' then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      format(
        'p_user_id must have 1 to 200 bytes and no control characters, got %s',
        coalesce(left(quote_literal(v_own), 60), 'null')),
      'Pass the id of the user who looks.');
  end if;
  return v_own;
end
$$;
comment on function pgfresh.require_viewer(text) is
  'The user on whose behalf the session speaks, by its claims or settings; refuses another''s id.';

create or replace function pgfresh.count_call(p_user_id text) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
declare
  v_minute timestamptz := date_trunc('minute', pgfresh.clock());
  v_calls int;
begin
  update pgfresh.viewer_calls as v
  set minute = v_minute, calls = case when v.minute = v_minute then v.calls + 1 else 1 end
  where v.user_id = p_user_id
  returning v.calls into v_calls;
  if not found then
    insert into pgfresh.viewer_calls as v (user_id, minute, calls)
    values (p_user_id, v_minute, 1)
    on conflict (user_id) do update set calls = v.calls + 1;
  end if;
  if v_calls > 1200 then
    perform pgfresh.refuse('PGF_TOO_MANY_CALLS',
      'more than 1200 calls in one minute',
      'One heartbeat a minute and pair is enough.');
  end if;
end
$$;
comment on function pgfresh.count_call(text) is
  'Counts a call of a user and refuses more than 1200 a minute. '
  'A heartbeat that comes 30 s or more after the last one is not counted.';

create or replace function pgfresh.upsert_active_subscription(p_user_id text, p_key text, p_data_type text)
returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
-- Planned once and by the index, also on a table that is empty now.
-- Else each call would plan its one row anew, for longer than it takes to write it.
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
declare
  v_user text := pgfresh.require_viewer(p_user_id);
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
    perform pgfresh.require_type(p_data_type);
  end if;
  -- A function call costs more than a comparison, so the functions are only called to refuse.
  if pg_is_in_recovery() then
    perform pgfresh.require_primary();
  end if;
  if (p_key <> '' and octet_length(p_key) <= 512 and p_key !~ '[[:cntrl:]]') is not true then
    perform pgfresh.require_key(p_key);
  end if;
  v_key := pgfresh.canonical_key(p_key, v_normalise);
  select last_seen_at
  into v_seen
  from pgfresh.active_subscriptions
  where user_id = v_user and type_id = v_type_id and key = v_key;
  -- A client beats every minute, and its row says so at every second one: a commit costs more than all else here.
  if v_seen <= v_now - interval '75 seconds' then
    update pgfresh.active_subscriptions
    set last_seen_at = v_now
    where user_id = v_user and type_id = v_type_id and key = v_key;
  elsif (v_seen <= v_now - interval '30 seconds') is not true then
    -- A heartbeat that takes its time is not counted: there are 500 subscriptions at most.
    perform pgfresh.count_call(v_user);
  end if;
  if v_seen is not null then
    return jsonb_build_object('result', 'seen', 'data_type', p_data_type, 'key', v_key);
  end if;
  v_type := pgfresh.require_type(p_data_type);
  v_key := (pgfresh.admit_new_keys(v_type, array[v_key]))[1];
  if (
    select count(*)
    from (select from pgfresh.active_subscriptions where user_id = v_user limit 500) as held
  ) = 500 then
    perform pgfresh.refuse('PGF_TOO_MANY_SUBSCRIPTIONS',
      'more than 500 subscriptions of one user',
      'Remove those that are not on the screen any more.');
  end if;
  insert into pgfresh.active_subscriptions (user_id, type_id, key, subscribed_at, last_seen_at)
  values (v_user, v_type.type_id, v_key, v_now, v_now)
  on conflict (user_id, type_id, key) do update set last_seen_at = excluded.last_seen_at;
  -- The first viewer does not wait for the planner. A pair that is locked is left to the planner's next tick. So is one
  -- that has a job: the caller's transaction may stay open, and the end of the job would wait for it.
  perform pgfresh.make_pairs(v_type.type_id, array[v_key]);
  perform from pgfresh.pairs
  where type_id = v_type.type_id and key = v_key and not demanded and job_id is null
  for update skip locked;
  if found then
    update pgfresh.pairs
    set demanded = true, unlisted_at = null, warm_until = v_now + interval '15 seconds', due_at = v_now
    where type_id = v_type.type_id and key = v_key;
    v_counts := pgfresh.plan_new_looks(v_type.type_id, array[v_key], v_now);
  end if;
  return jsonb_build_object('result', 'subscribed', 'data_type', v_type.data_type, 'key', v_key)
    || case when v_counts is null then '{}' else jsonb_build_object('planned', v_counts) end;
end
$$;
comment on function pgfresh.upsert_active_subscription(text, text, text) is
  'Says that a user looks at a pair: adds the subscription and is its heartbeat, at least once in five minutes. '
  'The user is taken from the session; p_user_id may be null. '
  'A pair at which nobody looked before is checked at once. '
  'Returns {"result": "subscribed" or "seen", …}.';

create or replace function pgfresh.keep_former_name() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  insert into pgfresh.former_type_name (data_type, type_id)
  values (old.data_type, new.type_id)
  on conflict (data_type) do update set type_id = excluded.type_id;
  return null;
end
$$;
comment on function pgfresh.keep_former_name() is
  'Trigger of the registry: a viewer who knows a data type by its former name can still leave.';
create or replace trigger keep_former_name after update of data_type on pgfresh.data_type_registry
  for each row when (old.data_type <> new.data_type) execute function pgfresh.keep_former_name();

-- Never refused: what has become of the key, the data type or its name does not matter to someone who leaves.
create or replace function pgfresh.remove_active_subscription(p_user_id text, p_key text, p_data_type text)
returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_user text := pgfresh.require_viewer(p_user_id);
begin
  perform pgfresh.require_primary();
  if p_key is null or p_data_type is null then
    return false;
  end if;
  delete from pgfresh.active_subscriptions as s
  using (
    select r.type_id, pgfresh.canonical_key(p_key, r.normalise) as key
    from pgfresh.data_type_registry as r
    where r.data_type = p_data_type
    union
    -- As it was subscribed, if the data type spells its keys in another way now.
    select r.type_id, p_key from pgfresh.data_type_registry as r where r.data_type = p_data_type
    union
    select f.type_id, k.key
    from pgfresh.former_type_name as f
    join pgfresh.data_type_registry as r on r.type_id = f.type_id
    cross join lateral (values (p_key), (pgfresh.canonical_key(p_key, r.normalise))) as k(key)
    where f.data_type = p_data_type
  ) as left_pair
  where s.user_id = v_user and s.type_id = left_pair.type_id and s.key = left_pair.key;
  if found then
    return true;
  end if;
  -- Only calls without an effect are counted: as many leave as came.
  perform pgfresh.count_call(v_user);
  return false;
end
$$;
comment on function pgfresh.remove_active_subscription(text, text, text) is
  'Says that a user does not look at a pair any more, also if its key or data type is gone or has another name now. '
  'Returns whether the user did.';

-- Five minutes, and the 75 seconds for which a heartbeat may not have been written.
create or replace function pgfresh.longest_silence() returns interval
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$ select interval '375 seconds' $$;
comment on function pgfresh.longest_silence() is
  'How old the last heartbeat that was written may be: nobody is given up before five silent minutes.';

-- A tracker that restarts looks like an empty house.
-- So when all fall silent in one step, they are believed only after a while.
create or replace function pgfresh.is_loss_held(p_now timestamptz) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_held_until timestamptz := (select demand_held_until from pgfresh.planner_state);
begin
  if exists (select from pgfresh.active_subscriptions where last_seen_at >= p_now - pgfresh.longest_silence())
      or exists (
        select from pgfresh.nodes as n
        where n.lease_until > p_now and exists (select from pgfresh.node_demand as d where d.node_id = n.id)
      ) then
    if v_held_until is not null then
      update pgfresh.planner_state set demand_held_until = null;
    end if;
    return false;
  end if;
  if v_held_until is null then
    if (
      select count(*)
      from (
        select distinct type_id, key
        from (
          select type_id, key from pgfresh.active_subscriptions
          union all
          select type_id, key from pgfresh.node_demand
        ) as silent
        limit 10
      ) as pairs
    ) < 10 then
      return false;
    end if;
    v_held_until := p_now + interval '120 seconds';
    update pgfresh.planner_state set demand_held_until = v_held_until;
    perform pgfresh.warn('demand_lost', 'all',
      'everybody stopped looking at once; their pairs are kept fresh for 120 s more',
      'See whether the gateways or the clients'' network had a failure.');
  end if;
  return p_now < v_held_until;
end
$$;
comment on function pgfresh.is_loss_held(timestamptz) is
  'Whether all demand (10 pairs or more) has just fallen silent at once, which is believed only after 120 s.';

create or replace function pgfresh.cleanup_stale_subscriptions() returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := pgfresh.clock();
  v_removed int := 0;
  v_nodes int := 0;
begin
  perform pgfresh.require_primary();
  if not pg_try_advisory_xact_lock(7041, 2) then
    return jsonb_build_object('skipped', 'locked');
  end if;
  if exists (select from pgfresh.active_subscriptions where last_seen_at < v_now - pgfresh.longest_silence())
      or exists (select from pgfresh.nodes where lease_until <= v_now) then
    if pgfresh.is_loss_held(v_now) then
      return jsonb_build_object('skipped', 'held');
    end if;
    delete from pgfresh.active_subscriptions where last_seen_at < v_now - pgfresh.longest_silence();
    get diagnostics v_removed = row_count;
    v_nodes := pgfresh.expire_nodes(v_now);
  end if;
  -- Nothing silent is left: a loss that was held is over, and the next one is another.
  update pgfresh.planner_state set demand_held_until = null where demand_held_until is not null;
  delete from pgfresh.viewer_calls where minute < v_now - interval '10 minutes';
  perform pgfresh.review_open_jobs(v_now);
  return jsonb_build_object('removed', v_removed, 'nodes', v_nodes);
end
$$;
comment on function pgfresh.cleanup_stale_subscriptions() is
  'Removes subscriptions that have been silent for more than five minutes, at the latest after six and a quarter, '
  'and nodes whose lease has ended; cancels waiting jobs of keys that are gone. Run it every minute. '
  'Returns {"removed", "nodes"} or {"skipped"}.';

create or replace function pgfresh.get_active_subscriptions()
returns table (data_type text, key text, viewers bigint, adapters text[])
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select r.data_type, d.key, sum(d.viewers), array_agg(distinct d.adapter)
  from (
    select type_id, key, count(*) as viewers, 'heartbeat' as adapter
    from pgfresh.active_subscriptions
    group by type_id, key
    union all
    select type_id, key, sum(viewers), 'gateway'
    from pgfresh.node_demand
    group by type_id, key
  ) as d
  join pgfresh.data_type_registry as r on r.type_id = d.type_id
  group by r.data_type, d.key
$$;
comment on function pgfresh.get_active_subscriptions() is
  'What is being looked at, by how many, and through which adapters. '
  'A user who looks through two nodes, or through a node and by SQL, counts twice.';
