/*
  Each source has a state row, with or without limits. A source that is deleted and added again under its name gets its
  id back: its calls, usage and reservations count at the provider, and do not restart.
*/
create or replace function pgfresh_engine.keep_source() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_past pgfresh_engine.source_past;
begin
  if tg_name = 'keep_source_id' then
    delete from pgfresh_engine.source_past where name = new.name returning * into v_past;
    new.id := coalesce(v_past.source_id, new.id);
    if not v_past.rated and new.rate_limit_per_minute is not null then
      perform pgfresh_engine.count_unknown_calls(new.id, new.api_keys);
    end if;
    return new;
  elsif tg_name = 'add_source_state' then
    insert into pgfresh_engine.source_state (source_id, level_at) values (new.id, pgfresh.clock())
    on conflict do nothing;
  elsif tg_name = 'begin_rate' then
    perform pgfresh_engine.count_unknown_calls(new.id, new.api_keys);
  else
    insert into pgfresh_engine.source_past (name, source_id, rated)
    values (old.name, old.id, old.rate_limit_per_minute is not null)
    on conflict (name) do update set source_id = excluded.source_id, rated = excluded.rated;
  end if;
  return null;
end
$$;
comment on function pgfresh_engine.keep_source() is
  'Triggers of sources: one that is added again gets the number of its past; each has a state row; '
  'and a rate on a source that had none begins with a minute of waiting.';

create or replace trigger keep_source_id before insert on pgfresh.sources
  for each row execute function pgfresh_engine.keep_source();
create or replace trigger add_source_state after insert on pgfresh.sources
  for each row execute function pgfresh_engine.keep_source();
create or replace trigger begin_rate after update of rate_limit_per_minute on pgfresh.sources
  for each row when (old.rate_limit_per_minute is null and new.rate_limit_per_minute is not null)
  execute function pgfresh_engine.keep_source();
create or replace trigger remember_source_id after delete on pgfresh.sources
  for each row execute function pgfresh_engine.keep_source();

create or replace function pgfresh_engine.hold_source(p_source_id int, p_until timestamptz, p_reason text)
returns timestamptz
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := pgfresh.clock();
  -- A header must not stop a source for a year.
  v_until timestamptz := least(p_until, v_now + interval '1 day');
  v_source pgfresh.sources;
begin
  perform pgfresh_engine.require_reason('p_reason', p_reason);
  select * into v_source from pgfresh.sources where id = p_source_id for no key update;
  if not found then
    perform pgfresh_engine.refuse('PGF_SOURCE_UNKNOWN',
      format('there is no source %s', coalesce(p_source_id::text, 'null')),
      'Pass the source_id of the claimed job.');
  end if;
  if p_until is null then
    -- Answers that arrive during the pause belong to earlier calls, and must not double it.
    if v_source.paused_until > v_now then
      return v_source.paused_until;
    end if;
    v_until := v_now + least(interval '1 hour', interval '10 seconds' * power(2, least(v_source.unhinted_holds, 12)))
      * (0.75 + random() / 4);
    perform pgfresh_engine.warn('limit_without_hint', v_source.name,
      format('The provider of %s refuses calls as too many and does not say for how long: left alone for %s, '
        'longer each time.', v_source.name, pgfresh_engine.in_words(date_trunc('second', v_until - v_now))),
      'Set rate_limit_per_minute of the source to what the provider allows.');
  end if;
  if v_until > greatest(v_now, v_source.paused_until) then
    update pgfresh.sources
    set paused_until = v_until, paused_by = 'provider', pause_reason = p_reason,
      unhinted_holds = case when p_until is null then least(unhinted_holds + 1, 100) else unhinted_holds end
    where id = p_source_id
    returning paused_until into v_source.paused_until;
  end if;
  return v_source.paused_until;
end
$$;
comment on function pgfresh_engine.hold_source(int, timestamptz, text) is
  'The provider asked to be left alone until then (Retry-After, x-ratelimit): nobody calls the source earlier. '
  'Null if it did not say until when: then for 10 s, doubled each time until a call succeeds, at most an hour. '
  'At most a day from now; never shortens a pause. Returns until when it is paused.';
