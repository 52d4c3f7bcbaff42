/*
  The first statement of a commit of ends: locks the jobs that still run in the given attempt, in the order in which
  every end locks them. Of the others it tells which have ended, so that a commit which was never confirmed is
  recognised when it is run again. Rows of a data type that was changed since the claim are not written: they may be of
  another source, or for another table.
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
  -- The end marks the pairs; the triggers need not do it for the rows.
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

create or replace function pgfresh_engine.keep_refused_answer(
  p_type_id int, p_key text, p_job_id bigint, p_outcome text, p_error text, p_status int, p_content_type text,
  p_size bigint, p_body bytea, p_metadata jsonb default null)
returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform pgfresh_engine.require_outcome(p_outcome);
  if p_type_id is null or p_key is null or p_error is null or p_size is null or p_body is null then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      'a refused answer needs a type, a key, an error, a size and a body',
      'Pass all of them.');
  end if;
  perform pgfresh_engine.require_key(p_key);
  perform pgfresh_engine.require_range('p_size', p_size, 0, 1e15);
  if not exists (select from pgfresh.data_type_registry where type_id = p_type_id) then
    perform pgfresh_engine.refuse('PGF_TYPE_UNKNOWN',
      format('there is no data type with the number %s', p_type_id),
      'Pass the type of the claimed job.');
  end if;
  insert into pgfresh_engine.refused_answer (
    type_id, key, job_id, at, outcome, error,
    status, content_type, size, body, metadata)
  values (
    p_type_id, p_key, p_job_id, pgfresh.clock(), p_outcome, left(p_error, 4000),
    p_status, left(p_content_type, 200), p_size, substring(p_body for 65536), p_metadata);
  -- Keep the newest 50 of a type, and of those at most a megabyte. Do not wait for others that delete the same rows.
  delete from pgfresh_engine.refused_answer
  where id in (
    select old.id
    from pgfresh_engine.refused_answer as old
    where old.id in (
      select kept.id
      from (
        select r.id, row_number() over newest as place, sum(octet_length(r.body)) over newest as bytes
        from pgfresh_engine.refused_answer as r
        where r.type_id = p_type_id
        window newest as (order by r.id desc)
      ) as kept
      where kept.place > 50 or (kept.bytes > 1048576 and kept.place > 1)
    ) for update skip locked
  );
end
$$;
comment on function pgfresh_engine.keep_refused_answer(
  int, text, bigint, text, text, int, text, bigint, bytea, jsonb) is
  'Keeps an answer that was refused, at most its first 65536 bytes, '
  'and of its data type at most the newest 50 and a megabyte.';
grant execute on function pgfresh_engine.keep_refused_answer(int, text, bigint, text, text, int, text, bigint, bytea,
  jsonb) to
  pgfresh_worker;

create or replace function pgfresh_engine.release_claim(p_worker bigint, p_request uuid) returns int
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_held jsonb;
begin
  if p_worker is null or p_request is null then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      'p_worker and p_request must not be null',
      'Pass the worker, and the name of the claim whose answer did not come.');
  end if;
  select jsonb_agg(jsonb_build_object('id', held.id, 'attempt', held.attempt))
  into v_held
  from (
    select j.id, j.attempt
    from pgfresh_engine.claim as c
    cross join unnest(c.job_ids) as job(id)
    join pgfresh_engine.job as j on j.id = job.id and j.request = c.request
    where c.request = p_request and c.worker = p_worker and j.state = 'x'
    order by j.id for update of j skip locked
  ) as held;
  if v_held is not null then
    perform pgfresh_engine.put_back_jobs(v_held);
  end if;
  return coalesce(jsonb_array_length(v_held), 0);
end
$$;
comment on function pgfresh_engine.release_claim(bigint, uuid) is
  'Puts back what a worker has claimed but was never told of, because the answer was lost on its way. '
  'Returns how many jobs that were.';
grant execute on function pgfresh_engine.release_claim(bigint, uuid) to pgfresh_worker;

/*
  What answers have taken away of a data type, within a day or within its TTL where that is longer: in one TTL every key
  that is viewed is asked for about once, so a provider that lies about all of them is counted whole. While answers are
  refused for it the count does not begin anew, because refused keys are asked for more and more rarely, and a lie that
  goes on would then take the rest bit by bit.
*/
create or replace function pgfresh_engine.count_losses(p_type_id int, p_lost bigint) returns bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := pgfresh.clock();
  v_window interval;
  v_lost bigint;
begin
  perform pgfresh_engine.require_range('p_lost', p_lost, 0, 1e15);
  select greatest(r.ttl, interval '1 day')
  into v_window
  from pgfresh.data_type_registry as r
  where r.type_id = p_type_id;
  if not found then
    perform pgfresh_engine.refuse('PGF_TYPE_UNKNOWN',
      format('there is no data type with the number %s', coalesce(p_type_id::text, 'null')),
      'Pass the type of the claimed job.');
  end if;
  insert into pgfresh_engine.type_losses as l (type_id, since, lost)
  values (p_type_id, v_now, p_lost)
  on conflict (type_id) do update
    set (since, lost, refused_at) = (
      select
        case when o.is_over then excluded.since else l.since end,
        case when o.is_over then 0 else l.lost end + excluded.lost,
        case when not o.is_over then l.refused_at end
      from (
        select v_now >= l.since + v_window and coalesce(v_now >= l.refused_at + 2 * v_window, true) as is_over
      ) as o
    )
  returning l.lost into v_lost;
  return v_lost - p_lost;
