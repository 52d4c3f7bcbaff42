/*
  Rate. A source may be called N times in any minute with each of its API keys, as the provider counts. So there are N
  rows a key, and a call takes one. It must be sent by use_by, or not at all; the row is free again a minute after that,
  plus what the way to the provider may differ from call to call. So two calls by one row are a minute apart where they
  arrive, whatever became of who took it. 1.25 s to send, 0.75 s of difference and 1.15 s until somebody takes the row
  again make 285 of 300 calls a minute.
*/
create or replace function pgfresh.use_by_of(p_now timestamptz) returns timestamptz
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$ select p_now + interval '1.25 seconds' $$;
comment on function pgfresh.use_by_of(timestamptz) is
  'Until when a call must be sent for which a place in the rate was taken now.';

create or replace function pgfresh.slot_free_at(p_use_by timestamptz) returns timestamptz
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$ select p_use_by + interval '60.75 seconds' $$;
comment on function pgfresh.slot_free_at(timestamptz) is
  'When the place of a call that is sent by then may be taken again.';

/*
  How many calls a source with a rate may make now, for people and for nobody. Calls that come together come together
  again a minute later, and in between who begins to look waits. So they are spread: in ten seconds a little more than a
  sixth of the minute's, or ten.
*/
create or replace function pgfresh.calls_now(p_source pgfresh.sources, p_now timestamptz)
returns table (viewed int, background int, next_at timestamptz)
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_total int := p_source.rate_limit_per_minute * (p_source.api_keys - cardinality(p_source.denied_keys));
  v_pace int := greatest(10, ceil(v_total * 0.185));
  -- Those who are free again later than this were taken within the last ten seconds.
  v_lately timestamptz := pgfresh.slot_free_at(pgfresh.use_by_of(p_now - interval '10 seconds'));
  v_free int; v_taken int; v_first_free timestamptz; v_first_taken timestamptz;
begin
  select count(*) filter (where s.free_at <= p_now), count(*) filter (where s.free_at > v_lately),
    min(s.free_at) filter (where s.free_at > p_now), min(s.free_at) filter (where s.free_at > v_lately)
  into v_free, v_taken, v_first_free, v_first_taken
  from pgfresh.rate_slot as s
  where s.source_id = p_source.id and s.api_key <> all (p_source.denied_keys);
  viewed := greatest(0, least(v_free, v_pace - v_taken));
  background := greatest(0, least(
    v_free - floor(p_source.viewed_share * v_total),
    ceil(v_pace * (1 - p_source.viewed_share)) - v_taken
  ));
  next_at := case when v_free = 0 then v_first_free when v_taken >= v_pace then p_now + (v_first_taken - v_lately) end;
  return next;
end
$$;
comment on function pgfresh.calls_now(pgfresh.sources, timestamptz) is
  'How many calls the rate of a source leaves now for what people look at and for the rest, '
  'and if none, when the next is free.';

create or replace function pgfresh.keep_rate_slots() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  -- Nobody counted the calls of a source that had no limit, so they may all have been in this minute.
  v_free_at timestamptz := case
    when tg_op = 'UPDATE' and old.rate_limit_per_minute is null
      then pgfresh.slot_free_at(pgfresh.use_by_of(pgfresh.clock()))
    else '-infinity'
  end;
begin
  -- Whoever is taking some is waited for. The next statement then sees what was used last, and that is kept: when it is
  -- free again, what goes now would have been free before.
  perform from pgfresh.rate_slot where source_id = new.id order by api_key, slot for update;
  delete from pgfresh.rate_slot as s
  using (
    select api_key, slot, row_number() over (partition by api_key order by free_at desc, slot) as place
    from pgfresh.rate_slot
    where source_id = new.id
  ) as ranked
  where s.source_id = new.id and s.api_key = ranked.api_key and s.slot = ranked.slot
    and (new.rate_limit_per_minute is null or s.api_key > new.api_keys or ranked.place > new.rate_limit_per_minute);
  insert into pgfresh.rate_slot (source_id, api_key, slot, free_at)
  select new.id, k.api_key, coalesce(there.last, 0) + n, v_free_at
  from generate_series(1, new.api_keys) as k(api_key)
  cross join lateral (
    select max(slot) as last, count(*) as count
    from pgfresh.rate_slot
    where source_id = new.id and api_key = k.api_key
  ) as there
  cross join lateral generate_series(1, new.rate_limit_per_minute - there.count) as n;
  return null;
