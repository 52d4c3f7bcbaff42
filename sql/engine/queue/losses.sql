/*
  How many rows of a data type answers have deleted within a day, or within its TTL if that is longer. Every viewed key
  is fetched about once per TTL, so if a provider returns nothing for all of them, all count. While answers are refused
  because of this, the count does not restart: refused keys are fetched more and more rarely, and a provider that stays
  wrong would delete the rest bit by bit.
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
