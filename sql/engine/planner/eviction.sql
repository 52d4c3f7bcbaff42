/*
  Workers delete the rows of pairs that have long had no viewers, with the rights of their own login. Nothing here
  touches users' tables: their triggers, policies and operators would run with our rights.

  A worker locks pairs, deletes their rows and records it, in one transaction. The pairs are walked by key from a
  cursor, a bounded number at a time, which needs no additional index.
*/
create or replace function pgfresh_engine.lock_evictable(
  p_type_id int, p_limit int, out keys text[], out done boolean)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
  -- Pairs examined per call.
  c_span constant int := 2000;
  v_now timestamptz := pgfresh.clock();
  v_type pgfresh.data_type_registry;
  v_after text;
  v_before timestamptz;
  v_span record;
  v_dependents int[];
begin
  perform pgfresh_engine.require_primary();
  perform pgfresh_engine.require_range('p_limit', p_limit, 1, 1000);
  keys := '{}';
  done := true;
  select * into v_type from pgfresh.data_type_registry where type_id = p_type_id;
  if v_type.evict_after is null then
    return;
  end if;
  v_before := v_now - v_type.evict_after;
  insert into pgfresh_engine.eviction (type_id, cursor_key) values (p_type_id, '') on conflict do nothing;
  -- Do not wait for another worker that is already doing this.
  select cursor_key into v_after from pgfresh_engine.eviction where type_id = p_type_id for update skip locked;
  if not found then
    return;
  end if;
  select count(*) as count, max(s.key) as last,
    array_agg(s.key order by s.key) filter (
      where not s.demanded and s.job_id is null and (s.row_at is not null or not s.seen)
        -- A requested refresh counts like a view.
        and greatest(s.unviewed_since, s.ok_at) <= v_before
    ) as candidates
  into v_span
  from (
    select p.key, p.demanded, p.job_id, p.row_at, p.seen, p.unviewed_since, p.ok_at
    from pgfresh_engine.pairs as p
    where p.type_id = p_type_id and p.key > v_after
    order by p.key
    limit c_span
  ) as s;
  -- Lock first, then check: a new viewer either waits for this pair or is seen by the next statement.
  keys := array(
    select p.key
    from pgfresh_engine.pairs as p
    where p.type_id = p_type_id and p.key = any (v_span.candidates)
      and not p.demanded and p.viewers = 0 and p.job_id is null
      and greatest(p.unviewed_since, p.ok_at) <= v_before
    order by p.key
    limit p_limit for update skip locked
  );
  done := v_span.count < c_span and cardinality(keys) < p_limit;
  update pgfresh_engine.eviction
  set cursor_key = case when done then '' when cardinality(keys) = p_limit then keys[p_limit] else v_span.last end
  where type_id = p_type_id;
  v_dependents := array(
    with recursive dependent (type_id) as (
      select type_id from pgfresh_engine.type_dependency where needs_id = p_type_id
      union
      select d.type_id from dependent as n join pgfresh_engine.type_dependency as d on d.needs_id = n.type_id
    )
    select type_id from dependent
  );
  keys := array(
    select k.key
    from unnest(keys) as k(key)
    where not exists (select from pgfresh_engine.subscription as a where a.type_id = p_type_id and a.key = k.key)
      and not exists (select from pgfresh_engine.node_demand as d where d.type_id = p_type_id and d.key = k.key)
      -- A view of a dependent pair counts as a view of this one.
      and not exists (
        select from pgfresh_engine.pairs as p
        where p.type_id = any (v_dependents) and p.key = k.key
          and (p.demanded or p.job_id is not null or greatest(p.unviewed_since, p.ok_at) > v_before)
      )
    order by k.key
  );
end
$$;
comment on function pgfresh_engine.lock_evictable(int, int) is
  'Locks the next pairs of a data type that nobody has viewed for its evict_after, and returns their keys, '
  'and whether the walk over all pairs is done. Delete their rows in the same transaction, and call note_evicted.';
grant execute on function pgfresh_engine.lock_evictable(int, int) to pgfresh_worker;

create or replace function pgfresh_engine.note_evicted(p_type_id int, p_keys text[]) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if p_type_id is null or p_keys is null or cardinality(p_keys) > 1000 then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      'p_type_id must not be null, and p_keys be at most 1000 keys',
      'Pass the keys that lock_evictable returned.');
  end if;
  update pgfresh_engine.pairs
  set row_at = null, stale_at = null, source_at = null, confirmed_at = null, empty_at = null, seen = true
  where type_id = p_type_id and key = any (p_keys) and not demanded and job_id is null;
end
$$;
comment on function pgfresh_engine.note_evicted(int, text[]) is
  'Notes that the rows of pairs are gone because nobody views them: they are missing, and not planned.';
grant execute on function pgfresh_engine.note_evicted(int, text[]) to pgfresh_worker;