end
$$;
comment on function pgfresh.keep_rate_slots() is
  'Trigger of sources: as many rows in rate_slot as the source may be called in a minute, for each of its API keys.';

create or replace trigger keep_rate_slots after insert or update of rate_limit_per_minute, api_keys on pgfresh.sources
  for each row execute function pgfresh.keep_rate_slots();

create or replace function pgfresh.take_slots(p_source_id int, p_api_key smallint, p_count int, p_now timestamptz)
returns smallint[]
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_keys smallint[];
  v_denied smallint[] := (select denied_keys from pgfresh.sources where id = p_source_id);
begin
  with free as (
    select s.api_key, s.slot
    from pgfresh.rate_slot as s
    where s.source_id = p_source_id and s.free_at <= p_now
      and case when p_api_key is null then s.api_key <> all (v_denied) else s.api_key = p_api_key end
    order by s.free_at
    limit p_count for update skip locked
  ), taken as (
    update pgfresh.rate_slot as s
    set free_at = pgfresh.slot_free_at(pgfresh.use_by_of(p_now))
    from free
    where s.source_id = p_source_id and s.api_key = free.api_key and s.slot = free.slot
    returning s.api_key
  )
  select coalesce(array_agg(taken.api_key), '{}') into v_keys from taken;
  return v_keys;
end
$$;
comment on function pgfresh.take_slots(int, smallint, int, timestamptz) is
  'Takes up to so many calls of a source''s rate, of one API key or of any that is not denied. '
  'Returns the key of each.';

create or replace function pgfresh.take_call(p_source_id int, p_api_key smallint default null) returns timestamptz
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := pgfresh.clock();
  v_source pgfresh.sources;
begin
  select * into v_source from pgfresh.sources where id = p_source_id;
  if not found then
    perform pgfresh.refuse('PGF_SOURCE_UNKNOWN',
      format('there is no source %s', coalesce(p_source_id::text, 'null')),
      'Pass the source_id of the claimed job.');
  end if;
  if p_api_key not between 1 and v_source.api_keys then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      format('p_api_key must be from 1 to %s, got %s', v_source.api_keys, p_api_key),
      'Pass the api_key of the claimed job.');
  end if;
  if exists (select from pgfresh.spending_stop) or not v_source.enabled or v_source.paused_until > v_now then
    return null;
  end if;
  if v_source.rate_limit_per_minute is not null
      and cardinality(pgfresh.take_slots(p_source_id, p_api_key, 1, v_now)) = 0 then
    return null;
  end if;
  return pgfresh.use_by_of(v_now);
end
$$;
comment on function pgfresh.take_call(int, smallint) is
  'Asks for one more call than the claim has allowed, for instance for a redirect. '
  'Returns until when it must be sent, or null if it may not be made now.';

/*
  All that a claim of a limited source takes with it, after it was decided which jobs it is: calls, bytes, places, the
  probe. Returns those for which there still was a call.
*/
create or replace function pgfresh.take_limits(p_source_id int, p_ids bigint[], p_bytes bigint[], p_now timestamptz)
returns table (id bigint, api_key smallint, reserved bigint)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_source pgfresh.sources;
  v_ids bigint[] := p_ids;
  v_keys smallint[];
  v_probes smallint[] := '{}';
  v_usable smallint;
  v_reserved bigint[];
  v_state pgfresh.source_state;
  v_missing boolean;
