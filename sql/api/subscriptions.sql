/*
  What viewers execute runs with their own rights and only writes a request: see engine/request/request.sql. Its body is
  parsed (begin atomic), which needs no right to use the schema of the engine. First it refuses a standby, where
  PostgreSQL would refuse the insert in words of its own.
*/
create or replace function pgfresh.upsert_active_subscription(p_user_id text, p_key text, p_data_type text)
returns jsonb
language sql
set search_path = pg_catalog, pg_temp
begin atomic
  select pgfresh_engine.require_primary() where pg_is_in_recovery();
  insert into pgfresh_engine.request (verb, args)
  values ('subscribe', jsonb_build_object('user_id', p_user_id, 'key', p_key, 'data_type', p_data_type))
  returning answer;
end;
comment on function pgfresh.upsert_active_subscription(text, text, text) is
  'Records that a user views a pair: adds the subscription, or renews it. Call it at least every five minutes. The '
  'user is taken from the session; p_user_id may be null. A pair without viewers is checked at once. Returns '
  '{"result": "subscribed" or "seen", …}.';
grant execute on function pgfresh.upsert_active_subscription(text, text, text) to
  pgfresh_viewer, pgfresh_gateway, pgfresh_worker;

create or replace function pgfresh.upsert_active_subscriptions(p_pairs jsonb, p_user_id text default null)
returns jsonb
language sql
set search_path = pg_catalog, pg_temp
begin atomic
  select pgfresh_engine.require_primary() where pg_is_in_recovery();
  insert into pgfresh_engine.request (verb, args)
  values ('subscribe_all', jsonb_build_object('pairs', p_pairs, 'user_id', p_user_id))
  returning answer;
end;
comment on function pgfresh.upsert_active_subscriptions(jsonb, text) is
  'The same for a whole screen: an array of 1 to 500 objects with data_type and key. '
  'Returns an array with an answer for each, in their order: {"result": "subscribed", "seen", '
  '"refused" with a code and a problem, or "skipped" if the table of keys is locked, …}. '
  'A refused pair does not affect the others. '
  'A new subscription counts as a call; heartbeats that take their time do not.';
grant execute on function pgfresh.upsert_active_subscriptions(jsonb, text) to
  pgfresh_viewer, pgfresh_gateway, pgfresh_worker;

create or replace function pgfresh.remove_active_subscription(p_user_id text, p_key text, p_data_type text)
returns boolean
language sql
set search_path = pg_catalog, pg_temp
begin atomic
  select pgfresh_engine.require_primary() where pg_is_in_recovery();
  insert into pgfresh_engine.request (verb, args)
  values ('unsubscribe', jsonb_build_object('user_id', p_user_id, 'key', p_key, 'data_type', p_data_type))
  returning answer::boolean;
end;
comment on function pgfresh.remove_active_subscription(text, text, text) is
  'Ends a subscription of a user, also if its key or data type was removed or renamed. Returns whether there was '
  'one.';
grant execute on function pgfresh.remove_active_subscription(text, text, text) to
  pgfresh_viewer, pgfresh_gateway, pgfresh_worker;

create or replace function pgfresh.cleanup_stale_subscriptions() returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := pgfresh.clock();
  v_removed int := 0;
  v_nodes int := 0;
begin
  perform pgfresh_engine.require_primary();
  if not pg_try_advisory_xact_lock(7041, 2) then
    return jsonb_build_object('skipped', 'locked');
  end if;
  if exists (select from pgfresh_engine.subscription where last_seen_at < v_now - pgfresh_engine.longest_silence())
      or exists (select from pgfresh_engine.process where kind = 'gateway' and lease_until <= v_now) then
    if pgfresh_engine.is_loss_held(v_now) then
      return jsonb_build_object('skipped', 'held');
    end if;
    -- Without those that an open transaction of their viewer has locked, for as long as it likes.
    delete from pgfresh_engine.subscription
    where ctid = any (array(
      select ctid from pgfresh_engine.subscription
      where last_seen_at < v_now - pgfresh_engine.longest_silence()
      for update skip locked));
    get diagnostics v_removed = row_count;
    v_nodes := pgfresh_engine.expire_nodes(v_now);
  end if;
  -- When nothing silent is left, a loss that was held is over, and the next one is another.
  update pgfresh_engine.planner_state
  set demand_held_until = null
  where demand_held_until is not null
    and not exists (
      select from pgfresh_engine.subscription where last_seen_at < v_now - pgfresh_engine.longest_silence());
  delete from pgfresh_engine.viewer_calls
  where ctid = any (array(
    select ctid from pgfresh_engine.viewer_calls where minute < v_now - interval '10 minutes' for update skip locked));
  perform pgfresh_engine.review_open_jobs(v_now);
  return jsonb_build_object('removed', v_removed, 'nodes', v_nodes);
end
$$;
comment on function pgfresh.cleanup_stale_subscriptions() is
  'Removes subscriptions that were silent for more than five minutes, at the latest after six and a quarter, and '
  'nodes whose lease has ended; cancels waiting jobs of removed keys. Run it every minute. Returns {"removed", '
  '"nodes"} or {"skipped"}.';
grant execute on function pgfresh.cleanup_stale_subscriptions() to pgfresh_planner;