grant execute on function pgfresh_engine.hold_source(int, timestamptz, text) to pgfresh_worker;

-- The same time for everything held within an hour, so that held pairs are found together when the obstacle ends, and
-- not written again. Each tick checks whether the obstacle has ended, and each sweep whether a gate has opened.
create or replace function pgfresh_engine.open_end(p_now timestamptz) returns timestamptz
language sql stable parallel safe
set search_path = pg_catalog, pg_temp
as $$ select date_trunc('hour', p_now, 'UTC') + interval '2 hours' $$;
comment on function pgfresh_engine.open_end(timestamptz) is
  'When a pair is looked at again at the latest that an obstacle without an end keeps from being planned.';

create or replace function pgfresh_engine.source_obstacle(p_source_id int, p_now timestamptz)
returns table (reason text, until timestamptz)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_source pgfresh.sources;
  v_until timestamptz;
begin
  select * into v_source from pgfresh.sources where id = p_source_id;
  if exists (select from pgfresh.spending_stop) then
    return query select 'stopped', pgfresh_engine.open_end(p_now);
  elsif not v_source.enabled then
    return query select 'paused', pgfresh_engine.open_end(p_now);
  elsif v_source.paused_until > p_now then
    return query
    select case v_source.paused_by when 'breaker' then 'breaker' when 'provider' then 'rate' else 'paused' end,
      case when isfinite(v_source.paused_until) then v_source.paused_until else pgfresh_engine.open_end(p_now) end;
  elsif v_source.quota_bytes is not null then
    v_until := pgfresh_engine.quota_until(p_source_id, p_now);
    if v_until is not null then
      return query select 'quota', v_until;
    end if;
  end if;
end
$$;
comment on function pgfresh_engine.source_obstacle(int, timestamptz) is
  'What keeps a source from being planned for, and until when: stopped, paused, breaker, rate or quota. '
  'No row if nothing does.';

create or replace function pgfresh_engine.type_obstacle(p_type_id int, p_source_id int, p_now timestamptz)
returns table (reason text, until timestamptz)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  -- First, because a type in quarantine is not even checked for staleness.
  if pgfresh_engine.is_quarantined(p_type_id, p_now) then
    return query select 'quarantined', pgfresh_engine.open_end(p_now);
    return;
  end if;
  return query select o.reason, o.until from pgfresh_engine.source_obstacle(p_source_id, p_now) as o;
  if not found then
    return query
    select 'paused', b.paused_until
    from pgfresh_engine.breaker as b
    where b.type_id = p_type_id and b.paused_until > p_now;
  end if;
end
$$;
comment on function pgfresh_engine.type_obstacle(int, int, timestamptz) is
  'What keeps a data type from being planned for: its quarantine, what source_obstacle says of its source, '
  'or its own pause.';

-- With the writer's rights, because only then is current_user the writer.
create or replace function pgfresh_engine.note_spending_stop() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  new.stopped_at := pgfresh.clock();
  new.stopped_by := current_user;
  if (length(new.reason) between 1 and 1000) is not true then
    raise exception using errcode = 'PGF01',
      message = 'PGF_ARGUMENT_INVALID: reason must have 1 to 1000 characters',
      hint = 'Say why nothing may be spent.';
  end if;
  return new;
end
$$;
comment on function pgfresh_engine.note_spending_stop() is 'Trigger of spending_stop: notes who stopped, and when.';
create or replace trigger note_spending_stop before insert on pgfresh.spending_stop
  for each row execute function pgfresh_engine.note_spending_stop();

create or replace function pgfresh_engine.follow_spending() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform pgfresh_engine.wake_workers();
  return null;
end
$$;
comment on function pgfresh_engine.follow_spending() is
  'Trigger of spending_stop: when it ends, workers look for jobs at once.';
create or replace trigger follow_spending after delete on pgfresh.spending_stop
  for each row execute function pgfresh_engine.follow_spending();