begin
  select * into v_source from pgfresh.sources as s where s.id = p_source_id;
  if v_source.denied_keys <> '{}' then
    v_probes := pgfresh.take_key_probes(v_source, cardinality(v_ids), p_now);
  end if;
  if v_source.rate_limit_per_minute is not null then
    -- Extra calls of jobs that run may have been faster than this.
    v_keys := v_probes
      || pgfresh.take_slots(p_source_id, null, cardinality(v_ids) - cardinality(v_probes), p_now);
    v_ids := v_ids[1:cardinality(v_keys)];
  elsif v_source.denied_keys <> '{}' then
    v_usable := (
      select min(k) from generate_series(1, v_source.api_keys) as k where k <> all (v_source.denied_keys)
    );
    v_ids := case when v_usable is null then v_ids[1:cardinality(v_probes)] else v_ids end;
    v_keys := v_probes || array_fill(v_usable, array[cardinality(v_ids) - cardinality(v_probes)]);
  end if;
  if v_ids = '{}' then
    return;
  end if;
  -- The jobs are told what was reserved for them: a quota that is set or removed meanwhile changes nothing about it.
  v_reserved := case
    when v_source.quota_bytes is null then array_fill(0::bigint, array[cardinality(v_ids)])
    else p_bytes[1:cardinality(v_ids)]
  end;
  select * into v_state from pgfresh.source_state as s where s.source_id = p_source_id;
  -- A round of four calls, as pick_limited goes by it.
  for v_missing in
    select j.missing
    from unnest(v_ids) with ordinality as t(id, place)
    join pgfresh.job as j on j.id = t.id
    order by t.place
  loop
    v_state.missing_turns := case when v_state.turn = 3 then 0 else v_state.missing_turns + v_missing::int end;
    v_state.turn := (v_state.turn + 1) % 4;
  end loop;
  if v_source.quota_bytes is not null then
    select b.level into v_state.level from pgfresh.source_budget(p_source_id) as b;
    v_state.level := v_state.level + (select sum(bytes) from unnest(v_reserved) as bytes);
    v_state.level_at := p_now;
    v_state.reserved := v_state.reserved + (select sum(bytes) from unnest(v_reserved) as bytes);
  end if;
  update pgfresh.source_state as s
  set turn = v_state.turn, missing_turns = v_state.missing_turns,
    reserved = v_state.reserved, level = v_state.level, level_at = v_state.level_at
  where s.source_id = p_source_id;
  if v_source.max_concurrency is not null or v_source.one_key_at_a_time then
    insert into pgfresh.source_place as p (source_id, job_id, attempt, key)
    select p_source_id, j.id, j.attempt + 1, j.key from pgfresh.job as j where j.id = any (v_ids)
    on conflict (source_id, job_id) do update set attempt = excluded.attempt;
  end if;
  -- One that has opened since they were picked is paused.
  if v_source.breaker_opened_at is not null and (v_source.paused_until > p_now) is not true then
    update pgfresh.sources as s
    set probe_job = v_ids[1],
      probe_attempt = (select j.attempt + 1 from pgfresh.job as j where j.id = v_ids[1])
    where s.id = p_source_id;
  end if;
  return query select t.id, t.api_key, t.reserved from unnest(v_ids, v_keys, v_reserved) as t(id, api_key, reserved);
end
$$;
comment on function pgfresh.take_limits(int, bigint[], bigint[], timestamptz) is
  'Takes calls, bytes, places and turns for jobs of one source that are being claimed. A part of claim_jobs.';

/*
  The breaker. A source that fails five times in a row, or for which ten jobs were put off within ten minutes, is left
  alone for five minutes; the numbers are settings of the source. Then one job at a time is let through: when one
  succeeds the breaker closes, and when it fails it is open for as long again. A probe that is neither, because its
  worker is gone, is not out any more when its job does not run.

  What fails in the same moment says the same thing once. So it opens only if a job fails too that was claimed after
  the first failure of the row had been recorded.
*/
create or replace function pgfresh.note_failure(
  p_source_id int, p_ids bigint[], p_retries int, p_claimed_at timestamptz, p_error text, p_now timestamptz)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_source pgfresh.sources;
  v_most int;
  v_probe_failed boolean;
  v_in_a_row boolean; v_often boolean;
  v_why text;
