/*
  Applies registry changes to pairs and jobs. This runs at commit, so that an open transaction blocks no one, and after
  the locks on users' tables, which ends also take before pairs.
  It waits for no one either. Rows that others have locked follow later, see follow_changes.
*/
create or replace function pgfresh_engine.follow_registry() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := pgfresh.clock();
  v_type pgfresh.data_type_registry;
  v_effect text;
  v_locked text[];
begin
  select * into v_type from pgfresh.data_type_registry where type_id = old.type_id;
  if not found then
    perform pgfresh_engine.clear_type(old.type_id);
    insert into pgfresh_engine.registry_change (type_id, changed_at, effect) values (old.type_id, v_now, 'clear');
    return null;
  end if;
  v_effect := case
    when row(old.table_name, old.key_columns, old.timestamp_column)
      is distinct from row(v_type.table_name, v_type.key_columns, v_type.timestamp_column) then 'forget'
    when old.definition <> v_type.definition then 'ask'
    else 'plan'
  end;
  if v_type.refresh_strategy <> 'scheduled' and old.refresh_strategy = 'scheduled' then
    update pgfresh_engine.refresh_cycle set done_at = v_now where ctid = any (array(
      select ctid
      from pgfresh_engine.refresh_cycle
      where type_id = v_type.type_id and done_at is null
      for update skip locked));
  end if;
  v_locked := pgfresh_engine.follow_type(v_type, v_effect, null, v_now);
  if v_effect <> 'plan' or v_locked <> '{}' then
    insert into pgfresh_engine.registry_change (type_id, changed_at, effect, keys)
    values (v_type.type_id, v_now, v_effect, v_locked);
  end if;
  return null;
end
$$;
comment on function pgfresh_engine.follow_registry() is
  'Trigger of the registry: jobs follow their data type to its source, pairs are planned anew or forget what they '
  'know, and what is open of a deleted data type is cancelled.';

drop trigger if exists follow_registry on pgfresh.data_type_registry;
create constraint trigger follow_registry after update or delete on pgfresh.data_type_registry
  deferrable initially deferred
  for each row execute function pgfresh_engine.follow_registry();

/*
  The effects:
    plan    rules changed: the next tick checks demanded pairs, and times derived from a TTL are updated
    ask     another fetcher or source: earlier answers no longer decide when to fetch again
    forget  another table: nothing is known of its rows
*/
create or replace function pgfresh_engine.follow_type(
  p_type pgfresh.data_type_registry, p_effect text, p_keys text[], p_now timestamptz)
returns text[]
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_free text[];
  v_forgets boolean := p_effect = 'forget';
begin
  -- A running job settles on the source it was claimed for, and its end is refused.
  update pgfresh_engine.job
  set source_id = p_type.source_id
  where id = any (array(
    select id
    from pgfresh_engine.job
    where type_id = p_type.type_id and source_id <> p_type.source_id and state <> 'x'
    order by id for update skip locked));
  if found then
    perform pgfresh_engine.wake_workers();
  end if;
  if p_keys = '{}' then
    return p_keys;
  end if;
  v_free := array(
    select p.key
    from pgfresh_engine.pairs as p
    where p.type_id = p_type.type_id and (p_keys is null or p.key = any (p_keys))
      and (p_effect <> 'plan' or (p.job_id is null and (p.demanded or p.next_ask_at > p_now)))
    order by p.key for update skip locked);
  with told as (
    update pgfresh_engine.pairs as p
    set next_ask_at = n.next_ask_at,
      fails = case when p_effect = 'plan' then p.fails else 0 end,
      outcome = case when not v_forgets then p.outcome end,
      row_at = case when not v_forgets then p.row_at end,
      confirmed_at = case when not v_forgets then p.confirmed_at end,
      stale_at = case when not v_forgets then p.stale_at end,
      empty_at = case when not v_forgets then p.empty_at end,
      source_at = case when not v_forgets then p.source_at end,
      seen = v_forgets or p.seen,
      lapses = case when v_forgets then 0 else p.lapses end,
      lapsed_at = case when not v_forgets then p.lapsed_at end,
      due_at = case when p.demanded and p.job_id is null then greatest(p_now, n.next_ask_at) else p.due_at end
    from (
      select w.key,
        case
          when p_effect <> 'plan' then null
          when w.next_ask_at > p_now and w.job_id is null then
            case w.outcome
              when 'empty' then w.empty_at + coalesce(p_type.empty_ttl, p_type.ttl)
              when 'older_source' then w.ok_at + p_type.ttl
              when 'fresh' then least(w.next_ask_at, w.ok_at + p_type.ttl)
              when 'unchanged' then least(w.next_ask_at, w.ok_at + p_type.ttl)
              else w.next_ask_at
            end
          else w.next_ask_at
        end as next_ask_at
      from pgfresh_engine.pairs as w
      where w.type_id = p_type.type_id and w.key = any (v_free)
    ) as n
    where p.type_id = p_type.type_id and p.key = n.key
    returning p.key, p.due_at, p.demanded and p.job_id is null as is_due
  )
  insert into pgfresh_engine.due (due_at, type_id, key)
  select t.due_at, p_type.type_id, t.key from told as t where t.is_due
  on conflict do nothing;
  if v_forgets then
    -- Their rows have changed.
    perform pgfresh_engine.mark_pairs(p_type.type_id, v_free);
  end if;
  return array(
    select p.key
    from pgfresh_engine.pairs as p
    where p.type_id = p_type.type_id and (p_keys is null or p.key = any (p_keys))
      and (p_effect <> 'plan' or (p.job_id is null and (p.demanded or p.next_ask_at > p_now)))
    except
    select free.key from unnest(v_free) as free(key));
