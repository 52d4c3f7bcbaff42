/*
  Who views what. Subscriptions of SQL clients and the counts of gateway nodes are the source of truth; each change is
  appended to demand_change in the same transaction, and the planner sums these into pairs.viewers. So viewers of one
  pair never wait for each other, or for a transaction that has locked the pair, and the planner's work is proportional
  to the changes.

  Another source of demand either writes counts as a node does, or adds a third table: with triggers here, and next to
  the other two in get_active_subscriptions, explanation_of, lock_evictable, prune_pairs and clear_type.
*/
create or replace function pgfresh_engine.note_demand() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if tg_table_name = 'node_demand' then
    if tg_op = 'INSERT' then
      insert into pgfresh_engine.demand_change (type_id, key, delta) select type_id, key, viewers from fresh;
    elsif tg_op = 'UPDATE' then
      -- No join: its plan is cached from the first call, mostly with no rows at all, and is quadratic.
      insert into pgfresh_engine.demand_change (type_id, key, delta)
      select c.type_id, c.key, sum(c.viewers)
      from (
        select type_id, key, viewers from fresh
        union all
        select type_id, key, -viewers from gone
      ) as c
      group by c.type_id, c.key
      having sum(c.viewers) <> 0;
    else
      insert into pgfresh_engine.demand_change (type_id, key, delta) select type_id, key, -viewers from gone;
    end if;
  elsif tg_op = 'INSERT' then
    insert into pgfresh_engine.demand_change (type_id, key, delta)
    select type_id, key, count(*) from fresh group by type_id, key;
  else
    insert into pgfresh_engine.demand_change (type_id, key, delta)
    select type_id, key, -count(*) from gone group by type_id, key;
  end if;
  return null;
end
$$;
comment on function pgfresh_engine.note_demand() is
  'Trigger of subscription and node_demand: notes every change for the planner.';

create or replace trigger note_added after insert on pgfresh_engine.subscription
  referencing new table as fresh
  for each statement execute function pgfresh_engine.note_demand();
create or replace trigger note_removed after delete on pgfresh_engine.subscription
  referencing old table as gone
  for each statement execute function pgfresh_engine.note_demand();
create or replace trigger note_added after insert on pgfresh_engine.node_demand
  referencing new table as fresh
  for each statement execute function pgfresh_engine.note_demand();
create or replace trigger note_changed after update on pgfresh_engine.node_demand
  referencing new table as fresh old table as gone
  for each statement execute function pgfresh_engine.note_demand();
create or replace trigger note_removed after delete on pgfresh_engine.node_demand
  referencing old table as gone
  for each statement execute function pgfresh_engine.note_demand();

-- Viewers call it with their own rights and may not use this schema, so it uses built-in functions only.
create or replace function pgfresh_engine.session_viewer() returns text
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_claims text := nullif(current_setting('request.jwt.claims', true), '');
  v_user text;
begin
  if v_claims is not null then
    begin
      v_user := v_claims::jsonb ->> 'sub';
    exception when data_exception then
      raise exception using errcode = 'PGF01',
        message = 'PGF_VIEWER_UNKNOWN: request.jwt.claims is not JSON', hint = 'Let the API gateway set it.';
    end;
  end if;
  return coalesce(
    v_user,
    nullif(current_setting('request.jwt.claim.sub', true), ''),
    nullif(current_setting('pgfresh.user_id', true), ''));
end
$$;
comment on function pgfresh_engine.session_viewer() is
  'The user of this session, by its claims or settings; null if neither names one.';
grant execute on function pgfresh_engine.session_viewer() to pgfresh_viewer;

create or replace function pgfresh_engine.require_viewer(p_user_id text, p_caller name) returns text
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_own text := pgfresh_engine.session_viewer();
begin
  -- Gateways, workers and the owner (the current user here) may name any user; other callers only themselves.
  if pg_has_role(p_caller, 'pgfresh_gateway', 'member') or pg_has_role(p_caller, 'pgfresh_worker', 'member')
      or pg_has_role(p_caller, current_user, 'member') then
    v_own := coalesce(p_user_id, v_own);
  end if;
  if v_own is null then
    perform pgfresh_engine.refuse('PGF_VIEWER_UNKNOWN',
      'the session does not say which user is viewing',
      'Log in, so that request.jwt.claims has a sub, or set pgfresh.user_id where the session is trusted.');
  elsif p_user_id is not null and p_user_id <> v_own then
    perform pgfresh_engine.refuse('PGF_VIEWER_OTHER',
      'the session belongs to another user',
      'Leave p_user_id out: it is taken from the session.');
  end if;
  if coalesce(v_own, '') = '' or octet_length(v_own) > 200 or v_own ~ '[[:cntrl:]]' then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      format(
        'p_user_id must have 1 to 200 bytes and no control characters, got %s',
        coalesce(left(quote_literal(v_own), 60), 'null')),
      'Pass the id of the user who looks.');
  end if;
  return v_own;