begin
  select * into v_source from pgfresh.sources where id = p_source_id for no key update;
  v_most := 2 * v_source.breaker_failures;
  v_source.failure_streak := v_source.failure_streak + cardinality(p_ids);
  v_source.recent_retries := v_source.recent_retries || array_fill(p_now, array[least(p_retries, v_most)]);
  v_source.recent_retries :=
    v_source.recent_retries[greatest(1, cardinality(v_source.recent_retries) - v_most + 1):];
  v_in_a_row := v_source.failure_streak >= v_source.breaker_failures
    and (p_claimed_at >= v_source.streak_since or v_source.breaker_failures = 1);
  v_often := cardinality(v_source.recent_retries) = v_most
    and v_source.recent_retries[1] >= p_now - v_source.breaker_window
    and v_source.recent_retries[1] < p_now and p_claimed_at >= v_source.recent_retries[1];
  v_probe_failed := v_source.breaker_opened_at is not null and v_source.probe_job = any (p_ids);
  if v_probe_failed or (v_source.breaker_opened_at is null and (v_in_a_row or v_often)) then
    v_source.breaker_opened_at := coalesce(v_source.breaker_opened_at, p_now);
    v_source.probe_job := null;
    v_why := case
      when v_probe_failed then 'the probe failed'
      when v_in_a_row then format('%s failures in a row', v_source.failure_streak)
      else format('%s retries in %s', v_most, pgfresh.in_words(v_source.breaker_window))
    end || coalesce(': ' || left(p_error, 200), '');
    -- Somebody may have paused it for longer.
    if v_source.paused_until is null or v_source.paused_until < p_now + v_source.breaker_pause then
      v_source.paused_until := p_now + v_source.breaker_pause;
      v_source.paused_by := 'breaker';
      v_source.pause_reason := v_why;
    end if;
  end if;
  update pgfresh.sources
  set failure_streak = v_source.failure_streak, streak_since = coalesce(v_source.streak_since, p_now),
    recent_retries = v_source.recent_retries, last_failure_at = p_now,
    breaker_opened_at = v_source.breaker_opened_at, probe_job = v_source.probe_job,
    paused_until = v_source.paused_until, paused_by = v_source.paused_by, pause_reason = v_source.pause_reason
  where id = p_source_id;
  if v_source.breaker_opened_at = p_now then
    perform pgfresh.warn('breaker_opened', v_source.name,
      format('The source %s is left alone for %s: %s.',
        v_source.name, pgfresh.in_words(v_source.breaker_pause), v_why),
      'Nothing has to be done: one job tries later whether it is back. "pgfresh source resume" tries now.');
  end if;
end
$$;
comment on function pgfresh.note_failure(int, bigint[], int, timestamptz, text, timestamptz) is
  'Counts failures of a source, the last of whose jobs was claimed then, '
  'and opens its breaker where they are too many. A part of every end that is one.';

create or replace function pgfresh.note_success(p_source_id int, p_ids bigint[], p_now timestamptz) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_source record;
begin
  select s.failure_streak, s.unhinted_holds, s.last_success_at,
    s.breaker_opened_at is not null and s.probe_job = any (p_ids) as probed
  into v_source
  from pgfresh.sources as s
  where s.id = p_source_id;
  if v_source.probed then
    update pgfresh.sources
    set failure_streak = 0, streak_since = null, unhinted_holds = 0, last_success_at = p_now, recent_retries = '{}',
      breaker_opened_at = null, probe_job = null,
      paused_until = case when paused_by in ('breaker', 'credentials') is not true then paused_until end,
      paused_by = case when paused_by in ('breaker', 'credentials') is not true then paused_by end,
      pause_reason = case when paused_by in ('breaker', 'credentials') is not true then pause_reason end
    where id = p_source_id;
    perform pgfresh.wake_workers();
  elsif v_source.failure_streak > 0 or v_source.unhinted_holds > 0 then
    update pgfresh.sources
    set failure_streak = 0, streak_since = null, unhinted_holds = 0, last_success_at = p_now
    where id = p_source_id;
  elsif v_source.last_success_at is null or v_source.last_success_at < p_now - interval '10 seconds' then
    -- Only for people to see, so nobody waits for it, and it is written now and then.
    update pgfresh.sources
    set last_success_at = p_now
    where id = (select s.id from pgfresh.sources as s where s.id = p_source_id for no key update skip locked);
  end if;
end
$$;
comment on function pgfresh.note_success(int, bigint[], timestamptz) is
  'Notes that a source has answered: failures start anew, and a probe closes the breaker. '
  'A part of every end that is one.';

/*
  The breaker of a part: of an API key that the provider does not accept, or of a data type whose answers are refused
  or older than what is there. What was claimed before it opened neither counts nor prolongs it.
*/
create or replace function pgfresh.note_trouble(
  p_source_id int, p_api_key smallint, p_type_id int, p_kind text, p_what text[], p_most int, p_claimed_at timestamptz,
  p_error text, p_now timestamptz)
returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_source pgfresh.sources;
  v_part pgfresh.breaker;
  v_before pgfresh.breaker;
  v_name text;
  v_why text;
