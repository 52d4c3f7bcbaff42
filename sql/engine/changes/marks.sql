/*
  How changes reach viewers. Triggers on users' tables (type_functions.sql) and the end of every job append a mark to
  pgfresh_engine.change, in the transaction that writes. They do so only for data types that are watched; otherwise they
  read one row and return.

  Transactions commit in another order than they begin, so neither a sequence nor a time can tell what was read before.
  A snapshot can: what is visible now and was not visible in the snapshot of the last read is new. So each mark is new
  exactly once.

  The end of a job notifies the gateways itself when it commits, so a viewer who waits for a first row does not wait for
  the pump. A notification takes a lock of the whole cluster until its transaction has reached the disk. So only one end
  at a time takes it. The other ends, and those of many pairs, leave it to the pump: no end waits for another one.
*/
create or replace function pgfresh_engine.mark_pairs(p_type_id int, p_keys text[]) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_is_watched boolean := exists (
    select from pgfresh_engine.watched_type where type_id = p_type_id and watched_until > pgfresh.clock());
  v_payload text;
begin
  -- A transaction with one snapshot for all its statements would not see a watch that began meanwhile, so it
  -- always marks.
  if not v_is_watched and current_setting('transaction_isolation') in ('read committed', 'read uncommitted') then
    return;
  end if;
  if v_is_watched and cardinality(p_keys) <= 50 and pg_try_advisory_xact_lock(7041, 4) then
    v_payload := json_build_array(
      json_build_array(p_type_id, p_keys, array[pg_current_xact_id()::text::bigint]))::text;
    -- A notification must be shorter than 8000 bytes.
    if octet_length(v_payload) > 7900 then
      v_payload := null;
    end if;
  end if;
  insert into pgfresh_engine.change (type_id, keys, told) values (p_type_id, p_keys, v_payload is not null);
  if v_payload is not null then
    perform pg_notify('pgfresh_change', v_payload);
  end if;
end
$$;
comment on function pgfresh_engine.mark_pairs(int, text[]) is
  'Marks pairs whose jobs have ended, if their data type is watched, and tells the gateways of up to 50 of them '
  'when the transaction commits, unless another end is doing that now. A part of every end.';

create or replace function pgfresh_engine.changes_since(p_since pg_snapshot) returns jsonb
language plpgsql stable
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
begin
  return (
    select coalesce(
      jsonb_agg(
        jsonb_build_array(c.type_id, case when not c.whole then c.keys end, c.xids)
          || case when c.told then jsonb '[true]' else '[]' end
        order by c.type_id, c.xids),
      '[]')
    from (
      select m.type_id, bool_and(m.told) as told, bool_or(m.many or m.keys is null or m.keys = '{}') as whole,
        array_agg(distinct k.key) filter (where k.key is not null) as keys,
        case when not coalesce(bool_or(m.keys = '{}'), false) then array_agg(distinct m.xid::text::bigint) end as xids
      from (
        -- More keys than a few messages can hold: the whole type.
        select c.*, sum(cardinality(c.keys)) over (partition by c.type_id) > 5000 as many
        from (
          select c.xid, c.type_id, c.keys, c.told
          from pgfresh_engine.change as c
          where c.xid >= pg_snapshot_xmax(coalesce(p_since, '1:1:'))
          union all
          select c.xid, c.type_id, c.keys, c.told
          from pgfresh_engine.change as c
          where c.xid = any (array(select pg_snapshot_xip(p_since)))
        ) as c
      ) as m
      left join lateral unnest(case when not m.many then m.keys end) as k(key) on true
      group by m.type_id, case when not m.many then m.xid end, not m.many and m.told
    ) as c);
end
$$;
comment on function pgfresh_engine.changes_since(pg_snapshot) is
  'What is marked now and was not in that snapshot, '
  'as [type, keys or null for all, transactions or null if unknown] for each transaction, '
  'and with true at the end if the gateways were told when it committed.';

create or replace function pgfresh_engine.watch_changes(p_types int[], p_since pg_snapshot default null) returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := pgfresh.clock();
  v_answer jsonb;
begin
  perform pgfresh_engine.require_primary();
  if p_types is null or array_position(p_types, null) is not null or cardinality(p_types) > 10000 then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      'p_types must be an array of at most 10000 numbers of data types, with no null in it',
      'Pass the types whose pairs are watched.');
  end if;
  -- Most calls find every watch valid for a while longer, and write nothing.
  if exists (
    select from unnest(p_types) as t(id)
    where not exists (
      select from pgfresh_engine.watched_type as w
      where w.type_id = t.id and w.watched_until >= v_now + interval '20 seconds'
    )
  ) then
    perform set_config('synchronous_commit', 'off', true);
    -- A type that an open transaction deletes or renames is left to a later call, so that no call waits for it.
    insert into pgfresh_engine.watched_type as w (type_id, watched_until, since)
    select r.type_id, v_now + interval '30 seconds', v_now
    from (
      select type_id from pgfresh.data_type_registry where type_id = any (p_types)
      order by type_id for key share skip locked
    ) as r
    order by r.type_id
    on conflict (type_id) do update set watched_until = excluded.watched_until,
      -- A writer may have found the watch expired, and not marked. The five seconds cover this transaction, from
      -- its reading of the clock to its commit.
      since = case when w.watched_until < v_now + interval '5 seconds' then v_now else w.since end,
      settled = w.settled and w.watched_until >= v_now + interval '5 seconds';
  end if;
  select jsonb_build_object(
    'snapshot', pg_current_snapshot()::text,
    'changes', case when p_since is null then '[]' else pgfresh_engine.changes_since(p_since) end
      -- A type that is gone has changed as a whole.
      || coalesce((
        select jsonb_agg(jsonb_build_array(t.id, null, null))
        from unnest(p_types) as t(id)
        where not exists (select from pgfresh.data_type_registry as r where r.type_id = t.id)
      ), '[]'))
  into v_answer;
  return v_answer;