end
$$;
comment on function pgfresh_engine.follow_type(pgfresh.data_type_registry, text, text[], timestamptz) is
  'Gives waiting and ready jobs of a data type the source that it has now, and brings a change of it to all of its '
  'pairs (null) or to some of them. Returns the keys of those that were locked. A part of the registry.';

/*
  A deleted data type is no longer fetched; the cost of its calls stays in the ledger. Ends may hold any of these rows
  while they wait for the ledger of a source, so nothing is waited for once that is locked.
*/
create or replace function pgfresh_engine.clear_type(p_type_id int) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_jobs bigint[] := array(
    select id from pgfresh_engine.job where type_id = p_type_id order by id for update skip locked);
  v_table text;
begin
  -- Several data types may be deleted in one transaction, each settling its running jobs: so lock all ledgers the first
  -- time, in the order in which ends lock them.
  if exists (select from pgfresh_engine.job where id = any (v_jobs) and state = 'x') then
    perform from pgfresh_engine.source_state order by source_id for update;
  end if;
  perform pgfresh_engine.cancel_jobs(v_jobs);
  -- After that wait, or the tick and gateways would wait for these rows too. Demand changes without their pairs would
  -- never be consumed, and block others.
  foreach v_table in array array[
    'pgfresh_engine.subscription', 'pgfresh_engine.node_demand', 'pgfresh_engine.demand_change',
    'pgfresh_engine.demand_waiting', 'pgfresh_engine.hold', 'pgfresh_engine.breaker', 'pgfresh_engine.type_losses',
    'pgfresh_engine.type_stats', 'pgfresh_engine.refused_answer', 'pgfresh_engine.refused_pair'
  ] loop
    execute format(
      'delete from %1$s where ctid = any (array('
      'select ctid from %1$s where type_id = $1 for update skip locked))', v_table)
    using p_type_id;
  end loop;
  -- A job that is being ended needs its pair.
  delete from pgfresh_engine.pairs where type_id = p_type_id and key = any (array(
    select key from pgfresh_engine.pairs where type_id = p_type_id order by key for update skip locked));
  -- A transaction that holds a pair may be adding its entry, and would wait for this one, perhaps with the ledgers.
  delete from pgfresh_engine.due where ctid = any (array(
    select d.ctid
    from pgfresh_engine.due as d
    where d.type_id = p_type_id
      and not exists (select from pgfresh_engine.pairs as p where p.type_id = d.type_id and p.key = d.key)
    for update of d skip locked));
  return not exists (select from pgfresh_engine.subscription where type_id = p_type_id)
    and not exists (select from pgfresh_engine.node_demand where type_id = p_type_id)
    and not exists (select from pgfresh_engine.pairs where type_id = p_type_id)
    and not exists (select from pgfresh_engine.job where type_id = p_type_id);
end
$$;
comment on function pgfresh_engine.clear_type(int) is
  'Cancels what is open of a data type that is gone and forgets its pairs, except what is locked. '
  'Returns whether nothing is left. A part of the registry.';

/*
  A transaction that read the registry before a change may add pairs and jobs after it. So each change is reapplied for
  a minute. Once per minute all jobs are checked, for transactions that take even longer.
*/
create or replace function pgfresh_engine.follow_changes(p_now timestamptz, p_look_for_strays boolean) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_change pgfresh_engine.registry_change;
  v_type pgfresh.data_type_registry;
  v_locked text[];
  v_done boolean;
begin
  if p_look_for_strays then
    insert into pgfresh_engine.registry_change (type_id, changed_at, effect)
    select stray.type_id, p_now - interval '1 minute', 'clear'
    from (
      select j.type_id
      from pgfresh_engine.job as j
      left join pgfresh.data_type_registry as r on r.type_id = j.type_id
      where r.type_id is null or (j.source_id <> r.source_id and j.state <> 'x')
      union
      -- One index probe per data type.
      select p.type_id
      from (
        with recursive known (type_id) as (
          select min(type_id) from pgfresh_engine.pairs
          union all
          select (select min(p.type_id) from pgfresh_engine.pairs as p where p.type_id > k.type_id)
          from known as k
          where k.type_id is not null
        )
        select type_id from known
      ) as p
      where p.type_id is not null
        and not exists (select from pgfresh.data_type_registry as r where r.type_id = p.type_id)
    ) as stray;
  end if;
  if not exists (select from pgfresh_engine.registry_change) then
    return;
  end if;
  for v_change in select * from pgfresh_engine.registry_change order by id for update skip locked loop
    v_locked := '{}';
    v_done := true;
    select * into v_type from pgfresh.data_type_registry where type_id = v_change.type_id;
    if not found then
      v_done := pgfresh_engine.clear_type(v_change.type_id);
    else
      v_locked := pgfresh_engine.follow_type(v_type, v_change.effect, v_change.keys, p_now);
    end if;
    if v_done and v_locked = '{}' and v_change.changed_at <= p_now - interval '1 minute' then
      delete from pgfresh_engine.registry_change where id = v_change.id;
    elsif v_locked <> v_change.keys then
      update pgfresh_engine.registry_change set keys = v_locked where id = v_change.id;
    end if;
  end loop;
end
$$;
comment on function pgfresh_engine.follow_changes(timestamptz, boolean) is
  'Brings changes of the registry to pairs and jobs that were locked or not there yet at that moment. '
  'A part of recovery.';