begin
  select * into v_source from pgfresh.sources where id = p_source_id for no key update;
  select *
  into v_before
  from pgfresh.breaker
  where case when p_type_id is null then source_id = p_source_id and api_key = p_api_key else type_id = p_type_id end;
  if v_before.opened_at > p_claimed_at then
    return true;
  end if;
  if v_before.kind = p_kind then
    v_part := v_before;
  end if;
  v_part.streak := (
    array(select distinct what from unnest(v_part.streak || p_what) as what where what is not null)
  )[1:p_most];
  if v_part.opened_at is not null or cardinality(v_part.streak) >= p_most then
    v_part.opened_at := coalesce(v_part.opened_at, p_now);
    v_part.paused_until := p_now + v_source.breaker_pause;
    v_why := case p_kind
      when 'denied' then format('the provider refuses API key %s', p_api_key)
      when 'refused' then format('%s answers in a row were refused', p_most)
      else format('%s answers in a row were older than what is there', p_most)
    end || coalesce(': ' || left(p_error, 200), '');
  end if;
  insert into pgfresh.breaker (source_id, api_key, type_id, kind, streak, opened_at, paused_until, reason)
  values (
    case when p_type_id is null then p_source_id end, p_api_key, p_type_id, p_kind,
    v_part.streak, v_part.opened_at, v_part.paused_until, v_why)
  on conflict (type_id, source_id, api_key) do update
  set kind = excluded.kind, streak = excluded.streak, opened_at = excluded.opened_at,
    paused_until = excluded.paused_until, reason = excluded.reason;
  if v_part.opened_at is null then
    return false;
  end if;
  if p_kind = 'denied' then
    perform pgfresh.deny_key(v_source, p_api_key, v_why, p_now);
  end if;
  if v_part.opened_at = p_now then
    select data_type into v_name from pgfresh.data_type_registry where type_id = p_type_id;
    perform pgfresh.warn(
      case p_kind when 'denied' then 'key_refused' when 'refused' then 'answers_refused' else 'older_source' end,
      coalesce(v_name, v_source.name),
      format('%s is left alone for %s: %s.',
        case
          when p_kind = 'denied' then format('API key %s of the source %s', p_api_key, v_source.name)
          else format('The data type %s', v_name)
        end,
        pgfresh.in_words(v_source.breaker_pause), v_why),
      case p_kind
        when 'denied' then format('Renew the API key. One job tries it later; "pgfresh source resume %s" tries it now.',
          v_source.name)
        when 'refused' then format('Compare an answer with the definition ("pgfresh refused list %s"). '
          'One job tries later; "pgfresh source resume %s" tries now.', v_name, v_source.name)
        else format('Ask the provider why its data does not move on. One job tries later; '
          '"pgfresh source resume %s" tries now.', v_source.name)
      end);
  end if;
  return true;
end
$$;
comment on function pgfresh.note_trouble(
  int, smallint, int, text, text[], int, timestamptz, text, timestamptz) is
  'Counts what is wrong with an API key (denied) or a data type (refused, older_source), '
  'and leaves it alone where it is too much in a row. Returns whether it is left alone. '
  'A part of every end that is one.';

-- Without a key that may be used, the source itself waits for the first that is tried again.
create or replace function pgfresh.deny_key(
  p_source pgfresh.sources, p_api_key smallint, p_why text, p_now timestamptz)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_denied smallint[] := array(
    select distinct k from unnest(p_source.denied_keys || p_api_key) as k where k <= p_source.api_keys order by k);
  v_until timestamptz;
begin
  if cardinality(v_denied) >= p_source.api_keys then
    select min(b.paused_until)
    into v_until
    from pgfresh.breaker as b
    where b.source_id = p_source.id and b.api_key = any (v_denied);
  end if;
  update pgfresh.sources as s
  set denied_keys = v_denied, last_failure_at = p_now,
    breaker_opened_at = case
      when v_until is not null then coalesce(s.breaker_opened_at, p_now) else s.breaker_opened_at
    end,
    probe_job = null,
    paused_until = case when v_until > coalesce(s.paused_until, p_now) then v_until else s.paused_until end,
    paused_by = case when v_until > coalesce(s.paused_until, p_now) then 'credentials' else s.paused_by end,
    pause_reason = case when v_until > coalesce(s.paused_until, p_now) then p_why else s.pause_reason end
  where s.id = p_source.id;
end
$$;
comment on function pgfresh.deny_key(pgfresh.sources, smallint, text, timestamptz) is
  'Lets an API key not be used, and pauses the source when none is left. A part of note_trouble.';