end
$$;
comment on function pgfresh_engine.watch_changes(int[], pg_snapshot) is
  'Says that pairs of these data types are watched for the next 30 seconds, so that their changes are marked, '
  'and tells what was marked since a snapshot that an earlier call returned. '
  'Returns {"snapshot", "changes": [[type, keys or null for all, transactions or null if unknown], …]}; '
  'a type that is not there any more is among them. '
  'Marks are kept for ten seconds: a later caller reads everything anew.';
grant execute on function pgfresh_engine.watch_changes(int[], pg_snapshot) to pgfresh_gateway;

create or replace function pgfresh_engine.pump_changes(p_holder uuid, p_since pg_snapshot default null) returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := pgfresh.clock();
  v_answer jsonb;
begin
  perform pgfresh_engine.require_primary();
  if p_holder is null then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      'p_holder must not be null',
      'Pass a uuid of your own making, the same for each call.');
  end if;
  perform set_config('synchronous_commit', 'off', true);
  if not exists (
        select from pgfresh_engine.duty
        where name = 'pump' and holder = p_holder and lease_until > v_now + interval '2 seconds'
      )
      and not pgfresh_engine.hold_duty('pump', p_holder, interval '3 seconds') then
    return null;
  end if;
  select jsonb_build_object(
    'snapshot', s.snapshot::text, 'changes', pgfresh_engine.changes_since(p_since), 'unsettled', w.types)
  into v_answer
  from (select pg_current_snapshot() as snapshot) as s
  cross join (
    select coalesce(jsonb_agg(jsonb_build_array(type_id, since::text)), '[]') as types
    from pgfresh_engine.watched_type
    where not settled
  ) as w;
  if v_answer -> 'unsettled' <> '[]' then
    -- Every transaction that has written so far has an id below this one.
    v_answer := v_answer || jsonb_build_object('next', pg_current_xact_id()::text::bigint);
  end if;
  return v_answer;
end
$$;
comment on function pgfresh_engine.pump_changes(uuid, pg_snapshot) is
  'Takes or renews the duty of the pump; null while another gateway has it. '
  'Otherwise as watch_changes, and which types have only just begun to be watched, '
  'and the first transaction that cannot have missed that.';
grant execute on function pgfresh_engine.pump_changes(uuid, pg_snapshot) to pgfresh_gateway;

create or replace function pgfresh_engine.settle_changes(
  p_from pg_snapshot, p_to pg_snapshot, p_unmarked int[] default '{}', p_types int[] default '{}',
  p_since timestamptz[] default '{}')
returns bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
  v_first bigint := 0;
  v_more bigint := 0;
begin
  perform pgfresh_engine.require_primary();
  if p_types is null or p_since is null or cardinality(p_types) <> cardinality(p_since) or cardinality(p_types) > 10000
      or p_unmarked is null or cardinality(p_unmarked) > 10000 or array_position(p_unmarked, null) is not null then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      'p_unmarked must be types with no null, and p_types and p_since arrays of one length, each at most 10000',
      'Pass them as pump_changes returned them.');
  end if;
  perform set_config('synchronous_commit', 'off', true);
  if p_to is not null then
    delete from pgfresh_engine.change as c
    where c.xid >= pg_snapshot_xmax(coalesce(p_from, '1:1:')) and c.xid < pg_snapshot_xmax(p_to)
      and pg_visible_in_snapshot(c.xid, p_to);
    get diagnostics v_first = row_count;
    delete from pgfresh_engine.change as c
    where c.xid = any (array(select pg_snapshot_xip(p_from))) and pg_visible_in_snapshot(c.xid, p_to);
    get diagnostics v_more = row_count;
  end if;
  if cardinality(p_unmarked) > 0 then
    insert into pgfresh_engine.change (type_id, keys) select t.id, '{}' from unnest(p_unmarked) as t(id);
  end if;
  if cardinality(p_types) > 0 then
    -- A type that an open transaction deletes stays unsettled until a later call.
    update pgfresh_engine.watched_type as w
    set settled = true
    from (
      select o.type_id
      from unnest(p_types, p_since) as t(type_id, since)
      join pgfresh_engine.watched_type as o on o.type_id = t.type_id and o.since = t.since
      order by o.type_id for update of o skip locked
    ) as s
    where w.type_id = s.type_id;
  end if;
  return v_first + v_more;
end
$$;
comment on function pgfresh_engine.settle_changes(pg_snapshot, pg_snapshot, int[], int[], timestamptz[]) is
  'Deletes the marks between two snapshots, which every gateway has heard of; '
  'marks whole types (p_unmarked) that were written by transactions that could not know of the watch; '
  'and notes for which types (p_types) all such transactions have ended. Returns how many marks were deleted.';
grant execute on function pgfresh_engine.settle_changes(pg_snapshot, pg_snapshot, int[], int[], timestamptz[]) to
  pgfresh_gateway;

create or replace function pgfresh_engine.clear_unwatched_changes() returns bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_count bigint;
begin
  -- One statement: a snapshot that sees a mark also sees the watch that began before it.
  delete from pgfresh_engine.change as c
  where not exists (
    select from pgfresh_engine.watched_type as w
    where w.type_id = c.type_id and w.watched_until > (select pgfresh.clock()) - interval '1 minute'
  );
  get diagnostics v_count = row_count;
  return v_count;
end
$$;
comment on function pgfresh_engine.clear_unwatched_changes() is
  'Deletes marks of data types that are no longer watched. Returns how many.';
grant execute on function pgfresh_engine.clear_unwatched_changes() to pgfresh_planner;