-- The names of data types for viewers, who may read nothing else of the registry.
create or replace view pgfresh_engine.type_name as select type_id, data_type from pgfresh.data_type_registry;
comment on view pgfresh_engine.type_name is 'The number and name of each data type.';
grant select on pgfresh_engine.type_name to pgfresh_viewer, pgfresh_monitor, pgfresh_operator;

/*
  With the rights of the reader, whose rows the policies of the table select. Neither the view nor its policies need a
  right to use the schema of the engine, so viewers can reach the table through the view only.
*/
create or replace view pgfresh.active_subscriptions with (security_invoker = true) as
select s.user_id, s.key,
  (select t.data_type from pgfresh_engine.type_name as t where t.type_id = s.type_id) as data_type,
  s.subscribed_at, s.last_seen_at
from pgfresh_engine.subscription as s;
comment on view pgfresh.active_subscriptions is
  'Subscriptions of clients that use SQL: viewers see their own, monitors all. To delete a row is to leave the pair. '
  'Each lives for five minutes after its last heartbeat; last_seen_at is written at most every 75 seconds.';
grant select, delete on pgfresh.active_subscriptions, pgfresh_engine.subscription to pgfresh_viewer;
grant select on pgfresh.active_subscriptions, pgfresh_engine.subscription to pgfresh_monitor, pgfresh_operator;
do $$
declare
  v_policy record;
begin
  for v_policy in
    select wanted.name, wanted.definition
    from (values
      -- In a subquery, so that it is asked once and not for every row.
      ('own', 'to pgfresh_viewer using (user_id = (select pgfresh_engine.session_viewer()))'),
      -- Without a policy, members of pg_read_all_data would read no rows and get no error.
      ('all', 'for select to pgfresh_monitor, pgfresh_operator, pg_read_all_data using (true)')
    ) as wanted(name, definition)
    left join pg_policy as p on p.polrelid = 'pgfresh_engine.subscription'::regclass and p.polname = wanted.name
    -- The comment is the definition, which PostgreSQL keeps in other words. Only a policy that differs is made anew:
    -- that locks the table.
    where obj_description(p.oid, 'pg_policy') is distinct from wanted.definition
  loop
    execute format('drop policy if exists %I on pgfresh_engine.subscription', v_policy.name);
    execute format('create policy %I on pgfresh_engine.subscription %s', v_policy.name, v_policy.definition);
    execute format('comment on policy %I on pgfresh_engine.subscription is %L', v_policy.name, v_policy.definition);
  end loop;
end
$$;

create or replace function pgfresh.get_active_subscriptions()
returns table (data_type text, key text, viewers bigint, adapters text[])
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select r.data_type, d.key, sum(d.viewers), array_agg(distinct d.adapter)
  from (
    select type_id, key, count(*) as viewers, 'heartbeat' as adapter
    from pgfresh_engine.subscription
    group by type_id, key
    union all
    select type_id, key, sum(viewers), 'gateway'
    from pgfresh_engine.node_demand
    group by type_id, key
  ) as d
  join pgfresh.data_type_registry as r on r.type_id = d.type_id
  group by r.data_type, d.key
$$;
comment on function pgfresh.get_active_subscriptions() is
  'Viewed pairs, with their number of viewers and the adapters that report them. A user who views a pair through '
  'two nodes, or through a node and SQL, counts twice.';
grant execute on function pgfresh.get_active_subscriptions() to
  pgfresh_worker, pgfresh_planner, pgfresh_gateway, pgfresh_monitor, pgfresh_operator;

create or replace function pgfresh.explain_pair(p_data_type text, p_key text) returns jsonb
language sql
set search_path = pg_catalog, pg_temp
begin atomic
  select pgfresh_engine.require_primary() where pg_is_in_recovery();
  insert into pgfresh_engine.request (verb, args)
  values ('explain', jsonb_build_object('data_type', p_data_type, 'key', p_key))
  returning answer;
end;
comment on function pgfresh.explain_pair(text, text) is
  'Why a pair is or is not being refreshed, and until when: the state and age of its data, its activity and the '
  'reason why it waits, its viewers, its last success and its last failed attempts. A row that others deleted or '
  'set back is checked by the next tick. state, activity and reason are fixed words; words says the same in a '
  'sentence. If several things hold the pair up, reason is the one that lasts longest, and obstacles has the '
  'others. Viewers get data_type, key, state, activity, reason and until. It fails in a '
  'read-only transaction.';
grant execute on function pgfresh.explain_pair(text, text) to
  pgfresh_viewer, pgfresh_worker, pgfresh_planner, pgfresh_gateway, pgfresh_monitor, pgfresh_operator;

create or replace function pgfresh.check_and_queue_stale_batch(p_key text, p_data_types text[]) returns jsonb
language sql
set search_path = pg_catalog, pg_temp
begin atomic
  select pgfresh_engine.require_primary() where pg_is_in_recovery();
  insert into pgfresh_engine.request (verb, args)
  values ('check', jsonb_build_object('key', p_key, 'data_types', p_data_types))
  returning answer;
end;
comment on function pgfresh.check_and_queue_stale_batch(text, text[]) is
  'Checks one key in several data types and queues what is missing or stale, for the moment of subscribing. A data '
  'type whose table is locked is left to the planner. The number of viewers is the priority; the caller cannot '
  'choose it.';
grant execute on function pgfresh.check_and_queue_stale_batch(text, text[]) to
  pgfresh_viewer, pgfresh_gateway, pgfresh_worker;