create or replace function pgfresh.note_answers(
  p_source_id int, p_type_id int, p_api_keys smallint[], p_older bigint[], p_claimed_at timestamptz,
  p_now timestamptz)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_keys smallint[];
  v_open boolean;
begin
  -- As note_trouble takes them: the row of the source, then those of its parts.
  perform from pgfresh.sources where id = p_source_id for no key update;
  -- What was called before the key was refused does not say that it is accepted again.
  with accepted as (
    delete from pgfresh.breaker
    where source_id = p_source_id and api_key = any (p_api_keys)
      and (opened_at is null or opened_at <= p_claimed_at)
    returning api_key, opened_at
  )
  select array_agg(api_key) into v_keys from accepted where opened_at is not null;
  if v_keys is not null then
    update pgfresh.sources
    set denied_keys = array(select k from unnest(denied_keys) as k where k <> all (v_keys)),
      breaker_opened_at = case when paused_by = 'credentials' then null else breaker_opened_at end,
      paused_until = case when paused_by = 'credentials' then null else paused_until end,
      pause_reason = case when paused_by = 'credentials' then null else pause_reason end,
      paused_by = nullif(paused_by, 'credentials')
    where id = p_source_id;
  end if;
  if p_older is null then
    delete from pgfresh.breaker
    where type_id = p_type_id and (opened_at is null or opened_at <= p_claimed_at)
    returning opened_at is not null into v_open;
  else
    -- Each answer counts, also if it is always the same pair.
    perform pgfresh.note_trouble(
      p_source_id, null, p_type_id, 'older_source', p_older::text[], s.breaker_failures, p_claimed_at, null, p_now)
    from pgfresh.sources as s
    where s.id = p_source_id;
  end if;
  if v_open then
    insert into pgfresh.hold (type_id, until, reason, asked_at)
    select p_type_id, 'infinity', 'refused', p_now
    where exists (select from pgfresh.refused_pair as r where r.type_id = p_type_id)
    on conflict do nothing;
  end if;
  if v_open or v_keys is not null then
    perform pgfresh.wake_workers();
  end if;
end
$$;
comment on function pgfresh.note_answers(int, int, smallint[], bigint[], timestamptz, timestamptz) is
  'Notes what answers say about API keys and a data type: these keys are accepted, '
  'and these jobs got older data than is there, or some got good data. A part of complete_jobs.';

create or replace function pgfresh.take_key_probes(p_source pgfresh.sources, p_count int, p_now timestamptz)
returns smallint[]
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_key smallint;
  v_keys smallint[] := '{}';
begin
  for v_key in
    select b.api_key
    from pgfresh.breaker as b
    where b.source_id = p_source.id and b.api_key = any (p_source.denied_keys) and b.paused_until <= p_now
    order by b.api_key
    limit p_count for update skip locked
  loop
    continue when p_source.rate_limit_per_minute is not null
      and cardinality(pgfresh.take_slots(p_source.id, v_key, 1, p_now)) = 0;
    update pgfresh.breaker
    set paused_until = p_now + interval '1 minute'
    where source_id = p_source.id and api_key = v_key;
    v_keys := v_keys || v_key;
    -- Of a source that has no other key, one job in all.
    exit when p_source.breaker_opened_at is not null;
  end loop;
  return v_keys;
end
$$;
comment on function pgfresh.take_key_probes(pgfresh.sources, int, timestamptz) is
  'API keys of a source that were refused and may be tried again, each by one job. A part of take_limits.';

create or replace function pgfresh.require_reason(p_name text, p_reason text) returns void
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  if coalesce(p_reason, '') = '' or length(p_reason) > 1000 then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      format('%s must have 1 to 1000 characters, got %s', p_name, coalesce(left(quote_literal(p_reason), 60), 'null')),
      'Say why, in a sentence that others understand.');
  end if;
end
$$;
comment on function pgfresh.require_reason(text, text) is 'Refuses what is no reason.';

create or replace function pgfresh.hold_source(p_source_id int, p_until timestamptz, p_reason text) returns timestamptz
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := pgfresh.clock();
  -- A header is not a reason to stand still for a year.
  v_until timestamptz := least(p_until, v_now + interval '1 day');
  v_source pgfresh.sources;
