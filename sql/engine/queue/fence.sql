/*
  The first statement of a commit of ends. It locks the jobs that still run in the given attempt, in the lock order of
  all ends. It also returns which of the others have ended, so that repeating an unconfirmed commit recognises it. Rows
  of a data type that changed since the claim are not written: they may be of another source, or for another table.
*/
create or replace function pgfresh_engine.fence_jobs(
  p_type_id int, p_ids bigint[], p_attempts int[], p_keys text[], p_requests uuid[] default null)
returns table (ours bigint[], done bigint[], outdated bigint[], now timestamptz)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_bitmapscan = off
as $$
begin
  perform pgfresh_engine.require_ends(
    p_ids, p_attempts, array_fill(0::bigint, array[coalesce(cardinality(p_ids), 0)]), p_requests);
  if p_type_id is null or p_keys is null
      or cardinality(p_keys) <> cardinality(p_ids) or array_position(p_keys, null) is not null then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      'p_type_id must not be null, and p_keys as long as p_ids with no null in it',
      'Pass the type, and for each job its key.');
  end if;
  now := pgfresh.clock();
  -- The end marks the pairs itself, so the triggers on the rows need not.
  perform set_config('pgfresh.ending', p_type_id::text, true);
  select coalesce(array_agg(j.id) filter (where not j.is_outdated), '{}'),
    coalesce(array_agg(j.id) filter (where j.is_outdated), '{}')
  into ours, outdated
  from (
    select j.id,
      j.definition is distinct from coalesce(
        (select r.definition from pgfresh.data_type_registry as r where r.type_id = p_type_id), 0)
        and j.definition is not null as is_outdated
    from pgfresh_engine.job as j
    where j.id = any (p_ids) and j.state = 'x'
      and pgfresh_engine.token_of(j.id, j.attempt, case when p_requests is not null then j.request end) = any (array(
        select pgfresh_engine.token_of(e.id, e.attempt, e.request)
        from unnest(p_ids, p_attempts, p_requests) as e(id, attempt, request)
      ))
    order by j.id for update
  ) as j;
  done := '{}';
  if cardinality(ours) + cardinality(outdated) < cardinality(p_ids) then
    done := array(
      select e.id
      from unnest(p_ids, p_keys) as e(id, key)
      cross join lateral (
        select p.last_job from pgfresh_engine.pairs as p where p.type_id = p_type_id and p.key = e.key
      ) as p
      where p.last_job >= e.id and not e.id = any (ours));
  end if;
  return next;
end
$$;
comment on function pgfresh_engine.fence_jobs(int, bigint[], int[], text[], uuid[]) is
  'Locks jobs of one data type that still run in the given attempt, under the given claims if they are said, '
  'and returns their ids, the ids of those that have ended already, '
  'the ids of those whose data type has another definition now, which must be put back, and the time. '
  'Call it first in the transaction that writes their rows and ends them.';
grant execute on function pgfresh_engine.fence_jobs(int, bigint[], int[], text[], uuid[]) to pgfresh_worker;
