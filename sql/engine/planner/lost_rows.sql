create or replace function pgfresh_engine.lapse_pause(p_lapses int, p_ttl interval) returns interval
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
  select case
    when p_lapses <= 1 then interval '0'
    else least(interval '15 seconds' * power(2, least(p_lapses, 20) - 2), p_ttl, interval '24 hours')
  end
$$;
comment on function pgfresh_engine.lapse_pause(int, interval) is
  'How long a pair is left alone whose row was deleted or set back by others so many times in a row: '
  'the first time not at all, then 15 s, doubled each time, at most its TTL and a day.';

-- True even if its check raises, for instance because of another column of the row.
create or replace function pgfresh_engine.has_row(p_type_id int, p_key text) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  return not exists (
    select from pgfresh_engine.ask_keys(
      (select r.missing_sql from pgfresh_engine.type_resolution as r where r.type_id = p_type_id), array[p_key])
  );
exception
  when lock_not_available then
    return null;
  when others then
    -- A key that does not fit the type of its column can have no row.
    return false;
end
$$;
comment on function pgfresh_engine.has_row(int, text) is
  'Whether a pair has a row; null if that cannot be seen now. A part of the planner.';

/*
  Pairs that are stale for a reason other than age. A row that is gone, or older than pgfresh left it, was changed by
  others: it is fetched again at once, but each repetition within a TTL doubles the pause, because a trigger that
  deletes rows must not spend the budget. A row that is stale right after it was written, or whose check raises, would
  be fetched in a loop: it is fetched once per TTL.
*/
create or replace function pgfresh_engine.note_lapses(
  p_type pgfresh.data_type_registry, p_looks pgfresh_engine.look[], p_now timestamptz)
returns table (key text, place tid, until timestamptz)
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  v_verdict record;
  v_lost int := 0; v_longest interval; v_early int := 0; v_example text;
begin
  for v_verdict in
    select l.key, l.pair, l.row_at, l.stale_at, l.found, (l.pair).ok_at + p_type.ttl as paced,
      (l.pair).outcome in ('fresh', 'unchanged', 'older_source') as succeeded,
      l.row_at > (l.pair).empty_at as denied_before,
      coalesce(case
        when l.found then l.row_at < (l.pair).row_at
        else not l.found and ((l.pair).row_at is not null or not (l.pair).seen)
      end, false) as lost,
      case
        when (l.pair).lapsed_at + pgfresh_engine.lapse_pause((l.pair).lapses, p_type.ttl) + p_type.ttl > p_now
          then (l.pair).lapses + 1
        else 1
      end as lapses
    from (
      select l.key, l.row_at, l.stale_at, case when l.changed is not null then l.row_at is not null end as found, p.pair
      from unnest(p_looks) as l
      cross join lateral (
        select p as pair
        from pgfresh_engine.pairs as p
        where p.type_id = p_type.type_id and p.key = l.key
        for update skip locked
      ) as p
      offset 0
    ) as l
  loop
    key := v_verdict.key;
    until := case when (v_verdict.pair).next_ask_at > p_now then (v_verdict.pair).next_ask_at end;
    if v_verdict.lost and v_verdict.succeeded then
      until := case
        when v_verdict.lapses > 1 then p_now + pgfresh_engine.lapse_pause(v_verdict.lapses, p_type.ttl)
      end;
      if v_verdict.lapses > 1 then
        v_lost := v_lost + 1;
        v_longest := greatest(v_longest, until - p_now);
        v_example := key;
      end if;
    elsif v_verdict.denied_before then
      -- Another writer has added a row since the source said that there is nothing.
      until := case when v_verdict.row_at + p_type.ttl > p_now then v_verdict.row_at + p_type.ttl end;
    elsif v_verdict.paced > p_now and (
      v_verdict.found is null or (not (v_verdict.pair).seen and v_verdict.succeeded
        and (v_verdict.stale_at > p_now or (v_verdict.stale_at > (v_verdict.pair).ok_at) is not true))
    ) then
      until := greatest(until, v_verdict.paced);
      if v_verdict.found is not null then
        v_early := v_early + 1;
        v_example := key;
      end if;
    end if;
    update pgfresh_engine.pairs as p
    set seen = p.seen or v_verdict.found is not null,
      row_at = case
        when v_verdict.found is not null then v_verdict.row_at
        when pgfresh_engine.has_row(p.type_id, p.key) then coalesce(p.row_at, '-infinity')
      end,
      confirmed_at = case when not v_verdict.lost then p.confirmed_at end,
      empty_at = case when v_verdict.denied_before is not true then p.empty_at end,
      stale_at = case
        when v_verdict.denied_before then until
        else p_now
      end,
      lapses = case when v_verdict.lost and v_verdict.succeeded then v_verdict.lapses else p.lapses end,
      lapsed_at = case when v_verdict.lost and v_verdict.succeeded then p_now else p.lapsed_at end,
      next_ask_at = case when v_verdict.denied_before is not true then until end
    where p.type_id = p_type.type_id and p.key = v_verdict.key
    returning p.ctid into place;
    return next;
  end loop;
  if v_lost > 0 then
    perform pgfresh_engine.warn('row_lost', p_type.data_type,
      format('Rows of %s, such as that of %s, are gone or set back again and again after a refresh that left them; '
        'the last pause before they are fetched again is %s',
        p_type.table_name, quote_literal(left(v_example, 80)), pgfresh_engine.in_words(v_longest)),
      format('Find what changes them: a trigger, a cleanup job, another writer of %s.', p_type.table_name), v_lost);
  end if;
  if v_early > 0 then
    perform pgfresh_engine.warn('stale_when_written', p_type.data_type,
      format('Rows of %s, such as that of %s, are stale as soon as they are written, so they are fetched once per TTL',
        p_type.table_name, quote_literal(left(v_example, 80))),
      format('See what %s says of a row that was just written, and what is in %s.',
        p_type.staleness_function, p_type.timestamp_column),
      v_early);
  end if;
end
$$;
comment on function pgfresh_engine.note_lapses(
  pgfresh.data_type_registry, pgfresh_engine.look[], timestamptz) is
  'Decides about pairs that are stale although they should not be: until when each is left alone, or null if it is '
  'fetched now. Pairs that another transaction has locked are left out. A part of the planner.';