begin
  perform pgfresh.require_reason('p_reason', p_reason);
  select * into v_source from pgfresh.sources where id = p_source_id for no key update;
  if not found then
    perform pgfresh.refuse('PGF_SOURCE_UNKNOWN',
      format('there is no source %s', coalesce(p_source_id::text, 'null')),
      'Pass the source_id of the claimed job.');
  end if;
  if p_until is null then
    -- What comes back while it is held was called before, and says the same thing once.
    if v_source.paused_until > v_now then
      return v_source.paused_until;
    end if;
    v_until := v_now + least(interval '1 hour', interval '10 seconds' * power(2, least(v_source.unhinted_holds, 12)))
      * (0.75 + random() / 4);
    perform pgfresh.warn('limit_without_hint', v_source.name,
      format('The provider of %s refuses calls as too many and does not say for how long: left alone for %s, '
        'longer each time.', v_source.name, pgfresh.in_words(date_trunc('second', v_until - v_now))),
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
comment on function pgfresh.hold_source(int, timestamptz, text) is
  'The provider asked to be left alone until then (Retry-After, x-ratelimit): nobody calls the source earlier. '
  'Null if it did not say until when: then for 10 s, doubled each time until a call succeeds, at most an hour. '
  'At most a day from now; never shortens a pause. Returns until when it is paused.';

create or replace function pgfresh.pause_source(
  p_source text, p_until timestamptz default 'infinity', p_reason text default 'paused by hand')
returns timestamptz
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_source pgfresh.sources := pgfresh.require_source(p_source);
begin
  perform pgfresh.require_reason('p_reason', p_reason);
  if (p_until > pgfresh.clock()) is not true then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      format('p_until must be in the future, got %s', coalesce(p_until::text, 'null')),
      'Leave it out to pause the source until resume_source.');
  end if;
  update pgfresh.sources
  set paused_until = p_until, paused_by = 'person', pause_reason = p_reason
  where id = v_source.id;
  return p_until;
end
$$;
comment on function pgfresh.pause_source(text, timestamptz, text) is
  'Claims nothing of a source until then, or until resume_source. What runs goes on.';

create or replace function pgfresh.resume_source(p_source text) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_source pgfresh.sources := pgfresh.require_source(p_source);
  v_parts boolean;
begin
  perform from pgfresh.sources where id = v_source.id for no key update;
  update pgfresh.sources
  set paused_until = null, paused_by = null, pause_reason = null,
    breaker_opened_at = null, probe_job = null, failure_streak = 0, streak_since = null, unhinted_holds = 0,
    recent_retries = '{}', denied_keys = '{}'
  where id = v_source.id
    and (paused_until is not null or breaker_opened_at is not null or failure_streak > 0 or recent_retries <> '{}'
      or denied_keys <> '{}');
  with parts as (
    delete from pgfresh.breaker
    where source_id = v_source.id
      or type_id in (select r.type_id from pgfresh.data_type_registry as r where r.source_id = v_source.id)
    returning opened_at
  )
  select exists (select from parts where opened_at is not null) into v_parts;
  -- The next tick asks for what was refused.
  insert into pgfresh.hold (type_id, until, reason, asked_at)
  select r.type_id, 'infinity', 'resumed', pgfresh.clock()
  from pgfresh.data_type_registry as r
  where r.source_id = v_source.id and exists (select from pgfresh.refused_pair as p where p.type_id = r.type_id)
  order by r.type_id
  on conflict (type_id, until) do update set reason = excluded.reason;
  perform pgfresh.wake_workers();
  return coalesce(v_source.paused_until > pgfresh.clock(), false) or v_source.breaker_opened_at is not null or v_parts;
end
$$;
comment on function pgfresh.resume_source(text) is
  'Lets a source be called again at once, with all of its API keys and data types, whoever has paused it: '
  'a person, the provider or a breaker, whose count starts anew. Pairs that are left alone because their answers were '
  'refused are asked for again. Returns whether anything was paused.';

create or replace function pgfresh.stop_spending(p_reason text) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  perform pgfresh.require_reason('p_reason', p_reason);
  insert into pgfresh.spending_stop (stopped_at, reason) values (pgfresh.clock(), p_reason) on conflict do nothing;
  return found;
end
$$;
comment on function pgfresh.stop_spending(text) is
  'Spends nothing from now on: no source is claimed from or planned for. '
  'What runs goes on. False if it was stopped already.';