end
$$;
comment on function pgfresh_engine.count_losses(int, bigint) is
  'Adds rows that answers take away to the count of their data type, and returns what it was before: '
  'within a day, or within the TTL where that is longer. A part of the end of jobs.';
grant execute on function pgfresh_engine.count_losses(int, bigint) to pgfresh_worker;

create or replace function pgfresh_engine.note_suspicion(p_type_id int, p_message text, p_count int, p_of_type boolean)
returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_type pgfresh.data_type_registry;
begin
  perform pgfresh_engine.require_range('p_count', p_count, 1, 1000000);
  select * into v_type from pgfresh.data_type_registry where type_id = p_type_id;
  if not found or p_message is null or p_of_type is null then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      'a suspicion needs the number of a data type, a message, and whether it is about the whole type',
      'Pass all of them.');
  end if;
  if p_of_type then
    insert into pgfresh_engine.type_losses as l (type_id, since, lost, refused_at)
    values (p_type_id, pgfresh.clock(), 0, pgfresh.clock())
    on conflict (type_id) do update set refused_at = excluded.refused_at;
  end if;
  perform pgfresh_engine.warn('suspicious_answers', v_type.data_type, left(p_message, 1000),
    format('See "pgfresh refused list %1$s". If it is true, accept one with "pgfresh refused replay <id> --write", '
      'which begins the count anew, or raise max_deletes of %1$s; '
      'then: select pgfresh.retry_failed_jobs(p_data_type => %2$L);',
      v_type.data_type, v_type.data_type),
    p_count);
end
$$;
comment on function pgfresh_engine.note_suspicion(int, text, int, boolean) is
  'Warns of answers that were refused because too many rows would go at once. A part of the end of jobs.';
grant execute on function pgfresh_engine.note_suspicion(int, text, int, boolean) to pgfresh_worker;

create or replace function pgfresh_engine.accept_refused_answer(p_id bigint, p_outcome text, p_row_at timestamptz)
returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := pgfresh.clock();
  v_answer pgfresh_engine.refused_answer;
  v_type pgfresh.data_type_registry;
begin
  if p_outcome is null or p_outcome not in ('fresh', 'unchanged', 'empty') then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      format('p_outcome must be fresh, unchanged or empty, got %s',
        coalesce(left(quote_literal(p_outcome), 60), 'null')),
      'Pass what came of writing the answer.');
  end if;
  delete from pgfresh_engine.refused_answer where id = p_id returning * into v_answer;
  if not found then
    perform pgfresh_engine.refuse('PGF_ARGUMENT_INVALID',
      format('there is no refused answer %s', coalesce(p_id::text, 'null')),
      'The known ones: select id from pgfresh_engine.refused_answer.');
  end if;
  select * into v_type from pgfresh.data_type_registry where type_id = v_answer.type_id;
  -- An operator has vouched for the source, so the count of lost rows restarts.
  delete from pgfresh_engine.type_losses where type_id = v_answer.type_id;
  with accepted as (
    update pgfresh_engine.pairs as p
    set outcome = p_outcome, fails = 0, ok_at = greatest(p.ok_at, v_answer.at), waits_for = null,
      confirmed_at = case when p_outcome = 'unchanged' then v_answer.at end,
      empty_at = case when p_outcome = 'empty' then v_answer.at end,
      next_ask_at = case when p_outcome = 'empty' then v_answer.at + coalesce(v_type.empty_ttl, v_type.ttl) end,
      -- The planner reads the row at its next look.
      row_at = p_row_at, stale_at = v_answer.at + v_type.ttl, seen = false,
      due_at = case when p.demanded and p.job_id is null then v_now else p.due_at end
    where p.type_id = v_answer.type_id and p.key = v_answer.key
    returning p.demanded and p.job_id is null as is_looked_at
  )
  insert into pgfresh_engine.due (due_at, type_id, key)
  select v_now, v_answer.type_id, v_answer.key from accepted as a where a.is_looked_at
  on conflict do nothing;
  perform pgfresh_engine.mark_pairs(v_answer.type_id, array[v_answer.key]);
end
$$;
comment on function pgfresh_engine.accept_refused_answer(bigint, text, timestamptz) is
  'Notes that a refused answer was written after all, and forgets it; what the data type has lost is counted anew. '
  'Call it in the transaction that has written the rows, with the time of the newest of them.';
grant execute on function pgfresh_engine.accept_refused_answer(bigint, text, timestamptz) to
  pgfresh_worker, pgfresh_operator;
