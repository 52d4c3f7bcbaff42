/*
  The first statement of a commit of ends: locks the jobs that still run in the given attempt, in the order in which
  every end locks them. Of the others it tells which have ended, so that a commit which was never confirmed is
  recognised when it is run again.
*/
create or replace function pgfresh.fence_jobs(
  p_type_id int, p_ids bigint[], p_attempts int[], p_keys text[], p_requests uuid[] default null)
returns table (ours bigint[], done bigint[], now timestamptz)
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_bitmapscan = off
as $$
begin
  perform pgfresh.require_ends(
    p_ids, p_attempts, array_fill(0::bigint, array[coalesce(cardinality(p_ids), 0)]), p_requests);
  if p_type_id is null or p_keys is null
      or cardinality(p_keys) <> cardinality(p_ids) or array_position(p_keys, null) is not null then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      'p_type_id must not be null, and p_keys as long as p_ids with no null in it',
      'Pass the type, and for each job its key.');
  end if;
  now := pgfresh.clock();
  -- The end marks the pairs; the triggers need not do it for the rows.
  perform set_config('pgfresh.ending', p_type_id::text, true);
  ours := array(
    select j.id
    from pgfresh.job as j
    where j.id = any (p_ids) and j.state = 'x'
      and pgfresh.token_of(j.id, j.attempt, case when p_requests is not null then j.request end) = any (array(
        select pgfresh.token_of(e.id, e.attempt, e.request)
        from unnest(p_ids, p_attempts, p_requests) as e(id, attempt, request)
      ))
    order by j.id for update);
  done := '{}';
  if cardinality(ours) < cardinality(p_ids) then
    done := array(
      select e.id
      from unnest(p_ids, p_keys) as e(id, key)
      cross join lateral (
        select p.last_job from pgfresh.pairs as p where p.type_id = p_type_id and p.key = e.key
      ) as p
      where p.last_job >= e.id and not e.id = any (ours));
  end if;
  return next;
end
$$;
comment on function pgfresh.fence_jobs(int, bigint[], int[], text[], uuid[]) is
  'Locks jobs of one data type that still run in the given attempt, under the given claims if they are said, '
  'and returns their ids, the ids of those that have ended already, and the time. '
  'Call it first in the transaction that writes their rows and ends them.';

create or replace function pgfresh.keep_refused_answer(
  p_type_id int, p_key text, p_job_id bigint, p_outcome text, p_error text, p_status int, p_content_type text,
  p_size bigint, p_body bytea, p_metadata jsonb default null)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  perform pgfresh.require_outcome(p_outcome);
  if p_type_id is null or p_key is null or p_error is null or p_size is null or p_body is null then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      'a refused answer needs a type, a key, an error, a size and a body',
      'Pass all of them.');
  end if;
  perform pgfresh.require_key(p_key);
  perform pgfresh.require_range('p_size', p_size, 0, 1e15);
  if not exists (select from pgfresh.data_type_registry where type_id = p_type_id) then
    perform pgfresh.refuse('PGF_TYPE_UNKNOWN',
      format('there is no data type with the number %s', p_type_id),
      'Pass the type of the claimed job.');
  end if;
  insert into pgfresh.refused_answer (
    type_id, key, job_id, at, outcome, error,
    status, content_type, size, body, metadata)
  values (
    p_type_id, p_key, p_job_id, pgfresh.clock(), p_outcome, left(p_error, 4000),
    p_status, left(p_content_type, 200), p_size, substring(p_body for 65536), p_metadata);
  -- The newest 50 of a type, and of those what fits into a megabyte.
  -- Who deletes the same at this moment is not waited for.
  delete from pgfresh.refused_answer
  where id in (
    select old.id
    from pgfresh.refused_answer as old
    where old.id in (
      select kept.id
      from (
        select r.id, row_number() over newest as place, sum(octet_length(r.body)) over newest as bytes
        from pgfresh.refused_answer as r
        where r.type_id = p_type_id
        window newest as (order by r.id desc)
      ) as kept
      where kept.place > 50 or (kept.bytes > 1048576 and kept.place > 1)
    ) for update skip locked
  );
end
$$;
comment on function pgfresh.keep_refused_answer(
  int, text, bigint, text, text, int, text, bigint, bytea, jsonb) is
  'Keeps an answer that was refused, at most its first 65536 bytes, '
  'and of its data type at most the newest 50 and a megabyte.';

create or replace function pgfresh.release_claim(p_worker bigint, p_request uuid) returns int
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_held record;
begin
  if p_worker is null or p_request is null then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      'p_worker and p_request must not be null',
      'Pass the worker, and the name of the claim whose answer did not come.');
  end if;
  select coalesce(array_agg(held.id), '{}') as ids, coalesce(array_agg(held.attempt), '{}') as attempts
  into v_held
  from (
    select j.id, j.attempt
    from pgfresh.claim as c
    cross join unnest(c.job_ids) as job(id)
    join pgfresh.job as j on j.id = job.id and j.request = c.request
    where c.request = p_request and c.worker = p_worker and j.state = 'x'
    order by j.id for update of j skip locked
  ) as held;
  if cardinality(v_held.ids) > 0 then
    perform pgfresh.turn_back_jobs(
      v_held.ids, v_held.attempts, array_fill(0::bigint, array[cardinality(v_held.ids)]), 'put_back');
  end if;
  return cardinality(v_held.ids);
end
$$;
comment on function pgfresh.release_claim(bigint, uuid) is
  'Puts back what a worker has claimed but was never told of, because the answer was lost on its way. '
  'Returns how many jobs that were. '
  'Without it they come back by themselves a few seconds later.';