create or replace function pgfresh.resume_spending() returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  delete from pgfresh.spending_stop;
  if found then
    perform pgfresh.wake_workers();
    return true;
  end if;
  return false;
end
$$;
comment on function pgfresh.resume_spending() is 'Undoes stop_spending. False if nothing was stopped.';

create or replace function pgfresh.calibrate_source(
  p_source text, p_used_bytes bigint, p_since timestamptz default null,
  p_reason text default 'the provider''s own figure', p_dry_run boolean default false)
returns jsonb
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_source pgfresh.sources := pgfresh.require_source(p_source);
  v_now timestamptz := pgfresh.clock();
  v_since timestamptz := coalesce(p_since, v_now - v_source.quota_window);
  v_ledger bigint;
  v_entry bigint;
begin
  perform pgfresh.require_range('p_used_bytes', p_used_bytes, 0, 1e15);
  perform pgfresh.require_reason('p_reason', p_reason);
  if p_dry_run is null or v_since >= v_now or v_since < v_now - interval '366 days' then
    perform pgfresh.refuse('PGF_ARGUMENT_INVALID',
      'p_since must lie in the past, at most 366 days, and p_dry_run be true or false',
      'Pass when the provider began to count, or leave it out for the window of the quota.');
  end if;
  select coalesce(sum(u.bytes), 0)
  into v_ledger
  from pgfresh.usage as u
  where u.source_id = v_source.id and u.hour > v_since - interval '1 hour';
  if not p_dry_run and p_used_bytes <> v_ledger then
    v_entry := pgfresh.correct_data_usage(p_source, p_used_bytes - v_ledger, p_reason);
  end if;
  return jsonb_build_object('source', v_source.name, 'since', v_since, 'provider_bytes', p_used_bytes,
    'ledger_bytes', v_ledger, 'gap_bytes', p_used_bytes - v_ledger, 'correction', v_entry);
end
$$;
comment on function pgfresh.calibrate_source(text, bigint, timestamptz, text, boolean) is
  'Compares the ledger of a source with what the provider says was used since a time '
  '(the window of its quota if left out), and enters the gap as a signed correction. '
  'With p_dry_run only says what the gap is.';

-- The same time for all that is held in a minute, so that it is found together when the obstacle ends.
create or replace function pgfresh.open_end(p_now timestamptz) returns timestamptz
language sql stable parallel safe
set search_path = pg_catalog, pg_temp
as $$ select date_trunc('minute', p_now, 'UTC') + interval '2 minutes' $$;
comment on function pgfresh.open_end(timestamptz) is
  'When a pair is looked at again at the latest that an obstacle without an end keeps from being planned.';

create or replace function pgfresh.source_obstacle(p_source_id int, p_now timestamptz)
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
    return query select 'stopped', pgfresh.open_end(p_now);
  elsif not v_source.enabled then
    return query select 'paused', pgfresh.open_end(p_now);
  elsif v_source.paused_until > p_now then
    return query
    select case v_source.paused_by when 'breaker' then 'breaker' when 'provider' then 'rate' else 'paused' end,
      case when isfinite(v_source.paused_until) then v_source.paused_until else pgfresh.open_end(p_now) end;
  elsif v_source.quota_bytes is not null then
    v_until := pgfresh.quota_until(p_source_id, p_now);
    if v_until is not null then
      return query select 'quota', v_until;
    end if;
  end if;
end
$$;
comment on function pgfresh.source_obstacle(int, timestamptz) is
  'What keeps a source from being planned for, and until when: stopped, paused, breaker, rate or quota. '
  'No row if nothing does.';

create or replace function pgfresh.type_obstacle(p_type_id int, p_source_id int, p_now timestamptz)
returns table (reason text, until timestamptz)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  -- First: a type in quarantine is not even asked what is stale.
  if pgfresh.is_quarantined(p_type_id, p_now) then
    return query select 'quarantined', pgfresh.open_end(p_now);
    return;
  end if;
  return query select o.reason, o.until from pgfresh.source_obstacle(p_source_id, p_now) as o;
  if not found then
    return query
    select 'paused', b.paused_until
    from pgfresh.breaker as b
    where b.type_id = p_type_id and b.paused_until > p_now;
  end if;
end
$$;
comment on function pgfresh.type_obstacle(int, int, timestamptz) is
  'What keeps a data type from being planned for: its quarantine, what source_obstacle says of its source, '
  'or its own pause.';
