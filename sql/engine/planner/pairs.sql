/*
  A pair that another transaction has added and not yet committed is invisible, and SKIP LOCKED cannot skip it: an
  insert of the same pair waits for that transaction, however long it stays open. So whatever adds pairs gives up after
  a few milliseconds, and leaves such pairs to a later attempt.
*/
create or replace function pgfresh_engine.add_pairs(p_type_id int, p_keys text[], p_job_ids bigint[]) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '5ms'
as $$
begin
  insert into pgfresh_engine.pairs (type_id, key, job_id) select p_type_id, unnest(p_keys), unnest(p_job_ids);
  return true;
exception when unique_violation or lock_not_available then
  return false;
end
$$;
comment on function pgfresh_engine.add_pairs(int, text[], bigint[]) is
  'Adds new pairs with their jobs; false, and none of them, if another transaction has added one of them. '
  'A part of queue_refreshes.';

/*
  First all at once. If that has to wait, one by one in random order: each locked pair then costs one wait, those before
  it are added, and the loop continues after it. After ten locked pairs the rest is left to a later attempt, which the
  random order lets find others.
*/
create or replace function pgfresh_engine.make_pairs(p_type_id int, p_keys text[]) returns text[]
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set lock_timeout = '5ms'
as $$
declare
  v_new text[] := array(
    select distinct k.key collate "C"
    from unnest(p_keys) as k(key)
    where (select true from pgfresh_engine.pairs as p where p.type_id = p_type_id and p.key = k.key collate "C") is null
    order by 1);
  v_count int := cardinality(v_new);
  v_locked text[] := '{}';
  v_from int := 1;
  -- The last index before a locked pair; null while unknown.
  v_until int;
  v_at int;
  v_key text;
begin
  if v_count = 0 then
    return v_new;
  end if;
  -- Without a lock: follow_changes clears pairs added to a data type that is being removed.
  if not exists (select from pgfresh.data_type_registry where type_id = p_type_id) then
    return v_new;
  end if;
  for v_try in 0..20 loop
    exit when v_from > v_count;
    if v_try = 1 then
      v_new := array(select n from unnest(v_new) as n order by random());
    end if;
    v_at := null;
    begin
      if v_try = 0 or v_until is not null then
        insert into pgfresh_engine.pairs (type_id, key)
        select p_type_id, unnest(v_new[v_from:coalesce(v_until, v_count)])
        on conflict do nothing;
      else
        for i in v_from..v_count loop
          v_at := i;
          insert into pgfresh_engine.pairs (type_id, key) values (p_type_id, v_new[i]) on conflict do nothing;
        end loop;
      end if;
      v_from := coalesce(v_until + 2, v_count + 1);
      v_until := null;
    exception when lock_not_available then
      if v_until is not null then
        v_locked := v_locked || v_new[v_from:v_until];
        v_from := v_until + 2;
        v_until := null;
      elsif v_at is not null then
        v_locked := v_locked || v_new[v_at];
        if v_at = v_from then
          v_from := v_from + 1;
        else
          v_until := v_at - 1;
        end if;
      end if;
    end;
  end loop;
  -- The wait may have been for table extension by another insert, not for the pair: try once more.
  foreach v_key in array v_locked[:10] loop
    begin
      insert into pgfresh_engine.pairs (type_id, key) values (p_type_id, v_key) on conflict do nothing;
      v_locked := array_remove(v_locked, v_key);
    exception when lock_not_available then
      null;
    end;
  end loop;
  return v_locked || v_new[v_from:];
end
$$;
comment on function pgfresh_engine.make_pairs(int, text[]) is
  'Adds those pairs of a data type that are not there yet, without waiting for locks. Returns the keys of those it '
  'left out, because another transaction has added them and is still open.';