end
$$;
comment on function pgfresh_engine.require_viewer(text, name) is
  'The user on whose behalf the caller speaks, by the claims or settings of the session; refuses another''s id.';

create or replace function pgfresh_engine.count_call(p_user_id text, p_calls int default 1) returns void
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
  update pgfresh_engine.viewer_calls as v
  set minute = v_minute, calls = case when v.minute = v_minute then v.calls else 0 end + p_calls
  where v.user_id = p_user_id
  returning v.calls into v_calls;
  if not found then
    insert into pgfresh_engine.viewer_calls as v (user_id, minute, calls)
    values (p_user_id, v_minute, p_calls)
    on conflict (user_id) do update set calls = v.calls + p_calls;
  end if;
  if v_calls > 1200 then
    perform pgfresh_engine.refuse('PGF_TOO_MANY_CALLS',
      'more than 1200 calls in one minute',
      'One heartbeat a minute and pair is enough.');
  end if;
end
$$;
comment on function pgfresh_engine.count_call(text, int) is
  'Counts calls of a user and refuses more than 1200 a minute. '
  'A heartbeat that comes 30 s or more after the last one is not counted.';

create or replace function pgfresh_engine.keep_former_name() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  insert into pgfresh_engine.former_type_name (data_type, type_id)
  values (old.data_type, new.type_id)
  on conflict (data_type) do update set type_id = excluded.type_id;
  return null;
end
$$;
comment on function pgfresh_engine.keep_former_name() is
  'Trigger of the registry: a viewer who knows a data type by its former name can still leave.';
create or replace trigger keep_former_name after update of data_type on pgfresh.data_type_registry
  for each row when (old.data_type <> new.data_type) execute function pgfresh_engine.keep_former_name();

-- Five minutes, plus the 75 seconds for which a heartbeat may go unwritten.
create or replace function pgfresh_engine.longest_silence() returns interval
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$ select interval '375 seconds' $$;
comment on function pgfresh_engine.longest_silence() is
  'How old the last heartbeat that was written may be: nobody is given up before five silent minutes.';

-- A tracker that restarts looks as if all viewers had left.
-- So if all fall silent at once, that is believed only after a while.
create or replace function pgfresh_engine.is_loss_held(p_now timestamptz) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_held_until timestamptz := (select demand_held_until from pgfresh_engine.planner_state);
begin
  if exists (select from pgfresh_engine.subscription where last_seen_at >= p_now - pgfresh_engine.longest_silence())
      or exists (
        select from pgfresh_engine.process as n
        where n.kind = 'gateway' and n.lease_until > p_now
          and exists (select from pgfresh_engine.node_demand as d where d.node_id = n.id)
      ) then
    if v_held_until is not null then
      update pgfresh_engine.planner_state set demand_held_until = null;
    end if;
    return false;
  end if;
  if v_held_until is null then
    if (
      select count(*)
      from (
        select distinct type_id, key
        from (
          select type_id, key from pgfresh_engine.subscription
          union all
          select type_id, key from pgfresh_engine.node_demand
        ) as silent
        limit 10
      ) as pairs
    ) < 10 then
      return false;
    end if;
    v_held_until := p_now + interval '120 seconds';
    update pgfresh_engine.planner_state set demand_held_until = v_held_until;
    perform pgfresh_engine.warn('demand_lost', 'all',
      'everybody stopped looking at once; their pairs are kept fresh for 120 s more',
      'See whether the gateways or the clients'' network had a failure.');
  end if;
  return p_now < v_held_until;
end
$$;
comment on function pgfresh_engine.is_loss_held(timestamptz) is
  'Whether all demand (10 pairs or more) has just fallen silent at once, which is believed only after 120 s.';
