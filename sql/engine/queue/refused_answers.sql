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
  -- Keep the newest 50 of a type, at most a megabyte. Do not wait for others that delete the same rows.
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
      -- The planner reads the row at its next check.
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
